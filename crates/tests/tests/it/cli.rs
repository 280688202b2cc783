//! The commands of users through the binary: published, received, looked at and moved, and every way to go wrong.

use std::{
    fs,
    path::Path,
    process::{Output, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use mesh_tests::{Access, Server, Subscribe, TOKEN, binary, event, free_port, token_of, until, within};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdout, Command},
};

const SOON: Duration = Duration::from_secs(20);

/// A command in a folder, without any variable of ours, that ends with the test.
fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(binary());
    let ours = std::env::vars_os()
        .map(|(name, _)| name)
        .filter(|name| name.to_string_lossy().starts_with("EVENTMESH_"));
    for name in ours {
        command.env_remove(name);
    }
    command.current_dir(folder).args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A running server and what to find it by.
struct Mesh {
    server: Server,
    client: mesh_tests::Client,
}

impl Mesh {
    async fn new() -> Result<Self> {
        let mut server = Server::new()?.key("eventmesh.storage.partitions", 1).keeping_ports();
        let client = server.start().await?;
        Ok(Self { server, client })
    }

    fn options(&self) -> [String; 3] {
        [
            format!("--address=127.0.0.1:{}", self.server.traffic_port()),
            format!("--admin-address=http://127.0.0.1:{}", self.server.admin_port()),
            format!("-Deventmesh.admin.token={TOKEN}"),
        ]
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = command(self.server.home(), arguments);
        command.args(self.options());
        command
    }

    async fn output(&self, arguments: &[&str]) -> Result<Output> {
        within("a command", SOON, self.command(arguments).output()).await?.context("it does not start")
    }

    /// What a command prints that ends well.
    async fn said(&self, arguments: &[&str]) -> Result<String> {
        let output = self.output(arguments).await?;
        ensure!(output.status.success(), "{arguments:?}: {output:?}");
        ensure!(output.stderr.is_empty(), "{arguments:?}: {output:?}");
        Ok(String::from_utf8(output.stdout)?)
    }

    async fn json(&self, arguments: &[&str]) -> Result<Vec<Value>> {
        let said = self.said(&[arguments, &["-o", "json"]].concat()).await?;
        said.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
    }

    /// A subscriber that is subscribed.
    async fn sub(&self, arguments: &[&str]) -> Result<Sub> {
        let before = self.members(arguments[0]).await?;
        let mut child = self.command(&[&["sub"], arguments].concat()).spawn()?;
        let lines = BufReader::new(child.stdout.take().context("a pipe")?).lines();
        until("the subscription", SOON, async || {
            (self.members(arguments[0]).await.ok()? > before).then_some(())
        })
        .await?;
        Ok(Sub { child, lines })
    }

    async fn members(&self, topic: &str) -> Result<usize> {
        let list =
            self.client.admin(&format!("/admin/subscriptions?topic={topic}")).await?.expect(200)?.json()?;
        Ok(list.as_array().context("a list")?.len())
    }
}

struct Sub {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Sub {
    async fn line(&mut self) -> Result<String> {
        within("a line", SOON, self.lines.next_line()).await??.context("it ended")
    }

    async fn json(&mut self) -> Result<Value> {
        Ok(serde_json::from_str(&self.line().await?)?)
    }

    fn signal(&self, signal: &str) -> Result<()> {
        let pid = self.child.id().context("it runs")?.to_string();
        ensure!(std::process::Command::new("kill").args([signal, &pid]).status()?.success());
        Ok(())
    }

