//! The kinds of value a key can have: how its text is read and what is said when it cannot be.
//!
//! Reading is strict: no rounding, no clamping, no guessing of case. What is refused says why in half a
//! sentence; what is accepted is told by [`Kind::accepted`], in one place for messages and documents.

mod choice;
mod net;
mod number;
mod text;

pub use choice::{Choice, Switch, Word};
pub use net::{Addresses, AdvertisedAddress, Host, KeySetUrl, Port, is_host_name};
pub use number::{Bytes, Count, Span};
pub use text::{File, Folder, Name, Names, OwnFile, Text, Token, is_origin, no_blank};

pub(crate) use number::bytes_text;

/// How the text of a value becomes a value.
pub trait Kind: Send + Sync + 'static {
    /// What the text is read into.
    type Value;

    /// Reads a text that is trimmed and not empty.
    ///
    /// # Errors
    ///
    /// Half a sentence that says what is wrong with the text, without repeating it.
    fn read(&self, text: &str) -> Result<Self::Value, String>;

    /// The texts that are read, in words.
    fn accepted(&self) -> String;

    /// The options and what each means, for a kind that is a choice; otherwise none.
    fn options(&self) -> Vec<(&'static str, &'static str)> {
        Vec::new()
    }
}
