//! Build: everything that exists, in the order of the line. Binds and opens; starts nothing that serves.

use std::{io, sync::Arc, time::Duration};

use anyhow::Context as _;
use mesh_admin::{AdminState, Health, HealthReport, PublishCounters, RateLimits};
use mesh_base::{Chance, Clock, Signals, Stop, Tasks};
use mesh_delivery::{DeliveryLimits, DeliverySignals, Foundations, GroupStores, Groups, ReliableDispatcher};
use mesh_frame::Limits;
use mesh_gate::FileAuditSink;
use mesh_ingress::{
    http::{HttpEdge, HttpEdgeSettings, Traffic},
    intake::{Intake, IntakeSettings, IntakeSignals},
};
use mesh_meta::{LocalMeta, LocalMetaSettings, MetaStore};
use mesh_rocks::Machine;
use mesh_server::{
    BodyLimits, Hosts, HttpServer, HttpServerSettings, HttpServerSignals, Patience, Readiness, Tls,
};
use mesh_state::{
    positions::{Positions, PositionsSettings, RocksDbPositions},
    shared::{
        ClusterSubscriptionStore, DeadLetterKeys, IdentityStore, MetaBackedDeadLetterStore,
        MetaBackedTaskStore, RateLimitStore, SessionRegistry, Writer,
    },
};
use mesh_storage::{
    Announcements, Deduplicator, Embedded, EmbeddedSettings, Memory, Storage, StorageLimits, StoragePlugin,
    SyncPolicy, TopicRules, Watermark,
};

use super::{
    audit_events::AuditEvents,
    capabilities::{check_log, check_meta},
    data_dir::DataDir,
    document::document,
    gate::{self, Files, OpenedGate},
    identity::Beginning,
};
use crate::{
    config::{Mode, Settings, settings::StorageBackend},
    logging::LogLines,
};

/// The log's memtable. RocksDB preallocates a little more for each write-ahead log file, and after a full disk
/// it goes on only once this much is free.
const LOG_WRITE_BUFFER: usize = 16 << 20;

/// Who does not read what is sent for that long is cut off.
const NOT_READING: Duration = Duration::from_secs(30);

/// How long a start waits for ports and a data directory that another process holds.
const GOING: Duration = Duration::from_secs(3);
/// How often it looks whether they are free.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Everything that was built.
pub(super) struct Built {
    pub(super) data_dir: DataDir,
    pub(super) clock: Clock,
    pub(super) readiness: Readiness,
    /// Ends waiting polls and streams.
    pub(super) polls_end: Stop,
    pub(super) health: Health,
    pub(super) storage: Storage,
    pub(super) positions: Arc<Positions>,
    pub(super) announcements: Arc<Announcements>,
    pub(super) subscriptions: Arc<ClusterSubscriptionStore>,
    /// Kept for the agents that will use it.
    pub(super) sessions: SessionRegistry,
    /// Kept for the A2A gateway that will use it.
    pub(super) _tasks: MetaBackedTaskStore,
    pub(super) dispatcher: ReliableDispatcher,
    /// What serves open streams.
    pub(super) stream_tasks: Tasks,
    pub(super) groups: Groups,
    pub(super) traffic: HttpServer,
    pub(super) traffic_answers: Traffic,
    pub(super) traffic_signals: HttpServerSignals,
    pub(super) admin: HttpServer,
    pub(super) admin_router: axum::Router,
    pub(super) admin_signals: HttpServerSignals,
    /// What is read again when it changes.
    pub(super) files: Files,
    pub(super) audit_file: Option<Arc<FileAuditSink>>,
    pub(super) audit_events: Option<Arc<AuditEvents>>,
}

