//! The settings of a topic on the wire: read from a request, shown in an answer, described in the document.
//!
//! A member that is absent leaves a setting as it is, `null` gives it back to the configuration. Shown is what
//! holds, and beside it which of that is set on the topic.

use mesh_base::Range;
use mesh_delivery::{Change, SettingsChange, TopicRules, TopicSettings, TopicView};
use mesh_server::{
    ApiError, Given, JsonObject,
    openapi::{closed, count, list, number, object, with_optional},
};
use serde_json::{Value, json};

/// About a hundred years.
const CENTURY_MS: u64 = 36_500 * 86_400_000;
/// What every JSON reader takes as a whole number.
const LARGEST: u64 = (1 << 53) - 1;

/// A setting on the wire.
struct Setting {
    /// Its object in the request, and its place there; the same in answers.
    range: Range,
    object: Option<&'static str>,
    member: &'static str,
    /// What 0 means, where it may be 0 although the range begins higher.
    zero: Option<&'static str>,
    change: fn(&mut SettingsChange) -> &mut Change,
    own: fn(&TopicSettings) -> Option<u64>,
    /// What holds; `None`: there is no limit.
    holds: fn(&TopicRules) -> Option<u64>,
}

const SETTINGS: [Setting; 5] = [
    Setting {
        range: Range { name: "retention.maxAgeMs", least: 60_000, most: CENTURY_MS },
        object: Some("retention"),
        member: "maxAgeMs",
        zero: None,
        change: |change| &mut change.retention_max_age_ms,
        own: |own| own.retention_max_age_ms,
        holds: |rules| Some(millis(rules.max_age)),
    },
    Setting {
        range: Range { name: "retention.maxBytes", least: 1 << 20, most: LARGEST },
        object: Some("retention"),
        member: "maxBytes",
        zero: None,
        change: |change| &mut change.retention_max_bytes,
        own: |own| own.retention_max_bytes,
        holds: |rules| rules.max_bytes,
    },
    Setting {
        range: Range { name: "backlog.maxAgeMs", least: 60_000, most: CENTURY_MS },
        object: Some("backlog"),
        member: "maxAgeMs",
        zero: Some("for ever"),
        change: |change| &mut change.backlog_max_age_ms,
        own: |own| own.backlog_max_age_ms,
        holds: |rules| Some(rules.backlog_max_age.map_or(0, millis)),
    },
    Setting {
        range: Range { name: "backlog.maxBytes", least: 1 << 20, most: LARGEST },
        object: Some("backlog"),
        member: "maxBytes",
        zero: None,
        change: |change| &mut change.backlog_max_bytes,
        own: |own| own.backlog_max_bytes,
        holds: |rules| rules.backlog_max_bytes,
    },
    Setting {
        range: Range { name: "dedupWindowMs", least: 1_000, most: 86_400_000 },
        object: None,
        member: "dedupWindowMs",
        zero: Some("off"),
        change: |change| &mut change.dedup_window_ms,
        own: |own| own.dedup_window_ms,
        holds: |rules| Some(millis(rules.dedup_window)),
    },
];

fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Reads what a request changes.
pub(crate) fn read(request: &JsonObject<'_>) -> Result<SettingsChange, ApiError> {
    let mut change = SettingsChange::default();
    for setting in &SETTINGS {
        let given = match setting.object {
            None => request.given(setting.member)?,
            Some(name) => match request.object(name, &["maxAgeMs", "maxBytes"])? {
                Given::Absent => Given::Absent,
                Given::Null => Given::Null,
                Given::Value(object) => object.given(setting.member)?,
            },
        };
        *(setting.change)(&mut change) = match given {
            Given::Absent => Change::Keep,
            Given::Null => Change::Unset,
            Given::Value(raw) => Change::Set(setting.value(raw)?),
        };
    }
    Ok(change)
}

impl Setting {
    fn value(&self, raw: &str) -> Result<u64, ApiError> {
        let Range { name, least, most } = self.range;
        match serde_json::from_str::<u64>(raw) {
            Ok(value) if (least..=most).contains(&value) || (value == 0 && self.zero.is_some()) => Ok(value),
            _ => {
                let zero = self.zero.map(|means| format!("0 ({means}) or ")).unwrap_or_default();
                let message = format!("`{name}` must be {zero}a whole number from {least} to {most}");
                Err(ApiError::invalid(message))
            }
        }
    }

    fn schema(&self) -> Value {
        let Range { least, most, .. } = self.range;
        let mut any = vec![number(least, most), json!({"type": "null"})];
        if let Some(means) = self.zero {
            any.push(json!({"type": "integer", "const": 0, "description": means}));
        }
        json!({"anyOf": any})
    }
}

/// Puts what holds for a topic, and what of it is set on the topic, beside the members of an answer.
pub(crate) fn show(view: &TopicView, answer: &mut Value) {
    let mut own = Vec::new();
    let mut shown = json!({});
    for setting in &SETTINGS {
        let holds = (setting.holds)(&view.rules);
        match setting.object {
            None => shown[setting.member] = holds.into(),
            Some(object) => shown[object][setting.member] = holds.into(),
        }
        if (setting.own)(&view.own).is_some() {
            own.push(setting.range.name);
        }
    }
    answer["settings"] = shown;
    answer["own"] = own.into();
}

/// The members of a request that change settings.
pub(crate) fn asked() -> [(&'static str, Value); 3] {
    let [age, bytes, backlog_age, backlog_bytes, window] = SETTINGS.map(|setting| setting.schema());
    let both = |age, bytes| {
        let of = closed(with_optional([], [("maxAgeMs", age), ("maxBytes", bytes)]));
        json!({"anyOf": [of, {"type": "null"}]})
    };
    [
        ("retention", both(age, bytes)),
        ("backlog", both(backlog_age, backlog_bytes)),
        ("dedupWindowMs", window),
    ]
}

/// The members of an answer that show settings.
pub(crate) fn shown() -> [(&'static str, Value); 2] {
    let limit = || json!({"type": ["integer", "null"], "minimum": 0, "description": "`null`: no limit."});
    let both = || object([("maxAgeMs", count()), ("maxBytes", limit())]);
    let settings = object([("retention", both()), ("backlog", both()), ("dedupWindowMs", count())]);
    let names: Vec<&str> = SETTINGS.iter().map(|setting| setting.range.name).collect();
    [("settings", settings), ("own", list(&json!({"type": "string", "enum": names})))]
}