    async fn ended(mut self) -> Result<(Option<i32>, String)> {
        let output = within("its end", SOON, async {
            let status = self.child.wait().await?;
            let mut said = String::new();
            if let Some(mut errors) = self.child.stderr.take() {
                errors.read_to_string(&mut said).await?;
            }
            anyhow::Ok((status.code(), said))
        });
        output.await?
    }
}

#[tokio::test]
async fn two_commands_are_enough_for_the_first_event() -> Result<()> {
    // The server as somebody starts it who has read one line: nothing is said of ports and tokens that differ.
    let mesh = Mesh::new().await?;
    let mut sub = mesh.sub(&["orders"]).await?;
    let said = mesh.said(&["pub", "orders", r#"{"total":42}"#]).await?;
    ensure!(said == "orders/0@0\n", "{said:?}");
    let line = sub.line().await?;
    ensure!(
        line.starts_with("orders/0@0  eventmesh.cli  ") && line.ends_with(r#"  {"total":42}"#),
        "{line:?}"
    );
    sub.signal("-INT")?;
    assert_eq!(sub.ended().await?, (Some(0), String::new()));
    // What was its own is gone with it, and nothing is pinned.
    assert_eq!(mesh.client.admin("/admin/groups").await?.json()?, json!([]));
    Ok(())
}

#[tokio::test]
async fn data_are_what_they_look_like_and_a_whole_event_is_published_as_it_is() -> Result<()> {
    let mesh = Mesh::new().await?;
    let mut sub = mesh.sub(&["t", "-o", "json"]).await?;
    let folder = mesh.server.home();
    fs::write(folder.join("bytes"), [0, 159, 146, 150])?;
    fs::write(folder.join("lines"), "one\n{\"n\":2}\r\n\nthree\n")?;

    mesh.said(&["pub", "t", "plain text", "--id", "a", "--type", "x.y", "--source", "/s", "--key", "k"])
        .await?;
    let first = sub.json().await?;
    assert_eq!(
        first["event"],
        json!({"specversion": "1.0", "id": "a", "type": "x.y", "source": "/s", "partitionkey": "k",
               "datacontenttype": "text/plain", "data": "plain text"})
    );
    assert_eq!(json!([first["topic"], first["offset"], first["attempt"]]), json!(["t", "0", 1]));
    mesh.said(&["pub", "t", "[1,2]", "--attribute", "subject=s", "--attribute", "mine=7"]).await?;
    let event = sub.json().await?["event"].take();
    assert_eq!(json!([event["data"], event["subject"], event["mine"]]), json!([[1, 2], "s", "7"]));
    mesh.said(&["pub", "t", "--file", "bytes"]).await?;
    let event = sub.json().await?["event"].take();
    assert_eq!(
        json!([event["data_base64"], event["datacontenttype"]]),
        json!(["AJ+Slg==", "application/octet-stream"])
    );
    let whole =
        json!({"specversion": "1.0", "id": "w", "source": "/w", "type": "w", "n": 5, "data": {"a": [true]}});
    mesh.said(&["pub", "t", &whole.to_string()]).await?;
    assert_eq!(sub.json().await?["event"], whole);
    mesh.said(&["pub", "t", "--file", "lines", "--lines", "--id", "l"]).await?;
    for (id, data) in [("l-1", json!("one")), ("l-2", json!({"n": 2})), ("l-3", json!("three"))] {
        let event = sub.json().await?["event"].take();
        assert_eq!((&event["id"], &event["data"]), (&json!(id), &data));
    }
    // Of a key, and of lines, the order is kept.
    let many: String = (0..60).map(|number| format!("{number}\n")).collect();
    fs::write(folder.join("many"), many)?;
    for arguments in [&["--file", "many", "--lines"][..], &["x", "--count", "60", "--key", "k"]] {
        let places = mesh.json(&[&["pub", "t", "--id", "n"], arguments].concat()).await?;
        for number in 0..60 {
            let event = sub.json().await?["event"].take();
            assert_eq!(event["id"], json!(format!("n-{}", number + 1)), "{arguments:?} {places:?}");
        }
    }
    let places = mesh.json(&["pub", "t", "x", "--count", "40"]).await?;
    let offsets: Vec<&str> = places.iter().filter_map(|place| place["offset"].as_str()).collect();
    ensure!(offsets.len() == 40 && places[0]["topic"] == "t", "{places:?}");

    let mut command = mesh.command(&["pub", "t", "--type", "piped"]);
    let mut child = command.stdin(Stdio::piped()).spawn()?;
    let mut input = child.stdin.take().context("a pipe")?;
    input.write_all(b"{\"from\":\"a pipe\"}").await?;
    drop(input);
    ensure!(within("the end", SOON, child.wait()).await??.success());
    let piped = until("what was piped", SOON, async || {
        let event = sub.json().await.ok()?["event"].take();
        (event["type"] == "piped").then_some(event)
    });
    assert_eq!(piped.await?["data"], json!({"from": "a pipe"}));
    Ok(())
}

/// A member that was there and keeps the group's place.
async fn group_with(mesh: &Mesh, events: u32) -> Result<()> {
    let short = Subscribe::load_balance("keeper", "t").group("g").backoff_ms(100, 100).max_attempts(2);
    mesh.client.subscribed(&short).await?;
    mesh.client.unsubscribe("keeper", "t").await?.expect(200)?;
    mesh.client.published("t", (0..events).map(event)).await
}

fn ids(lines: &[Value]) -> Vec<String> {
    lines.iter().map(|line| line["event"]["id"].as_str().unwrap_or_default().to_owned()).collect()
}

#[tokio::test]
async fn what_was_printed_is_done_and_what_nobody_reads_is_not() -> Result<()> {
    let mesh = Mesh::new().await?;
    group_with(&mesh, 30).await?;
    let said = mesh.json(&["sub", "t", "--group", "g", "--count", "5"]).await?;
    assert_eq!(ids(&said), ["0", "1", "2", "3", "4"]);
    assert_eq!((mesh.client.pending().await?, mesh.members("t").await?), (0, 0));

    // The shell's `head` goes away after three lines; what follows stays with the group.
    let options = mesh.options().join(" ");
    let shell = format!("{} sub t --group g -o json {options} | head -n 3", binary().display());
    let mut head = Command::new("/bin/bash");
    head.args(["-c", &format!("set -o pipefail; {shell}")]).kill_on_drop(true).stdout(Stdio::piped());
    let head = head.spawn()?;
    // The command learns of it with the next event that it prints.
    let output = async { Ok(within("head and what feeds it", SOON, head.wait_with_output()).await??) };
    let more = async {
        for number in 30..60 {
            mesh.client.published("t", [event(number)]).await?;
            mesh_tests::pause(Duration::from_millis(50)).await;
        }
        anyhow::Ok(())
    };
    let (output, ()) = tokio::try_join!(output, more)?;
    ensure!(output.status.success(), "{output:?}");
    assert_eq!(output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count(), 3);
    until("the member to be gone", SOON, async || (mesh.members("t").await.ok()? == 0).then_some(())).await?;

    // Whoever comes next gets all that was not written, to the last.
    let mut rest = mesh.sub(&["t", "--group", "g", "-o", "json"]).await?;
    while rest.json().await?["event"]["id"] != "59" {}
    until("all to be done", SOON, async || (mesh.client.pending().await.ok()? == 0).then_some(())).await?;
    rest.signal("-TERM")?;
    assert_eq!(rest.ended().await?.0, Some(0));
    Ok(())
}

#[tokio::test]
async fn a_command_that_is_given_events_says_by_its_exit_code_whether_they_are_done() -> Result<()> {
    let mesh = Mesh::new().await?;
    group_with(&mesh, 3).await?;
    // Event 1 fails each time; a command that does not read its input does well all the same.
    let script = "read -r line; echo \"$line\" >> seen; case $line in *'\"id\":\"1\"'*) exit 7;; esac";
    let mut sub = mesh.sub(&["t", "--group", "g", "--exec", script]).await?;
    let dead = until("a dead letter", SOON, async || {
        mesh.client.dead_letters("t").await.ok().filter(|letters| letters.len() == 1)
    });
    let dead = dead.await?;
    assert_eq!(
        json!([dead[0]["eventId"], dead[0]["lastError"], dead[0]["attempts"]]),
        json!(["1", "the command failed", 2])
    );
    until("the others to be done", SOON, async || (mesh.client.pending().await.ok()? == 0).then_some(()))
        .await?;
    let seen = fs::read_to_string(mesh.server.home().join("seen"))?;
    let seen: Vec<Value> = seen.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    assert_eq!(seen.len(), 4, "{seen:?}");
    sub.signal("-INT")?;
    ensure!(sub.child.wait().await?.success());

    let replay = ["dlq", "replay", "t", "--group", "g"];
    let tried = mesh.said(&[&replay[..], &["--dry-run"]].concat()).await?;
    assert_eq!(tried, "would replay 1; nothing was changed\n");
    let browsed = mesh.said(&["dlq", "list", "t"]).await?;
    ensure!(browsed.contains("the command failed") && browsed.starts_with("DEAD AT"), "{browsed}");
    ensure!(mesh.said(&["dlq", "show", "t", "1"]).await?.contains("\"eventId\": \"1\""));
    assert_eq!(mesh.output(&["dlq", "show", "t", "2"]).await?.status.code(), Some(66));
    assert_eq!(mesh.said(&replay).await?, "replayed 1\n");
    assert_eq!(mesh.json(&["dlq", "browse", "t"]).await?, [] as [Value; 0]);
    let again = mesh.json(&["sub", "t", "--group", "g", "--count", "1"]).await?;
    assert_eq!(ids(&again), ["1"]);
    mesh.client.published("t", [event("bad")]).await?;
    let refusing = mesh.sub(&["t", "--group", "g", "--exec", "exit 1"]).await?;
    until("a dead letter", SOON, async || {
        (mesh.client.dead_letters("t").await.ok()?.len() == 1).then_some(())
    })
    .await?;
    drop(refusing);
    assert_eq!(
        mesh.said(&["dlq", "discard", "t", "--id", "bad", "--reason", "attempts_exhausted"]).await?,
        "discarded 1\n"
    );
    Ok(())
}

#[tokio::test]
async fn a_signal_ends_it_though_nobody_reads_its_output_and_what_was_not_written_comes_again() -> Result<()>
{
    let mesh = Mesh::new().await?;
    group_with(&mesh, 0).await?;
    // More than a pipe holds, so that the second line stands in it half written.
    let sub = mesh.sub(&["t", "--group", "g", "-o", "json"]).await?;
    fs::write(mesh.server.home().join("large"), "x".repeat(200_000))?;
    mesh.said(&["pub", "t", "first", "--id", "first"]).await?;
    until("the first to be done", SOON, async || (mesh.client.pending().await.ok()? == 0).then_some(()))
        .await?;
    mesh.said(&["pub", "t", "--file", "large", "--id", "large"]).await?;
    until("the second to be handed out", SOON, async || {
        (mesh.client.pending().await.ok()? == 1).then_some(())
    })
    .await?;
    sub.signal("-TERM")?;
    let Sub { mut child, lines } = sub;
    let status = within("its end", SOON, child.wait()).await??;
    ensure!(status.code() == Some(0), "{status}");
    drop(lines);
    assert_eq!(mesh.members("t").await?, 0);
    let again = mesh.json(&["sub", "t", "--group", "g", "--max", "1"]).await?;
    assert_eq!(ids(&again), ["large"]);
    Ok(())
}

#[tokio::test]
async fn a_command_under_way_is_let_end_and_only_a_second_signal_takes_its_event_from_it() -> Result<()> {
    let mesh = Mesh::new().await?;
    group_with(&mesh, 2).await?;
    let home = mesh.server.home();
    let begun = async |name: &str| {
        let path = home.join(name);
        until("the command to begin", SOON, async || path.exists().then_some(())).await
    };
    let sub = mesh.sub(&["t", "--group", "g", "--exec", "touch one; sleep 1; touch done"]).await?;
    begun("one").await?;
    sub.signal("-TERM")?;
    assert_eq!(sub.ended().await?, (Some(0), String::new()));
    ensure!(home.join("done").exists(), "the command was cut off");

    // Event 1 is left, and is nobody's again at once.
    let sub = mesh.sub(&["t", "--group", "g", "--exec", "touch two; exec sleep 60"]).await?;
    begun("two").await?;
    sub.signal("-TERM")?;
    sub.signal("-INT")?;
    sub.signal("-INT")?;
    assert_eq!(sub.ended().await?.0, Some(0));
    let left = mesh.json(&["sub", "t", "--group", "g", "--max", "1"]).await?;
    assert_eq!(ids(&left), ["1"]);
    Ok(())
}

#[tokio::test]
async fn what_is_typed_and_has_no_effect_is_said() -> Result<()> {
    let mesh = Mesh::new().await?;
    group_with(&mesh, 1).await?;
    let output = mesh.output(&["sub", "t", "--group", "g", "--from", "earliest", "--max", "1"]).await?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success() && said.contains("eventmesh group seek t g --to earliest"), "{output:?}");
    mesh.said(&["sub", "t", "--group", "new", "--from", "earliest", "--max", "1"]).await?;

    let whole = r#"{"specversion":"1.0","id":"w","source":"/w","type":"w"}"#;
    for (option, value) in
        [("--key", "k"), ("--type", "t"), ("--source", "/s"), ("--id", "i"), ("--attribute", "a=b")]
    {
        let output = mesh.output(&["pub", "t", whole, option, value]).await?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(64) && said.contains(option), "{option}: {output:?}");
    }
    mesh.said(&["pub", "t", whole, "--id", "i", "--content-type", "application/json"]).await?;
    Ok(())
}

#[tokio::test]
async fn on_a_terminal_it_says_what_it_waits_for() -> Result<()> {
    let mesh = Mesh::new().await?;
    let line = format!("{} sub t {}", binary().display(), mesh.options().join(" "));
    // A terminal of its own.
    let mut terminal = Command::new("script");
    terminal.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
    terminal.current_dir(mesh.server.home()).stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut terminal = terminal.spawn().context("script, of bsdutils")?;
    let mut lines = BufReader::new(terminal.stdout.take().context("a pipe")?).lines();
    let first = within("a line", SOON, lines.next_line()).await??.context("it ended")?;
    ensure!(first.trim_end() == "eventmesh sub: waiting for events of t; Ctrl-C ends it", "{first:?}");
    Ok(())
}

#[tokio::test]
async fn topics_and_groups_are_made_shown_moved_and_removed() -> Result<()> {
    let mesh = Mesh::new().await?;
    assert_eq!(
        mesh.said(&["topic", "make", "orders", "--partitions", "2"]).await?,
        "orders has 2 partitions\n"
    );
    let made = mesh.json(&["topic", "show", "orders"]).await?;
    assert_eq!(made[0]["partitions"].as_array().map(Vec::len), Some(2));
    ensure!(mesh.said(&["topic", "list"]).await?.contains("orders"));
    let mut sub = mesh.sub(&["orders", "--group", "g", "--filter", "type=x*"]).await?;
    mesh.said(&["pub", "orders", "1", "--type", "x.y", "--key", "k"]).await?;
    mesh.said(&["pub", "orders", "1", "--type", "z", "--key", "k"]).await?;
    ensure!(sub.line().await?.contains("  x.y  "));
    sub.signal("-INT")?;
    assert_eq!(sub.ended().await?, (Some(0), String::new()));

    let listed = mesh.said(&["group", "list", "orders"]).await?;
    ensure!(listed.starts_with("TOPIC") && listed.contains("LOAD_BALANCE"), "{listed}");
    let place = ["group", "seek", "orders", "g", "--to", "earliest"];
    let tried = mesh.said(&[&place[..], &["--dry-run"]].concat()).await?;
    ensure!(tried.contains("nothing was changed"), "{tried}");
    let lag = async || -> Result<Value> {
        Ok(mesh.json(&["group", "show", "orders", "g"]).await?[0]["lag"].take())
    };
    let before = lag().await?;
    mesh.said(&place).await?;
    ensure!(lag().await? == 2 && before != 2, "{before}");
    mesh.said(&["group", "seek", "orders", "g", "--to", "0=0,1=0"]).await?;
    assert_eq!(mesh.output(&["topic", "delete", "orders"]).await?.status.code(), Some(65));
    assert_eq!(mesh.said(&["group", "remove", "orders", "g"]).await?, "g of orders is removed\n");
    let deleted = mesh.said(&["topic", "delete", "orders", "--force"]).await?;
    ensure!(deleted.starts_with("orders is deleted"), "{deleted}");
    Ok(())
}

#[tokio::test]
async fn every_failure_has_its_exit_code_and_names_the_next_step() -> Result<()> {
    let mesh = Mesh::new().await?;
    let home = mesh.server.home();
    let ends = async |arguments: &[&str], code: i32, parts: &[&str]| -> Result<()> {
        let output = within("its end", SOON, command(home, arguments).output()).await??;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(code), "{arguments:?}: {output:?}");
        for part in parts {
            ensure!(said.contains(part), "{arguments:?}: no {part:?} in {said:?}");
        }
        ensure!(!said.contains("panicked"), "{said}");
        Ok(())
    };
    let nowhere = format!("--address=127.0.0.1:{}", free_port());
    let admin_nowhere = format!("--admin-address=127.0.0.1:{}", free_port());
    ends(&["pub", "t", "{}", &nowhere], 69, &["Connection refused", "eventmesh standalone", "--address"])
        .await?;
    ends(&["sub", "t", &nowhere], 69, &["Connection refused", "--address"]).await?;
    ends(&["topic", "list", &admin_nowhere], 69, &["--admin-address"]).await?;
    ends(&["health", &admin_nowhere], 69, &["Connection refused", "--admin-address"]).await?;
    let traffic = format!("--address=127.0.0.1:{}", mesh.server.traffic_port());
    let admin = format!("--admin-address=127.0.0.1:{}", mesh.server.admin_port());
    ends(&["pub", "bad topic", "{}", &traffic], 65, &["topic"]).await?;
    ends(&["pub", "t", "{}", "--attribute", "Bad=1", &traffic], 65, &["Bad"]).await?;
    ends(&["pub", "t", "{", "--content-type", "application/json", &traffic], 64, &["no JSON"]).await?;
    ends(&["pub", "t", "--file", "not-there", &traffic], 64, &["not-there"]).await?;
    ends(&["pub", "t", "{}", "--rate", "0", &traffic], 64, &["above 0"]).await?;
    ends(&["sub", "t", "--filter", "type", &traffic], 64, &["NAME=VALUE"]).await?;
    ends(&["sub", "t", "--from", "yesterday", &traffic], 65, &["from"]).await?;
    ends(&["sbu", "t"], 64, &["sub"]).await?;
    ends(&["topic", "list", &admin], 77, &["--token-file"]).await?;
    ends(&["health", &admin], 0, &[]).await?;
    let token = format!("-Deventmesh.admin.token={TOKEN}");
    ends(&["topic", "show", "not-there", &admin, &token], 66, &["topic list"]).await?;
    ends(&["group", "show", "t", "g", &admin, &token], 66, &["group list t"]).await?;
    ends(&["group", "seek", "t", "g", "--to", "0=", &admin, &token], 64, &["PARTITION=OFFSET"]).await?;
    ends(&["group", "seek", "t", "g", "--to", "nowhere", &admin, &token], 64, &["is no place", "0=12"])
        .await?;
    ends(&["group", "seek", "t", "g", "--to", "earliest", &admin, &token], 66, &["group list t"]).await?;
    ends(&["group", "remove", "t", "g", &admin, &token], 66, &["group list t"]).await?;
    ends(
        &["topic", "list", &format!("--admin-address=127.0.0.1:{}", mesh.server.traffic_port())],
        66,
        &["right port"],
    )
    .await?;
    ends(&["topic", "list", &admin, "--token-file", "not-there"], 64, &["--token-file", "not-there"]).await?;
    ends(&["pub", "t", "{}", "--address", "ftp://x"], 64, &["ftp://x"]).await?;
    Ok(())
}

#[tokio::test]
async fn variables_and_files_say_what_is_not_typed() -> Result<()> {
    let access = Access::new()?;
    access.tokens(&["A/ann"])?;
    access.rules(&[("ALLOW", "ann", "ANY", "*")])?;
    let mut server = access.guard(Server::new()?, true).without_admin_token();
    server.start().await?;
    let address = format!("127.0.0.1:{}", server.traffic_port());
    let ends = async |arguments: &[&str], variables: &[(&str, &str)]| -> Result<Output> {
        let mut command = command(server.home(), arguments);
        command.envs(variables.iter().copied());
        within("its end", SOON, command.output()).await?.context("it does not start")
    };
    let published = ["pub", "t", "{}"];
    let output = ends(&published, &[("EVENTMESH_CLI_ADDRESS", &address)]).await?;
    ensure!(output.status.code() == Some(77), "{output:?}");
    let token = token_of("A/ann");
    let output =
        ends(&published, &[("EVENTMESH_CLI_ADDRESS", &address), ("EVENTMESH_CLI_TOKEN", &token)]).await?;
    ensure!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let output =
        ends(&published, &[("EVENTMESH_CLI_ADDRESS", &address), ("EVENTMESH_CLI_TOKN", &token)]).await?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        said.contains("EVENTMESH_CLI_TOKN is not known") && said.contains("EVENTMESH_CLI_TOKEN?"),
        "{said}"
    );
    fs::write(server.home().join("token"), format!("{token}\n"))?;
    let file = [
        ("EVENTMESH_CLI_ADDRESS", address.as_str()),
        ("EVENTMESH_CLI_TOKEN_FILE", "token"),
        ("EVENTMESH_CLI_OUTPUT", "json"),
    ];
    let output = ends(&published, &file).await?;
    let said: Value = serde_json::from_slice(&output.stdout).with_context(|| format!("{output:?}"))?;
    ensure!(said["topic"] == "t", "{said}");
    // The admin port of a server that made its own token, found by its configuration alone.
    let data = format!("-Deventmesh.data.dir={}", server.data_directory().display());
    let port = format!("-Deventmesh.admin.port={}", server.admin_port());
    let output = ends(&["topic", "list", &data, &port], &[]).await?;
    ensure!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains('t'), "{output:?}");
    // Both ports with a token each: what names the admin port is for it alone.
    let admin_token = fs::read_to_string(server.data_directory().join("admin.token"))?;
    let admin = format!("--admin-address=127.0.0.1:{}", server.admin_port());
    let both = [
        ("EVENTMESH_CLI_ADDRESS", address.as_str()),
        ("EVENTMESH_CLI_TOKEN", &token),
        ("EVENTMESH_CLI_ADMIN_TOKEN", admin_token.trim()),
    ];
    for arguments in [&published[..], &["topic", "list", &admin]] {
        let output = ends(arguments, &both).await?;
        ensure!(output.status.success(), "{arguments:?}: {output:?}");
    }
    fs::write(server.home().join("wrong"), "wrong")?;
    let output = ends(&["topic", "list", &admin, "--admin-token-file", "wrong"], &both).await?;
    ensure!(output.status.code() == Some(77), "{output:?}");
    // The variables of the commands are none of the server's.
    let mut other =
        Server::new()?.variable("EVENTMESH_CLI_TOKEN", "x").variable("EVENTMESH_CLI_OUTPUT", "json");
    other.start().await?;
    ensure!(!other.log().contains("EVENTMESH_CLI"), "{}", other.log());
    Ok(())
}

