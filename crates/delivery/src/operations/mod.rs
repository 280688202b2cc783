//! Changes of groups and topics: subscribe, unsubscribe, remove, seek, adopt, evict, and what boot brings back.
//!
//! Each is an operation that the process owns once it has begun: it runs to its end in a task of its own whatever
//! becomes of the request, the connection or an answer of Meta. One write of Meta decides it. What is written
//! before that is invisible without it (positions of a number or a generation that nobody knows, a membership of
//! no group); what follows it can be told from Meta alone, so that the next start finishes it too. A write of
//! which it is not certain whether it happened is settled before the operation ends: memory never serves what Meta
//! does not hold. The request is told of the first failure and does not wait for the rest.

mod adopt;
mod begun;
mod create;
mod errors;
mod groups;
mod idle;
mod locks;
mod members;
mod membership;
mod places;
mod recovery;
mod request;
mod seek;
mod subscribe;
mod topics;
mod unsubscribe;

pub use errors::{GroupError, SubscribeError};
pub use groups::{GroupSelector, GroupStores, Groups};
pub use members::MemberView;
pub use recovery::{Recovered, RecoveryError};
pub use request::{Subscribe, Subscribed};
pub use seek::Sought;

pub use topics::{PartitionView, TopicDeleted, TopicMade, TopicView, Topics, TopicsError};
