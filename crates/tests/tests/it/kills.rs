//! `kill -9` in the middle of each thing that clients and operators do beside publishing, polling and
//! acknowledging: streams, nacks, rejects, replays, seeks, the deletion of a topic, the dropping of a backlog, and
//! publishes that are sent again. Round after round on one directory, with everything else going on meanwhile, and
//! one judgement over all rounds.
//!
//! Every round aims at one of them and kills the process a moment after it was begun. `CRASH_ROUNDS` sets the
//! number of rounds, `CRASH_SEED` replays the draws of a run.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use mesh_tests::{
    Delivery, Fact, History, Moment, Recorder, Seed, SeekTo, Server, Subscribe, Verb, event, keyed, pause,
    rounds, sized, until, within,
};
use rand::{RngExt, rngs::StdRng};
use serde_json::{Value, json};
use tokio::{sync::Notify, task::JoinSet};

/// Rounds on one set of topics: the log must fit into its limit.
const ROUNDS_A_TOPIC: u64 = 24;
/// A browse shows a thousand dead letters, and a round makes some hundreds.
const MANY_LETTERS: usize = 400;
/// What a topic may have; the flood goes beyond it.
const LIMIT: u64 = 4 << 20;
/// How large the events of the flood are.
const FLOOD_EVENT: u64 = 32 << 10;
/// What a kill waits for to be under way, at most.
const SOON: Duration = Duration::from_secs(30);
/// How long after something was begun the first kill comes at the latest.
const FIRST_WAIT: Duration = Duration::from_micros(700);
/// How long what was polled is locked. What was streamed is locked for ever, as far as this test goes: it comes
/// again because its stream has ended.
const LOCK_MS: u64 = 500;
/// The lock of the group that is sought: longer than a stream may lie unread on a busy machine, so that no hand-out is
/// lost but by a kill or a closed stream.
const VIEWERS_LOCK_MS: u64 = 5_000;
const POLLERS: [&str; 2] = ["poller-1", "poller-2"];
const STREAMERS: [&str; 2] = ["streamer-1", "streamer-2"];
const EVERYTHING: &str = "everything";
const AUTO: &str = "auto";
const VIEWERS: &str = "viewers";
const VIEWER: &str = "viewer";
const WATCHER: &str = "watcher";
const SLOW: &str = "slow";
const MOURNERS: [&str; 3] = ["mourner-1", "mourner-2", "mourner-3"];
const DOOMED: &str = "doomed";

/// What a round aims at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Aim {
    Stream,
    Nack,
    Reject,
    Replay,
    Seek,
    Delete,
    Backlog,
    Dedup,
}

const AIMS: [Aim; 8] =
    [Aim::Reject, Aim::Stream, Aim::Delete, Aim::Seek, Aim::Replay, Aim::Nack, Aim::Backlog, Aim::Dedup];

/// The topics of a stretch of rounds.
#[derive(Clone, Debug)]
struct Topics {
    orders: String,
    tape: String,
    flood: String,
}

impl Topics {
    fn of(round: u64) -> Self {
        let number = round / ROUNDS_A_TOPIC;
        Self {
            orders: format!("orders-{number}"),
            tape: format!("tape-{number}"),
            flood: format!("flood-{number}"),
        }
    }
}

/// What one round's tasks share.
#[derive(Clone)]
struct Load {
    recorder: Recorder,
    seed: Seed,
    round: u64,
    aim: Aim,
    topics: Topics,
    ended: Arc<AtomicBool>,
    number: Arc<AtomicU64>,
    /// Publishes without an answer: they are sent again after the start.
    unanswered: Arc<Mutex<Vec<(String, Value)>>>,
    /// Whether the aim is taken: clients do to everything what the round is about.
    aimed: Arc<AtomicBool>,
    /// How often what the round is about was begun since.
    begun: Arc<AtomicU32>,
    begins: Arc<Notify>,
}

/// What becomes of a delivery.
enum Fate {
    Now,
    Together,
    Late(Duration),
    Settle(Verb),
    Never,
}

impl Load {
    fn goes_on(&self) -> bool {
        !self.ended.load(Ordering::Relaxed)
    }

    fn aims_at(&self, aim: Aim) -> bool {
        self.aim == aim && self.aimed.load(Ordering::Relaxed)
    }

