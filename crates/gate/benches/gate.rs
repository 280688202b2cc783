//! What the gate costs: a decision by many rules, a publish against quotas, a whole admission, an audit record; and
//! how long a request waits for all of it at the 99th percentile.

use std::{fmt::Write as _, fs, hint::black_box, path::Path, sync::Arc};

use criterion::{Criterion, criterion_group};
use data_encoding::BASE64URL_NOPAD;
use hdrhistogram::Histogram;
use mesh_base::{Clock, Signals, UnixMillis};
use mesh_frame::{TenantId, TopicName};
use mesh_gate::{
    AclFilter, Action, Asks, AuditRecord, AuditSink, Cost, CredentialKind, FileAuditSettings, FileAuditSink,
    FilterChain, GateParts, Identity, Interest, JwtSettings, LoggingAuditSink, Mode, Outcome, Presented,
    Principal, Protocol, Resource, SecurityGate, TenantLimits, TenantQuotaManager, TokenAuthFilter,
    TokenSettings, TopicRates,
};
use ring::hmac;

/// Asks to publish an event of a thousand bytes to the topic.
struct Publish<'a>(&'a TopicName);

impl Asks for Publish<'_> {
    fn action(&self) -> Action {
        Action::Publish
    }

    fn resource(&self) -> Resource<'_> {
        Resource::Topic(self.0)
    }

    fn cost(&self) -> Option<Cost> {
        Some(Cost { events: 1, bytes: 1_000 })
    }
}

/// A third each by principal and topic, by role and everything below a name, by tenant; and two for everybody.
fn rules(count: usize, folder: &Path) -> AclFilter {
    let mut text = String::from(
        "[[rule]]\ntenant = \"*\"\nresource = \"public.*\"\naction = \"ANY\"\neffect = \"ALLOW\"\n\
         [[rule]]\nprincipal = \"*\"\nresource = \"*\"\naction = \"ADMIN\"\neffect = \"DENY\"\npriority = 9\n",
    );
    for number in 0..count - 2 {
        let (who, what) = match number % 3 {
            0 => (format!("principal = \"p{number}\""), format!("site.{number}.orders")),
            1 => (format!("role = \"r{number}\""), format!("site.{number}.*")),
            _ => (format!("tenant = \"t{number}\"\nrole = \"writer\""), "site.*".to_owned()),
        };
        let priority = number % 7;
        writeln!(
            text,
            "[[rule]]\n{who}\nresource = \"{what}\"\naction = \"PUBLISH\"\neffect = \"ALLOW\"\npriority = {priority}"
        )
        .expect("a string takes it");
    }
    loaded(&text, folder)
}

/// All about one topic, each about another principal.
fn rules_of_one_topic(count: usize, folder: &Path) -> AclFilter {
    let mut text = String::new();
    for number in 0..count {
        writeln!(
            text,
            "[[rule]]\nprincipal = \"p{number}\"\nresource = \"orders\"\naction = \"PUBLISH\"\neffect = \"ALLOW\""
        )
        .expect("a string takes it");
    }
    loaded(&text, folder)
}

fn loaded(text: &str, folder: &Path) -> AclFilter {
    let path = folder.join("acl.toml");
    fs::write(&path, text).expect("written");
    AclFilter::load(&path).expect("good rules")
}

fn identity(principal: Option<&str>, roles: &[&str], tenant: &str) -> Identity {
    Identity {
        tenant: TenantId::new(tenant).expect("legal"),
        principal: principal.map(Principal::new),
        roles: roles.iter().map(|role| (*role).to_owned()).collect(),
        credential: CredentialKind::Jwt,
        expires_at: None,
        entry: None,
    }
}

fn acl(criterion: &mut Criterion) {
    let folder = tempfile::tempdir().expect("a folder");
    for count in [1_000, 10_000] {
        let filter = rules(count, folder.path());
        let last = (count - 3) / 3 * 3;
        let (principal, topic) = (format!("p{last}"), format!("site.{last}.orders"));
        let (role, below) = (format!("r{}", last - 2), format!("site.{}.orders.eu.paid", last - 2));
        let many: Vec<String> =
            (0..20).map(|number| format!("other{number}")).chain([role.clone()]).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let cases = [
            ("exact", identity(Some(&principal), &["reader", "writer"], "t1"), topic.as_str()),
            ("below, of 21 roles", identity(Some("x"), &many, "t1"), below.as_str()),
            ("everybody", identity(Some("x"), &[], "t1"), "public.a.b"),
            ("no rule", identity(Some("x"), &["writer"], "t2"), topic.as_str()),
        ];
        for (name, who, resource) in cases {
            criterion.bench_function(&format!("acl/{count} rules/{name}"), |bench| {
                bench.iter(|| filter.judge(black_box(&who), Action::Publish, black_box(resource)));
            });
        }
    }
    let filter = rules_of_one_topic(10_000, folder.path());
    let who = identity(Some("p9999"), &[], "t1");
    criterion.bench_function("acl/10000 rules of one topic", |bench| {
        bench.iter(|| filter.judge(black_box(&who), Action::Publish, black_box("orders")));
    });
}

