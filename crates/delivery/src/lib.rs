//! Which events go to whom, until each is acknowledged or dead-lettered.
//!
//! [`lane`] is the heart: cursor and ledger of one group on one partition, without I/O. Around it
//! [`ReliableDispatcher`] takes, commits and settles for every group; [`Groups`] makes and ends memberships
//! and brings everything back at boot; [`DeliveryTopology`] says which partitions this instance polls.

mod dead_letters;
mod dispatcher;
mod group;
mod handout;
pub mod lane;
mod operations;
mod schedule;
mod settle;
mod signals;
mod ticker;
mod topology;
mod views;

pub use dead_letters::{
    DeadLetters, Interrupted, LetterSelector, LettersError, REPLAY_GROUP, REPLAY_POSITION, Replayed,
};
pub use dispatcher::{ClientHolding, DeliveryLimits, Foundations, LedgerUnavailable, ReliableDispatcher};
pub use group::receiver::{HandOutTerms, Receiver};
pub use group::settings::{self, AskedSettings, Mode, Settings};
pub use group::{Group, Membership};
pub use handout::poll::{Answer, Delivery, PollError};
pub use handout::stream::{ClientStream, Waiting};
pub use lane::AckMode;
pub use mesh_state::{
    positions::EndReason,
    shared::{GroupId, GroupKind},
};
pub use mesh_storage::{Change, SettingsChange, TopicError, TopicRules, TopicSettings};
pub use operations::{
    GroupError, GroupSelector, Groups, MemberView, PartitionView, Recovered, RecoveryError, Sought, StartAt,
    Subscribe, SubscribeError, Subscribed, TopicDeleted, TopicMade, TopicView, Topics, TopicsError, Unable,
};
pub use settle::delivery_id::{DeliveryIds, DeliveryRef};
pub use settle::{DELAY_MS, Deliveries, EXTEND_MS, SettleOutcome};
pub use signals::DeliverySignals;
pub use topology::DeliveryTopology;
pub use views::groups::{GroupMemberView, GroupView, LaneView};
pub use views::{ClientView, DeadLetterView, PositionView};
