//! A record: an event as a log stores it, with the time of its acceptance.
//!
//! Layout, big-endian: `u8` version, `u32` CRC-32 of everything after it, `u64` time of acceptance in
//! milliseconds, `u8` form of the data, `u16` number of typed attributes, per such attribute `u16` position and
//! `u8` type, then the frame. A log that keeps a frame by itself stores the same without checksum and frame
//! beside it. `docs/storage-format.md` has the layout with examples; a test reads them.

use bytes::{Buf, Bytes};
use serde_json::value::RawValue;
use thiserror::Error;

use crate::{data_form::DataForm, event::Event, frame::Frame, limits::Limits, types::AttributeTypes};

/// The version this build writes, and the only one it reads.
const VERSION: u8 = 1;
/// Version and checksum.
const PREFIX: usize = 5;

/// Why stored bytes are not a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RecordError {
    /// The bytes are damaged: short, changed, or never were a record.
    #[error("the record is damaged: {what}")]
    Corrupt {
        /// What does not fit.
        what: &'static str,
    },
    /// A later build wrote the record; it may be sound.
    #[error("the record has version {found}, this build reads up to {VERSION}")]
    NewerVersion {
        /// The record's version.
        found: u8,
    },
}

/// An event and when it was accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The event.
    pub event: Event,
    /// When the mesh accepted it, in milliseconds since 1970.
    pub accepted_at_ms: u64,
}

impl Record {
    /// How many bytes [`Record::encode`] appends.
    pub fn encoded_len(&self) -> usize {
        PREFIX + self.types_len() + self.event.frame().as_bytes().len()
    }

    /// Appends the record.
    pub fn encode(&self, buffer: &mut Vec<u8>) {
        buffer.reserve(self.encoded_len());
        buffer.push(VERSION);
        let checksum_at = buffer.len();
        buffer.extend_from_slice(&[0; 4]);
        self.write_types(buffer);
        buffer.extend_from_slice(self.event.frame().as_bytes());
        let checksum = crc32fast::hash(&buffer[checksum_at + 4..]);
        buffer[checksum_at..checksum_at + 4].copy_from_slice(&checksum.to_be_bytes());
    }

    /// Reads a record that fills `bytes` exactly; the event keeps them, nothing is copied.
    ///
    /// # Errors
    ///
    /// [`RecordError::Corrupt`] when a byte is missing or differs, [`RecordError::NewerVersion`] for what a
    /// later build wrote.
    pub fn decode(mut bytes: Bytes) -> Result<Self, RecordError> {
        check_version(&bytes)?;
        if bytes.len() < PREFIX {
            return Err(corrupt("it ends too early"));
        }
        bytes.advance(1);
        let checksum = bytes.get_u32();
        if crc32fast::hash(&bytes) != checksum {
            return Err(corrupt("the checksum differs"));
        }
        let types = read_types(&mut bytes)?;
        types.record_with(bytes)
    }

    /// The part of the record that is not the frame, for a log that stores the frame by itself: a version byte and
    /// everything between checksum and frame.
    pub fn types_part(&self) -> Bytes {
        let mut part = Vec::with_capacity(1 + self.types_len());
        part.push(VERSION);
        self.write_types(&mut part);
        part.into()
    }

    /// Reads a record from a frame and what [`Record::types_part`] stored beside it.
    ///
    /// A frame without that part was written by another runtime: it reads as [`Event::from_frame`] says,
    /// accepted when the log says, `logged_at_ms`.
    ///
    /// # Errors
    ///
    /// As [`Record::decode`]; there is no checksum, the log has its own.
    pub fn from_parts(
        frame: Bytes,
        types_part: Option<Bytes>,
        logged_at_ms: u64,
    ) -> Result<Self, RecordError> {
        let Some(mut part) = types_part else {
            let frame = Frame::decode(frame).map_err(|_| corrupt("the frame cannot be read"))?;
            let Limits { attribute_count, attributes_bytes, .. } = Limits::DEFAULT;
            if frame.attribute_count() > attribute_count || frame.attributes_bytes() > attributes_bytes {
                return Err(corrupt("the frame leaves no room for the attributes of the server"));
            }
            return Ok(Self { event: Event::from_frame(frame), accepted_at_ms: logged_at_ms });
        };
        check_version(&part)?;
        part.advance(1);
        let types = read_types(&mut part)?;
        if !part.is_empty() {
            return Err(corrupt("the types are longer than they say"));
        }
        let record = types.record_with(frame)?;
        // No checksum says that the form is the one of this data.
        let data = record.event.frame().data_ref();
        if record.event.form() == DataForm::Json && serde_json::from_slice::<&RawValue>(data).is_err() {
            return Err(corrupt("the data is not of its form"));
        }
        Ok(record)
    }

