//! The view, driven by hand and by a model.

use mesh_frame::{ClientId, InstanceId};
use mesh_meta::Entry;
use proptest::prelude::*;

use super::*;
use crate::shared::{AgentId, BindingRecord, Unknown, Writer, record};

fn client(name: &str) -> ClientId {
    ClientId::new(name).expect("legal")
}

fn key(name: &str) -> String {
    BindingRecord::key(&client(name))
}

fn versioned(revision: u64) -> Versioned {
    let agent_id = AgentId::new("agent").expect("legal");
    let binding = BindingRecord { agent_id, bound_at_ms: revision, unknown: Unknown::default() };
    let stamp = Writer::new(&InstanceId::new("i").expect("legal"), &mesh_base::Chance::seeded(1)).stamp();
    Versioned { value: record::encode(&binding, &stamp), revision: Revision(revision) }
}

fn stored(revision: u64) -> Arc<Stored<BindingRecord>> {
    record::decode(versioned(revision)).expect("readable")
}

fn put(name: &str, revision: u64) -> WatchEvent {
    WatchEvent::Put { key: key(name), value: versioned(revision).value, revision: Revision(revision) }
}

fn delete(name: &str, revision: u64) -> WatchEvent {
    WatchEvent::Delete { key: key(name), revision: Revision(revision) }
}

fn listing(revision: u64, entries: &[(&str, u64)]) -> Listing {
    let entries =
        entries.iter().map(|(name, at)| Entry { key: key(name), current: versioned(*at) }).collect();
    Listing { revision: Revision(revision), entries, more: false }
}

fn shown(view: &View<BindingRecord>) -> Vec<(String, u64)> {
    let read = |(key, current): (&str, Versioned)| {
        let (id, stored) = decode_or_skip::<BindingRecord>(key, current).expect("readable");
        (id.to_string(), stored.revision.0)
    };
    view.under("/em/bindings/").map(read).collect()
}

fn expect(names: &[(&str, u64)]) -> Vec<(String, u64)> {
    names.iter().map(|(name, revision)| ((*name).to_owned(), *revision)).collect()
}

#[test]
fn a_later_remote_removal_wins_over_an_older_own_write() {
    let mut view = View::default();
    let start = view.begin();
    view.watched(put("a", 5));
    view.watched(delete("a", 6));
    assert!(!view.wrote(&client("a"), &stored(5)), "the answer of the own write comes last");
    view.end(start);
    assert_eq!(shown(&view), []);
    assert!(view.removed.is_empty());
}

#[test]
fn an_older_event_does_not_undo_an_own_write_or_an_own_removal() {
    let mut view = View::default();
    let start = view.begin();
    assert!(view.wrote(&client("a"), &stored(10)));
    assert!(!view.watched(delete("a", 9)));
    assert!(!view.watched(put("a", 10)));
    assert!(view.took_away(&client("a"), Revision(12)));
    view.end(start);
    assert!(!view.watched(put("a", 11)));
    assert_eq!(shown(&view), []);
    assert!(!view.watched(delete("a", 12)));
    assert!(view.watched(put("a", 13)));
    assert_eq!(shown(&view), expect(&[("a", 13)]));
}

#[test]
fn a_late_answer_of_an_own_removal_does_not_hide_a_later_one() {
    let mut view = View::default();
    let start = view.begin();
    view.watched(put("a", 1));
    view.watched(delete("a", 2));
    view.watched(put("a", 3));
    view.watched(delete("a", 4));
    view.took_away(&client("a"), Revision(2));
    assert!(!view.wrote(&client("a"), &stored(3)));
    view.end(start);
    assert_eq!(shown(&view), []);
}

#[test]
fn a_listing_repairs_what_the_watch_never_said() {
    // proves: MB-6
    // covers: U91
    let mut view = View::default();
    view.watched(put("ghost", 1));
    view.watched(put("old", 2));
    view.watched(put("kept", 3));
    // Missed: the removal of `ghost` (4), a change of `old` (5), `missed` (6).
    view.watched(put("late", 7));
    let start = view.begin();
    view.watched(put("newer", 9));
    view.watched(delete("late", 10));
    assert!(view.listed(listing(8, &[("old", 5), ("kept", 3), ("missed", 6), ("late", 7)])));
    view.end(start);
    assert_eq!(shown(&view), expect(&[("kept", 3), ("missed", 6), ("newer", 9), ("old", 5)]));
}

#[test]
fn an_event_that_a_listing_already_covers_changes_nothing() {
    let mut view = View::default();
    view.listed(listing(8, &[("a", 3)]));
    assert!(!view.watched(put("b", 5)), "removed before the listing");
    assert!(!view.watched(delete("a", 2)), "made again before the listing");
    assert_eq!(shown(&view), expect(&[("a", 3)]));
}

#[test]
fn a_record_of_a_newer_version_takes_the_place_of_the_old_one_and_is_not_shown() {
    // covers: U83
    let mut view = View::default();
    view.watched(put("a", 1));
    let newer =
        WatchEvent::Put { key: key("a"), value: br#"{"v":2}"#.as_slice().into(), revision: Revision(2) };
    assert!(view.watched(newer));
    assert_eq!(shown(&view), []);
    assert!(view.watched(put("a", 3)));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

    /// A server with three keys; a view that gets its events late, makes own operations whose answers come
    /// late, and lists in between. Once everything has arrived, view and server are equal.
    #[test]
    fn the_view_is_equal_to_the_server_once_everything_arrived(steps in proptest::collection::vec((0..7_u8, 0..3_usize), 1..80)) {
        let names = ["a", "b", "c"];
        let mut server: BTreeMap<&str, u64> = BTreeMap::new();
        let mut revision = 0;
        let mut events = std::collections::VecDeque::new();
        let mut answers: Vec<(Revision, &str, Option<u64>, u64)> = Vec::new();
        let mut view = View::<BindingRecord>::default();
        for (step, which) in steps {
            let name = names[which];
            match step {
                // A write by somebody, 1: by us, its answer under way.
                0 | 1 => {
                    let start = view.begin();
                    revision += 1;
                    server.insert(name, revision);
                    events.push_back(put(name, revision));
                    if step == 1 { answers.push((start, name, Some(revision), revision)); } else { view.end(start); }
                }
                2 | 3 => if server.remove(name).is_some() {
                    let start = view.begin();
                    revision += 1;
                    events.push_back(delete(name, revision));
                    if step == 3 { answers.push((start, name, None, revision)); } else { view.end(start); }
                },
                4 => if let Some(event) = events.pop_front() { view.watched(event); },
                5 => if !answers.is_empty() {
                    let (start, name, written, at) = answers.remove(which % answers.len());
                    match written {
                        Some(_) => view.wrote(&client(name), &stored(at)),
                        None => view.took_away(&client(name), Revision(at)),
                    };
                    view.end(start);
                },
                _ => {
                    let start = view.begin();
                    let entries: Vec<(&str, u64)> = server.iter().map(|(name, at)| (*name, *at)).collect();
                    view.listed(listing(revision, &entries));
                    view.end(start);
                }
            }
        }
        for event in events { view.watched(event); }
        for (start, name, written, at) in answers {
            match written {
                Some(_) => view.wrote(&client(name), &stored(at)),
                None => view.took_away(&client(name), Revision(at)),
            };
            view.end(start);
        }
        let server: Vec<(String, u64)> = server.into_iter().map(|(name, at)| (name.to_owned(), at)).collect();
        prop_assert_eq!(shown(&view), server);
        prop_assert!(view.removed.is_empty() && view.under_way.is_empty());
    }
}
