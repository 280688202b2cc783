//! Programs that others wrote, against the server: the CloudEvents SDKs, a browser, a fuzzer that reads the API
//! document. `scripts/peers` installs them, `peers/` pins their versions and holds what drives them.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use mesh_tests::{Server, Subscribe, TOKEN, event, id_of, keyed, rounds, within};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
};

/// How long a program may take; browsers and interpreters start slowly on a busy machine.
const LONG: Duration = Duration::from_secs(120);

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Where the peers are.
struct Peers {
    python: PathBuf,
    modules: PathBuf,
    chromium: PathBuf,
}

impl Peers {
    async fn find() -> Result<Self> {
        let asked = Command::new(root().join("scripts/peers")).arg("--where").output().await?;
        let said = String::from_utf8_lossy(&asked.stderr);
        ensure!(asked.status.success(), "the peers are not installed: {said}");
        let paths = String::from_utf8(asked.stdout)?;
        let mut paths = paths.lines().map(PathBuf::from);
        let mut next =
            || paths.next().context("scripts/peers --where names an interpreter, a folder, a browser");
        Ok(Self { python: next()?, modules: next()?, chromium: next()? })
    }

    fn python(&self, program: &str) -> Command {
        let mut command = Command::new(&self.python);
        command.arg(root().join("peers/python").join(program));
        command
    }

    fn javascript(&self, program: &str) -> Command {
        let mut command = Command::new("node");
        command.arg(root().join("peers/javascript").join(program));
        command.env("MODULES", &self.modules).env("CHROMIUM", &self.chromium);
        command
    }
}

/// Runs a program to its end, which must be a good one; gives what it printed.
async fn succeeds(mut command: Command, most: Duration) -> Result<String> {
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output();
    let output = within("the program", most, output).await?.with_context(|| format!("{command:?}"))?;
    let text = String::from_utf8([output.stdout, output.stderr].concat())?;
    ensure!(output.status.success(), "{command:?} ended with {}:\n{text}", output.status);
    Ok(text)
}

fn traffic(server: &Server) -> String {
    format!("http://127.0.0.1:{}", server.traffic_port())
}

#[tokio::test]
async fn the_python_sdk_gets_back_what_it_published() -> Result<()> {
    let peers = Peers::find().await?;
    let mut server = Server::new()?;
    server.start().await?;
    let mut program = peers.python("cloudevents_sdk.py");
    program.arg(traffic(&server));
    let text = succeeds(program, LONG).await?;
    ensure!(text.contains("all events came back equal"), "{text}");
    Ok(())
}

#[tokio::test]
async fn the_javascript_sdk_gets_back_what_it_published() -> Result<()> {
    let peers = Peers::find().await?;
    let mut server = Server::new()?;
    server.start().await?;
    let mut program = peers.javascript("cloudevents_sdk.mjs");
    program.arg(traffic(&server));
    let text = succeeds(program, LONG).await?;
    ensure!(text.contains("all events came back equal"), "{text}");
    Ok(())
}

/// A page in a browser, and what it reports.
struct Page {
    /// Its end ends the browser.
    orders: ChildStdin,
    reports: Lines<BufReader<ChildStdout>>,
    _program: Child,
}

impl Page {
    fn open(peers: &Peers, server: &Server, client: &str) -> Result<Self> {
        let mut program = peers.javascript("browser.mjs");
        program.arg(traffic(server)).arg(client);
        program.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut program = program.spawn()?;
        let reports = BufReader::new(program.stdout.take().context("its output")?).lines();
        Ok(Self { orders: program.stdin.take().context("its input")?, reports, _program: program })
    }

    async fn go_to(&mut self, server: &Server) -> Result<()> {
        Ok(self.orders.write_all(format!("{}\n", traffic(server)).as_bytes()).await?)
    }

    /// The next report.
    async fn report(&mut self) -> Result<Vec<String>> {
        let line = within("a report of the page", LONG, self.reports.next_line()).await??;
        Ok(serde_json::from_str(&line.context("the browser ended")?)?)
    }

    /// Waits until the page says that its connection is there.
    async fn opened(&mut self) -> Result<()> {
        loop {
            let report = self.report().await?;
            match report[0].as_str() {
                "open" => return Ok(()),
                // It tries again by itself.
                "error" => {}
                _ => anyhow::bail!("{report:?} instead of an open connection"),
            }
        }
    }

    /// The ids of the next events; nothing else may come between them.
    async fn events(&mut self, count: usize) -> Result<Vec<String>> {
        let mut ids = Vec::new();
        while ids.len() < count {
            let report = self.report().await?;
            let [kind, last_id, data] = &report[..] else { anyhow::bail!("{report:?} instead of an event") };
            let delivery: Value = serde_json::from_str(data)?;
            ensure!(kind == "event" && delivery["deliveryId"] == **last_id, "{report:?}");
            ids.push(id_of(&delivery["event"]).to_owned());
        }
        Ok(ids)
    }
}

