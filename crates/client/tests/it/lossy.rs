//! What the client does when the server cannot, or the connection breaks.

use std::time::Duration;

use anyhow::Result;
use futures_util::StreamExt;
use mesh_client::{
    AckTotals, Acker, AckerSettings, Client, Error, OutgoingEvent, RetryPolicy, RetryPublish, Settled,
};
use tokio::time::{Instant, timeout};

use crate::scripted::{Scripted, Step};

const BUSY: Step = Step::Answer(503, "", r#"{"error":"overloaded","message":"later"}"#);
const BUSY_FOR_A_SECOND: Step =
    Step::Answer(429, "retry-after: 1\r\n", r#"{"error":"rate_limited","message":"later"}"#);
const ACKED: Step = Step::Answer(200, "", r#"{"status":"acked"}"#);
const GONE: Step = Step::Answer(404, "", r#"{"error":"unknown_delivery","message":"x"}"#);
const STORED: Step = Step::Answer(202, "", r#"{"status":"accepted","topic":"t","partition":2,"offset":"7"}"#);
const PATIENCE: Duration = Duration::from_secs(20);

fn quick() -> RetryPolicy {
    RetryPolicy { first_delay: Duration::from_millis(5), ..RetryPolicy::default() }
}

fn event() -> OutgoingEvent {
    OutgoingEvent::new("1", "/s", "t")
}

#[tokio::test]
async fn an_overloaded_server_and_a_lost_connection_are_tried_again() -> Result<()> {
    let server = Scripted::new().await?;
    let client = Client::builder(server.address()?).credential("Bearer x").retry(quick()).build()?;
    let script = [BUSY, Step::Lost, ACKED];
    let (settled, requests) =
        timeout(PATIENCE, async { tokio::join!(client.ack("d"), server.play(&script)) }).await?;
    assert_eq!(settled?, Settled::Done);
    let requests = requests?;
    assert_eq!(requests.len(), 3);
    assert!(requests.iter().all(|request| request.contains("authorization: Bearer x\r\n")), "{requests:?}");
    Ok(())
}

#[tokio::test]
async fn an_ack_whose_answer_was_lost_reads_404_as_done() -> Result<()> {
    let server = Scripted::new().await?;
    let client = Client::builder(server.address()?).retry(quick()).build()?;
    let script = [Step::Lost, GONE];
    let (settled, _) =
        timeout(PATIENCE, async { tokio::join!(client.ack("d"), server.play(&script)) }).await?;
    assert_eq!(settled?, Settled::Unknown);
    Ok(())
}

#[tokio::test]
async fn retry_after_is_waited_for() -> Result<()> {
    let server = Scripted::new().await?;
    let client = Client::builder(server.address()?).retry(quick()).build()?;
    let begin = Instant::now();
    let script = [BUSY_FOR_A_SECOND, ACKED];
    let (settled, _) =
        timeout(PATIENCE, async { tokio::join!(client.ack("d"), server.play(&script)) }).await?;
    assert_eq!(settled?, Settled::Done);
    assert!(begin.elapsed() >= Duration::from_secs(1), "{:?}", begin.elapsed());
    Ok(())
}

#[tokio::test]
async fn a_wait_beyond_the_deadline_is_not_begun() -> Result<()> {
    let server = Scripted::new().await?;
    let policy = RetryPolicy { deadline: Duration::from_millis(500), ..quick() };
    let client = Client::builder(server.address()?).retry(policy).build()?;
    let begin = Instant::now();
    let script = [BUSY_FOR_A_SECOND];
    let (settled, _) =
        timeout(PATIENCE, async { tokio::join!(client.ack("d"), server.play(&script)) }).await?;
    let error = settled.expect_err("there is no time left");
    assert_eq!((error.status(), error.code()), (Some(429), Some("rate_limited")), "{error}");
    assert!(begin.elapsed() < Duration::from_millis(900), "{:?}", begin.elapsed());
    Ok(())
}

#[tokio::test]
async fn a_publish_is_sent_again_only_when_asked_for() -> Result<()> {
    let (server, event) = (Scripted::new().await?, event());
    let never = Client::builder(server.address()?).retry(quick()).build()?;
    let script = [Step::Lost];
    let (sent, _) =
        timeout(PATIENCE, async { tokio::join!(never.publish("t", &event), server.play(&script)) }).await?;
    assert!(matches!(sent, Err(Error::Lost(_))), "{sent:?}");

    let policy = RetryPolicy { publish: RetryPublish::Always, ..quick() };
    let always = Client::builder(server.address()?).retry(policy).build()?;
    let script = [Step::Lost, BUSY, STORED];
    let (sent, _) =
        timeout(PATIENCE, async { tokio::join!(always.publish("t", &event), server.play(&script)) }).await?;
    let sent = sent?;
    assert_eq!((sent.partition, sent.offset.as_str()), (2, "7"));
    Ok(())
}

#[tokio::test]
async fn nobody_listening_is_an_error_of_the_connection() -> Result<()> {
    let server = Scripted::new().await?;
    let address = server.address()?;
    drop(server);
    let policy = RetryPolicy { most_retries: 2, ..quick() };
    let client = Client::builder(address).retry(policy).build()?;
    let settled = timeout(PATIENCE, client.ack("d")).await?;
    assert!(matches!(settled, Err(Error::Connect(_))), "{settled:?}");
    Ok(())
}

#[tokio::test]
async fn a_stream_that_is_cut_is_opened_again_and_drops_what_was_half_there() -> Result<()> {
    const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    let one = concat!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n: keep-alive\n\n",
        r#"data: {"deliveryId":"a","event":{"specversion":"1.0","id":"1","source":"/s","type":"t","emdlreason":"rejected"},"attempt":1,"topic":"t","group":"g","partition":0,"offset":"0","epoch":"1","lockedUntil":"x"}"#,
        "\n\ndata: {\"deliveryId\":\"hal"
    );
    let two = concat!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n",
        r#"data: {"deliveryId":"b","event":{"specversion":"1.0","id":"2","source":"/s","type":"t","data":{"k": 1}},"attempt":2,"topic":"t","group":"g","partition":0,"offset":"1","epoch":"1","lockedUntil":"x"}"#,
        "\n\n"
    );
    let server = Scripted::new().await?;
    let client = Client::builder(server.address()?).retry(quick()).build()?;
    let mut stream = client.stream("c");
    let script = [BUSY, Step::Raw(one), Step::Lost, Step::Raw(HEAD), Step::Raw(two)];
    let receive = async { Ok::<_, Error>((stream.next().await?, stream.next().await?)) };
    let (received, _) = timeout(PATIENCE, async { tokio::join!(receive, server.play(&script)) }).await?;
    let (first, second) = received?;
    assert_eq!((first.event.id(), first.event.attribute("emdlreason")), ("1", Some("rejected")));
    assert_eq!((second.event.id(), second.attempt, &second.event.data()[..]), ("2", 2, &br#"{"k": 1}"#[..]));
    Ok(())
}

#[tokio::test]
async fn a_stream_that_falls_silent_is_opened_again() -> Result<()> {
    const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n: keep-alive\n\n";
    const GONE: Step = Step::Answer(410, "", r#"{"error":"subscription_expired","message":"x"}"#);
    let server = Scripted::new().await?;
    let silence = Duration::from_millis(200);
    let client = Client::builder(server.address()?).retry(quick()).stream_silence(silence).build()?;
    let mut stream = client.stream("c");
    let script = [Step::Silence(HEAD), GONE];
    let (received, requests) =
        timeout(PATIENCE, async { tokio::join!(stream.next(), server.play(&script)) }).await?;
    let error = received.expect_err("the subscription has expired");
    assert_eq!((error.status(), error.code()), (Some(410), Some("subscription_expired")));
    assert_eq!(requests?.len(), 2);
    Ok(())
}

#[tokio::test]
async fn the_caller_of_a_stream_hears_of_trouble_that_lasts() -> Result<()> {
    let server = Scripted::new().await?;
    let address = server.address()?;
    drop(server);
    let policy = RetryPolicy { deadline: Duration::from_millis(100), ..quick() };
    let mut stream = Client::builder(address).retry(policy).build()?.stream("c");
    for _ in 0..2 {
        let received = timeout(PATIENCE, stream.next()).await?;
        assert!(matches!(received, Err(Error::Connect(_))), "{received:?}");
    }
    Ok(())
}

#[tokio::test]
async fn acknowledgements_are_sent_together_and_a_flush_tells_of_a_failure_once() -> Result<()> {
    let server = Scripted::new().await?;
    let client = Client::builder(server.address()?).retry(RetryPolicy::never()).build()?;
    let results = Step::Answer(
        200,
        "",
        r#"{"results":[{"deliveryId":"a","status":"acked"},{"deliveryId":"b","error":"unknown_delivery"}]}"#,
    );
    let settings = AckerSettings { most: 2, delay: PATIENCE * 2 };
    let (acker, work) = Acker::new(client, settings);
    let consumer = async move {
        for id in ["a", "b", "c"] {
            acker.ack(id).await?;
        }
        let error = acker.flush().await.expect_err("the second request was refused");
        assert_eq!(error.status(), Some(503), "{error}");
        acker.flush().await
    };
    let script = [results, BUSY];
    let played = async { tokio::join!(consumer, work.run(), server.play(&script)) };
    let (flushed, totals, requests) = timeout(PATIENCE, played).await?;
    let expected = AckTotals { acked: 1, unknown: 1, failed: 1 };
    assert_eq!((flushed?, totals), (expected, expected));
    let requests = requests?;
    assert!(requests[0].ends_with(r#"{"deliveryId":["a","b"]}"#), "{requests:?}");
    assert!(requests[1].ends_with(r#"{"deliveryId":["c"]}"#), "{requests:?}");
    Ok(())
}

#[tokio::test]
async fn an_acker_without_its_work_says_so() -> Result<()> {
    let (acker, work) = Acker::new(Client::new("http://127.0.0.1:1")?, AckerSettings::default());
    drop(work);
    assert!(matches!(acker.ack("d").await, Err(Error::AckerStopped)));
    assert!(matches!(acker.flush().await, Err(Error::AckerStopped)));
    Ok(())
}

#[test]
fn what_cannot_be_used_is_refused_before_anything_is_sent() {
    for address in ["", "localhost:1", "https://", "http://", "ftp://x", "http://a:b@c"] {
        assert!(matches!(Client::new(address), Err(Error::Address(_))), "{address}");
    }
    let refused = Client::builder("http://localhost").credential("a\nb").build();
    assert!(matches!(refused, Err(Error::Credential)), "{refused:?}");
    assert!(matches!(OutgoingEvent::new("", "/s", "t").check(), Err(Error::Invalid(_))));
}

#[tokio::test]
async fn a_stream_of_futures_goes_on_over_trouble_and_ends_with_what_no_try_helps() -> Result<()> {
    const UNREADABLE_AND_ONE: &str = concat!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n",
        "data: {\"deliveryId\":7}\n\n",
        r#"data: {"deliveryId":"a","event":{"specversion":"1.0","id":"1","source":"/s","type":"t"},"attempt":1,"topic":"t","group":"g","partition":0,"offset":"0","epoch":"1","lockedUntil":"x"}"#,
        "\n\n"
    );
    const GONE: Step = Step::Answer(410, "", r#"{"error":"subscription_expired","message":"x"}"#);
    let server = Scripted::new().await?;
    let client = Client::builder(server.address()?).retry(quick()).build()?;
    let all = client.stream("c").into_stream().collect::<Vec<_>>();
    let script = [BUSY, Step::Raw(UNREADABLE_AND_ONE), GONE];
    let (all, requests) = timeout(PATIENCE, async { tokio::join!(all, server.play(&script)) }).await?;
    assert_eq!(requests?.len(), 3);
    let [Err(Error::Answer(_)), Ok(delivery), Err(gone)] = &all[..] else { panic!("{all:?}") };
    assert_eq!((delivery.event.id(), gone.status()), ("1", Some(410)));
    Ok(())
}

#[tokio::test]
async fn a_date_to_try_again_at_is_waited_for() -> Result<()> {
    const BUSY_UNTIL: Step = Step::Answer(
        503,
        "date: Mon, 30 Nov 2026 14:22:30 GMT\r\nretry-after: Mon, 30 Nov 2026 14:22:31 GMT\r\n",
        r#"{"error":"overloaded","message":"later"}"#,
    );
    let server = Scripted::new().await?;
    let client = Client::builder(server.address()?).retry(quick()).build()?;
    let start = Instant::now();
    let script = [BUSY_UNTIL, ACKED];
    let (settled, _) =
        timeout(PATIENCE, async { tokio::join!(client.ack("d"), server.play(&script)) }).await?;
    assert_eq!(settled?, Settled::Done);
    assert!(start.elapsed() >= Duration::from_secs(1), "{:?}", start.elapsed());
    Ok(())
}
