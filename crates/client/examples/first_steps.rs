//! Publishes three events, receives them by a stream, and acknowledges them.
//!
//! `cargo run -p mesh-client --example first_steps -- http://127.0.0.1:10105`

use mesh_client::{Client, Error, Mode, OutgoingEvent, Start, SubscribeRequest};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let address = std::env::args().nth(1);
    first_steps(address.as_deref().unwrap_or("http://127.0.0.1:10105")).await
}

pub(crate) async fn first_steps(address: &str) -> Result<(), Error> {
    let client = Client::new(address)?;

    let request = SubscribeRequest::new("first-steps", "first-steps", Mode::LoadBalance)
        .group("first-steps")
        .from(&Start::Earliest);
    client.subscribe(&request).await?;

    for number in 1..=3 {
        let event = OutgoingEvent::new(number.to_string(), "/first-steps", "order.placed")
            .partition_key("customer-7")
            .json(format!(r#"{{"total":{number}}}"#));
        let stored = client.publish("first-steps", &event).await?;
        println!("published {number}: partition {}, offset {}", stored.partition, stored.offset);
    }

    let mut stream = client.stream("first-steps");
    for _ in 1..=3 {
        let delivery = stream.next().await?;
        let data = delivery.event.data();
        println!("received {}: {}", delivery.event.id(), String::from_utf8_lossy(&data));
        client.ack(&delivery).await?;
    }
    println!("acknowledged all three");
    Ok(())
}
