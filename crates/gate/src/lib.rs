//! SecurityGate: who may do what.
//!
//! An edge shows what a request brought ([`Presented`]) and gets a [`Caller`]; it then asks for one action
//! on one resource and gets the request back as [`Admitted`], which nobody outside this crate can make. What
//! works for clients takes only `Admitted<…>`, so a way in that forgets the gate does not compile.
//!
//! The gate asks its [`FilterChain`] (who is it, did they sign it, may they), then the [`TenantQuotaManager`],
//! and gives every decision to its [`AuditSink`]s. Without a filter it is open: every caller is the default
//! tenant's, everything is admitted, and the basis says so ([`Basis::NoGate`]).

mod acl;
mod action;
mod admitted;
mod audit;
mod caller;
mod context;
mod denied;
mod entries;
mod filter;
mod gate;
mod holder;
mod quota;
mod signature;
mod tickets;
mod token;
mod toml_text;
mod topic_rates;
mod watched_file;

pub use acl::{AclFilter, RuleCount};
pub use action::{Action, Asks, Resource};
pub use admitted::{Admitted, Basis};
pub use audit::{
    AuditPublisher, AuditRecord, AuditReport, AuditSink, EventAuditSink, FileAuditSettings, FileAuditSink,
    Interest, LoggingAuditSink, Outcome, SinkFailed, VerifyError, verify_audit,
};
pub use caller::{
    Caller, CertificateNames, CredentialKind, EntryId, Identity, Presented, Principal, Protocol,
};
pub use context::RequestContext;
pub use denied::{Denied, DeniedKind};
pub use filter::{Finding, LoadError, Reload};
pub use gate::{FilterChain, GateParts, Mode, Ownership, SecurityGate, Verified};
pub use quota::{Cost, Exceeded, TenantLimits, TenantLimitsFile, TenantQuotaManager};
pub use signature::{SignatureSettings, SignatureVerifierFilter, SignedHead};
pub use tickets::Ticket;
pub use token::{
    FetchFailed, Fetching, JwtSettings, KeyFetcher, TokenAuthFilter, TokenSettings, check_key_set_url,
};
pub use topic_rates::{TakenOfRate, TopicRate, TopicRates, UnusableRate};
pub use watched_file::WatchedFile;
