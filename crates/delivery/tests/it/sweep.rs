//! Every change of groups, interrupted at every step: the request is dropped at each await; Meta, or the position
//! database, is cut off before and after each write; the process dies before and after each write of either.
//! Afterwards, and after a restart: memory serves what Meta holds, there are positions of exactly the groups that Meta
//! holds, what was answered holds, no backlog is lost, nothing acknowledged comes again.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    pin::pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use mesh_base::BackendErrorKind;

use mesh_base::{Chance, Signals};
use mesh_delivery::{
    AskedSettings, GroupKind, GroupSelector, HandOutTerms, Mode, Receiver, SettleOutcome, StartAt, Subscribe,
    SubscribeError,
};
use mesh_frame::{GroupName, InstanceId, PartitionId, TopicName};
use mesh_meta::MetaStore;
use mesh_state::{
    positions::{LaneKey, faulty::WriteFault},
    shared::{ClusterSubscriptionStore, GroupId, SubscriptionStore, Writer},
};

use crate::rig::{DEADLINE, Got, Rig, anybody, client, events, got, request, tenant, topic};

/// More writes of Meta, or of positions, than any of the changes makes.
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
    /// A store is cut off at that write; whether the write happens nobody is told. It answers again a little later.
    CutOff(At),
    /// The process dies at that write: neither store is reached from then on.
    Dies(At),
}

/// A write of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct At {
    store: Store,
    /// How many writes work before it.
    spared: usize,
    /// Whether it happens all the same.
    happens: bool,
}

/// What is written to, and fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Store {
    Meta,
    /// Reads go on.
    Positions,
    /// Reads fail too.
    PositionsWithReads,
}

impl At {
    /// Orders the fault.
    fn order(self, rig: &Rig, dies: bool) {
        // What Meta calls outlives this process, whose database must be closed with it.
        let positions = Arc::downgrade(&rig.positions);
        let meta = rig.meta.clone();
        if self.store == Store::Meta {
            rig.meta.cut_after(self.spared, self.happens);
            rig.meta.at_cut(move || {
                if let Some(positions) = positions.upgrade().filter(|_| dies) {
                    positions.cut_off(true);
                }
            });
            return;
        }
        let refused = WriteFault::Refused(BackendErrorKind::Unavailable);
        rig.positions.cut_after(self.spared, if self.happens { WriteFault::AnswerLost } else { refused });
        rig.positions.at_cut(move || {
            if dies {
                meta.partition(true);
            } else if let Some(positions) = positions.upgrade() {
                positions.fail_reads(self.store == Store::PositionsWithReads);
            }
        });
    }

    fn is_met(self, rig: &Rig) -> bool {
        match self.store {
            Store::Meta => !rig.meta.awaits_cut(),
            Store::Positions | Store::PositionsWithReads => !rig.positions.awaits_fault(),
        }
    }

    /// The fault is not met any more, neither by what is left to do nor by the next process.
    fn call_off(self, rig: &Rig) {
        At { spared: usize::MAX, ..self }.order(rig, false);
    }

    /// The store answers again.
    fn mend(self, rig: &Rig) {
        match self.store {
            Store::Meta => rig.meta.partition(false),
            Store::Positions | Store::PositionsWithReads => {
                rig.positions.fail_reads(false);
                rig.positions.cut_off(false);
            }
        }
    }
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

/// What Meta holds; a membership without a group is given under a group of its own with no settings. And the lanes of
/// the groups.
async fn held(rig: &Rig) -> (Served, BTreeMap<GroupId, LaneKey>) {
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
    let lanes = store.groups().into_iter().map(|(id, group)| {
        let (group, generation) = (group.record.id, group.record.generation);
        (id, LaneKey { group, generation, partition: PartitionId(0) })
    });
    (held, lanes.collect())
}

/// The lanes of which there are positions: those with a cursor, and those with rows.
fn kept(rig: &Rig) -> [BTreeSet<LaneKey>; 2] {
    let store = rig.positions.inner();
    let cursors = store.offsets().cursors().expect("read");
    let rows = store.deliveries().lanes().expect("read");
    [cursors.into_iter().map(|(lane, _)| lane).collect(), rows.into_iter().map(|(lane, _)| lane).collect()]
}

/// When it is looked at what a change did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    /// In the process that was to make it.
    InLife,
    AfterARestart,
}

