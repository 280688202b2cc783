//! What the server is started with: plain values, one struct a component, every rule already checked.
//!
//! Only [`validate`](super::validate) makes them. Durations and sizes are in the unit their type or name says.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use mesh_delivery::DeliveryTopology;
use mesh_frame::{InstanceId, TenantId, TopicName};
use mesh_gate::{Interest, TenantLimits, TokenSettings};
use mesh_server::ClientCertificates;
use mesh_storage::SyncPolicy;
use tracing::Level;

use super::{effective::Effective, mode::Mode, origin::Origin, secret::Secret};

/// Everything an instance is started with.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// How it is started.
    pub mode: Mode,
    /// Delivery.
    pub delivery: DeliverySettings,
    /// Storage.
    pub storage: StorageSettings,
    /// Topics and publishing.
    pub topics: TopicSettings,
    /// The traffic port.
    pub http: HttpSettings,
    /// The admin port.
    pub admin: AdminSettings,
    /// The Meta store.
    pub meta: MetaSettings,
    /// The instance itself.
    pub instance: InstanceSettings,
    /// The security gate.
    pub gate: GateSettings,
    /// TLS; `None`: the ports speak plainly.
    pub tls: Option<TlsFiles>,
    /// The log.
    pub log: LogSettings,
    /// Every key with the value that holds and where it comes from.
    pub(crate) effective: Vec<Effective>,
}

impl Settings {
    /// Every key with the value that holds, in the order of the reference.
    pub fn effective(&self) -> &[Effective] {
        &self.effective
    }

    /// The files that are configured, whether a start reads them or makes them.
    pub fn files(&self) -> Vec<&Path> {
        let (gate, token) = (&self.gate, &self.gate.token);
        let tls = self.tls.as_ref();
        let files = [
            token.token_file.as_deref(),
            token.certificate_file.as_deref(),
            token.jwt.key_set_file.as_deref(),
            token.jwt.secret_file.as_deref(),
            gate.key_set_ca.as_deref(),
            gate.acl_file.as_deref(),
            gate.signature.as_ref().map(|signature| signature.file.as_path()),
            gate.limits_file.as_deref(),
            gate.audit.file.as_deref(),
            self.admin.token_file.as_deref(),
            tls.map(|tls| tls.certificate.as_path()),
            tls.map(|tls| tls.key.as_path()),
            tls.and_then(|tls| tls.client_ca.as_deref()),
            tls.and_then(|tls| tls.admin_client_ca.as_deref()),
            Some(&self.storage.offset_path),
        ];
        files.into_iter().flatten().collect()
    }

    /// The keys that were given: what the start-up log names.
    pub fn given(&self) -> impl Iterator<Item = &Effective> {
        self.effective.iter().filter(|effective| effective.origin != Origin::Default)
    }
}

/// Settings of delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliverySettings {
    /// Which partitions this instance pulls. `None`: those it owns, which needs a Meta store that instances share; no
    /// Meta store of this build is shared, so such settings are refused.
    pub topology: Option<DeliveryTopology>,
    /// Outstanding rows a group and partition may have.
    pub max_outstanding: u64,
    /// Outstanding rows all groups together may have; not below `max_outstanding`.
    pub max_outstanding_total: u64,
    /// Subscriptions a client may have.
    pub max_subscriptions_per_client: u64,
    /// After how long without a sign of a client its subscriptions end; `None`: never.
    pub idle_timeout: Option<Duration>,
}

/// What keeps the events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorageBackend {
    /// The durable log in the data directory.
    Embedded,
    /// The volatile one.
    Memory,
}

/// Settings of storage and of the data directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageSettings {
    /// What keeps the events.
    pub backend: StorageBackend,
    /// When the embedded log is synced.
    pub sync: SyncPolicy,
    /// Partitions of a new topic, 1 to 1024.
    pub partitions: u32,
    /// How long done events are kept.
    pub retention_max_age: Duration,
    /// How many bytes of done events of a topic are kept; `None` is no limit.
    pub retention_max_bytes: Option<u64>,
    /// How often retention looks.
    pub retention_interval: Duration,
    /// How long events that some group has not done are kept; `None` is for ever.
    pub backlog_max_age: Option<Duration>,
    /// How many bytes of them a topic may have; `None` is 20 % of the volume.
    pub backlog_max_bytes: Option<u64>,
    /// Free bytes below which a publish is refused; `None` is the smaller of 5 % and 1 GiB.
    pub low_watermark_bytes: Option<u64>,
    /// Memory for the newest events.
    pub tail_cache_bytes: u64,
    /// The root of everything local.
    pub data_dir: PathBuf,
    /// Where positions are kept; given, or `offset` in the data directory.
    pub offset_path: PathBuf,
}

