//! The gate of the process, from its settings: filters, limits, audit. Reads their files; starts nothing but the
//! thread that writes the audit file.

use std::{path::PathBuf, sync::Arc, time::Duration};

use mesh_admin::{AdminAccess, AdminTokens};
use mesh_base::{Clock, Signals, Stop};
use mesh_gate::{
    AclFilter, AuditSink, EventAuditSink, FileAuditSettings, FileAuditSink, FilterChain, GateParts,
    KeyFetcher, LoadError, LoggingAuditSink, Mode, SecurityGate, SignatureSettings, SignatureVerifierFilter,
    TenantLimitsFile, TenantQuotaManager, TokenAuthFilter, TokenSettings, TopicRates,
};
use mesh_server::{ClientCertificates, Tls, TlsSettings};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{audit_events::AuditEvents, key_fetcher::HttpsKeyFetcher};
use crate::config::Settings;

/// The gate with what is stopped or driven beside it.
pub(super) struct OpenedGate {
    pub(super) gate: SecurityGate,
    /// Written to the end when the process stops.
    pub(super) audit_file: Option<Arc<FileAuditSink>>,
    /// What the events of the audit topic wait in.
    pub(super) audit_events: Option<Arc<AuditEvents>>,
}

/// Builds the gate.
///
/// # Errors
/// A filter that is configured and cannot be loaded.
pub(super) fn open(settings: &Settings, clock: Clock, signals: &Signals) -> anyhow::Result<OpenedGate> {
    let asked = &settings.gate;
    let token = (asked.token != TokenSettings::default()).then(|| {
        let fetcher = asked.token.jwt.key_set_url.as_ref().map(|_| {
            HttpsKeyFetcher::new(asked.key_set_ca.as_deref())
                .map(|fetcher| Arc::new(fetcher) as Arc<dyn KeyFetcher>)
        });
        TokenAuthFilter::load_with(&asked.token, fetcher.transpose()?)
    });
    let signature = asked.signature.as_ref().map(|asked| {
        SignatureVerifierFilter::load(&SignatureSettings {
            legacy: asked.legacy,
            window: asked.window,
            max_nonces: usize::try_from(asked.max_nonces).unwrap_or(usize::MAX),
            accept_from: clock.now(),
            ..SignatureSettings::new(asked.file.clone())
        })
    });
    let acl = asked.acl_file.as_deref().map(AclFilter::load);
    let chain = FilterChain {
        token: token.transpose().map_err(|error| cannot_load("credentials", &error))?,
        signature: signature.transpose().map_err(|error| cannot_load("signature keys", &error))?,
        acl: acl.transpose().map_err(|error| cannot_load("access rules", &error))?,
    };
    let own = asked.limits_file.as_deref().map(TenantLimitsFile::load);
    let own = own.transpose().map_err(|error| cannot_load("tenant limits", &error))?;

    let mut audit: Vec<Arc<dyn AuditSink>> = vec![Arc::new(LoggingAuditSink)];
    let audit_file = match &asked.audit.file {
        None => None,
        Some(path) => {
            let file = FileAuditSettings {
                interest: asked.audit.file_records,
                largest_file: asked.audit.file_bytes,
                kept_files: u32::try_from(asked.audit.file_kept).unwrap_or(u32::MAX),
                ..FileAuditSettings::new(path)
            };
            let sink = FileAuditSink::start(&file, clock, signals);
            let sink = Arc::new(sink.map_err(|error| cannot_load("the audit file", &error))?);
            audit.push(sink.clone());
            Some(sink)
        }
    };
    let audit_events = asked.audit.topic.as_ref().map(|topic| {
        let events = Arc::new(AuditEvents::new(topic.clone(), signals));
        let source = "/eventmesh/audit";
        let interest = asked.audit.topic_records;
        audit.push(Arc::new(EventAuditSink::new(topic, source, interest, events.clone(), clock)));
        events
    });
    let gate = SecurityGate::new(
        GateParts {
            default_tenant: settings.instance.tenant_default.clone(),
            chain,
            mode: if asked.fail_closed { Mode::Closed } else { Mode::Permissive },
            quota: TenantQuotaManager::new(asked.limits, own, clock),
            topic_rates: TopicRates::new(clock),
            audit,
            clock,
        },
        signals,
    );
    Ok(OpenedGate { gate, audit_file, audit_events })
}

/// Whether a token is configured that opens more than metrics.
pub(super) fn has_admin_tokens(settings: &Settings) -> bool {
    settings.admin.token.is_some() || settings.admin.token_file.is_some()
}

