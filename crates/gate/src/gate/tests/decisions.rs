//! The decision table, row by row: what becomes of each cause, closed and permissive.

use std::{fs, path::Path, time::Duration};

use mesh_frame::ClientId;
use parking_lot::Mutex;

use super::*;
use crate::{
    Admitted, Denied, DeniedKind, Interest, Principal, SinkFailed, TenantLimits, TokenSettings, filter,
    gate::verdict::{Asking, Judged},
};

/// Rules: ann may publish and subscribe to `a.*`; what concerns `a.x` is malformed; bob has none.
const RULES: &str = r#"
[[rule]]
principal = "ann"
resource = "a.*"
action = "ANY"
effect = "ALLOW"

[[rule]]
principal = "ann"
resource = "a.x"
action = "FLY"
effect = "ALLOW"

[[rule]]
principal = "ann"
resource = "a.secret"
action = "ANY"
effect = "DENY"
"#;

/// Keeps what it gets, as text.
#[derive(Debug, Default)]
pub(super) struct Kept(pub(super) Mutex<Vec<String>>);

impl AuditSink for Kept {
    fn name(&self) -> &'static str {
        "kept"
    }

    fn interest(&self) -> Interest {
        Interest::Everything
    }

    fn record(&self, record: &AuditRecord<'_>) -> Result<(), SinkFailed> {
        self.0.lock().push(format!("{record:?}"));
        Ok(())
    }
}

/// Takes nothing.
#[derive(Debug)]
struct Failing;

impl AuditSink for Failing {
    fn name(&self) -> &'static str {
        "failing"
    }

    fn interest(&self) -> Interest {
        Interest::Everything
    }

    fn record(&self, _record: &AuditRecord<'_>) -> Result<(), SinkFailed> {
        Err(SinkFailed("the disk is full".to_owned()))
    }
}

struct Fixture {
    gate: SecurityGate,
    signals: Signals,
    kept: Arc<Kept>,
    folder: tempfile::TempDir,
}

fn fixture(mode: Mode, limits: TenantLimits, token: Option<TokenAuthFilter>) -> Fixture {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("acl.toml");
    fs::write(&path, RULES).expect("written");
    let (signals, kept) = (Signals::new(), Arc::new(Kept::default()));
    let clock = Clock::system();
    let acl = Some(AclFilter::load(&path).expect("TOML"));
    let parts = GateParts {
        default_tenant: TenantId::new("default").expect("legal"),
        chain: FilterChain { token, signature: None, acl },
        mode,
        quota: TenantQuotaManager::new(limits, None, clock),
        topic_rates: TopicRates::new(clock),
        audit: vec![kept.clone(), Arc::new(Failing)],
        clock,
    };
    Fixture { gate: SecurityGate::new(parts, &signals), signals, kept, folder }
}

const PRESENTED: Presented<'_> =
    Presented { authorization: None, certificate: None, trace: None, remote: None, protocol: Protocol::Http };

fn caller(name: Option<&str>) -> Caller {
    let nobody = Identity::anonymous(TenantId::new("t1").expect("legal"));
    let identity = Identity { principal: name.map(Principal::new), ..nobody };
    Caller::new(Arc::new(identity), &PRESENTED, None)
}

fn topic(name: &str) -> TopicName {
    TopicName::client(name).expect("legal")
}

/// How a request ends: its basis, or the kind of denial and whether it says when to come again.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Admitted(Basis),
    Hidden,
    Denied(DeniedKind, bool),
}

impl End {
    fn of<T>(result: Result<Admitted<T>, Denied>) -> Self {
        match result {
            Ok(admitted) => Self::Admitted(admitted.basis()),
            Err(denied) => Self::denied(&denied),
        }
    }

    fn denied(denied: &Denied) -> Self {
        Self::Denied(denied.kind, denied.retry_after.is_some())
    }
}

/// Asks to administer what has this name.
struct Administer(&'static str);

impl Asks for Administer {
    fn action(&self) -> Action {
        Action::Admin
    }

    fn resource(&self) -> Resource<'_> {
        Resource::Named(self.0)
    }

    fn cost(&self) -> Option<Cost> {
        None
    }
}

/// A finding of a filter that stands for one that is built elsewhere, and then a publish that the rules allow.
fn found(fixture: &Fixture, filter: &'static str, kind: DeniedKind, finding: Finding<()>) -> End {
    let ann = caller(Some("ann"));
    let asking = Asking { caller: &ann, operation: Action::Publish, resource: None };
    let although = match fixture.gate.0.judged(filter, kind, finding, &asking) {
        Ok(Judged::Passed(())) => ann.clone(),
        Ok(Judged::FailedOpen) => ann.although(filter),
        Err(denied) => return End::denied(&denied),
    };
    publish(fixture, &although, "a.b")
}

