//! What the task store promises, on every backend.

use mesh_frame::Epoch;
use mesh_state::shared::{Created, MetaBackedTaskStore, StatusUpdate, TaskChange, TaskStatus, TaskStore};
use serde_json::json;

use super::arrange::{backends, faulty, task, task_id, writer};

fn to(status: TaskStatus) -> TaskChange {
    TaskChange { status, output: None, at_ms: 2 }
}

#[tokio::test]
async fn a_taken_id_is_told_and_a_stale_epoch_changes_nothing() {
    // proves: ST-6, MB-2, MB-3
    let folder = tempfile::tempdir().expect("a folder");
    for (backend, meta) in backends(&folder) {
        let store = MetaBackedTaskStore::new(&meta, &writer("a"));
        assert!(matches!(store.create_task(task("t/1")).await.expect("writes"), Created::Written(_)));
        let again = store.create_task(task("t/1")).await.expect("answers");
        assert!(matches!(again, Created::AlreadyThere(_)), "{backend}");

        let id = task_id("t/1");
        let update = store.update_status(&id, Epoch(0), to(TaskStatus::Running)).await.expect("answers");
        assert!(matches!(update, StatusUpdate::Updated(_)), "{backend}");
        let update = store.update_status(&id, Epoch(0), to(TaskStatus::Canceled)).await.expect("answers");
        let StatusUpdate::Stale(there) = update else { panic!("{backend}: the epoch is stale") };
        assert_eq!((there.record.status, there.record.epoch), (TaskStatus::Running, Epoch(1)), "{backend}");
        let done = TaskChange { output: Some(json!(["ok"])), ..to(TaskStatus::Completed) };
        let outcome = store.update_status(&id, Epoch(1), done).await.expect("answers");
        assert!(matches!(outcome, StatusUpdate::Updated(_)), "{outcome:?}");
        let there = store.get(&id).await.expect("reads").expect("is there");
        assert_eq!(there.record.output, json!(["ok"]), "{backend}");
        assert!(there.record.status.is_terminal());
        let unknown = store.update_status(&task_id("no"), Epoch(0), to(TaskStatus::Running)).await;
        assert!(matches!(unknown.expect("answers"), StatusUpdate::Unknown), "{backend}");
    }
}

#[tokio::test]
async fn of_two_changes_of_one_epoch_one_wins() {
    // proves: MB-3
    let folder = tempfile::tempdir().expect("a folder");
    for (backend, meta) in backends(&folder) {
        let store = MetaBackedTaskStore::new(&meta, &writer("a"));
        let outcome = store.create_task(task("t")).await.expect("writes");
        assert!(matches!(outcome, Created::Written(_)), "{outcome:?}");
        let id = task_id("t");
        let (one, other) = tokio::join!(
            store.update_status(&id, Epoch(0), to(TaskStatus::Completed)),
            store.update_status(&id, Epoch(0), to(TaskStatus::Canceled))
        );
        let won = [one, other].into_iter().filter(|end| matches!(end, Ok(StatusUpdate::Updated(_)))).count();
        assert_eq!(won, 1, "{backend}");
    }
}

#[tokio::test]
async fn a_lost_answer_of_a_change_is_recognised() {
    // proves: MB-2
    let (meta, driver) = faulty();
    let store = MetaBackedTaskStore::new(&meta, &writer("a"));
    driver.lose_answers(1);
    assert!(matches!(store.create_task(task("t")).await.expect("recognised"), Created::Written(_)));
    driver.lose_answers(1);
    let update = store.update_status(&task_id("t"), Epoch(0), to(TaskStatus::Running)).await;
    assert!(matches!(update.expect("recognised"), StatusUpdate::Updated(_)));
}

#[tokio::test]
async fn tasks_are_listed_in_pages() {
    // proves: ST-6
    let folder = tempfile::tempdir().expect("a folder");
    for (backend, meta) in backends(&folder) {
        let store = MetaBackedTaskStore::new(&meta, &writer("a"));
        for n in 0..7 {
            let outcome = store.create_task(task(&format!("t{n}"))).await.expect("writes");
            assert!(matches!(outcome, Created::Written(_)), "{outcome:?}");
        }
        let mut seen = Vec::new();
        let mut after = None;
        loop {
            let page = store.list(after.as_deref(), 3).await.expect("reads");
            seen.extend(page.tasks.iter().map(|task| task.record.task_id.to_string()));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(seen, ["t0", "t1", "t2", "t3", "t4", "t5", "t6"], "{backend}");
    }
}
