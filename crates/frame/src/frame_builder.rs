//! Writes a frame into one buffer.
//!
//! The header is written first with counts of zero and completed at the end, so that nothing is collected
//! in between. What a builder hands out satisfies everything that [`Frame::decode`] checks.

use bytes::Bytes;

use crate::{
    frame::{Flags, Frame, FrameError, FrameKind, HEADER, MAGIC, VERSION, check_attribute, first_duplicate},
    limits::Limits,
};

/// Builds one frame; attributes come out in the order in which they were added.
#[derive(Debug)]
pub struct FrameBuilder {
    buffer: Vec<u8>,
    kind: FrameKind,
    limits: Limits,
    attribute_count: usize,
    attributes_bytes: usize,
    broken: Option<FrameError>,
}

impl FrameBuilder {
    /// A frame of this kind without attributes, flags or data, sequence 0.
    pub fn new(kind: FrameKind) -> Self {
        Self::with_capacity(kind, 512)
    }

    /// The same with room for a frame of `bytes` bytes; one that is not longer takes a single allocation.
    pub fn with_capacity(kind: FrameKind, bytes: usize) -> Self {
        let limits = Limits::DEFAULT.stored();
        let mut buffer = Vec::with_capacity(bytes.clamp(HEADER, limits.frame_bytes));
        buffer.extend_from_slice(&[MAGIC, VERSION, kind.code(), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        Self { buffer, kind, limits, attribute_count: 0, attributes_bytes: 0, broken: None }
    }

    /// The beginnings of a frame like `original`, which was within the limits, with room for `more_bytes`.
    /// What the server adds is held to the layout only.
    pub(crate) fn like(original: &Frame, more_bytes: usize) -> Self {
        let loose = Limits {
            frame_bytes: usize::MAX,
            value_bytes: u32::MAX as usize,
            attribute_count: usize::from(u16::MAX),
            attributes_bytes: usize::MAX,
            ..Limits::DEFAULT
        };
        let builder = Self::with_capacity(original.kind(), original.as_bytes().len() + more_bytes);
        Self { limits: loose, ..builder.flags(original.flags()).sequence(original.sequence()) }
    }

    /// Sets the flags.
    #[must_use]
    pub fn flags(mut self, flags: Flags) -> Self {
        self.buffer[3] = flags.0;
        self
    }

    /// Sets the position in the stream.
    #[must_use]
    pub fn sequence(mut self, sequence: u32) -> Self {
        self.buffer[4..8].copy_from_slice(&sequence.to_be_bytes());
        self
    }

    /// Adds an attribute. An illegal one is reported by [`FrameBuilder::build`].
    #[must_use]
    pub fn attribute(mut self, name: &str, value: &str) -> Self {
        if self.broken.is_none() {
            self.broken = self.push(name, value).err();
        }
        self
    }

    /// The frame with this data.
    ///
    /// # Errors
    ///
    /// The first limit that was passed, or the name that was added twice.
    pub fn build(self, data: &[u8]) -> Result<Frame, FrameError> {
        if let Some(broken) = self.broken {
            return Err(broken);
        }
        if data.len() > self.limits.data_bytes {
            return Err(FrameError::DataTooLarge { limit: self.limits.data_bytes });
        }
        let frame = self.finish(|buffer| {
            buffer.extend_from_slice(data);
            Ok::<(), FrameError>(())
        })?;
        match first_duplicate(frame.attributes().map(|(name, _)| name)) {
            Some(name) => Err(FrameError::Duplicate { name: name.to_owned() }),
            None => Ok(frame),
        }
    }

    /// Adds an attribute; the limits of the stored frame hold.
    pub(crate) fn push(&mut self, name: &str, value: &str) -> Result<(), FrameError> {
        let total = self.attributes_bytes + name.len() + value.len();
        check_attribute(name.len(), value.len(), total, &self.limits)?;
        if self.attribute_count == self.limits.attribute_count {
            return Err(FrameError::TooManyAttributes { limit: self.limits.attribute_count });
        }
        let name_length = u16::try_from(name.len()).expect("the limit of a name is below 64 KiB");
        let value_length = u32::try_from(value.len()).expect("the limit of a value is below 4 GiB");
        self.buffer.extend_from_slice(&name_length.to_be_bytes());
        self.buffer.extend_from_slice(name.as_bytes());
        self.buffer.extend_from_slice(&value_length.to_be_bytes());
        self.buffer.extend_from_slice(value.as_bytes());
        self.attribute_count += 1;
        self.attributes_bytes = total;
        Ok(())
    }

    /// The names and values so far, in bytes.
    pub(crate) fn attributes_bytes(&self) -> usize {
        self.attributes_bytes
    }

    /// How many attributes there are so far.
    pub(crate) fn attribute_count(&self) -> usize {
        self.attribute_count
    }

    /// The frame with the data that `write_data` appends. The caller knows that no name stands twice.
    pub(crate) fn finish<E: From<FrameError>>(
        mut self,
        write_data: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<Frame, E> {
        let data_start = self.buffer.len();
        write_data(&mut self.buffer)?;
        let data_length = self.buffer.len() - data_start;
        if data_length > self.limits.data_bytes {
            return Err(FrameError::DataTooLarge { limit: self.limits.data_bytes }.into());
        }
        if self.buffer.len() > self.limits.frame_bytes {
            return Err(FrameError::FrameTooLarge { limit: self.limits.frame_bytes }.into());
        }
        let count = u16::try_from(self.attribute_count).expect("the limit of attributes is below 65,536");
        let data_length = u32::try_from(data_length).expect("the limit of data is below 4 GiB");
        self.buffer[8..10].copy_from_slice(&count.to_be_bytes());
        self.buffer[10..14].copy_from_slice(&data_length.to_be_bytes());
        Ok(Frame::built(Bytes::from(self.buffer), self.kind, data_start))
    }
}
