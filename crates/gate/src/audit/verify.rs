//! Verifying an audit log: every line fits the one before, over all files, up to the head.
//!
//! It finds any line that was changed, removed, added or moved, and lines cut off the end down to the head. What it
//! cannot find: the oldest files removed (they go that way by themselves), lines of the last second before a kill
//! cut off, and a log made anew as a whole together with its head. Against the last, keep a copy of the head
//! elsewhere.

use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader, Read},
    path::{Path, PathBuf},
};

use thiserror::Error;

use super::{
    chain::{Line, Link},
    log_file::{self, LONGEST_LINE},
};

/// What an audit log that holds together has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditReport {
    /// How many files.
    pub files: usize,
    /// How many lines.
    pub lines: u64,
    /// The number of the first line; 1 unless older files are gone.
    pub first: u64,
    /// The number of the last line.
    pub last: u64,
    /// The hash of the last line.
    pub hash: String,
    /// How many lines say that something was found damaged at a start.
    pub recovered: u64,
    /// How many records the log says it lost.
    pub lost: u64,
    /// The bytes of a last line that is not finished: it is being written, or the process was killed.
    pub unfinished: u64,
    /// Whether there was a head; without it nobody can tell whether lines were cut off the end.
    pub has_head: bool,
}

/// Why an audit log does not hold together, or nobody can tell.
#[derive(Debug, Error)]
pub enum VerifyError {
    /// It was changed.
    #[error("{}:{line}: {what}", file.display())]
    Broken {
        /// In which file.
        file: PathBuf,
        /// At which line of that file.
        line: u64,
        /// What is wrong there.
        what: String,
    },
    /// A file cannot be read.
    #[error("{} cannot be read: {source}", file.display())]
    Unreadable {
        /// Which.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Looks at every line of the log whose newest file is `path`. Blocks. The log may be written meanwhile.
///
/// # Errors
/// [`VerifyError::Broken`] at the first line that does not fit.
pub fn verify_audit(path: &Path) -> Result<AuditReport, VerifyError> {
    let broken = |file: &Path, line, what: String| VerifyError::Broken { file: file.to_owned(), line, what };
    let head_path = log_file::head(path);
    // The head first: what is written later is beyond it.
    let head = match fs::read_to_string(&head_path) {
        Ok(text) => {
            let head = Link::parse(&text);
            Some(head.ok_or_else(|| broken(&head_path, 1, "the head cannot be read".to_owned()))?)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(source) => return Err(VerifyError::Unreadable { file: head_path, source }),
    };
    let mut report = AuditReport { has_head: head.is_some(), ..AuditReport::default() };
    let mut last: Option<Link> = None;
    let mut head_passed = head.is_none_or(|head| head == Link::START);
    let mut end = (path.to_owned(), 0);
    for (file, opened) in files(path)? {
        report.files += 1;
        if report.unfinished > 0 {
            return Err(broken(&end.0, end.1 + 1, "the line is not finished".to_owned()));
        }
        let mut reader = BufReader::with_capacity(1 << 20, opened);
        let (mut text, mut number) = (Vec::new(), 0);
        loop {
            text.clear();
            let read = reader.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut text);
            let read = read.map_err(|source| VerifyError::Unreadable { file: file.clone(), source })?;
            if read == 0 {
                break;
            }
            if text.pop_if(|byte| *byte == b'\n').is_none() {
                report.unfinished = read as u64;
                continue;
            }
            number += 1;
            let here = |what: String| broken(&file, number, what);
            if report.unfinished > 0 {
                return Err(here("the line is longer than any of an audit log".to_owned()));
            }
            let line = Line::parse(&text).ok_or_else(|| here("it is no line of an audit log".to_owned()))?;
            let seq = line.link.seq;
            if !line.is_whole {
                return Err(here(format!("line {seq} was changed: its hash does not fit it")));
            }
            match last {
                None if seq == 0 || (seq == 1 && line.prev != Link::START.hash) => {
                    return Err(here("it cannot be the first line".to_owned()));
                }
                None => report.first = seq,
                Some(last) if seq > last.seq.saturating_add(1) => {
                    return Err(here(format!(
                        "the lines {}…{} before it are missing",
                        last.seq + 1,
                        seq - 1
                    )));
                }
                Some(last) if seq <= last.seq => {
                    return Err(here(format!("line {seq} stands behind line {}", last.seq)));
                }
                Some(last) if line.prev != last.hash => {
                    return Err(here(format!("line {seq} does not follow the line that stands before it")));
                }
                Some(_) => {}
            }
            if let Some(head) = head.filter(|head| head.seq == seq) {
                if head != line.link {
                    return Err(here(format!("line {seq} is not the one that the head names")));
                }
                head_passed = true;
            }
            count(&mut report, &text);
            last = Some(line.link);
            report.lines += 1;
        }
        end = (file, number);
    }
    if let Some(head) = head.filter(|_| !head_passed) {
        let have = last.map_or(0, |last| last.seq);
        let what = if report.first > head.seq {
            format!("the head names line {}, which is not there", head.seq)
        } else {
            format!("the lines {}…{} are missing at the end", have + 1, head.seq)
        };
        return Err(broken(&end.0, end.1, what));
    }
    if let Some(last) = last {
        (report.last, report.hash) = (last.seq, last.hash_text().to_owned());
    }
    Ok(report)
}

/// The files of a log, the oldest first.
fn files(path: &Path) -> Result<Vec<(PathBuf, File)>, VerifyError> {
    let unreadable = |file: &Path, source| VerifyError::Unreadable { file: file.to_owned(), source };
    // From the newest to the oldest: one that is renamed meanwhile is met again, not missed.
    let newest = match File::open(path) {
        Ok(file) => Some((path.to_owned(), file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(source) => return Err(unreadable(path, source)),
    };
    let mut files: Vec<(PathBuf, File)> = newest.into_iter().collect();
    for number in numbers(path).map_err(|source| unreadable(path, source))? {
        let older = log_file::older(path, number);
        match File::open(&older) {
            Ok(file) if files.last().is_some_and(|(_, last)| is_same(last, &file)) => {}
            Ok(file) => files.push((older, file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(unreadable(&older, source)),
        }
    }
    if files.is_empty() {
        return Err(unreadable(path, io::ErrorKind::NotFound.into()));
    }
    files.reverse();
    Ok(files)
}

/// The numbers that older files have, the newest first.
fn numbers(path: &Path) -> io::Result<Vec<u32>> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Some(name) = path.file_name().map(|name| name.to_string_lossy().into_owned() + ".") else {
        return Ok(Vec::new());
    };
    let mut numbers = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?.file_name();
        let number = entry.to_string_lossy().strip_prefix(&name).map(str::parse::<u32>);
        numbers.extend(number.and_then(Result::ok));
    }
    numbers.sort_unstable();
    // One more than there are, for a file that is renamed meanwhile.
    numbers.extend(numbers.last().map_or(Some(1), |last: &u32| last.checked_add(1)));
    Ok(numbers)
}

#[cfg(unix)]
fn is_same(one: &File, other: &File) -> bool {
    use std::os::unix::fs::MetadataExt;
    let id = |file: &File| file.metadata().ok().map(|metadata| (metadata.dev(), metadata.ino()));
    id(one).is_some_and(|one| id(other) == Some(one))
}

#[cfg(not(unix))]
fn is_same(_one: &File, _other: &File) -> bool {
    false
}

/// Counts the lines that the log wrote about itself.
fn count(report: &mut AuditReport, line: &[u8]) {
    // Where the kind stands in every line: behind the number and the time, before anything a client chose.
    const KIND: &str = "\"kind\":\"";
    let begin = String::from_utf8_lossy(&line[..line.len().min(160)]);
    let Some((_, kind)) = begin.split_once(KIND) else { return };
    if kind.starts_with("recovered\"") {
        report.recovered += 1;
    } else if let Some(lost) = kind.strip_prefix("lost\",\"records\":") {
        let digits = lost.split(|char: char| !char.is_ascii_digit()).next();
        report.lost += digits.and_then(|digits| digits.parse().ok()).unwrap_or(0);
    }
}

#[cfg(test)]
mod tests;
