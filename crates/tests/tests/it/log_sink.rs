//! The log goes to a pipe, and whoever should read it does not: nothing that the server does waits for that.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use mesh_tests::{Client, Server, Subscribe, event, until};

const SOON: Duration = Duration::from_secs(20);

async fn lost(client: &Client) -> Result<u64> {
    let text = client.admin("/metrics").await?.expect(200)?;
    let text = String::from_utf8(text.body.to_vec())?;
    let line = text.lines().find_map(|line| line.strip_prefix("eventmesh_log_lines_lost_total "));
    line.context("no eventmesh_log_lines_lost_total")?.parse().context("a number")
}

async fn works(client: &Client) -> Result<()> {
    client.admin_with("GET", "/admin/health", &[]).await?.expect(200)?;
    client.subscribed(&Subscribe::load_balance("c", "t")).await?;
    client.published("t", [event("1")]).await?;
    let got = client.receive("c", 1, SOON).await?;
    client.acked(&got).await
}

#[tokio::test]
async fn a_log_pipe_that_nobody_reads_costs_lines_and_holds_up_nobody() -> Result<()> {
    let mut server = Server::new()?.key("eventmesh.log.level", "trace").logging_to_a_pipe();
    let client = server.start().await?;
    let reader = server.take_log_pipe().context("a pipe")?;
    until("lines to be lost", Duration::from_secs(60), async || {
        for _ in 0..50 {
            client.admin_with("GET", "/admin/topics", &[("authorization", "Bearer wrong")]).await.ok()?;
        }
        (lost(&client).await.ok()? > 0).then_some(())
    })
    .await?;
    works(&client).await?;
    server.stop().await.context("an orderly stop while nobody reads")?;
    drop(reader);
    Ok(())
}

#[tokio::test]
async fn a_log_pipe_whose_reader_is_gone_costs_lines_and_nothing_else() -> Result<()> {
    let mut server = Server::new()?.logging_to_a_pipe();
    let client = server.start().await?;
    drop(server.take_log_pipe().context("a pipe")?);
    for _ in 0..20 {
        client
            .admin_with("GET", "/admin/topics", &[("authorization", "Bearer wrong")])
            .await?
            .expect_error(401, "unauthenticated")?;
    }
    works(&client).await?;
    until("lines to be lost", SOON, async || (lost(&client).await.ok()? >= 20).then_some(())).await?;
    server.stop().await.context("an orderly stop without a reader")?;
    Ok(())
}

#[tokio::test]
async fn the_log_of_a_start_that_fails_and_of_a_stop_is_whole() -> Result<()> {
    let mut server = Server::new()?;
    server.start().await?;
    server.stop().await?;
    ensure!(server.log_end(1).contains("stopped"), "{}", server.log_end(5));
    std::fs::write(server.data_directory().join("FORMAT"), "eventmesh data 99\n")?;
    server.spawn()?;
    ensure!(server.wait_exit(SOON).await?.code() == Some(1));
    ensure!(server.log_end(1).contains("eventmesh data 99"), "{}", server.log_end(5));
    Ok(())
}
