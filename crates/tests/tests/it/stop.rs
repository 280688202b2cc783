//! The planned stop: readiness first, then what is under way, then the flush; and what the next start finds.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use mesh_tests::{Client, History, Recorder, Server, Subscribe, event, pause, run_to_end, until};
use tokio::task::JoinSet;

use crate::recovery::{SOON, one_partition, patient};

#[tokio::test]
async fn an_event_in_its_retries_goes_on_where_it_was_after_an_orderly_restart() -> Result<()> {
    // covers: U58  proves: FM-3
    let mut server = one_partition()?;
    let client = server.start().await?;
    client.subscribed(&patient("c").max_attempts(6).ack_timeout_ms(300)).await?;
    client.published("t", [event(1)]).await?;
    for attempt in 1..=3 {
        let got = client.receive("c", 1, SOON).await?;
        assert_eq!(got[0].attempt, attempt);
    }
    server.stop().await?;
    let client = server.start().await?;
    let got = client.receive("c", 1, SOON).await?;
    assert_eq!(got[0].attempt, 4);
    client.acked(&got).await?;
    assert_eq!(client.dead_letters("t").await?, Vec::<serde_json::Value>::new());
    assert_eq!(client.pending().await?, 0);
    Ok(())
}

#[tokio::test]
async fn a_stop_under_load_turns_readiness_off_ends_with_zero_and_loses_nothing() -> Result<()> {
    // covers: U63  proves: FM-3
    let history = History::new();
    let mut server = Server::new()?;
    let recorder = Recorder::new(server.start().await?, &history);
    recorder.subscribed(&patient("c").max_attempts(0)).await?;
    recorder.client.subscribed(&Subscribe::broadcast("idle", "silent")).await?;
    let mut tasks = JoinSet::new();
    for publisher in 0..2 {
        let recorder = recorder.clone();
        tasks.spawn(async move {
            for number in 0.. {
                match recorder.publish("t", &event(format!("{publisher}-{number}"))).await {
                    Ok(reply) if reply.status == 202 => pause(Duration::from_millis(5)).await,
                    Ok(reply) => {
                        let code = (reply.status, reply.code());
                        assert_eq!(code, (503, "not_ready".to_owned()), "while stopping: {reply}");
                        return;
                    }
                    Err(_) => return,
                }
            }
        });
    }
    let mut polls = JoinSet::new();
    let poller = recorder.client.clone();
    polls.spawn(async move { poller.poll_reply("idle", 10, 60_000).await });
    until("some load", SOON, async || (history.facts().len() > 200).then_some(())).await?;
    server.terminate()?;
    // Readiness is off, or the listener gone, well before the process is.
    let watcher = recorder.client.clone();
    until("readiness to turn off", Duration::from_secs(5), async || {
        let ready = watcher.admin_with("GET", "/admin/ready", &[]).await;
        ready.map_or(true, |reply| reply.status == 503).then_some(())
    })
    .await?;
    let status = server.wait_exit(Duration::from_secs(15)).await?;
    ensure!(status.code() == Some(0), "the stop under load ended with {status}:\n{}", server.log_end(20));
    while let Some(task) = tasks.join_next().await {
        task.context("a task of the load")?;
    }
    let poll = polls.join_next().await.context("there is one poll")??;
    let poll = poll.context("the waiting poll was cut off instead of answered")?;
    ensure!(matches!(poll.status, 200 | 503), "the waiting poll was answered {poll}");

    let recorder = Recorder::new(server.start().await?, &history);
    recorder.drain(&["c"], Duration::from_secs(30)).await?;
    history.must_hold("a stop under load");
    Ok(())
}

#[tokio::test]
async fn a_second_sigterm_ends_the_process_at_once() -> Result<()> {
    // covers: U63
    let mut server =
        Server::new()?.key("eventmesh.shutdown.timeout", "60s").key("eventmesh.http.bodyTimeout", "5m");
    server.start().await?;
    // A request that never ends holds the first stop up.
    let mut slow = mesh_tests::Raw::connect(server.traffic_port()).await?;
    slow.send(b"POST /events/publish?topic=t HTTP/1.1\r\nHost: localhost\r\ncontent-type: application/cloudevents+json\r\ncontent-length: 1000\r\n\r\n{")
        .await?;
    pause(Duration::from_millis(300)).await;
    server.terminate()?;
    pause(Duration::from_secs(1)).await;
    ensure!(server.exited()?.is_none(), "the request under way was cut off by the first SIGTERM");
    server.terminate()?;
    server.wait_exit(Duration::from_secs(2)).await.context("after the second SIGTERM")?;
    Ok(())
}

