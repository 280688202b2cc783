//! A disk that is really full: a file system in memory of fixed size, filled until writes are refused.
//!
//! Databases reserve space ahead, so that a full disk shows late: the tests write until they are refused, and
//! only then look. Mounting needs root; where it is refused the tests fail and say so.

use std::{
    fs::File,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use mesh_tests::{
    AckAnswer, Client, Delivery, History, Recorder, Server, Subscribe, event, sized, until, within,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::Instant;

const MIB: usize = 1 << 20;

/// A mounted file system of fixed size; unmounted when it goes out of use.
pub(crate) struct SmallDisk(TempDir);

impl SmallDisk {
    pub(crate) fn mount(mebibytes: u32) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("mesh-disk-").tempdir()?;
        let size = format!("size={mebibytes}m");
        let output =
            Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(folder.path()).output()?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            bail!(
                "the full-disk tests mount a small tmpfs, which needs root (or CAP_SYS_ADMIN); mount said: {said}"
            );
        }
        Ok(Self(folder))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// How much is free.
    pub(crate) fn free_bytes(&self) -> Result<u64> {
        let disk = rustix::fs::statvfs(self.path())?;
        Ok(disk.f_bavail * disk.f_frsize)
    }

    /// A file that takes up to so many bytes, as many as there are.
    pub(crate) fn ballast(&self, name: &str, bytes: usize) -> Result<PathBuf> {
        let path = self.path().join(name);
        let mut file = File::create(&path)?;
        let block = vec![7; 4_096];
        for _ in 0..bytes.div_ceil(block.len()) {
            if file.write_all(&block).is_err() {
                break;
            }
        }
        Ok(path)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("-l").arg(self.path()).output());
    }
}

/// A server on the disk without a watermark, so that the disk itself is the limit.
pub(crate) fn server_on(disk: &SmallDisk) -> Result<Server> {
    Ok(Server::new()?
        .data(disk.path().join("data"))
        .key("eventmesh.storage.lowWatermark", 0)
        // A fifth of so small a volume is soon reached, and then the backlog is dropped as documented.
        .key("eventmesh.storage.backlog.maxBytes", "1GiB")
        .key("eventmesh.storage.partitions", 1))
}

/// Publishes until ten in a row are refused with 507; how many were accepted.
async fn publish_until_full(recorder: &Recorder) -> Result<usize> {
    let (mut accepted, mut refused) = (0, 0);
    for number in 0..100_000 {
        let id = format!("large-{number}");
        let mut event = event(&id);
        event["data"] = sized(&id, 64 << 10);
        match recorder.publish("t", &event).await?.status {
            202 => (accepted, refused) = (accepted + 1, 0),
            507 => refused += 1,
            other => bail!("a publish on a full disk was answered {other}"),
        }
        if refused == 10 {
            return Ok(accepted);
        }
    }
    bail!("{accepted} publishes of 64 KiB fitted on a small disk")
}

/// Fills what the position database reserved: poll and let deliveries run out, until it refuses.
async fn exhaust_the_ledger(recorder: &Recorder) -> Result<()> {
    let end = Instant::now() + Duration::from_secs(90);
    while Instant::now() < end {
        let reply = recorder.client.poll_reply("churn", 1_000, 200).await?;
        match reply.status {
            // Given back with a word: what loses its lock again and again would be handed out alone.
            200 => {
                let given: Vec<Delivery> = reply.read()?;
                let ids: Vec<&str> = given.iter().map(|delivery| delivery.delivery_id.as_str()).collect();
                let back = json!({"deliveryId": ids, "delayMs": 0});
                let reply = recorder.client.post("/events/nack", &back).await?;
                if reply.status != 200 || reply.to_string().contains("\"error\"") {
                    ensure!(
                        ["ledger_unavailable", "storage_full"]
                            .iter()
                            .any(|code| reply.to_string().contains(code)),
                        "{reply}"
                    );
                    return Ok(());
                }
            }
            503 | 507 => {
                ensure!(["ledger_unavailable", "storage_full"].contains(&reply.code().as_str()), "{reply}");
                return Ok(());
            }
            _ => bail!("a poll on a full disk was answered {reply}"),
        }
    }
    bail!("the position database took every write for 90 s on a full disk")
}

