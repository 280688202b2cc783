//! The container and the unit of the system: read by the tools that know them, and what they start is started.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use mesh_tests::{binary, free_port, run_to_end, until};
use tokio::process::Command;

const SOON: Duration = Duration::from_secs(60);
/// How exposed the unit may be, of 100, by the judgement of `systemd-analyze security`.
const MOST_EXPOSED: &str = "20";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(name: &str) -> Result<String> {
    fs::read_to_string(root().join(name)).with_context(|| name.to_owned())
}

/// Runs a tool to its end, which must be a good one and without a word.
async fn has_nothing_to_say(mut command: Command) -> Result<()> {
    let output = command.output().await.with_context(|| format!("{command:?}: run make peers"))?;
    let said = [output.stdout, output.stderr].concat();
    ensure!(
        output.status.success() && said.is_empty(),
        "{command:?}: {}\n{}",
        output.status,
        String::from_utf8_lossy(&said)
    );
    Ok(())
}

async fn hadolint() -> Result<PathBuf> {
    let peers = Command::new(root().join("scripts/peers")).arg("--where").output().await?;
    let said = String::from_utf8_lossy(&peers.stderr);
    ensure!(peers.status.success(), "the peers are not installed: {said}");
    let peers = String::from_utf8(peers.stdout)?;
    let python = Path::new(peers.lines().next().context("an interpreter")?);
    Ok(python.with_file_name("hadolint"))
}

/// The arguments of an instruction of the last stage of the Dockerfile, in its order.
fn instructions<'a>(dockerfile: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    let last = dockerfile.rfind("\nFROM ").map_or(dockerfile, |at| &dockerfile[at..]);
    last.lines().filter_map(move |line| line.strip_prefix(name)?.strip_prefix(' '))
}

/// A command in the form of a JSON list.
fn command_of(text: &str) -> Result<Vec<String>> {
    let list = &text[text.find('[').context("a list")?..];
    Ok(serde_json::from_str(list)?)
}

#[tokio::test]
async fn the_dockerfile_has_no_findings_and_one_with_a_fault_has() -> Result<()> {
    let hadolint = hadolint().await?;
    let mut check = Command::new(&hadolint);
    check.arg(root().join("Dockerfile"));
    has_nothing_to_say(check).await?;
    let folder = tempfile::tempdir()?;
    let faulty = folder.path().join("Dockerfile");
    fs::write(&faulty, read("Dockerfile")?.replace("USER 65532:65532", "USER root\nRUM true"))?;
    let output = Command::new(&hadolint).arg(&faulty).output().await?;
    ensure!(!output.status.success(), "{output:?}");
    Ok(())
}

#[tokio::test]
async fn what_the_container_starts_becomes_healthy_by_its_own_check() -> Result<()> {
    let dockerfile = read("Dockerfile")?;
    ensure!(instructions(&dockerfile, "USER").eq(["65532:65532"]), "it is to run without rights");
    let entry = command_of(instructions(&dockerfile, "ENTRYPOINT").next().context("ENTRYPOINT")?)?;
    let arguments = command_of(instructions(&dockerfile, "CMD").next().context("CMD")?)?;
    let health = command_of(instructions(&dockerfile, "HEALTHCHECK").next().context("HEALTHCHECK")?)?;
    ensure!(entry == ["/usr/bin/eventmesh"] && health[0] == entry[0], "{entry:?} {health:?}");

    let home = tempfile::tempdir()?;
    let data = home.path().join("data").display().to_string();
    let (traffic, admin) = (free_port().to_string(), free_port().to_string());
    let mut environment = vec![
        ("EVENTMESH_HTTP_PORT".to_owned(), traffic.clone()),
        ("EVENTMESH_ADMIN_PORT".to_owned(), admin.clone()),
    ];
    for given in instructions(&dockerfile, "ENV") {
        let (name, value) = given.split_once('=').context("NAME=VALUE")?;
        let value = if name == "EVENTMESH_DATA_DIR" { data.as_str() } else { value };
        environment.push((name.to_owned(), value.to_owned()));
    }
    let environment: Vec<(&str, &str)> =
        environment.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let health: Vec<&str> = health[1..].iter().map(String::as_str).collect();
    let before = run_to_end(&health, &environment, home.path(), SOON).await?;
    ensure!(before.code == Some(69), "{before:?}");

    let ours = std::env::vars_os().map(|(name, _)| name);
    let mut server = Command::new(binary());
    for name in ours.filter(|name| name.to_string_lossy().starts_with("EVENTMESH_")) {
        server.env_remove(name);
    }
    server.args(arguments).envs(environment.iter().copied()).current_dir(home.path()).kill_on_drop(true);
    let mut server = server.spawn()?;
    until("the health check", SOON, async || {
        let asked = run_to_end(&health, &environment, home.path(), SOON).await.ok()?;
        (asked.code == Some(0) && asked.text == "READY\n").then_some(())
    })
    .await?;
    // It listens beyond loopback, as a port that is handed on from the host needs it.
    let listening = fs::read_to_string("/proc/net/tcp")?;
    let any = format!(" 00000000:{:04X} ", traffic.parse::<u16>()?);
    ensure!(listening.contains(&any), "it does not listen on every address:\n{listening}");
    server.kill().await?;
    Ok(())
}

