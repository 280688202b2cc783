//! The example does what it says, and the README shows it as it is.

use std::time::Duration;

use anyhow::{Context, Result};
use tokio::time::timeout;

use crate::server::Server;

// Its `main` is the program's, not the test's.
#[allow(dead_code)]
#[path = "../../examples/first_steps.rs"]
mod example;

#[tokio::test]
async fn the_example_runs_to_its_end_twice() -> Result<()> {
    let server = Server::start().await?;
    for _ in 0..2 {
        timeout(Duration::from_secs(30), example::first_steps(&server.address())).await??;
    }
    Ok(())
}

#[test]
fn the_readme_shows_the_example_as_it_is() -> Result<()> {
    let example = include_str!("../../examples/first_steps.rs");
    let (_, program) = example.split_once("\n\n").context("an example below its first words")?;
    let readme = include_str!("../../../../README.md");
    anyhow::ensure!(
        readme.contains(program.trim()),
        "README.md does not show examples/first_steps.rs:\n{program}"
    );
    Ok(())
}
