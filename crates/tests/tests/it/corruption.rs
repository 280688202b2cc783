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
use mesh_tests::{Client, Seed, Server, Subscribe, event, pause, rounds};
use tokio::net::TcpStream;

use crate::damage::{Original, copy, damage, data_files, original};

const SOON: Duration = Duration::from_secs(15);

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
    let folder = damaged.parent().context("a folder")?;
    let log = server.log();
    // What is found on opening says so; what is found on reading just after it names the file.
    let named = log.contains(&folder.display().to_string()) && log.to_lowercase().contains("corrupt");
    ensure!(named, "the message does not name store and {}", folder.display());
    // A start that got as far as opening a database may have turned a sound log into tables and written the
    // manifest anew; that wipes nothing.
    let renewed = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        path != damaged && (name.ends_with(".log") || name.starts_with("MANIFEST") || name == "CURRENT")
    };
    let after = data_files(server.data_directory())?;
    for (path, size) in before.iter().filter(|(path, _)| !renewed(path)) {
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

/// Starts a server on a copy of `original` that `spoil` has damaged, and judges what came. `spoil` gives the
/// file it damaged and what it did to it.
async fn round(
    original: &Original,
    spoil: impl FnOnce(&Path) -> Result<(PathBuf, String)>,
) -> Result<(&'static str, Result<()>)> {
    let folder = tempfile::tempdir()?;
    let data = folder.path().join("data");
    copy(&original.folder.path().join("data"), &data)?;
    let (path, what) = spoil(&data)?;
    let before = data_files(&data)?;
    let mut server = Server::new()?.data(&data).key("eventmesh.storage.partitions", 2);
    let (end, judged) = match start(&mut server).await {
        Ok(Came::Stopped(code)) => ("refused", refused_well(&server, code, &path, &before).await),
        Ok(Came::Serves(client)) => ("served", nothing_is_lost(&client, original).await),
        Err(error) => ("neither", Err(error)),
    };
    Ok((
        end,
        judged.map_err(|error| anyhow::anyhow!("{what}: {error:#}; the log ends\n{}", server.log_end(4))),
    ))
}

async fn damaged_in_many_places(killed: bool) -> Result<()> {
    let seed = Seed::from_environment("CORRUPTION_SEED");
    let original = original(killed).await?;
    let mut ends = BTreeMap::new();
    let mut failed = Vec::new();
    let rounds = rounds("CORRUPTION_ROUNDS", 16);
    for number in 0..u64::from(rounds) {
        let (end, judged) = round(&original, |data| damage(&mut seed.generator(number), data)).await?;
        *ends.entry(end).or_insert(0) += 1;
        if let Err(error) = judged {
            failed.push(format!("round {number}: {error:#}"));
        }
    }
    println!("{ends:?}");
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
async fn a_manifest_that_ends_early_is_refused_or_costs_nothing() -> Result<()> {
    // covers: U65  proves: FM-4
    let original = original(true).await?;
    let mut failed = Vec::new();
    for database in ["log", "offset", "meta"] {
        for percent in [40, 60, 80, 95] {
            let cut = |data: &Path| {
                let manifest = data_files(&data.join(database))?
                    .into_keys()
                    .filter(|path| {
                        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("MANIFEST"))
                    })
                    .max()
                    .context("a manifest")?;
                let bytes = std::fs::read(&manifest)?;
                let kept = bytes.len() * percent / 100;
                std::fs::write(&manifest, &bytes[..kept])?;
                let what = format!("{} of {} bytes was cut to {kept}", manifest.display(), bytes.len());
                Ok((manifest, what))
            };
            if let (_, Err(error)) = round(&original, cut).await? {
                failed.push(format!("{database} {percent} %: {error:#}"));
            }
        }
    }
    ensure!(failed.is_empty(), "{} of 12:\n{}", failed.len(), failed.join("\n"));
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
    // What follows is not under the marker yet: it may be torn without being corrupt. The marker moves once a second:
    // when it moved between ack and kill the start is refused, and it is tried again with what comes next.
    pause(Duration::from_millis(2_200)).await;
    let mut done = 25;
    let client = loop {
        ensure!(done < 50, "the marker moved between ack and kill every time");
        let late: Vec<String> =
            got[done..done + 5].iter().map(|delivery| delivery.delivery_id.clone()).collect();
        server.client().ack_many(&late).await?.expect(200)?;
        server.kill9();
        let newest = data_files(&data.join("offset"))?
            .into_keys()
            .filter(|path| path.extension().is_some_and(|end| end == "log"))
            .max()
            .context("no write-ahead log of the positions")?;
        let bytes = std::fs::read(&newest)?;
        let written = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        std::fs::write(&newest, &bytes[..written.saturating_sub(10)])?;
        match server.start().await {
            Ok(client) => break client,
            Err(error) if error.to_string().contains("could be recovered") => {
                println!("refused: the marker had moved");
                std::fs::write(&newest, &bytes)?;
                server.start().await.context("with the whole tail again")?;
                done += 5;
            }
            Err(error) => return Err(error.context("after the tail was torn")),
        }
    };
    // Only the last group of acks is lost: those events come again, the others do not.
    let want: BTreeSet<String> = got[done..].iter().map(|delivery| delivery.id()).collect();
    let mut came = BTreeSet::new();
    while came.len() < want.len() {
        let got = client.receive("c", 1, SOON).await?;
        client.acked(&got).await?;
        came.extend(got.iter().map(|delivery| delivery.id()));
    }
    assert_eq!(came, want);
    Ok(())
}