    fn begin(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.begins.notify_one();
    }

    fn generator(&self, part: u64) -> StdRng {
        self.seed.generator(self.round * 100 + part)
    }

    fn event(&self, key: Option<u32>) -> Value {
        let id = format!("event-{}", self.number.fetch_add(1, Ordering::Relaxed));
        key.map_or_else(|| event(&id), |key| keyed(&id, &format!("key-{key}")))
    }

    /// Publishes an event; without an answer it will be sent again. `false`: there was none.
    async fn publish(&self, topic: &str, event: &Value) -> bool {
        if self.recorder.publish(topic, event).await.is_ok_and(|reply| reply.status == 202) {
            return true;
        }
        self.unanswered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push((topic.to_owned(), event.clone()));
        false
    }

    /// Publishes one by one, some of it twice: after the first answer, or beside the first.
    async fn publish_orders(self, part: u64, with_keys: bool) {
        let mut draw = self.generator(part);
        while self.goes_on() {
            let key = with_keys.then(|| u32::try_from(part).unwrap_or(0) * 10 + draw.random_range(0..3));
            let event = self.event(key);
            let topic = &self.topics.orders;
            let again =
                if self.aims_at(Aim::Dedup) { draw.random_range(0..2) } else { draw.random_range(0..20) };
            self.begin_if(Aim::Dedup);
            let went = match again {
                0 => {
                    let (one, other) = tokio::join!(self.publish(topic, &event), self.publish(topic, &event));
                    one && other
                }
                1 => self.publish(topic, &event).await && self.publish(topic, &event).await,
                _ => self.publish(topic, &event).await,
            };
            if !went {
                return;
            }
            pause(Duration::from_millis(draw.random_range(2..12))).await;
        }
    }

    fn begin_if(&self, aim: Aim) {
        if self.aims_at(aim) {
            self.begin();
        }
    }

    async fn publish_tape(self, part: u64) {
        let mut draw = self.generator(part);
        while self.goes_on() {
            let key = draw.random_bool(0.5).then(|| 90 + draw.random_range(0..2));
            if !self.publish(&self.topics.tape, &self.event(key)).await {
                return;
            }
            pause(Duration::from_millis(draw.random_range(20..60))).await;
        }
    }

    fn fate(&self, draw: &mut StdRng) -> Fate {
        if self.aims_at(Aim::Nack) {
            let delay_ms = draw.random_bool(0.7).then(|| draw.random_range(0..200));
            return Fate::Settle(Verb::Nack { delay_ms });
        }
        if self.aims_at(Aim::Reject) || self.aims_at(Aim::Replay) {
            return Fate::Settle(Verb::Reject);
        }
        // What the limits drop meanwhile is rejected too.
        if self.aims_at(Aim::Backlog) && draw.random_bool(0.3) {
            return Fate::Settle(Verb::Reject);
        }
        match draw.random_range(0..100) {
            0..40 => Fate::Now,
            40..65 => Fate::Together,
            65..75 => Fate::Late(Duration::from_millis(LOCK_MS).mul_f64(draw.random_range(0.1..1.6))),
            75..77 => Fate::Settle(Verb::Reject),
            77..82 => Fate::Settle(Verb::Nack { delay_ms: None }),
            82..90 => Fate::Settle(Verb::Nack { delay_ms: Some(draw.random_range(0..200)) }),
            _ => Fate::Never,
        }
    }

    /// Does to deliveries what is their fate. `false`: there was no answer.
    async fn settle(&self, deliveries: Vec<Delivery>, draw: &mut StdRng, beside: &mut JoinSet<()>) -> bool {
        let mut together = Vec::new();
        for Delivery { delivery_id, .. } in deliveries {
            let recorder = self.recorder.clone();
            match self.fate(draw) {
                Fate::Now => {
                    if recorder.ack(&delivery_id).await.is_err() {
                        return false;
                    }
                }
                Fate::Together => together.push(delivery_id),
                Fate::Never => {}
                Fate::Late(wait) => {
                    beside.spawn(async move {
                        pause(wait).await;
                        drop(recorder.ack(&delivery_id).await);
                    });
                }
                Fate::Settle(verb) => {
                    self.begin_if(self.aim);
                    beside.spawn(async move { drop(recorder.settle(verb, &delivery_id).await) });
                }
            }
        }
        together.is_empty() || self.recorder.ack_many(&together).await.is_ok()
    }

