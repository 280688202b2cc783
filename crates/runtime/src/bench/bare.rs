//! The yardstick: an axum server that reads a body and answers 202, and nothing else.

use std::net::SocketAddr;

use axum::{Router, body::Bytes, routing::post};
use clap::Args;
use http::StatusCode;

/// Where the bare endpoint listens.
#[derive(Debug, Args)]
pub(crate) struct BareServer {
    /// The port on loopback; 0 lets the system choose and prints it
    #[arg(long, default_value_t = 0)]
    port: u16,
}

async fn accept(body: Bytes) -> (StatusCode, &'static str) {
    drop(body);
    (StatusCode::ACCEPTED, r#"{"status":"accepted"}"#)
}

impl BareServer {
    #[expect(clippy::print_stdout, reason = "the suite reads the address")]
    pub(super) async fn serve(self) -> anyhow::Result<()> {
        let listener = tokio::net::TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], self.port))).await?;
        println!("listening on {}", listener.local_addr()?);
        let router = Router::new().route("/events/publish", post(accept));
        axum::serve(listener, router).await?;
        Ok(())
    }
}
