//! The settings of a group as Meta keeps them, and back.

use mesh_frame::Filter;
use mesh_state::shared::{self, GroupRecord};

use super::settings::{Mode, Settings};
use crate::lane::AckMode;

/// Settings as Meta keeps them.
pub(crate) fn stored_settings(settings: &Settings, from: serde_json::Value) -> shared::GroupSettings {
    shared::GroupSettings {
        filters: settings.filters.iter().map(Filter::to_json).collect(),
        from,
        ack: match settings.ack {
            AckMode::Explicit => shared::AckMode::Explicit,
            AckMode::Auto => shared::AckMode::Auto,
        },
        ack_timeout_ms: settings.ack_timeout_ms,
        max_attempts: settings.max_attempts,
        backoff_ms: settings.backoff_ms,
        max_backoff_ms: settings.max_backoff_ms,
        unknown: shared::Unknown::default(),
    }
}

/// Settings as Meta kept them; `None` when this release does not understand them.
pub(crate) fn read_settings(record: &GroupRecord) -> Option<Settings> {
    let stored = &record.settings;
    let filters =
        stored.filters.iter().map(|filter| Filter::parse(filter).ok()).collect::<Option<Vec<_>>>()?;
    Some(Settings {
        mode: Mode::read(&record.mode)?,
        filters,
        ack: match stored.ack {
            shared::AckMode::Explicit => AckMode::Explicit,
            shared::AckMode::Auto => AckMode::Auto,
        },
        ack_timeout_ms: stored.ack_timeout_ms,
        max_attempts: stored.max_attempts,
        backoff_ms: stored.backoff_ms,
        max_backoff_ms: stored.max_backoff_ms,
    })
}