    async fn poll(self, client: &'static str, part: u64) {
        let mut draw = self.generator(part);
        let mut beside = JoinSet::new();
        while self.goes_on() {
            let Ok(deliveries) = self.recorder.poll(client, draw.random_range(1..40), 200).await else {
                break;
            };
            if !self.settle(deliveries, &mut draw, &mut beside).await {
                break;
            }
        }
        // Whoever was late must not settle in the next round with this round's connection.
        beside.shutdown().await;
    }

    /// Reads a stream, and now and then opens another one.
    async fn stream(self, client: &'static str, part: u64) {
        let mut draw = self.generator(part);
        let mut beside = JoinSet::new();
        'opening: while self.goes_on() {
            let Ok(mut stream) = self.recorder.stream(client).await else { break };
            let many = draw.random_range(20..120);
            for _ in 0..many {
                let Ok(Some(delivery)) = stream.next().await else { break 'opening };
                if self.aims_at(Aim::Stream) {
                    // It is with this client when the process dies.
                    self.begin();
                    continue;
                }
                if client != AUTO && !self.settle(vec![delivery], &mut draw, &mut beside).await {
                    break 'opening;
                }
            }
            if client != AUTO {
                stream.close();
            }
        }
        beside.shutdown().await;
    }

    async fn sample(self) {
        while self.goes_on() {
            for topic in [&self.topics.orders, &self.topics.tape] {
                if self.recorder.sample(topic).await.is_err() {
                    return;
                }
            }
            pause(Duration::from_millis(50)).await;
        }
    }

    /// One seek after another.
    async fn seek(self, part: u64) {
        let mut draw = self.generator(part);
        while self.goes_on() {
            let Ok(floors) = self.recorder.client.offsets(&self.topics.tape).await else { return };
            let to = match draw.random_range(0..8) {
                0 => SeekTo::Earliest,
                1 => SeekTo::Latest,
                _ => SeekTo::Offsets(somewhere(&floors, &mut draw)),
            };
            self.begin();
            if self.recorder.seek(&self.topics.tape, VIEWERS, to).await.is_err() {
                return;
            }
            pause(Duration::from_millis(draw.random_range(1..10))).await;
        }
    }

    async fn replay(self) {
        while self.goes_on() {
            self.begin();
            if self.recorder.replay(&self.topics.orders).await.is_err()
                || self.recorder.browse(&self.topics.orders).await.is_err()
            {
                return;
            }
        }
    }

    /// Publishes so much that a topic goes beyond its limit. `false`: it was not accepted.
    async fn flood(self, bytes: u64) -> bool {
        for _ in 0..bytes / FLOOD_EVENT {
            let mut event = self.event(None);
            let id = event["id"].as_str().unwrap_or_default().to_owned();
            event["data"] = sized(&id, usize::try_from(FLOOD_EVENT).unwrap_or(0));
            if !self.publish(&self.topics.flood, &event).await {
                return false;
            }
        }
        true
    }
}

