//! Which attributes of an event are not text.
//!
//! A frame holds every attribute as text; JSON can also give an Integer or a Boolean. What was given is
//! kept beside the frame, in the form in which it is stored, so that reading a record copies nothing.

use bytes::Bytes;

/// One entry: `u16` index of the attribute in the frame, `u8` type.
const ENTRY: usize = 3;

/// The type of an attribute that is not text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AttributeType {
    /// A 32-bit signed number; its text is decimal.
    Integer,
    /// `true` or `false`.
    Boolean,
}

impl AttributeType {
    /// The byte that stands for the type in storage.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Integer => 1,
            Self::Boolean => 2,
        }
    }

    const fn of_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Integer),
            2 => Some(Self::Boolean),
            _ => None,
        }
    }

    /// Whether `text` is the canonical text of a value of this type.
    pub(crate) fn is_text(self, text: &str) -> bool {
        match self {
            Self::Boolean => matches!(text, "true" | "false"),
            Self::Integer => match text.parse::<i32>() {
                Ok(number) => itoa::Buffer::new().format(number) == text,
                Err(_) => false,
            },
        }
    }
}

/// The types of an event's non-text attributes, by position in the frame; most events have none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttributeTypes(Bytes);

impl AttributeTypes {
    /// Every attribute is text.
    pub const fn all_text() -> Self {
        Self(Bytes::new())
    }

    /// The stored form, if it is one: known types at rising positions below `attribute_count`.
    pub(crate) fn read(stored: Bytes, attribute_count: usize) -> Option<Self> {
        let types = Self(stored);
        let mut smallest = 0;
        if !types.0.len().is_multiple_of(ENTRY) {
            return None;
        }
        for entry in types.0.as_chunks::<ENTRY>().0 {
            let index = usize::from(u16::from_be_bytes([entry[0], entry[1]]));
            if index < smallest || index >= attribute_count {
                return None;
            }
            AttributeType::of_code(entry[2])?;
            smallest = index + 1;
        }
        Some(types)
    }

    /// The types in this order; positions must rise.
    pub(crate) fn collect(types: impl IntoIterator<Item = (usize, AttributeType)>) -> Self {
        let mut stored = Vec::new();
        for (index, attribute_type) in types {
            let index = u16::try_from(index).expect("a frame counts its attributes in 16 bits");
            stored.extend_from_slice(&index.to_be_bytes());
            stored.push(attribute_type.code());
        }
        Self(stored.into())
    }

    /// The stored form.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// How many attributes are not text.
    pub fn len(&self) -> usize {
        self.0.len() / ENTRY
    }

    /// Whether every attribute is text.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Position in the frame and type of the attributes that are not text, positions rising.
    pub fn iter(&self) -> impl Iterator<Item = (usize, AttributeType)> + '_ {
        self.0.as_chunks::<ENTRY>().0.iter().map(|entry| {
            let index = u16::from_be_bytes([entry[0], entry[1]]);
            let attribute_type = AttributeType::of_code(entry[2]).expect("the types were checked when read");
            (usize::from(index), attribute_type)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_types_come_back_and_damaged_ones_do_not() {
        let types = AttributeTypes::collect([(4, AttributeType::Integer), (300, AttributeType::Boolean)]);
        assert_eq!(types.as_bytes(), [0, 4, 1, 1, 44, 2]);
        assert_eq!(AttributeTypes::read(types.0.clone(), 301), Some(types.clone()));
        assert_eq!(types.iter().last(), Some((300, AttributeType::Boolean)));
        let damaged: [&'static [u8]; 4] = [&[0, 4], &[0, 4, 3], &[0, 4, 1, 0, 4, 1], &[0, 9, 1]];
        for stored in damaged {
            assert_eq!(AttributeTypes::read(Bytes::from_static(stored), 9), None, "{stored:?}");
        }
    }

    #[test]
    fn only_canonical_text_can_be_a_typed_value() {
        let integers =
            [("0", true), ("-2147483648", true), ("2147483648", false), ("+1", false), ("01", false)];
        for (text, expected) in integers {
            assert_eq!(AttributeType::Integer.is_text(text), expected, "{text}");
        }
        assert!(AttributeType::Boolean.is_text("true") && !AttributeType::Boolean.is_text("True"));
    }
}
