//! The marker of what was synced: a small file beside the database that says up to which sequence
//! number everything is on the disk.
//!
//! Point-in-time recovery stops at the first damaged record of the write-ahead log and drops, without a
//! word, synced records behind it. A database whose last sequence number after recovery is lower than
//! the marker has lost synced data: it is refused, and nothing in it is touched. The marker is written
//! at most once a second, after a sync: damage to what was synced later than that is not noticed by it.

use std::{
    fs::{File, OpenOptions},
    io::{self, ErrorKind, Read},
    os::unix::fs::FileExt,
    path::Path,
};

const NAME: &str = "SYNCED";
const MAGIC: [u8; 4] = *b"EMS1";
const LENGTH: usize = 16;

/// The open marker of one database.
#[derive(Debug)]
pub(crate) struct Marker {
    file: File,
}

impl Marker {
    /// The sequence number a marker in `directory` vouches for; `None` when there is no marker.
    pub(crate) fn read(directory: &Path) -> io::Result<Option<u64>> {
        let mut bytes = Vec::new();
        match File::open(directory.join(NAME)) {
            Ok(mut file) => file.read_to_end(&mut bytes)?,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        decode(&bytes)
            .map(Some)
            .ok_or_else(|| io::Error::new(ErrorKind::InvalidData, "the SYNCED marker is damaged"))
    }

    /// Opens or makes the marker for writing.
    pub(crate) fn open(directory: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(directory.join(NAME))?;
        Ok(Self { file })
    }

    /// Says that everything up to `sequence` is synced. In place: it needs no free space.
    pub(crate) fn write(&self, sequence: u64) -> io::Result<()> {
        self.file.write_all_at(&encode(sequence), 0)?;
        self.file.sync_data()
    }
}

fn encode(sequence: u64) -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    bytes[..4].copy_from_slice(&MAGIC);
    bytes[4..12].copy_from_slice(&sequence.to_be_bytes());
    let sum = crc32fast::hash(&bytes[..12]);
    bytes[12..].copy_from_slice(&sum.to_be_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> Option<u64> {
    let (head, sum) = bytes.split_at_checked(12)?;
    let whole = bytes.len() == LENGTH && head[..4] == MAGIC && sum == crc32fast::hash(head).to_be_bytes();
    whole.then(|| u64::from_be_bytes(head[4..12].try_into().expect("eight bytes")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_marker_is_not_read_as_a_number() {
        let good = encode(77);
        assert_eq!(decode(&good), Some(77));
        for at in 0..LENGTH {
            let mut bad = good;
            bad[at] ^= 0x40;
            assert_eq!(decode(&bad), None, "byte {at}");
        }
        assert_eq!(decode(&good[..10]), None);
        assert_eq!(decode(b""), None);
    }
}
