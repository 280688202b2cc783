//! Prints what reading, storing and writing one event of 600 bytes costs.
//!
//! `cargo run --release --example codec_speed -p mesh-frame`

use std::{hint::black_box, time::Instant};

use bytes::Bytes;
use mesh_frame::{Limits, Record, parse_structured};

const ROUNDS: u32 = 200_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let padding = "Lorem ipsum, dolor 1234. ".repeat(14);
    let body = format!(
        r#"{{"specversion":"1.0","id":"5b1e-4f2c-9d0a","source":"/shop/orders","type":"order.created","time":"2026-01-01T00:00:00Z","datacontenttype":"application/json","partitionkey":"customer-42","priority":5,"data":{{"order":17,"text":"{padding}"}}}}"#
    );
    println!("event of {} bytes", body.len());
    let event = parse_structured(body.as_bytes(), &Limits::DEFAULT)?;
    let record = Record { event: event.clone(), accepted_at_ms: 1 };
    let mut stored = Vec::new();
    record.encode(&mut stored);
    let stored = Bytes::from(stored);
    measure("parse", || {
        black_box(parse_structured(black_box(body.as_bytes()), &Limits::DEFAULT).is_ok());
    });
    let mut buffer = Vec::new();
    measure("record encode", || {
        buffer.clear();
        black_box(&record).encode(&mut buffer);
    });
    measure("record decode", || {
        black_box(Record::decode(black_box(stored.clone())).is_ok());
    });
    measure("json", || {
        black_box(black_box(&event).json());
    });
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
fn measure(name: &str, mut operation: impl FnMut()) {
    let start = Instant::now();
    for _ in 0..ROUNDS {
        operation();
    }
    println!("{name}: {:?}", start.elapsed() / ROUNDS);
}
