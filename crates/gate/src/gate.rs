//! `SecurityGate`: authenticates callers and admits what they ask for.
//!
//! It decides by one table. Closed (`failClosed`), what a filter objects to is denied; open, it is let through,
//! counted as `would_deny` and audited as failed-open. Two things are the same in both: what a malformed rule
//! would govern is denied, and what is over a quota is refused. Without any filter the gate is a no-op that
//! says so, loudly, once.

use std::{
    borrow::Cow,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use mesh_base::{Clock, Counter, CounterFamily, Gauge, Lease, Signals, UnixMillis};
use mesh_frame::{ClientId, Event, TenantId, TopicName};

use crate::{
    AclFilter, Action, Admitted, AuditRecord, AuditSink, Basis, Caller, CredentialKind, Denied, DeniedKind,
    Identity, LoggingAuditSink, Outcome, Presented, RequestContext, Resource, SignatureVerifierFilter,
    SignedHead, TenantQuotaManager, TokenAuthFilter,
    filter::{self, Finding, LoadError, Reload},
    quota::{Cost, Exceeded},
    tickets::{Ticket, Tickets},
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

/// How long a sink has to work before its next failure is told again.
const CALM: Duration = Duration::from_secs(10);

/// How many rules hold.
#[derive(Debug)]
struct RuleGauges {
    all: Gauge,
    malformed: Gauge,
}

impl RuleGauges {
    fn new(signals: &Signals) -> Self {
        Self {
            all: signals.gauge("gate_acl_rules", "Access rules"),
            malformed: signals.gauge("gate_acl_rules_malformed", "Access rules that cannot be read"),
        }
    }

    fn show(&self, acl: Option<&AclFilter>) {
        let Some(count) = acl.map(AclFilter::count) else { return };
        self.all.set(i64::try_from(count.all).unwrap_or(i64::MAX));
        self.malformed.set(i64::try_from(count.malformed).unwrap_or(i64::MAX));
    }
}

/// The counters of the verdicts that are frequent, and the family of all.
#[derive(Debug)]
struct Verdicts {
    family: CounterFamily,
    admitted_without_filter: Counter,
    token_passed: Counter,
    signature_passed: Counter,
    acl_passed: Counter,
}

impl Verdicts {
    fn new(signals: &Signals) -> Self {
        let family = signals.counters("gate_verdicts", "Verdicts of the security gate by filter");
        let of = |filter: &str| family.get_or_create(&labels(filter, "allow")).clone();
        Self {
            admitted_without_filter: of("no_gate"),
            token_passed: of(filter::TOKEN),
            signature_passed: of(filter::SIGNATURE),
            acl_passed: of(filter::ACL),
            family,
        }
    }

    fn count(&self, filter: &str, verdict: &str) {
        self.family.get_or_create(&labels(filter, verdict)).inc();
    }
}

fn labels(filter: &str, verdict: &str) -> Vec<(&'static str, String)> {
    vec![("filter", filter.to_owned()), ("verdict", verdict.to_owned())]
}

/// What became of a finding: passed, or let through although.
enum Judged<T> {
    Passed(T),
    FailedOpen,
}

/// Whether something is the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// It may go on: it is the caller's, or nobody's yet, or the gate is open.
    Granted,
    /// For the caller it does not exist.
    Hidden,
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

    /// Who presents this.
    ///
    /// # Errors
    /// [`Denied`] when a credential is needed and missing, or wrong.
    pub fn authenticate(&self, presented: &Presented<'_>, operation: Action) -> Result<Caller, Denied> {
        let inner = &*self.0;
        let nobody = |failed_open| Caller::new(inner.anonymous.clone(), presented, failed_open);
        let Some(filter) = &inner.parts.chain.token else { return Ok(nobody(None)) };
        let now = inner.parts.clock.now();
        let finding = filter.authenticate(presented.authorization, presented.certificate, now);
        if let Finding::Pass(identity) = finding {
            inner.verdicts.token_passed.inc();
            return Ok(Caller::new(identity, presented, None));
        }
        let asking = Asking { caller: &nobody(None), operation, resource: None };
        match inner.judged(filter::TOKEN, DeniedKind::Unauthenticated, finding, &asking)? {
            Judged::Passed(identity) => Ok(Caller::new(identity, presented, None)),
            Judged::FailedOpen => Ok(nobody(Some(filter::TOKEN))),
        }
    }

    /// A ticket that stands for the caller's credential when a stream is opened, for one client or any;
    /// `None`: too many are out.
    pub fn ticket(&self, caller: &Caller, client: Option<ClientId>) -> Option<Ticket> {
        self.0.tickets.issue(caller, client)
    }

    /// Who shows this ticket, for this client. It is used up.
    ///
    /// # Errors
    /// [`Denied`] when it is not good, or not any more.
    pub fn redeem(
        &self,
        ticket: &str,
        client: &ClientId,
        presented: &Presented<'_>,
    ) -> Result<Caller, Denied> {
        let inner = &*self.0;
        let nobody = |failed_open| Caller::new(inner.anonymous.clone(), presented, failed_open);
        let redeemed = inner.tickets.redeem(ticket, client);
        // What it stands for may have ended since it was given.
        if let Some((identity, failed_open)) = redeemed.filter(|(identity, _)| inner.holds(identity)) {
            inner.verdicts.token_passed.inc();
            return Ok(Caller::new(identity, presented, failed_open));
        }
        if inner.is_no_op {
            return Ok(nobody(None));
        }
        let asking = Asking { caller: &nobody(None), operation: Action::Subscribe, resource: None };
        let finding: Finding = Finding::Deny("the ticket is unknown, used or too old".into());
        inner.judged(filter::TOKEN, DeniedKind::Unauthenticated, finding, &asking)?;
        Ok(nobody(Some(filter::TOKEN)))
    }

    /// The denial for what a page sends that may not call, counted and kept. The gate being open or permissive does
    /// not change it: the user whose browser it is was not asked.
    pub fn foreign_page(&self, presented: &Presented<'_>, operation: Action) -> Denied {
        let inner = &*self.0;
        let reason = "pages of this origin may not call (eventmesh.http.cors.origins)";
        inner.verdicts.count(filter::ORIGIN, "deny");
        if inner.interested(Outcome::Denied, operation) {
            let caller = &Caller::new(inner.anonymous.clone(), presented, None);
            let asking = Asking { caller, operation, resource: None };
            inner.keep(&inner.record(&asking, "", Outcome::Denied, Some(filter::ORIGIN), reason));
        }
        Denied { kind: DeniedKind::Forbidden, reason: reason.into(), retry_after: None }
    }

    /// Whether connections of the caller's tenant are limited.
    pub fn limits_connections(&self, caller: &Caller) -> bool {
        self.0.parts.quota.limits(caller.tenant()).connections.is_some()
    }

    /// Whether the body of a signed request has to be kept for [`Self::verify`].
    pub fn verifies_signatures(&self) -> bool {
        self.0.parts.chain.signature.is_some()
    }

    /// Looks at the signature's head, before the body is read.
    ///
    /// # Errors
    /// [`Denied`] when there is none that could hold, and none in the event is accepted either.
    pub fn glance(&self, caller: &Caller, head: &SignedHead<'_>, operation: Action) -> Result<(), Denied> {
        let inner = &*self.0;
        let Some(filter) = &inner.parts.chain.signature else { return Ok(()) };
        if caller.identity().credential == CredentialKind::Ticket {
            // Whoever asked for it signed that.
            return Ok(());
        }
        if inner.parts.mode == Mode::Permissive || (filter.takes_legacy() && operation == Action::Publish) {
            // Decided, counted and audited once, when the body is there.
            return Ok(());
        }
        let finding = filter.glance(head, inner.parts.clock.now());
        if matches!(finding, Finding::Pass(())) {
            return Ok(());
        }
        let asking = Asking { caller, operation, resource: None };
        inner.judged(filter::SIGNATURE, DeniedKind::Unauthenticated, finding, &asking).map(drop)
    }

    /// Verifies the signature over a whole request, or the events' own where that is accepted. Who signed is who
    /// calls, if nothing else said so.
    ///
    /// # Errors
    /// [`Denied`] when it is missing or wrong.
    pub fn verify(
        &self,
        caller: &Caller,
        head: &SignedHead<'_>,
        body: &[u8],
        operation: Action,
    ) -> Result<Verified, Denied> {
        let inner = &*self.0;
        let is_ticket = caller.identity().credential == CredentialKind::Ticket;
        let Some(filter) = inner.parts.chain.signature.as_ref().filter(|_| !is_ticket) else {
            return Ok(Verified { caller: caller.clone(), by_event: false });
        };
        let now = inner.parts.clock.now();
        let is_signed = !(head.header)("signature-input").is_empty();
        if !is_signed && filter.takes_legacy() && operation == Action::Publish {
            return Ok(Verified { caller: caller.clone(), by_event: true });
        }
        let finding = filter.verify(caller, head, body, now);
        inner.signed(caller, operation, finding)
    }

    /// Verifies the signature that an event carries itself, where [`Verified::by_event`] asks for it.
    ///
    /// # Errors
    /// [`Denied`] when it is missing or wrong.
    pub fn verify_event(&self, caller: &Caller, event: &Event) -> Result<Caller, Denied> {
        let inner = &*self.0;
        let Some(filter) = &inner.parts.chain.signature else { return Ok(caller.clone()) };
        let finding = filter.verify_legacy(caller, event, inner.parts.clock.now());
        Ok(inner.signed(caller, Action::Publish, finding)?.caller)
    }

    /// Whether what `owner` made may be touched by `caller`. Nobody's is everybody's.
    pub fn owns(
        &self,
        caller: &Caller,
        owner: Option<&str>,
        operation: Action,
        resource: Resource<'_>,
    ) -> Ownership {
        let principal = caller.principal().map(crate::Principal::as_str);
        if owner.is_none() || owner == principal {
            return Ownership::Granted;
        }
        self.not_owned(caller, operation, resource)
    }

    /// Decides about something that is known to be somebody else's, and keeps the decision.
    pub fn not_owned(&self, caller: &Caller, operation: Action, resource: Resource<'_>) -> Ownership {
        let inner = &*self.0;
        if inner.is_no_op {
            return Ownership::Granted;
        }
        let asking = Asking { caller, operation, resource: Some(resource) };
        let finding: Finding = Finding::Deny("it is another principal's".into());
        match inner.judged(filter::OWNER, DeniedKind::Forbidden, finding, &asking) {
            Ok(_) => Ownership::Granted,
            Err(_hidden) => Ownership::Hidden,
        }
    }

    /// Lets `value` through if `caller` may do `action` to `resource`.
    ///
    /// # Errors
    /// [`Denied`] when it may not.
    pub fn admit<T>(
        &self,
        caller: &Caller,
        action: Action,
        resource: Resource<'_>,
        value: T,
    ) -> Result<Admitted<T>, Denied> {
        self.decide(caller, action, resource, None, value)
    }

    /// Lets a publish through if `caller` may, and takes what it costs from the tenant's and the topic's rates.
    /// A denied publish takes nothing.
    ///
    /// # Errors
    /// [`Denied`] when it may not, or not now.
    pub fn admit_publish<T>(
        &self,
        caller: &Caller,
        topic: &TopicName,
        cost: Cost,
        value: T,
    ) -> Result<Admitted<T>, Denied> {
        self.decide(caller, Action::Publish, Resource::Topic(topic), Some(cost), value)
    }

    /// One more connection of the caller's tenant, until the lease is dropped; `None`: they are not limited.
    ///
    /// # Errors
    /// [`Denied`] when the tenant has as many as it may.
    pub fn connection(&self, caller: &Caller, operation: Action) -> Result<Option<Lease>, Denied> {
        let inner = &*self.0;
        inner.parts.quota.connection(caller.tenant()).map_err(|exceeded| {
            let asking = Asking { caller, operation, resource: None };
            inner.exceeded(filter::QUOTA, DeniedKind::QuotaExceeded, exceeded, &asking)
        })
    }

    /// The denial for a limit that was found reached where it is counted: `subscriptions`, `backlog`.
    pub fn quota_exceeded(
        &self,
        caller: &Caller,
        operation: Action,
        resource: Resource<'_>,
        exceeded: Exceeded,
    ) -> Denied {
        let asking = Asking { caller, operation, resource: Some(resource) };
        self.0.exceeded(filter::QUOTA, DeniedKind::QuotaExceeded, exceeded, &asking)
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

    /// Keeps the keys of issuers fresh that are fetched; for a task of its own. Ends at once where none are, else
    /// when it is dropped.
    pub async fn keep_keys_fresh(&self) {
        if let Some(token) = &self.0.parts.chain.token {
            token.keep_keys_fresh(self.0.parts.clock).await;
        }
    }

    fn decide<T>(
        &self,
        caller: &Caller,
        action: Action,
        resource: Resource<'_>,
        cost: Option<Cost>,
        value: T,
    ) -> Result<Admitted<T>, Denied> {
        let inner = &*self.0;
        let asking = Asking { caller, operation: action, resource: Some(resource) };
        let mut although = caller.failed_open();
        if let Some(acl) = inner.parts.chain.acl.as_ref().filter(|_| action != Action::Unsubscribe) {
            let finding = judge(acl, caller.identity(), action, resource);
            if matches!(finding, Finding::Pass(())) {
                inner.verdicts.acl_passed.inc();
            } else if let Judged::FailedOpen =
                inner.judged(filter::ACL, DeniedKind::Forbidden, finding, &asking)?
            {
                although = although.or(Some(filter::ACL));
            }
        }
        if let Some(cost) = cost {
            let topic = match resource {
                Resource::Topic(topic) => Some(topic),
                _ => None,
            };
            inner.charge(caller, topic, cost, &asking)?;
        }
        let basis = match although {
            _ if inner.is_no_op => Basis::NoGate,
            None => Basis::Passed,
            Some(_) => Basis::FailedOpen,
        };
        if inner.is_no_op {
            inner.verdicts.admitted_without_filter.inc();
        }
        // What failed open was kept when it did.
        let is_kept = although.is_none() && inner.interested(Outcome::Allowed, action);
        let context = RequestContext::new(caller.clone(), action, resource, is_kept);
        if is_kept {
            inner.keep(&inner.record(&asking, context.resource(), Outcome::Allowed, None, ""));
        }
        let limits = inner.parts.quota.limits(caller.tenant());
        Ok(Admitted::new(value, context, basis, limits))
    }
}

/// A caller whose request carries a signature that holds.
#[derive(Clone, Debug)]
pub struct Verified {
    /// Who.
    pub caller: Caller,
    /// The events have to carry the signature: ask [`SecurityGate::verify_event`] about each.
    pub by_event: bool,
}

/// Who asks for what.
struct Asking<'a> {
    caller: &'a Caller,
    operation: Action,
    resource: Option<Resource<'a>>,
}

fn judge(acl: &AclFilter, identity: &Identity, action: Action, resource: Resource<'_>) -> Finding {
    match resource {
        Resource::Topic(topic) => acl.judge(identity, action, topic.as_str()),
        Resource::Client(_, topics) => any(acl, identity, action, topics.iter()),
        Resource::Deliveries(topics) => any(acl, identity, action, topics.iter().flatten()),
        Resource::Named(name) => acl.judge(identity, action, name),
    }
}

/// Passes when it may have one of the topics, or when there is none; else the first objection.
fn any<'a>(
    acl: &AclFilter,
    identity: &Identity,
    action: Action,
    topics: impl Iterator<Item = &'a TopicName>,
) -> Finding {
    let mut objection = None;
    for topic in topics {
        match acl.judge(identity, action, topic.as_str()) {
            Finding::Pass(()) => return Finding::Pass(()),
            finding => objection = objection.or(Some(finding)),
        }
    }
    objection.unwrap_or(Finding::Pass(()))
}

