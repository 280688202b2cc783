//! Where a group starts or goes on, as requests say it in JSON.

use std::collections::BTreeMap;

use mesh_base::UnixMillis;
use mesh_frame::{Offset, PartitionId, parse_timestamp};
use serde::Deserialize;
use serde_json::Value;

/// Where a new group starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StartAt {
    /// After everything that is stored now.
    #[default]
    Latest,
    /// With the oldest that is stored.
    Earliest,
    /// With the first that was accepted at or after this time.
    Time(UnixMillis),
    /// At these offsets; partitions left out start at the latest.
    Offsets(BTreeMap<PartitionId, Offset>),
    /// At this offset of the only partition.
    Offset(Offset),
}

impl StartAt {
    /// The forms that [`StartAt::read`] takes, for messages.
    pub const FORMS: &str = "\"latest\", \"earliest\", an RFC 3339 time, an offset, or \
                             {\"offsets\":{\"<partition>\":\"<offset>\"}}";

    /// Reads a start from JSON; `None`: it has another form.
    pub fn read(json: &str) -> Option<Self> {
        match serde_json::from_str(json).ok()? {
            Value::Number(number) => number.as_u64().map(|offset| Self::Offset(Offset(offset))),
            // Read from the text once more, which refuses a member that is given twice.
            Value::Object(_) => offsets(&serde_json::from_str::<ByPartition>(json).ok()?.offsets),
            Value::String(text) => match text.as_str() {
                "latest" => Some(Self::Latest),
                "earliest" => Some(Self::Earliest),
                text => offset(text).map(Self::Offset).or_else(|| {
                    let at = parse_timestamp(text)?;
                    Some(Self::Time(UnixMillis(u64::try_from(at).unwrap_or(0))))
                }),
            },
            Value::Null | Value::Bool(_) | Value::Array(_) => None,
        }
    }
}

#[derive(Deserialize)]
struct ByPartition {
    offsets: serde_json::Map<String, Value>,
}

/// An offset in decimal digits.
fn offset(text: &str) -> Option<Offset> {
    let is_decimal = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_decimal.then(|| text.parse().ok().map(Offset)).flatten()
}

/// Offsets by partition; each a string, as the server writes them, or a number.
fn offsets(members: &serde_json::Map<String, Value>) -> Option<StartAt> {
    let mut start = BTreeMap::new();
    for (partition, value) in members {
        let partition = offset(partition).and_then(|number| u32::try_from(number.0).ok())?;
        let at = match value {
            Value::String(text) => offset(text)?,
            Value::Number(number) => Offset(number.as_u64()?),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return None,
        };
        start.insert(PartitionId(partition), at);
    }
    Some(StartAt::Offsets(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_read_and_nothing_else() {
        let offsets = BTreeMap::from([(PartitionId(0), Offset(12)), (PartitionId(3), Offset(u64::MAX))]);
        let cases = [
            (r#""latest""#, StartAt::Latest),
            (r#""earliest""#, StartAt::Earliest),
            (r#""1970-01-01T00:00:01Z""#, StartAt::Time(UnixMillis(1_000))),
            (r#""42""#, StartAt::Offset(Offset(42))),
            ("42", StartAt::Offset(Offset(42))),
            (r#"{"offsets":{"0":"12","3":18446744073709551615}}"#, StartAt::Offsets(offsets)),
        ];
        for (json, expected) in cases {
            assert_eq!(StartAt::read(json), Some(expected), "{json}");
        }
        let others = [
            "null",
            "true",
            "\"\"",
            "\"soon\"",
            "-1",
            "1.5",
            "[]",
            "{}",
            r#"{"offsets":null}"#,
            r#"{"offsets":{"x":"1"}}"#,
            r#"{"offsets":["1"]}"#,
            r#"{"offsets":{},"offsets":{"0":"1"}}"#,
        ];
        for json in others {
            assert_eq!(StartAt::read(json), None, "{json}");
        }
    }
}
