use std::time::Duration;

use mesh_delivery::DeliveryTopology;
use mesh_storage::SyncPolicy;

use super::*;
use crate::config::keys;

fn outcome(mode: Mode, definitions: &[&str]) -> Result<Settings, Vec<Problem>> {
    validate(Given::new().with_definitions(definitions.iter().copied()), mode).map(|(settings, _)| settings)
}

fn standalone(definitions: &[&str]) -> Settings {
    outcome(Mode::Standalone, definitions).unwrap_or_else(|problems| panic!("{problems:#?}"))
}

#[test]
fn every_declared_key_is_read() {
    let mut reader = Reader::new(Default::default(), Mode::Standalone);
    read(&mut reader, Mode::Standalone);
    assert_eq!(reader.read_count(), keys::all().count());
}

// proves: DT-3, CF-1, CF-2, SG-2
#[test]
fn standalone_starts_with_nothing_configured() {
    let settings = standalone(&[]);
    assert_eq!(settings.delivery.topology, Some(DeliveryTopology::LocalStickyPull));
    assert_eq!(
        (settings.storage.backend, settings.storage.sync),
        (StorageBackend::Embedded, SyncPolicy::Always)
    );
    assert_eq!((settings.http.host.as_str(), settings.http.port), ("127.0.0.1", 10105));
    assert_eq!((settings.admin.host.as_str(), settings.admin.port), ("127.0.0.1", 10106));
    assert_eq!(settings.storage.offset_path, settings.storage.data_dir.join("offset"));
    assert_eq!(settings.storage.backlog_max_age, Some(Duration::from_secs(14 * 86_400)));
    assert!(!settings.gate.fail_closed && settings.admin.token.is_none());
}

// proves: DT-3
#[test]
fn a_blank_value_is_as_good_as_none() {
    for blank in ["eventmesh.delivery.topology=", "eventmesh.delivery.topology=   ", "eventmesh.http.port="] {
        assert_eq!(standalone(&[blank]).delivery, standalone(&[]).delivery, "{blank}");
    }
}

#[test]
fn what_is_given_beats_the_defaults_of_standalone() {
    let given =
        ["eventmesh.storage.type=memory", "eventmesh.http.host=::", "eventmesh.storage.backlog.maxAge=0"];
    let settings = standalone(&given);
    assert_eq!(settings.storage.backend, StorageBackend::Memory);
    assert_eq!(settings.http.host, "::");
    assert_eq!(settings.storage.backlog_max_age, None);
}

/// A row: what is given, the keys with problems, words that their text has.
type Row = (&'static [&'static str], &'static [&'static str], &'static [&'static str]);

