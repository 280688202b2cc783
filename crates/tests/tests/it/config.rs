//! Configuration as an operator meets it: flags, variables, files, exit codes, messages.

use std::{path::Path, time::Duration};

use anyhow::{Context, Result, ensure};
use mesh_tests::{Output, Server, TOKEN, free_port, run_to_end};
use serde_json::Value;

const SOON: Duration = Duration::from_secs(20);

async fn ends(arguments: &[&str], environment: &[(&str, &str)]) -> Result<Output> {
    let home = tempfile::tempdir()?;
    let output = run_to_end(arguments, environment, home.path(), SOON).await?;
    let left: Vec<_> = std::fs::read_dir(home.path())?.collect();
    ensure!(output.code == Some(0) || left.is_empty(), "a refused start left {left:?}");
    Ok(output)
}

/// Sees a start refused as a configuration error that names everything in `parts`.
async fn refused(arguments: &[&str], environment: &[(&str, &str)], parts: &[&str]) -> Result<()> {
    let output = ends(arguments, environment).await?;
    ensure!(
        output.code == Some(64),
        "{arguments:?} {environment:?} ended with {:?}:\n{}",
        output.code,
        output.text
    );
    for part in parts {
        ensure!(
            output.text.contains(part),
            "{part:?} is not in the message of {arguments:?}:\n{}",
            output.text
        );
    }
    Ok(())
}

async fn effective_topology(server: &mut Server) -> Result<()> {
    let client = server.start().await?;
    ensure!(server.log().contains("delivery topology=LOCAL_STICKY_PULL"), "{}", server.log_end(30));
    let health = client.admin("/admin/health").await?.expect(200)?.json()?;
    ensure!(health["topology"] == "LOCAL_STICKY_PULL", "{health}");
    server.stop().await
}

#[tokio::test]
async fn the_topology_has_a_default_and_the_start_says_which_it_is() -> Result<()> {
    // shows: eventmesh.delivery.topology
    // covers: U01  proves: DT-1 DT-3 CF-1
    effective_topology(&mut Server::new()?).await?;
    effective_topology(&mut Server::new()?.key("eventmesh.delivery.topology", "")).await?;
    effective_topology(&mut Server::new()?.variable("EVENTMESH_DELIVERY_TOPOLOGY", "LOCAL_STICKY_PULL")).await
}

#[tokio::test]
async fn an_unknown_topology_stops_the_boot_wherever_it_comes_from() -> Result<()> {
    // covers: U01  proves: DT-5
    let key = "eventmesh.delivery.topology";
    let accepted = ["LOCAL_STICKY_PULL", "PARTITION_OWNED_PULL"];
    for wrong in ["PARTITION_OWNER", "local_sticky_pull", "LOCAL_STICKY_PULLx", "LOCAL_STICKY_PULL,"] {
        let flag = format!("-D{key}={wrong}");
        refused(&["standalone", &flag], &[], &[key, wrong, "-D", accepted[0], accepted[1]]).await?;
    }
    let variable = "EVENTMESH_DELIVERY_TOPOLOGY";
    refused(&["standalone"], &[(variable, "FROM_ENV")], &["FROM_ENV", variable, accepted[0], accepted[1]])
        .await?;
    let home = tempfile::tempdir()?;
    let file = home.path().join("eventmesh.properties");
    std::fs::write(&file, "# a comment\neventmesh.delivery.topology=FROM_FILE\n")?;
    let path = file.display().to_string();
    refused(&["standalone", "--config", &path], &[], &["FROM_FILE", &format!("{path}:2"), accepted[0]]).await
}

