//! Damaged files: the start is refused and touches nothing, or nothing acknowledged is lost.
//!
//! One data directory is made, once with a planned stop and once with a kill; every round damages a copy of it
//! in one place and starts a server on the copy. `CORRUPTION_ROUNDS` and `CORRUPTION_SEED` as in the crash suite.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use mesh_tests::{Client, Seed, Server, Subscribe, event, pause, rounds, sized};
use rand::{RngExt, rngs::StdRng, seq::IndexedRandom};
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::TcpStream;

const SOON: Duration = Duration::from_secs(15);
const EVENTS: usize = 160;
const ACKED: usize = 60;

/// What every round starts from.
struct Original {
    folder: TempDir,
    unfinished: BTreeSet<String>,
    all: BTreeMap<String, Value>,
}

/// Whether a file belongs to a database and holds what matters.
fn is_data(name: &str) -> bool {
    [".log", ".sst", ".blob"].iter().any(|end| name.ends_with(end))
        || name.starts_with("MANIFEST")
        || name == "CURRENT"
}

/// Every data file under a directory with its size.
fn data_files(directory: &Path) -> Result<BTreeMap<PathBuf, u64>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![directory.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            } else if is_data(&entry.file_name().to_string_lossy()) {
                files.insert(entry.path(), entry.metadata()?.len());
            }
        }
    }
    Ok(files)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

fn numbered(number: usize) -> Value {
    let id = format!("event-{number}");
    let mut event = event(&id);
    event["data"] = sized(&id, if number.is_multiple_of(7) { 20_000 } else { 400 });
    event
}

/// Table files of a first life, write-ahead logs of a second one.
async fn original(killed: bool) -> Result<Original> {
    let folder = tempfile::tempdir()?;
    let mut server = Server::new()?.data(folder.path().join("data")).key("eventmesh.storage.partitions", 2);
    let mut all = BTreeMap::new();
    let mut unfinished = BTreeSet::new();
    let worker = Subscribe::load_balance("worker", "t")
        .group("workers")
        .ack_timeout_ms(1_000)
        .backoff_ms(10, 10)
        .max_attempts(0);
    for life in 0..2 {
        let client = server.start().await?;
        if life == 0 {
            client.subscribed(&worker).await?;
        }
        for number in life * EVENTS..(life + 1) * EVENTS {
            let event = numbered(number);
            client.publish("t", &event).await?.expect(202)?;
            unfinished.insert(format!("event-{number}"));
            all.insert(format!("event-{number}"), event);
        }
        let got = client.receive("worker", EVENTS, SOON).await?;
        let acked: Vec<String> = got[..ACKED].iter().map(|delivery| delivery.delivery_id.clone()).collect();
        client.ack_many(&acked).await?.expect(200)?;
        for delivery in &got[..ACKED] {
            unfinished.remove(&delivery.id());
        }
        if life == 1 && killed {
            // The marker of what was synced is written once a second.
            pause(Duration::from_millis(2_200)).await;
            server.kill9();
        } else {
            server.stop().await?;
        }
    }
    Ok(Original { folder, unfinished, all })
}

/// Changes a few bytes of one data file; says what was done.
fn damage(draw: &mut StdRng, data: &Path) -> Result<(PathBuf, String)> {
    let mut by_kind: BTreeMap<(String, &str), Vec<PathBuf>> = BTreeMap::new();
    for (path, size) in data_files(data)? {
        if size > 0 {
            let folder = path.parent().context("a folder")?.display().to_string();
            let name = path.file_name().context("a name")?.to_string_lossy().into_owned();
            let kind = match name.rsplit('.').next().unwrap_or_default() {
                "log" => "write-ahead log",
                "sst" => "table",
                "blob" => "blob",
                _ if name == "CURRENT" => "pointer",
                _ => "manifest",
            };
            by_kind.entry((folder, kind)).or_default().push(path);
        }
    }
    // Every kind of every database is as likely, however many files it has.
    let kinds: Vec<_> = by_kind.into_iter().collect();
    let ((_, kind), files) = kinds.choose(draw).context("there are data files")?;
    let path = files.choose(draw).context("a file")?.clone();
    let mut bytes = std::fs::read(&path)?;
    // A preallocated log ends in zeroes that nobody reads.
    let written = bytes.iter().rposition(|byte| *byte != 0).map_or(1, |last| last + 1);
    let start = draw.random_range(0..written);
    let end = (start + draw.random_range(1..24)).min(written);
    for byte in &mut bytes[start..end] {
        *byte ^= draw.random_range(1..=255_u8);
    }
    std::fs::write(&path, bytes)?;
    let what = format!("{kind} {} ({written} bytes) changed from byte {start} to {end}", path.display());
    Ok((path, what))
}