// proves: DT-5, DT-6, SG-2
#[test]
fn every_mistake_names_its_key_and_what_is_accepted() {
    const TOPOLOGY: &[&str] = &["eventmesh.delivery.topology"];
    let rows: [Row; 23] = [
        (
            &["eventmesh.delivery.topology=PARTITION_OWNER"],
            TOPOLOGY,
            &[
                "PARTITION_OWNER (from -D)",
                "LOCAL_STICKY_PULL (not in this build: PARTITION_OWNED_PULL)",
                "did you mean PARTITION_OWNED_PULL?",
            ],
        ),
        (&["eventmesh.delivery.topology=local_sticky_pull"], TOPOLOGY, &["did you mean LOCAL_STICKY_PULL?"]),
        (&["eventmesh.delivery.topology=LOCAL_STICKY_PULL;"], TOPOLOGY, &["LOCAL_STICKY_PULL;"]),
        (
            &["eventmesh.delivery.topology=PARTITION_OWNED_PULL"],
            TOPOLOGY,
            &["Meta", "eventmesh.meta.type is local"],
        ),
        (
            &["eventmesh.delivery.topology=PARTITION_OWNED_PULL", "eventmesh.meta.type=etcd"],
            &["eventmesh.meta.type"],
            &["is not in this build", "local (not in this build: etcd, nacos)"],
        ),
        (
            &["eventmesh.storage.type=kafka"],
            &["eventmesh.storage.type"],
            &["is not in this build", "embedded, memory"],
        ),
        (&["eventmesh.meta.addr=a:1"], &["eventmesh.meta.addr"], &["eventmesh.meta.type is local"]),
        (&["eventmesh.storage.partitions=0"], &["eventmesh.storage.partitions"], &["from 1 to 1024"]),
        (&["eventmesh.http.port=10106"], &["eventmesh.http.port"], &["eventmesh.admin.port"]),
        (&["eventmesh.admin.port=10105"], &["eventmesh.admin.port"], &["eventmesh.http.port"]),
        (&["eventmesh.http.port=x", "eventmesh.admin.port=10105"], &["eventmesh.http.port"], &["1 to 65535"]),
        (&["eventmesh.http.host=a b"], &["eventmesh.http.host"], &["IP address"]),
        (&["eventmesh.admin.token="], &["eventmesh.admin.token"], &["blank"]),
        (&["eventmesh.admin.token=${TOKEN}"], &["eventmesh.admin.token"], &["placeholder", "********"]),
        (&["eventmesh.admin.token=two words"], &["eventmesh.admin.token"], &["********"]),
        (&["eventmesh.data.dir=${HOME}/mesh"], &["eventmesh.data.dir"], &["placeholder"]),
        (
            &["eventmesh.security.gate.failClosed=true"],
            &["eventmesh.security.gate.failClosed"],
            &["nothing to check against"],
        ),
        (
            &["eventmesh.security.gate.failClosed=TRUE"],
            &["eventmesh.security.gate.failClosed"],
            &["true, false"],
        ),
        (&["eventmesh.http.headerTimeout=-1"], &["eventmesh.http.headerTimeout"], &["100ms", "1h"]),
        (
            &["eventmesh.http.maxBodyBytes=512MiB"],
            &["eventmesh.http.maxBodyBytes"],
            &["maxInFlightBodyBytes (256MiB)"],
        ),
        (
            &["eventmesh.delivery.maxOutstanding=3000000"],
            &["eventmesh.delivery.maxOutstanding"],
            &["maxOutstandingTotal (2000000)"],
        ),
        (&["eventmesh.http.advertisedAddr=0.0.0.0:1"], &["eventmesh.http.advertisedAddr"], &["wildcard"]),
        (
            &["eventmesh.http.port=x", "eventmesh.log.level=loud", "eventmesh.nonsense=1"],
            &["eventmesh.nonsense", "eventmesh.http.port", "eventmesh.log.level"],
            &["error, warn, info, debug, trace"],
        ),
    ];
    for (given, keys, words) in rows {
        let problems = outcome(Mode::Standalone, given).expect_err(given[0]);
        let found: Vec<_> = problems.iter().map(|problem| problem.key.as_str()).collect();
        assert_eq!(found, keys, "{given:?}");
        let text: String = problems.iter().map(|problem| format!("{problem}\n")).collect();
        for word in words {
            assert!(text.contains(word), "{word:?} is not in:\n{text}");
        }
    }
}

// proves: CF-3
#[test]
fn a_server_without_a_storage_type_lists_the_backends_and_names_standalone() {
    let problems = outcome(Mode::Server, &[]).expect_err("a server needs a storage type");
    let text = problems[0].to_string();
    for word in
        ["eventmesh.storage.type", "embedded", "memory", "kafka", "not in this build", "eventmesh standalone"]
    {
        assert!(text.contains(word), "{word:?} is not in:\n{text}");
    }
    assert_eq!(problems.len(), 1);
    let settings = outcome(Mode::Server, &["eventmesh.storage.type=embedded"]).expect("that is all it needs");
    assert_eq!((settings.http.host.as_str(), settings.admin.host.as_str()), ("0.0.0.0", "0.0.0.0"));
}

#[test]
fn any_two_ports_may_be_zero() {
    assert_eq!(standalone(&["eventmesh.http.port=0", "eventmesh.admin.port=0"]).http.port, 0);
}

#[test]
fn what_is_weaker_than_the_default_is_a_warning() {
    for (given, word) in [
        ("eventmesh.storage.type=memory", "lost when the process ends"),
        ("eventmesh.storage.embedded.sync=interval", "power loss"),
        ("eventmesh.storage.embedded.sync=never", "power loss"),
    ] {
        let (_, warnings) = validate(Given::new().with_definitions([given]), Mode::Standalone).expect(given);
        assert!(warnings.len() == 1 && warnings[0].0.contains(word), "{given}: {warnings:?}");
    }
}

#[test]
fn secrets_are_masked_wherever_settings_are_shown() {
    let settings = standalone(&["eventmesh.admin.token=hunter2"]);
    let shown: String = settings.effective().iter().map(|effective| format!("{effective}\n")).collect();
    assert!(shown.contains("eventmesh.admin.token=********  # -D"), "{shown}");
    assert!(!format!("{shown}{settings:?}").contains("hunter2"));
    assert_eq!(settings.given().count(), 1);
}