/// Builds every component.
///
/// # Errors
/// The component that could not be built, with the reason.
pub(super) async fn build(settings: &Settings, mode: Mode, log: &LogLines) -> anyhow::Result<Built> {
    let (clock, chance) = (Clock::system(), Chance::system());
    let signals = Signals::new();
    log.show(&signals);

    // Sockets first: a port that is taken leaves no trace on the disk.
    let (traffic_tls, admin_tls) = gate::tls(settings)?;
    let http = &settings.http;
    let traffic = when_free(clock, || bind("http", &http.host, http.port, &traffic_tls, settings)).await?;
    let admin = &settings.admin;
    let admin = when_free(clock, || bind("admin", &admin.host, admin.port, &admin_tls, settings)).await?;
    // Files that cannot be used stop the start before the data directory is made.
    gate::admin_access(settings, None)?;
    let OpenedGate { gate, audit_file, audit_events } = gate::open(settings, clock, &signals)?;
    let data_dir = when_free(clock, || DataDir::take(&settings.storage.data_dir, &settings.files())).await?;
    let made = made_token(&data_dir, settings, mode, &admin)?;
    let access = gate::admin_access(settings, made.as_deref())?;
    let instance = data_dir.instance(settings.instance.id.as_ref(), &chance)?;
    tracing::info!(%instance, data_dir = %settings.storage.data_dir.display(), mode = %mode, "instance");

    let machine = Machine::default();
    let (storage, announcements) = open_log(settings, &data_dir, &machine, clock, &chance, &signals)?;
    check_log(settings, &storage.capabilities())?;
    tracing::info!(
        driver = storage.capabilities().name,
        survives_kill = storage.capabilities().survives_kill,
        survives_power_loss = storage.capabilities().survives_power_loss,
        topics = storage.topics().len(),
        "log"
    );

    let dedup = Deduplicator::new(count(settings.topics.dedup_max_events), clock, &signals);
    let known =
        announcements.deduplicate(&storage, &dedup).map_err(|error| anyhow::anyhow!(error.chain()))?;
    let window = settings.topics.dedup_window.unwrap_or_default();
    tracing::info!(window_ms = window.as_millis(), known, "publisher deduplication");

    let path = settings.storage.offset_path.clone();
    let database = RocksDbPositions::open(&PositionsSettings { path: path.clone() }, &machine)
        .map_err(|error| anyhow::anyhow!(error.chain()))?;
    let database = Arc::new(database);
    tracing::info!(
        path = %path.display(),
        offsets = "RocksDbOffsetStore",
        deliveries = "RocksDbDeliveryStateStore",
        "positions"
    );

    let meta_path = data_dir.folder("meta");
    let driver = LocalMeta::open(&LocalMetaSettings::at(&meta_path), &machine)
        .map_err(|error| anyhow::anyhow!(error.chain()))?;
    let meta = MetaStore::new(Arc::new(driver), clock, &signals);
    check_meta(&meta, &instance).await?;
    tracing::info!(driver = meta.name(), "conditional changes of Meta hold");
    let writer = Writer::new(&instance, &chance);
    let subscriptions = ClusterSubscriptionStore::load(&meta, &writer)
        .await
        .map_err(|error| anyhow::anyhow!(error.chain()))?;
    let subscriptions = Arc::new(subscriptions);
    let sessions =
        SessionRegistry::load(&meta, &writer).await.map_err(|error| anyhow::anyhow!(error.chain()))?;
    let dead_letters = MetaBackedDeadLetterStore::new(&meta, &writer, DeadLetterKeys::OneForAll);
    let tasks = MetaBackedTaskStore::new(&meta, &writer);
    tracing::info!(
        driver = meta.name(),
        path = %meta_path.display(),
        subscriptions = "ClusterSubscriptionStore",
        sessions = "SessionRegistry",
        dead_letters = "MetaBackedDeadLetterStore",
        tasks = "MetaBackedTaskStore",
        "meta"
    );

    let identities = IdentityStore::new(&meta, &writer);
    let identity = Beginning {
        data_dir: &data_dir,
        instance: &instance,
        positions: &database,
        subscriptions: &subscriptions,
        identities: &identities,
    };
    let identity = identity.begin().await?;
    tracing::info!(boot = identity.epoch.0, "identity");
    let positions = Arc::new(Positions::start(database, &signals));

    let topology = settings.delivery.topology.context("PARTITION_OWNED_PULL needs a shared Meta store")?;
    let delivery_signals = DeliverySignals::new(&signals);
    let stream_tasks = Tasks::new();
    let dispatcher = ReliableDispatcher::new(Foundations {
        clock,
        chance,
        storage: storage.clone(),
        positions: positions.clone(),
        dead_letters,
        polled: topology.polled(),
        instance,
        delivery_id_key: identity.delivery_id_key,
        epoch: identity.epoch,
        limits: DeliveryLimits {
            outstanding: count(settings.delivery.max_outstanding),
            outstanding_total: count(settings.delivery.max_outstanding_total),
            subscriptions_per_client: count(settings.delivery.max_subscriptions_per_client),
            idle_timeout: settings.delivery.idle_timeout,
            answer_bytes: 8 << 20,
            stream_unread: NOT_READING,
            publish_timeout: settings.topics.publish_timeout,
        },
        signals: delivery_signals.clone(),
        stream_tasks: stream_tasks.clone(),
    });
    dispatcher.show_lag(&signals);
    let groups = dispatcher.groups(GroupStores {
        subscriptions: subscriptions.clone(),
        identities,
        auto_create: settings.topics.auto_create,
    });
    tracing::info!("delivery topology={}", topology.as_str());

    let intake_signals = IntakeSignals::new(&signals);
    let intake = Intake::new(
        gate.clone(),
        storage.clone(),
        dispatcher.clone(),
        groups.clone(),
        IntakeSettings {
            limits: if settings.topics.java_compatible { Limits::java_compatible() } else { Limits::DEFAULT },
            auto_create: settings.topics.auto_create,
            publish_timeout: settings.topics.publish_timeout,
            default_tenant: gate.default_tenant().clone(),
            dedup: Some(dedup),
        },
        intake_signals.clone(),
    );
    let readiness = Readiness::new();
    let polls_end = Stop::new();
    let edge = HttpEdgeSettings {
        body: BodyLimits {
            body_bytes: settings.http.max_body_bytes,
            timeout: settings.http.body_timeout,
            in_flight_bytes: settings.http.max_in_flight_body_bytes,
        },
        answers_in_flight_bytes: settings.http.max_in_flight_poll_bytes,
        instance_url: settings.http.advertised_url.clone().unwrap_or_default(),
        cors_origins: settings.http.cors_origins.clone(),
        admin_port: Some(admin.local_addr().port()),
        document: document().to_string().into(),
        ..HttpEdgeSettings::default()
    };
    let edge = HttpEdge::new(intake, edge, readiness.clone(), polls_end.clone());
    let traffic_answers = Traffic::new(edge);
    tracing::info!(address = %traffic.local_addr(), gate = gate.state(), tls = traffic_tls.is_some(), "traffic");

    let health = Health::new(readiness.clone());
    let watched = health.clone();
    watch_health(&health, &storage, &dispatcher, &meta);
    let state =
        AdminState::new(access.clone(), gate.clone(), health, clock, signals.clone(), topology.as_str());
    let rate_limits = RateLimits::new(RateLimitStore::new(&meta, &writer), gate.clone());
    let rates = rate_limits.load().await.map_err(|error| anyhow::anyhow!(error.chain()))?;
    let failures = positions.log().clone();
    let (dispatched, grouped) = (dispatcher.clone(), groups.clone());
    let publishes = PublishCounters {
        stored: intake_signals.published,
        failed: intake_signals.publish_failed,
        rate_limited: intake_signals.rate_limited,
    };
    state.serve(dispatched, grouped, rate_limits, delivery_signals, publishes, move || {
        failures.write_failures()
    });
    let admin_router = mesh_admin::router(state);
    tracing::info!(address = %admin.local_addr(), tls = admin_tls.is_some(), rates, "admin");

    Ok(Built {
        data_dir,
        clock,
        readiness,
        polls_end,
        health: watched,
        storage,
        positions,
        announcements,
        subscriptions,
        sessions,
        _tasks: tasks,
        dispatcher,
        stream_tasks,
        groups,
        traffic,
        traffic_answers,
        traffic_signals: HttpServerSignals::new("http", &signals),
        admin,
        admin_router,
        admin_signals: HttpServerSignals::new("admin", &signals),
        files: Files {
            gate,
            admin: access,
            tls: traffic_tls.into_iter().chain(admin_tls).collect(),
            audit: audit_file.clone(),
        },
        audit_file,
        audit_events,
    })
}