/// Offsets at or below the floors, of one partition or all.
fn somewhere(floors: &BTreeMap<String, u64>, draw: &mut StdRng) -> BTreeMap<u32, u64> {
    let of_viewers = floors.iter().filter_map(|(place, floor)| {
        let (group, partition) = place.rsplit_once('#')?;
        (group == VIEWERS).then_some((partition.parse::<u32>().ok()?, *floor))
    });
    let all: BTreeMap<u32, u64> = of_viewers
        .map(|(partition, floor)| (partition, draw.random_range(floor.saturating_sub(20)..=floor)))
        .collect();
    if draw.random_bool(0.5) { all } else { all.into_iter().take(1).collect() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_in_the_middle_of_anything_loses_and_repeats_nothing() -> Result<()> {
    // covers: U07 U61 U132  proves: FM-2
    let seed = Seed::from_environment("CRASH_SEED");
    let rounds = rounds("CRASH_ROUNDS", 32);
    let about = format!("CRASH_SEED={} CRASH_ROUNDS={rounds}", seed.0);
    let history = History::new();
    history.record(Fact::Limited { bytes: LIMIT });
    let number = Arc::new(AtomicU64::new(0));
    let unanswered = Arc::new(Mutex::new(Vec::new()));
    let mut server = Server::new()?
        .key("eventmesh.storage.partitions", 2)
        .key("eventmesh.storage.backlog.maxBytes", LIMIT)
        .key("eventmesh.storage.retention.checkInterval", "100ms")
        .key("eventmesh.publish.dedup.window", "1h");
    let mut hits: BTreeMap<Aim, u32> = BTreeMap::new();
    let mut waits: BTreeMap<Aim, Duration> = BTreeMap::new();
    for round in 0..u64::from(rounds) {
        let what = || format!("round {round}, {about}");
        let recorder = Recorder::new(server.start().await.with_context(what)?, &history);
        let load = Load {
            recorder,
            seed,
            round,
            aim: AIMS[usize::try_from(round).unwrap_or(0) % AIMS.len()],
            topics: Topics::of(round),
            ended: Arc::default(),
            number: number.clone(),
            unanswered: unanswered.clone(),
            aimed: Arc::default(),
            begun: Arc::default(),
            begins: Arc::default(),
        };
        look(&load.recorder, round).await.with_context(what)?;
        keep_browsable(&load.recorder, &load.topics.orders).await.with_context(what)?;
        send_again(&load.recorder, &unanswered).await.with_context(what)?;
        if round.is_multiple_of(ROUNDS_A_TOPIC) {
            subscribe(&load.recorder, &load.topics).await.with_context(what)?;
        }
        let wait = waits.entry(load.aim).or_insert(FIRST_WAIT);
        let hit = one_round(&mut server, &load, *wait).await.with_context(what)?;
        *hits.entry(load.aim).or_default() += u32::from(hit);
        // As long as it takes on this machine now, about: later into it, or sooner, the next time.
        *wait = if hit { (*wait * 3 / 2).min(FIRST_WAIT * 20) } else { *wait / 3 };
        history.record(Fact::Killed);
    }
    println!("kills in the middle: {hits:?}");
    for aim in AIMS.iter().take(rounds as usize) {
        ensure!(hits.get(aim).is_some_and(|hits| *hits > 0), "no kill hit {aim:?}: {hits:?}, {about}");
    }

    let recorder = Recorder::new(server.start().await?, &history);
    let last = u64::from(rounds).saturating_sub(1);
    look(&recorder, last).await.context(about.clone())?;
    send_again(&recorder, &unanswered).await?;
    flood_once_more(&recorder, &Topics::of(last).flood).await.with_context(|| about.clone())?;
    drain(&recorder, last).await.with_context(|| about.clone())?;
    for round in (0..=last).filter(|round| round.is_multiple_of(ROUNDS_A_TOPIC)) {
        look(&recorder, round).await?;
    }
    println!("{} events, {} facts", number.load(Ordering::Relaxed), history.facts().len());
    history.must_hold(&about);
    server.stop().await
}

/// Looks at everything that says what has happened to what was under way.
async fn look(recorder: &Recorder, round: u64) -> Result<()> {
    let topics = Topics::of(round);
    for topic in [&topics.orders, &topics.tape, &topics.flood, DOOMED] {
        recorder.browse(topic).await?;
    }
    recorder.generations(&topics.tape).await?;
    recorder.dropped().await?;
    for topic in [&topics.flood, DOOMED] {
        recorder.describe(topic).await?;
    }
    for topic in [&topics.orders, &topics.tape] {
        recorder.describe(topic).await?;
        recorder.sample(topic).await?;
    }
    Ok(())
}

/// Replays the dead letters of a topic before they are more than a browse shows.
async fn keep_browsable(recorder: &Recorder, topic: &str) -> Result<()> {
    if recorder.client.dead_letters(topic).await?.len() > MANY_LETTERS {
        recorder.replay(topic).await?;
        recorder.browse(topic).await?;
    }
    Ok(())
}

/// Publishes once more what got no answer.
async fn send_again(recorder: &Recorder, unanswered: &Mutex<Vec<(String, Value)>>) -> Result<()> {
    let again = std::mem::take(&mut *unanswered.lock().unwrap_or_else(PoisonError::into_inner));
    for (topic, event) in again {
        recorder.publish(&topic, &event).await?.expect(202)?;
    }
    Ok(())
}

async fn subscribe(recorder: &Recorder, topics: &Topics) -> Result<()> {
    let Topics { orders, tape, flood } = topics;
    let quick = |subscribe: Subscribe| subscribe.ack_timeout_ms(LOCK_MS).backoff_ms(50, 200).max_attempts(6);
    for client in POLLERS {
        recorder.subscribed(&quick(Subscribe::load_balance(client, orders).group("pollers"))).await?;
    }
    for client in STREAMERS {
        let subscribe = quick(Subscribe::load_balance(client, orders).group("streamers"));
        recorder.subscribed(&subscribe.ack_timeout_ms(3_600_000)).await?;
    }
    recorder.subscribed(&quick(Subscribe::broadcast(EVERYTHING, orders))).await?;
    recorder.subscribed(&Subscribe::broadcast(AUTO, orders).set("ack", "auto")).await?;
    for client in [VIEWER, WATCHER] {
        let subscribe = quick(Subscribe::load_balance(client, tape).group(VIEWERS)).max_attempts(0);
        recorder.subscribed(&subscribe.ack_timeout_ms(VIEWERS_LOCK_MS)).await?;
    }
    recorder
        .client
        .administer("POST", "/admin/topics", &json!({"topic": flood, "partitions": 4}))
        .await?
        .expect(201)?;
    recorder.subscribed(&quick(Subscribe::broadcast(SLOW, flood)).max_attempts(0)).await
}

/// Lets everything go on, aims, and kills. Whether what was aimed at was under way.
async fn one_round(server: &mut Server, load: &Load, longest: Duration) -> Result<bool> {
    let mut moments = load.generator(99);
    let mut tasks = JoinSet::new();
    tasks.spawn(load.clone().publish_orders(0, true));
    tasks.spawn(load.clone().publish_orders(1, true));
    tasks.spawn(load.clone().publish_orders(2, false));
    tasks.spawn(load.clone().publish_tape(3));
    for (part, client) in POLLERS.into_iter().chain([EVERYTHING, VIEWER, SLOW]).enumerate() {
        tasks.spawn(load.clone().poll(client, 10 + part as u64));
    }
    for (part, client) in STREAMERS.into_iter().chain([AUTO, WATCHER]).enumerate() {
        tasks.spawn(load.clone().stream(client, 20 + part as u64));
    }
    tasks.spawn(load.clone().sample());
    pause(Duration::from_millis(moments.random_range(100..500))).await;
    let since = load.recorder.history.now();
    let flooded = take_aim(load, &mut tasks, &mut moments).await?;
    // Shorter than a timer of the runtime can be.
    let wait = Duration::from_micros(moments.random_range(0..longest.as_micros().max(1) as u64));
    tokio::task::block_in_place(|| {
        std::thread::sleep(wait);
        server.kill9();
    });
    let facts = load.recorder.history.facts();
    load.ended.store(true, Ordering::Relaxed);
    while let Some(task) = tasks.join_next().await {
        task.context("a task of the load panicked")?;
    }
    Ok(match load.aim {
        Aim::Backlog => flooded,
        aim => under_way(&facts, since, aim),
    })
}

/// Begins what the round is about and waits until it is under way. Of the backlog, which no request drops: whether
/// that is due or has just begun.
async fn take_aim(load: &Load, tasks: &mut JoinSet<()>, moments: &mut StdRng) -> Result<bool> {
    let recorder = &load.recorder;
    let times = match load.aim {
        Aim::Stream => moments.random_range(3..20),
        Aim::Nack | Aim::Reject => moments.random_range(2..16),
        Aim::Dedup => moments.random_range(2..10),
        Aim::Seek => moments.random_range(1..4),
        Aim::Replay => moments.random_range(1..3),
        Aim::Delete | Aim::Backlog => 1,
    };
    match load.aim {
        Aim::Stream | Aim::Nack | Aim::Reject | Aim::Dedup => {
            load.aimed.store(true, Ordering::Relaxed);
        }
        Aim::Replay => {
            load.aimed.store(true, Ordering::Relaxed);
            until("dead letters to replay", SOON, async || {
                (recorder.client.dead_letters(&load.topics.orders).await.ok()?.len() > 30).then_some(())
            })
            .await?;
            load.aimed.store(false, Ordering::Relaxed);
            recorder.browse(&load.topics.orders).await?;
            load.begun.store(0, Ordering::Relaxed);
            tasks.spawn(load.clone().replay());
        }
        Aim::Seek => {
            tasks.spawn(load.clone().seek(30));
        }
        Aim::Delete => delete(load, tasks, moments).await?,
        Aim::Backlog => {
            load.aimed.store(true, Ordering::Relaxed);
            let mut floods = JoinSet::new();
            for _ in 0..4 {
                floods.spawn(load.clone().flood(LIMIT / 4 + 8 * FLOOD_EVENT));
            }
            while let Some(flood) = floods.join_next().await {
                ensure!(flood?, "the flood was not accepted");
            }
            let before = recorder.describe(&load.topics.flood).await?;
            let is_cut = async {
                while recorder.describe(&load.topics.flood).await? == before {}
                anyhow::Ok(())
            };
            if moments.random_bool(0.3) {
                pause(Duration::from_millis(moments.random_range(0..100))).await;
                return Ok(recorder.describe(&load.topics.flood).await? == before);
            }
            // The first partition was cut: the others are next.
            within("the backlog to be cut", SOON, is_cut).await??;
            return Ok(true);
        }
    }
    // Without a timer: what takes a millisecond would be over before it is noticed.
    within("what the round is about to begin", SOON, async {
        while load.begun.load(Ordering::Relaxed) < times {
            load.begins.notified().await;
        }
    })
    .await
    .with_context(|| format!("{:?}", load.aim))?;
    Ok(false)
}

/// Makes a topic, uses it, and begins to delete it; what an earlier kill has left of it goes first.
async fn delete(load: &Load, tasks: &mut JoinSet<()>, moments: &mut StdRng) -> Result<()> {
    let recorder = &load.recorder;
    if recorder.describe(DOOMED).await?.is_some() {
        ensure!(recorder.delete_topic(DOOMED, moments.random_bool(0.5)).await?, "the topic was there");
        ensure!(recorder.describe(DOOMED).await?.is_none(), "the topic is still there");
    }
    for client in MOURNERS {
        recorder.subscribed(&Subscribe::broadcast(client, DOOMED).from("earliest")).await?;
    }
    for _ in 0..20 {
        recorder.publish(DOOMED, &load.event(None)).await?.expect(202)?;
    }
    recorder.describe(DOOMED).await?;
    for client in MOURNERS.into_iter().take(2) {
        let deliveries = recorder.poll(client, 10, 2_000).await?;
        for (number, delivery) in deliveries.iter().enumerate() {
            match number % 3 {
                0 => drop(recorder.ack(&delivery.delivery_id).await?),
                1 => drop(recorder.settle(Verb::Reject, &delivery.delivery_id).await?),
                _ => {}
            }
        }
    }
    recorder.browse(DOOMED).await?;
    let (load, letters) = (load.clone(), moments.random_bool(0.5));
    tasks.spawn(async move {
        load.begin();
        drop(load.recorder.delete_topic(DOOMED, letters).await);
    });
    Ok(())
}

/// Whether something of what the round is about was sent since then and has no answer; of streams, whether
/// deliveries that came over one are unfinished.
fn under_way(facts: &[Fact], since: Moment, aim: Aim) -> bool {
    let mut open: BTreeSet<usize> = BTreeSet::new();
    let mut streamed: BTreeSet<&str> = BTreeSet::new();
    for (at, fact) in facts.iter().enumerate().skip(since.0) {
        match (aim, fact) {
            (Aim::Nack, Fact::VerbSent { verb: Verb::Nack { .. }, .. })
            | (Aim::Reject, Fact::VerbSent { verb: Verb::Reject, .. })
            | (Aim::Replay, Fact::ReplaySent { .. })
            | (Aim::Seek, Fact::SeekSent { .. })
            | (Aim::Delete, Fact::DeleteSent { .. })
            | (Aim::Dedup, Fact::PublishSent { .. }) => {
                open.insert(at);
            }
            (Aim::Nack | Aim::Reject, Fact::VerbAnswered { sent, .. })
            | (Aim::Replay, Fact::ReplayAnswered { sent, .. })
            | (Aim::Seek, Fact::SeekAnswered { sent, .. })
            | (Aim::Delete, Fact::DeleteAnswered { sent, .. })
            | (Aim::Dedup, Fact::Published { sent, .. }) => {
                open.remove(&sent.0);
            }
            (Aim::Stream, Fact::Delivered { stream: Some(_), delivery, .. }) => {
                streamed.insert(delivery);
            }
            (Aim::Stream, Fact::AckSent { delivery }) => {
                streamed.remove(delivery.as_str());
            }
            _ => {}
        }
    }
    !open.is_empty() || !streamed.is_empty()
}

/// Goes beyond the limit of a backlog in a process that lives on: what is dropped must be counted in full.
async fn flood_once_more(recorder: &Recorder, topic: &str) -> Result<()> {
    let mut floods = JoinSet::new();
    for part in 0..4 {
        let (recorder, topic) = (recorder.clone(), topic.to_owned());
        floods.spawn(async move {
            for number in 0..LIMIT / FLOOD_EVENT / 2 {
                let mut event = event(format!("last-flood-{part}-{number}"));
                let id = event["id"].as_str().unwrap_or_default().to_owned();
                event["data"] = sized(&id, usize::try_from(FLOOD_EVENT).unwrap_or(0));
                recorder.publish(&topic, &event).await?.expect(202)?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(flood) = floods.join_next().await {
        flood??;
    }
    // The counter follows the cut: it is read when nothing has been cut for some looks of the retention.
    let mut last = recorder.describe(topic).await?;
    let mut quiet = 0;
    until("the backlog to be cut", SOON, async || {
        pause(Duration::from_millis(100)).await;
        let now = recorder.describe(topic).await.ok()?;
        quiet = if now == last { quiet + 1 } else { 0 };
        last = now;
        let is_cut = last.as_ref().is_some_and(|starts| starts.values().all(|start| *start > 0));
        (is_cut && quiet > 4).then_some(())
    })
    .await?;
    recorder.dropped().await?;
    ensure!(recorder.client.metric("eventmesh_dropped_total").await? > 0.0, "nothing was counted");
    Ok(())
}

/// Acknowledges everything, by polls and streams, until no group has anything left.
async fn drain(recorder: &Recorder, last: u64) -> Result<()> {
    // One more for everybody: what is accepted after the last kill reaches those too who ask for no answer.
    let topics = Topics::of(last);
    for number in 0..5 {
        let event = event(format!("last-{number}"));
        recorder.publish(&topics.orders, &event).await?.expect(202)?;
    }
    let mut tasks = JoinSet::new();
    for client in STREAMERS.into_iter().chain([AUTO, WATCHER]) {
        let mut stream = recorder.stream(client).await?;
        let recorder = recorder.clone();
        tasks.spawn(async move {
            while let Ok(Some(delivery)) = stream.next().await {
                if client != AUTO && recorder.ack(&delivery.delivery_id).await.is_err() {
                    return;
                }
            }
        });
    }
    let polling: Vec<&str> = POLLERS.into_iter().chain([EVERYTHING, VIEWER, SLOW]).collect();
    for client in polling {
        let recorder = recorder.clone();
        tasks.spawn(async move {
            while let Ok(deliveries) = recorder.poll(client, 100, 500).await {
                let ids: Vec<String> = deliveries.into_iter().map(|delivery| delivery.delivery_id).collect();
                if !ids.is_empty() && recorder.ack_many(&ids).await.is_err() {
                    return;
                }
            }
        });
    }
    let mut left = Vec::new();
    let drained = until("every group to be done with everything", Duration::from_secs(60), async || {
        let groups: Vec<Value> = recorder.client.admin("/admin/groups").await.ok()?.read().ok()?;
        let undone =
            |group: &Value| group["topic"] != DOOMED && (group["lag"] != 0 || group["outstanding"] != 0);
        left = groups.into_iter().filter(undone).collect();
        left.is_empty().then_some(())
    })
    .await;
    drained.with_context(|| format!("left: {left:?}"))?;
    tasks.shutdown().await;
    Ok(())
}