/// Settings of topics and of what is accepted into them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicSettings {
    /// Whether the first use makes a topic.
    pub auto_create: bool,
    /// How many topics there may be.
    pub max_topics: u64,
    /// How long a publish waits for the storage.
    pub publish_timeout: Duration,
    /// How long a published event is recognised when it comes again; `None`: not at all.
    pub dedup_window: Option<Duration>,
    /// How many events are remembered for that.
    pub dedup_max_events: u64,
    /// Whether events that Java runtimes cannot read are refused.
    pub java_compatible: bool,
}

/// Settings of the traffic port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpSettings {
    /// The address to listen on: an IP address without brackets, or a name.
    pub host: String,
    /// The port; 0 is any free one.
    pub port: u16,
    /// What `instanceUrl` starts with, `http://host:port`.
    pub advertised_url: Option<String>,
    /// The names that a port on loopback answers to, beside `localhost` and addresses.
    pub hosts: Vec<String>,
    /// The largest request body; not above `max_in_flight_body_bytes`.
    pub max_body_bytes: u64,
    /// How long the head of a request may take.
    pub header_timeout: Duration,
    /// How long its body may take.
    pub body_timeout: Duration,
    /// How long a connection may be idle.
    pub idle_timeout: Duration,
    /// Connections at a time.
    pub max_connections: u64,
    /// Memory for request bodies.
    pub max_in_flight_body_bytes: u64,
    /// Memory for poll answers.
    pub max_in_flight_poll_bytes: u64,
    /// The origins whose pages may call.
    pub cors_origins: Vec<String>,
}

/// Settings of the admin port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminSettings {
    /// The address to listen on: an IP address without brackets, or a name.
    pub host: String,
    /// The port; 0 is any free one.
    pub port: u16,
    /// The bearer token of an admin; without any token everything but health and readiness is locked.
    pub token: Option<Secret>,
    /// More tokens, with roles.
    pub token_file: Option<PathBuf>,
    /// A token that opens metrics only.
    pub metrics_token: Option<Secret>,
}

/// Which Meta store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaBackend {
    /// In the data directory, for one instance.
    Local,
}

/// Settings of the Meta store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaSettings {
    /// Which one.
    pub backend: MetaBackend,
    /// Where it is reached, `host:port` each.
    pub addresses: Vec<String>,
}

/// Settings of the instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceSettings {
    /// Its name; `None`: the one kept in the data directory.
    pub id: Option<InstanceId>,
    /// The tenant of requests without a credential.
    pub tenant_default: TenantId,
    /// How long a planned stop may take.
    pub shutdown_timeout: Duration,
}

/// Settings of the security gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateSettings {
    /// Whether what a filter denies is refused.
    pub fail_closed: bool,
    /// Credentials.
    pub token: TokenSettings,
    /// Who signs the certificate of the key set's host.
    pub key_set_ca: Option<PathBuf>,
    /// The access rules.
    pub acl_file: Option<PathBuf>,
    /// Signatures.
    pub signature: Option<SignatureSettings>,
    /// What a tenant may use that has no limits of its own.
    pub limits: TenantLimits,
    /// The limits of tenants that have their own.
    pub limits_file: Option<PathBuf>,
    /// The audit.
    pub audit: AuditSettings,
    /// How often files are looked at.
    pub reload_interval: Duration,
}

/// How signatures are verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignatureSettings {
    /// The keys.
    pub file: PathBuf,
    /// Whether events signed by themselves are accepted.
    pub legacy: bool,
    /// How old a signature may be.
    pub window: Duration,
    /// How many nonces are remembered.
    pub max_nonces: u64,
}

/// Where the gate's decisions go beside the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditSettings {
    /// The audit file.
    pub file: Option<PathBuf>,
    /// What it gets.
    pub file_records: Interest,
    /// Its size from which on the next is begun.
    pub file_bytes: u64,
    /// How many older ones are kept.
    pub file_kept: u64,
    /// The audit topic.
    pub topic: Option<TopicName>,
    /// What it gets.
    pub topic_records: Interest,
}

/// Settings of TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// Who signs client certificates.
    pub client_ca: Option<PathBuf>,
    /// Whether clients show certificates.
    pub clients: ClientCertificates,
    /// Whether the admin port speaks TLS too.
    pub admin: bool,
    /// Who signs certificates of clients of the admin port.
    pub admin_client_ca: Option<PathBuf>,
    /// Whether clients of the admin port show certificates.
    pub admin_clients: ClientCertificates,
}

/// The form of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// For collectors.
    Json,
}

/// Settings of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// Its form.
    pub format: LogFormat,
    /// The least important messages that are written.
    pub level: Level,
}
