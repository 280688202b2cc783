//! What a server process used, from the system's own accounts.

use anyhow::Context as _;
use serde::Serialize;

/// The use of a process at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    /// Processor time since it started, in microseconds.
    cpu_us: u64,
    /// Memory, in KiB.
    rss_kib: u64,
    /// Bytes it caused to be written to disks.
    disk_bytes: u64,
}

/// The use of a process over a load.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Used {
    /// Processor time an event.
    pub(crate) cpu_us_per_event: f64,
    /// Memory at the end.
    pub(crate) rss_kib: u64,
    /// Bytes written to disks an event, everything included: log, memtable flushes, compaction.
    pub(crate) disk_bytes_per_event: f64,
}

impl Usage {
    /// The use of `pid` now.
    pub(crate) fn of(pid: u32) -> anyhow::Result<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).context("no such process")?;
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks = |place: usize| fields.get(place).and_then(|field| field.parse::<u64>().ok());
        let used = ticks(11).zip(ticks(12)).context("an unreadable stat")?;
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).context("no such process")?;
        let rss_kib = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .and_then(|rest| rest.trim().trim_end_matches("kB").trim().parse().ok())
            .context("an unreadable status")?;
        let io = std::fs::read_to_string(format!("/proc/{pid}/io")).context("no such process")?;
        let disk_bytes = io
            .lines()
            .find_map(|line| line.strip_prefix("write_bytes:"))
            .and_then(|rest| rest.trim().parse().ok())
            .context("an unreadable io")?;
        // A tick is a hundredth of a second on every Linux this runs on.
        Ok(Self { cpu_us: (used.0 + used.1) * 10_000, rss_kib, disk_bytes })
    }

    /// Memory, in KiB.
    pub(crate) fn rss_kib(self) -> u64 {
        self.rss_kib
    }

    /// What was used since `before`, spread over events.
    pub(crate) fn since(self, before: Self, events: u64) -> Used {
        Used {
            cpu_us_per_event: (self.cpu_us - before.cpu_us) as f64 / events.max(1) as f64,
            rss_kib: self.rss_kib,
            disk_bytes_per_event: (self.disk_bytes - before.disk_bytes) as f64 / events.max(1) as f64,
        }
    }
}
