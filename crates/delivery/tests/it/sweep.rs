//! Every change of groups, interrupted at every step: the request is dropped at each await, Meta is cut off before
//! and after each write, the process dies after each write. Afterwards, and after a restart: memory serves what Meta
//! holds, what was answered holds, nothing is left that nobody owns, nothing acknowledged comes again.

use std::{collections::BTreeMap, future::Future, pin::pin, sync::Arc, task::Poll, time::Duration};

use mesh_base::{Chance, Signals};
use mesh_delivery::{
    AskedSettings, GroupKind, GroupSelector, HandOutTerms, Mode, Receiver, SettleOutcome, StartAt, Subscribe,
    SubscribeError,
};
use mesh_frame::{GroupName, InstanceId, TopicName};
use mesh_meta::MetaStore;
use mesh_state::shared::{ClusterSubscriptionStore, GroupId, SubscriptionStore, Writer};

use crate::rig::{DEADLINE, Got, Rig, anybody, client, events, got, request, tenant, topic};

/// More writes of Meta than any of the changes makes.
const MOST_WRITES: usize = 8;
/// More awaits than any request has.
const MOST_AWAITS: usize = 8;

/// A change of groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    MakeGroup,
    MakeBroadcast,
    Join,
    Settings,
    Leave,
    LeaveAndDelete,
    LeaveBroadcast,
    RemoveGroup,
    Seek,
    Reject,
    DeleteTopic,
    Adopt,
}

/// Where it is interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The request is dropped when it has waited that often.
    Dropped(usize),
    /// Meta is cut off at that write; whether the write happens nobody is told. It answers again a little later.
    CutOff { spared: usize, happens: bool },
    /// The process dies at that write.
    Dies { spared: usize, happens: bool },
}

/// What Meta holds of a group, or memory serves: generation, ack timeout, members with what each may have in flight.
type Seen = (u32, u64, Vec<(String, u32)>);

/// By group.
type Served = BTreeMap<GroupId, Seen>;

/// What a process serves.
async fn served(rig: &Rig) -> Served {
    let views = rig.groups.views(None).await.expect("read");
    let of = |view: mesh_delivery::GroupView| {
        let members = view.members.iter();
        let members = members.map(|member| (member.client.to_string(), member.max_in_flight)).collect();
        (view.id, (view.generation, view.settings.ack_timeout_ms, members))
    };
    views.into_iter().map(of).collect()
}

/// What Meta holds; a membership without a group is given under a group of its own with no settings.
async fn held(rig: &Rig) -> Served {
    let meta = MetaStore::new(rig.meta.inner().clone(), rig.clock, &Signals::new());
    let writer = Writer::new(&InstanceId::new("beside").expect("legal"), &Chance::system());
    let store = ClusterSubscriptionStore::load(&meta, &writer).await.expect("read");
    let mut held: Served = store
        .groups()
        .into_iter()
        .map(|(id, group)| (id, (group.record.generation, group.record.settings.ack_timeout_ms, Vec::new())))
        .collect();
    for (id, member) in store.all_members() {
        let member = (member.record.client.to_string(), member.record.max_in_flight);
        held.entry(id).or_insert((u32::MAX, 0, Vec::new())).2.push(member);
    }
    held.values_mut().for_each(|(_, _, members)| members.sort());
    held
}

struct Named;

impl HandOutTerms for Named {
    fn may_receive(&self, _topic: &TopicName) -> bool {
        true
    }

    fn has_ended(&self) -> bool {
        false
    }

    fn backlog_limit(&self) -> Option<u64> {
        None
    }
}

fn shared() -> GroupSelector {
    GroupSelector {
        tenant: tenant(),
        topic: topic(),
        name: GroupName::new("default").expect("legal"),
        kind: Some(GroupKind::LoadBalance),
    }
}

