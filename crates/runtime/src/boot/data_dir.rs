//! The data directory: one process at a time, one format, one instance id.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::Write as _,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

use anyhow::{Context as _, bail};
use mesh_base::Chance;
use mesh_frame::InstanceId;

const FORMAT: &str = "eventmesh data 2\n";
/// The format before: group numbers, the key of delivery ids and the count of boots were in the position database.
const OLD_FORMAT: &str = "eventmesh data 1\n";

/// A data directory that belongs to this process until it is dropped.
#[derive(Debug)]
pub(super) struct DataDir {
    path: PathBuf,
    is_old: AtomicBool,
    _lock: File,
}

impl DataDir {
    /// Takes the directory, making it when it is not there.
    ///
    /// # Errors
    /// Another process has it; it was written by a newer release; it cannot be written.
    pub(super) fn take(path: &Path) -> anyhow::Result<Self> {
        fs::create_dir_all(path)
            .with_context(|| format!("cannot make the data directory {}", path.display()))?;
        let file = path.join("LOCK");
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&file)
            .with_context(|| format!("cannot write {}", file.display()))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                bail!("another process has the data directory {}", path.display());
            }
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("cannot lock {}", file.display()));
            }
        }
        let is_old = check_format(path)?;
        Ok(Self { path: path.to_owned(), is_old: is_old.into(), _lock: lock })
    }

    /// Whether it has the format before this one still.
    pub(super) fn is_old(&self) -> bool {
        self.is_old.load(Ordering::Acquire)
    }

    /// Writes the present format as its marker: releases before it refuse the directory from then on. On the disk when
    /// it returns; again it does nothing.
    ///
    /// # Errors
    /// The marker cannot be written; the old one is there then.
    pub(super) fn raise_format(&self) -> anyhow::Result<()> {
        if self.is_old() {
            write(&self.path.join("FORMAT"), FORMAT)?;
            self.is_old.store(false, Ordering::Release);
        }
        Ok(())
    }

    /// A folder in it.
    pub(super) fn folder(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The id of this instance: the configured one, else the one kept here, else a new one that is kept.
    ///
    /// # Errors
    /// The kept one cannot be read or written.
    pub(super) fn instance(
        &self,
        configured: Option<&InstanceId>,
        chance: &Chance,
    ) -> anyhow::Result<InstanceId> {
        if let Some(id) = configured {
            return Ok(id.clone());
        }
        let file = self.path.join("INSTANCE");
        if let Some(kept) = read(&file)? {
            return InstanceId::new(kept.trim())
                .with_context(|| format!("{} holds no instance id", file.display()));
        }
        let id = format!("em-{:016x}{:016x}", chance.number(), chance.number());
        write(&file, &format!("{id}\n"))?;
        Ok(InstanceId::new(&id)?)
    }
}

/// Whether the directory has the old format; a new one gets the present format.
fn check_format(directory: &Path) -> anyhow::Result<bool> {
    let file = directory.join("FORMAT");
    match read(&file)?.as_deref() {
        None => write(&file, FORMAT).map(|()| false),
        Some(FORMAT) => Ok(false),
        Some(OLD_FORMAT) => Ok(true),
        Some(found) => bail!(
            "the data directory {} has the format {:?}, this release reads {:?} and {:?}",
            directory.display(),
            found.trim(),
            OLD_FORMAT.trim(),
            FORMAT.trim()
        ),
    }
}

fn read(file: &Path) -> anyhow::Result<Option<String>> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", file.display())),
    }
}

/// Writes a small file so that it is there whole or not at all.
fn write(file: &Path, text: &str) -> anyhow::Result<()> {
    let fresh = file.with_extension("new");
    let result = File::create(&fresh)
        .and_then(|mut new| new.write_all(text.as_bytes()).and_then(|()| new.sync_all()))
        .and_then(|()| fs::rename(&fresh, file))
        .and_then(|()| File::open(file.parent().unwrap_or(file)).and_then(|folder| folder.sync_all()));
    result.with_context(|| format!("cannot write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_belongs_to_one_and_keeps_its_id() {
        let root = std::env::temp_dir().join(format!("eventmesh-data-dir-{}", uuid::Uuid::new_v4()));
        let taken = DataDir::take(&root).expect("free");
        let error = DataDir::take(&root).expect_err("taken").to_string();
        assert!(error.contains(&root.display().to_string()), "{error}");
        let id = taken.instance(None, &Chance::system()).expect("made");
        drop(taken);
        let again = DataDir::take(&root).expect("free again");
        assert_eq!(again.instance(None, &Chance::system()).expect("kept"), id);
        drop(again);
        fs::write(root.join("FORMAT"), "eventmesh data 3\n").expect("written");
        assert!(DataDir::take(&root).expect_err("newer").to_string().contains("data 3"));
        fs::remove_dir_all(&root).expect("removed");
    }
}