#[tokio::test]
async fn the_command_line_beats_the_environment_which_beats_the_file() -> Result<()> {
    // covers: U13  proves: DT-4
    let home = tempfile::tempdir()?;
    let file = home.path().join("eventmesh.properties");
    std::fs::write(&file, "eventmesh.http.port=11001\neventmesh.admin.token=from-the-file-0123456789\n")?;
    let path = file.display().to_string();
    let shown = async |flag: Option<&str>, environment: &[(&str, &str)]| -> Result<String> {
        let mut arguments = vec!["config", "show", "--standalone", "--config", &path];
        arguments.extend(flag);
        let output = ends(&arguments, environment).await?;
        ensure!(output.code == Some(0), "{}", output.text);
        let line = output.text.lines().find(|line| line.contains("eventmesh.http.port"));
        ensure!(!output.text.contains("from-the-file"), "the token is shown:\n{}", output.text);
        Ok(line.context("no line of eventmesh.http.port")?.to_owned())
    };
    let variable = [("EVENTMESH_HTTP_PORT", "11002")];
    let line = shown(None, &[]).await?;
    ensure!(line.contains("11001") && line.contains(&format!("{path}:1")), "{line}");
    let line = shown(None, &variable).await?;
    ensure!(line.contains("11002") && line.contains("EVENTMESH_HTTP_PORT"), "{line}");
    let line = shown(Some("-Deventmesh.http.port=11003"), &variable).await?;
    ensure!(line.contains("11003") && line.contains("-D"), "{line}");
    Ok(())
}

#[tokio::test]
async fn the_start_up_log_says_what_was_given_and_where_and_no_secret() -> Result<()> {
    // The start ends at a port that is taken: the lines come before.
    let taken = std::net::TcpListener::bind(("127.0.0.1", 0))?;
    let port = format!("-Deventmesh.http.port={}", taken.local_addr()?.port());
    let home = tempfile::tempdir()?;
    let file = home.path().join("eventmesh.properties");
    std::fs::write(
        &file,
        "# a comment\neventmesh.topic.max=77\neventmesh.admin.token=from-the-file-0123456789\n",
    )?;
    let path = file.display().to_string();
    let variables = [("EVENTMESH_STORAGE_PARTITIONS", "3")];
    let output = run_to_end(&["standalone", "--config", &path, &port], &variables, home.path(), SOON).await?;
    for line in [
        format!("eventmesh.topic.max=77 origin={path}:2"),
        "eventmesh.storage.partitions=3 origin=EVENTMESH_STORAGE_PARTITIONS".to_owned(),
        format!("{} origin=-D", &port[2..]),
    ] {
        ensure!(output.text.contains(&line), "no line {line} in\n{}", output.text);
    }
    ensure!(output.text.contains(&format!("origin={path}:3")), "{}", output.text);
    ensure!(!output.text.contains("from-the-file"), "the token is shown:\n{}", output.text);
    Ok(())
}

#[tokio::test]
async fn a_server_without_a_storage_type_is_told_what_there_is() -> Result<()> {
    // proves: CF-3
    let parts = ["eventmesh.storage.type", "embedded", "memory", "kafka", "standalone"];
    refused(&["server"], &[], &parts).await?;
    refused(&["server", "-Deventmesh.storage.type=kafka"], &[], &["kafka", "not in this build"]).await?;
    // All problems at once.
    let two = ["server", "-Deventmesh.http.port=x", "-Deventmesh.storage.partitions=0"];
    refused(&two, &[], &["eventmesh.storage.type", "eventmesh.http.port", "eventmesh.storage.partitions"])
        .await
}

