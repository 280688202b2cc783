use mesh_base::UnixMillis;
use mesh_frame::TopicName;
use proptest::prelude::*;
use tokio::time::advance;

use super::*;
use crate::{TakenOfRate, TopicRate, TopicRates};

fn tenant(name: &str) -> TenantId {
    TenantId::new(name).expect("legal")
}

fn limits(events: u64, bytes: u64, connections: u64) -> TenantLimits {
    TenantLimits {
        connections: Some(connections),
        events_per_second: Some(events),
        bytes_per_second: Some(bytes),
        ..TenantLimits::default()
    }
}

fn cost(events: u64, bytes: u64) -> Cost {
    Cost { events, bytes }
}

fn clock() -> Clock {
    Clock::starting_at(UnixMillis(0))
}

#[tokio::test(start_paused = true)]
async fn what_is_over_one_rate_takes_of_neither() {
    // proves: SG-6
    let quota = TenantQuotaManager::new(limits(10, 100, 1), None, clock());
    let a = tenant("a");
    assert_eq!(quota.publish(&a, cost(1, 90)), Ok(()));
    let bytes = Exceeded { what: "bytesPerSecond", retry_after: Duration::from_millis(100) };
    for _ in 0..50 {
        assert_eq!(quota.publish(&a, cost(1, 20)), Err(bytes));
    }
    // Nine events are left: the refused ones took none.
    assert_eq!(quota.publish(&a, cost(9, 1)), Ok(()));
    let events = Exceeded { what: "eventsPerSecond", retry_after: Duration::from_millis(200) };
    assert_eq!(quota.publish(&a, cost(2, 1)), Err(events));
    advance(events.retry_after).await;
    assert_eq!(quota.publish(&a, cost(2, 1)), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_flooding_tenant_takes_nothing_from_a_quiet_one() {
    let quota = TenantQuotaManager::new(limits(100, 10_000, 5), None, clock());
    let (flood, quiet) = (tenant("flood"), tenant("quiet"));
    let mut admitted = (0u32, 0u32);
    let mut held = Vec::new();
    for _ in 0..1_000 {
        for _ in 0..20 {
            admitted.0 += u32::from(quota.publish(&flood, cost(1, 100)).is_ok());
            held.extend(quota.connection(&flood).ok().flatten());
        }
        // A tenth of what it may: it gets all of it.
        admitted.1 += u32::from(quota.publish(&quiet, cost(1, 100)).is_ok());
        advance(Duration::from_millis(100)).await;
    }
    // The bucket, and what came back in the 99.9 seconds until the last turn.
    assert_eq!(admitted, (100 + 9_990, 1_000));
    assert_eq!(held.len(), 5);
    assert!(quota.connection(&quiet).expect("its own").is_some());
}

#[tokio::test(start_paused = true)]
async fn unlimited_tenants_have_no_entry_and_idle_ones_lose_theirs() {
    // covers: U107
    let unlimited = TenantQuotaManager::new(TenantLimits::default(), None, clock());
    let quota = TenantQuotaManager::with_entries(limits(1, 1_000, 1), None, clock(), 1_600);
    let mut admitted = 0;
    for number in 0..20_000 {
        let made_up = tenant(&format!("t{number}"));
        assert_eq!(unlimited.publish(&made_up, cost(1, 1)), Ok(()));
        assert!(unlimited.connection(&made_up).expect("no limit").is_none());
        admitted += usize::from(quota.publish(&made_up, cost(1, 1)).is_ok());
        assert!(quota.entries() <= 1_600);
    }
    assert_eq!((unlimited.entries(), quota.entries()), (0, 1_600));
    // Who finds no place shares one bucket with the others of its shard.
    assert_eq!(admitted, 1_600 + SHARDS);
    // All of them are idle now; those who come take their places.
    advance(Duration::from_secs(70_000)).await;
    for number in 0..3_200 {
        assert_eq!(quota.publish(&tenant(&format!("n{number}")), cost(1, 1)), Ok(()), "{number}");
        advance(Duration::from_secs(2)).await;
    }
    assert!(quota.entries() <= SMALL * SHARDS * 2, "{}", quota.entries());
}

#[tokio::test(start_paused = true)]
async fn made_up_tenants_never_give_a_drained_one_a_new_bucket() {
    // covers: U107
    let quota = TenantQuotaManager::with_entries(limits(1, 1_000_000, 2), None, clock(), 160);
    let drained = tenant("drained");
    assert_eq!(quota.publish(&drained, cost(100, 1)), Ok(()));
    let holder = tenant("holder");
    let held = [quota.connection(&holder), quota.connection(&holder)];
    let mut admitted = 0;
    for number in 0..5_000 {
        admitted += u32::from(quota.publish(&tenant(&format!("made-up-{number}")), cost(50, 1)).is_ok());
        assert!(quota.entries() <= 160);
        assert!(quota.publish(&drained, cost(1, 1)).is_err(), "after {number}");
        assert!(quota.connection(&holder).is_err(), "after {number}");
    }
    // Those with a place once each; all the others together once a shard.
    assert!(admitted <= 160 + 16, "{admitted}");
    drop(held);
    assert!(quota.connection(&holder).is_ok());
}

#[test]
fn connections_come_back_from_every_thread() {
    // covers: U105
    let quota = TenantQuotaManager::new(limits(1, 1, 3), None, Clock::system());
    let a = tenant("a");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..2_500 {
                    drop(quota.connection(&a));
                }
            });
        }
    });
    let held: Vec<_> = (0..4).map(|_| quota.connection(&a).ok()).collect();
    assert_eq!(held.iter().flatten().count(), 3);
}

