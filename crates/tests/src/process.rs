//! Running the binary: where it is, and short runs to their end.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result};

/// The server binary.
///
/// # Panics
/// When there is none: the tests do not build it.
pub fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("EVENTMESH_BIN") {
        let path = PathBuf::from(path);
        assert!(path.is_file(), "EVENTMESH_BIN names {}, which is not there", path.display());
        return path;
    }
    let test = std::env::current_exe().expect("the system knows which executable runs");
    let beside = test.ancestors().nth(2).map(|profile| profile.join("eventmesh")).unwrap_or_default();
    assert!(
        beside.is_file(),
        "there is no {}: run `cargo build --bin eventmesh` first, or set EVENTMESH_BIN",
        beside.display()
    );
    beside
}

/// A command that runs `program` in `directory` with no input and none of our variables.
pub(crate) fn command(program: &Path, directory: &Path) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("EVENTMESH_") {
            command.env_remove(name);
        }
    }
    command.current_dir(directory).stdin(Stdio::null());
    command
}

/// How a short run ended.
#[derive(Clone, Debug)]
pub struct Output {
    /// The exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// The standard output and then the standard error.
    pub text: String,
}

/// Runs the binary until it ends by itself.
///
/// # Errors
/// When it cannot be started or has not ended within `most`.
pub async fn run_to_end(
    arguments: &[&str],
    environment: &[(&str, &str)],
    directory: &Path,
    most: Duration,
) -> Result<Output> {
    let mut command = command(&binary(), directory);
    command.args(arguments).envs(environment.iter().copied());
    let mut command = tokio::process::Command::from(command);
    command.kill_on_drop(true);
    let output = tokio::time::timeout(most, command.output())
        .await
        .with_context(|| format!("{arguments:?} still runs after {most:?}"))??;
    let text = [output.stdout, output.stderr].concat();
    Ok(Output { code: output.status.code(), text: String::from_utf8_lossy(&text).into_owned() })
}