#[tokio::test]
async fn misspelt_keys_stop_the_boot_with_the_nearest_known_one() -> Result<()> {
    // covers: U09  proves: CF-5
    let right = "eventmesh.security.gate.failClosed";
    refused(&["standalone", "-Deventmesh.security.gate.failclosed=true"], &[], &[right]).await?;
    refused(&["standalone", "-Deventmesh.admin.tokem=x"], &[], &["eventmesh.admin.token"]).await?;
    refused(&["standalone", "-Deventmesh.storage.partition=3"], &[], &["eventmesh.storage.partitions"])
        .await?;
    refused(
        &["standalone"],
        &[("EVENTMESH_SECURITY_GATE_FAILCLOSE", "true")],
        &["EVENTMESH_SECURITY_GATE_FAILCLOSE"],
    )
    .await?;
    refused(&["standalone"], &[("EVENTMESH_ADMIN_TOKEM", "x")], &["EVENTMESH_ADMIN_TOKEM"]).await?;
    // Elsewhere an unknown variable is one warning, and those that Kubernetes makes are none of ours.
    let mut server = Server::new()?
        .variable("EVENTMESH_NO_SUCH_THING", "1")
        .variable("EVENTMESH_HTTP_PORT", "tcp://10.0.0.1:80")
        .variable("EVENTMESH_SERVICE_HOST", "10.0.0.1");
    server.start().await?;
    let log = server.log();
    assert_eq!(log.matches("EVENTMESH_NO_SUCH_THING").count(), 1, "{log}");
    ensure!(log.contains("WARN"), "{log}");
    Ok(())
}

#[tokio::test]
async fn nothing_to_check_against_is_not_the_same_as_open() -> Result<()> {
    // covers: U10 U96
    refused(
        &["standalone", "-Deventmesh.security.gate.failClosed=true"],
        &[],
        &["eventmesh.security.gate.failClosed"],
    )
    .await?;
    let mut server = Server::new()?;
    let client = server.start().await?;
    ensure!(
        server.log().contains("WARN") && server.log().to_lowercase().contains("gate is open"),
        "{}",
        server.log_end(20)
    );
    let health = client.admin("/admin/health").await?.expect(200)?.json()?;
    ensure!(health["gate"].is_string(), "health does not say how the gate stands: {health}");
    Ok(())
}

#[tokio::test]
async fn a_blank_or_unexpanded_admin_token_opens_nothing() -> Result<()> {
    // covers: U112
    for value in ["", "  ", "${TOKEN}"] {
        let flag = format!("-Deventmesh.admin.token={value}");
        refused(&["standalone", &flag], &[], &["eventmesh.admin.token"]).await?;
        refused(&["standalone"], &[("EVENTMESH_ADMIN_TOKEN", value)], &["EVENTMESH_ADMIN_TOKEN"]).await?;
    }
    let mut server = Server::new()?;
    let client = server.start().await?;
    for value in ["", "Bearer ", "Bearer ${TOKEN}", "Bearer", "Basic x", "bearer token-of-the-tests"] {
        client
            .admin_with("GET", "/admin/metrics", &[("authorization", value)])
            .await?
            .expect_error(401, "unauthenticated")?;
    }
    client.admin_with("GET", "/admin/metrics", &[]).await?.expect_error(401, "unauthenticated")?;
    client.admin_with("GET", "/admin/metrics", &[("authorization", TOKEN)]).await?.expect(200)?;
    let twice = format!("Bearer {TOKEN}");
    let headers = [("authorization", twice.as_str()), ("authorization", twice.as_str())];
    client.admin_with("GET", "/admin/metrics", &headers).await?.expect(400)?;
    client.admin_with("GET", "/admin/health", &[]).await?.expect(200)?;
    Ok(())
}

#[tokio::test]
async fn without_an_admin_token_only_health_and_readiness_are_open() -> Result<()> {
    // covers: U112
    let home = tempfile::tempdir()?;
    let (traffic, admin) = (free_port(), free_port());
    let flags = [
        format!("-Deventmesh.data.dir={}", home.path().join("data").display()),
        format!("-Deventmesh.http.port={traffic}"),
        format!("-Deventmesh.admin.port={admin}"),
        // On loopback it would make itself a token.
        "-Deventmesh.admin.host=0.0.0.0".to_owned(),
    ];
    let mut command = tokio::process::Command::new(mesh_tests::binary());
    command.arg("standalone").args(&flags).current_dir(home.path()).kill_on_drop(true);
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let mut child = command.spawn()?;
    let client = mesh_tests::Client::new(traffic, admin);
    mesh_tests::until("readiness", SOON, async || {
        client.admin_with("GET", "/admin/ready", &[]).await.ok().filter(|reply| reply.status == 200)
    })
    .await?;
    for headers in [&[][..], &[("authorization", "Bearer ")], &[("authorization", "Bearer x")]] {
        client.admin_with("GET", "/admin/metrics", headers).await?.expect_error(503, "admin_locked")?;
        client.admin_with("GET", "/admin/health", headers).await?.expect(200)?;
    }
    child.kill().await?;
    Ok(())
}