#[tokio::test]
async fn a_page_receives_by_event_source_and_goes_on_after_a_kill() -> Result<()> {
    let peers = Peers::find().await?;
    let mut server = Server::new()?;
    let client = server.start().await?;
    client.subscribed(&Subscribe::broadcast("page", "t").set("ack", "auto")).await?;
    let mut page = Page::open(&peers, &server, "page")?;
    page.opened().await?;
    // Lines and signs that a careless server would break the stream with.
    let mut odd = keyed("odd", "k");
    odd["data"] = json!({"text": "a\nb\r\n\n: c\u{2028}ü"});
    client.published("t", [keyed(1, "k"), keyed(2, "k"), odd]).await?;
    assert_eq!(page.events(3).await?, ["1", "2", "odd"]);

    server.kill9();
    assert_eq!(page.report().await?, ["error"]);
    let client = server.start().await?;
    // Before the page is back: it waits in the log.
    client.published("t", [keyed(3, "k")]).await?;
    page.go_to(&server).await?;
    page.opened().await?;
    client.published("t", [keyed(4, "k"), keyed(5, "k")]).await?;
    assert_eq!(page.events(3).await?, ["3", "4", "5"]);
    ensure!(client.pending().await? == 0, "an automatic ack leaves nothing");
    Ok(())
}

/// Runs the fuzzer over some operations of the document: no 5xx, and no status, media type, header or body that
/// is not in the document.
async fn fuzz(peers: &Peers, port: u16, document: &Path, operations: &[&str]) -> Result<()> {
    let (examples, seed) = (rounds("FUZZ_EXAMPLES", 30), rounds("FUZZ_SEED", 1));
    let mut program = Command::new(peers.python.with_file_name("schemathesis"));
    program.current_dir(document.parent().context("a folder")?);
    program.arg("run").arg(document).arg("--url").arg(format!("http://127.0.0.1:{port}"));
    program.args(operations).args(["--header", &format!("Authorization: Bearer {TOKEN}")]);
    program.args(["--phases", "examples,coverage,fuzzing", "--checks", "all"]);
    // The schemas say what shape input has, not all that it must hold to.
    program.args(["--exclude-checks", "positive_data_acceptance,negative_data_rejection"]);
    program.args(["--max-examples", &examples.to_string(), "--seed", &seed.to_string()]);
    program.args(["--request-timeout", "600", "--generation-database", "none"]);
    program.args(["--no-color", "--warnings", "off", "--continue-on-failure"]);
    let text = succeeds(program, LONG * (2 + examples / 30)).await?;
    ensure!(text.contains(" generated, ") && !text.contains(" 0 generated"), "it tested nothing:\n{text}");
    println!("{text}");
    Ok(())
}

#[tokio::test]
async fn a_fuzzer_finds_no_server_error_and_nothing_undocumented() -> Result<()> {
    let peers = Peers::find().await?;
    let mut server = Server::new()?;
    let client = server.start().await?;
    let document = server.home().join("openapi.json");
    std::fs::write(&document, &client.get("/openapi.json").await?.expect(200)?.body)?;
    let (traffic, admin) = (server.traffic_port(), server.admin_port());
    let stream = ["--include-operation-id", "stream"];
    let poll = ["--include-operation-id", "poll"];

    // An open stream never ends, and a poll waits for up to a minute: first while there is no client that could
    // have one.
    fuzz(&peers, traffic, &document, &[stream, poll].concat()).await?;

    // Then polls of a client that never has to wait. The fuzzer's favourite name is `0`.
    client.subscribed(&Subscribe::load_balance("0", "0").group("0").set("ack", "auto")).await?;
    for _ in 0..20 {
        let events: Vec<Value> = (0..1_000).map(event).collect();
        client.publish_batch("0", &events).await?.expect(202)?;
    }
    fuzz(&peers, traffic, &document, &poll).await?;

    // The rest finds that client, and a dead letter.
    client.subscribed(&Subscribe::load_balance("1", "0").group("1").max_attempts(1)).await?;
    client.published("0", [event("dies")]).await?;
    let delivered = client.receive("1", 1, Duration::from_secs(20)).await?;
    let reject = json!({"deliveryId": delivered[0].delivery_id, "reason": "to be found"});
    client.post("/events/reject", &reject).await?.expect(200)?;
    let others =
        ["--exclude-tag", "admin", "--exclude-operation-id", "stream", "--exclude-operation-id", "poll"];
    fuzz(&peers, traffic, &document, &others).await?;
    fuzz(&peers, admin, &document, &["--include-tag", "admin"]).await?;

    let log = server.log();
    let bad: Vec<&str> =
        log.lines().filter(|line| line.contains(" ERROR ") || line.contains("panicked")).collect();
    ensure!(bad.is_empty(), "{bad:?}");
    Ok(())
}
