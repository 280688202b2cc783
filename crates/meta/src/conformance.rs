//! The contract of a Meta driver, one function a rule.
//!
//! Each rule works under keys of its own, so that all of them can run at once against one server. A rule
//! that does not hold panics and says what it saw. [`conformance_tests!`](crate::conformance_tests) makes a
//! test of every rule.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use mesh_base::BackendError;
use tokio::task::JoinSet;

use crate::{Delete, MetaDriver, Page, PutIfAbsent, Remove, Revision, Swap, Versioned, Watch, WatchEvent};

/// How long a rule waits for an event.
const PATIENCE: Duration = Duration::from_secs(10);

/// Makes a test of every rule for one driver. `$open` is an expression that gives
/// `(Arc<dyn MetaDriver>, guard)`; the guard lives as long as the test.
#[macro_export]
macro_rules! conformance_tests {
    ($open:expr) => {
        $crate::conformance_tests!(@each $open;
            a_value_reads_back_byte_for_byte_under_any_key
            the_first_write_wins_and_the_second_sees_it
            of_twenty_parallel_creators_exactly_one_wins
            a_compare_and_set_with_the_current_value_swaps
            a_stale_compare_and_set_changes_nothing
            of_parallel_compare_and_sets_exactly_one_swaps
            a_successors_record_is_not_removed
            an_unconditional_write_wins_and_an_unconditional_removal_says_what_it_found
            a_prefix_with_its_separator_never_finds_a_longer_name
            pages_cover_every_entry_once_in_order
            revisions_rise_with_every_change
            a_watch_sees_changes_of_its_prefix_in_order
            a_watch_does_not_see_what_did_not_happen
            what_a_watch_announces_can_be_read
        );
    };
    (@each $open:expr; $($rule:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $rule() {
                let (driver, _guard) = $open;
                $crate::conformance::$rule(driver).await;
            }
        )*
    };
}

fn ok<T>(answer: Result<T, BackendError>) -> T {
    answer.unwrap_or_else(|error| panic!("the backend failed: {}", error.chain()))
}

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

async fn value(driver: &Arc<dyn MetaDriver>, key: &str) -> Option<Bytes> {
    ok(driver.get(key).await).map(|current| current.value)
}

async fn next(watch: &mut Watch) -> WatchEvent {
    tokio::time::timeout(PATIENCE, watch.next())
        .await
        .expect("an event within ten seconds")
        .expect("the watch is open")
}

/// Keys are any UTF-8 text and values any bytes, the empty ones included.
pub async fn a_value_reads_back_byte_for_byte_under_any_key(driver: Arc<dyn MetaDriver>) {
    // proves: MB-1
    let every_byte: Vec<u8> = (0..=255).collect();
    let values: [&[u8]; 4] = [b"", b"\0", &every_byte, "ü\u{10ffff}".as_bytes()];
    for key in ["a b", "a#b", "a%2Fb", "ü", "\u{10ffff}", "\u{1}", "a|b?c=d&e", &"k".repeat(1_000)] {
        let key = format!("/conformance/bytes/{key}");
        assert_eq!(value(&driver, &key).await, None, "{key}");
        for expected in values {
            ok(driver.put(&key, Bytes::copy_from_slice(expected)).await);
            assert_eq!(value(&driver, &key).await.as_deref(), Some(expected), "{key}");
        }
        let listing = ok(driver.get_with_prefix(&key, &Page::first(10)).await);
        assert_eq!(listing.entries.first().map(|entry| entry.key.as_str()), Some(key.as_str()));
    }
    let largest = Bytes::from(vec![7; driver.value_limit().min(1 << 20)]);
    ok(driver.put("/conformance/bytes/large", largest.clone()).await);
    assert_eq!(value(&driver, "/conformance/bytes/large").await, Some(largest));
}

/// `put_if_absent` writes once; who comes later is given what is there.
pub async fn the_first_write_wins_and_the_second_sees_it(driver: Arc<dyn MetaDriver>) {
    // proves: MB-1, MB-3
    let key = "/conformance/first/k";
    let PutIfAbsent::Written(revision) = ok(driver.put_if_absent(key, bytes("one")).await) else {
        panic!("the key was free");
    };
    let there = Versioned { value: bytes("one"), revision };
    assert_eq!(ok(driver.put_if_absent(key, bytes("two")).await), PutIfAbsent::AlreadyThere(there.clone()));
    assert_eq!(ok(driver.get(key).await), Some(there));
    ok(driver.delete(key).await);
    assert!(matches!(ok(driver.put_if_absent(key, bytes("two")).await), PutIfAbsent::Written(_)));
}

