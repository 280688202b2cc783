//! The settings of a group: what a subscribe may ask, in which ranges, and what is meant when it does not.

use std::time::Duration;

pub use mesh_base::Range;
use mesh_base::{Backoff, Chance};
use mesh_frame::{Epoch, Filter};
use mesh_state::shared::GroupKind;
use serde::{Deserialize, Serialize};

use crate::lane::{AckMode, Terms};

/// How the members of a topic share its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Mode {
    /// The members of a group share its events.
    LoadBalance,
    /// Each client gets every event.
    Broadcast,
    /// The same; the name says that filters are meant.
    Multicast,
}

impl Mode {
    /// Every mode, for messages.
    pub const ALL: [Self; 3] = [Self::LoadBalance, Self::Broadcast, Self::Multicast];

    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::LoadBalance => "LOAD_BALANCE",
            Self::Broadcast => "BROADCAST",
            Self::Multicast => "MULTICAST",
        }
    }

    /// The mode of that name; case counts.
    pub fn read(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == name)
    }

    /// Whether the members share one cursor.
    pub const fn is_shared(self) -> bool {
        matches!(self, Self::LoadBalance)
    }

    /// The kind of group it makes.
    pub(crate) const fn kind(self) -> GroupKind {
        if self.is_shared() { GroupKind::LoadBalance } else { GroupKind::Broadcast }
    }
}

/// `ackTimeoutMs`.
pub const ACK_TIMEOUT_MS: Range = Range { name: "ackTimeoutMs", least: 100, most: 43_200_000 };
/// `backoffMs`.
pub const BACKOFF_MS: Range = Range { name: "backoffMs", least: 0, most: 3_600_000 };
/// `maxBackoffMs`; not below `backoffMs` either.
pub const MAX_BACKOFF_MS: Range = Range { name: "maxBackoffMs", least: 0, most: 43_200_000 };
/// `maxAttempts`; 0 means no limit.
pub const MAX_ATTEMPTS: Range = Range { name: "maxAttempts", least: 0, most: u32::MAX as u64 };
/// `maxInFlight`.
pub const MAX_IN_FLIGHT: Range = Range { name: "maxInFlight", least: 1, most: 10_000 };
/// `maxInFlight` of a member that names none.
pub const DEFAULT_MAX_IN_FLIGHT: u32 = 1_000;

/// What a subscribe asks of its group's settings; `None` inherits.
#[derive(Clone, Debug, Default)]
pub struct AskedSettings {
    /// Filters that must all be true.
    pub filters: Option<Vec<Filter>>,
    /// When a delivery is done.
    pub ack: Option<AckMode>,
    /// Milliseconds a delivery may be kept.
    pub ack_timeout_ms: Option<u64>,
    /// Hand-outs before the dead letters.
    pub max_attempts: Option<u32>,
    /// The first wait before a redelivery.
    pub backoff_ms: Option<u64>,
    /// The longest such wait.
    pub max_backoff_ms: Option<u64>,
}

/// The settings a group has.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// How it shares.
    pub mode: Mode,
    /// Filters that must all be true.
    pub filters: Vec<Filter>,
    /// When a delivery is done.
    pub ack: AckMode,
    /// Milliseconds a delivery may be kept.
    pub ack_timeout_ms: u64,
    /// Hand-outs before the dead letters; 0 = no limit.
    pub max_attempts: u32,
    /// The first wait before a redelivery.
    pub backoff_ms: u64,
    /// The longest such wait.
    pub max_backoff_ms: u64,
}

impl Settings {
    /// The settings of a group where none are given: explicit acks within 30 s, 6 attempts, waits of 1 s
    /// doubling to 16 s.
    pub fn new(mode: Mode) -> Self {
        Self {
            mode,
            filters: Vec::new(),
            ack: AckMode::Explicit,
            ack_timeout_ms: 30_000,
            max_attempts: 6,
            backoff_ms: 1_000,
            max_backoff_ms: 16_000,
        }
    }

    /// How many comparisons an event can take to be held against the filters.
    pub(crate) fn filter_cost(&self) -> usize {
        self.filters.iter().map(Filter::cost).sum()
    }

    /// These settings with what was asked in place of its own.
    #[must_use]
    pub fn with(&self, asked: &AskedSettings) -> Self {
        let backoff_ms = asked.backoff_ms.unwrap_or(self.backoff_ms);
        Self {
            mode: self.mode,
            filters: asked.filters.clone().unwrap_or_else(|| self.filters.clone()),
            ack: asked.ack.unwrap_or(self.ack),
            ack_timeout_ms: asked.ack_timeout_ms.unwrap_or(self.ack_timeout_ms),
            max_attempts: asked.max_attempts.unwrap_or(self.max_attempts),
            backoff_ms,
            // A first wait above the group's cap raises the cap, unless one was named.
            max_backoff_ms: asked.max_backoff_ms.unwrap_or(self.max_backoff_ms.max(backoff_ms)),
        }
    }

    /// The name of the first setting in which two groups differ.
    pub fn difference(&self, other: &Self) -> Option<&'static str> {
        if self.mode != other.mode {
            Some("mode")
        } else if self.filters != other.filters {
            Some("filters")
        } else if self.ack != other.ack {
            Some("ack")
        } else if self.ack_timeout_ms != other.ack_timeout_ms {
            Some("ackTimeoutMs")
        } else if self.max_attempts != other.max_attempts {
            Some("maxAttempts")
        } else if self.backoff_ms != other.backoff_ms {
            Some("backoffMs")
        } else if self.max_backoff_ms != other.max_backoff_ms {
            Some("maxBackoffMs")
        } else {
            None
        }
    }

    /// The same as a lane obeys them.
    pub(crate) fn terms(&self, max_outstanding: usize, epoch: Epoch, chance: &Chance) -> Terms {
        Terms {
            ack: self.ack,
            ack_timeout: Duration::from_millis(self.ack_timeout_ms),
            max_attempts: self.max_attempts,
            backoff: Backoff::new(
                Duration::from_millis(self.backoff_ms),
                Duration::from_millis(self.max_backoff_ms),
                0.2,
            ),
            max_outstanding,
            epoch,
            chance: chance.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_left_out_inherit_and_a_difference_is_named() {
        let group = Settings::new(Mode::LoadBalance);
        assert_eq!(group.with(&AskedSettings::default()), group);
        let changed = group.with(&AskedSettings { backoff_ms: Some(20_000), ..AskedSettings::default() });
        assert_eq!(changed.max_backoff_ms, 20_000);
        assert_eq!(group.difference(&changed), Some("backoffMs"));
        assert_eq!(Mode::read("LOAD_BALANCE"), Some(Mode::LoadBalance));
        assert_eq!(Mode::read("load_balance"), None);
    }
}