fn limits() -> TenantLimits {
    TenantLimits {
        connections: Some(1_000),
        events_per_second: Some(1_000_000_000),
        bytes_per_second: Some(1_000_000_000_000),
        ..TenantLimits::default()
    }
}

fn quota(criterion: &mut Criterion) {
    let tenant = TenantId::new("t1").expect("legal");
    let cost = Cost { events: 1, bytes: 1_000 };
    for (name, limits) in [("limited", limits()), ("unlimited", TenantLimits::default())] {
        let quota = TenantQuotaManager::new(limits, None, Clock::system());
        criterion.bench_function(&format!("quota/publish, {name}"), |bench| {
            bench.iter(|| quota.publish(black_box(&tenant), black_box(cost)));
        });
    }
}

fn file_sink(folder: &Path, interest: Interest) -> FileAuditSink {
    let settings = FileAuditSettings {
        interest,
        // Criterion is faster than a disk.
        queue_bytes: 256 << 20,
        kept_files: 1,
        ..FileAuditSettings::new(folder.join("audit.log"))
    };
    FileAuditSink::start(&settings, Clock::system(), &Signals::new()).expect("a new log")
}

fn admission(criterion: &mut Criterion) {
    let topic = TopicName::client("public.orders").expect("legal");
    let presented = Presented {
        authorization: None,
        certificate: None,
        trace: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        remote: "192.0.2.7:40000".parse().ok(),
        protocol: Protocol::Http,
    };
    for (name, with_acl, sink) in [
        ("no gate", false, None),
        ("1000 rules, quota, log", true, None),
        ("1000 rules, quota, file of denials", true, Some(Interest::Denials)),
        ("1000 rules, quota, file of everything", true, Some(Interest::Everything)),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let clock = Clock::system();
        let mut audit: Vec<Arc<dyn AuditSink>> = vec![Arc::new(LoggingAuditSink)];
        audit.extend(sink.map(|interest| Arc::new(file_sink(folder.path(), interest)) as Arc<dyn AuditSink>));
        let limits = if with_acl { limits() } else { TenantLimits::default() };
        let parts = GateParts {
            default_tenant: TenantId::new("t1").expect("legal"),
            chain: FilterChain {
                acl: with_acl.then(|| rules(1_000, folder.path())),
                ..FilterChain::default()
            },
            mode: Mode::Closed,
            quota: TenantQuotaManager::new(limits, None, clock),
            topic_rates: TopicRates::new(clock),
            audit,
            clock,
        };
        let gate = SecurityGate::new(parts, &Signals::new());
        criterion.bench_function(&format!("admit_publish/{name}"), |bench| {
            bench.iter(|| {
                let caller =
                    gate.authenticate(black_box(&presented), Action::Publish).expect("no token filter");
                gate.admit(&caller, Publish(black_box(&topic))).expect("permitted")
            });
        });
    }
}

/// The processor time of all threads of this process so far, in nanoseconds.
#[cfg(target_os = "linux")]
fn processor_nanos() -> u64 {
    let of = |path: &Path| {
        let text = fs::read_to_string(path).unwrap_or_default();
        text.split(' ').next().and_then(|nanos| nanos.parse::<u64>().ok()).unwrap_or(0)
    };
    let threads = fs::read_dir("/proc/self/task").expect("this is Linux");
    threads.flatten().map(|thread| of(&thread.path().join("schedstat"))).sum()
}

/// What a record costs in all: on the request's task and on the thread that writes it.
#[cfg(target_os = "linux")]
fn whole_cost_of_records() {
    const RECORDS: u32 = 1_000_000;
    let folder = tempfile::tempdir().expect("a folder");
    let sink = file_sink(folder.path(), Interest::Everything);
    let record = AuditRecord {
        at: UnixMillis(1_800_000_000_000),
        outcome: Outcome::Allowed,
        filter: None,
        reason: "",
        operation: Some(Action::Publish),
        resource: "topic:public.orders",
        tenant: "tenant-1",
        principal: Some("service-orders"),
        credential: CredentialKind::Jwt,
        remote: "192.0.2.7:40000".parse().ok(),
        protocol: Protocol::Http,
        trace: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    };
    let before = processor_nanos();
    for _ in 0..RECORDS {
        sink.record(&record).expect("there is room");
    }
    sink.flush();
    let all = processor_nanos() - before;
    println!("file sink: {} ns of processor time a record, in all threads", all / u64::from(RECORDS));
}

