//! The data directory: one process at a time, one format, one instance id.

use std::{
    fs::{self, File, OpenOptions, Permissions, TryLockError},
    io::{self, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

use anyhow::{Context as _, bail};
use mesh_base::Chance;
use mesh_frame::InstanceId;

const FORMAT: &str = "eventmesh data 2\n";
/// The format before: group numbers, the key of delivery ids and the count of boots were in the position database.
const OLD_FORMAT: &str = "eventmesh data 1\n";

/// A shorter admin token is taken for a slip.
const SHORTEST_TOKEN: usize = 16;
/// The file by which an operator says that the directory was restored.
const RESTORED: &str = "RESTORED";
/// Where a `standalone` keeps the admin token that it made itself, in the data directory.
pub(crate) const ADMIN_TOKEN_FILE: &str = "admin.token";

/// A data directory that belongs to this process until it is dropped.
#[derive(Debug)]
pub(super) struct DataDir {
    path: PathBuf,
    is_old: AtomicBool,
    _lock: File,
}

impl DataDir {
    /// Takes the directory, making it when it is not there. In one that is not a data directory yet there may be
    /// nothing but the files that the configuration names.
    ///
    /// # Errors
    /// Another process has it (an [`io::ErrorKind::WouldBlock`]); it was written by a newer release; it holds somebody else's files; it cannot be written.
    pub(super) fn take(path: &Path, configured: &[&Path]) -> anyhow::Result<Self> {
        fs::create_dir_all(path)
            .with_context(|| format!("cannot make the data directory {}", path.display()))?;
        refuse_foreign(path, configured)?;
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
                let held = format!("another process has the data directory {}", path.display());
                return Err(io::Error::new(io::ErrorKind::WouldBlock, held).into());
            }
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("cannot lock {}", file.display()));
            }
        }
        let is_old = check_format(path)?;
        close_to_others(path);
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

    /// Whether an operator says, by the file `RESTORED`, that the whole directory is an older copy of itself.
    pub(super) fn is_restored(&self) -> bool {
        self.path.join(RESTORED).exists()
    }

    /// What a restored directory needs was done.
    ///
    /// # Errors
    /// The file `RESTORED` cannot be removed: the next start does it all again.
    pub(super) fn end_restored(&self) -> anyhow::Result<()> {
        let file = self.path.join(RESTORED);
        fs::remove_file(&file).with_context(|| format!("cannot remove {}", file.display()))
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

impl DataDir {
    /// The token of an admin that is kept here, made when there is none; and its file, which only its owner can read.
    ///
    /// # Errors
    /// The file cannot be read or written, or holds no token.
    pub(super) fn admin_token(&self) -> anyhow::Result<(String, PathBuf)> {
        let file = self.path.join(ADMIN_TOKEN_FILE);
        if let Some(kept) = read(&file)? {
            let kept = kept.trim().to_owned();
            if kept.len() < SHORTEST_TOKEN || !kept.bytes().all(|byte| byte.is_ascii_graphic()) {
                bail!(
                    "{} holds no admin token of {SHORTEST_TOKEN} or more visible characters: remove it, and the start \
                     makes a new one",
                    file.display()
                );
            }
            return Ok((kept, file));
        }
        let token = format!("{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple());
        write(&file, &format!("{token}\n"))?;
        Ok((token, file))
    }
}

/// Sees whether a start could take the directory; nothing is made or locked.
///
/// # Errors
/// It holds somebody else's files, or was written by a newer release.
pub(super) fn look(directory: &Path, configured: &[&Path]) -> anyhow::Result<()> {
    if !directory.exists() {
        return Ok(());
    }
    refuse_foreign(directory, configured)?;
    match read(&directory.join("FORMAT"))?.as_deref() {
        None | Some(FORMAT | OLD_FORMAT) => Ok(()),
        Some(found) => Err(unknown_format(directory, found)),
    }
}

fn refuse_foreign(directory: &Path, configured: &[&Path]) -> anyhow::Result<()> {
    match foreign(directory, configured)? {
        None => Ok(()),
        Some(foreign) => bail!(
            "the directory {} is no data directory and holds {foreign}: eventmesh.data.dir must name a directory of its \
             own",
            directory.display()
        ),
    }
}

/// What is in a directory that has no format yet, and that neither an earlier start nor the configuration put there.
fn foreign(directory: &Path, configured: &[&Path]) -> anyhow::Result<Option<String>> {
    let cannot = || format!("cannot read the data directory {}", directory.display());
    if directory.join("FORMAT").exists() {
        return Ok(None);
    }
    let whole = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let configured: Vec<PathBuf> = configured.iter().map(|file| whole(file)).collect();
    let is_named = |path: &Path| {
        let path = &*whole(path);
        configured.iter().any(|file| {
            // The files of the audit log stand beside it: `audit.log.1`, `audit.log.head`.
            file.starts_with(path)
                || (file.parent() == path.parent()
                    && path.as_os_str().as_encoded_bytes().starts_with(file.as_os_str().as_encoded_bytes()))
        })
    };
    for entry in fs::read_dir(directory).with_context(cannot)? {
        let entry = entry.with_context(cannot)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_ours = ["LOCK", "FORMAT.new", "lost+found", ADMIN_TOKEN_FILE].contains(&name.as_str());
        if !is_ours && !is_named(&entry.path()) {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// Takes the rights of others from what is ours in the directory: what an earlier release made there, everybody could
/// read. The mode of a directory that was there before is left as it is.
fn close_to_others(directory: &Path) {
    let ours = ["FORMAT", "INSTANCE", "LOCK", RESTORED, ADMIN_TOKEN_FILE, "log", "meta", "offset"];
    let mut paths: Vec<PathBuf> = ours.iter().map(|name| directory.join(name)).collect();
    while let Some(path) = paths.pop() {
        // Of a link the link itself, so that nothing elsewhere is touched.
        let Ok(about) = fs::symlink_metadata(&path) else { continue };
        if about.is_symlink() {
            continue;
        }
        let mode = about.permissions().mode();
        if mode & 0o077 != 0
            && let Err(error) = fs::set_permissions(&path, Permissions::from_mode(mode & 0o700))
        {
            tracing::warn!(path = %path.display(), %error, "others can read this, and it cannot be changed");
        }
        if about.is_dir() {
            paths.extend(fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
        }
    }
}

/// Whether the directory has the old format; a new one gets the present format.
fn check_format(directory: &Path) -> anyhow::Result<bool> {
    let file = directory.join("FORMAT");
    match read(&file)?.as_deref() {
        None => write(&file, FORMAT).map(|()| false),
        Some(FORMAT) => Ok(false),
        Some(OLD_FORMAT) => Ok(true),
        Some(found) => Err(unknown_format(directory, found)),
    }
}

fn unknown_format(directory: &Path, found: &str) -> anyhow::Error {
    anyhow::anyhow!(
        "the data directory {} has the format {:?}, this release reads {:?} and {:?}",
        directory.display(),
        found.trim(),
        OLD_FORMAT.trim(),
        FORMAT.trim()
    )
}

fn read(file: &Path) -> anyhow::Result<Option<String>> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
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
        let taken = DataDir::take(&root, &[]).expect("free");
        let error = DataDir::take(&root, &[]).expect_err("taken").to_string();
        assert!(error.contains(&root.display().to_string()), "{error}");
        let id = taken.instance(None, &Chance::system()).expect("made");
        drop(taken);
        let again = DataDir::take(&root, &[]).expect("free again");
        assert_eq!(again.instance(None, &Chance::system()).expect("kept"), id);
        drop(again);
        fs::write(root.join("FORMAT"), "eventmesh data 3\n").expect("written");
        assert!(DataDir::take(&root, &[]).expect_err("newer").to_string().contains("data 3"));
        fs::remove_dir_all(&root).expect("removed");
    }

    #[test]
    fn a_directory_with_files_of_others_is_refused_and_files_that_are_configured_are_none() {
        let root = tempfile::tempdir().expect("a folder");
        let put = |name: &str| fs::write(root.path().join(name), "x").expect("written");
        let take = |configured: &[&Path]| DataDir::take(root.path(), configured).map(drop);
        for name in ["audit.log", "audit.log.head", "LOCK"] {
            put(name);
        }
        fs::create_dir(root.path().join("keys")).expect("made");
        put("keys/tokens.toml");
        let told = take(&[]).expect_err("files of others").to_string();
        assert!(told.contains("audit.log") || told.contains("keys"), "{told}");
        let (audit, tokens) = (root.path().join("audit.log"), root.path().join("keys/tokens.toml"));
        let told = take(&[&tokens]).expect_err("the audit log is not configured").to_string();
        assert!(told.contains("audit.log"), "{told}");
        take(&[&audit, &tokens]).expect("nothing but what is configured");
        put("photo.jpg");
        take(&[]).expect("it is a data directory by now");
    }

    #[test]
    fn what_others_could_read_in_it_they_cannot_after_a_start() {
        let root = tempfile::tempdir().expect("a folder");
        drop(DataDir::take(root.path(), &[]).expect("free"));
        let folder = root.path().join("log");
        fs::create_dir(&folder).expect("made");
        fs::write(folder.join("1.sst"), "x").expect("written");
        for (path, mode) in [(&folder, 0o755), (&folder.join("1.sst"), 0o644)] {
            fs::set_permissions(path, Permissions::from_mode(mode)).expect("set");
        }
        drop(DataDir::take(root.path(), &[]).expect("free"));
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        assert_eq!((mode(&folder), mode(&folder.join("1.sst"))), (0o700, 0o600));
    }
}