#[tokio::test]
async fn a_full_disk_refuses_acks_loses_nothing_and_heals_without_a_restart() -> Result<()> {
    // covers: U66 U117  proves: FM-1
    let history = History::new();
    let disk = SmallDisk::mount(128)?;
    let mut server = server_on(&disk)?;
    let recorder = Recorder::new(server.start().await?, &history);
    recorder.subscribed(&Subscribe::load_balance("c", "t").ack_timeout_ms(600_000).max_attempts(0)).await?;
    // A second group only makes the position database write.
    let churn =
        Subscribe::load_balance("churn", "noise").ack_timeout_ms(60_000).backoff_ms(0, 0).max_attempts(0);
    recorder.client.subscribed(&churn).await?;
    let noise: Vec<_> = (0..1_000).map(event).collect();
    recorder.client.publish_batch("noise", &noise).await?.expect(202)?;
    for number in 0..100 {
        recorder.publish("t", &event(number)).await?.expect(202)?;
    }
    let mut held = Vec::new();
    while held.len() < 100 {
        held.extend(recorder.poll("c", 100, 1_000).await?.into_iter().map(|delivery| delivery.delivery_id));
    }
    for delivery in held.drain(..40) {
        assert_eq!(recorder.ack(&delivery).await?, Some(AckAnswer::Acked));
    }
    let ballast = disk.ballast("ballast", 32 * MIB)?;
    let accepted = publish_until_full(&recorder).await?;
    let rest = disk.ballast("rest", 200 * MIB)?;
    println!("{accepted} large events fitted");
    exhaust_the_ledger(&recorder).await?;
    let (status, down) = health(&recorder.client, "ledger").await?;
    ensure!(status == "DOWN" && down["status"] == "DOWN", "{status}: {down}");
    ensure!(down["reason"].as_str().is_some_and(|reason| reason.contains("space")), "{down}");
    let since = down["sinceMs"].as_u64().context("since when it is down")?;
    recorder.client.admin_with("GET", "/admin/ready", &[]).await?.expect(200)?;

    let pending = async |recorder: &Recorder| -> Result<u64> {
        let clients = recorder.client.admin("/admin/clients?topic=t").await?.expect(200)?.json()?;
        clients[0]["pending"].as_u64().with_context(|| format!("no pending in {clients}"))
    };
    let failures = recorder.client.number("offsetWriteFailures").await?;
    let before = pending(&recorder).await?;
    let mut refused = 0;
    for delivery in held.iter().take(20) {
        match recorder.ack(delivery).await? {
            Some(AckAnswer::Refused) => refused += 1,
            Some(AckAnswer::Acked) => {}
            other => bail!("an ack on a full disk was answered {other:?}"),
        }
    }
    ensure!(refused > 0, "no ack was refused on a full disk");
    let acked = 20 - refused;
    let after = pending(&recorder).await?;
    ensure!(
        after == before - acked,
        "pending was {before}, {acked} acks were answered 200, and it is {after}"
    );
    let risen = recorder.client.number("offsetWriteFailures").await?;
    ensure!(
        failures > 0 || risen > failures,
        "offsetWriteFailures stands at {risen} after {refused} refusals"
    );
    recorder.sample("t").await?;

    // Space comes back; within a minute acks and publishes work again.
    std::fs::remove_file(ballast)?;
    std::fs::remove_file(rest)?;
    let freed = Instant::now();
    until("an ack to be taken after space came back", Duration::from_secs(60), async || {
        let answer = recorder.ack(held.last()?).await.ok()??;
        (answer == AckAnswer::Acked).then_some(())
    })
    .await?;
    let number = std::sync::atomic::AtomicU32::new(0);
    until("a publish to be taken after space came back", Duration::from_secs(60), async || {
        let number = number.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let reply = recorder.publish("t", &event(format!("healed-{number}"))).await.ok()?;
        (reply.status == 202).then_some(())
    })
    .await?;
    println!("healed {:?} after space came back", freed.elapsed());
    let (_, up) = health(&recorder.client, "ledger").await?;
    ensure!(up["status"] == "UP" && up.get("sinceMs").is_none(), "it was down since {since}: {up}");
    // 40 acked before it filled, some while it was full, one when it had healed; the rest is held by the client.
    for delivery in &held[..held.len() - 1] {
        recorder.ack(delivery).await?;
    }
    recorder.drain(&["c"], Duration::from_secs(60)).await.or_else(only_noise_is_pending)?;
    recorder.sample("t").await?;
    history.must_hold("a full disk that healed");

    server.stop().await?;
    let recorder = Recorder::new(server.start().await?, &history);
    let more = recorder.poll("c", 100, 500).await?;
    ensure!(more.is_empty(), "{} came again after a restart", more.len());
    history.must_hold("a full disk that healed, after a restart");
    Ok(())
}

