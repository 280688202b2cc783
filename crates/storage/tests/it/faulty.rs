//! The faulty wrapper does what its script says, and nothing when it has none.

use std::sync::Arc;

use mesh_base::{BackendErrorKind, Clock, Signals};
use mesh_frame::Offset;
use mesh_storage::{
    Memory, StoragePlugin, Tail,
    conformance::{Rig, Subject},
    faulty::{Fault, Faulty},
};

struct Scripted(parking_lot::Mutex<Option<Arc<Faulty>>>);

impl Subject for Scripted {
    fn open(&self, clock: Clock, tail: Arc<Tail>) -> Arc<dyn StoragePlugin> {
        let faulty = Arc::new(Faulty::new(Arc::new(Memory::new(
            clock,
            mesh_base::Chance::system(),
            tail,
            &Signals::new(),
        ))));
        *self.0.lock() = Some(faulty.clone());
        faulty
    }
}

mesh_storage::storage_conformance!(Scripted(parking_lot::Mutex::new(None)));

#[tokio::test]
async fn a_failed_append_stores_nothing_and_a_lost_answer_does() {
    let subject = Scripted(parking_lot::Mutex::new(None));
    let rig = Rig::open(&subject, 1 << 20);
    let faulty = subject.0.lock().clone().expect("opened");
    let partition = rig.topic().await.partitions()[0].clone();
    faulty.fail_appends([Fault::Fail(BackendErrorKind::Full), Fault::LoseAnswer]);
    let event = || mesh_frame::EventBuilder::new("1", "/s", "t").build().expect("an event");
    let append = || {
        let items = vec![mesh_storage::AppendItem { partition: partition.clone(), event: event() }];
        rig.storage.appended(rig.storage.append(items))
    };
    assert_eq!(append().await.expect_err("by order").kind(), BackendErrorKind::Full);
    assert_eq!(partition.end(), Offset(0));
    assert_eq!(append().await.expect_err("by order").kind(), BackendErrorKind::Unavailable);
    assert_eq!(partition.end(), Offset(1));
    assert_eq!(append().await.expect("no fault left").as_slice(), [Offset(1)]);
}
