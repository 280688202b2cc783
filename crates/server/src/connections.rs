//! Every open connection of a server, so that all of them can be told to end.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use mesh_base::Gauge;
use parking_lot::Mutex;

use crate::watch::Watch;

/// The open connections.
#[derive(Debug)]
pub(crate) struct Connections {
    next: AtomicU64,
    open: Mutex<HashMap<u64, Arc<Watch>>>,
    gauge: Gauge,
}

/// A connection on the list; dropping it takes it off.
#[derive(Debug)]
pub(crate) struct Listed {
    connections: Arc<Connections>,
    number: u64,
}

impl Connections {
    pub(crate) fn new(gauge: Gauge) -> Arc<Self> {
        Arc::new(Self { next: AtomicU64::new(0), open: Mutex::default(), gauge })
    }

    /// Lists a connection.
    pub(crate) fn add(self: &Arc<Self>, watch: &Arc<Watch>) -> Listed {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.open.lock().insert(number, watch.clone());
        self.gauge.inc();
        Listed { connections: self.clone(), number }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.open.lock().len()
    }

    /// Tells all of them to end: after what they are answering, or now.
    pub(crate) fn end_all(&self, now: bool) {
        let open: Vec<Arc<Watch>> = self.open.lock().values().cloned().collect();
        for watch in open {
            watch.end(now);
        }
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.connections.open.lock().remove(&self.number);
        self.connections.gauge.dec();
    }
}
