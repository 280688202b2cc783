//! Which events go to whom, until each is acknowledged or dead-lettered.
//!
//! [`lane`] is the heart: cursor and ledger of one group on one partition, without I/O. Around it lie the rooms that an
//! event and an operation pass through, each of which knows only those before it: `ledger`, `group`, `handout`,
//! `settle`, `dead_letters`, `operations`, then retention, views and timers. [`ReliableDispatcher`] is their face;
//! [`Groups`] makes and ends memberships and brings everything back at boot; [`DeliveryTopology`] says which partitions
//! this instance polls.

mod dead_letters;
mod dispatcher;
mod group;
mod handout;
pub mod lane;
mod ledger;
mod limits;
mod operations;
mod owned;
mod retention;
mod settle;
mod signals;
mod ticker;
mod topology;
mod views;

pub use dead_letters::{DeadLetters, Interrupted, LetterSelector, LettersError, Replayed};
pub use dispatcher::{ClientHolding, Foundations, ReliableDispatcher};
pub use group::receiver::{HandOutTerms, Receiver};
pub use group::replay_copy::{REPLAY_GROUP, REPLAY_POSITION};
pub use group::settings::{self, AskedSettings, Mode, Settings};
pub use group::start_at::StartAt;
pub use group::{Group, Membership};
pub use handout::delivery_id::{DeliveryIds, DeliveryRef};
pub use handout::hand_outs::{Delivery, PollError};
pub use handout::poll::Answer;
pub use handout::stream::{ClientStream, Waiting};
pub use lane::{AckMode, Gap, GapReason};
pub use ledger::LedgerUnavailable;
pub use limits::DeliveryLimits;
pub use mesh_state::{
    positions::EndReason,
    shared::{GroupId, GroupKind},
};
pub use mesh_storage::{Change, SettingsChange, TopicError, TopicRules, TopicSettings};
pub use operations::{
    GroupError, GroupSelector, GroupStores, Groups, MemberView, PartitionView, Recovered, RecoveryError,
    Sought, Subscribe, SubscribeError, Subscribed, TopicDeleted, TopicMade, TopicView, Topics, TopicsError,
};
pub use owned::Unable;
pub use retention::{Floor, Floors};
pub use settle::{DELAY_MS, Deliveries, EXTEND_MS, SettleOutcome};
pub use signals::DeliverySignals;
pub use topology::{DeliveryTopology, Polled};
pub use views::groups::{GroupMemberView, GroupView, LaneView};
pub use views::{ClientView, DeadLetterView, PositionView};