/// The tokens of the admin port: those that are configured, and the one that the server made for itself.
///
/// # Errors
/// A token file that cannot be read or used.
pub(super) fn admin_access(settings: &Settings, made: Option<&str>) -> anyhow::Result<AdminAccess> {
    let admin = &settings.admin;
    AdminAccess::load(AdminTokens {
        admin: admin.token.as_ref().map(|token| token.expose()),
        made,
        metrics: admin.metrics_token.as_ref().map(|token| token.expose()),
        file: admin.token_file.as_deref(),
    })
    .map_err(|error| cannot_load("admin tokens", &error))
}

/// TLS of a port; `None`: it speaks plainly.
pub(super) type PortTls = Option<Arc<Tls>>;

/// TLS of the traffic port, and of the admin port.
///
/// # Errors
/// Files that cannot be read or used.
pub(super) fn tls(settings: &Settings) -> anyhow::Result<(PortTls, PortTls)> {
    let Some(files) = &settings.tls else { return Ok((None, None)) };
    let load = |clients: ClientCertificates, client_ca: &Option<PathBuf>| {
        let tls = Tls::load(TlsSettings {
            certificate: files.certificate.clone(),
            key: files.key.clone(),
            client_ca: client_ca.clone().filter(|_| clients != ClientCertificates::None),
            clients,
        });
        tls.map(Arc::new).map_err(|error| {
            let cause =
                std::error::Error::source(&error).map_or_else(String::new, |cause| format!(": {cause}"));
            anyhow::anyhow!("TLS cannot be set up: {error}{cause}")
        })
    };
    let traffic = load(files.clients, &files.client_ca)?;
    let admin = if files.admin { Some(load(files.admin_clients, &files.admin_client_ca)?) } else { None };
    Ok((Some(traffic), admin))
}

fn cannot_load(what: &str, error: &LoadError) -> anyhow::Error {
    let cause = std::error::Error::source(error).map_or_else(String::new, |cause| format!(": {cause}"));
    anyhow::anyhow!("the security gate cannot load {what}: {error}{cause}")
}

/// Everything that is read from files which may change.
pub(super) struct Files {
    pub(super) gate: SecurityGate,
    pub(super) admin: AdminAccess,
    pub(super) tls: Vec<Arc<Tls>>,
    pub(super) audit: Option<Arc<FileAuditSink>>,
}

impl Files {
    /// Looks at the files again and again until `stop`, and at once when `hung_up` says so; `changed` is called after what
    /// clients may receive changed.
    pub(super) async fn watch(
        self,
        every: Duration,
        hung_up: Arc<Notify>,
        stop: Stop,
        changed: impl Fn() + Send + 'static,
    ) {
        let files = Arc::new(self);
        let mut revision = files.gate.revision();
        let told = Arc::new(Mutex::new(Vec::new()));
        loop {
            tokio::select! {
                () = stop.wait() => return,
                () = tokio::time::sleep(every) => {}
                () = hung_up.notified() => files.reopen(),
            }
            let (read, told) = (files.clone(), told.clone());
            if tokio::task::spawn_blocking(move || read.read_again(&mut told.lock())).await.is_err() {
                tracing::error!("reading the files of the gate again panicked; what was there holds");
            }
            if revision != files.gate.revision() {
                revision = files.gate.revision();
                changed();
            }
        }
    }

    /// An operator may have moved the audit log away.
    fn reopen(&self) {
        tracing::info!("SIGHUP: the files are read again, and the audit log is opened again");
        if let Some(audit) = &self.audit {
            audit.reopen();
        }
    }

    /// `told` has the failures of TLS that were told: files that do not fit together are looked at each time, and
    /// are told of when they begin not to.
    fn read_again(&self, told: &mut Vec<String>) {
        self.gate.reload();
        match self.admin.reload() {
            Ok(mesh_gate::Reload::Unchanged) => {}
            Ok(mesh_gate::Reload::Changed) => tracing::info!("admin tokens read again; what is new holds"),
            Err(error) => {
                tracing::error!(%error, "admin tokens cannot be read again; what was there holds");
            }
        }
        let mut failures = Vec::new();
        for tls in &self.tls {
            match tls.reload() {
                Ok(false) => {}
                Ok(true) => {
                    tracing::info!("the TLS certificate was read again; it holds for new connections")
                }
                Err(error) => failures.push(error.to_string()),
            }
        }
        failures.dedup();
        for error in failures.iter().filter(|error| !told.contains(error)) {
            tracing::error!(error, "the TLS files cannot be read again; what was there holds");
        }
        *told = failures;
    }
}
