//! `SecurityGate`: authenticates callers and admits what they ask for.
//!
//! It decides by one table. Closed (`failClosed`), what a filter objects to is denied; open, it is let through,
//! counted as `would_deny` and audited as failed-open. Two things are the same in both: what a malformed rule
//! would govern is denied, and what is over a quota is refused. Without any filter the gate is a no-op that
//! says so, loudly, once.
//!
//! The steps of a request stand in files of their own: who it is (`credentials`), whether it may (`admission`), and
//! what becomes of an objection (`verdict`).

mod admission;
mod counts;
mod credentials;
mod verdict;

use std::sync::{Arc, atomic::AtomicU64};

use mesh_base::{Clock, CounterFamily, Signals};
use mesh_frame::{TenantId, TopicName};

use self::counts::{RuleGauges, Verdicts};
pub use self::{admission::Ownership, credentials::Verified};
use crate::{
    AclFilter, Action, AuditRecord, AuditSink, Caller, Identity, LoggingAuditSink, SignatureVerifierFilter,
    TenantQuotaManager, TokenAuthFilter,
    filter::{Finding, LoadError, Reload},
    tickets::Tickets,
    topic_rates::TopicRates,
};

/// The filters, in the order they are asked: authenticate, verify the signature, authorize.
#[derive(Debug, Default)]
pub struct FilterChain {
    /// Who is it.
    pub token: Option<TokenAuthFilter>,
    /// Did they sign this.
    pub signature: Option<SignatureVerifierFilter>,
    /// May they do this.
    pub acl: Option<AclFilter>,
}

impl FilterChain {
    /// Whether it has no filter.
    pub fn is_empty(&self) -> bool {
        self.token.is_none() && self.signature.is_none() && self.acl.is_none()
    }
}

/// What the gate does with what a filter objects to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Lets it through, counts and audits it.
    #[default]
    Permissive,
    /// Denies it.
    Closed,
}

/// What a gate is made of.
#[derive(Debug)]
pub struct GateParts {
    /// The tenant of a caller that presents no credential.
    pub default_tenant: TenantId,
    /// The filters.
    pub chain: FilterChain,
    /// What it does with what they object to.
    pub mode: Mode,
    /// What tenants may use.
    pub quota: TenantQuotaManager,
    /// How fast topics may be published to.
    pub topic_rates: TopicRates,
    /// What keeps its decisions.
    pub audit: Vec<Arc<dyn AuditSink>>,
    /// The time.
    pub clock: Clock,
}

/// The gate; cheap to clone.
#[derive(Clone, Debug)]
pub struct SecurityGate(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    parts: GateParts,
    anonymous: Arc<Identity>,
    is_no_op: bool,
    verdicts: Verdicts,
    rules: RuleGauges,
    audit_failed: CounterFamily,
    tickets: Tickets,
    /// When each sink failed last.
    audit_failed_at: Vec<AtomicU64>,
}

impl SecurityGate {
    /// The gate without filters and limits: every caller belongs to `default_tenant`, everything is admitted.
    pub fn open(default_tenant: TenantId, signals: &Signals) -> Self {
        let clock = Clock::system();
        Self::new(
            GateParts {
                default_tenant,
                chain: FilterChain::default(),
                mode: Mode::Permissive,
                quota: TenantQuotaManager::new(Default::default(), None, clock),
                topic_rates: TopicRates::new(clock),
                audit: vec![Arc::new(LoggingAuditSink)],
                clock,
            },
            signals,
        )
    }

    /// A gate of these parts. Says what it will do.
    pub fn new(parts: GateParts, signals: &Signals) -> Self {
        let is_no_op = parts.chain.is_empty();
        match (is_no_op, parts.mode) {
            (true, _) => {
                tracing::warn!(
                    "THE SECURITY GATE IS OPEN: no filter is configured, everybody may do everything"
                );
            }
            (false, Mode::Permissive) => tracing::warn!(
                "THE SECURITY GATE IS PERMISSIVE: filters are configured, but what they object to is let through \
                 (eventmesh.security.gate.failClosed=false)"
            ),
            (false, Mode::Closed) => tracing::info!("the security gate is closed"),
        }
        let rules = RuleGauges::new(signals);
        rules.show(parts.chain.acl.as_ref());
        Self(Arc::new(Inner {
            anonymous: Arc::new(Identity::anonymous(parts.default_tenant.clone())),
            is_no_op,
            verdicts: Verdicts::new(signals),
            tickets: Tickets::new(parts.clock),
            rules,
            audit_failed_at: parts.audit.iter().map(|_| AtomicU64::new(0)).collect(),
            audit_failed: signals.counters("audit_failures", "Audit records that a sink lost"),
            parts,
        }))
    }