/// The status of the process, and what one component says of itself. Health answers 200 whatever it says.
async fn health(client: &Client, component: &str) -> Result<(String, Value)> {
    let health = client.admin("/admin/health").await?.expect(200)?.json()?;
    Ok((health["status"].as_str().unwrap_or_default().to_owned(), health["components"][component].clone()))
}

/// Draining waits for nothing to be pending; the noise of the other group always is.
fn only_noise_is_pending(error: anyhow::Error) -> Result<()> {
    if error.to_string().contains("still pending") { Ok(()) } else { Err(error) }
}

#[tokio::test]
async fn a_kill_on_a_full_disk_loses_nothing_that_was_accepted() -> Result<()> {
    // covers: U66 U67
    let history = History::new();
    let disk = SmallDisk::mount(96)?;
    let mut server = server_on(&disk)?;
    let recorder = Recorder::new(server.start().await?, &history);
    recorder
        .subscribed(
            &Subscribe::load_balance("c", "t").ack_timeout_ms(1_000).backoff_ms(50, 50).max_attempts(0),
        )
        .await?;
    let ballast = disk.ballast("ballast", 24 * MIB)?;
    publish_until_full(&recorder).await?;
    server.kill9();
    recorder.note("killed on the full disk");
    std::fs::remove_file(ballast)?;
    let recorder = Recorder::new(server.start().await?, &history);
    recorder.publish("t", &event("after")).await?.expect(202)?;
    recorder.drain(&["c"], Duration::from_secs(60)).await?;
    history.must_hold("a kill on a full disk");
    Ok(())
}

#[tokio::test]
async fn below_the_watermark_publishing_stops_and_acknowledging_goes_on() -> Result<()> {
    // covers: U117
    let disk = SmallDisk::mount(160)?;
    let mut server = server_on(&disk)?.key("eventmesh.storage.lowWatermark", "32MiB");
    let client = server.start().await?;
    client.subscribed(&Subscribe::load_balance("c", "t")).await?;
    client.published("t", (0..10).map(event)).await?;
    let held = client.receive("c", 5, Duration::from_secs(10)).await?;
    let ballast = disk.ballast("ballast", 200 * MIB)?;
    let reply = until("a publish to be refused", Duration::from_secs(15), async || {
        client.publish("t", &event("refused")).await.ok().filter(|reply| reply.status != 202)
    });
    reply.await?.expect_error(507, "storage_low")?;
    let topic = client.admin("/admin/topics/t").await?.expect(200)?.json()?;
    assert_eq!(topic["settings"]["backlog"]["maxBytes"], 1 << 30, "as it was told");
    let (status, log) = health(&client, "log").await?;
    ensure!(status == "DEGRADED" && log["status"] == "DEGRADED", "{status}: {log}");
    ensure!(log["reason"].is_string() && log["sinceMs"].is_u64(), "{log}");
    client.admin_with("GET", "/admin/ready", &[]).await?.expect(200)?;
    client.acked(&held).await?;
    assert_eq!(client.receive("c", 5, Duration::from_secs(10)).await?.len(), 5);
    std::fs::remove_file(ballast)?;
    until("a publish to be taken", Duration::from_secs(15), async || {
        client.publish("t", &event("taken")).await.ok().filter(|reply| reply.status == 202)
    })
    .await?;
    assert_eq!(health(&client, "log").await?.0, "UP");
    Ok(())
}

