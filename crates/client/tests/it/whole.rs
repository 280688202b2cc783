//! The whole way through a real server.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context, Result};
use mesh_client::{
    AckTotals, Acker, AckerSettings, Delivery, DeliveryId, DeliveryStream, Error, Filter, Mode,
    OutgoingEvent, Settled, Start, SubscribeRequest, UnsubscribeRequest,
};
use serde_json::json;
use tokio::time::timeout;

use crate::server::Server;

const PATIENCE: Duration = Duration::from_secs(30);

fn event(id: usize) -> OutgoingEvent {
    OutgoingEvent::new(id.to_string(), "/s", "order.placed").json(format!(r#"{{"n": {id}}}"#))
}

async fn next(stream: &mut DeliveryStream) -> Result<Delivery> {
    Ok(timeout(PATIENCE, stream.next()).await.context("no delivery came")??)
}

#[tokio::test]
async fn what_is_published_is_polled_and_settled_in_every_way() -> Result<()> {
    let server = Server::start().await?;
    let client = server.client()?;
    let filter = Filter::parse(&json!({"prefix": {"type": "order."}}))?;
    let request = SubscribeRequest::new("c", "t", Mode::LoadBalance)
        .group("g")
        .filters(&[filter])
        .from(&Start::Earliest)
        .ack_timeout(Duration::from_secs(20))
        .backoff(Duration::from_millis(100), Duration::from_millis(200))
        .max_in_flight(100)
        .max_attempts(3);
    let made = client.subscribe(&request).await?;
    let again = client.subscribe(&request).await?;
    assert_eq!((made.created, again.created), (true, false));
    assert_eq!(
        (&made.subscription_id, &made.group, &made.start),
        (&again.subscription_id, &again.group, &again.start)
    );
    assert_eq!(made.group, "g");

    assert_eq!(client.publish("t", &event(0).attribute("subject", "x")).await?.topic, "t");
    client.publish("t", &OutgoingEvent::new("other", "/s", "unwanted")).await?;
    client.publish_batch("t", &(1..4).map(event).collect::<Vec<_>>()).await?;
    let binary =
        OutgoingEvent::new("4", "/s", "order.binary").binary("image/png", [0, 255]).integer("size", 2);
    client.publish("t", &binary).await?;

    let mut got = Vec::new();
    while got.len() < 5 {
        got.extend(client.poll("c", 10, Duration::from_secs(5)).await?);
    }
    got.sort_by(|one, other| one.event.id().cmp(other.event.id()));
    let ids: Vec<&str> = got.iter().map(|delivery| delivery.event.id()).collect();
    assert_eq!(ids, ["0", "1", "2", "3", "4"]);
    assert_eq!(&got[0].event.data()[..], br#"{"n": 0}"#);
    assert_eq!(&got[4].event.data()[..], [0, 255]);

    assert_eq!(client.ack(&got[0]).await?, Settled::Done);
    assert_eq!(client.ack(&got[0]).await?, Settled::Unknown);
    let two = [DeliveryId::from(&got[0]), DeliveryId::from(&got[1])];
    assert_eq!(client.ack_many(&two).await?, [Settled::Unknown, Settled::Done]);
    assert_eq!(client.extend(&got[2], Duration::from_secs(60)).await?, Settled::Done);
    assert_eq!(client.reject(&got[2], Some("no use")).await?, Settled::Done);
    assert_eq!(client.nack(&got[3], Some(Duration::ZERO), Some("again")).await?, Settled::Done);
    let again = client.poll("c", 10, Duration::from_secs(10)).await?;
    assert_eq!((again[0].event.id(), again[0].attempt), ("3", 2));
    client.ack_many(&[DeliveryId::from(&again[0]), DeliveryId::from(&got[4])]).await?;

    client.unsubscribe(&UnsubscribeRequest::new("c").topic("t").group("g").delete_group()).await?;
    client.unsubscribe(&UnsubscribeRequest::new("c")).await?;
    let error = client.poll("c", 1, Duration::ZERO).await.expect_err("it is unsubscribed");
    assert_eq!((error.status(), error.code()), (Some(404), Some("unknown_client")), "{error}");
    Ok(())
}

#[tokio::test]
async fn a_stream_goes_on_after_the_server_was_killed_with_what_was_not_acked() -> Result<()> {
    let mut server = Server::start().await?;
    let client = server.client()?;
    let request = SubscribeRequest::new("c", "t", Mode::LoadBalance).ack_timeout(Duration::from_secs(1));
    client.subscribe(&request).await?;
    client.publish("t", &event(1)).await?;
    client.publish("t", &event(2)).await?;
    let mut stream = client.stream("c");
    let (one, two) = (next(&mut stream).await?, next(&mut stream).await?);
    assert_eq!(client.ack(&one).await?, Settled::Done);

    let restarted = server.restart();
    let (again, restarted) = tokio::join!(next(&mut stream), restarted);
    restarted?;
    let again = again?;
    assert_eq!((again.event.id(), again.attempt), (two.event.id(), 2));
    client.ack(&again).await?;
    client.publish("t", &event(3)).await?;
    assert_eq!(next(&mut stream).await?.event.id(), "3");
    Ok(())
}

#[tokio::test]
async fn a_second_stream_ends_the_first_and_an_unknown_client_has_none() -> Result<()> {
    let server = Server::start().await?;
    let client = server.client()?;
    let refused = timeout(PATIENCE, client.stream("nobody").next()).await?;
    assert!(refused.as_ref().is_err_and(|error| error.code() == Some("unknown_client")), "{refused:?}");

    client.subscribe(&SubscribeRequest::new("c", "t", Mode::Broadcast)).await?;
    client.publish("t", &event(1)).await?;
    let (mut first, mut second) = (client.stream("c"), client.stream("c"));
    client.ack(&next(&mut first).await?).await?;
    client.publish("t", &event(2)).await?;
    let (ended, received) = tokio::join!(
        async {
            loop {
                // The event may reach the first stream before the second one is there.
                if let Err(error) = timeout(PATIENCE, first.next()).await? {
                    return anyhow::Ok(error);
                }
            }
        },
        next(&mut second)
    );
    assert!(matches!(ended?, Error::Replaced));
    assert_eq!(received?.event.id(), "2");
    Ok(())
}

#[tokio::test]
async fn gathered_acknowledgements_all_arrive() -> Result<()> {
    let server = Server::start().await?;
    let client = server.client()?;
    client.subscribe(&SubscribeRequest::new("c", "t", Mode::LoadBalance)).await?;
    client.publish_batch("t", &(0..250).map(event).collect::<Vec<_>>()).await?;
    let settings = AckerSettings { most: 100, ..AckerSettings::default() };
    let (acker, work) = Acker::new(client.clone(), settings);
    let consume = async move {
        let mut stream = client.stream("c");
        let mut seen = BTreeSet::new();
        while seen.len() < 250 {
            let delivery = next(&mut stream).await?;
            seen.insert(delivery.event.id().to_owned());
            acker.ack(&delivery).await?;
        }
        anyhow::Ok(acker.flush().await?)
    };
    let (consumed, totals) = tokio::join!(consume, work.run());
    let expected = AckTotals { acked: 250, unknown: 0, failed: 0 };
    assert_eq!((consumed?, totals), (expected, expected));
    Ok(())
}

#[tokio::test]
async fn names_and_lists_that_do_not_fit_a_request_as_they_are_still_do() -> Result<()> {
    let server = Server::start().await?;
    let client = server.client()?;
    let name = "a b/ü&c=+%?#";
    client.subscribe(&SubscribeRequest::new(name, "t", Mode::LoadBalance)).await?;
    client.publish("t", &event(1)).await?;
    let got = client.poll(name, 1, Duration::from_secs(10)).await?;
    assert_eq!(got.len(), 1);

    // One more than a request may have; only the last of them is a delivery.
    let mut ids: Vec<DeliveryId> =
        (0..mesh_client::MOST_AT_ONCE).map(|n| DeliveryId::from(n.to_string())).collect();
    ids.push(DeliveryId::from(&got[0]));
    let settled = client.ack_many(&ids).await?;
    let (last, others) = settled.split_last().context("an outcome for each")?;
    assert_eq!((last, others.len()), (&Settled::Done, mesh_client::MOST_AT_ONCE));
    assert!(others.iter().all(|outcome| *outcome == Settled::Unknown));
    assert_eq!(client.ack_many(&[]).await?, []);
    Ok(())
}
