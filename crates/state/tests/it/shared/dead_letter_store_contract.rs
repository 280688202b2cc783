//! What the dead-letter store promises, on every backend.

use mesh_frame::PartitionId;
use mesh_state::shared::{
    DeadLetter, DeadLetterKeys, DeadLetterScope, DeadLetterStore, MetaBackedDeadLetterStore, Recorded,
    Removed, ReplayAttempt, ReplayIntent, ReplayedGroup, ReplayedLetter,
};

use super::arrange::{backends, dead_letter, faulty, group_of, instance, tenant, topic, writer};

async fn everything(
    store: &MetaBackedDeadLetterStore,
    scope: &DeadLetterScope,
    max: usize,
) -> Vec<(String, u64)> {
    let mut rows = Vec::new();
    let mut after = None;
    loop {
        let page = store.browse(scope, after.as_deref(), max).await.expect("reads");
        assert!(page.rows.len() <= max);
        rows.extend(page.rows.iter().map(|row| (row.record.group.to_string(), row.record.offset.0)));
        after = page.next;
        if after.is_none() {
            return rows;
        }
    }
}

#[tokio::test]
async fn rows_are_browsed_in_order_by_topic_tenant_and_group() {
    // proves: ST-5
    // covers: U94
    let folder = tempfile::tempdir().expect("a folder");
    for (backend, meta) in backends(&folder) {
        let store = MetaBackedDeadLetterStore::new(&meta, &writer("a"), DeadLetterKeys::OneForAll);
        let groups = [
            group_of("t", "a", "g"),
            group_of("t", "a", "g2"),
            group_of("t", "ab", "g"),
            group_of("t-", "a", "g"),
            group_of("t0", "a", "g"),
            group_of("t/u", "a", "g"),
            group_of("ü", "b", "g"),
        ];
        for group in &groups {
            for offset in [9, 10, 100, 2] {
                store.record(dead_letter(group, offset)).await.expect("writes");
            }
        }
        let of = |names: &[&str]| -> Vec<(String, u64)> {
            let rows =
                names.iter().flat_map(|name| [2, 9, 10, 100].map(|offset| ((*name).to_owned(), offset)));
            rows.collect()
        };
        for max in [1, 3, 4, 5, 100] {
            assert_eq!(
                everything(&store, &DeadLetterScope::Topic(topic("a")), max).await,
                of(&["t/u/a/lb/g", "t-/a/lb/g", "t/a/lb/g", "t/a/lb/g2", "t0/a/lb/g"]),
                "{backend}, pages of {max}"
            );
            assert_eq!(
                everything(&store, &DeadLetterScope::TenantTopic(tenant("t"), topic("a")), max).await,
                of(&["t/a/lb/g", "t/a/lb/g2"]),
                "{backend}, pages of {max}"
            );
            assert_eq!(
                everything(&store, &DeadLetterScope::Group(groups[0].clone()), max).await,
                of(&["t/a/lb/g"]),
                "{backend}, pages of {max}"
            );
        }
        assert_eq!(store.count(&topic("a")).await.expect("counts"), 20, "{backend}");
        assert_eq!(store.count(&topic("nothing")).await.expect("counts"), 0, "{backend}");
    }
}

#[tokio::test]
async fn of_several_that_take_a_row_one_succeeds() {
    // proves: MB-3
    let folder = tempfile::tempdir().expect("a folder");
    for (backend, meta) in backends(&folder) {
        let store = MetaBackedDeadLetterStore::new(&meta, &writer("a"), DeadLetterKeys::OneForAll);
        let Recorded::Written(row) =
            store.record(dead_letter(&group_of("t", "a", "g"), 1)).await.expect("writes")
        else {
            panic!("{backend}: it is new");
        };
        let (one, other) = tokio::join!(store.remove(&row), store.remove(&row));
        let taken = [one, other].into_iter().filter(|end| matches!(end, Ok(Removed::Removed(_)))).count();
        assert_eq!(taken, 1, "{backend}");
    }
}

#[tokio::test]
async fn instances_with_positions_of_their_own_have_rows_of_their_own() {
    let (meta, driver) = faulty();
    let store = MetaBackedDeadLetterStore::new(&meta, &writer("a"), DeadLetterKeys::PerInstance);
    let group = group_of("t", "a", "g");
    let at = |name: &str| DeadLetter { instance: instance(name), ..dead_letter(&group, 1) };
    driver.lose_answers(1);
    assert!(matches!(store.record(at("a")).await.expect("recognised"), Recorded::Written(_)));
    assert!(matches!(store.record(at("b")).await.expect("writes"), Recorded::Written(_)));
    assert!(matches!(store.record(at("a")).await.expect("answers"), Recorded::AlreadyThere(_)));
    let other_partition = DeadLetter { partition: PartitionId(4), ..at("a") };
    assert!(matches!(store.record(other_partition).await.expect("writes"), Recorded::Written(_)));
    assert_eq!(store.count(&group.topic).await.expect("counts"), 3);
}

