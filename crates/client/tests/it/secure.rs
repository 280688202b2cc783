//! The client over TLS.

use std::{fs, time::Duration};

use anyhow::Result;
use mesh_client::{Client, Error, Mode, OutgoingEvent, RetryPolicy, SubscribeRequest};
use rcgen::{CertificateParams, KeyPair};

use crate::server::Server;

#[tokio::test]
async fn a_client_speaks_to_whom_it_trusts_and_to_nobody_else() -> Result<()> {
    let key = KeyPair::generate()?;
    let certificate = CertificateParams::new(vec!["localhost".to_owned()])?.self_signed(&key)?.pem();
    let server = Server::secure(&certificate, |home| {
        fs::write(home.join("server.pem"), &certificate)?;
        fs::write(home.join("server.key"), key.serialize_pem())
    })
    .await?;
    let client = Client::builder(server.address()).authorities(certificate.clone()).build()?;
    client.subscribe(&SubscribeRequest::new("c", "t", Mode::LoadBalance)).await?;
    client.publish("t", &OutgoingEvent::new("1", "/s", "order.placed").json("{}")).await?;
    let got = client.poll("c", 1, Duration::from_secs(20)).await?;
    assert_eq!(got[0].event.id(), "1");
    let mut stream = client.stream("c");
    client.publish("t", &OutgoingEvent::new("2", "/s", "order.placed").json("{}")).await?;
    assert_eq!(stream.next().await?.event.id(), "2");

    let other =
        CertificateParams::new(vec!["localhost".to_owned()])?.self_signed(&KeyPair::generate()?)?.pem();
    for trusting in [Client::builder(server.address()).authorities(other), Client::builder(server.address())]
    {
        let refused = trusting.retry(RetryPolicy::never()).build()?.poll("c", 1, Duration::ZERO).await;
        assert!(matches!(refused, Err(Error::Connect(_))), "{refused:?}");
    }
    for nobody in ["", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        let built = Client::builder(server.address()).authorities(nobody).build();
        assert!(matches!(built, Err(Error::Authorities)), "{built:?}");
    }
    Ok(())
}
