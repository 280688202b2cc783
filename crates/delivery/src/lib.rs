//! Which events go to whom, until each is acknowledged or dead-lettered.
//!
//! [`lane`] is the heart: cursor and ledger of one group on one partition, without I/O. Around it
//! [`ReliableDispatcher`] takes, commits and settles for every group; [`Groups`] makes and ends memberships
//! and brings everything back at boot; [`DeliveryTopology`] says which partitions this instance polls.

mod backlog;
mod burials;
mod client;
mod delivery_id;
mod dispatcher;
mod group;
mod group_admin;
mod lag;
pub mod lane;
mod letters;
mod marked;
mod operations;
mod poll;
mod receiver;
mod schedule;
pub mod settings;
mod settle;
mod signals;
mod start_at;
mod stream;
mod take;
mod ticker;
mod topic_groups;
mod topology;
mod undertaker;
mod view;

pub use delivery_id::{DeliveryIds, DeliveryRef};
pub use dispatcher::{ClientHolding, DeliveryLimits, Foundations, LedgerUnavailable, ReliableDispatcher};
pub use group::{Group, Membership};
pub use group_admin::{GroupMemberView, GroupView, LaneView};
pub use lane::AckMode;
pub use letters::{
    DeadLetters, Interrupted, LetterSelector, LettersError, REPLAY_GROUP, REPLAY_POSITION, Replayed,
};
pub use mesh_state::{
    positions::EndReason,
    shared::{GroupId, GroupKind},
};
pub use mesh_storage::{Change, SettingsChange, TopicError, TopicRules, TopicSettings};
pub use operations::{
    GroupError, GroupSelector, Groups, MemberView, PartitionView, Recovered, RecoveryError, Sought, StartAt,
    Subscribe, SubscribeError, Subscribed, TopicDeleted, TopicMade, TopicView, Topics, TopicsError, Unable,
};
pub use poll::{Answer, Delivery, PollError};
pub use receiver::{HandOutTerms, Receiver};
pub use settings::{AskedSettings, Mode, Settings};
pub use settle::{DELAY_MS, Deliveries, EXTEND_MS, SettleOutcome};
pub use signals::DeliverySignals;
pub use stream::{ClientStream, Waiting};
pub use topology::DeliveryTopology;
pub use view::{ClientView, DeadLetterView, PositionView};