    /// Whether no filter is configured.
    pub fn is_open(&self) -> bool {
        self.0.is_no_op
    }

    /// What the gate does, in a word: `open`, `permissive`, `closed`.
    pub fn state(&self) -> &'static str {
        match (self.0.is_no_op, self.0.parts.mode) {
            (true, _) => "open",
            (false, Mode::Permissive) => "permissive",
            (false, Mode::Closed) => "closed",
        }
    }

    /// The tenant of a caller that presents no credential.
    pub fn default_tenant(&self) -> &TenantId {
        &self.0.parts.default_tenant
    }

    /// How fast topics may be published to.
    pub fn topic_rates(&self) -> &TopicRates {
        &self.0.parts.topic_rates
    }

    /// Whether `caller` may be handed something of a topic now; asked at each hand-out, so it is neither counted
    /// nor audited. Answers hold for one [`Self::revision`].
    pub fn may_receive(&self, caller: &Caller, topic: &TopicName) -> bool {
        let inner = &*self.0;
        let Some(acl) = &inner.parts.chain.acl else { return true };
        match acl.judge(caller.identity(), Action::Subscribe, topic.as_str()) {
            Finding::Pass(()) => true,
            Finding::Malformed(_) => false,
            Finding::Deny(_) | Finding::Broken { .. } => inner.parts.mode == Mode::Permissive,
        }
    }

    /// Whether the credential of `caller` has ended: by its time, or because it was taken out of its file or given
    /// to somebody else there. Asked at each hand-out. Where the gate is open it never does.
    pub fn has_ended(&self, caller: &Caller) -> bool {
        self.0.parts.mode == Mode::Closed && !self.0.holds(caller.identity())
    }

    /// What the tenant of `caller` may have in flight.
    pub fn backlog_limit(&self, caller: &Caller) -> Option<u64> {
        self.0.parts.quota.limits(caller.tenant()).backlog
    }

    /// Grows whenever what [`Self::may_receive`] says may have changed, or what [`Self::has_ended`] says for
    /// another reason than the time.
    pub fn revision(&self) -> u64 {
        let chain = &self.0.parts.chain;
        let rules = chain.acl.as_ref().map_or(0, AclFilter::revision);
        rules + chain.token.as_ref().map_or(0, TokenAuthFilter::revision)
    }

    /// Keeps a decision that was made elsewhere, such as an administrator's.
    pub fn audit(&self, record: &AuditRecord<'_>) {
        self.0.keep(record);
    }

    /// The time that records carry.
    pub fn clock(&self) -> Clock {
        self.0.parts.clock
    }

    /// Reads every file again that changed. Blocks. What cannot be used is told, and what was there holds.
    pub fn reload(&self) {
        let parts = &self.0.parts;
        let told = |what: &'static str, reloaded: Option<Result<Reload, LoadError>>| match reloaded {
            None | Some(Ok(Reload::Unchanged)) => {}
            Some(Ok(Reload::Changed)) => tracing::info!(what, "read again; what is new holds"),
            Some(Err(error)) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                tracing::error!(what, %error, cause, "cannot be read again; what was there holds");
            }
        };
        told("credentials", parts.chain.token.as_ref().map(TokenAuthFilter::reload));
        told("signature keys", parts.chain.signature.as_ref().map(SignatureVerifierFilter::reload));
        told("access rules", parts.chain.acl.as_ref().map(AclFilter::reload));
        self.0.rules.show(parts.chain.acl.as_ref());
        told("tenant limits", Some(parts.quota.reload()));
    }

    /// Waits until the keys of issuers were fetched for the first time. Ends at once where none are fetched.
    pub async fn keys_fetched(&self) {
        if let Some(token) = &self.0.parts.chain.token {
            token.keys_fetched().await;
        }
    }

    /// Keeps the keys of issuers fresh that are fetched; for a task of its own. Ends at once where none are, else
    /// when it is dropped.
    pub async fn keep_keys_fresh(&self) {
        if let Some(token) = &self.0.parts.chain.token {
            token.keep_keys_fresh(self.0.parts.clock).await;
        }
    }
}

#[cfg(test)]
mod tests;