#[tokio::test]
async fn a_planned_stop_and_start_changes_nothing_that_was_persisted() -> Result<()> {
    // proves: FM-3 ST-4
    let mut server = Server::new()?;
    let client = server.start().await?;
    client.subscribed(&Subscribe::load_balance("c", "t")).await?;
    client.published("t", (0..40).map(event)).await?;
    let got = client.receive("c", 30, SOON).await?;
    client.acked(&got[..20]).await?;
    let state = async |client: &Client| -> Result<_> {
        let clients = client.admin("/admin/clients?topic=t").await?.json()?;
        let subscriptions = client.admin("/admin/subscriptions?topic=t").await?.json()?;
        Ok((client.offsets("t").await?, client.pending().await?, clients, subscriptions))
    };
    let before = state(&client).await?;
    assert_eq!(before.1, 10);
    for _ in 0..2 {
        server.stop().await?;
        let client = server.start().await?;
        assert_eq!(state(&client).await?, before);
    }
    Ok(())
}

#[tokio::test]
async fn a_hang_up_reads_the_files_again_and_opens_the_audit_log_again() -> Result<()> {
    let mut server = Server::new()?;
    let (admins, audit) = (server.home().join("admins.toml"), server.home().join("audit.log"));
    let token = |value: &str| format!("[[token]]\nname = \"a\"\nvalue = \"{value}\"\nrole = \"admin\"\n");
    std::fs::write(&admins, token("first-token-0123456789"))?;
    server = server
        .key("eventmesh.admin.security.token.file", admins.display())
        .key("eventmesh.security.gate.audit.file", audit.display())
        .key("eventmesh.security.reload.interval", "1h");
    let client = server.start().await?;
    let denied = async |path: &str| {
        client
            .admin_with("GET", path, &[("authorization", "Bearer wrong")])
            .await?
            .expect_error(401, "unauthenticated")
    };
    denied("/admin/topics/before").await?;
    let has = |path: &std::path::Path, text: &str| {
        std::fs::read_to_string(path).is_ok_and(|lines| lines.contains(text)).then_some(())
    };
    until("the record to be written", SOON, async || has(&audit, "/admin/topics/before")).await?;

    std::fs::write(&admins, token("second-token-0123456789"))?;
    let moved = server.home().join("audit.log.1");
    std::fs::rename(&audit, &moved)?;
    server.hang_up()?;
    let second = [("authorization", "Bearer second-token-0123456789")];
    until("the new token to hold", SOON, async || {
        (client.admin_with("GET", "/admin/topics", &second).await.ok()?.status == 200).then_some(())
    })
    .await?;
    until("the audit log to be there again", SOON, async || audit.exists().then_some(())).await?;
    denied("/admin/topics/after").await?;
    until("the next record to be written", SOON, async || has(&audit, "/admin/topics/after")).await?;
    ensure!(has(&moved, "/admin/topics/after").is_none(), "it went on in the old file");
    server.stop().await?;
    ensure!(!server.log().contains("was taken away"), "{}", server.log_end(20));
    let file = audit.display().to_string();
    let verified = run_to_end(&["audit", "verify", &file], &[], server.home(), SOON).await?;
    ensure!(verified.code == Some(0) && verified.text.contains("holds together"), "{}", verified.text);
    Ok(())
}

#[tokio::test]
async fn signals_that_mean_nothing_end_nothing_from_before_the_start_on() -> Result<()> {
    let mut server = Server::new()?;
    server.spawn()?;
    until("the first line of the log", SOON, async || (!server.log().is_empty()).then_some(())).await?;
    server.send_user_signals()?;
    server.hang_up()?;
    let client = server.client();
    until("the start", SOON, async || {
        (client.admin_with("GET", "/admin/ready", &[]).await.ok()?.status == 200).then_some(())
    })
    .await?;
    for _ in 0..3 {
        server.send_user_signals()?;
        server.hang_up()?;
    }
    client.published("t", [event(1)]).await?;
    until("the signals to be told", SOON, async || server.log().contains("SIGUSR2").then_some(())).await?;
    server.stop().await
}

#[tokio::test]
async fn a_stop_that_comes_before_everything_is_built_is_an_orderly_one() -> Result<()> {
    let mut server = Server::new()?;
    server.spawn()?;
    until("the first line of the log", SOON, async || (!server.log().is_empty()).then_some(())).await?;
    pause(Duration::from_millis(30)).await;
    server.stop().await
}
