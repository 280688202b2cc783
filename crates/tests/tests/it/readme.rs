//! The README from top to bottom: every `sh` block in order in one shell, and the `text` block behind it is its answer.
//!
//! The shell stands in a fresh folder. What differs from a reader's terminal, all of it in this file:
//!
//! * the binary of this build stands in for what `make` builds; `make` and `cargo run` are programs that say what they
//!   were told, `cargo run --example` starts the example that was built with the tests;
//! * the SDKs are those that `scripts/peers` has installed: `venv` and `node_modules` are there already, and the commands
//!   that would make them make nothing; `pip` is the real one and finds its packages installed;
//! * ports are others ([`PORTS`]), in the text and in the environment of the shell;
//! * a background subscriber is waited for, as a person does who reads before going on.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use mesh_tests::{binary, free_port, until, within};
use tokio::{
    io::AsyncWriteExt as _,
    process::{Child, ChildStdin, Command},
};

/// The ports of the README; each is replaced by a free one wherever it stands.
const PORTS: [&str; 4] = ["10105", "10106", "8080", "8081"];
/// How long a block may take; one waits for a lock to run out.
const LONG: Duration = Duration::from_secs(90);

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A block of shell, and the lines that it is to answer with.
#[derive(Debug, Default)]
struct Step {
    shell: String,
    answer: Vec<String>,
}

/// The `sh` blocks of a document, each with the `text` block behind it.
fn steps(document: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut lines = document.lines();
    while let Some(line) = lines.next() {
        let Some(language) = line.strip_prefix("```") else { continue };
        let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        match language {
            "sh" => steps.push(Step { shell: block.join("\n"), answer: Vec::new() }),
            "text" => {
                if let Some(step) = steps.last_mut() {
                    step.answer.extend(block.iter().map(|line| (*line).to_owned()));
                }
            }
            _ => {}
        }
    }
    steps
}

/// Whether a line is as the document shows it: `…` stands for anything, and blanks between columns count as one.
fn is_like(line: &str, shown: &str) -> bool {
    let squeeze = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (line, shown) = (squeeze(line), squeeze(shown));
    let parts: Vec<&str> = shown.split('…').collect();
    let (Some(first), Some(last)) = (parts.first(), parts.last()) else { return false };
    if parts.len() == 1 {
        return line == *first;
    }
    let Some(mut rest) = line.strip_prefix(first) else { return false };
    for part in &parts[1..parts.len() - 1] {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// The shell and what it has put into the background: all of it ends with the test.
struct Group(u32);

impl Drop for Group {
    fn drop(&mut self) {
        drop(std::process::Command::new("kill").args(["-9", "--", &format!("-{}", self.0)]).output());
    }
}

/// One shell, whose blocks are written into it one after another.
struct Terminal {
    shell: Child,
    /// Its end ends the shell.
    input: Option<ChildStdin>,
    _group: Group,
    output: PathBuf,
    folder: tempfile::TempDir,
    ports: Vec<(&'static str, String)>,
}

impl Terminal {
    async fn open() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("readme-").tempdir()?;
        let home = folder.path();
        let release = home.join("target/release");
        fs::create_dir_all(&release)?;
        symlink(binary(), release.join("eventmesh"))?;
        let example = std::env::current_exe()?
            .ancestors()
            .nth(2)
            .map(|profile| profile.join("examples/first_steps"))
            .context("a folder of the build")?;
        ensure!(example.is_file(), "there is no {}: run all of `cargo test --workspace`", example.display());
        let copied = Command::new("cp")
            .arg("-r")
            .args(["peers", "conf"].map(|name| root().join(name)))
            .arg(home)
            .status()
            .await?;
        ensure!(copied.success(), "cannot copy");
        let peers = Command::new(root().join("scripts/peers")).arg("--where").output().await?;
        ensure!(
            peers.status.success(),
            "the peers are not installed: {}",
            String::from_utf8_lossy(&peers.stderr)
        );
        let peers = String::from_utf8(peers.stdout)?;
        let mut peers = peers.lines().map(PathBuf::from);
        let python = peers.next().context("an interpreter")?;
        let python = python.parent().and_then(Path::parent).context("its folder")?;
        symlink(python, home.join("venv"))?;
        symlink(peers.next().context("modules")?.join("node_modules"), home.join("node_modules"))?;

        let programs = home.join("stand-ins");
        fs::create_dir(&programs)?;
        let real = Command::new("/bin/sh").args(["-c", "command -v python3"]).output().await?.stdout;
        for (name, script) in [
            ("make", "echo \"make $*\"".to_owned()),
            (
                "cargo",
                format!(
                    "case \"$*\" in \
                     'run -p mesh-client --example first_steps -- '*) shift 6; exec {} \"$@\" ;; \
                     *) echo \"no cargo $*\" >&2; exit 1 ;; esac",
                    example.display()
                ),
            ),
            ("npm", "[ \"$1\" = install ] && [ -d node_modules ]".to_owned()),
            (
                "python3",
                format!(
                    "case \"$*\" in '-m venv venv') [ -d venv ] ;; *) exec {} \"$@\" ;; esac",
                    String::from_utf8(real)?.trim()
                ),
            ),
        ] {
            let path = programs.join(name);
            fs::write(&path, format!("#!/bin/sh\n{script}\n"))?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        }

        let ports: Vec<(&str, String)> =
            PORTS.into_iter().map(|port| (port, free_port().to_string())).collect();
        let output = home.join("terminal");
        let file = fs::File::create(&output)?;
        let path = std::env::var("PATH").unwrap_or_default();
        let mut shell = Command::new("/bin/bash");
        let ours = std::env::vars_os().map(|(name, _)| name);
        for name in ours.filter(|name| name.to_string_lossy().starts_with("EVENTMESH_")) {
            shell.env_remove(name);
        }
        shell
            .args(["-euo", "pipefail"])
            .current_dir(home)
            .env("PATH", format!("{}:{path}", programs.display()))
            .env("EVENTMESH_HTTP_PORT", &ports[0].1)
            .env("EVENTMESH_ADMIN_PORT", &ports[1].1)
            .stdin(Stdio::piped())
            .stdout(file.try_clone()?)
            .stderr(file)
            .process_group(0)
            .kill_on_drop(true);
        let mut shell = shell.spawn()?;
        let group = Group(shell.id().context("it runs")?);
        let input = shell.stdin.take();
        Ok(Self { shell, input, _group: group, output, folder, ports })
    }

    fn said(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.output).unwrap_or_default()).into_owned()
    }

    /// Runs a block, and waits until it has answered as the document says.
    async fn run(&mut self, number: usize, step: &Step) -> Result<()> {
        let from = self.said().len();
        let block = self.put(&step.shell);
        let end = format!("-- end of block {number} --");
        let input = self.input.as_mut().context("the shell listens")?;
        input.write_all(format!("{block}\necho '{end}'\n").as_bytes()).await?;
        let mut ended = None;
        let answered = until("the answer", LONG, async || {
            let said = self.said();
            let lines: Vec<&str> = said[from..].lines().collect();
            ended = self.shell.try_wait().ok().flatten();
            let is_complete = lines.contains(&end.as_str())
                && step.answer.iter().all(|shown| lines.iter().any(|line| is_like(line, &self.put(shown))));
            (is_complete || ended.is_some()).then_some(())
        });
        let answered = answered.await;
        let log = fs::read_to_string(self.folder.path().join("server.log")).unwrap_or_default();
        ensure!(
            answered.is_ok() && ended.is_none(),
            "block {number} of README.md:\n{block}\nis to answer\n{}\nand said\n{}\nthe server said\n{log}",
            step.answer.join("\n"),
            &self.said()[from..]
        );
        if block.contains("eventmesh sub") && block.contains('&') {
            self.wait_for_member().await?;
        }
        Ok(())
    }

    /// A text with the ports of this run, which may themselves have one of the README's in them.
    fn put(&self, text: &str) -> String {
        let marked = self.ports.iter().enumerate().fold(text.to_owned(), |text, (number, (port, _))| {
            text.replace(port, &format!("<port {number}>"))
        });
        self.ports
            .iter()
            .enumerate()
            .fold(marked, |text, (number, (_, other))| text.replace(&format!("<port {number}>"), other))
    }

    async fn wait_for_member(&self) -> Result<()> {
        until("the subscriber", LONG, async || {
            let mut list = Command::new(binary());
            list.args(["group", "list", "-o", "json"]).current_dir(self.folder.path());
            list.args([
                format!("-Deventmesh.http.port={}", self.ports[0].1),
                format!("-Deventmesh.admin.port={}", self.ports[1].1),
            ]);
            let listed = list.output().await.ok()?;
            String::from_utf8_lossy(&listed.stdout).contains("\"clientId\"").then_some(())
        })
        .await
    }
}

