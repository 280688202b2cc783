//! A wrapper that fails as a test tells it to: before a write happens, after it, and from then on.
//!
//! Writes are counted, so that a sweep can fail each of them in turn. There is one order at a time: a
//! newer one takes its place.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use mesh_base::{BackendError, BackendErrorKind};
use mesh_frame::Offset;
use mesh_rocks::Durability;
use parking_lot::{Mutex, MutexGuard};

use super::{Cursor, DeliveryStateStore, LaneKey, OffsetStore, PositionBatch, PositionStore, Row};

/// What becomes of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteFault {
    /// It does not happen and fails with this kind.
    Refused(BackendErrorKind),
    /// It happens, and its answer is lost: the caller is told `Unavailable`.
    AnswerLost,
}

/// A driver with scripted faults around another one.
pub struct FaultyPositions {
    inner: Arc<dyn PositionStore>,
    writes: AtomicUsize,
    script: Mutex<Script>,
    held: Mutex<()>,
}

#[derive(Default)]
struct Script {
    order: Option<Order>,
    /// Nothing but reads succeeds.
    cut_off: bool,
    /// Reads fail too.
    unreadable: bool,
    /// How many tries to heal fail, and with what.
    failing_heals: Option<(usize, BackendErrorKind)>,
    at_cut: Option<Box<dyn FnOnce() + Send>>,
}

/// Which write fails.
struct Order {
    spared: usize,
    fault: WriteFault,
    /// Whether nothing succeeds from then on.
    cuts_off: bool,
}

impl FaultyPositions {
    /// A wrapper that does nothing wrong yet.
    pub fn new(inner: Arc<dyn PositionStore>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            writes: AtomicUsize::new(0),
            script: Mutex::default(),
            held: Mutex::default(),
        })
    }

    /// The driver behind the faults: what is there for good.
    pub fn inner(&self) -> &dyn PositionStore {
        &*self.inner
    }

    /// While it is kept, writes wait.
    pub fn hold(&self) -> MutexGuard<'_, ()> {
        self.held.lock()
    }

    /// How many writes were asked for, those that failed included.
    pub fn writes(&self) -> usize {
        self.writes.load(Ordering::SeqCst)
    }

    /// The next `spared` writes work, the one after them meets the fault, and later ones work again.
    pub fn fail_after(&self, spared: usize, fault: WriteFault) {
        self.script.lock().order = Some(Order { spared, fault, cuts_off: false });
    }

    /// The next `spared` writes work. The one after them meets the fault, and from then on it is cut off
    /// ([`FaultyPositions::cut_off`]).
    pub fn cut_after(&self, spared: usize, fault: WriteFault) {
        self.script.lock().order = Some(Order { spared, fault, cuts_off: true });
    }

    /// What is called, once, when an order of [`FaultyPositions::cut_after`] is met, before its write happens or not.
    pub fn at_cut(&self, call: impl FnOnce() + Send + 'static) {
        self.script.lock().at_cut = Some(Box::new(call));
    }

    /// Whether the order of a fault has not been met yet.
    pub fn awaits_fault(&self) -> bool {
        self.script.lock().order.is_some()
    }

    /// While on, every write, every sync and every try to heal fails with `Unavailable`. Reads go on.
    pub fn cut_off(&self, on: bool) {
        self.script.lock().cut_off = on;
    }

    /// Whether it is cut off.
    pub fn is_cut_off(&self) -> bool {
        self.script.lock().cut_off
    }

    /// While on, every read fails with `Unavailable`.
    pub fn fail_reads(&self, on: bool) {
        self.script.lock().unreadable = on;
    }

    /// The next `count` tries to heal fail with `kind`.
    pub fn fail_heals(&self, count: usize, kind: BackendErrorKind) {
        self.script.lock().failing_heals = Some((count, kind));
    }

    fn fault(&self) -> Result<Option<WriteFault>, BackendError> {
        let (order, call) = {
            let mut script = self.script.lock();
            if script.cut_off {
                return Err(failed(BackendErrorKind::Unavailable, "writing"));
            }
            match script.order.as_mut() {
                None => return Ok(None),
                Some(order) if order.spared > 0 => {
                    order.spared -= 1;
                    return Ok(None);
                }
                Some(_) => {}
            }
            let order = script.order.take().expect("it is there");
            script.cut_off = order.cuts_off;
            let call = if order.cuts_off { script.at_cut.take() } else { None };
            (order, call)
        };
        if let Some(call) = call {
            call();
        }
        Ok(Some(order.fault))
    }

    fn readable(&self) -> Result<(), BackendError> {
        if self.script.lock().unreadable {
            return Err(failed(BackendErrorKind::Unavailable, "reading"));
        }
        Ok(())
    }
}

fn failed(kind: BackendErrorKind, operation: &'static str) -> BackendError {
    BackendError::new(kind, "faulty positions", operation).with_source("by order of the test")
}

impl PositionStore for FaultyPositions {
    fn commit(&self, batches: &[PositionBatch], durability: Durability) -> Result<(), BackendError> {
        self.writes.fetch_add(1, Ordering::SeqCst);
        drop(self.held.lock());
        match self.fault()? {
            None => self.inner.commit(batches, durability),
            Some(WriteFault::Refused(kind)) => Err(failed(kind, "writing")),
            Some(WriteFault::AnswerLost) => {
                self.inner.commit(batches, durability)?;
                Err(failed(BackendErrorKind::Unavailable, "writing"))
            }
        }
    }

    fn sync(&self) -> Result<(), BackendError> {
        if self.is_cut_off() {
            return Err(failed(BackendErrorKind::Unavailable, "syncing"));
        }
        self.inner.sync()
    }

    fn heal(&self) -> Result<(), BackendError> {
        {
            let mut script = self.script.lock();
            if script.cut_off {
                return Err(failed(BackendErrorKind::Unavailable, "healing"));
            }
            if let Some((left, kind)) = script.failing_heals.as_mut().filter(|(left, _)| *left > 0) {
                *left -= 1;
                return Err(failed(*kind, "healing"));
            }
        }
        self.inner.heal()
    }

    fn offsets(&self) -> &dyn OffsetStore {
        self
    }

    fn deliveries(&self) -> &dyn DeliveryStateStore {
        self
    }
}

impl OffsetStore for FaultyPositions {
    fn stage(&self, batch: &mut PositionBatch, lane: LaneKey, cursor: Cursor) {
        self.inner.offsets().stage(batch, lane, cursor);
    }

    fn cursor(&self, lane: LaneKey) -> Result<Option<Cursor>, BackendError> {
        self.readable()?;
        self.inner.offsets().cursor(lane)
    }

    fn cursors(&self) -> Result<Vec<(LaneKey, Cursor)>, BackendError> {
        self.readable()?;
        self.inner.offsets().cursors()
    }
}

impl DeliveryStateStore for FaultyPositions {
    fn stage_put(&self, batch: &mut PositionBatch, lane: LaneKey, offset: Offset, row: Row) {
        self.inner.deliveries().stage_put(batch, lane, offset, row);
    }

    fn stage_delete(&self, batch: &mut PositionBatch, lane: LaneKey, offset: Offset) {
        self.inner.deliveries().stage_delete(batch, lane, offset);
    }

    fn rows(&self, lane: LaneKey) -> Result<Vec<(Offset, Row)>, BackendError> {
        self.readable()?;
        self.inner.deliveries().rows(lane)
    }

    fn lanes(&self) -> Result<Vec<(LaneKey, u64)>, BackendError> {
        self.readable()?;
        self.inner.deliveries().lanes()
    }
}
