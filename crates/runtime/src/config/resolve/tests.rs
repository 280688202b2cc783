use std::path::PathBuf;

use super::*;

fn variable(name: &str, value: &str) -> Pair {
    Pair { name: name.to_owned(), value: value.to_owned(), origin: Origin::Environment(name.to_owned()) }
}

fn defined(name: &str, value: &str) -> Pair {
    Pair { name: name.to_owned(), value: value.to_owned(), origin: Origin::CommandLine }
}

fn written(line: usize, name: &str, value: &str) -> Pair {
    let origin = Origin::File { path: PathBuf::from("f"), line };
    Pair { name: name.to_owned(), value: value.to_owned(), origin }
}

const PORT: &str = "eventmesh.http.port";

// proves: DT-4
#[test]
fn the_command_line_beats_the_environment_which_beats_the_file() {
    let (file, environment, command) =
        (written(1, PORT, "1"), variable("EVENTMESH_HTTP_PORT", "2"), defined(PORT, "3"));
    let cases = [
        (vec![file.clone()], "1"),
        (vec![file.clone(), environment.clone()], "2"),
        (vec![environment.clone(), file.clone()], "2"),
        (vec![command.clone(), environment, file.clone()], "3"),
        (vec![file.clone(), command, defined(PORT, "")], ""),
        (vec![file, written(2, PORT, "9")], "9"),
    ];
    for (pairs, expected) in cases {
        assert_eq!(resolve(pairs.clone()).given[PORT].value, expected, "{pairs:?}");
    }
}

#[test]
fn a_key_given_twice_in_one_source_is_a_warning_that_names_both_places() {
    let resolved = resolve(vec![written(1, PORT, "1"), written(7, PORT, "2")]);
    assert!(resolved.warnings[0].0.contains("f:1") && resolved.warnings[0].0.contains("f:7"), "{resolved:?}");
    assert!(resolve(vec![written(1, PORT, "1"), written(7, PORT, "1")]).warnings.is_empty());
    assert!(resolve(vec![written(1, PORT, "1"), defined(PORT, "2")]).warnings.is_empty());
}

/// What becomes of a name.
#[derive(Debug, PartialEq)]
enum Fate {
    Known,
    Stops(Option<&'static str>),
    Warns,
}

// proves: CF-5
#[test]
fn every_name_that_is_no_key_has_the_fate_that_its_source_and_prefix_give_it() {
    let cases = [
        (defined(PORT, "1"), Fate::Known),
        (defined("eventmesh.delivery.topologi", "x"), Fate::Stops(Some("eventmesh.delivery.topology"))),
        (written(1, "eventmesh.admin.tokem", "x"), Fate::Stops(Some("eventmesh.admin.token"))),
        (
            written(1, "eventmesh.security.gate.failclosed", "true"),
            Fate::Stops(Some("eventmesh.security.gate.failClosed")),
        ),
        (defined("EventMesh.http.port", "1"), Fate::Stops(Some(PORT))),
        (defined("EVENTMESH_HTTP_PORT", "1"), Fate::Stops(Some(PORT))),
        (defined("eventmesh.zzzzzzzzzzzzzzzzzzzzzzzzzzzzz", "1"), Fate::Stops(None)),
        (defined("eventMesh.server.http.port", "1"), Fate::Warns),
        (defined("eventMesh.sysid", "1"), Fate::Warns),
        (
            defined("eventMesh.security.gate.failClosed", "true"),
            Fate::Stops(Some("eventmesh.security.gate.failClosed")),
        ),
        (defined("java.io.tmpdir", "/tmp"), Fate::Warns),
        (variable("EVENTMESH_HTTP_PORT", "1"), Fate::Known),
        (variable("EVENTMESH_STORAGE_LOWWATERMARK", "1"), Fate::Known),
        (variable("EVENTMESH_STORAGE_LOW_WATERMARK", "1"), Fate::Warns),
        (variable("EVENTMESH_BIN", "x"), Fate::Warns),
        (variable("EVENTMESH_ADMIN_TOKEM", "x"), Fate::Stops(Some("EVENTMESH_ADMIN_TOKEN"))),
        (
            variable("EVENTMESH_SECURITY_GATE_FAIL_CLOSED", "x"),
            Fate::Stops(Some("EVENTMESH_SECURITY_GATE_FAILCLOSED")),
        ),
        (variable("eventmesh.admin.token", "x"), Fate::Stops(Some("EVENTMESH_ADMIN_TOKEN"))),
        (variable("EVENTMESH_SERVICE_HOST", "10.0.0.1"), Fate::Warns),
        (variable("EVENTMESH_ADMIN_SERVICE_PORT_HTTP", "10106"), Fate::Warns),
        (variable("EVENTMESH_ADMIN_PORT_10106_TCP_ADDR", "10.0.0.1"), Fate::Warns),
        (variable("EVENTMESH_HTTP_PORT", "tcp://10.0.0.1:80"), Fate::Warns),
        (variable("EVENTMESH_ADMIN_PORT", "udp://10.0.0.1:80"), Fate::Warns),
    ];
    for (pair, expected) in cases {
        let resolved = resolve(vec![pair.clone()]);
        let fate = match (resolved.problems.as_slice(), resolved.warnings.as_slice(), resolved.given.len()) {
            ([], [], 1) => Fate::Known,
            ([], [_], 0) => Fate::Warns,
            ([problem], [], 0) => {
                let names: Vec<_> = keys::all().map(|k| k.about().name).collect();
                let variables: Vec<_> = names.iter().map(|name| keys::variable(name)).collect();
                let known = variables.iter().map(String::as_str).chain(names);
                let nearest = problem.nearest.as_deref();
                assert!(
                    nearest.is_none_or(|nearest| known.into_iter().any(|name| name == nearest)),
                    "{problem}"
                );
                match expected {
                    Fate::Stops(expected) if expected == nearest => Fate::Stops(expected),
                    _ => panic!("{pair:?}: {problem}"),
                }
            }
            _ => panic!("{pair:?}: {resolved:?}"),
        };
        assert_eq!(fate, expected, "{pair:?}");
    }
}

#[test]
fn all_service_links_together_are_one_warning() {
    let resolved = resolve(vec![
        variable("EVENTMESH_PORT", "tcp://10.0.0.1:10105"),
        variable("EVENTMESH_PORT_10105_TCP", "tcp://10.0.0.1:10105"),
        variable("EVENTMESH_PORT_10105_TCP_PROTO", "tcp"),
        variable("EVENTMESH_SERVICE_HOST", "10.0.0.1"),
    ]);
    assert_eq!((resolved.problems.len(), resolved.warnings.len()), (0, 1), "{resolved:?}");
}

#[test]
fn the_value_of_a_misspelt_secret_is_masked() {
    for pair in [defined("eventmesh.admin.tokem", "hunter2"), variable("EVENTMESH_ADMIN_TOKN", "hunter2")] {
        let text = resolve(vec![pair]).problems[0].to_string();
        assert!(!text.contains("hunter2") && text.contains(MASK), "{text}");
    }
}
