//! The files of the audit log: one that is written, older ones numbered from 1, and beside them the head.
//!
//! The chain goes on from file to file and from start to start. The head (`<file>.head`) holds number and hash of
//! the last line that was synced, replaced as a whole after each sync: without it nobody could tell that lines were
//! cut off the end. At a start a torn last line is cut off, and what was found is written into the log as a line
//! of the kind `recovered`. After a failed write the file is as it was before.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use mesh_base::Clock;
use mesh_frame::format_timestamp;

use super::{
    chain::{Line, Link},
    json,
};
use crate::filter::LoadError;

/// More than the longest line.
pub(super) const LONGEST_LINE: u64 = 256 << 10;
/// How every line begins.
const FIRST: &[u8] = b"{\"seq\":";
/// How much is written at once.
const CHUNK: usize = 64 << 10;

/// The log.
#[derive(Debug)]
pub(super) struct LogFile {
    path: PathBuf,
    largest: u64,
    kept: u32,
    clock: Clock,
    file: File,
    /// How much of the file is whole lines.
    bytes: u64,
    /// Something beyond them may stand in the file.
    is_torn: bool,
    link: Link,
    is_synced: bool,
    out: Vec<u8>,
}

/// Lines could not be written.
#[derive(Debug)]
pub(super) struct NotWritten {
    pub(super) error: io::Error,
    pub(super) lines: usize,
}

/// The file that was written so many files ago.
pub(super) fn older(path: &Path, number: u32) -> PathBuf {
    with_suffix(path, &format!(".{number}"))
}

