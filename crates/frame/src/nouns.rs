//! The nouns: names and positions that cannot be confused with each other or hold an illegal value.
//!
//! A name is checked where it is made and shares its text when cloned. What reads them back from a
//! store goes through the same check.

use std::{borrow::Borrow, fmt, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use thiserror::Error;

/// Longest name of any kind, in bytes.
const LONGEST_NAME: usize = 255;
/// What the name of a dead-letter topic ends with.
const DEAD_LETTER_SUFFIX: &str = "_DLQ";

/// Why a text is not a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NameError {
    /// The text is empty.
    #[error("a name must not be empty")]
    Empty,
    /// The text is longer than this kind of name may be.
    #[error("a name of {length} bytes is over the limit of {limit}")]
    TooLong {
        /// How long the text is, in bytes.
        length: usize,
        /// How long it may be, in bytes.
        limit: usize,
    },
    /// A character that this kind of name may not have.
    #[error("a name must not contain {character:?}")]
    Character {
        /// The first such character.
        character: char,
    },
    /// `.` and `..` are not topic names: they mean something to file systems.
    #[error("a topic must not be named `.` or `..`")]
    Dots,
    /// Topics that start with `__` belong to the brokers.
    #[error("a topic name must not start with `__`")]
    Internal,
    /// Topics that end with `_DLQ` hold dead letters; clients neither publish nor subscribe to them.
    #[error("topic names ending in `_DLQ` are reserved for dead letters")]
    Reserved,
}

