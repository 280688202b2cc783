//! How operations on groups can end.

use mesh_base::BackendError;
use mesh_frame::GroupName;
use mesh_storage::TopicError;

use super::begun::Undone;
use crate::{ledger::LedgerUnavailable, owned::Unable};

/// Why a subscribe or an unsubscribe did not happen.
#[derive(Debug, thiserror::Error)]
pub enum SubscribeError {
    /// The topic is not there and cannot be made.
    #[error(transparent)]
    Topic(#[from] TopicError),
    /// The client has as many subscriptions as it may.
    #[error("a client may have {0} subscriptions")]
    TooManySubscriptions(usize),
    /// The tenant has as many subscriptions as it may.
    #[error("the tenant may have {0} subscriptions")]
    TenantFull(u64),
    /// The client belongs to another principal.
    #[error("the client is another principal's")]
    NotYours,
    /// The group has another value of a setting, and other members.
    #[error("the group has another value of {setting} and other members")]
    GroupConflict {
        /// The setting.
        setting: &'static str,
    },
    /// The group has another mode.
    #[error("the group has another mode")]
    ModeConflict,
    /// `ack` cannot change while deliveries are outstanding.
    #[error("ack cannot change while deliveries are outstanding")]
    AckConflict,
    /// The start is not one of this topic.
    #[error("{0}")]
    BadStart(String),
    /// The ledger cannot write.
    #[error(transparent)]
    Ledger(#[from] LedgerUnavailable),
    /// Meta cannot write.
    #[error("{}", .0.chain())]
    Meta(BackendError),
    /// The log cannot be read.
    #[error("{}", .0.chain())]
    Storage(BackendError),
    /// Another instance or request changed the group at the same time.
    #[error("the group was changed at the same time; try again")]
    Changed,
    /// Nothing is begun now, or the process ends before it is known how it ended.
    #[error(transparent)]
    Unable(#[from] Unable),
}

impl From<Undone> for SubscribeError {
    fn from(undone: Undone) -> Self {
        match undone {
            Undone::Meta(error) => Self::Meta(error),
            Undone::Unable(unable) => Self::Unable(unable),
        }
    }
}

/// Why an operator's change of a group did not happen.
#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    /// There is no such group.
    #[error("there is no group {0}")]
    Unknown(GroupName),
    /// A shared group and a client's group have this name.
    #[error("there are two groups of this name: say which with kind=lb or kind=bc")]
    Ambiguous,
    /// Another instance or request changed it at the same time.
    #[error("the group was changed at the same time; try again")]
    Changed,
    /// Anything that stops a subscribe too.
    #[error(transparent)]
    Other(#[from] SubscribeError),
}

impl From<LedgerUnavailable> for GroupError {
    fn from(error: LedgerUnavailable) -> Self {
        Self::Other(error.into())
    }
}

impl From<Undone> for GroupError {
    fn from(undone: Undone) -> Self {
        Self::Other(undone.into())
    }
}

impl From<Unable> for GroupError {
    fn from(unable: Unable) -> Self {
        Self::Other(unable.into())
    }
}