/// The head's file.
pub(super) fn head(path: &Path) -> PathBuf {
    with_suffix(path, ".head")
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

impl LogFile {
    /// Opens the log and goes on where it ends. Blocks.
    pub(super) fn open(path: &Path, largest: u64, kept: u32, clock: Clock) -> Result<Self, LoadError> {
        let unreadable = |source| LoadError::Unreadable { path: path.to_owned(), source };
        let unusable = |problem: &str| LoadError::Unusable {
            origin: path.display().to_string(),
            problem: problem.to_owned(),
        };
        let mut file = opened(path).map_err(|error| match error {
            TryLockError::Error(source) => unreadable(source),
            TryLockError::WouldBlock => unusable("another process writes this audit log"),
        })?;
        let head = match fs::read_to_string(head(path)) {
            Ok(text) => Some(Link::parse(&text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(source) => return Err(unreadable(source)),
        };
        let foreign = || unusable("this is not an audit log: its last line is none");
        let mut tail = Tail::of(&mut file).map_err(unreadable)?.ok_or_else(foreign)?;
        let (bytes, torn) = (tail.whole_lines, tail.torn);
        let before = older(path, 1);
        if bytes == 0
            && let Ok(mut file) = File::open(&before)
        {
            let unreadable = |source| LoadError::Unreadable { path: before.clone(), source };
            tail = Tail::of(&mut file).map_err(unreadable)?.ok_or_else(foreign)?;
        }
        let (link, found) = tail.goes_on(head).ok_or_else(foreign)?;
        if torn > 0 {
            file.set_len(bytes).map_err(unreadable)?;
        }
        let out = Vec::with_capacity(2 * CHUNK);
        let (is_torn, is_synced, path) = (false, false, path.to_owned());
        let mut log = Self { path, largest, kept, clock, file, bytes, is_torn, link, is_synced, out };
        let torn = (torn > 0).then(|| format!("{torn} bytes of a line that was not finished were cut off"));
        for what in torn.into_iter().chain(found) {
            tracing::error!(file = %log.path.display(), "the audit log was not as it was left: {what}");
            let mut members = log.members("recovered");
            json::member(&mut members, "reason", &what);
            log.append(std::iter::once(&*members))
                .map_err(|lost| LoadError::Unreadable { path: log.path.clone(), source: lost.error })?;
        }
        log.sync().map_err(|source| LoadError::Unreadable { path: log.path.clone(), source })?;
        Ok(log)
    }

    /// The first members of a line that is not a decision.
    pub(super) fn members(&self, kind: &str) -> Vec<u8> {
        format!("\"at\":\"{}\",\"kind\":\"{kind}\"", format_timestamp(self.clock.now().0)).into_bytes()
    }

    /// Appends lines with these members, to the system's memory. Blocks.
    ///
    /// # Errors
    /// How many of them, counted from the last one, are not there.
    pub(super) fn append<'a>(
        &mut self,
        lines: impl ExactSizeIterator<Item = &'a [u8]>,
    ) -> Result<(), NotWritten> {
        let mut missing = lines.len();
        let (mut link, mut count) = (self.link, 0);
        self.out.clear();
        for members in lines {
            let (before, end) = (link, self.out.len());
            link.append(members, &mut self.out);
            count += 1;
            if self.bytes + self.out.len() as u64 > self.largest && self.bytes + end as u64 > 0 {
                // It does not fit any more: it is the first of the next file.
                let line = self.out.split_off(end);
                self.write(before).map_err(|error| NotWritten { error, lines: missing })?;
                missing -= count - 1;
                self.rotate().map_err(|error| NotWritten { error, lines: missing })?;
                self.out.extend_from_slice(&line);
                count = 1;
            }
            if self.out.len() >= CHUNK {
                self.write(link).map_err(|error| NotWritten { error, lines: missing })?;
                missing -= count;
                count = 0;
            }
        }
        self.write(link).map_err(|error| NotWritten { error, lines: missing })
    }

    /// Writes what is gathered; `link` is its last line.
    fn write(&mut self, link: Link) -> io::Result<()> {
        if self.is_torn {
            self.file.set_len(self.bytes)?;
            self.is_torn = false;
        }
        if self.out.is_empty() {
            return Ok(());
        }
        self.is_torn = true;
        if let Err(error) = self.file.write_all(&self.out) {
            // If this fails too, it is tried again before the next write.
            self.is_torn = self.file.set_len(self.bytes).is_err();
            return Err(error);
        }
        self.is_torn = false;
        self.is_synced = false;
        self.bytes += self.out.len() as u64;
        self.link = link;
        self.out.clear();
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        let if_there = |result: io::Result<()>| match result {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        };
        self.file.sync_data()?;
        if_there(fs::remove_file(older(&self.path, self.kept.max(1))))?;
        for number in (1..self.kept).rev() {
            if_there(fs::rename(older(&self.path, number), older(&self.path, number + 1)))?;
        }
        if self.kept > 0 {
            if_there(fs::rename(&self.path, older(&self.path, 1)))?;
        } else {
            if_there(fs::remove_file(&self.path))?;
        }
        self.start_file()
    }

    /// Goes on in a new file. The old one may still have this log's lock: it is another file by now.
    fn start_file(&mut self) -> io::Result<()> {
        self.file = opened(&self.path).map_err(|error| match error {
            TryLockError::Error(error) => error,
            TryLockError::WouldBlock => io::Error::other("another process writes it"),
        })?;
        self.bytes = self.file.metadata()?.len();
        Ok(())
    }

    /// Brings everything to the disk, then the head. Does nothing where nothing is new. Blocks.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        if self.is_synced {
            return Ok(());
        }
        self.file.sync_data()?;
        let (head, new) = (head(&self.path), with_suffix(&self.path, ".head.new"));
        let mut file = with_mode(OpenOptions::new().create(true).write(true).truncate(true)).open(&new)?;
        file.write_all(self.link.to_text().as_bytes())?;
        file.sync_data()?;
        fs::rename(new, head)?;
        self.is_synced = true;
        Ok(())
    }

    /// Whether everything is on the disk.
    pub(super) fn is_synced(&self) -> bool {
        self.is_synced
    }

    /// Goes on in the file of that name if this one was moved away, as an operator announces with SIGHUP. Everything so far is on the
    /// disk, in the old file, before. Blocks.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        self.sync()?;
        if !is_there(&self.file, &self.path) {
            self.start_file()?;
        }
        Ok(())
    }

    /// Goes on in a new file if the one that is written has been taken away, and says so there. Blocks.
    pub(super) fn look(&mut self) -> Result<(), NotWritten> {
        if is_there(&self.file, &self.path) {
            return Ok(());
        }
        tracing::error!(file = %self.path.display(), "the audit log was taken away while it was written");
        self.start_file().map_err(|error| NotWritten { error, lines: 0 })?;
        let mut members = self.members("recovered");
        json::member(&mut members, "reason", "the file before was taken away while it was written");
        self.append(std::iter::once(&*members))
    }
}