fn publish(fixture: &Fixture, caller: &Caller, name: &str) -> End {
    End::of(fixture.gate.admit(caller, Publish::of(topic(name))))
}

#[test]
fn each_cause_ends_as_the_decision_table_says() {
    // proves: SG-3
    use DeniedKind::{Forbidden, QuotaExceeded, RateLimited, Unauthenticated};
    type Cause = fn(&Fixture) -> End;
    const OPEN: End = End::Admitted(Basis::FailedOpen);
    const WAIT: Duration = Duration::from_secs(3);
    fn broken() -> Finding {
        Finding::Broken { reason: "the key server is away".into(), retry_after: WAIT }
    }
    // The cause; what closed and permissive make of it; filter and verdict that are counted; the outcome kept.
    type Row = (&'static str, Cause, [End; 2], &'static str, [&'static str; 2], [&'static str; 2]);
    let denied_or_open = ["Denied", "FailedOpen"];
    let deny = ["deny", "would_deny"];
    let rows: [Row; 15] = [
        (
            "what the rules allow",
            |f| publish(f, &caller(Some("ann")), "a.b"),
            [End::Admitted(Basis::Passed), End::Admitted(Basis::Passed)],
            "acl",
            ["allow"; 2],
            ["Allowed"; 2],
        ),
        (
            "token missing or wrong",
            |f| found(f, filter::TOKEN, Unauthenticated, Finding::Deny("no".into())),
            [End::Denied(Unauthenticated, false), OPEN],
            "token",
            deny,
            denied_or_open,
        ),
        (
            "signature missing or wrong",
            |f| found(f, filter::SIGNATURE, Unauthenticated, Finding::Deny("no".into())),
            [End::Denied(Unauthenticated, false), OPEN],
            "signature",
            deny,
            denied_or_open,
        ),
        (
            "a rule denies",
            |f| publish(f, &caller(Some("ann")), "a.secret"),
            [End::Denied(Forbidden, false), OPEN],
            "acl",
            deny,
            denied_or_open,
        ),
        (
            "no rule matches",
            |f| publish(f, &caller(Some("ann")), "b"),
            [End::Denied(Forbidden, false), OPEN],
            "acl",
            deny,
            denied_or_open,
        ),
        (
            "no rule matches nobody",
            |f| publish(f, &caller(None), "a.b"),
            [End::Denied(Forbidden, false), OPEN],
            "acl",
            deny,
            denied_or_open,
        ),
        (
            "another action",
            |f| End::of(f.gate.admit(&caller(Some("ann")), Administer("a.b"))),
            [End::Denied(Forbidden, false), OPEN],
            "acl",
            deny,
            denied_or_open,
        ),
        (
            "another principal's",
            |f| match f.gate.owns(&caller(Some("ann")), Some("bob"), Action::Subscribe, Resource::Named("c1"))
            {
                Ownership::Own | Ownership::OverOthers => OPEN,
                Ownership::Hidden => End::Hidden,
            },
            [End::Hidden, OPEN],
            "owner",
            deny,
            denied_or_open,
        ),
        (
            "nobody's",
            |f| match f.gate.owns(&caller(Some("ann")), None, Action::Subscribe, Resource::Named("c1")) {
                Ownership::Own => publish(f, &caller(Some("ann")), "a.b"),
                Ownership::OverOthers | Ownership::Hidden => End::Hidden,
            },
            [End::Admitted(Basis::Passed), End::Admitted(Basis::Passed)],
            "acl",
            ["allow"; 2],
            ["Allowed"; 2],
        ),
        (
            "the rule is malformed",
            |f| publish(f, &caller(Some("ann")), "a.x"),
            [End::Denied(Forbidden, false), End::Denied(Forbidden, false)],
            "acl",
            ["malformed"; 2],
            ["Denied"; 2],
        ),
        (
            "authentication breaks",
            |f| found(f, filter::TOKEN, Unauthenticated, broken()),
            [End::Denied(Unauthenticated, true), OPEN],
            "token",
            ["broken", "would_deny"],
            denied_or_open,
        ),
        (
            "authorization breaks",
            |f| found(f, filter::ACL, Forbidden, broken()),
            [End::Denied(Forbidden, true), OPEN],
            "acl",
            ["broken", "would_deny"],
            denied_or_open,
        ),
        (
            "over the tenant's rate",
            |f| {
                let cost = Cost { events: 100, bytes: 1 };
                let ann = caller(Some("ann"));
                drop(f.gate.admit(&ann, Publish { topic: topic("a.b"), cost }));
                publish(f, &ann, "a.b")
            },
            [End::Denied(RateLimited, true), End::Denied(RateLimited, true)],
            "quota",
            ["deny"; 2],
            ["Denied"; 2],
        ),
        (
            "over the topic's rate",
            |f| {
                let rate = crate::TopicRate::new(1, 0.01).expect("sensible");
                f.gate.topic_rates().replace([(topic("a.b"), rate)].into());
                let ann = caller(Some("ann"));
                drop(f.gate.admit(&ann, Publish::of(topic("a.b"))));
                publish(f, &ann, "a.b")
            },
            [End::Denied(RateLimited, true), End::Denied(RateLimited, true)],
            "ratelimit",
            ["deny"; 2],
            ["Denied"; 2],
        ),
        (
            "too many connections",
            |f| {
                let ann = caller(Some("ann"));
                let _held = f.gate.connection(&ann, Action::Subscribe).expect("the first");
                f.gate
                    .connection(&ann, Action::Subscribe)
                    .map_or_else(|denied| End::denied(&denied), |_| OPEN)
            },
            [End::Denied(QuotaExceeded, true), End::Denied(QuotaExceeded, true)],
            "quota",
            ["deny"; 2],
            ["Denied"; 2],
        ),
    ];
    let limits =
        TenantLimits { connections: Some(1), events_per_second: Some(10), ..TenantLimits::default() };
    for (name, cause, expected, filter, verdicts, outcomes) in rows {
        for (at, mode) in [Mode::Closed, Mode::Permissive].into_iter().enumerate() {
            let fixture = fixture(mode, limits, None);
            let came = cause(&fixture);
            assert_eq!(came, expected[at], "{name}, {mode:?}");
            let line =
                format!("eventmesh_gate_verdicts_total{{filter=\"{filter}\",verdict=\"{}\"}}", verdicts[at]);
            let text = fixture.signals.text();
            let counted = text.lines().find_map(|counted| counted.strip_prefix(&line));
            assert!(counted.map(str::trim).is_some_and(|count| count != "0"), "{name}, {mode:?}: {text}");
            let records = fixture.kept.0.lock();
            let outcome = format!("outcome: {}", outcomes[at]);
            assert!(records.iter().any(|record| record.contains(&outcome)), "{name}, {mode:?}: {records:?}");
            // Each decision once: what failed open is not also kept as allowed.
            assert!(records.len() <= 2, "{name}, {mode:?}: {records:?}");
        }
    }
}