/// A filter that takes the tokens of an issuer, and one of them.
fn issuer(folder: &Path) -> (TokenAuthFilter, String) {
    const SECRET: &str = "a secret that is long enough for HS256";
    let path = folder.join("secret");
    fs::write(&path, SECRET).expect("written");
    let jwt = JwtSettings {
        secret_file: Some(path),
        issuer: Some("https://issuer.example".to_owned()),
        audience: vec!["bench".to_owned()],
        ..JwtSettings::default()
    };
    let filter = TokenAuthFilter::load(&TokenSettings { jwt, ..TokenSettings::default() }).expect("whole");
    let ends = Clock::system().now().0 / 1_000 + 24 * 60 * 60;
    let claims = format!(
        r#"{{"iss":"https://issuer.example","aud":"bench","exp":{ends},"sub":"service-orders","tenant":"t1","roles":["reader","writer","r601"]}}"#
    );
    let [header, claims] =
        [r#"{"alg":"HS256","typ":"JWT"}"#, &claims].map(|part| BASE64URL_NOPAD.encode(part.as_bytes()));
    let signed = format!("{header}.{claims}");
    let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes()), signed.as_bytes());
    (filter, format!("Bearer {signed}.{}", BASE64URL_NOPAD.encode(signature.as_ref())))
}

/// How long each of many publishes waits for the whole gate, one after the other on each of some threads: a signed
/// token that was seen before, 1,000 rules, quotas, an audit file. What the clock itself takes is in it.
fn waits() {
    const CALLS: u64 = 200_000;
    for (threads, interest) in
        [(1, Interest::Denials), (1, Interest::Everything), (2, Interest::Denials), (2, Interest::Everything)]
    {
        let folder = tempfile::tempdir().expect("a folder");
        let (token, bearer) = issuer(folder.path());
        let clock = Clock::system();
        let parts = GateParts {
            default_tenant: TenantId::new("nobody").expect("legal"),
            chain: FilterChain {
                token: Some(token),
                acl: Some(rules(1_000, folder.path())),
                ..FilterChain::default()
            },
            mode: Mode::Closed,
            quota: TenantQuotaManager::new(limits(), None, clock),
            topic_rates: TopicRates::new(clock),
            audit: vec![Arc::new(LoggingAuditSink), Arc::new(file_sink(folder.path(), interest))],
            clock,
        };
        let gate = SecurityGate::new(parts, &Signals::new());
        let topic = TopicName::client("site.601.orders").expect("legal");
        let presented = Presented {
            authorization: Some(bearer.as_bytes()),
            certificate: None,
            trace: None,
            remote: "192.0.2.7:40000".parse().ok(),
            protocol: Protocol::Http,
        };
        let publish = || {
            let caller = gate.authenticate(black_box(&presented), Action::Publish).expect("a good token");
            drop(black_box(gate.admit(&caller, Publish(black_box(&topic))).expect("permitted")));
        };
        let one = || {
            let mut nanos = Histogram::<u64>::new(3).expect("three digits");
            for call in 0..CALLS + CALLS / 10 {
                let start = clock.elapsed();
                publish();
                let took = clock.elapsed() - start;
                // The first ones warm up.
                if call >= CALLS / 10 {
                    nanos
                        .record(u64::try_from(took.as_nanos()).expect("not for centuries"))
                        .expect("it grows");
                }
            }
            nanos
        };
        let mut nanos = Histogram::<u64>::new(3).expect("three digits");
        std::thread::scope(|scope| {
            let running: Vec<_> = (0..threads).map(|_| scope.spawn(one)).collect();
            for thread in running {
                nanos.add(thread.join().expect("no publish panics")).expect("it grows");
            }
        });
        let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|quantile| nanos.value_at_quantile(quantile));
        println!(
            "whole gate, {threads} threads, file of {interest:?}: p50 {p50} ns, p99 {p99} ns, p99.9 {p999} ns, max {} ns",
            nanos.max()
        );
    }
}

criterion_group!(benches, acl, quota, admission);

fn main() {
    #[cfg(target_os = "linux")]
    whole_cost_of_records();
    waits();
    benches();
    Criterion::default().configure_from_args().final_summary();
}
