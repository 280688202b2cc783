//! The marker of what was synced: a small file beside the database that says how far it had got.
//!
//! It holds the sequence number up to which everything is on the disk, and the name, the length and a
//! checksum of the manifest at that time. RocksDB takes a damaged write-ahead log for one that ends early,
//! and a damaged manifest for one whose tail is torn, and silently goes on with less: tables that the lost
//! part named are deleted. With the marker the loss is noticed before RocksDB may touch anything, and the
//! database is refused. The marker is written at most once a second, after a sync: damage to what was synced
//! later than that is not noticed by it.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind, Read},
    os::unix::fs::FileExt,
    path::Path,
};

const NAME: &str = "SYNCED";
const MAGIC: [u8; 4] = *b"EMS1";
const LENGTH: usize = 36;

/// What a marker vouches for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Vouched {
    /// Everything up to this sequence number is on the disk.
    pub(crate) sequence: u64,
    manifest: Manifest,
}

/// The state of the manifest: the number in its name, its length and its checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Manifest {
    number: u64,
    length: u64,
    sum: u32,
}

/// The open marker of one database.
#[derive(Debug)]
pub(crate) struct Marker {
    file: File,
}

impl Marker {
    /// What a marker in `directory` vouches for; `None` when there is no marker.
    pub(crate) fn read(directory: &Path) -> io::Result<Option<Vouched>> {
        let mut bytes = Vec::new();
        match File::open(directory.join(NAME)) {
            Ok(mut file) => file.read_to_end(&mut bytes)?,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        decode(&bytes).map(Some).ok_or_else(|| damaged("the SYNCED marker is damaged"))
    }

    /// Opens or makes the marker for writing.
    pub(crate) fn open(directory: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(directory.join(NAME))?;
        Ok(Self { file })
    }

    /// Says that everything up to `sequence` is synced, and how the manifest is now. In place: it needs no
    /// free space once it was written.
    pub(crate) fn write(&self, directory: &Path, sequence: u64) -> io::Result<()> {
        let manifest = Manifest::now(directory)?;
        self.file.write_all_at(&encode(&Vouched { sequence, manifest }), 0)?;
        self.file.sync_data()
    }
}

impl Vouched {
    /// Compares the manifest with what is vouched for: what was in it then must still be, byte for byte. A
    /// manifest that was begun since is not known here.
    pub(crate) fn check_manifest(&self, directory: &Path) -> io::Result<()> {
        let Some(number) = current_manifest(directory)? else {
            return Err(damaged("its CURRENT file names no manifest"));
        };
        if number != self.manifest.number {
            return Ok(());
        }
        let bytes = fs::read(directory.join(manifest_name(number)))?;
        let then = usize::try_from(self.manifest.length).unwrap_or(usize::MAX);
        match bytes.get(..then) {
            Some(known) if crc32fast::hash(known) == self.manifest.sum => Ok(()),
            _ => Err(damaged("its manifest is damaged")),
        }
    }
}

impl Manifest {
    fn now(directory: &Path) -> io::Result<Self> {
        let Some(number) = current_manifest(directory)? else { return Ok(Self::default()) };
        let mut file = File::open(directory.join(manifest_name(number)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        // What is vouched for must be on the disk itself.
        file.sync_data()?;
        Ok(Self { number, length: bytes.len() as u64, sum: crc32fast::hash(&bytes) })
    }
}

fn manifest_name(number: u64) -> String {
    format!("MANIFEST-{number:06}")
}

/// The number of the manifest that CURRENT names.
fn current_manifest(directory: &Path) -> io::Result<Option<u64>> {
    let text = match fs::read(directory.join("CURRENT")) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let text = String::from_utf8_lossy(&text);
    Ok(text.trim_end().strip_prefix("MANIFEST-").and_then(|number| number.parse().ok()))
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

/// Magic, sequence, manifest number, length and checksum, then a checksum of all that; big-endian.
fn encode(vouched: &Vouched) -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    bytes[..4].copy_from_slice(&MAGIC);
    bytes[4..12].copy_from_slice(&vouched.sequence.to_be_bytes());
    bytes[12..20].copy_from_slice(&vouched.manifest.number.to_be_bytes());
    bytes[20..28].copy_from_slice(&vouched.manifest.length.to_be_bytes());
    bytes[28..32].copy_from_slice(&vouched.manifest.sum.to_be_bytes());
    let sum = crc32fast::hash(&bytes[..32]);
    bytes[32..].copy_from_slice(&sum.to_be_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> Option<Vouched> {
    let bytes: &[u8; LENGTH] = bytes.try_into().ok()?;
    let whole = bytes[..4] == MAGIC && bytes[32..] == crc32fast::hash(&bytes[..32]).to_be_bytes();
    let number = |at: usize| u64::from_be_bytes(*bytes[at..].first_chunk().expect("the length is fixed"));
    whole.then(|| Vouched {
        sequence: number(4),
        manifest: Manifest {
            number: number(12),
            length: number(20),
            sum: u32::from_be_bytes(*bytes[28..].first_chunk().expect("the length is fixed")),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_marker_is_not_read_as_a_number() {
        let vouched = Vouched { sequence: 77, manifest: Manifest { number: 5, length: 900, sum: 1 } };
        let good = encode(&vouched);
        assert_eq!(decode(&good), Some(vouched));
        for at in 0..LENGTH {
            let mut bad = good;
            bad[at] ^= 0x40;
            assert_eq!(decode(&bad), None, "byte {at}");
        }
        assert_eq!(decode(&good[..10]), None);
        assert_eq!(decode(b""), None);
    }
}