#[test]
fn what_may_be_received_follows_the_same_rules() {
    for (mode, denied) in [(Mode::Closed, false), (Mode::Permissive, true)] {
        let Fixture { gate, folder, .. } = fixture(mode, TenantLimits::default(), None);
        let ann = caller(Some("ann"));
        let may = |name: &str| gate.may_receive(&ann, &topic(name));
        assert_eq!((may("a.b"), may("a.secret"), may("a.x")), (true, denied, false), "{mode:?}");
        // covers: U102
        let before = gate.revision();
        fs::write(folder.path().join("acl.toml"), "").expect("written");
        gate.reload();
        assert_eq!((gate.revision() > before, may("a.b"), may("a.x")), (true, denied, denied), "{mode:?}");
    }
}

#[test]
fn a_denied_publish_takes_nothing_of_any_rate() {
    // proves: SG-6
    let limits =
        TenantLimits { events_per_second: Some(10), bytes_per_second: Some(100), ..TenantLimits::default() };
    let fixture = fixture(Mode::Closed, limits, None);
    let rate = crate::TopicRate::new(10, 0.001).expect("sensible");
    fixture.gate.topic_rates().replace([(topic("a.b"), rate)].into());
    let ann = caller(Some("ann"));
    let take = |name: &str, events, bytes| {
        let request = Publish { topic: topic(name), cost: Cost { events, bytes } };
        fixture.gate.admit(&ann, request).map(drop)
    };
    // Debts of bytes, so that the tenant's rate refuses from now on, and denials by the rules.
    take("a.c", 1, 100_000).expect("a full bucket");
    for _ in 0..100 {
        assert_eq!(take("a.b", 1, 1).expect_err("over the bytes").kind, DeniedKind::RateLimited);
        assert_eq!(take("a.secret", 1, 1).expect_err("not permitted").kind, DeniedKind::Forbidden);
    }
    // The topic still has all it had: the tenant's refusals gave it back.
    let topic = topic("a.b");
    let taken = fixture.gate.topic_rates().take(&topic, 10);
    assert!(taken.is_ok() && fixture.gate.topic_rates().take(&topic, 1).is_err());
}

