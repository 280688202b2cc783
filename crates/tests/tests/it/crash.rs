//! `kill -9` at random moments under load, many rounds on one directory, and one judgement over all of them.
//!
//! `CRASH_ROUNDS` sets the number of rounds, `CRASH_SEED` replays the draws of a run: which events carry which
//! key, who acknowledges what and when, how long each round lasts. The server's timing is its own.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result};
use mesh_tests::{Delivery, History, Recorder, Seed, Server, Subscribe, event, keyed, pause, rounds};
use rand::{RngExt, rngs::StdRng};
use serde_json::Value;
use tokio::task::JoinSet;

/// Rounds on one topic: its dead letters must fit into what a browse shows.
const ROUNDS_A_TOPIC: u64 = 40;
const WORKERS: [&str; 3] = ["worker-1", "worker-2", "worker-3"];
const EVERYTHING: &str = "everything";
const ACK_TIMEOUT: Duration = Duration::from_millis(500);

/// What one round's tasks share.
#[derive(Clone)]
struct Load {
    recorder: Recorder,
    seed: Seed,
    round: u64,
    topic: String,
    ended: Arc<AtomicBool>,
    number: Arc<AtomicU64>,
}

impl Load {
    fn goes_on(&self) -> bool {
        !self.ended.load(Ordering::Relaxed)
    }

    fn generator(&self, part: u64) -> StdRng {
        self.seed.generator(self.round * 100 + part)
    }

    fn event(&self, draw: &mut StdRng, key: Option<u32>) -> Value {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        // About one in fifty is poison: nobody of the group ever acknowledges it.
        let id = if draw.random_bool(0.02) { format!("poison-{number}") } else { format!("event-{number}") };
        key.map_or_else(|| event(&id), |key| keyed(&id, &format!("key-{key}")))
    }

    /// Publishes one by one; an error is the kill, which ends the round.
    async fn publish(self, part: u64, with_keys: bool) {
        let mut draw = self.generator(part);
        while self.goes_on() {
            let key = with_keys.then(|| u32::try_from(part).unwrap_or(0) * 10 + draw.random_range(0..3));
            let event = self.event(&mut draw, key);
            if self.recorder.publish(&self.topic, &event).await.is_err() {
                return;
            }
            pause(Duration::from_millis(draw.random_range(2..12))).await;
        }
    }

    async fn publish_batches(self, part: u64) {
        let mut draw = self.generator(part);
        while self.goes_on() {
            let count = draw.random_range(1..12);
            let key = |draw: &mut StdRng| draw.random_bool(0.5).then(|| 90 + draw.random_range(0..2));
            let events: Vec<Value> = (0..count)
                .map(|_| {
                    let key = key(&mut draw);
                    self.event(&mut draw, key)
                })
                .collect();
            if self.recorder.publish_batch(&self.topic, &events).await.is_err() {
                return;
            }
            pause(Duration::from_millis(draw.random_range(20..60))).await;
        }
    }

    /// Polls and acknowledges most of it at once, some late, some in one request, some never.
    async fn consume(self, client: &'static str, part: u64) {
        let mut draw = self.generator(part);
        let mut late = JoinSet::new();
        while self.goes_on() {
            let Ok(deliveries) = self.recorder.poll(client, draw.random_range(1..40), 200).await else {
                break;
            };
            let mut together = Vec::new();
            for delivery in deliveries {
                match fate(&mut draw, client, &delivery) {
                    Fate::Now => {
                        if self.recorder.ack(&delivery.delivery_id).await.is_err() {
                            return;
                        }
                    }
                    Fate::Together => together.push(delivery.delivery_id),
                    Fate::Never => {}
                    Fate::Late(wait) => {
                        let recorder = self.recorder.clone();
                        late.spawn(async move {
                            pause(wait).await;
                            drop(recorder.ack(&delivery.delivery_id).await);
                        });
                    }
                }
            }
            if !together.is_empty() && self.recorder.ack_many(&together).await.is_err() {
                break;
            }
        }
        // Whoever was late must not acknowledge in the next round with this round's connection.
        late.shutdown().await;
    }