#[cfg(unix)]
fn is_there(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let id = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    match (file.metadata(), fs::metadata(path)) {
        (Ok(open), Ok(named)) => id(open) == id(named),
        (_, Err(error)) => error.kind() != io::ErrorKind::NotFound,
        (Err(_), _) => true,
    }
}

#[cfg(not(unix))]
fn is_there(_file: &File, path: &Path) -> bool {
    path.exists()
}

/// The file of that name, made if it is not there, and locked: it has one writer.
fn opened(path: &Path) -> Result<File, TryLockError> {
    let file = with_mode(OpenOptions::new().create(true).read(true).append(true)).open(path);
    let file = file.map_err(TryLockError::Error)?;
    file.try_lock()?;
    Ok(file)
}

#[cfg(unix)]
fn with_mode(options: &mut OpenOptions) -> &mut OpenOptions {
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600)
}

#[cfg(not(unix))]
fn with_mode(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}

/// How a file ends.
struct Tail {
    /// The bytes of its whole lines.
    whole_lines: u64,
    /// The bytes behind them.
    torn: u64,
    /// The last whole line; `None`: it has none.
    last: Option<Line>,
}

impl Tail {
    /// `None`: it does not end as an audit log does.
    fn of(file: &mut File) -> io::Result<Option<Self>> {
        let bytes = file.metadata()?.len();
        let begin = bytes.saturating_sub(2 * LONGEST_LINE);
        file.seek(SeekFrom::Start(begin))?;
        let mut tail = Vec::new();
        file.take(2 * LONGEST_LINE).read_to_end(&mut tail)?;
        let Some(end) = tail.iter().rposition(|byte| *byte == b'\n') else {
            let length = FIRST.len().min(tail.len());
            // Or nothing but zeros, as a file has after a power loss.
            let is_start =
                begin == 0 && (tail[..length] == FIRST[..length] || tail.iter().all(|byte| *byte == 0));
            return Ok(is_start.then_some(Self { whole_lines: 0, torn: bytes, last: None }));
        };
        let start = tail[..end].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let whole_lines = begin + end as u64 + 1;
        let last = Line::parse(&tail[start..end]);
        Ok(last.map(|last| Self { whole_lines, torn: bytes - whole_lines, last: Some(last) }))
    }

    /// Where the chain goes on, with what is wrong; `head`: `None` without one, `Some(None)` where it cannot be
    /// read. `None`: nobody can tell.
    fn goes_on(&self, head: Option<Option<Link>>) -> Option<(Link, Option<String>)> {
        let Some(last) = self.last else {
            return Some(match head.flatten() {
                None => (Link::START, None),
                Some(head) => (head, Some(format!("the lines up to {} are missing", head.seq))),
            });
        };
        let (line, seq) = (last.link, last.link.seq);
        let damaged = || format!("line {seq} was changed");
        Some(match head {
            None => (line, Some("the head is missing: lines may have been cut off the end".to_owned())),
            Some(None) => {
                (line, Some("the head cannot be read: lines may have been cut off the end".to_owned()))
            }
            Some(Some(head)) if head.seq > seq => {
                (head, Some(format!("the lines {}…{} are missing", seq.saturating_add(1), head.seq)))
            }
            // The next line does not fit the one before, and so the change shows for ever.
            Some(Some(head)) if head.seq == seq && head != line => (head, Some(damaged())),
            Some(Some(_)) => (line, (!last.is_whole).then(damaged)),
        })
    }
}

#[cfg(test)]
mod tests;
