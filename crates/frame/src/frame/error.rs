//! Why bytes are not a frame.

use thiserror::Error;

/// Why bytes are not a frame, or attributes and data cannot become one.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    /// The bytes end before the frame does.
    #[error("the frame ends too early")]
    Truncated,
    /// The bytes go on after the frame's end.
    #[error("{surplus} bytes follow the end of the frame")]
    Surplus {
        /// How many bytes too many there are.
        surplus: usize,
    },
    /// The first byte is not the magic one.
    #[error("a frame starts with ef, not {found:02x}")]
    Magic {
        /// The first byte.
        found: u8,
    },
    /// A version that this build does not read.
    #[error("frame version {found} is not supported")]
    Version {
        /// The version.
        found: u8,
    },
    /// A kind that this build does not know.
    #[error("frame kind {found} is not known")]
    Kind {
        /// The kind.
        found: u8,
    },
    /// A name or a value is not UTF-8.
    #[error("an attribute is not UTF-8")]
    NotText,
    /// An attribute without a name.
    #[error("an attribute has an empty name")]
    EmptyName,
    /// A name that stands twice.
    #[error("attribute `{name}` is given twice")]
    Duplicate {
        /// The name.
        name: String,
    },
    /// More attributes than allowed.
    #[error("more than {limit} attributes")]
    TooManyAttributes {
        /// How many are allowed.
        limit: usize,
    },
    /// A name that is too long.
    #[error("an attribute name is over {limit} bytes")]
    NameTooLong {
        /// How many bytes are allowed.
        limit: usize,
    },
    /// A value that is too long.
    #[error("an attribute value is over {limit} bytes")]
    ValueTooLong {
        /// How many bytes are allowed.
        limit: usize,
    },
    /// All names and values together are too long.
    #[error("the attributes are over {limit} bytes together")]
    AttributesTooLarge {
        /// How many bytes are allowed.
        limit: usize,
    },
    /// The data is too long.
    #[error("the data is over {limit} bytes")]
    DataTooLarge {
        /// How many bytes are allowed.
        limit: usize,
    },
    /// The frame is too long.
    #[error("the frame is over {limit} bytes")]
    FrameTooLarge {
        /// How many bytes are allowed.
        limit: usize,
    },
}