/// What a start on a damaged directory led to.
enum Came {
    Stopped(i32),
    Serves(Box<Client>),
}

async fn start(server: &mut Server) -> Result<Came> {
    server.spawn()?;
    let client = server.client();
    for _ in 0..3_000 {
        if let Some(status) = server.exited()? {
            return Ok(Came::Stopped(status.code().with_context(|| format!("the start ended by {status}"))?));
        }
        if client.admin_with("GET", "/admin/ready", &[]).await.is_ok_and(|reply| reply.status == 200) {
            return Ok(Came::Serves(Box::new(client)));
        }
        pause(Duration::from_millis(20)).await;
    }
    bail!("a start on a damaged directory neither ended nor got ready in 60 s")
}

/// A refusal names store and path, leaves every file, and nobody listens.
async fn refused_well(
    server: &Server,
    code: i32,
    damaged: &Path,
    before: &BTreeMap<PathBuf, u64>,
) -> Result<()> {
    ensure!(code == 1, "it ended with {code}");
    let folder = damaged.parent().context("a folder")?.display().to_string();
    let log = server.log();
    ensure!(
        log.contains("failed to open RocksDB") && log.contains(&folder),
        "the message does not name store and {folder}"
    );
    let after = data_files(server.data_directory())?;
    for (path, size) in before {
        let now = after.get(path).with_context(|| format!("{} was removed", path.display()))?;
        ensure!(now >= size, "{} shrank from {size} to {now} bytes", path.display());
    }
    for port in [server.traffic_port(), server.admin_port()] {
        ensure!(TcpStream::connect(("127.0.0.1", port)).await.is_err(), "port {port} still listens");
    }
    Ok(())
}

/// Everything unfinished comes, nothing acknowledged does, the log is whole; an answer that reports the damage
/// loses nothing either.
async fn nothing_is_lost(client: &Client, original: &Original) -> Result<()> {
    let mut missing = original.unfinished.clone();
    let end = tokio::time::Instant::now() + SOON;
    while !missing.is_empty() {
        let late = tokio::time::Instant::now() >= end;
        ensure!(!late, "{} unfinished events do not come, among them {:?}", missing.len(), missing.first());
        let reply = client.poll_reply("worker", 1_000, 300).await?;
        if reported(&reply) {
            return Ok(());
        }
        let deliveries: Vec<mesh_tests::Delivery> = reply.expect(200)?.read()?;
        for delivery in deliveries {
            let event = delivery.event();
            ensure!(original.all.get(&delivery.id()) == Some(&event), "{} came changed", delivery.id());
            ensure!(
                original.unfinished.contains(&delivery.id()),
                "{} was acknowledged and came again",
                delivery.id()
            );
            missing.remove(&delivery.id());
        }
    }
    let reply = client.subscribe(&Subscribe::broadcast("auditor", "t").from("earliest")).await?;
    if reported(&reply) {
        return Ok(());
    }
    reply.expect(200)?;
    let mut missing: BTreeSet<&String> = original.all.keys().collect();
    while !missing.is_empty() {
        let reply = client.poll_reply("auditor", 1_000, 1_000).await?;
        if reported(&reply) {
            return Ok(());
        }
        let deliveries: Vec<mesh_tests::Delivery> = reply.expect(200)?.read()?;
        ensure!(
            !deliveries.is_empty(),
            "{} events are no longer in the log, among them {:?}",
            missing.len(),
            missing.first()
        );
        for delivery in deliveries {
            ensure!(
                original.all.get(&delivery.id()) == Some(&delivery.event()),
                "{} came changed",
                delivery.id()
            );
            missing.remove(&delivery.id());
        }
    }
    Ok(())
}

