//! A data directory with two lives in it, and ways to damage a copy of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result};
use mesh_tests::{Server, Subscribe, event, pause, sized};
use rand::{RngExt, rngs::StdRng, seq::IndexedRandom};
use serde_json::Value;
use tempfile::TempDir;

const SOON: Duration = Duration::from_secs(15);
const EVENTS: usize = 160;
const ACKED: usize = 60;

/// What every round starts from.
pub(crate) struct Original {
    pub(crate) folder: TempDir,
    pub(crate) unfinished: BTreeSet<String>,
    pub(crate) all: BTreeMap<String, Value>,
}

/// Whether a file belongs to a database and holds what matters.
fn is_data(name: &str) -> bool {
    [".log", ".sst", ".blob"].iter().any(|end| name.ends_with(end))
        || name.starts_with("MANIFEST")
        || name == "CURRENT"
}

/// Every data file under a directory with its size.
pub(crate) fn data_files(directory: &Path) -> Result<BTreeMap<PathBuf, u64>> {
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

pub(crate) fn copy(from: &Path, to: &Path) -> Result<()> {
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
pub(crate) async fn original(killed: bool) -> Result<Original> {
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
pub(crate) fn damage(draw: &mut StdRng, data: &Path) -> Result<(PathBuf, String)> {
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
