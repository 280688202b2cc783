//! Why the last attempt at a delivery failed: kept with its row, told in its dead letter.

use std::{fmt, sync::Arc};

/// A client's reason is kept up to this many bytes.
const MOST_BYTES: usize = 256;

/// Why the last attempt at a delivery failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LastError {
    /// None has failed, or an older release did not say why.
    #[default]
    Unknown,
    /// It was not settled in time.
    DeadlinePassed,
    /// The stream it was written to ended.
    StreamClosed,
    /// Its member ended its subscription, or was put out.
    ClientLeft,
    /// Its client gave it back without a reason.
    Nacked,
    /// Its client rejected it without a reason.
    Rejected,
    /// Its client gave this reason: bounded, without control characters. Made by [`LastError::said`].
    Said(Arc<str>),
}

impl LastError {
    /// A client's reason: control characters are escaped, and what is beyond 256 bytes is cut. Blank, it is none.
    pub fn said(reason: Option<&str>, or: Self) -> Self {
        let Some(reason) = reason.map(str::trim).filter(|reason| !reason.is_empty()) else { return or };
        let mut kept = String::new();
        for character in reason.chars() {
            let before = kept.len();
            if character.is_control() {
                kept.extend(character.escape_default());
            } else {
                kept.push(character);
            }
            if kept.len() > MOST_BYTES - '…'.len_utf8() {
                kept.truncate(before);
                kept.push('…');
                break;
            }
        }
        Self::Said(kept.into())
    }

    /// The text; empty when it is unknown.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Unknown => "",
            Self::DeadlinePassed => "ack deadline passed",
            Self::StreamClosed => "stream closed",
            Self::ClientLeft => "client left",
            Self::Nacked => "nacked",
            Self::Rejected => "rejected",
            Self::Said(text) => text,
        }
    }

    /// How a row without a text has it; `None`: the text has to be stored.
    pub(super) const fn code(&self) -> Option<u8> {
        match self {
            Self::Unknown => Some(0),
            Self::DeadlinePassed => Some(1),
            Self::StreamClosed => Some(2),
            Self::ClientLeft => Some(3),
            Self::Nacked => Some(4),
            Self::Rejected => Some(5),
            Self::Said(_) => None,
        }
    }

    /// What a code says; a code of a newer release says nothing that this one knows.
    pub(super) const fn of_code(code: u8) -> Self {
        match code {
            1 => Self::DeadlinePassed,
            2 => Self::StreamClosed,
            3 => Self::ClientLeft,
            4 => Self::Nacked,
            5 => Self::Rejected,
            _ => Self::Unknown,
        }
    }
}

impl fmt::Display for LastError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_bounded_in_bytes_and_has_no_control_characters() {
        let of = |reason: Option<&str>| LastError::said(reason, LastError::Nacked).to_string();
        for (reason, expected) in [
            (None, "nacked"),
            (Some(" \n"), "nacked"),
            (Some(" no stock "), "no stock"),
            (Some("a\nb\t\u{0}\u{1b}[31m\u{85}x"), "a\\nb\\t\\u{0}\\u{1b}[31m\\u{85}x"),
            (Some("größer"), "größer"),
        ] {
            assert_eq!(of(reason), expected, "{reason:?}");
        }
        for filler in ["x", "ö", "😀", "\u{7}"] {
            let long = filler.repeat(100_000);
            let kept = of(Some(&long));
            assert!(
                kept.len() <= MOST_BYTES && kept.len() > MOST_BYTES - 16 && kept.ends_with('…'),
                "{kept}"
            );
        }
    }
}
