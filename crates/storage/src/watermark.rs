//! The disk watermark: publishing stops while there is still room for acks and deliveries.

use std::{
    path::PathBuf,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

/// Watches the free space of the volume that holds a folder.
#[derive(Debug)]
pub struct Watermark {
    folder: PathBuf,
    /// Free bytes below which publishing stops; `None`: the smaller of 5 % of the volume and 1 GiB.
    fixed: Option<u64>,
    low: AtomicBool,
    total: AtomicU64,
}

impl Watermark {
    /// Watches the volume of `folder`; the first look is taken now.
    pub fn new(folder: PathBuf, fixed: Option<u64>) -> Self {
        let watermark = Self { folder, fixed, low: AtomicBool::new(false), total: AtomicU64::new(u64::MAX) };
        watermark.look();
        watermark
    }

    /// Whether publishing should stop.
    pub fn is_low(&self) -> bool {
        self.low.load(Ordering::Acquire)
    }

    /// The size of the volume at the last look.
    pub fn total_bytes(&self) -> u64 {
        self.total.load(Ordering::Acquire)
    }

    /// Looks again. A volume that cannot be asked keeps its last state.
    pub fn look(&self) {
        let Ok(volume) = rustix::fs::statvfs(&self.folder) else { return };
        let free = volume.f_bavail.saturating_mul(volume.f_frsize);
        let total = volume.f_blocks.saturating_mul(volume.f_frsize);
        self.total.store(total, Ordering::Release);
        let mark = self.fixed.unwrap_or_else(|| default_mark(total));
        let low = free < mark;
        if low != self.low.swap(low, Ordering::AcqRel) {
            if low {
                tracing::error!(folder = %self.folder.display(), free, mark, "disk space is low: publishing stops");
            } else {
                tracing::info!(folder = %self.folder.display(), free, mark, "disk space is back: publishing goes on");
            }
        }
    }
}

/// The mark of a volume of that size.
fn default_mark(total: u64) -> u64 {
    (total / 20).min(1 << 30)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_mark_it_is_the_smaller_of_a_twentieth_and_a_gibibyte() {
        for (total, expected) in
            [(0, 0), (100 << 20, 5 << 20), (20 << 30, 1 << 30), (21 << 30, 1 << 30), (8 << 40, 1 << 30)]
        {
            assert_eq!(default_mark(total), expected, "{total}");
        }
    }
}