    async fn sample(self) {
        while self.goes_on() && self.recorder.sample(&self.topic).await.is_ok() {
            pause(Duration::from_millis(50)).await;
        }
    }
}

enum Fate {
    Now,
    Together,
    Late(Duration),
    Never,
}

fn fate(draw: &mut StdRng, client: &str, delivery: &Delivery) -> Fate {
    let poison = delivery.id().starts_with("poison") && client != EVERYTHING;
    match draw.random_range(0..100) {
        _ if poison => Fate::Never,
        0..45 => Fate::Now,
        45..80 => Fate::Together,
        80..90 => Fate::Late(ACK_TIMEOUT.mul_f64(draw.random_range(0.1..1.6))),
        _ => Fate::Never,
    }
}

#[tokio::test]
async fn nothing_accepted_is_lost_and_nothing_finished_comes_back_over_thirty_kills() -> Result<()> {
    // covers: U07 U61  proves: FM-2
    let seed = Seed::from_environment("CRASH_SEED");
    let rounds = rounds("CRASH_ROUNDS", 30);
    let history = History::new();
    let number = Arc::new(AtomicU64::new(0));
    let mut server = Server::new()?.key("eventmesh.storage.partitions", 3);
    let mut moments = seed.generator(u64::MAX);
    for round in 0..u64::from(rounds) {
        let client =
            server.start().await.with_context(|| format!("start of round {round}, seed {}", seed.0))?;
        let recorder = Recorder::new(client, &history);
        let topic = topic(round);
        if round.is_multiple_of(ROUNDS_A_TOPIC) {
            for worker in WORKERS {
                recorder.subscribed(&quick(Subscribe::load_balance(worker, &topic).group("workers"))).await?;
            }
            recorder.subscribed(&quick(Subscribe::broadcast(EVERYTHING, &topic))).await?;
        }
        recorder.browse(&topic).await?;
        let ended = Arc::new(AtomicBool::new(false));
        let load = Load {
            recorder: recorder.clone(),
            seed,
            round,
            topic,
            ended: ended.clone(),
            number: number.clone(),
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(load.clone().publish(0, true));
        tasks.spawn(load.clone().publish(1, true));
        tasks.spawn(load.clone().publish(2, false));
        tasks.spawn(load.clone().publish_batches(3));
        for (part, client) in WORKERS.into_iter().chain([EVERYTHING]).enumerate() {
            tasks.spawn(load.clone().consume(client, 10 + part as u64));
        }
        tasks.spawn(load.sample());
        pause(Duration::from_millis(moments.random_range(300..1_400))).await;
        server.kill9();
        ended.store(true, Ordering::Relaxed);
        recorder.note(format!("killed at the end of round {round}"));
        while let Some(task) = tasks.join_next().await {
            task.context("a task of the load panicked")?;
        }
    }
    let recorder = Recorder::new(server.start().await?, &history);
    let everybody: Vec<&str> = WORKERS.into_iter().chain([EVERYTHING]).collect();
    let topics: BTreeSet<String> = (0..u64::from(rounds)).map(topic).collect();
    for topic in &topics {
        recorder.sample(topic).await?;
    }
    recorder.drain(&everybody, Duration::from_secs(60)).await.with_context(|| format!("seed {}", seed.0))?;
    for topic in &topics {
        recorder.sample(topic).await?;
        recorder.browse(topic).await?;
    }
    println!("{} events, {} facts", number.load(Ordering::Relaxed), history.facts().len());
    history.must_hold(&format!("CRASH_SEED={} CRASH_ROUNDS={rounds}", seed.0));
    server.stop().await
}

/// The topic that a round's load goes to.
fn topic(round: u64) -> String {
    format!("orders-{}", round / ROUNDS_A_TOPIC)
}

/// Settings under which everything that can happen to a delivery happens within a round.
fn quick(subscribe: Subscribe) -> Subscribe {
    subscribe.ack_timeout_ms(500).backoff_ms(50, 200).max_attempts(4)
}