/// Says what memory, Meta and positions disagree about, and whether a change that was answered is not there.
async fn disagreement(rig: &Rig, change: Change, is_answered: bool, when: When) -> Option<String> {
    let (memory, (meta, lanes), [mut cursors, mut rows]) = (served(rig).await, held(rig).await, kept(rig));
    let lanes: BTreeSet<LaneKey> = lanes.into_values().collect();
    if change == Change::Seek && !is_answered && when == When::InLife {
        // The generation that did not come: the next seek writes its positions anew, the next start removes them.
        for lane in &lanes {
            let next = LaneKey { generation: lane.generation + 1, ..*lane };
            cursors.remove(&next);
            rows.remove(&next);
        }
    }
    if memory != meta {
        return Some(format!("memory serves {memory:#?}, Meta holds {meta:#?}"));
    }
    if is_answered && !change.is_made(&memory) {
        return Some(format!("it was answered, and memory serves {memory:#?}"));
    }
    if cursors != lanes || !rows.is_subset(&lanes) {
        return Some(format!("Meta holds {lanes:#?}, cursors are of {cursors:#?}, rows of {rows:#?}"));
    }
    rig.dispatcher.suspension().map(|suspension| suspension.to_string())
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

fn shared_id() -> GroupId {
    let GroupSelector { tenant, topic, name, .. } = shared();
    GroupId { tenant, topic, kind: GroupKind::LoadBalance, name }
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

impl Change {
    /// Whether it cannot be made without a write of positions.
    fn writes_positions(self) -> bool {
        match self {
            Self::Join | Self::Settings | Self::Adopt => false,
            // Of those who leave: what a member has goes back.
            Self::Leave
            | Self::Reject
            | Self::MakeGroup
            | Self::MakeBroadcast
            | Self::LeaveAndDelete
            | Self::LeaveBroadcast
            | Self::RemoveGroup
            | Self::Seek
            | Self::DeleteTopic => true,
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

    let (at, dies) = match fault {
        Fault::Dropped(_) => (None, false),
        Fault::CutOff(at) => (Some(at), false),
        Fault::Dies(at) => (Some(at), true),
    };
    if let Some(at) = at {
        at.order(&rig, dies);
    }
    let answer = match fault {
        Fault::Dropped(awaits) => drop_after(awaits, change.make(&rig)).await,
        Fault::CutOff(_) | Fault::Dies(_) => {
            Some(tokio::time::timeout(DEADLINE, change.make(&rig)).await.expect("it is answered"))
        }
    };
    let is_answered = answer == Some(Ok(()));
    let about = format!("{change:?} {fault:?} answered {answer:?}");

    // What goes on without the request is waited for. A death: nothing that was begun gets any further, and the
    // stores are reached again by the next process only.
    let end = rig.clock.elapsed() + DEADLINE;
    let met = loop {
        rig.commits_are_answered().await;
        let met = at.map_or(answer.is_none(), |at| at.is_met(&rig));
        if met && dies {
            break true;
        }
        if let Some(at) = at.filter(|_| met) {
            at.mend(&rig);
        }
        let Some(disagreement) = disagreement(&rig, change, is_answered, When::InLife).await else {
            break met;
        };
        assert!(rig.clock.elapsed() < end, "{about}: {disagreement}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    };
    if let Some(at) = at.filter(|_| !met) {
        at.call_off(&rig);
    }
    let (before, _) = held(&rig).await;
    let (rig, _) = rig.restart_after(|meta| meta.partition(false)).await;
    let end = rig.clock.elapsed() + DEADLINE;
    while let Some(disagreement) = disagreement(&rig, change, is_answered, When::AfterARestart).await {
        assert!(rig.clock.elapsed() < end, "{about}: after a restart {disagreement}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let (meta, lanes) = held(&rig).await;
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
        // What was handed out and not acknowledged is still outstanding.
        let rows = rig.positions.inner().deliveries().rows(lanes[&shared_id()]).expect("read");
        let is_there = rows.iter().any(|(at, _)| *at == taken[1].offset);
        assert!(is_there, "{about}: {:?} is lost: {rows:?}", taken[1]);
    }
    let (rig, recovered) = rig.restart_after(|_| ()).await;
    assert_eq!(recovered.orphans, 0, "{about}: positions that nobody knows");
    drop(rig);
    met
}

impl Change {
    /// Whether the shared group is the one that was there before, where it was before.
    fn keeps_backlog(self, held: &Served) -> bool {
        held.get(&shared_id()).is_some_and(|(generation, _, _)| *generation == 0)
    }
}

/// Makes a fault of a write.
type Interrupt = fn(At) -> Fault;

/// What is tried at each write.
const FAULTS: [(Store, Interrupt); 5] = [
    (Store::Meta, Fault::CutOff),
    (Store::Meta, Fault::Dies),
    (Store::Positions, Fault::CutOff),
    (Store::Positions, Fault::Dies),
    (Store::PositionsWithReads, Fault::CutOff),
];

async fn sweep(change: Change) {
    for awaits in 0..MOST_AWAITS {
        if !run(change, Fault::Dropped(awaits)).await {
            break;
        }
    }
    for (store, fault) in FAULTS {
        for happens in [false, true] {
            let mut steps = 0;
            while run(change, fault(At { store, spared: steps, happens })).await {
                steps += 1;
                assert!(steps < MOST_WRITES, "{change:?} makes more writes of {store:?} than is thought");
            }
            let writes = store == Store::Meta || change.writes_positions();
            assert!(steps > 0 || !writes, "{change:?} writes nothing to {store:?}");
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