#[tokio::test]
async fn the_image_has_every_library_that_the_program_loads() -> Result<()> {
    // What a small Debian has beside the program.
    let there = [
        "linux-vdso",
        "ld-linux",
        "libc.so",
        "libm.so",
        "libgcc_s.so",
        "libstdc++.so",
        "libdl",
        "libpthread",
        "librt",
    ];
    let output = Command::new("ldd").arg(binary()).output().await?;
    ensure!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout)?;
    let other: Vec<&str> =
        text.lines().filter(|line| !there.iter().any(|library| line.contains(library))).collect();
    ensure!(!text.is_empty() && other.is_empty(), "the image lacks {other:?}");
    Ok(())
}

#[tokio::test]
async fn the_unit_is_one_that_systemd_starts_and_shuts_in() -> Result<()> {
    let unit = read("packaging/systemd/eventmesh.service")?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("eventmesh.service");
    // The program is not installed here.
    let installed = unit.replace("/usr/bin/eventmesh", &binary().display().to_string());
    ensure!(installed != unit, "ExecStart names no /usr/bin/eventmesh");
    fs::write(&path, &installed)?;
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--man=no"]).arg(&path);
    has_nothing_to_say(verify).await?;
    let judged = Command::new("systemd-analyze")
        .args(["security", "--offline=yes", "--no-pager", "--threshold", MOST_EXPOSED])
        .arg(&path)
        .output()
        .await?;
    ensure!(judged.status.success(), "{}", String::from_utf8_lossy(&judged.stdout));

    fs::write(&path, installed.replace("Restart=on-failure", "Restrat=on-failure"))?;
    let faulty = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&path).output().await?;
    ensure!(String::from_utf8_lossy(&faulty.stderr).contains("Restrat"), "{faulty:?}");
    Ok(())
}

#[tokio::test]
async fn the_configuration_of_the_unit_is_one_that_starts() -> Result<()> {
    let unit = read("packaging/systemd/eventmesh.service")?;
    let home = tempfile::tempdir()?;
    let data = home.path().join("data").display().to_string();
    let mut environment = Vec::new();
    for line in unit.lines().filter_map(|line| line.strip_prefix("Environment=")) {
        let (name, value) = line.split_once('=').context("NAME=VALUE")?;
        environment.push((name, if name == "EVENTMESH_DATA_DIR" { data.as_str() } else { value }));
    }
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).context("ExecStart")?;
    ensure!(start == "/usr/bin/eventmesh server --config /etc/eventmesh/eventmesh.properties", "{start}");
    let conf = root().join("conf/eventmesh.properties").display().to_string();
    let checked =
        run_to_end(&["config", "check", "--config", &conf], &environment, home.path(), SOON).await?;
    ensure!(checked.code == Some(0), "{checked:?}");
    Ok(())
}
