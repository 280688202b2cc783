//! Shared state: what every instance has to agree on, as records in Meta.
//!
//! Four stores, a trait and one implementation each: [`SubscriptionStore`] and [`SessionStore`] with a local
//! view fed by watches, [`DeadLetterStore`] and [`TaskStore`] without one; and beside them the rates of topics
//! ([`RateLimitStore`]) and what must be unique for ever ([`IdentityStore`]). A write that was answered is durable in Meta. A lost race is an outcome ([`Created`],
//! [`Replaced`], [`Removed`]); while Meta is unreachable every write is an error, the views stay as they were, and
//! the next write after it healed succeeds. Nothing is
//! judged by comparing the clocks of two machines.

mod cluster_subscriptions;
mod dead_letter;
mod dead_letter_id;
mod dead_letters;
mod group_id;
mod identity;
mod keys;
mod meta_dead_letters;
mod meta_tasks;
mod mirror;
mod rate_limits;
mod record;
mod records;
mod replay_intents;
mod session_records;
mod session_registry;
mod sessions;
mod subscriptions;
mod tasks;
mod view;

pub use cluster_subscriptions::ClusterSubscriptionStore;
pub use dead_letter::{DeadLetter, DeadLetterBody};
pub use dead_letter_id::DeadLetterId;
pub use dead_letters::{DeadLetterPage, DeadLetterScope, DeadLetterStore, Recorded, StoredIntent};
pub use group_id::{GroupId, GroupKind};
pub use identity::{DeliveryIdKey, Identity, IdentityStore, NumbersAligned};
pub use meta_dead_letters::{DeadLetterKeys, MetaBackedDeadLetterStore};
pub use meta_tasks::MetaBackedTaskStore;
pub use mirror::Changes;
pub use rate_limits::{RateLimit, RateLimitRules, RateLimitStore};
pub use record::{SharedRecord, Stamp, Stored, Unknown, Writer};
pub use records::{Created, Removed, Replaced};
pub use replay_intents::{ReplayAttempt, ReplayIntent, ReplayedGroup, ReplayedLetter};
pub use session_records::{AgentId, AgentRecord, AgentStatus, BindingRecord, SessionId, SessionRecord};
pub use session_registry::SessionRegistry;
pub use sessions::{AgentBeat, Claimed, Heartbeat, Released, SessionStore};
pub use subscriptions::{
    AckMode, GroupRecord, GroupSettings, StoredGroup, StoredMember, SubscriptionRecord, SubscriptionStore,
};
pub use tasks::{StatusUpdate, TaskChange, TaskPage, TaskRecord, TaskStatus, TaskStore};