impl Inner {
    /// Whether a credential is still good.
    fn holds(&self, identity: &Identity) -> bool {
        let is_over = identity.expires_at.is_some_and(|end| end <= self.parts.clock.now());
        !is_over && self.parts.chain.token.as_ref().is_none_or(|token| token.still_holds(identity))
    }

    /// The table: what becomes of what a filter found.
    fn judged<T>(
        &self,
        filter: &'static str,
        kind: DeniedKind,
        finding: Finding<T>,
        asking: &Asking<'_>,
    ) -> Result<Judged<T>, Denied> {
        let is_closed = self.parts.mode == Mode::Closed;
        let (reason, retry_after, is_denied, verdict): (Cow<'static, str>, Option<Duration>, _, _) =
            match finding {
                Finding::Pass(value) => {
                    self.verdicts.count(filter, "allow");
                    return Ok(Judged::Passed(value));
                }
                Finding::Deny(reason) => {
                    (reason, None, is_closed, if is_closed { "deny" } else { "would_deny" })
                }
                Finding::Malformed(reason) => (reason, None, true, "malformed"),
                Finding::Broken { reason, retry_after } => {
                    tracing::warn!(filter, %reason, "a filter cannot judge");
                    (
                        "the server cannot check this now".into(),
                        Some(retry_after),
                        is_closed,
                        if is_closed { "broken" } else { "would_deny" },
                    )
                }
            };
        self.verdicts.count(filter, verdict);
        let outcome = if is_denied { Outcome::Denied } else { Outcome::FailedOpen };
        if self.interested(outcome, asking.operation) {
            let resource = asking.resource.map_or_else(String::new, |resource| resource.describe());
            self.keep(&self.record(asking, &resource, outcome, Some(filter), &reason));
        }
        if is_denied { Err(Denied { kind, reason, retry_after }) } else { Ok(Judged::FailedOpen) }
    }

    fn signed(
        &self,
        caller: &Caller,
        operation: Action,
        finding: Finding<Arc<Identity>>,
    ) -> Result<Verified, Denied> {
        if let Finding::Pass(identity) = finding {
            self.verdicts.signature_passed.inc();
            return Ok(Verified { caller: caller.known_as(identity), by_event: false });
        }
        let asking = Asking { caller, operation, resource: None };
        let caller = match self.judged(filter::SIGNATURE, DeniedKind::Unauthenticated, finding, &asking)? {
            Judged::Passed(identity) => caller.known_as(identity),
            Judged::FailedOpen => caller.although(filter::SIGNATURE),
        };
        Ok(Verified { caller, by_event: false })
    }

    /// Takes what a publish costs: from the topic's rate, then from the tenant's.
    fn charge(
        &self,
        caller: &Caller,
        topic: Option<&TopicName>,
        cost: Cost,
        asking: &Asking<'_>,
    ) -> Result<(), Denied> {
        let taken = match topic {
            Some(topic) => self.parts.topic_rates.take(topic, cost.events).map_err(|exceeded| {
                self.exceeded(filter::RATE_LIMIT, DeniedKind::RateLimited, exceeded, asking)
            })?,
            None => None,
        };
        self.parts.quota.publish(caller.tenant(), cost).map_err(|exceeded| {
            if let Some(taken) = taken {
                taken.give_back();
            }
            self.exceeded(filter::QUOTA, DeniedKind::RateLimited, exceeded, asking)
        })
    }

    fn exceeded(
        &self,
        filter: &'static str,
        kind: DeniedKind,
        exceeded: Exceeded,
        asking: &Asking<'_>,
    ) -> Denied {
        self.verdicts.count(filter, "deny");
        let whose = if filter == filter::QUOTA { "tenant" } else { "topic" };
        let reason = format!("the {whose} has reached its limit of {}", exceeded.what);
        if self.interested(Outcome::Denied, asking.operation) {
            let resource = asking.resource.map_or_else(String::new, |resource| resource.describe());
            self.keep(&self.record(asking, &resource, Outcome::Denied, Some(filter), &reason));
        }
        Denied { kind, reason: reason.into(), retry_after: Some(exceeded.retry_after) }
    }

    fn interested(&self, outcome: Outcome, operation: Action) -> bool {
        self.parts.audit.iter().any(|sink| sink.interest().takes(outcome, Some(operation)))
    }

    fn record<'a>(
        &self,
        asking: &Asking<'a>,
        resource: &'a str,
        outcome: Outcome,
        filter: Option<&'static str>,
        reason: &'a str,
    ) -> AuditRecord<'a> {
        let caller = asking.caller;
        AuditRecord {
            at: self.parts.clock.now(),
            outcome,
            filter,
            reason,
            operation: Some(asking.operation),
            resource,
            tenant: caller.tenant().as_str(),
            principal: caller.principal().map(crate::Principal::as_str),
            credential: caller.identity().credential,
            remote: caller.remote(),
            protocol: caller.protocol(),
            trace: caller.trace(),
        }
    }

    /// Gives a record to the sinks. One that fails is counted each time; it is told when it begins to fail, not for
    /// each record of a flood.
    fn keep(&self, record: &AuditRecord<'_>) {
        for (sink, failed_at) in self.parts.audit.iter().zip(&self.audit_failed_at) {
            if !sink.interest().takes(record.outcome, record.operation) {
                continue;
            }
            if let Err(error) = sink.record(record) {
                let labels = vec![("sink", sink.name().to_owned())];
                self.audit_failed.get_or_create(&labels).inc();
                let now = self.parts.clock.now();
                let before = UnixMillis(failed_at.swap(now.0, Ordering::Relaxed));
                if before.0 == 0 || now.since(before) > CALM {
                    tracing::error!(
                        sink = sink.name(),
                        %error,
                        "audit records are lost; the requests go on (eventmesh_audit_failures_total counts them)"
                    );
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
