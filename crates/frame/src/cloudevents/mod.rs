//! CloudEvents 1.0 as clients send them over HTTP: structured, batched and binary.
//!
//! The caller finds the mode ([`ContentMode::of`]) and calls the parser of that mode. All parsers end in one
//! draft, which knows the rules, so that an event is judged alike whichever way it came. What breaks a rule
//! is an [`EventError`] that names the attribute; nothing is repaired, and nothing is wrapped.

mod batch;
mod binary;
mod draft;
mod error;
mod header_value;
mod mode;
mod rules;
mod structured;

pub use batch::parse_batch;
pub use binary::parse_binary;
pub(crate) use draft::Draft;
pub use error::{EventError, EventErrorKind};
pub use header_value::{HeaderValueError, decode_header_value, encode_header_value};
pub use mode::ContentMode;
pub(crate) use rules::is_attribute_name;
pub use structured::parse_structured;
