//! The session store: agents, bindings and sessions in Meta, each with a local view.
//!
//! The epoch of a new record is above the store's revision at that time, that of a taken-over one is one
//! more than the last. By induction no epoch is above the revision of the write that set it, so a record
//! that is removed and made again starts above every epoch it had before.

use std::sync::Arc;

use mesh_base::{BackendError, BackendErrorKind, Tasks};
use mesh_frame::{ClientId, Epoch};
use mesh_meta::{BoxFuture, MetaStore, Page};

use super::{
    AgentBeat, AgentId, AgentRecord, BindingRecord, Claimed, Created, Heartbeat, Released, Removed, Replaced,
    SessionId, SessionRecord, SessionStore, Stored, Writer, keys,
    mirror::{Announcer, Mirror},
    records::Records,
    session_records::Held,
};

/// How often an operation starts again because another instance changed the record meanwhile.
const MOST_ROUNDS: usize = 100;

/// The session store; cheap to clone.
#[derive(Clone)]
pub struct SessionRegistry {
    meta: MetaStore,
    agents: Arc<Mirror<AgentRecord>>,
    bindings: Arc<Mirror<BindingRecord>>,
    sessions: Arc<Mirror<SessionRecord>>,
}

impl SessionRegistry {
    /// Reads everything there is. The views follow other instances once [`SessionRegistry::follow`] was called.
    ///
    /// # Errors
    /// `Unavailable` when Meta cannot be read.
    pub async fn load(meta: &MetaStore, writer: &Writer) -> Result<Self, BackendError> {
        let announcer = Announcer::new();
        let agents = Records::new(meta.clone(), writer.clone());
        let bindings = Records::new(meta.clone(), writer.clone());
        let sessions = Records::new(meta.clone(), writer.clone());
        Ok(Self {
            meta: meta.clone(),
            agents: Arc::new(Mirror::load(keys::AGENTS, agents, announcer.clone()).await?),
            bindings: Arc::new(Mirror::load(keys::BINDINGS, bindings, announcer.clone()).await?),
            sessions: Arc::new(Mirror::load(keys::SESSIONS, sessions, announcer).await?),
        })
    }

    /// Starts the tasks that follow the changes of other instances.
    pub fn follow(&self, tasks: &Tasks) {
        let (agents, stop) = (self.agents.clone(), tasks.stop());
        tasks.spawn("follow-agents", async move { agents.follow(stop).await });
        let (bindings, stop) = (self.bindings.clone(), tasks.stop());
        tasks.spawn("follow-bindings", async move { bindings.follow(stop).await });
        let (sessions, stop) = (self.sessions.clone(), tasks.stop());
        tasks.spawn("follow-sessions", async move { sessions.follow(stop).await });
    }

    async fn claim<T: Held>(
        &self,
        mirror: &Mirror<T>,
        id: &T::Id,
        mut record: T,
    ) -> Result<Claimed<T>, BackendError> {
        let mut before = mirror.read(id).await?;
        for _ in 0..MOST_ROUNDS {
            let Some(held) = before.take() else {
                let listing = self.meta.get_with_prefix(&T::key(id), &Page::first(1)).await?;
                record.set_epoch(Epoch(listing.revision.0 + 1));
                match mirror.create(id, record.clone()).await? {
                    Created::Written(record) => return Ok(Claimed { record, before: None }),
                    Created::AlreadyThere(there) => before = Some(there),
                }
                continue;
            };
            record.set_epoch(Epoch(held.record.epoch().0 + 1));
            match mirror.replace(id, &held, record.clone()).await? {
                Replaced::Replaced(record) => return Ok(Claimed { record, before: Some(held) }),
                Replaced::Stale(there) => before = there,
            }
        }
        Err(contended("claiming"))
    }

    async fn heartbeat<T: Held>(
        mirror: &Mirror<T>,
        id: &T::Id,
        epoch: Epoch,
        beat: impl Fn(&mut T),
    ) -> Result<Heartbeat<T>, BackendError> {
        let mut current = Self::current(mirror, id, epoch).await?;
        for _ in 0..MOST_ROUNDS {
            let Some(held) = current else { return Ok(Heartbeat::Gone) };
            if held.record.epoch() != epoch {
                return Ok(Heartbeat::Fenced(held));
            }
            let mut record = held.record.clone();
            beat(&mut record);
            match mirror.replace(id, &held, record).await? {
                Replaced::Replaced(record) => return Ok(Heartbeat::Renewed(record)),
                Replaced::Stale(there) => current = there,
            }
        }
        Err(contended("a heartbeat"))
    }