#[tokio::test]
async fn a_second_process_on_a_data_directory_ends_naming_the_path() -> Result<()> {
    // shows: eventmesh.data.dir
    let mut server = Server::new()?;
    let client = server.start().await?;
    let path = server.data_directory().display().to_string();
    let flags = [
        format!("-Deventmesh.data.dir={path}"),
        format!("-Deventmesh.http.port={}", free_port()),
        format!("-Deventmesh.admin.port={}", free_port()),
    ];
    let arguments: Vec<&str> =
        std::iter::once("standalone").chain(flags.iter().map(String::as_str)).collect();
    let output = run_to_end(&arguments, &[], server.home(), SOON).await?;
    ensure!(output.code == Some(1) && output.text.contains(&path), "{:?}:\n{}", output.code, output.text);
    client.publish("t", &mesh_tests::event(1)).await?.expect(202)?;
    server.stop().await
}

#[tokio::test]
async fn a_port_that_is_taken_ends_the_start_naming_it() -> Result<()> {
    let taken = std::net::TcpListener::bind(("127.0.0.1", 0))?;
    let port = taken.local_addr()?.port();
    let home = tempfile::tempdir()?;
    let flags = [format!("-Deventmesh.http.port={port}"), format!("-Deventmesh.admin.port={}", free_port())];
    let output = run_to_end(&["standalone", &flags[0], &flags[1]], &[], home.path(), SOON).await?;
    ensure!(
        output.code == Some(1) && output.text.contains(&port.to_string()),
        "{:?}:\n{}",
        output.code,
        output.text
    );
    Ok(())
}

/// A process that was killed has its ports until its last write to the disk has ended.
#[tokio::test]
async fn a_port_that_is_free_a_moment_later_is_waited_for() -> Result<()> {
    let going = std::net::TcpListener::bind(("127.0.0.1", 0))?;
    let port = going.local_addr()?.port();
    let mut server = Server::new()?.key("eventmesh.http.port", port);
    server.spawn()?;
    mesh_tests::until("the server to wait", SOON, async || server.log().contains("waiting").then_some(()))
        .await?;
    drop(going);
    let started =
        mesh_tests::until("the start", SOON, async || server.log().contains(": ready").then_some(()));
    started.await.with_context(|| server.log())?;
    server.kill9();
    Ok(())
}

/// The rows of a Markdown table whose first cell is a method and a path in code font.
fn documented_routes(page: &Path) -> Result<Vec<(String, String)>> {
    let text = std::fs::read_to_string(page).with_context(|| format!("{} is to be read", page.display()))?;
    let mut routes = Vec::new();
    for line in text.lines().filter(|line| line.starts_with('|')) {
        for code in line.split('`').skip(1).step_by(2) {
            if let Some((method @ ("GET" | "POST" | "DELETE" | "PUT"), path)) = code.split_once(' ')
                && path.starts_with('/')
            {
                routes.push((method.to_owned(), path.split('?').next().unwrap_or(path).to_owned()));
            }
        }
    }
    Ok(routes)
}

