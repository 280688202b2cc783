//! `Intake`: the one way in for every protocol. What acts takes only what the gate admitted; the dialogue with the
//! gate stands here too, once, so that no protocol can leave a step of it out.
//!
//! An event is durable before a publish succeeds; a subscription and the start of every partition are durable
//! before a subscribe does; a cursor has moved before an ack is told. What stands behind (log, ledger, Meta) is
//! never waited for without a bound: the log's is the publish timeout, the others have their own.

mod access;
mod consume;
mod entry;
mod publish;
mod settle;
mod signals;
mod subscribe;
mod ticket;
mod waiting_polls;

use std::time::Duration;

use mesh_delivery::{Groups, ReliableDispatcher};
use mesh_frame::{Epoch, Limits, TenantId};
use mesh_gate::SecurityGate;
use mesh_storage::{Deduplicator, Storage};

pub use access::{Hidden, UsableClient};
pub use consume::{OpenStream, Poll, ReceiveError};
pub use entry::Incoming;
pub use publish::{PublishBatch, PublishError, PublishEvent, Stored, StoredBatch};
pub use settle::{Ack, Extend, Nack, Reject, Settled, UsableDeliveries};
pub use signals::IntakeSignals;
pub use subscribe::{MembershipError, Subscribe, Unsubscribe};
pub use ticket::AskTicket;

/// What the intake is told by the configuration.
#[derive(Clone, Debug)]
pub struct IntakeSettings {
    /// The tenant whose events carry no `emtenantid`.
    pub default_tenant: TenantId,
    /// Whether a publish makes a topic that is not there.
    pub auto_create: bool,
    /// How long the log may take to answer an append.
    pub publish_timeout: Duration,
    /// How large events may be.
    pub limits: Limits,
    /// What was stored lately, where duplicates are recognised.
    pub dedup: Option<Deduplicator>,
}

impl IntakeSettings {
    /// Topics are made on the way, the log has 10 s, and events have the mesh's limits.
    pub fn new(default_tenant: TenantId) -> Self {
        Self {
            default_tenant,
            auto_create: true,
            publish_timeout: Duration::from_secs(10),
            limits: Limits::DEFAULT,
            dedup: None,
        }
    }
}

/// The intake; clones share what they stand on.
#[derive(Clone)]
pub struct Intake {
    gate: SecurityGate,
    storage: Storage,
    dispatcher: ReliableDispatcher,
    groups: Groups,
    settings: IntakeSettings,
    signals: IntakeSignals,
    waiting_polls: waiting_polls::WaitingPolls,
}

impl Intake {
    /// The intake behind a gate, of a log and of what delivers from it.
    pub fn new(
        gate: SecurityGate,
        storage: Storage,
        dispatcher: ReliableDispatcher,
        groups: Groups,
        settings: IntakeSettings,
        signals: IntakeSignals,
    ) -> Self {
        Self { gate, storage, dispatcher, groups, settings, signals, waiting_polls: Default::default() }
    }

    /// How large events may be.
    pub fn limits(&self) -> &Limits {
        &self.settings.limits
    }

    /// The epoch that deliveries of this instance show.
    pub fn epoch(&self) -> Epoch {
        self.dispatcher.epoch()
    }
}

impl std::fmt::Debug for Intake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Intake").field("settings", &self.settings).finish_non_exhaustive()
    }
}
