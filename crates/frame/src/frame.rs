//! The frame: the wire form of an event or of a piece of a stream, immutable and checked once.
//!
//! Layout, big-endian: magic `EF`, version `01`, kind, flags, `u32` sequence, `u16` attribute count, `u32` data
//! length; then per attribute `u16` length, name, `u32` length, value; then the data. Names and values are
//! UTF-8, a name stands once. A [`Frame`] in hand satisfies all of that and the limits, so that reading it
//! cannot fail; what does not is a [`FrameError`] and allocates nothing.

use std::{collections::HashSet, fmt, str};

use bytes::Bytes;

use crate::limits::Limits;

mod error;

pub use error::FrameError;

pub(crate) const MAGIC: u8 = 0xEF;
pub(crate) const VERSION: u8 = 1;
pub(crate) const HEADER: usize = 14;
/// The lengths of name and value, before each attribute.
pub(crate) const ATTRIBUTE_HEADER: usize = 6;

/// What a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FrameKind {
    /// A request that opens a stream; its data is the prompt.
    StreamRequest,
    /// A piece of a stream; its data is the text of the piece.
    StreamChunk,
    /// An event; its attributes are those of CloudEvents, `specversion` included.
    Event,
}

impl FrameKind {
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::StreamRequest => 1,
            Self::StreamChunk => 2,
            Self::Event => 3,
        }
    }

    const fn of_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::StreamRequest),
            2 => Some(Self::StreamChunk),
            3 => Some(Self::Event),
            _ => None,
        }
    }
}

/// The flags of a frame. Bits without a meaning here are kept as they came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags(pub u8);

impl Flags {
    /// Nothing set, as on every event.
    pub const NONE: Self = Self(0);
    /// The last piece of a stream.
    pub const DONE: Self = Self(1);
    /// The stream failed.
    pub const ERROR: Self = Self(2);
    /// The piece carries metadata.
    pub const META: Self = Self(4);

    /// These flags and those.
    #[must_use]
    pub const fn with(self, more: Self) -> Self {
        Self(self.0 | more.0)
    }

    /// Whether all of `flags` are set.
    pub const fn contains(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }
}

/// A checked frame. Clones share the bytes; two frames are equal if their bytes are.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Frame {
    bytes: Bytes,
    kind: FrameKind,
    data_start: usize,
}

impl Frame {
    /// Reads a frame that fills `bytes` exactly; the frame keeps them, nothing is copied.
    ///
    /// The limits are [`Limits::DEFAULT`] and room for what the server adds
    /// ([`SERVER_ATTRIBUTES`](crate::SERVER_ATTRIBUTES), [`SERVER_ATTRIBUTE_BYTES`](crate::SERVER_ATTRIBUTE_BYTES)).
    ///
    /// # Errors
    ///
    /// [`FrameError`] names the first rule that is broken.
    pub fn decode(bytes: Bytes) -> Result<Self, FrameError> {
        let limits = Limits::DEFAULT.stored();
        if bytes.len() > limits.frame_bytes {
            return Err(FrameError::FrameTooLarge { limit: limits.frame_bytes });
        }
        let header: &[u8; HEADER] = bytes.first_chunk().ok_or(FrameError::Truncated)?;
        let &[magic, version, kind, _flags, _, _, _, _, count1, count0, data3, data2, data1, data0] = header;
        if magic != MAGIC {
            return Err(FrameError::Magic { found: magic });
        }
        if version != VERSION {
            return Err(FrameError::Version { found: version });
        }
        let kind = FrameKind::of_code(kind).ok_or(FrameError::Kind { found: kind })?;
        let count = usize::from(u16::from_be_bytes([count1, count0]));
        let data_length = u32::from_be_bytes([data3, data2, data1, data0]) as usize;
        if count > limits.attribute_count {
            return Err(FrameError::TooManyAttributes { limit: limits.attribute_count });
        }
        if data_length > limits.data_bytes {
            return Err(FrameError::DataTooLarge { limit: limits.data_bytes });
        }
        let after = check_attributes(&bytes[HEADER..], count, &limits)?;
        if after.len() < data_length {
            return Err(FrameError::Truncated);
        }
        if after.len() > data_length {
            return Err(FrameError::Surplus { surplus: after.len() - data_length });
        }
        let data_start = bytes.len() - data_length;
        let frame = Self { bytes, kind, data_start };
        match first_duplicate(frame.names()) {
            Some(name) => Err(FrameError::Duplicate { name: name.to_owned() }),
            None => Ok(frame),
        }
    }

    /// The frame with more attributes behind its own, which has none of these names; each stands once. As the
    /// attributes of the server they are held to the layout only.
    ///
    /// # Panics
    ///
    /// On an empty name or one over 256 bytes, and when there are more attributes than the layout can count.
    pub(crate) fn with_appended(&self, attributes: &[(&str, &str)]) -> Self {
        let length: usize =
            attributes.iter().map(|(name, value)| ATTRIBUTE_HEADER + name.len() + value.len()).sum();
        let (before, data) = self.bytes.split_at(self.data_start);
        let mut bytes = Vec::with_capacity(self.bytes.len() + length);
        bytes.extend_from_slice(before);
        for (name, value) in attributes {
            assert!((1..=256).contains(&name.len()), "the attributes of the server have legal names");
            let name_length = u16::try_from(name.len()).expect("it is at most 256");
            let value_length = u32::try_from(value.len()).expect("values of the server are short");
            bytes.extend_from_slice(&name_length.to_be_bytes());
            bytes.extend_from_slice(name.as_bytes());
            bytes.extend_from_slice(&value_length.to_be_bytes());
            bytes.extend_from_slice(value.as_bytes());
        }
        let count = u16::try_from(self.attribute_count() + attributes.len());
        let count = count.expect("the attributes of the server are few");
        bytes[8..10].copy_from_slice(&count.to_be_bytes());
        let data_start = bytes.len();
        bytes.extend_from_slice(data);
        Self { bytes: bytes.into(), kind: self.kind, data_start }
    }