impl Change {
    /// Makes the change. `Err`: it was answered with a failure.
    async fn make(self, rig: &Rig) -> Result<(), String> {
        let text = |error: SubscribeError| error.to_string();
        let subscribe = |name: &str, mode, asked, start| {
            rig.groups.subscribe(Subscribe { mode, asked, start, ..request(name, topic()) })
        };
        let unsubscribe = |name: &'static str, delete| async move {
            let left = rig.groups.unsubscribe(&anybody(), &client(name), Some(&topic()), None, delete).await;
            left.map(|_removed| ())
        };
        match self {
            Self::MakeGroup => {
                let group = Some(GroupName::new("fresh").expect("legal"));
                let wanted = Subscribe { group, start: StartAt::Earliest, ..request("n", topic()) };
                rig.groups.subscribe(wanted).await.map(drop).map_err(text)
            }
            Self::MakeBroadcast => {
                let made = subscribe("y", Mode::Broadcast, AskedSettings::default(), StartAt::Latest).await;
                made.map(drop).map_err(text)
            }
            Self::Join => {
                let made = subscribe("n", Mode::LoadBalance, AskedSettings::default(), StartAt::Latest).await;
                made.map(drop).map_err(text)
            }
            Self::Settings => {
                let asked = AskedSettings { ack_timeout_ms: Some(40_000), ..AskedSettings::default() };
                let made = subscribe("a", Mode::LoadBalance, asked, StartAt::Latest).await;
                made.map(drop).map_err(text)
            }
            Self::Leave => unsubscribe("a", false).await.map_err(text),
            Self::LeaveAndDelete => unsubscribe("a", true).await.map_err(text),
            Self::LeaveBroadcast => unsubscribe("x", false).await.map_err(text),
            Self::RemoveGroup => {
                rig.groups.remove_group(&shared()).await.map(drop).map_err(|error| error.to_string())
            }
            Self::Seek => {
                let sought = rig.groups.seek(&shared(), &StartAt::Latest, false).await;
                sought.map(drop).map_err(|error| error.to_string())
            }
            Self::Reject => rig.groups.reject(&tenant(), &client("a")).await.map(drop).map_err(text),
            Self::DeleteTopic => {
                let deleted = rig.groups.topics().delete(&topic(), true, false).await;
                deleted.map(drop).map_err(|error| error.to_string())
            }
            Self::Adopt => {
                let alice = Receiver::new(tenant(), Some("alice"), Arc::new(Named));
                rig.groups.adopt(&alice, &client("a")).await.map_err(text)
            }
        }
    }

    /// Whether it is made, by what is served.
    fn is_made(self, served: &Served) -> bool {
        let group = |name: &str, kind| {
            let name = GroupName::new(name).expect("legal");
            served.get(&GroupId { tenant: tenant(), topic: topic(), kind, name })
        };
        let has = |of: Option<&Seen>, name: &str| {
            of.is_some_and(|(_, _, members)| members.iter().any(|(member, _)| member == name))
        };
        let default = group("default", GroupKind::LoadBalance);
        match self {
            Self::MakeGroup => has(group("fresh", GroupKind::LoadBalance), "n"),
            Self::MakeBroadcast => has(group("y", GroupKind::Broadcast), "y"),
            Self::Join => has(default, "n"),
            Self::Settings => default.is_some_and(|(_, timeout, _)| *timeout == 40_000),
            Self::Leave => default.is_some() && !has(default, "a"),
            Self::LeaveAndDelete | Self::RemoveGroup => default.is_none(),
            Self::LeaveBroadcast => group("x", GroupKind::Broadcast).is_none(),
            Self::Seek => default.is_some_and(|(generation, _, _)| *generation == 1),
            Self::Reject => !has(default, "a"),
            Self::DeleteTopic => served.is_empty(),
            Self::Adopt => true,
        }
    }
}

/// Polls a future until it has waited `awaits` times, then drops it. `None`: it was dropped.
async fn drop_after<T>(awaits: usize, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut waited = 0;
    std::future::poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending if waited == awaits => Poll::Ready(None),
        Poll::Pending => {
            waited += 1;
            Poll::Pending
        }
    })
    .await
}

