//! The load generators against a server: every delivery is counted, and none is missing.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use mesh_tests::{Server, run_to_end};
use serde_json::Value;

const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn every_subscriber_gets_every_event_of_a_constant_load_once() -> Result<()> {
    let mut server = Server::new()?;
    server.start().await?;
    let address = format!("127.0.0.1:{}", server.traffic_port());
    // Streams without and with acks, and polls, which are the slowest.
    for (by, subscribers) in [("auto", 40_u64), ("explicit", 40), ("poll", 5)] {
        let many = subscribers.to_string();
        let load =
            ["bench", "fanout", "--address", &address, "--topic", by, "--by", by, "--subscribers", &many];
        let span = ["--rate", "50", "--warmup", "0.2", "--seconds", "0.6"];
        let output = run_to_end(&[&load[..], &span].concat(), &[], server.home(), LONG).await?;
        ensure!(output.code == Some(0), "{by}: {}", output.text);
        let result: Value = serde_json::from_str(&output.text).context(output.text)?;
        let counts = ["deliveries", "missing", "repeated", "refusedAcks"].map(|name| result[name].as_u64());
        assert_eq!(counts, [Some(subscribers * 30), Some(0), Some(0), Some(0)], "{by}: {result}");
    }
    Ok(())
}
