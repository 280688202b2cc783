//! Dead letters: exactly one an event and group, whatever fails on the way.

use mesh_base::BackendErrorKind;
use mesh_delivery::Mode;
use mesh_storage::faulty::Fault;

use crate::rig::{Rig, event, quick, topic};

/// Lets the only event of `c` use up its attempts.
async fn exhaust(rig: &Rig) {
    rig.publish(event("1", None)).await;
    for attempt in 1..=2 {
        let taken = rig.poll("c", 1, 5_000).await;
        assert_eq!(taken[0].attempt, attempt);
    }
}

async fn letters(rig: &Rig) -> Vec<mesh_delivery::DeadLetterView> {
    rig.dispatcher.dead_letters(&topic(), 100).await.expect("browsed")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_used_up_its_attempts_becomes_one_dead_letter_with_its_story() {
    // covers: U46, U48
    let rig = Rig::new().await;
    rig.subscribe("c", Mode::LoadBalance, quick()).await;
    exhaust(&rig).await;
    rig.until("the dead letter", || rig.dispatcher.pending_count() == 0).await;
    let letters = letters(&rig).await;
    assert_eq!(letters.len(), 1);
    let letter = &letters[0].letter;
    assert_eq!(
        (letter.event_id.as_str(), letter.attempts, letter.reason.as_str()),
        ("1", 2, "attempts_exhausted")
    );
    let body = &letters[0].body.as_ref().expect("a body").record().event;
    assert_eq!(body.id(), "1");
    assert_eq!(body.attribute("emdlgroup"), Some("default"));
    assert_eq!(body.attribute("emdlreason"), Some("attempts_exhausted"));
    assert_eq!(body.attribute("emdlattempts"), Some("2"));
    assert_eq!(rig.poll("c", 1, 200).await.len(), 0, "it does not come again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_meta_is_gone_the_event_stays_pending_and_then_dies_once() {
    // covers: U45
    // proves: MB-2
    let rig = Rig::new().await;
    rig.subscribe("c", Mode::LoadBalance, quick()).await;
    rig.meta.partition(true);
    exhaust(&rig).await;
    rig.until("its lock ran out", || {
        rig.dispatcher.clients(&topic()).iter().map(|client| client.pending).sum::<usize>() == 1
    })
    .await;
    assert_eq!(rig.poll("c", 1, 600).await.len(), 0, "it is not handed out again meanwhile");
    assert_eq!(rig.dispatcher.pending_count(), 1);
    rig.meta.partition(false);
    rig.until("the dead letter", || rig.dispatcher.pending_count() == 0).await;
    assert_eq!(letters(&rig).await.len(), 1);
    assert_eq!(rig.poll("c", 1, 200).await.len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_log_refuses_the_body_the_event_stays_pending_and_then_dies_once() {
    // covers: U45
    let rig = Rig::new().await;
    rig.subscribe("c", Mode::LoadBalance, quick()).await;
    rig.publish(event("1", None)).await;
    rig.log.fail_appends([
        Fault::Fail(BackendErrorKind::Full),
        Fault::LoseAnswer,
        Fault::Fail(BackendErrorKind::Unavailable),
    ]);
    for _ in 0..2 {
        assert_eq!(rig.poll("c", 1, 5_000).await.len(), 1);
    }
    rig.until("the dead letter", || rig.dispatcher.pending_count() == 0).await;
    assert_eq!(letters(&rig).await.len(), 1, "the body whose answer was lost is an orphan");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_group_has_a_dead_letter_of_its_own() {
    let rig = Rig::new().await;
    rig.subscribe("c", Mode::LoadBalance, quick()).await;
    rig.subscribe("d", Mode::Broadcast, quick()).await;
    rig.publish(event("1", None)).await;
    for _ in 0..2 {
        assert_eq!(rig.poll("c", 1, 5_000).await.len(), 1);
        assert_eq!(rig.poll("d", 1, 5_000).await.len(), 1);
    }
    rig.until("the dead letters", || rig.dispatcher.pending_count() == 0).await;
    let mut groups: Vec<String> =
        letters(&rig).await.iter().map(|view| view.letter.group.name.to_string()).collect();
    groups.sort();
    assert_eq!(groups, ["d", "default"]);
}
