//! What the session store promises, on every backend.

use mesh_base::BackendErrorKind;
use mesh_frame::Epoch;
use mesh_state::shared::{
    AgentBeat, AgentId, AgentRecord, AgentStatus, BindingRecord, Heartbeat, Released, Removed, SessionId,
    SessionRecord, SessionRegistry, SessionStore, Unknown,
};

use super::arrange::{backends, client, faulty, instance, memory, writer};

pub(crate) fn session_id(name: &str) -> SessionId {
    SessionId::new(name).expect("legal")
}

pub(crate) fn session(of: &str, owner: &str) -> SessionRecord {
    SessionRecord {
        client_id: client(of),
        agent_id: None,
        owner: instance(owner),
        epoch: Epoch::default(),
        last_active_ms: 0,
        unknown: Unknown::default(),
    }
}

fn agent_id(name: &str) -> AgentId {
    AgentId::new(name).expect("legal")
}

fn agent(name: &str, owner: &str) -> AgentRecord {
    AgentRecord {
        agent_id: agent_id(name),
        parent: None,
        capabilities: vec!["translate".into()],
        capacity: 10,
        load: 0,
        status: AgentStatus::Pending,
        owner: instance(owner),
        epoch: Epoch::default(),
        heartbeat_ms: 0,
        unknown: Unknown::default(),
    }
}

#[tokio::test]
async fn an_epoch_is_above_every_epoch_the_name_had_before() {
    // proves: ST-3, CV-3
    let folder = tempfile::tempdir().expect("a folder");
    for (backend, meta) in backends(&folder) {
        let store = SessionRegistry::load(&meta, &writer("a")).await.expect("loads");
        let id = session_id("s/1");
        let mut last = Epoch(0);
        for round in 0..10 {
            let claimed = store.claim_session(&id, session("c", "a")).await.expect("claims");
            let epoch = claimed.record.record.epoch;
            assert!(epoch > last, "{backend}, round {round}: {epoch} after {last}");
            last = epoch;
            if round % 3 == 2 {
                let end = store.release_session(&id, epoch).await.expect("answers");
                assert!(matches!(end, Released::Released), "{backend}");
                let late = store.heartbeat_session(&id, epoch, 1).await.expect("answers");
                assert!(matches!(late, Heartbeat::Gone), "{backend}");
            }
        }
        let stale = store.release_session(&id, Epoch(last.0 - 1)).await.expect("answers");
        assert!(matches!(stale, Released::Fenced(_)), "{backend}");
        assert_eq!(store.sessions().len(), 1, "{backend}");
    }
}

#[tokio::test]
async fn agents_and_bindings_are_seen_as_they_were_written() {
    // proves: ST-3
    let folder = tempfile::tempdir().expect("a folder");
    for (backend, meta) in backends(&folder) {
        let store = SessionRegistry::load(&meta, &writer("a")).await.expect("loads");
        let epoch = store.claim_agent(agent("x y", "a")).await.expect("claims").record.record.epoch;
        let beat = AgentBeat { at_ms: 5, load: 3, status: AgentStatus::Ready };
        let outcome = store.heartbeat_agent(&agent_id("x y"), epoch, beat).await.expect("answers");
        assert!(matches!(outcome, Heartbeat::Renewed(_)), "{outcome:?}");
        let seen = store.agent(&agent_id("x y")).expect("shows").record.clone();
        assert_eq!((seen.load, seen.status, seen.heartbeat_ms), (3, AgentStatus::Ready, 5), "{backend}");

        let binding =
            BindingRecord { agent_id: agent_id("x y"), bound_at_ms: 9, unknown: Unknown::default() };
        let old = store.bind(&client("c"), binding.clone()).await.expect("binds");
        store.bind(&client("c"), binding.clone()).await.expect("binds again");
        let stale = store.unbind(&client("c"), &old).await.expect("answers");
        assert!(matches!(stale, Removed::Stale(Some(_))), "{backend}");
        assert_eq!(store.binding(&client("c")).expect("shows").record, binding, "{backend}");

        let again = SessionRegistry::load(&meta, &writer("b")).await.expect("loads");
        assert_eq!(again.agents().len(), 1);
        assert!(matches!(
            again.release_agent(&agent_id("x y"), epoch).await.expect("answers"),
            Released::Released
        ));
        store.refresh().await.expect("lists");
        assert!(store.agent(&agent_id("x y")).is_none(), "{backend}");
    }
}

#[tokio::test]
async fn of_many_claims_at_once_each_has_an_epoch_of_its_own() {
    // proves: MB-3
    let meta = memory();
    let id = session_id("s");
    let mut claims = tokio::task::JoinSet::new();
    for n in 0..10 {
        let (meta, id) = (meta.clone(), id.clone());
        claims.spawn(async move {
            let store = SessionRegistry::load(&meta, &writer(&format!("i{n}"))).await.expect("loads");
            store.claim_session(&id, session("c", "a")).await.expect("claims").record.record.epoch
        });
    }
    let mut epochs = claims.join_all().await;
    epochs.sort();
    epochs.dedup();
    assert_eq!(epochs.len(), 10);
}

#[tokio::test]
async fn heartbeats_fail_while_meta_is_partitioned_and_the_next_one_succeeds() {
    // proves: MB-2
    let (meta, driver) = faulty();
    let store = SessionRegistry::load(&meta, &writer("a")).await.expect("loads");
    let id = session_id("s");
    let epoch = store.claim_session(&id, session("c", "a")).await.expect("claims").record.record.epoch;
    driver.partition(true);
    let error = store.heartbeat_session(&id, epoch, 1).await.expect_err("partitioned");
    assert_eq!(error.kind(), BackendErrorKind::Unavailable);
    driver.partition(false);
    assert!(matches!(store.heartbeat_session(&id, epoch, 2).await.expect("healed"), Heartbeat::Renewed(_)));
    driver.lose_answers(1);
    let beat = store.heartbeat_session(&id, epoch, 3).await.expect("recognised");
    assert!(matches!(beat, Heartbeat::Renewed(_)));
}
