//! What a key says of itself: the one form in which every key is declared.

use super::{kind::Kind, mode::Mode};

/// The part of the system that a key belongs to; the reference has a section for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// The title of its section.
    pub title: &'static str,
    /// What its keys have in common.
    pub about: &'static str,
}

/// What holds when no value is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// This value, written as one would give it.
    Value(&'static str),
    /// This value under `standalone`, that one under `server`.
    PerMode {
        /// Under `eventmesh standalone`.
        standalone: &'static str,
        /// Under `eventmesh server`.
        server: &'static str,
    },
    /// This value under `standalone`; `server` does not start without one that was given.
    RequiredByServer {
        /// Under `eventmesh standalone`.
        standalone: &'static str,
    },
    /// No value; the sentence says what that means.
    Unset(&'static str),
}

impl Fallback {
    /// The value that holds in this mode, if one does.
    pub fn value(self, mode: Mode) -> Option<&'static str> {
        match (self, mode) {
            (Self::Value(value), _)
            | (
                Self::PerMode { standalone: value, .. } | Self::RequiredByServer { standalone: value },
                Mode::Standalone,
            )
            | (Self::PerMode { server: value, .. }, Mode::Server) => Some(value),
            (Self::RequiredByServer { .. }, Mode::Server) | (Self::Unset(_), _) => None,
        }
    }
}

/// What every declaration says, whatever its kind.
#[derive(Debug)]
pub struct About {
    /// The name, `eventmesh.….….`
    pub name: &'static str,
    /// What holds without a value.
    pub fallback: Fallback,
    /// What it does, in one to three sentences.
    pub meaning: &'static str,
    /// Whether its value is masked wherever it is shown.
    pub secret: bool,
    /// Whether a blank value is an error: to be without it the key is left out. So it is for all secrets, and for
    /// what switches protection on, which a variable that nobody filled must not switch off.
    pub never_blank: bool,
}

/// A declared key whose values are read as `K`.
#[derive(Debug)]
pub struct Key<K> {
    /// What it is.
    pub about: About,
    /// How its values are read.
    pub kind: K,
}

/// A key of any kind: what messages, documents and the look-up by name need of it.
pub trait Declared: Sync {
    /// What it is.
    fn about(&self) -> &About;

    /// The values it accepts, in words.
    fn accepted(&self) -> String;

    /// The options and what each means, for a choice.
    fn options(&self) -> Vec<(&'static str, &'static str)>;

    /// Reads a value and forgets it.
    ///
    /// # Errors
    ///
    /// Half a sentence that says what is wrong with it.
    fn check(&self, text: &str) -> Result<(), String>;
}

impl<K: Kind> Declared for Key<K> {
    fn about(&self) -> &About {
        &self.about
    }

    fn accepted(&self) -> String {
        self.kind.accepted()
    }

    fn options(&self) -> Vec<(&'static str, &'static str)> {
        self.kind.options()
    }

    fn check(&self, text: &str) -> Result<(), String> {
        self.kind.read(text).map(drop)
    }
}

/// Declares the keys of a module: each a constant with its meaning as documentation, all in `KEYS`.
macro_rules! keys {
    ($($constant:ident: $kind:ty = $value:expr, $name:literal, $fallback:expr, $meaning:literal $(, $secret:ident)?;)+) => {
        $(
            #[doc = concat!("`", $name, "`: ", $meaning)]
            pub static $constant: $crate::config::declared::Key<$kind> = $crate::config::declared::Key {
                about: $crate::config::declared::About {
                    name: $name,
                    fallback: $fallback,
                    meaning: $meaning,
                    secret: $crate::config::declared::keys!(@secret $($secret)?),
                    never_blank: $crate::config::declared::keys!(@never_blank $($secret)?),
                },
                kind: $value,
            };
        )+

        /// The keys of this group, in the order of the reference.
        pub static KEYS: &[&dyn $crate::config::declared::Declared] = &[$(&$constant),+];
    };
    (@secret secret) => { true };
    (@secret never_blank) => { false };
    (@secret) => { false };
    (@never_blank secret) => { true };
    (@never_blank never_blank) => { true };
    (@never_blank) => { false };
}

pub(crate) use keys;