#[tokio::test]
async fn writes_that_fail_while_there_is_space_heal_without_a_restart() -> Result<()> {
    // covers: U66
    let history = History::new();
    let mut server = Server::new()?.key("eventmesh.storage.partitions", 1).bearing_file_limits();
    let recorder = Recorder::new(server.start().await?, &history);
    recorder.subscribed(&Subscribe::load_balance("c", "t").ack_timeout_ms(600_000).max_attempts(0)).await?;
    recorder.client.subscribed(&Subscribe::broadcast("reader", "t").set("ack", "auto")).await?;
    for number in 0..40 {
        recorder.publish("t", &event(number)).await?.expect(202)?;
    }
    let mut held = Vec::new();
    while held.len() < 40 {
        held.extend(recorder.poll("c", 40, 1_000).await?.into_iter().map(|delivery| delivery.delivery_id));
    }
    for delivery in held.drain(..10) {
        assert_eq!(recorder.ack(&delivery).await?, Some(AckAnswer::Acked));
    }

    // From here on no write of any database succeeds, and RocksDB does not resume from such an error by itself.
    server.limit_files(Some(1))?;
    let reply = recorder.publish("t", &event("refused")).await?;
    ensure!([503, 507].contains(&reply.status), "{reply}");
    ensure!(["storage_unavailable", "storage_full"].contains(&reply.code().as_str()), "{reply}");
    for delivery in &held[..5] {
        assert_eq!(recorder.ack(delivery).await?, Some(AckAnswer::Refused));
    }
    let refused = recorder.client.subscribe(&Subscribe::load_balance("late", "t2")).await?;
    ensure!([503, 507].contains(&refused.status), "{refused}");
    // A stream stays open and is told why nothing comes.
    let mut reader = recorder.client.stream("reader").await?;
    let told = within("a comment", Duration::from_secs(20), reader.told("cannot be recorded now")).await??;
    ensure!(told, "the stream ended");
    let (status, down) = health(&recorder.client, "ledger").await?;
    ensure!(status == "DOWN" && down["status"] == "DOWN", "{status}: {down}");
    let process = server.pid();

    server.limit_files(None)?;
    let patience = Duration::from_secs(30);
    until("an ack to be taken", patience, async || {
        (recorder.ack(&held[0]).await.ok()?? == AckAnswer::Acked).then_some(())
    })
    .await?;
    let number = std::sync::atomic::AtomicU32::new(0);
    until("a publish to be taken", patience, async || {
        let number = number.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let reply = recorder.publish("t", &event(format!("healed-{number}"))).await.ok()?;
        (reply.status == 202).then_some(())
    })
    .await?;
    until("a subscribe to be taken", patience, async || {
        let reply = recorder.client.subscribe(&Subscribe::load_balance("late", "t2")).await.ok()?;
        (reply.status == 200).then_some(())
    })
    .await?;
    until("the ledger to be up", patience, async || {
        (health(&recorder.client, "ledger").await.ok()?.1["status"] == "UP").then_some(())
    })
    .await?;
    assert_eq!(server.pid(), process, "it is the same process");
    for number in 0..40 {
        let came = within("an event on the stream", patience, reader.next()).await??;
        ensure!(came.is_some(), "the stream ended at {number}");
    }
    for delivery in &held[1..] {
        assert_eq!(recorder.ack(delivery).await?, Some(AckAnswer::Acked));
    }
    recorder.drain(&["c"], Duration::from_secs(60)).await?;
    recorder.sample("t").await?;
    history.must_hold("writes that failed while there was space");

    server.kill9();
    let recorder = Recorder::new(server.start().await?, &history);
    let more = recorder.poll("c", 100, 500).await?;
    ensure!(more.is_empty(), "{} came again after a kill", more.len());
    history.must_hold("writes that failed while there was space, after a kill");
    Ok(())
}

#[tokio::test]
async fn without_keys_a_backlog_may_take_a_fifth_of_the_volume_and_a_twentieth_stays_free() -> Result<()> {
    // shows: eventmesh.storage.backlog.maxBytes eventmesh.storage.lowWatermark
    let disk = SmallDisk::mount(160)?;
    let mut server = Server::new()?.data(disk.path().join("data"));
    let client = server.start().await?;
    client.published("t", [event(1)]).await?;
    let topic = client.admin("/admin/topics/t").await?.expect(200)?.json()?;
    assert_eq!(topic["settings"]["backlog"]["maxBytes"], 160 * MIB / 5);
    // More than a twentieth, which is 8 MiB, and then less.
    let room = |left: u64| Ok::<_, anyhow::Error>(usize::try_from(disk.free_bytes()?.saturating_sub(left))?);
    let mut ballast = vec![disk.ballast("most", room(16 << 20)?)?];
    client.published("t", [event(2)]).await?;
    ballast.push(disk.ballast("rest", room(5 << 20)?)?);
    let reply = until("a publish to be refused", Duration::from_secs(15), async || {
        client.publish("t", &event("refused")).await.ok().filter(|reply| reply.status != 202)
    });
    reply.await?.expect_error(507, "storage_low")?;
    for file in ballast {
        std::fs::remove_file(file)?;
    }
    Ok(())
}