    fn types_len(&self) -> usize {
        8 + 1 + 2 + self.event.types().as_bytes().len()
    }

    fn write_types(&self, buffer: &mut Vec<u8>) {
        let types = self.event.types();
        let count = u16::try_from(types.len()).expect("a frame counts its attributes in 16 bits");
        buffer.extend_from_slice(&self.accepted_at_ms.to_be_bytes());
        buffer.push(code_of_form(self.event.form()));
        buffer.extend_from_slice(&count.to_be_bytes());
        buffer.extend_from_slice(types.as_bytes());
    }
}

/// What stands beside the frame, its types not yet held against it.
struct StoredTypes {
    accepted_at_ms: u64,
    form: DataForm,
    types: Bytes,
}

impl StoredTypes {
    fn record_with(self, frame: Bytes) -> Result<Record, RecordError> {
        let frame = Frame::decode(frame).map_err(|_| corrupt("the frame cannot be read"))?;
        let fits = match self.form {
            DataForm::None => frame.data_ref().is_empty(),
            DataForm::Text => str::from_utf8(frame.data_ref()).is_ok(),
            DataForm::Json => !frame.data_ref().is_empty(),
            DataForm::Binary => true,
        };
        if !fits {
            return Err(corrupt("the data is not of its form"));
        }
        let types = AttributeTypes::read(self.types, frame.attribute_count());
        let types = types.ok_or_else(|| corrupt("the types are not those of the frame"))?;
        let mut attributes = frame.attributes().enumerate();
        for (position, attribute_type) in types.iter() {
            let attribute = attributes.find(|(at, _)| *at == position);
            if !attribute.is_some_and(|(_, (_, value))| attribute_type.is_text(value)) {
                return Err(corrupt("an attribute is not of its type"));
            }
        }
        let event = Event::of_parts(frame, self.form, types);
        Ok(Record { event, accepted_at_ms: self.accepted_at_ms })
    }
}

fn corrupt(what: &'static str) -> RecordError {
    RecordError::Corrupt { what }
}

fn check_version(bytes: &[u8]) -> Result<(), RecordError> {
    match bytes.first() {
        Some(&VERSION) => Ok(()),
        Some(&found) if found > VERSION => Err(RecordError::NewerVersion { found }),
        Some(_) => Err(corrupt("it has no version")),
        None => Err(corrupt("it is empty")),
    }
}

fn read_types(bytes: &mut Bytes) -> Result<StoredTypes, RecordError> {
    if bytes.len() < 8 + 1 + 2 {
        return Err(corrupt("it ends too early"));
    }
    let accepted_at_ms = bytes.get_u64();
    let form = form_of_code(bytes.get_u8()).ok_or_else(|| corrupt("the form of its data is unknown"))?;
    let length = usize::from(bytes.get_u16()) * 3;
    if bytes.len() < length {
        return Err(corrupt("it ends too early"));
    }
    Ok(StoredTypes { accepted_at_ms, form, types: bytes.split_to(length) })
}

const fn code_of_form(form: DataForm) -> u8 {
    match form {
        DataForm::None => 0,
        DataForm::Json => 1,
        DataForm::Text => 2,
        DataForm::Binary => 3,
    }
}

const fn form_of_code(code: u8) -> Option<DataForm> {
    match code {
        0 => Some(DataForm::None),
        1 => Some(DataForm::Json),
        2 => Some(DataForm::Text),
        3 => Some(DataForm::Binary),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