#[test]
fn a_sink_that_fails_is_counted_and_the_request_goes_on() {
    // proves: SG-5  covers: U110
    let fixture = fixture(Mode::Closed, TenantLimits::default(), None);
    let ann = caller(Some("ann"));
    for _ in 0..3 {
        assert_eq!(publish(&fixture, &ann, "a.b"), End::Admitted(Basis::Passed));
    }
    assert_eq!(publish(&fixture, &ann, "b"), End::Denied(DeniedKind::Forbidden, false));
    let line = "eventmesh_audit_failures_total{sink=\"failing\"} 4";
    assert!(fixture.signals.text().contains(line), "{}", fixture.signals.text());
    assert_eq!(fixture.kept.0.lock().len(), 4);
    let gauges = fixture.signals.text();
    assert!(gauges.contains("eventmesh_gate_acl_rules 3\n"), "{gauges}");
    assert!(gauges.contains("eventmesh_gate_acl_rules_malformed 1\n"), "{gauges}");
}

fn token_filter(path: &Path, secret: &str) -> TokenAuthFilter {
    let text =
        format!("[[token]]\nname = \"n\"\nvalue = \"{secret}\"\ntenant = \"t1\"\nprincipal = \"ann\"\n");
    fs::write(path, text).expect("written");
    let mut settings = TokenSettings::default();
    settings.token_file.get_or_insert(path.to_owned());
    TokenAuthFilter::load(&settings).expect("a good file")
}

#[test]
fn no_credential_ever_shows_in_a_record() {
    let right = "right-8c1f0a7be2d94c55";
    let wrong = "wrong-41d0b66ce9a2f731";
    let folder = tempfile::tempdir().expect("a folder");
    for mode in [Mode::Closed, Mode::Permissive] {
        let limits = TenantLimits { events_per_second: Some(1), ..TenantLimits::default() };
        let token = token_filter(&folder.path().join("tokens.toml"), right);
        let fixture = fixture(mode, limits, Some(token));
        let mut told = String::new();
        for secret in [right, wrong] {
            for shown in [
                format!("Bearer {secret}"),
                format!("bearer  {secret}"),
                secret.to_owned(),
                format!("Basic {secret}"),
            ] {
                let presented = Presented { authorization: Some(shown.as_bytes()), ..PRESENTED };
                let caller = match fixture.gate.authenticate(&presented, Action::Publish) {
                    Ok(caller) => caller,
                    Err(denied) => {
                        told += &denied.to_string();
                        continue;
                    }
                };
                told += &format!("{caller:?}");
                for name in ["a.b", "a.secret", "a.x", "a.b"] {
                    if let Err(denied) = fixture.gate.admit(&caller, Publish::of(topic(name))) {
                        told += &denied.to_string();
                    }
                }
            }
        }
        let records = fixture.kept.0.lock();
        assert!(records.len() >= 4, "{mode:?}: {records:?}");
        for secret in [right, wrong] {
            for text in records.iter().chain([&told]) {
                assert!(!text.contains(secret) && !text.contains(&secret[6..]), "{mode:?}: {text}");
            }
        }
    }
}

#[test]
fn a_token_taken_out_of_its_file_ends_what_was_opened_with_it_where_the_gate_is_closed() {
    // covers: U102
    let secret = "right-8c1f0a7be2d94c55";
    for (mode, ends) in [(Mode::Closed, true), (Mode::Permissive, false)] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tokens.toml");
        let fixture = fixture(mode, TenantLimits::default(), Some(token_filter(&path, secret)));
        let gate = &fixture.gate;
        let presented = Presented { authorization: Some(secret.as_bytes()), ..PRESENTED };
        let ann = gate.authenticate(&presented, Action::Subscribe).expect("known");
        let client = ClientId::new("c").expect("legal");
        let (used, unused) = (gate.ticket(&ann, None), gate.ticket(&ann, None));
        let of_ticket = gate.redeem(&used.expect("a ticket").text, &client, &PRESENTED).expect("it is good");
        assert!(!gate.has_ended(&ann) && !gate.has_ended(&of_ticket), "{mode:?}");

        let other = folder.path().join("other.toml");
        token_filter(&other, "other-41d0b66ce9a2f731");
        fs::rename(&other, &path).expect("renamed");
        gate.reload();
        assert_eq!((gate.has_ended(&ann), gate.has_ended(&of_ticket)), (ends, ends), "{mode:?}");
        let late = gate.redeem(&unused.expect("a ticket").text, &client, &PRESENTED);
        assert_eq!(late.is_err(), ends, "{mode:?}: a ticket is good no longer than what it stands for");
    }
}