    /// The frame that a builder wrote, which checked what `decode` checks.
    pub(crate) fn built(bytes: Bytes, kind: FrameKind, data_start: usize) -> Self {
        Self { bytes, kind, data_start }
    }

    /// The frame as it goes over the wire and into a log.
    pub fn as_bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// What the frame carries.
    pub fn kind(&self) -> FrameKind {
        self.kind
    }

    /// The flags.
    pub fn flags(&self) -> Flags {
        Flags(self.bytes[3])
    }

    /// The position of the frame in its stream; 0 for an event.
    pub fn sequence(&self) -> u32 {
        u32::from_be_bytes([self.bytes[4], self.bytes[5], self.bytes[6], self.bytes[7]])
    }

    /// How many attributes there are.
    pub fn attribute_count(&self) -> usize {
        usize::from(u16::from_be_bytes([self.bytes[8], self.bytes[9]]))
    }

    /// The names and values of all attributes together, in bytes.
    pub(crate) fn attributes_bytes(&self) -> usize {
        self.data_start - HEADER - self.attribute_count() * ATTRIBUTE_HEADER
    }

    /// The attributes, in the order in which they are stored.
    pub fn attributes(&self) -> Attributes<'_> {
        Attributes { rest: &self.bytes[HEADER..self.data_start] }
    }

    /// The value of the attribute with this name.
    pub fn attribute(&self, name: &str) -> Option<&str> {
        let mut rest = &self.bytes[HEADER..self.data_start];
        while let Some((found, value, after)) = split_attribute(rest) {
            if found == name.as_bytes() {
                return Some(text(value));
            }
            rest = after;
        }
        None
    }

    /// The data, sharing the frame's memory; empty if there is none.
    pub fn data(&self) -> Bytes {
        self.bytes.slice(self.data_start..)
    }

    /// The data without taking a share in the frame's memory.
    pub fn data_ref(&self) -> &[u8] {
        &self.bytes[self.data_start..]
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.attributes().map(|(name, _)| name)
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame")
            .field("kind", &self.kind)
            .field("flags", &self.flags())
            .field("sequence", &self.sequence())
            .field("attributes", &self.attributes().collect::<Vec<_>>())
            .field("data", &self.data())
            .finish()
    }
}

/// The attributes of a frame, name and value, in stored order.
#[derive(Clone, Debug)]
pub struct Attributes<'frame> {
    rest: &'frame [u8],
}

impl<'frame> Iterator for Attributes<'frame> {
    type Item = (&'frame str, &'frame str);

    fn next(&mut self) -> Option<Self::Item> {
        let (name, value, rest) = split_attribute(self.rest)?;
        self.rest = rest;
        Some((text(name), text(value)))
    }
}

/// Splits the first attribute off; `None` if there is no whole one.
fn split_attribute(rest: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (length, rest) = rest.split_first_chunk::<2>()?;
    let (name, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let (value, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    Some((name, value, rest))
}

/// The text of bytes that were checked when the frame was made.
fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).expect("the text of a frame was checked when it was made")
}

/// Checks `count` attributes and gives what follows them.
fn check_attributes<'a>(mut rest: &'a [u8], count: usize, limits: &Limits) -> Result<&'a [u8], FrameError> {
    let mut total = 0;
    for _ in 0..count {
        let (name, value, after) = split_attribute(rest).ok_or(FrameError::Truncated)?;
        total += name.len() + value.len();
        check_attribute(name.len(), value.len(), total, limits)?;
        if str::from_utf8(name).is_err() || str::from_utf8(value).is_err() {
            return Err(FrameError::NotText);
        }
        rest = after;
    }
    Ok(rest)
}

/// Checks the sizes of one attribute, and of all so far together.
pub(crate) fn check_attribute(
    name: usize,
    value: usize,
    total: usize,
    limits: &Limits,
) -> Result<(), FrameError> {
    if name == 0 {
        Err(FrameError::EmptyName)
    } else if name > limits.name_bytes {
        Err(FrameError::NameTooLong { limit: limits.name_bytes })
    } else if value > limits.value_bytes {
        Err(FrameError::ValueTooLong { limit: limits.value_bytes })
    } else if total > limits.attributes_bytes {
        Err(FrameError::AttributesTooLarge { limit: limits.attributes_bytes })
    } else {
        Ok(())
    }
}

/// The first name that stood before. Few names are compared with each other, many are hashed.
pub(crate) fn first_duplicate<'a>(names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    const FEW: usize = 24;
    let mut few = [""; FEW];
    let mut many: HashSet<&str> = HashSet::new();
    for (count, name) in names.enumerate() {
        if count < FEW {
            if few[..count].contains(&name) {
                return Some(name);
            }
            few[count] = name;
        } else {
            if count == FEW {
                many.extend(few);
            }
            if !many.insert(name) {
                return Some(name);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests;