#[tokio::test]
async fn a_subscriber_says_that_the_server_is_gone_and_goes_on_when_it_is_back() -> Result<()> {
    let mut mesh = Mesh::new().await?;
    let mut sub = mesh.sub(&["t", "--group", "g"]).await?;
    mesh.said(&["pub", "t", "1"]).await?;
    sub.line().await?;
    mesh.server.kill9();
    mesh.client = mesh.server.start().await?;
    mesh.said(&["pub", "t", "2"]).await?;
    ensure!(sub.line().await?.ends_with("  2"));
    sub.signal("-INT")?;
    let (code, said) = sub.ended().await?;
    ensure!(
        code == Some(0) && said.contains("trying again") && said.contains("the server is back"),
        "{said}"
    );
    Ok(())
}

#[tokio::test]
async fn shells_complete_the_commands_and_help_names_them() -> Result<()> {
    let home = tempfile::tempdir()?;
    for shell in ["bash", "zsh", "fish"] {
        let output = command(home.path(), &["completion", shell]).output().await?;
        let script = String::from_utf8(output.stdout)?;
        ensure!(output.status.success() && script.contains("replay") && script.contains("seek"), "{shell}");
    }
    let script = home.path().join("completion");
    fs::write(&script, command(home.path(), &["completion", "bash"]).output().await?.stdout)?;
    let completed = format!(
        "source {}; COMP_WORDS=(eventmesh dlq re); COMP_CWORD=2; _eventmesh eventmesh re dlq; echo \"${{COMPREPLY[@]}}\"",
        script.display()
    );
    let output = Command::new("/bin/bash").args(["-c", &completed]).output().await?;
    ensure!(String::from_utf8_lossy(&output.stdout).trim() == "replay", "{output:?}");
    let help = command(home.path(), &["help"]).output().await?;
    let help = String::from_utf8(help.stdout)?;
    for name in ["pub", "sub", "topic", "group", "dlq", "health", "completion"] {
        ensure!(help.contains(&format!("  {name} ")), "{name} is not in {help}");
    }
    Ok(())
}
