//! The chain of lines: each says its number, the hash of the line before, and its own hash.
//!
//! ```text
//! {"seq":7,…,"prev":"<64 hexadecimal digits>","hash":"<64 hexadecimal digits>"}
//! ```
//!
//! The hash is SHA-256 over the line from its `{` to the quote that ends `prev`. So no line can be changed, taken
//! out or moved unless all lines behind it are made anew.

use std::io::Write;

use sha2::{Digest, Sha256};

/// A hash in hexadecimal digits.
pub(super) type Hash = [u8; 64];

const PREV: &[u8] = b",\"prev\":\"";
const HASH: &[u8] = b",\"hash\":\"";
/// What follows what is hashed: `,"hash":"…"}`.
const HASH_BYTES: usize = HASH.len() + 64 + 2;

/// The last line of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) seq: u64,
    pub(super) hash: Hash,
}

impl Link {
    /// Before the first line, whose number is 1.
    pub(super) const START: Self = Self { seq: 0, hash: [b'0'; 64] };

    /// Appends the next line, with these members between `seq` and `prev`, and is that line then.
    pub(super) fn append(&mut self, members: &[u8], out: &mut Vec<u8>) {
        let begin = out.len();
        self.seq += 1;
        write!(out, "{{\"seq\":{},", self.seq).expect("a vector takes it");
        out.extend_from_slice(members);
        out.extend_from_slice(PREV);
        out.extend_from_slice(&self.hash);
        out.push(b'"');
        self.hash = hash(&out[begin..]);
        out.extend_from_slice(HASH);
        out.extend_from_slice(&self.hash);
        out.extend_from_slice(b"\"}\n");
    }

    /// Reads a link as [`Link::to_text`] writes it.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (seq, hash) = text.strip_suffix('\n')?.split_once(' ')?;
        Some(Self { seq: seq.parse().ok()?, hash: digits(hash.as_bytes())? })
    }

    /// The link as text.
    pub(super) fn to_text(self) -> String {
        format!("{} {}\n", self.seq, self.hash_text())
    }

    pub(super) fn hash_text(&self) -> &str {
        str::from_utf8(&self.hash).expect("hexadecimal digits")
    }
}

/// What a line says of its place in the chain.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    /// Its number and its hash as they stand there.
    pub(super) link: Link,
    /// The hash of the line before.
    pub(super) prev: Hash,
    /// Whether its hash fits it.
    pub(super) is_whole: bool,
}

impl Line {
    /// Reads a line, without its line end; `None`: it is none of ours.
    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        let (hashed, after) = line.split_at_checked(line.len().checked_sub(HASH_BYTES)?)?;
        let claimed = digits(after.strip_prefix(HASH)?.strip_suffix(b"\"}")?)?;
        let (_, prev) = hashed.split_at_checked(hashed.len().checked_sub(PREV.len() + 65)?)?;
        let prev = digits(prev.strip_prefix(PREV)?.strip_suffix(b"\"")?)?;
        let number = hashed.strip_prefix(b"{\"seq\":")?;
        let number = &number[..number.iter().position(|byte| *byte == b',')?];
        let seq = str::from_utf8(number).ok()?.parse().ok()?;
        Some(Self { link: Link { seq, hash: claimed }, prev, is_whole: hash(hashed) == claimed })
    }
}

fn hash(bytes: &[u8]) -> Hash {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = [0; 64];
    for (pair, byte) in text.chunks_exact_mut(2).zip(Sha256::digest(bytes)) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
    text
}

fn digits(text: &[u8]) -> Option<Hash> {
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    text.try_into().ok().filter(|hash: &Hash| hash.iter().all(is_digit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_it_was_written_and_any_changed_byte_shows() {
        let (mut link, mut out) = (Link::START, Vec::new());
        link.append(b"\"a\":1", &mut out);
        let first = link;
        link.append(b"\"b\":2", &mut out);
        let lines: Vec<&[u8]> = out.split(|byte| *byte == b'\n').collect();
        let second = Line::parse(lines[1]).expect("a line");
        assert_eq!((second.link, second.prev, second.is_whole), (link, first.hash, true));
        assert_eq!(Link::parse(&link.to_text()), Some(link));
        // The hash of the first line, computed apart from this code.
        assert_eq!(first.seq, 1);
        assert_eq!(first.hash_text(), "68b0eed178ee6df443df12715e07cc2dfa46ece6191eec1d02767d5ccb8c3bcb");
        for at in 0..lines[1].len() {
            let mut changed = lines[1].to_vec();
            changed[at] ^= 1;
            let is_found = Line::parse(&changed).is_none_or(|line| !line.is_whole);
            assert!(is_found, "byte {at}");
        }
    }
}
