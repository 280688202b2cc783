//! Builders, and waiting for a condition.

use std::{sync::Arc, time::Duration};

use mesh_base::{Chance, Clock, Signals};
use mesh_frame::{
    ClientId, Epoch, GroupName, Incarnation, InstanceId, Offset, PartitionId, SubscriptionId, TaskId,
    TenantId, TopicName,
};
use mesh_meta::{
    LocalMeta, LocalMetaSettings, MetaDriver, MetaStore, faulty::FaultyMeta, memory::MemoryMeta,
};
use mesh_rocks::Machine;
use mesh_state::{
    positions::EndReason,
    shared::{
        AckMode, DeadLetter, DeadLetterBody, GroupId, GroupKind, GroupRecord, GroupSettings,
        SubscriptionRecord, TaskRecord, TaskStatus, Unknown, Writer,
    },
};
use serde_json::{Value, json};

pub(crate) fn store(driver: Arc<dyn MetaDriver>) -> MetaStore {
    MetaStore::new(driver, Clock::system(), &Signals::new()).with_time_limit(Duration::from_secs(2))
}

pub(crate) fn memory() -> MetaStore {
    store(Arc::new(MemoryMeta::new()))
}

pub(crate) fn faulty() -> (MetaStore, Arc<FaultyMeta>) {
    let driver = FaultyMeta::new(Arc::new(MemoryMeta::new()));
    (store(driver.clone()), driver)
}

pub(crate) fn local(folder: &tempfile::TempDir) -> MetaStore {
    let settings = LocalMetaSettings::at(folder.path().join("meta"));
    store(Arc::new(LocalMeta::open(&settings, &Machine::default()).expect("opens")))
}

/// Every backend a contract is checked on. The folder has to outlive the stores.
pub(crate) fn backends(folder: &tempfile::TempDir) -> [(&'static str, MetaStore); 3] {
    [("memory", memory()), ("faulty without faults", faulty().0), ("local", local(folder))]
}

pub(crate) fn instance(name: &str) -> InstanceId {
    InstanceId::new(name).expect("legal")
}

pub(crate) fn writer(name: &str) -> Writer {
    Writer::new(&instance(name), &Chance::system())
}

pub(crate) fn client(name: &str) -> ClientId {
    ClientId::new(name).expect("legal")
}

pub(crate) fn topic(name: &str) -> TopicName {
    TopicName::new(name).expect("legal")
}

pub(crate) fn tenant(name: &str) -> TenantId {
    TenantId::new(name).expect("legal")
}

pub(crate) fn group_of(tenant_name: &str, topic_name: &str, name: &str) -> GroupId {
    GroupId {
        tenant: tenant(tenant_name),
        topic: topic(topic_name),
        kind: GroupKind::LoadBalance,
        name: GroupName::new(name).expect("legal"),
    }
}

pub(crate) fn group(name: &str) -> GroupId {
    group_of("acme", "orders", name)
}

pub(crate) fn group_record(home: &str) -> GroupRecord {
    GroupRecord {
        id: 1,
        generation: 0,
        incarnation: Incarnation(77),
        mode: "LOAD_BALANCE".into(),
        settings: GroupSettings {
            filters: Vec::new(),
            from: json!("latest"),
            ack: AckMode::Explicit,
            ack_timeout_ms: 30_000,
            max_attempts: 6,
            backoff_ms: 1_000,
            max_backoff_ms: 16_000,
            unknown: Unknown::default(),
        },
        home: instance(home),
        unknown: Unknown::default(),
    }
}

pub(crate) fn member(name: &str, at: &str) -> SubscriptionRecord {
    SubscriptionRecord {
        subscription_id: SubscriptionId::new(&format!("s-{name}")).expect("legal"),
        client: client(name),
        max_in_flight: 1_000,
        instance: instance(at),
        principal: None,
        created_at_ms: 1_700_000_000_000,
        unknown: Unknown::default(),
    }
}

pub(crate) fn dead_letter(of: &GroupId, offset: u64) -> DeadLetter {
    DeadLetter {
        group: of.clone(),
        incarnation: Incarnation(77),
        partition: PartitionId(3),
        offset: Offset(offset),
        reason: EndReason::AttemptsExhausted,
        attempts: 6,
        last_error: "out of stock".into(),
        first_ms: 1,
        last_ms: 2,
        dead_at_ms: 3,
        event_id: format!("e-{offset}"),
        source: "/shop".into(),
        body: DeadLetterBody {
            topic: of.topic.dead_letter(),
            incarnation: Incarnation(78),
            partition: PartitionId(0),
            offset: Offset(offset),
        },
        instance: instance("a"),
        unknown: Unknown::default(),
    }
}

pub(crate) fn task_id(name: &str) -> TaskId {
    TaskId::new(name).expect("legal")
}

pub(crate) fn task(name: &str) -> TaskRecord {
    TaskRecord {
        task_id: task_id(name),
        agent_id: "agent".into(),
        client_id: "client".into(),
        status: TaskStatus::Pending,
        epoch: Epoch(0),
        created_ms: 1,
        updated_ms: 1,
        input: json!({"text": "hello"}),
        output: Value::Null,
        context_id: None,
        unknown: Unknown::default(),
    }
}

/// Waits until a condition holds; after 20 s it fails and says what it waited for and what is there.
pub(crate) async fn eventually<S: std::fmt::Debug>(what: &str, mut state: impl FnMut() -> Result<(), S>) {
    let patience = tokio::time::Instant::now() + Duration::from_secs(20);
    while let Err(seen) = state() {
        assert!(tokio::time::Instant::now() < patience, "waited for {what}; there is {seen:?}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
