//! A file that is read again when it changes.
//!
//! What counts is what stands in it: time stamps say when to look, and after a change the whole file is read. A
//! file that cannot be read, or is half written, leaves what was read before in force; the next look tries again.

use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
    time::SystemTime,
};

use parking_lot::Mutex;

use crate::filter::LoadError;

/// The largest file that is read.
const LARGEST: u64 = 64 << 20;

/// A file with what its time stamps were when it was read.
#[derive(Debug)]
pub struct WatchedFile {
    path: PathBuf,
    seen: Mutex<Option<Stamp>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    modified: Option<SystemTime>,
    bytes: u64,
    #[cfg(unix)]
    inode: u64,
}

impl WatchedFile {
    /// A file that was not read yet.
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), seen: Mutex::new(None) }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What stands in it. Blocks.
    ///
    /// # Errors
    /// When it cannot be read, is not text, or is too large.
    pub fn read(&self) -> Result<String, LoadError> {
        let unreadable = |source| LoadError::Unreadable { path: self.path.clone(), source };
        let mut file = fs::File::open(&self.path).map_err(unreadable)?;
        let stamp = Stamp::of(&file.metadata().map_err(unreadable)?);
        let mut text = String::new();
        file.by_ref().take(LARGEST + 1).read_to_string(&mut text).map_err(unreadable)?;
        if text.len() as u64 > LARGEST {
            return Err(LoadError::Unusable {
                origin: self.path.display().to_string(),
                problem: format!("the file has more than {LARGEST} bytes"),
            });
        }
        *self.seen.lock() = Some(stamp);
        Ok(text)
    }

    /// What stands in it, if it is not what was read last by its time stamps. Blocks.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_if_changed(&self) -> Result<Option<String>, LoadError> {
        let unreadable = |source| LoadError::Unreadable { path: self.path.clone(), source };
        let stamp = Stamp::of(&fs::metadata(&self.path).map_err(unreadable)?);
        if *self.seen.lock() == Some(stamp) {
            return Ok(None);
        }
        self.read().map(Some)
    }
}

impl Stamp {
    fn of(metadata: &fs::Metadata) -> Self {
        Self {
            modified: metadata.modified().ok(),
            bytes: metadata.len(),
            #[cfg(unix)]
            inode: std::os::unix::fs::MetadataExt::ino(metadata),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_read_once_and_what_is_gone_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("rules");
        let file = WatchedFile::new(&path);
        assert!(matches!(file.read(), Err(LoadError::Unreadable { .. })));
        fs::write(&path, "one").expect("written");
        assert_eq!(file.read().expect("read"), "one");
        assert_eq!(file.read_if_changed().expect("looked"), None);
        fs::write(&path, "three").expect("written");
        assert_eq!(file.read_if_changed().expect("looked").as_deref(), Some("three"));
        assert_eq!(file.read_if_changed().expect("looked"), None);
        fs::remove_file(&path).expect("removed");
        assert!(file.read_if_changed().is_err());
    }
}