/// Twenty writers at once: one `Written`, and everyone else is shown the winner's value.
pub async fn of_twenty_parallel_creators_exactly_one_wins(driver: Arc<dyn MetaDriver>) {
    // proves: MB-3
    // covers: U84
    let mut writers = JoinSet::new();
    for writer in 0..20 {
        let driver = driver.clone();
        writers.spawn(async move {
            (writer, ok(driver.put_if_absent("/conformance/race/k", bytes(&writer.to_string())).await))
        });
    }
    let outcomes = writers.join_all().await;
    let winners: Vec<i32> =
        outcomes.iter().filter(|(_, end)| matches!(end, PutIfAbsent::Written(_))).map(|(n, _)| *n).collect();
    assert_eq!(winners.len(), 1, "winners: {winners:?}");
    for (_, outcome) in outcomes {
        if let PutIfAbsent::AlreadyThere(current) = outcome {
            assert_eq!(current.value, bytes(&winners[0].to_string()));
        }
    }
}

/// `try_acquire` with what the key holds writes the new value, also when it is the same.
pub async fn a_compare_and_set_with_the_current_value_swaps(driver: Arc<dyn MetaDriver>) {
    // proves: MB-1
    let key = "/conformance/swap/k";
    ok(driver.put(key, bytes("one")).await);
    assert!(matches!(ok(driver.try_acquire(key, b"one", bytes("two")).await), Swap::Swapped(_)));
    assert_eq!(value(&driver, key).await, Some(bytes("two")));
    assert!(matches!(ok(driver.try_acquire(key, b"two", bytes("two")).await), Swap::Swapped(_)));
    assert!(matches!(ok(driver.try_acquire(key, b"two", bytes("")).await), Swap::Swapped(_)));
    assert!(matches!(ok(driver.try_acquire(key, b"", bytes("three")).await), Swap::Swapped(_)));
}

/// A wrong expectation is told what is there and changes nothing; nothing is created by it either.
pub async fn a_stale_compare_and_set_changes_nothing(driver: Arc<dyn MetaDriver>) {
    // proves: MB-3, MB-4
    // covers: U84
    let key = "/conformance/stale/k";
    let revision = ok(driver.put(key, bytes("new")).await);
    let there = Versioned { value: bytes("new"), revision };
    for expected in ["old", "", "ne", "new ", "NEW"] {
        let outcome = ok(driver.try_acquire(key, expected.as_bytes(), bytes("mine")).await);
        assert_eq!(outcome, Swap::Stale(Some(there.clone())), "expected {expected:?}");
    }
    assert_eq!(ok(driver.get(key).await), Some(there));
    let absent = "/conformance/stale/absent";
    for expected in ["old", ""] {
        assert_eq!(
            ok(driver.try_acquire(absent, expected.as_bytes(), bytes("mine")).await),
            Swap::Stale(None)
        );
    }
    assert_eq!(ok(driver.get(absent).await), None);
}

/// Eight writers count to 10 each by compare-and-set: none of their steps is lost.
pub async fn of_parallel_compare_and_sets_exactly_one_swaps(driver: Arc<dyn MetaDriver>) {
    // proves: MB-3
    let key = "/conformance/count/k";
    ok(driver.put(key, bytes("0")).await);
    let mut writers = JoinSet::new();
    for _ in 0..8 {
        let driver = driver.clone();
        writers.spawn(async move {
            let mut done = 0;
            while done < 10 {
                let current = value(&driver, key).await.expect("the counter exists");
                let count: u32 = std::str::from_utf8(&current).expect("text").parse().expect("a number");
                let swap = ok(driver.try_acquire(key, &current, bytes(&(count + 1).to_string())).await);
                done += u32::from(matches!(swap, Swap::Swapped(_)));
            }
        });
    }
    writers.join_all().await;
    assert_eq!(value(&driver, key).await, Some(bytes("80")));
}

/// `try_remove` removes what it expects and nothing else.
pub async fn a_successors_record_is_not_removed(driver: Arc<dyn MetaDriver>) {
    // proves: MB-1
    let key = "/conformance/remove/k";
    ok(driver.put(key, bytes("old owner")).await);
    let revision = ok(driver.put(key, bytes("successor")).await);
    let there = Versioned { value: bytes("successor"), revision };
    assert_eq!(ok(driver.try_remove(key, b"old owner").await), Remove::Stale(Some(there.clone())));
    assert_eq!(ok(driver.get(key).await), Some(there));
    assert!(matches!(ok(driver.try_remove(key, b"successor").await), Remove::Removed(_)));
    assert_eq!(ok(driver.get(key).await), None);
    assert_eq!(ok(driver.try_remove(key, b"successor").await), Remove::Stale(None));
}