#[tokio::test]
async fn every_documented_route_answers() -> Result<()> {
    // covers: U08 U114
    let mut server = Server::new()?;
    let client = server.start().await?;
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/http-api.md");
    let routes = documented_routes(&page)?;
    ensure!(routes.len() >= 12, "only {routes:?} are documented");
    let token = format!("Bearer {TOKEN}");
    for (method, path) in routes {
        let of_admin = path.starts_with("/admin") || path == "/metrics";
        let no_timeout = if path == "/events/poll" { "?timeoutMs=0&clientId=x" } else { "" };
        let full = format!("{path}{no_timeout}");
        let reply = if of_admin {
            client.admin_with(&method, &full, &[("authorization", &token)]).await?
        } else {
            client.call(&method, &full, &[("content-type", "application/json")], "", SOON).await?
        };
        ensure!(
            reply.status != 405 && reply.code() != "not_found",
            "{method} {path} is documented and answers {reply}"
        );
        // Each port has its own.
        let other = if of_admin {
            client.call(&method, &full, &[], "", SOON).await?
        } else {
            client.admin_with(&method, &full, &[("authorization", &token)]).await?
        };
        ensure!(other.status == 404, "{method} {path} answers on the other port: {other}");
    }
    let nowhere: Value = client.get("/nowhere").await?.expect(404)?.json()?;
    assert_eq!(nowhere["error"], "not_found");
    client.get("/events/publish").await?.expect_error(405, "method_not_allowed")?;
    Ok(())
}

#[tokio::test]
async fn an_audit_log_is_verified_by_its_documented_format_alone() -> Result<()> {
    // Two lines as docs/security.md describes them, hashed by `sha256sum`.
    const FIRST: &str = r#"{"seq":1,"at":"2026-07-01T09:30:00.250Z","kind":"decision","outcome":"denied","tenant":"t1","principal":"ann","prev":"0000000000000000000000000000000000000000000000000000000000000000","hash":"eeb2c19c45910b913381ec42aadadedf3561295ef97d09fca80c521a56aa99fc"}"#;
    const SECOND: &str = r#"{"seq":2,"at":"2026-07-01T09:30:01.250Z","kind":"decision","outcome":"denied","tenant":"t1","principal":"bob","prev":"eeb2c19c45910b913381ec42aadadedf3561295ef97d09fca80c521a56aa99fc","hash":"c4a3e146e11eba51d12b1ce582448c15448999fd83cb286ba4cb1944ae0a7cda"}"#;
    let home = tempfile::tempdir()?;
    let log = home.path().join("audit.log");
    let file = log.to_str().context("a path in UTF-8")?;
    for (name, text, code, told) in [
        ("whole", format!("{FIRST}\n{SECOND}\n"), 0, "2 lines in 1 files, number 1 to 2"),
        (
            "an edit",
            format!("{FIRST}\n{SECOND}\n").replace("bob", "eve"),
            1,
            "audit.log:2: line 2 was changed",
        ),
        ("a cut", format!("{SECOND}\n{FIRST}\n"), 1, "audit.log:2: line 1 stands behind line 2"),
        ("foreign", "text\n".to_owned(), 1, "audit.log:1: it is no line of an audit log"),
    ] {
        std::fs::write(&log, text)?;
        let output = run_to_end(&["audit", "verify", file], &[], home.path(), SOON).await?;
        ensure!(output.code == Some(code), "{name}: {:?}: {}", output.code, output.text);
        ensure!(output.text.contains(told), "{name}: {}", output.text);
        ensure!(code == 1 || output.text.contains("The head is missing"), "{name}: {}", output.text);
    }
    std::fs::remove_file(&log)?;
    let output = run_to_end(&["audit", "verify", file], &[], home.path(), SOON).await?;
    ensure!(output.code == Some(1) && output.text.contains("cannot be read"), "{}", output.text);
    Ok(())
}

