//! How large an event may be.
//!
//! The limits hold for what a client publishes. What the server adds to an event does not count, so
//! [`Frame::decode`](crate::Frame::decode), which also reads stored events, leaves room for it.

/// How many attributes the server may add to an event over [`Limits::attribute_count`].
pub const SERVER_ATTRIBUTES: usize = 16;

/// How many bytes of names and values the server may add over [`Limits::attributes_bytes`].
pub const SERVER_ATTRIBUTE_BYTES: usize = 64 * 1024;

/// The largest event that is accepted; every number is inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The whole frame, in bytes.
    pub frame_bytes: usize,
    /// The data, in bytes (of `data_base64`, decoded).
    pub data_bytes: usize,
    /// How many attributes, the required ones included.
    pub attribute_count: usize,
    /// The name of one attribute, in bytes.
    pub name_bytes: usize,
    /// The value of one attribute, in bytes of its text.
    pub value_bytes: usize,
    /// The names and values of all attributes together, in bytes.
    pub attributes_bytes: usize,
}

impl Limits {
    /// What the mesh accepts. CloudEvents wants every event of up to 64 KiB forwarded, whatever part of
    /// it the attributes are.
    pub const DEFAULT: Self = Self {
        frame_bytes: 16 * 1024 * 1024,
        data_bytes: 8 * 1024 * 1024,
        attribute_count: 1024,
        name_bytes: 256,
        value_bytes: 64 * 1024,
        attributes_bytes: 256 * 1024,
    };

    /// What Java runtimes that share the topic can read as well: 64 attributes of at most 4 KiB.
    pub const fn java_compatible() -> Self {
        Self { attribute_count: 64, value_bytes: 4 * 1024, ..Self::DEFAULT }
    }

    /// The limits of a stored event: these and what the server may have added.
    pub(crate) const fn stored(self) -> Self {
        Self {
            attribute_count: self.attribute_count + SERVER_ATTRIBUTES,
            attributes_bytes: self.attributes_bytes + SERVER_ATTRIBUTE_BYTES,
            ..self
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}
