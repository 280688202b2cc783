//! The program as an operator meets it: command lines in, text and exit codes out.

use std::{fs, path::PathBuf, process::Command};

/// What a run of the program left.
#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    out: String,
    err: String,
}

/// Arguments, variables, and what must be found in what the program prints.
type Case<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)], String);

/// Runs the program without any variable of ours but these.
fn eventmesh(arguments: &[&str], variables: &[(&str, &str)]) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_eventmesh"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().to_ascii_uppercase().starts_with("EVENTMESH") {
            command.env_remove(name);
        }
    }
    let output = command.args(arguments).envs(variables.iter().copied()).output().expect("the program runs");
    let text = |bytes| String::from_utf8(bytes).expect("the program prints UTF-8");
    Ended { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

/// A file for one test; `name` keeps the tests apart.
fn file(name: &str, text: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.properties"));
    fs::write(&path, text).expect("the folder for tests can be written");
    path
}

// proves: DT-4
#[test]
fn the_command_line_beats_the_environment_which_beats_the_file() {
    let file = file("precedence", "# one\neventmesh.storage.type=memory\neventmesh.http.port = 1001\n");
    let file = file.to_str().expect("the path is UTF-8");
    let base = ["config", "show", "--config", file];
    let cases: [Case<'_>; 4] = [
        (&[], &[], format!("eventmesh.http.port=1001  # {file}:3\n")),
        (
            &[],
            &[("EVENTMESH_HTTP_PORT", "1002")],
            "eventmesh.http.port=1002  # EVENTMESH_HTTP_PORT\n".to_owned(),
        ),
        (
            &["-Deventmesh.http.port=1003"],
            &[("EVENTMESH_HTTP_PORT", "1002")],
            "eventmesh.http.port=1003  # -D\n".to_owned(),
        ),
        (
            &["-Deventmesh.http.port="],
            &[("EVENTMESH_HTTP_PORT", "1002")],
            "eventmesh.http.port=10105  # default\n".to_owned(),
        ),
    ];
    for (arguments, variables, line) in cases {
        let ended = eventmesh(&[&base, arguments].concat(), variables);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(ended.out.contains(&line), "{line:?} is not in {ended:?}");
    }
}

// proves: DT-4, DT-5
#[test]
fn a_wrong_topology_is_told_with_its_source_and_starts_nothing() {
    let file = file("topology", "eventmesh.delivery.topology=FROM_FILE\n");
    let file = file.to_str().expect("the path is UTF-8");
    let cases: [Case<'_>; 3] = [
        (&[], &[], format!("FROM_FILE (from {file}:1)")),
        (
            &[],
            &[("EVENTMESH_DELIVERY_TOPOLOGY", "FROM_ENV")],
            "FROM_ENV (from EVENTMESH_DELIVERY_TOPOLOGY)".to_owned(),
        ),
        (&["-Deventmesh.delivery.topology=FROM_D"], &[], "FROM_D (from -D)".to_owned()),
    ];
    let data = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("never-made");
    let data_key = format!("-Deventmesh.data.dir={}", data.display());
    for (arguments, variables, words) in cases {
        let base = ["standalone", "--config", file, &data_key];
        let ended = eventmesh(&[&base, arguments].concat(), variables);
        assert_eq!(ended.code, Some(64), "{ended:?}");
        for word in [
            "eventmesh.delivery.topology",
            &words,
            "LOCAL_STICKY_PULL (not in this build: PARTITION_OWNED_PULL)",
        ] {
            assert!(ended.err.contains(word), "{word:?} is not in {ended:?}");
        }
        assert!(!data.exists(), "something was started");
    }
}

// proves: DT-6
#[test]
fn owned_partitions_without_a_meta_store_do_not_start() {
    let owned = [("EVENTMESH_DELIVERY_TOPOLOGY", "PARTITION_OWNED_PULL")];
    let ended = eventmesh(&["standalone"], &owned);
    assert_eq!(ended.code, Some(64), "{ended:?}");
    assert!(ended.err.contains("Meta") && ended.err.contains("EVENTMESH_DELIVERY_TOPOLOGY"), "{ended:?}");
}

// proves: CF-3, CF-5
#[test]
fn a_server_reports_all_problems_at_once() {
    let arguments = ["server", "-Deventmesh.delivery.topologi=y", "-Deventmesh.storage.partitions=0"];
    let ended = eventmesh(&arguments, &[("EVENTMESH_LOG_LEVEL", "loud")]);
    assert_eq!(ended.code, Some(64), "{ended:?}");
    for word in [
        "4 problems",
        "did you mean eventmesh.delivery.topology?",
        "eventmesh.storage.type",
        "embedded, memory",
        "not in this build: kafka, rocketmq",
        "eventmesh standalone",
        "eventmesh.storage.partitions = 0 (from -D)",
        "from 1 to 1024",
        "eventmesh.log.level = loud (from EVENTMESH_LOG_LEVEL)",
    ] {
        assert!(ended.err.contains(word), "{word:?} is not in {}", ended.err);
    }
    assert_eq!(ended.out, "");
}

#[test]
fn a_misspelt_security_key_stops_the_start() {
    for arguments in [
        ["standalone", "-Deventmesh.security.gate.failclosed=true"],
        ["standalone", "-Deventmesh.admin.tokem=x"],
    ] {
        let ended = eventmesh(&arguments, &[]);
        assert_eq!(ended.code, Some(64), "{ended:?}");
        assert!(ended.err.contains("did you mean eventmesh."), "{ended:?}");
    }
    let ended = eventmesh(&["standalone"], &[("EVENTMESH_ADMIN_TOKN", "x")]);
    assert_eq!(ended.code, Some(64), "{ended:?}");
    assert!(ended.err.contains("did you mean EVENTMESH_ADMIN_TOKEN?"), "{ended:?}");
}

// proves: SG-2
#[test]
fn a_closed_gate_without_a_filter_does_not_start() {
    let ended = eventmesh(&["standalone", "-Deventmesh.security.gate.failClosed=true"], &[]);
    assert_eq!(ended.code, Some(64), "{ended:?}");
    assert!(ended.err.contains("nothing to check against"), "{ended:?}");
}

#[test]
fn no_output_shows_a_secret() {
    let secret = "correct-horse-battery";
    let good = format!("-Deventmesh.admin.token={secret}");
    let cases = [
        (vec!["config", "show", "--standalone", &good], 0),
        (vec!["config", "show", &good], 64),
        (vec!["config", "check", "--standalone", &good], 0),
    ];
    for (arguments, code) in cases {
        let ended = eventmesh(&arguments, &[]);
        assert_eq!(ended.code, Some(code), "{ended:?}");
        assert!(!ended.out.contains(secret) && !ended.err.contains(secret), "{ended:?}");
    }
    for bad in ["correct-horse battery", "${correct-horse}"] {
        for key in ["eventmesh.admin.token", "eventmesh.admin.tokem"] {
            let ended = eventmesh(&["standalone", &format!("-D{key}={bad}")], &[]);
            assert_eq!(ended.code, Some(64), "{ended:?}");
            assert!(!ended.err.contains("correct-horse"), "{ended:?}");
            assert!(ended.err.contains("********"), "{ended:?}");
        }
    }
    for blank in ["", "  "] {
        let ended = eventmesh(&["config", "check", "--standalone"], &[("EVENTMESH_ADMIN_TOKEN", blank)]);
        assert_eq!(ended.code, Some(64), "{ended:?}");
    }
}

#[test]
fn strange_variables_are_warnings() {
    let variables = [
        ("EVENTMESH_BIN", "/opt/eventmesh"),
        ("EVENTMESH_PORT", "tcp://10.0.0.1:10105"),
        ("EVENTMESH_HTTP_PORT", "tcp://10.0.0.1:10105"),
        ("EVENTMESH_ADMIN_SERVICE_HOST", "10.0.0.1"),
    ];
    let ended = eventmesh(&["config", "check", "--standalone"], &variables);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(ended.err.matches("warning:").count(), 2, "{}", ended.err);
    assert!(ended.err.contains("EVENTMESH_BIN") && ended.err.contains("service links"), "{}", ended.err);
}

#[test]
fn an_old_key_is_a_warning_that_names_the_new_one() {
    let ended = eventmesh(&["config", "check", "--standalone", "-DeventMesh.server.http.port=1"], &[]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.err.contains("use eventmesh.http.port"), "{ended:?}");
}

#[test]
fn a_file_that_cannot_be_read_is_a_problem_beside_the_others() {
    let ended = eventmesh(&["server", "--config", "/nowhere/at.all", "-Deventmesh.http.port=x"], &[]);
    assert_eq!(ended.code, Some(64), "{ended:?}");
    for word in ["/nowhere/at.all", "eventmesh.http.port = x", "eventmesh.storage.type"] {
        assert!(ended.err.contains(word), "{word:?} is not in {ended:?}");
    }
}

#[test]
fn a_wrong_command_line_is_64_and_help_is_0() {
    for (arguments, code) in [
        (&["--help"][..], 0),
        (&["standalone", "--help"], 0),
        (&["--version"], 0),
        (&["version", "-Da=b"], 0),
        (&["config", "reference", "--format", "markdown", "-Da=b"], 0),
        (&[], 64),
        (&["stand-alone"], 64),
        (&["standalone", "--port", "1"], 64),
        (&["standalone", "-Deventmesh.http.port"], 64),
    ] {
        let ended = eventmesh(arguments, &[]);
        assert_eq!(ended.code, Some(code), "{arguments:?}: {ended:?}");
    }
}

#[test]
fn the_shipped_file_is_valid_once_a_storage_is_chosen() {
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/../../conf/eventmesh.properties");
    let ended = eventmesh(&["config", "check", "--config", shipped], &[]);
    assert_eq!(ended.code, Some(64), "{ended:?}");
    assert!(ended.err.contains("one problem"), "{ended:?}");
    let ended =
        eventmesh(&["config", "check", "--config", shipped, "-Deventmesh.storage.type=embedded"], &[]);
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{ended:?}");
}