#[tokio::test]
async fn a_check_opens_every_file_that_a_start_would_and_tells_all_problems_at_once() -> Result<()> {
    let home = tempfile::tempdir()?;
    let path = |name: &str| home.path().join(name);
    std::fs::write(path("bad.toml"), "this is = = no TOML")?;
    std::fs::create_dir(path("data"))?;
    std::fs::write(path("data/photo.jpg"), "a photo")?;
    std::fs::write(
        path("encrypted.pem"),
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIE\n-----END ENCRYPTED PRIVATE KEY-----\n",
    )?;
    let keys = [
        ("eventmesh.security.gate.token.file", "bad.toml"),
        ("eventmesh.security.gate.acl.file", "bad.toml"),
        ("eventmesh.security.gate.signature.file", "missing.toml"),
        ("eventmesh.security.gate.quota.file", "bad.toml"),
        ("eventmesh.security.gate.token.jwt.secret.file", "missing.secret"),
        ("eventmesh.security.gate.token.jwt.jwks.file", "bad.toml"),
        ("eventmesh.security.gate.audit.file", "no-such-folder/audit.log"),
        ("eventmesh.admin.security.token.file", "bad.toml"),
        ("eventmesh.tls.certificate.file", "missing.pem"),
        ("eventmesh.data.dir", "data"),
    ];
    let mut arguments = vec!["config".to_owned(), "check".to_owned(), "--standalone".to_owned()];
    arguments.extend(keys.iter().map(|(key, file)| format!("-D{key}={}", path(file).display())));
    arguments.push(format!("-Deventmesh.tls.key.file={}", path("encrypted.pem").display()));
    // And what is wrong with a key stands beside what is wrong with a file.
    arguments.push("-Deventmesh.http.port=no-port".to_owned());
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let output = run_to_end(&arguments, &[], home.path(), SOON).await?;
    ensure!(output.code == Some(64), "{:?}: {}", output.code, output.text);
    for (key, _) in keys.iter().chain(&[("eventmesh.http.port", "")]) {
        ensure!(output.text.contains(&format!("- {key}")), "{key} is not told:\n{}", output.text);
    }
    ensure!(output.text.contains("photo.jpg"), "{}", output.text);
    ensure!(!path("no-such-folder").exists() && !path("data/LOCK").exists(), "a check made something");

    // What it finds nothing wrong with starts, also while a server runs on the same files.
    let mut server = Server::new()?;
    let (audit, data) = (server.home().join("audit.log"), server.data_directory().to_owned());
    server = server.key("eventmesh.security.gate.audit.file", audit.display());
    server.start().await?;
    let audit = format!("-Deventmesh.security.gate.audit.file={}", audit.display());
    let data = format!("-Deventmesh.data.dir={}", data.display());
    let output =
        run_to_end(&["config", "check", "--standalone", &audit, &data], &[], home.path(), SOON).await?;
    ensure!(output.code == Some(0), "{}", output.text);
    Ok(())
}

#[tokio::test]
async fn what_can_be_shown_is_shown_and_standalone_is_named_where_it_is_needed() -> Result<()> {
    let output =
        ends(&["config", "show", "-Deventmesh.http.port=no-port", "-Deventmesh.admin.port=11111"], &[])
            .await?;
    ensure!(output.code == Some(64), "{}", output.text);
    for part in ["eventmesh.admin.port=11111", "eventmesh.http.idleTimeout=75s", "no-port", "--standalone"] {
        ensure!(output.text.contains(part), "no {part}:\n{}", output.text);
    }
    let output = ends(&["config", "check"], &[]).await?;
    ensure!(output.code == Some(64) && output.text.contains("--standalone"), "{}", output.text);
    Ok(())
}

#[tokio::test]
async fn help_helps() -> Result<()> {
    for arguments in
        [&["help"][..], &["--help"], &["help", "config"], &["help", "standalone"], &["config", "help"]]
    {
        let output = ends(arguments, &[]).await?;
        ensure!(
            output.code == Some(0) && output.text.contains("Usage: eventmesh"),
            "{arguments:?}: {}",
            output.text
        );
    }
    let output = ends(&["help"], &[]).await?;
    ensure!(output.text.contains("standalone") && output.text.contains("config"), "{}", output.text);
    Ok(())
}
