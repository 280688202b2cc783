//! Sessions: which instance holds which agent and which session, for which term.
//!
//! An instance claims before it acts. A claim takes the record over and gives it an epoch above every epoch
//! that name ever had, also when the record was removed in between. An instance that lost it finds out at its next
//! heartbeat: that is `Fenced` and changes nothing. No clock decides.

use std::sync::Arc;

use mesh_base::BackendError;
use mesh_frame::{ClientId, Epoch};
use mesh_meta::BoxFuture;

use super::{AgentId, AgentRecord, AgentStatus, BindingRecord, Removed, SessionId, SessionRecord, Stored};

/// A record that was taken over.
#[derive(Clone, Debug)]
pub struct Claimed<T> {
    /// The record as it is now; its epoch is what heartbeats have to give.
    pub record: Arc<Stored<T>>,
    /// Whom it was taken from.
    pub before: Option<Arc<Stored<T>>>,
}

/// How a heartbeat ended.
#[derive(Clone, Debug)]
#[must_use = "the record may be another owner's"]
pub enum Heartbeat<T> {
    /// It is written.
    Renewed(Arc<Stored<T>>),
    /// Another instance holds the record since; nothing was changed.
    Fenced(Arc<Stored<T>>),
    /// There is no such record; nothing was changed.
    Gone,
}

/// How giving a record up ended.
#[derive(Clone, Debug)]
#[must_use = "the record may be another owner's"]
pub enum Released<T> {
    /// It is removed.
    Released,
    /// Another instance holds it since; nothing was changed.
    Fenced(Arc<Stored<T>>),
    /// There is no such record.
    Gone,
}

/// What an agent's heartbeat says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgentBeat {
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// How much it has to do.
    pub load: u32,
    /// Whether it takes work.
    pub status: AgentStatus,
}

/// Agents, bindings and sessions, as all instances see them.
///
/// # Errors
/// As [`super::SubscriptionStore`].
pub trait SessionStore: Send + Sync {
    /// Takes an agent over, or makes it. The record's epoch is set by the store.
    fn claim_agent(&self, record: AgentRecord) -> BoxFuture<'_, Result<Claimed<AgentRecord>, BackendError>>;

    /// Writes an agent's heartbeat if it is still held in that term.
    fn heartbeat_agent<'a>(
        &'a self,
        agent: &'a AgentId,
        epoch: Epoch,
        beat: AgentBeat,
    ) -> BoxFuture<'a, Result<Heartbeat<AgentRecord>, BackendError>>;

    /// Removes an agent if it is still held in that term.
    fn release_agent<'a>(
        &'a self,
        agent: &'a AgentId,
        epoch: Epoch,
    ) -> BoxFuture<'a, Result<Released<AgentRecord>, BackendError>>;

    /// Takes a session over, or makes it. The record's epoch is set by the store.
    fn claim_session<'a>(
        &'a self,
        session: &'a SessionId,
        record: SessionRecord,
    ) -> BoxFuture<'a, Result<Claimed<SessionRecord>, BackendError>>;

    /// Writes a session's heartbeat if it is still held in that term.
    fn heartbeat_session<'a>(
        &'a self,
        session: &'a SessionId,
        epoch: Epoch,
        at_ms: u64,
    ) -> BoxFuture<'a, Result<Heartbeat<SessionRecord>, BackendError>>;

    /// Removes a session if it is still held in that term.
    fn release_session<'a>(
        &'a self,
        session: &'a SessionId,
        epoch: Epoch,
    ) -> BoxFuture<'a, Result<Released<SessionRecord>, BackendError>>;

    /// Binds a client to an agent; the last write wins.
    fn bind<'a>(
        &'a self,
        client: &'a ClientId,
        record: BindingRecord,
    ) -> BoxFuture<'a, Result<Arc<Stored<BindingRecord>>, BackendError>>;

    /// Ends a binding if it is still the expected one.
    fn unbind<'a>(
        &'a self,
        client: &'a ClientId,
        expected: &'a Stored<BindingRecord>,
    ) -> BoxFuture<'a, Result<Removed<BindingRecord>, BackendError>>;

    /// An agent, from the view.
    fn agent(&self, agent: &AgentId) -> Option<Arc<Stored<AgentRecord>>>;

    /// All agents, from the view.
    fn agents(&self) -> Vec<Arc<Stored<AgentRecord>>>;

    /// A binding, from the view.
    fn binding(&self, client: &ClientId) -> Option<Arc<Stored<BindingRecord>>>;

    /// A session, from the view.
    fn session(&self, session: &SessionId) -> Option<Arc<Stored<SessionRecord>>>;

    /// All sessions, from the view.
    fn sessions(&self) -> Vec<(SessionId, Arc<Stored<SessionRecord>>)>;

    /// Makes the views equal to Meta.
    fn refresh(&self) -> BoxFuture<'_, Result<(), BackendError>>;
}