/// `put` and `delete` do not ask.
pub async fn an_unconditional_write_wins_and_an_unconditional_removal_says_what_it_found(
    driver: Arc<dyn MetaDriver>,
) {
    // proves: MB-1
    let key = "/conformance/put/k";
    assert_eq!(ok(driver.delete(key).await), Delete::Absent);
    ok(driver.put(key, bytes("one")).await);
    ok(driver.put(key, bytes("two")).await);
    assert_eq!(value(&driver, key).await, Some(bytes("two")));
    assert!(matches!(ok(driver.delete(key).await), Delete::Deleted(_)));
    assert_eq!(ok(driver.delete(key).await), Delete::Absent);
    assert_eq!(value(&driver, key).await, None);
}

/// Reading `…/a/` shows neither `…/ab` nor `…/a` nor `…/a0`.
pub async fn a_prefix_with_its_separator_never_finds_a_longer_name(driver: Arc<dyn MetaDriver>) {
    // proves: MB-1
    // covers: U94
    let root = "/conformance/prefix";
    for key in ["a", "a/", "a/1", "a/2/3", "a-1", "a0", "ab", "ab/1", "A/1", "b/1"] {
        ok(driver.put(&format!("{root}/{key}"), bytes(key)).await);
    }
    let listing = ok(driver.get_with_prefix(&format!("{root}/a/"), &Page::first(100)).await);
    let keys: Vec<&str> = listing.entries.iter().map(|entry| &entry.key[root.len() + 1..]).collect();
    assert_eq!(keys, ["a/", "a/1", "a/2/3"]);
    assert!(!listing.more);
    let after = Page::after(format!("{root}/b/0"), 100);
    assert_eq!(ok(driver.get_with_prefix(&format!("{root}/a/"), &after).await).entries, []);
    let before = Page::after("/", 100);
    assert_eq!(ok(driver.get_with_prefix(&format!("{root}/a/"), &before).await).entries.len(), 3);
}

/// Pages of any size together are the whole listing.
pub async fn pages_cover_every_entry_once_in_order(driver: Arc<dyn MetaDriver>) {
    // proves: MB-1
    let root = "/conformance/pages/";
    let mut expected: Vec<String> = (0..25).map(|n| format!("{root}{n}")).collect();
    for key in &expected {
        ok(driver.put(key, bytes("v")).await);
    }
    expected.sort();
    for max in [1, 2, 5, 24, 25, 26] {
        let mut keys = Vec::new();
        let mut page = Page::first(max);
        loop {
            let listing = ok(driver.get_with_prefix(root, &page).await);
            assert!(listing.entries.len() <= max);
            keys.extend(listing.entries.into_iter().map(|entry| entry.key));
            if !listing.more {
                break;
            }
            page.after = keys.last().cloned();
        }
        assert_eq!(keys, expected, "pages of {max}");
    }
}

/// A later change has a higher revision, on whatever key; a listing is at least as new as what was
/// answered before it.
pub async fn revisions_rise_with_every_change(driver: Arc<dyn MetaDriver>) {
    let mut last = Revision(0);
    for round in 0..5 {
        for key in ["/conformance/revision/a", "/conformance/revision/b"] {
            let revision = ok(driver.put(key, bytes(&round.to_string())).await);
            assert!(revision > last, "{revision} after {last}");
            assert_eq!(ok(driver.get(key).await).map(|current| current.revision), Some(revision));
            last = revision;
        }
    }
    let Delete::Deleted(deleted) = ok(driver.delete("/conformance/revision/a").await) else {
        panic!("the key was there");
    };
    assert!(deleted > last, "{deleted} after {last}");
    let listing = ok(driver.get_with_prefix("/conformance/revision/", &Page::first(10)).await);
    assert!(listing.revision >= deleted, "{} is before {deleted}", listing.revision);
    assert_eq!(listing.entries.len(), 1);
}

/// Puts and removals arrive as they happened, and only those of the prefix.
pub async fn a_watch_sees_changes_of_its_prefix_in_order(driver: Arc<dyn MetaDriver>) {
    // proves: MB-1
    let mut watch = ok(driver.watch("/conformance/watch/").await);
    let key = "/conformance/watch/k".to_owned();
    let mut expected = Vec::new();
    for round in 0..20 {
        let value = bytes(&round.to_string());
        ok(driver.put("/conformance/watched-not", value.clone()).await);
        let revision = ok(driver.put(&key, value.clone()).await);
        expected.push(WatchEvent::Put { key: key.clone(), value, revision });
        if let Delete::Deleted(revision) = ok(driver.delete(&key).await) {
            expected.push(WatchEvent::Delete { key: key.clone(), revision });
        }
    }
    for event in expected {
        assert_eq!(next(&mut watch).await, event);
    }
}