/// The token with which a `standalone` on loopback is administered when none is configured.
fn made_token(
    data_dir: &DataDir,
    settings: &Settings,
    mode: Mode,
    admin: &HttpServer,
) -> anyhow::Result<Option<String>> {
    if mode != Mode::Standalone || gate::has_admin_tokens(settings) || !admin.local_addr().ip().is_loopback()
    {
        return Ok(None);
    }
    let (token, file) = data_dir.admin_token()?;
    tracing::info!(file = %file.display(), "no admin token is configured: the one in this file opens the admin port");
    Ok(Some(token))
}

fn count(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// What `take` takes. While another process holds it, that is tried again for [`GOING`]: a process that was killed a
/// moment ago still has its ports and its lock until the disk has done what it was asked last.
///
/// # Errors
/// The last error of `take`.
async fn when_free<T>(clock: Clock, take: impl Fn() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let end = clock.elapsed() + GOING;
    let mut is_told = false;
    loop {
        match take() {
            Err(error) if is_held(&error) && clock.elapsed() < end => {
                if !is_told {
                    tracing::warn!("{error}; waiting up to {} s for its end", GOING.as_secs());
                    is_told = true;
                }
                tokio::time::sleep(LOOK_AGAIN).await;
            }
            taken => return taken,
        }
    }
}

/// Whether another process has what was to be taken.
fn is_held(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<io::Error>().map(io::Error::kind);
    matches!(error, Some(io::ErrorKind::AddrInUse | io::ErrorKind::WouldBlock))
}

fn bind(
    name: &'static str,
    host: &str,
    port: u16,
    tls: &Option<Arc<Tls>>,
    settings: &Settings,
) -> anyhow::Result<HttpServer> {
    let mut server = HttpServerSettings::new(name, host, port);
    server.tls.clone_from(tls);
    server.hosts = Some(Hosts::new(own_names(settings)));
    server.max_connections = count(settings.http.max_connections);
    server.patience =
        Patience { head: settings.http.header_timeout, idle: settings.http.idle_timeout, write: NOT_READING };
    // A client that does not read is cut in time for the rest to end within the whole bound.
    server.drain_timeout = settings.instance.shutdown_timeout.mul_f64(0.8);
    HttpServer::bind(server).with_context(|| format!("the {name} port cannot be bound at {host}:{port}"))
}

/// What this server is called, beside what every machine calls itself.
fn own_names(settings: &Settings) -> impl Iterator<Item = &str> {
    let advertised = settings.http.advertised_url.as_deref().and_then(|url| url.split_once("://"));
    // Its port comes behind the last colon, which is there.
    let advertised = advertised.and_then(|(_, address)| address.rsplit_once(':')).map(|(host, _)| host);
    let listening = [settings.http.host.as_str(), &settings.admin.host];
    settings.http.hosts.iter().map(String::as_str).chain(advertised).chain(listening)
}

fn open_log(
    settings: &Settings,
    data_dir: &DataDir,
    machine: &Machine,
    clock: Clock,
    chance: &Chance,
    signals: &Signals,
) -> anyhow::Result<(Storage, Arc<Announcements>)> {
    let (tail, announcements) = Storage::tail(settings.storage.tail_cache_bytes);
    let path = data_dir.folder("log");
    let (plugin, watermark): (Arc<dyn StoragePlugin>, _) = match settings.storage.backend {
        StorageBackend::Memory => {
            tracing::warn!("the log is in memory: everything is gone at the end of this process");
            (Arc::new(Memory::new(clock, chance.clone(), tail.clone(), signals)), None)
        }
        StorageBackend::Embedded => {
            let watermark = Arc::new(Watermark::new(
                settings.storage.data_dir.clone(),
                settings.storage.low_watermark_bytes,
            ));
            let sync = settings.storage.sync;
            if sync != SyncPolicy::Always {
                tracing::warn!(
                    ?sync,
                    "publishes are acknowledged before they are on the disk: power loss takes some"
                );
            }
            let embedded = EmbeddedSettings { path, sync, write_buffer_bytes: LOG_WRITE_BUFFER };
            let log =
                Embedded::open(&embedded, machine, clock, chance.clone(), tail.clone(), watermark.clone())
                    .map_err(|error| anyhow::anyhow!(error.chain()))?;
            (Arc::new(log), Some(watermark))
        }
    };
    let limits = StorageLimits {
        partitions: settings.storage.partitions,
        topics: count(settings.topics.max_topics),
        rules: TopicRules {
            max_age: settings.storage.retention_max_age,
            max_bytes: settings.storage.retention_max_bytes,
            backlog_max_age: settings.storage.backlog_max_age,
            backlog_max_bytes: settings.storage.backlog_max_bytes,
            dedup_window: settings.topics.dedup_window.unwrap_or_default(),
        },
    };
    let storage = Storage::new(plugin, tail, limits, watermark, signals)
        .map_err(|error| anyhow::anyhow!(error.chain()))?;
    Ok((storage, announcements))
}

fn watch_health(health: &Health, storage: &Storage, dispatcher: &ReliableDispatcher, meta: &MetaStore) {
    let log = storage.clone();
    health.ask("log", move || match log.corrupt_records() {
        0 if log.is_low() => HealthReport::degraded("disk space is low: publishing is refused"),
        0 => HealthReport::up(),
        _ => HealthReport::down("the log has damaged records; what follows them is not delivered"),
    });
    let ledger = dispatcher.clone();
    health.ask("ledger", move || match ledger.suspension() {
        None => HealthReport::up(),
        Some(suspension) => HealthReport::down(suspension.to_string()),
    });
    let meta = meta.clone();
    health.ask("meta", move || match meta.down_since() {
        None => HealthReport::up(),
        Some(_) => HealthReport::degraded("the Meta store does not answer"),
    });
}