#[derive(Clone, Debug)]
enum Step {
    Connect(usize),
    Hangup(usize),
    Publish {
        tenant: usize,
        events: u64,
        bytes: u64,
    },
    /// Takes of the topic's rate.
    Take(u64),
    /// What was taken is not published after all.
    Cancel(usize),
    /// What was taken is published.
    Keep(usize),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0usize..4).prop_map(Step::Connect),
        3 => any::<usize>().prop_map(Step::Hangup),
        3 => (0usize..4, 0u64..30, 0u64..3_000)
            .prop_map(|(tenant, events, bytes)| Step::Publish { tenant, events, bytes }),
        3 => (0u64..40).prop_map(Step::Take),
        2 => any::<usize>().prop_map(Step::Cancel),
        1 => any::<usize>().prop_map(Step::Keep),
        2 => (0u64..200).prop_map(Step::Wait),
    ]
}

const CONNECTIONS: u64 = 5;
const EVENTS: u64 = 20;
const BYTES: u64 = 1_000;

/// Plays the steps; at each, what is given is what a plain count says may be given.
async fn play(steps: Vec<Step>) -> Result<(), TestCaseError> {
    let clock = clock();
    let quota = TenantQuotaManager::new(limits(EVENTS, BYTES, CONNECTIONS), None, clock);
    let rates = TopicRates::new(clock);
    let topic = TopicName::client("t").expect("legal");
    let rate = TopicRate::new(25, 5.0).expect("sensible");
    rates.replace([(topic.clone(), rate)].into());
    let tenants: Vec<TenantId> = (0..4).map(|number| tenant(&format!("t{number}"))).collect();
    let mut leases: Vec<(usize, Lease)> = Vec::new();
    let mut taken: Vec<(u64, TakenOfRate)> = Vec::new();
    let (mut events, mut bytes, mut of_topic) = ([0u64; 4], [0u64; 4], 0u64);
    for step in steps {
        match step {
            Step::Connect(who) => {
                let has = leases.iter().filter(|(whose, _)| *whose == who).count() as u64;
                let lease = quota.connection(&tenants[who]);
                prop_assert_eq!(lease.is_ok(), has < CONNECTIONS);
                leases.extend(lease.ok().flatten().map(|lease| (who, lease)));
            }
            Step::Hangup(which) if !leases.is_empty() => drop(leases.swap_remove(which % leases.len())),
            Step::Publish { tenant, events: asked, bytes: large } => {
                if quota.publish(&tenants[tenant], cost(asked, large)).is_ok() {
                    // Before this one nobody had more than a bucket and what came since.
                    let millis = u64::try_from(clock.elapsed().as_millis()).expect("a short test");
                    prop_assert!(events[tenant] * 1_000 <= EVENTS * (1_000 + millis) + 30_000);
                    prop_assert!(bytes[tenant] * 1_000 <= BYTES * (1_000 + millis) + 3_000_000);
                    events[tenant] += asked;
                    bytes[tenant] += large;
                }
            }
            Step::Take(asked) => {
                if let Ok(given) = rates.take(&topic, asked) {
                    let millis = u64::try_from(clock.elapsed().as_millis()).expect("a short test");
                    prop_assert!(of_topic * 1_000 <= 25_000 + 5 * millis + 40_000);
                    of_topic += asked;
                    taken.push((asked, given.expect("the topic has a rate")));
                }
            }
            Step::Cancel(which) if !taken.is_empty() => {
                let (asked, given) = taken.swap_remove(which % taken.len());
                given.give_back();
                of_topic -= asked;
            }
            Step::Keep(which) if !taken.is_empty() => drop(taken.swap_remove(which % taken.len())),
            Step::Wait(millis) => advance(Duration::from_millis(millis)).await,
            Step::Hangup(_) | Step::Cancel(_) | Step::Keep(_) => {}
        }
    }
    // Everything comes back: every tenant may have all its connections, no more, and full buckets.
    drop(leases);
    taken.into_iter().for_each(|(_, given)| given.give_back());
    advance(Duration::from_secs(100_000)).await;
    for tenant in &tenants {
        let held: Vec<_> = (0..=CONNECTIONS).map(|_| quota.connection(tenant)).collect();
        prop_assert_eq!(held.iter().filter(|lease| lease.is_ok()).count() as u64, CONNECTIONS);
        prop_assert_eq!(quota.publish(tenant, cost(EVENTS, BYTES)), Ok(()));
        prop_assert!(quota.publish(tenant, cost(1, 0)).is_err());
        prop_assert!(quota.publish(tenant, cost(0, 1)).is_err());
    }
    prop_assert!(rates.take(&topic, 25).is_ok() && rates.take(&topic, 1).is_err());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4, failure_persistence: None, ..ProptestConfig::default() })]

    // proves: SG-6  covers: U105
    #[test]
    fn units_taken_are_units_given_back(steps in prop::collection::vec(step(), 10_000)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime").block_on(play(steps))?;
    }
}
