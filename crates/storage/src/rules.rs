//! What a topic may have settings of its own for, and what holds where it has none.
//!
//! A topic's own settings are part of its record in the log: they are made with it, changed by one durable write,
//! and gone with it. What it does not set follows the configuration, also when that changes.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What is set on a topic itself. Times are milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopicSettings {
    /// How long what is done with is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retention_max_age_ms: Option<u64>,
    /// How many bytes are kept that are done with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retention_max_bytes: Option<u64>,
    /// How long what is not done with is kept; 0: for ever.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backlog_max_age_ms: Option<u64>,
    /// How many bytes are kept at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backlog_max_bytes: Option<u64>,
    /// How long an event is recognised when it is published again; 0: not at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dedup_window_ms: Option<u64>,
}

/// What becomes of one setting of a topic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Change {
    /// It stays as it is.
    #[default]
    Keep,
    /// From now on the configuration's value holds.
    Unset,
    /// This value.
    Set(u64),
}

impl Change {
    fn of(self, before: Option<u64>) -> Option<u64> {
        match self {
            Self::Keep => before,
            Self::Unset => None,
            Self::Set(value) => Some(value),
        }
    }
}

/// What becomes of the settings of a topic; each as the field of that name in [`TopicSettings`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "they are those of TopicSettings")]
pub struct SettingsChange {
    pub retention_max_age_ms: Change,
    pub retention_max_bytes: Change,
    pub backlog_max_age_ms: Change,
    pub backlog_max_bytes: Change,
    pub dedup_window_ms: Change,
}

impl TopicSettings {
    /// These settings after a change.
    #[must_use]
    pub fn changed(&self, change: &SettingsChange) -> Self {
        Self {
            retention_max_age_ms: change.retention_max_age_ms.of(self.retention_max_age_ms),
            retention_max_bytes: change.retention_max_bytes.of(self.retention_max_bytes),
            backlog_max_age_ms: change.backlog_max_age_ms.of(self.backlog_max_age_ms),
            backlog_max_bytes: change.backlog_max_bytes.of(self.backlog_max_bytes),
            dedup_window_ms: change.dedup_window_ms.of(self.dedup_window_ms),
        }
    }

    /// Whether nothing is set, so that the configuration holds throughout.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What holds for a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicRules {
    /// How long what is done with is kept.
    pub max_age: Duration,
    /// How many bytes are kept that are done with; `None`: no limit.
    pub max_bytes: Option<u64>,
    /// How long what is not done with is kept; `None`: for ever.
    pub backlog_max_age: Option<Duration>,
    /// How many bytes are kept at most; `None`: 20 % of the volume, where the log has one.
    pub backlog_max_bytes: Option<u64>,
    /// How long an event is recognised when it is published again; zero: not at all.
    pub dedup_window: Duration,
}

impl Default for TopicRules {
    /// What holds when the configuration says nothing.
    fn default() -> Self {
        Self {
            max_age: Duration::from_secs(7 * 86_400),
            max_bytes: None,
            backlog_max_age: Some(Duration::from_secs(14 * 86_400)),
            backlog_max_bytes: None,
            dedup_window: Duration::ZERO,
        }
    }
}

impl TopicRules {
    /// These rules with a topic's own settings in their place.
    #[must_use]
    pub fn with(&self, own: &TopicSettings) -> Self {
        let time = Duration::from_millis;
        Self {
            max_age: own.retention_max_age_ms.map_or(self.max_age, time),
            max_bytes: own.retention_max_bytes.or(self.max_bytes),
            backlog_max_age: match own.backlog_max_age_ms {
                None => self.backlog_max_age,
                Some(0) => None,
                Some(age) => Some(time(age)),
            },
            backlog_max_bytes: own.backlog_max_bytes.or(self.backlog_max_bytes),
            dedup_window: own.dedup_window_ms.map_or(self.dedup_window, time),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_topic_sets_wins_and_what_it_gives_back_follows_the_configuration() {
        let configured = TopicRules::default();
        let change = SettingsChange {
            backlog_max_age_ms: Change::Set(0),
            retention_max_bytes: Change::Set(7),
            dedup_window_ms: Change::Set(1_000),
            ..SettingsChange::default()
        };
        let own = TopicSettings::default().changed(&change);
        let expected = TopicRules {
            backlog_max_age: None,
            max_bytes: Some(7),
            dedup_window: Duration::from_secs(1),
            ..configured
        };
        assert_eq!(configured.with(&own), expected);
        assert_eq!(own.changed(&SettingsChange::default()), own);
        let back = own.changed(&SettingsChange {
            backlog_max_age_ms: Change::Unset,
            retention_max_bytes: Change::Unset,
            dedup_window_ms: Change::Unset,
            ..SettingsChange::default()
        });
        assert!(back.is_empty());
        assert_eq!(configured.with(&back), configured);
    }
}
