//! Configuration: parse, then validate, then settings; or every problem at once.
//!
//! [`Given`] reads the sources into pairs that know their origin. [`validate`] is pure: it resolves names, reads
//! every key by its declaration in [`keys`], checks the rules between keys, and gives plain [`Settings`].

mod declared;
mod effective;
pub mod keys;
pub mod kind;
mod mode;
mod old;
mod origin;
mod problems;
mod properties;
mod reader;
pub mod reference;
mod resolve;
mod rules;
mod secret;
pub mod settings;
mod sources;
mod validate;

pub use effective::Effective;
pub use mode::Mode;
pub use origin::{Origin, Pair};
pub(crate) use problems::report;
pub use problems::{Problem, Warning};
pub use secret::Secret;
pub use settings::Settings;
pub use sources::Given;
pub use validate::{Looked, look, validate};