/// Conditional changes that were refused are not announced.
pub async fn a_watch_does_not_see_what_did_not_happen(driver: Arc<dyn MetaDriver>) {
    // proves: MB-1
    let mut watch = ok(driver.watch("/conformance/quiet/").await);
    let key = "/conformance/quiet/k";
    assert_eq!(ok(driver.try_acquire(key, b"x", bytes("y")).await), Swap::Stale(None));
    assert_eq!(ok(driver.try_remove(key, b"x").await), Remove::Stale(None));
    ok(driver.delete(key).await);
    let revision = ok(driver.put(key, bytes("one")).await);
    let refused = ok(driver.put_if_absent(key, bytes("two")).await);
    assert!(matches!(refused, PutIfAbsent::AlreadyThere(_)), "{refused:?}");
    let refused = ok(driver.try_acquire(key, b"x", bytes("y")).await);
    assert!(matches!(refused, Swap::Stale(Some(_))), "{refused:?}");
    let refused = ok(driver.try_remove(key, b"x").await);
    assert!(matches!(refused, Remove::Stale(Some(_))), "{refused:?}");
    let Remove::Removed(removed) = ok(driver.try_remove(key, b"one").await) else { panic!("it held that") };
    let key = key.to_owned();
    let put = WatchEvent::Put { key: key.clone(), value: bytes("one"), revision };
    assert_eq!(next(&mut watch).await, put);
    assert_eq!(next(&mut watch).await, WatchEvent::Delete { key, revision: removed });
}

/// When an event arrives, a read shows that change or a later one.
pub async fn what_a_watch_announces_can_be_read(driver: Arc<dyn MetaDriver>) {
    // proves: MB-1
    let mut watch = ok(driver.watch("/conformance/visible/").await);
    let writer = driver.clone();
    let mut writers = JoinSet::new();
    writers.spawn(async move {
        for round in 0..50 {
            ok(writer.put("/conformance/visible/k", bytes(&round.to_string())).await);
        }
    });
    for _ in 0..50 {
        let WatchEvent::Put { revision: announced, .. } = next(&mut watch).await else {
            panic!("only puts were made");
        };
        let read = ok(driver.get("/conformance/visible/k").await).expect("it was put");
        assert!(read.revision >= announced, "announced {announced}, read {}", read.revision);
        let listing = ok(driver.get_with_prefix("/conformance/visible/", &Page::first(1)).await);
        assert!(listing.revision >= announced, "announced {announced}, listed {}", listing.revision);
    }
    writers.join_all().await;
}

/// Writes to `driver`; [`a_restart_keeps_everything`] checks it on the store opened again.
pub async fn before_a_restart(driver: Arc<dyn MetaDriver>) -> Revision {
    for n in 0..50 {
        ok(driver.put(&format!("/conformance/restart/{n}"), bytes(&n.to_string())).await);
    }
    ok(driver.delete("/conformance/restart/7").await);
    ok(driver.put("/conformance/restart/8", bytes("changed")).await)
}

/// What was answered before a restart is there after it, and revisions go on from there.
pub async fn a_restart_keeps_everything(driver: Arc<dyn MetaDriver>, last: Revision) {
    // proves: MB-5
    let listing = ok(driver.get_with_prefix("/conformance/restart/", &Page::first(100)).await);
    assert_eq!(listing.entries.len(), 49);
    assert!(listing.revision >= last);
    let changed = Versioned { value: bytes("changed"), revision: last };
    assert_eq!(ok(driver.get("/conformance/restart/8").await), Some(changed));
    assert_eq!(ok(driver.get("/conformance/restart/7").await), None);
    assert!(ok(driver.put("/conformance/restart/8", bytes("again")).await) > last);
}

#[cfg(test)]
mod memory {
    use super::*;
    use crate::memory::MemoryMeta;

    crate::conformance_tests!({
        let driver: Arc<dyn MetaDriver> = Arc::new(MemoryMeta::new());
        (driver, ())
    });
}

#[cfg(test)]
mod faulty_without_faults {
    use super::*;
    use crate::{faulty::FaultyMeta, memory::MemoryMeta};

    crate::conformance_tests!({
        let driver: Arc<dyn MetaDriver> = FaultyMeta::new(Arc::new(MemoryMeta::new()));
        (driver, ())
    });
}
