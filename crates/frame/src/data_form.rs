//! How the data of an event was given.

/// How the data of an event was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DataForm {
    /// There is no data.
    None,
    /// A JSON value; the data is its text, byte for byte.
    Json,
    /// A string under a type that is not JSON; the data is its text in UTF-8.
    Text,
    /// Bytes; structured JSON carries them as Base64.
    Binary,
}