/// One run: what every change starts from, the change with its fault, and what must hold then.
/// `true`: the fault was met.
async fn run(change: Change, fault: Fault) -> bool {
    let rig = Rig::new().await;
    rig.subscribe("a", Mode::LoadBalance, AskedSettings::default()).await;
    rig.subscribe("x", Mode::Broadcast, AskedSettings::default()).await;
    rig.publish_ids(0..4).await;
    let taken = rig.poll("a", 2, 2_000).await;
    assert_eq!(rig.ack(&[&taken[0]]).await, [SettleOutcome::Settled]);

    let (answer, met) = match fault {
        Fault::Dropped(awaits) => {
            let answer = drop_after(awaits, change.make(&rig)).await;
            let met = answer.is_none();
            (answer, met)
        }
        Fault::CutOff { spared, happens } | Fault::Dies { spared, happens } => {
            rig.meta.cut_after(spared, happens);
            let answer = tokio::time::timeout(DEADLINE, change.make(&rig)).await.expect("it is answered");
            (Some(answer), !rig.meta.forget_cut())
        }
    };
    let is_answered = answer == Some(Ok(()));
    let about = format!("{change:?} {fault:?} answered {answer:?}");

    // A death: nothing that was begun gets any further, and Meta is reached again by the next process only.
    let dies = met && matches!(fault, Fault::Dies { .. });
    if !dies {
        rig.meta.partition(false);
        let end = rig.clock.elapsed() + DEADLINE;
        loop {
            let (memory, meta) = (served(&rig).await, held(&rig).await);
            if memory == meta && (!is_answered || change.is_made(&memory)) {
                break;
            }
            let late = rig.clock.elapsed() > end;
            assert!(!late, "{about}: memory serves {memory:#?}, Meta holds {meta:#?}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
    let before = held(&rig).await;
    let (rig, _) = rig.restart_after(|meta| meta.partition(false)).await;
    let (memory, meta) = (served(&rig).await, held(&rig).await);
    assert_eq!(memory, meta, "{about}: after a restart");
    assert!(!is_answered || change.is_made(&memory), "{about}: after a restart {memory:#?}");
    if is_answered {
        assert_eq!(before, meta, "{about}: a restart changes nothing");
    }
    for (id, (_, _, members)) in &meta {
        assert!(id.kind == GroupKind::LoadBalance || !members.is_empty(), "{about}: {id} is nobody's");
    }
    // Who subscribes again gets on with what is there: what was acknowledged does not come again.
    let wanted = Subscribe { over_others: true, ..request("a", topic()) };
    rig.groups.subscribe(wanted).await.expect("subscribed");
    let whoever = anybody().over_others();
    let answer = rig.dispatcher.poll(&whoever, &client("a"), 10, Duration::from_millis(50)).await;
    let again: Vec<Got> = got(&answer.expect("an answer"));
    let acked = taken[0].event.as_str();
    assert!(!events(&again).contains(&acked), "{about}: {acked} was acknowledged and came again: {again:?}");
    if change.keeps_backlog(&meta) {
        let other = events(&again);
        assert!(other.contains(&"2") && other.contains(&"3"), "{about}: the backlog is lost: {again:?}");
    }
    let (rig, recovered) = rig.restart_after(|_| ()).await;
    assert_eq!(recovered.orphans, 0, "{about}: positions that nobody knows");
    drop(rig);
    met
}

impl Change {
    /// Whether the shared group is the one that was there before, where it was before.
    fn keeps_backlog(self, held: &Served) -> bool {
        let id = GroupId {
            tenant: tenant(),
            topic: topic(),
            kind: GroupKind::LoadBalance,
            name: GroupName::new("default").expect("legal"),
        };
        held.get(&id).is_some_and(|(generation, _, _)| *generation == 0)
    }
}

async fn sweep(change: Change) {
    for awaits in 0..MOST_AWAITS {
        if !run(change, Fault::Dropped(awaits)).await {
            break;
        }
    }
    for happens in [false, true] {
        for fault in [
            |spared, happens| Fault::CutOff { spared, happens },
            |spared, happens| Fault::Dies { spared, happens },
        ] {
            let mut steps = 0;
            while run(change, fault(steps, happens)).await {
                steps += 1;
                assert!(steps < MOST_WRITES, "{change:?} makes more writes than is thought");
            }
            assert!(steps > 0, "{change:?} writes nothing");
        }
    }
}

macro_rules! sweeps {
    ($($name:ident: $change:ident;)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                sweep(Change::$change).await;
            }
        )*
    };
}

sweeps! {
    a_group_that_is_made_is_made_whole_or_not_at_all: MakeGroup;
    a_broadcast_group_that_is_made_is_made_whole_or_not_at_all: MakeBroadcast;
    a_member_that_joins_is_in_memory_what_it_is_in_meta: Join;
    settings_that_change_are_in_memory_what_they_are_in_meta: Settings;
    a_member_that_leaves_is_in_memory_what_it_is_in_meta: Leave;
    a_group_that_is_deleted_with_its_last_member_goes_whole_or_stays: LeaveAndDelete;
    a_broadcast_group_goes_with_its_client_or_stays: LeaveBroadcast;
    a_group_that_is_removed_goes_whole_or_stays: RemoveGroup;
    a_group_that_is_sought_is_in_one_generation: Seek;
    a_client_that_is_rejected_is_out_everywhere_or_is_still_there: Reject;
    a_topic_that_is_deleted_by_force_takes_its_groups_with_it: DeleteTopic;
    a_client_that_is_adopted_stays_a_member: Adopt;
}