#[tokio::test]
async fn everything_in_the_readme_works_when_it_is_pasted_in_order() -> Result<()> {
    let text = fs::read_to_string(root().join("README.md"))?;
    let steps = steps(&text);
    ensure!(steps.len() >= 15, "the README has {} blocks", steps.len());
    let mut terminal = Terminal::open().await?;
    for (number, step) in steps.iter().enumerate() {
        terminal.run(number + 1, step).await?;
    }
    terminal.input = None;
    ensure!(within("the end of the shell", LONG, terminal.shell.wait()).await??.success());
    Ok(())
}

#[test]
fn the_quick_starts_have_the_versions_that_the_tests_use() -> Result<()> {
    let readme = fs::read_to_string(root().join("README.md"))?;
    let pinned = fs::read_to_string(root().join("peers/python/requirements.txt"))?;
    for name in ["cloudevents", "requests"] {
        let version = pinned.lines().find(|line| line.starts_with(&format!("{name}=="))).context(name)?;
        ensure!(readme.contains(version.trim()), "README.md does not say {version}");
    }
    let package: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(root().join("peers/javascript/package.json"))?)?;
    let version = package["dependencies"]["cloudevents"].as_str().context("a version")?;
    ensure!(readme.contains(&format!("cloudevents@{version}")), "README.md does not say {version}");
    Ok(())
}

#[test]
fn a_shown_line_leaves_open_what_differs_and_nothing_else() {
    for (line, shown, expected) in [
        ("orders/3@0", "orders/…@0", true),
        ("orders/3@1", "orders/…@0", false),
        ("a   b", "a b", true),
        ("a b c", "a b", false),
        ("{\"a\":1,\"b\":2}", "{…\"b\":2}", true),
        ("{\"a\":1,\"b\":3}", "{…\"b\":2}", false),
    ] {
        assert_eq!(is_like(line, shown), expected, "{line} {shown}");
    }
}