/// What all text nouns have in common; `$check` decides which texts are names.
macro_rules! text_noun {
    ($(#[$doc:meta])* $noun:ident, $check:path) => {
        $(#[$doc])*
        ///
        /// Clones share the text.
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $noun(Arc<str>);

        impl $noun {
            /// The name with this text.
            ///
            /// # Errors
            ///
            /// [`NameError`] says which rule the text breaks.
            pub fn new(text: &str) -> Result<Self, NameError> {
                $check(text)?;
                Ok(Self(text.into()))
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $noun {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl AsRef<str> for $noun {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl Borrow<str> for $noun {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl Serialize for $noun {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $noun {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                Self::new(&text).map_err(de::Error::custom)
            }
        }
    };
}

text_noun! {
    /// The name of a topic: 1–255 of `[A-Za-z0-9._-]`, not `.` or `..`, not starting with `__`. Case counts.
    TopicName, check_topic
}
text_noun! {
    /// The name a client gives itself: 1–255 bytes of UTF-8 without control characters.
    ClientId, check_name
}
text_noun! {
    /// The name of a group: 1–255 bytes of UTF-8 without control characters.
    GroupName, check_name
}
text_noun! {
    /// A tenant, as a credential names it: 1–255 bytes of UTF-8 without control characters.
    TenantId, check_name
}
text_noun! {
    /// A running instance of the mesh: 1–255 bytes of UTF-8 without control characters.
    InstanceId, check_name
}
text_noun! {
    /// A task of an agent: 1–255 bytes of UTF-8 without control characters.
    TaskId, check_name
}
text_noun! {
    /// A membership of a client in a group: 1–255 bytes of UTF-8 without control characters.
    SubscriptionId, check_name
}

impl TopicName {
    /// The longest topic name a client may use, in bytes: its dead-letter topic must have a legal name too.
    pub const LONGEST_CLIENT_NAME: usize = LONGEST_NAME - DEAD_LETTER_SUFFIX.len();

    /// The topic with this name, if a client may publish or subscribe to it.
    ///
    /// # Errors
    ///
    /// As [`TopicName::new`]; [`NameError::Reserved`] for the name of a dead-letter topic, and
    /// [`NameError::TooLong`] from 252 bytes on.
    pub fn client(text: &str) -> Result<Self, NameError> {
        let topic = Self::new(text)?;
        if topic.is_dead_letter() {
            return Err(NameError::Reserved);
        }
        if text.len() > Self::LONGEST_CLIENT_NAME {
            return Err(NameError::TooLong { length: text.len(), limit: Self::LONGEST_CLIENT_NAME });
        }
        Ok(topic)
    }

    /// Whether the topic holds dead letters.
    pub fn is_dead_letter(&self) -> bool {
        self.0.ends_with(DEAD_LETTER_SUFFIX)
    }

    /// The topic whose dead letters this one holds; `None` when it holds none.
    pub fn of_dead_letters(&self) -> Option<Self> {
        Self::new(self.0.strip_suffix(DEAD_LETTER_SUFFIX)?).ok()
    }

    /// The topic that holds the dead letters of this one, which must be one that [`TopicName::client`]
    /// accepts; a dead-letter topic is its own.
    pub fn dead_letter(&self) -> Self {
        if self.is_dead_letter() {
            return self.clone();
        }
        Self(format!("{}{DEAD_LETTER_SUFFIX}", self.0).into())
    }
}

/// What all number nouns have in common.
macro_rules! number_noun {
    ($(#[$doc:meta])* $noun:ident($number:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $noun(pub $number);

        impl fmt::Display for $noun {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

number_noun! {
    /// A partition of a topic, counted from 0.
    PartitionId(u32)
}
number_noun! {
    /// A position in a partition. Offsets rise and are never used twice; they need not be dense.
    Offset(u64)
}
number_noun! {
    /// A term of ownership; a higher one fences off the lower ones.
    Epoch(u64)
}
number_noun! {
    /// Which life of a topic: one that was deleted and made again has another incarnation.
    Incarnation(u64)
}

fn check_length(text: &str) -> Result<(), NameError> {
    match text.len() {
        0 => Err(NameError::Empty),
        1..=LONGEST_NAME => Ok(()),
        length => Err(NameError::TooLong { length, limit: LONGEST_NAME }),
    }
}

fn check_name(text: &str) -> Result<(), NameError> {
    check_length(text)?;
    match text.chars().find(|character| character.is_control()) {
        Some(character) => Err(NameError::Character { character }),
        None => Ok(()),
    }
}

fn check_topic(text: &str) -> Result<(), NameError> {
    check_length(text)?;
    let legal = |character: &char| character.is_ascii_alphanumeric() || matches!(character, '.' | '_' | '-');
    if let Some(character) = text.chars().find(|character| !legal(character)) {
        return Err(NameError::Character { character });
    }
    if text == "." || text == ".." {
        return Err(NameError::Dots);
    }
    if text.starts_with("__") {
        return Err(NameError::Internal);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topic_names_follow_the_documented_rules() {
        let longest = "t".repeat(255);
        let too_long = "t".repeat(256);
        let cases = [
            ("a", Ok(())),
            ("Orders.v2_new-x", Ok(())),
            ("_single", Ok(())),
            ("...", Ok(())),
            (longest.as_str(), Ok(())),
            ("orders_DLQ", Ok(())),
            ("", Err(NameError::Empty)),
            (too_long.as_str(), Err(NameError::TooLong { length: 256, limit: 255 })),
            (".", Err(NameError::Dots)),
            ("..", Err(NameError::Dots)),
            ("__offsets", Err(NameError::Internal)),
            // covers: U29
            ("a+b", Err(NameError::Character { character: '+' })),
            ("a&b", Err(NameError::Character { character: '&' })),
            ("a/b", Err(NameError::Character { character: '/' })),
            ("ü", Err(NameError::Character { character: 'ü' })),
        ];
        for (name, expected) in cases {
            assert_eq!(TopicName::new(name).map(|_| ()), expected, "{name}");
        }
    }

    #[test]
    fn a_client_may_not_name_a_dead_letter_topic_and_leaves_room_for_its_suffix() {
        assert_eq!(TopicName::client("orders_DLQ"), Err(NameError::Reserved));
        assert_eq!(TopicName::client(&"t".repeat(252)), Err(NameError::TooLong { length: 252, limit: 251 }));
        let longest = TopicName::client(&"t".repeat(251)).expect("251 bytes are allowed");
        let dead_letter = longest.dead_letter();
        assert!(dead_letter.is_dead_letter());
        assert_eq!(TopicName::new(dead_letter.as_str()), Ok(dead_letter.clone()));
        assert_eq!(dead_letter.dead_letter(), dead_letter);
    }

    #[test]
    fn names_are_bytes_of_text_without_control_characters() {
        assert!(ClientId::new("billing worker ü 1").is_ok());
        assert_eq!(GroupName::new(""), Err(NameError::Empty));
        assert_eq!(GroupName::new("a\u{85}"), Err(NameError::Character { character: '\u{85}' }));
        assert_eq!(ClientId::new("a\n"), Err(NameError::Character { character: '\n' }));
        assert_eq!(TenantId::new(&"ü".repeat(128)), Err(NameError::TooLong { length: 256, limit: 255 }));
    }

    #[test]
    fn a_stored_name_is_checked_when_it_is_read_back() {
        let json = serde_json::to_string(&ClientId::new("c\"1").expect("legal")).expect("text");
        assert_eq!(serde_json::from_str::<ClientId>(&json).expect("legal").as_str(), "c\"1");
        assert!(serde_json::from_str::<TopicName>("\"a b\"").is_err());
    }
}
