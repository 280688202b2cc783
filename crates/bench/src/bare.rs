//! The yardstick: an axum server that reads a body and answers 202, and one that gives a body to every open stream
//! as a server-sent event, and nothing else.

use std::{convert::Infallible, net::SocketAddr, time::Duration};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    response::{
        IntoResponse,
        sse::{Event, KeepAlive, Sse},
    },
    routing::{get, post},
    serve::ListenerExt as _,
};
use clap::Args;
use http::StatusCode;
use tokio::sync::broadcast::{self, error::RecvError};

/// Where the bare endpoint listens.
#[derive(Debug, Args)]
pub(crate) struct BareServer {
    /// The port on loopback; 0 lets the system choose and prints it
    #[arg(long, default_value_t = 0)]
    port: u16,
}

const ACCEPTED: (StatusCode, &str) = (StatusCode::ACCEPTED, r#"{"status":"accepted"}"#);

async fn accept(body: Bytes) -> (StatusCode, &'static str) {
    drop(body);
    ACCEPTED
}

async fn give_to_all(
    State(all): State<broadcast::Sender<String>>,
    body: String,
) -> (StatusCode, &'static str) {
    // Without a stream it goes nowhere.
    drop(all.send(body));
    ACCEPTED
}

async fn stream(State(all): State<broadcast::Sender<String>>) -> impl IntoResponse {
    let events = futures_util::stream::unfold(all.subscribe(), async |mut events| {
        match events.recv().await {
            Ok(text) => Some((Ok::<_, Infallible>(Event::default().data(text)), events)),
            // One that lags has lost something, which the load counts.
            Err(RecvError::Lagged(_)) => Some((Ok(Event::default().comment("lost some")), events)),
            Err(RecvError::Closed) => None,
        }
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(Duration::from_secs(15)))
}

impl BareServer {
    #[expect(clippy::print_stdout, reason = "the suite reads the address")]
    pub(crate) async fn serve(self) -> anyhow::Result<()> {
        let listener = tokio::net::TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], self.port))).await?;
        println!("listening on {}", listener.local_addr()?);
        // Small events would wait for the confirmation of those before otherwise.
        let listener = listener.tap_io(|stream| {
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(%error, "the connection had ended");
            }
        });
        let (all, _) = broadcast::channel(1_024);
        let router = Router::new()
            .route("/events/publish", post(accept))
            .route("/publish", post(give_to_all))
            .route("/stream", get(stream))
            .with_state(all);
        axum::serve(listener, router).await?;
        Ok(())
    }
}
