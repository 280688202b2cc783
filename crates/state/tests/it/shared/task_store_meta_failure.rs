//! A task is never dropped silently: while Meta is away the caller is told.

use mesh_base::BackendErrorKind;
use mesh_frame::Epoch;
use mesh_state::shared::{Created, MetaBackedTaskStore, StatusUpdate, TaskChange, TaskStatus, TaskStore};

use super::arrange::{faulty, task, task_id, writer};

#[tokio::test]
async fn create_task_fails_when_meta_is_partitioned() {
    // proves: CV-5, MB-2
    let (meta, driver) = faulty();
    let store = MetaBackedTaskStore::new(&meta, &writer("a"));
    driver.partition(true);
    let error = store.create_task(task("t")).await.expect_err("partitioned");
    assert_eq!(error.kind(), BackendErrorKind::Unavailable);
    driver.partition(false);
    assert!(store.get(&task_id("t")).await.expect("reads").is_none(), "nothing was written");
    assert!(matches!(store.create_task(task("t")).await.expect("healed"), Created::Written(_)));
}

#[tokio::test]
async fn update_status_fails_when_meta_is_partitioned() {
    // proves: CV-5, MB-2
    let (meta, driver) = faulty();
    let store = MetaBackedTaskStore::new(&meta, &writer("a"));
    let outcome = store.create_task(task("t")).await.expect("writes");
    assert!(matches!(outcome, Created::Written(_)), "{outcome:?}");
    let running = TaskChange { status: TaskStatus::Running, output: None, at_ms: 2 };
    driver.partition(true);
    let error = store.update_status(&task_id("t"), Epoch(0), running.clone()).await.expect_err("partitioned");
    assert_eq!(error.kind(), BackendErrorKind::Unavailable);
    driver.partition(false);
    let there = store.get(&task_id("t")).await.expect("reads").expect("is there");
    assert_eq!(there.record.status, TaskStatus::Pending);
    let update = store.update_status(&task_id("t"), Epoch(0), running).await.expect("healed");
    assert!(matches!(update, StatusUpdate::Updated(_)));
}
