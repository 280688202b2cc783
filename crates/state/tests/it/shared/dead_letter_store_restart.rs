//! The ledger of dead letters outlives whoever wrote it and a Meta that was away.

use mesh_base::BackendErrorKind;
use mesh_state::shared::{
    DeadLetterKeys, DeadLetterScope, DeadLetterStore, MetaBackedDeadLetterStore, Recorded,
};

use super::arrange::{dead_letter, faulty, group, local, writer};

#[tokio::test]
async fn ledger_survives_store_wrapper_restart() {
    // proves: CV-4, MB-5
    let folder = tempfile::tempdir().expect("a folder");
    let id = group("g");
    let letter = dead_letter(&id, 12);
    {
        let store = MetaBackedDeadLetterStore::new(&local(&folder), &writer("a"), DeadLetterKeys::OneForAll);
        assert!(matches!(store.record(letter.clone()).await.expect("writes"), Recorded::Written(_)));
    }
    let store = MetaBackedDeadLetterStore::new(&local(&folder), &writer("a"), DeadLetterKeys::OneForAll);
    let page = store.browse(&DeadLetterScope::Group(id), None, 10).await.expect("reads");
    let rows: Vec<_> = page.rows.iter().map(|row| &row.record).collect();
    assert_eq!(rows, [&letter]);
    assert!(matches!(store.record(letter).await.expect("answers"), Recorded::AlreadyThere(_)));
}

#[tokio::test]
async fn write_succeeds_after_meta_heals() {
    // proves: CV-4, MB-2
    let (meta, driver) = faulty();
    let store = MetaBackedDeadLetterStore::new(&meta, &writer("a"), DeadLetterKeys::OneForAll);
    let letter = dead_letter(&group("g"), 12);
    driver.partition(true);
    for _ in 0..3 {
        let error = store.record(letter.clone()).await.expect_err("partitioned");
        assert_eq!(error.kind(), BackendErrorKind::Unavailable);
    }
    driver.partition(false);
    assert!(matches!(store.record(letter.clone()).await.expect("healed"), Recorded::Written(_)));
    assert!(matches!(store.record(letter.clone()).await.expect("repeated"), Recorded::AlreadyThere(_)));
    assert_eq!(store.count(&letter.group.topic).await.expect("counts"), 1);
}