#[tokio::test]
async fn a_row_that_cannot_be_read_is_left_out() {
    // covers: U83
    let (meta, _driver) = faulty();
    let store = MetaBackedDeadLetterStore::new(&meta, &writer("a"), DeadLetterKeys::OneForAll);
    let group = group_of("t", "a", "g");
    store.record(dead_letter(&group, 1)).await.expect("writes");
    for key in ["/em/dlq/t/a/lb/g/odd", "/em/dlq/%zz/a", "/em/dlq/", "/em/dlq/ü", "/em/dlq/t0"] {
        meta.put(key, r#"{"v":9}"#).await.expect("writes");
    }
    let rows = everything(&store, &DeadLetterScope::Topic(topic("a")), 1).await;
    assert_eq!(rows, [("t/a/lb/g".to_owned(), 1)]);
}

fn intent(of: &[&DeadLetter]) -> ReplayIntent {
    let group = of[0].group.clone();
    let letters = of.iter().map(|letter| ReplayedLetter::from(*letter)).collect();
    let attempt = ReplayAttempt {
        topic: group.topic.clone(),
        incarnation: of[0].incarnation,
        ends: vec![5, 0, 9],
        groups: vec![ReplayedGroup { group, number: 7, letters }],
    };
    ReplayIntent { attempts: vec![attempt], ..ReplayIntent::default() }
}

#[tokio::test]
async fn an_instance_has_one_intent_which_stands_until_its_end_is_written_down() {
    let folder = tempfile::tempdir().expect("a folder");
    for (backend, meta) in backends(&folder) {
        let store = MetaBackedDeadLetterStore::new(&meta, &writer("a"), DeadLetterKeys::OneForAll);
        let (one, two) = (dead_letter(&group_of("t", "a", "g"), 1), dead_letter(&group_of("t", "b", "g"), 2));
        let first = store.intend(&instance("a"), intent(&[&one])).await.expect("writes");
        let second = store.intend(&instance("a"), intent(&[&one, &one])).await.expect("writes");
        let other = store.intend(&instance("b/c"), intent(&[&two])).await.expect("writes");
        // One that was made after it is not taken for it.
        let stale = store.end_intent(&instance("a"), &first).await.expect("reads");
        assert!(matches!(stale, Removed::Stale(Some(_))), "{backend}");
        let standing = store.intents().await.expect("reads");
        let names: Vec<&str> = standing.iter().map(|(instance, _)| instance.as_str()).collect();
        assert_eq!(names, ["a", "b/c"], "{backend}");
        assert_eq!(standing[0].1.record, intent(&[&one, &one]), "{backend}");
        for (name, intent) in [("a", &second), ("b/c", &other)] {
            let ended = store.end_intent(&instance(name), intent).await.expect("writes");
            assert!(matches!(ended, Removed::Removed(_)), "{backend}");
        }
        assert!(store.intents().await.expect("reads").is_empty(), "{backend}");
    }
}

#[tokio::test]
async fn a_letter_is_found_while_that_very_row_is_there() {
    let folder = tempfile::tempdir().expect("a folder");
    for keys in [DeadLetterKeys::OneForAll, DeadLetterKeys::PerInstance] {
        for (backend, meta) in backends(&folder) {
            let store = MetaBackedDeadLetterStore::new(&meta, &writer("a"), keys);
            let group = group_of("t", &format!("{keys:?}"), "g");
            let row = dead_letter(&group, 4);
            let letter = ReplayedLetter::from(&row);
            let find = async || store.find(&instance("a"), &group, letter).await.expect("reads");
            assert!(find().await.is_none(), "{backend}");
            store.record(row.clone()).await.expect("writes");
            let found = find().await.expect("it is there");
            assert_eq!(found.record, row, "{backend}");
            let elsewhere = store.find(&instance("b"), &group, letter).await.expect("reads");
            assert_eq!(elsewhere.is_some(), keys == DeadLetterKeys::OneForAll, "{backend}");
            let outcome = store.remove(&found).await.expect("removed");
            assert!(matches!(outcome, Removed::Removed(_)), "{outcome:?}");
            let mut again = row;
            again.body.offset.0 += 1;
            store.record(again).await.expect("it died once more");
            assert!(find().await.is_none(), "{backend}: that is another row");
        }
    }
}