/// An answer that says that something below is broken.
fn reported(reply: &mesh_tests::Reply) -> bool {
    reply.status == 503
        && ["storage_unavailable", "ledger_unavailable", "meta_unavailable"].contains(&reply.code().as_str())
}

async fn damaged_in_many_places(killed: bool) -> Result<()> {
    let seed = Seed::from_environment("CORRUPTION_SEED");
    let original = original(killed).await?;
    let (mut stopped, mut served) = (0, 0);
    let mut failed = Vec::new();
    let rounds = rounds("CORRUPTION_ROUNDS", 16);
    for round in 0..u64::from(rounds) {
        let copy_of = tempfile::tempdir()?;
        let data = copy_of.path().join("data");
        copy(&original.folder.path().join("data"), &data)?;
        let (path, what) = damage(&mut seed.generator(round), &data)?;
        let before = data_files(&data)?;
        let mut server = Server::new()?.data(&data).key("eventmesh.storage.partitions", 2);
        let judged = match start(&mut server).await? {
            Came::Stopped(code) => {
                stopped += 1;
                refused_well(&server, code, &path, &before).await
            }
            Came::Serves(client) => {
                served += 1;
                nothing_is_lost(&client, &original).await
            }
        };
        if let Err(error) = judged {
            failed.push(format!("round {round}: {what}: {error:#}\n{}", server.log_end(6)));
        }
    }
    println!("{stopped} starts were refused, {served} served");
    ensure!(
        failed.is_empty(),
        "CORRUPTION_SEED={}, {} of {rounds}:\n{}",
        seed.0,
        failed.len(),
        failed.join("\n")
    );
    Ok(())
}

#[tokio::test]
async fn damage_after_a_planned_stop_is_refused_or_costs_nothing() -> Result<()> {
    // covers: U65  proves: FM-4
    damaged_in_many_places(false).await
}

#[tokio::test]
async fn damage_after_a_kill_is_refused_or_costs_nothing() -> Result<()> {
    // covers: U65  proves: FM-4
    damaged_in_many_places(true).await
}

#[tokio::test]
async fn a_torn_tail_after_a_kill_does_not_stop_the_start() -> Result<()> {
    // covers: U67
    let folder = tempfile::tempdir()?;
    let data = folder.path().join("data");
    let mut server = Server::new()?.data(&data).key("eventmesh.storage.partitions", 1);
    let client = server.start().await?;
    client
        .subscribed(&Subscribe::load_balance("c", "t").ack_timeout_ms(500).backoff_ms(10, 10).max_attempts(0))
        .await?;
    client.published("t", (0..50).map(event)).await?;
    let got = client.receive("c", 50, SOON).await?;
    client.acked(&got[..25]).await?;
    // What follows is not under the marker yet: it may be torn without being corrupt.
    pause(Duration::from_millis(2_200)).await;
    let late: Vec<String> = got[25..30].iter().map(|delivery| delivery.delivery_id.clone()).collect();
    client.ack_many(&late).await?.expect(200)?;
    server.kill9();
    let newest = data_files(&data.join("offset"))?
        .into_keys()
        .filter(|path| path.extension().is_some_and(|end| end == "log"))
        .max()
        .context("no write-ahead log of the positions")?;
    let bytes = std::fs::read(&newest)?;
    let written = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    std::fs::write(&newest, &bytes[..written.saturating_sub(10)])?;
    let client = server.start().await.context("after the tail was torn")?;
    // Only the last group of acks is lost: those events come again, the others do not.
    let want: BTreeSet<String> = (25..50).map(|number| number.to_string()).collect();
    let mut came = BTreeSet::new();
    while came.len() < 25 {
        let got = client.receive("c", 1, SOON).await?;
        client.acked(&got).await?;
        came.extend(got.iter().map(|delivery| delivery.id()));
    }
    assert_eq!(came, want);
    Ok(())
}
