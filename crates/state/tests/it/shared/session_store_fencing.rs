//! Who lost a session finds out and changes nothing.

use mesh_state::shared::{Heartbeat, SessionRegistry, SessionStore};

use super::{
    arrange::{local, writer},
    session_store_contract::{session, session_id},
};

#[tokio::test]
async fn stale_heartbeat_after_takeover_is_rejected() {
    // proves: CV-3, MB-4
    let folder = tempfile::tempdir().expect("a folder");
    let meta = local(&folder);
    let a = SessionRegistry::load(&meta, &writer("a")).await.expect("loads");
    let b = SessionRegistry::load(&meta, &writer("b")).await.expect("loads");
    let id = session_id("s");
    let held = a.claim_session(&id, session("c", "a")).await.expect("claims").record;
    let beat = a.heartbeat_session(&id, held.record.epoch, 1_000).await.expect("answers");
    assert!(matches!(beat, Heartbeat::Renewed(_)));

    let taken = b.claim_session(&id, session("c", "b")).await.expect("takes over").record;
    assert!(taken.record.epoch > held.record.epoch);

    // The clock of `a` is an hour ahead; that does not help it.
    let Heartbeat::Fenced(there) =
        a.heartbeat_session(&id, held.record.epoch, 3_600_000).await.expect("answers")
    else {
        panic!("the stale heartbeat was taken");
    };
    assert_eq!(there.record, taken.record);
    let beat = b.heartbeat_session(&id, taken.record.epoch, 2_000).await.expect("answers");
    let Heartbeat::Renewed(now) = beat else { panic!("b holds it") };
    assert_eq!((now.record.owner.as_str(), now.record.last_active_ms), ("b", 2_000));
}