    async fn release<T: Held>(
        mirror: &Mirror<T>,
        id: &T::Id,
        epoch: Epoch,
    ) -> Result<Released<T>, BackendError> {
        let mut current = Self::current(mirror, id, epoch).await?;
        for _ in 0..MOST_ROUNDS {
            let Some(held) = current else { return Ok(Released::Gone) };
            if held.record.epoch() != epoch {
                return Ok(Released::Fenced(held));
            }
            match mirror.remove(id, &held).await? {
                Removed::Removed(_) => return Ok(Released::Released),
                Removed::Stale(there) => current = there,
            }
        }
        Err(contended("releasing"))
    }

    /// The record from the view, or from Meta when the view does not show the term.
    async fn current<T: Held>(
        mirror: &Mirror<T>,
        id: &T::Id,
        epoch: Epoch,
    ) -> Result<Option<Arc<Stored<T>>>, BackendError> {
        match mirror.get(id) {
            Some(held) if held.record.epoch() == epoch => Ok(Some(held)),
            _ => mirror.read(id).await,
        }
    }
}

fn contended(operation: &'static str) -> BackendError {
    BackendError::new(BackendErrorKind::Unavailable, "shared state", operation)
        .with_source("others kept changing the record")
}

impl SessionStore for SessionRegistry {
    fn claim_agent(&self, record: AgentRecord) -> BoxFuture<'_, Result<Claimed<AgentRecord>, BackendError>> {
        Box::pin(async move {
            let agent = record.agent_id.clone();
            self.claim(&self.agents, &agent, record).await
        })
    }

    fn heartbeat_agent<'a>(
        &'a self,
        agent: &'a AgentId,
        epoch: Epoch,
        beat: AgentBeat,
    ) -> BoxFuture<'a, Result<Heartbeat<AgentRecord>, BackendError>> {
        Box::pin(Self::heartbeat(&self.agents, agent, epoch, move |record: &mut AgentRecord| {
            record.heartbeat_ms = beat.at_ms;
            record.load = beat.load;
            record.status = beat.status;
        }))
    }

    fn release_agent<'a>(
        &'a self,
        agent: &'a AgentId,
        epoch: Epoch,
    ) -> BoxFuture<'a, Result<Released<AgentRecord>, BackendError>> {
        Box::pin(Self::release(&self.agents, agent, epoch))
    }

    fn claim_session<'a>(
        &'a self,
        session: &'a SessionId,
        record: SessionRecord,
    ) -> BoxFuture<'a, Result<Claimed<SessionRecord>, BackendError>> {
        Box::pin(self.claim(&self.sessions, session, record))
    }

    fn heartbeat_session<'a>(
        &'a self,
        session: &'a SessionId,
        epoch: Epoch,
        at_ms: u64,
    ) -> BoxFuture<'a, Result<Heartbeat<SessionRecord>, BackendError>> {
        Box::pin(Self::heartbeat(&self.sessions, session, epoch, move |record: &mut SessionRecord| {
            record.last_active_ms = at_ms;
        }))
    }

    fn release_session<'a>(
        &'a self,
        session: &'a SessionId,
        epoch: Epoch,
    ) -> BoxFuture<'a, Result<Released<SessionRecord>, BackendError>> {
        Box::pin(Self::release(&self.sessions, session, epoch))
    }

    fn bind<'a>(
        &'a self,
        client: &'a ClientId,
        record: BindingRecord,
    ) -> BoxFuture<'a, Result<Arc<Stored<BindingRecord>>, BackendError>> {
        Box::pin(self.bindings.put(client, record))
    }

    fn unbind<'a>(
        &'a self,
        client: &'a ClientId,
        expected: &'a Stored<BindingRecord>,
    ) -> BoxFuture<'a, Result<Removed<BindingRecord>, BackendError>> {
        Box::pin(self.bindings.remove(client, expected))
    }

    fn agent(&self, agent: &AgentId) -> Option<Arc<Stored<AgentRecord>>> {
        self.agents.get(agent)
    }

    fn agents(&self) -> Vec<Arc<Stored<AgentRecord>>> {
        self.agents.all().into_iter().map(|(_, agent)| agent).collect()
    }

    fn binding(&self, client: &ClientId) -> Option<Arc<Stored<BindingRecord>>> {
        self.bindings.get(client)
    }

    fn session(&self, session: &SessionId) -> Option<Arc<Stored<SessionRecord>>> {
        self.sessions.get(session)
    }

    fn sessions(&self) -> Vec<(SessionId, Arc<Stored<SessionRecord>>)> {
        self.sessions.all()
    }

    fn refresh(&self) -> BoxFuture<'_, Result<(), BackendError>> {
        Box::pin(async move {
            self.agents.refresh().await?;
            self.bindings.refresh().await?;
            self.sessions.refresh().await
        })
    }
}
