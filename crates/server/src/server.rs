//! The HTTP server: binds, accepts, lets requests be answered, and drains.
//!
//! It takes a bounded number of connections; more of them wait in the system's queue. When the system gives
//! no more file handles it waits before it tries again. Told to stop, it accepts nothing more, lets every
//! connection finish what it is answering, and cuts what is left when its time is over.

use std::{
    io,
    net::{SocketAddr, TcpListener as BoundListener, ToSocketAddrs},
    sync::Arc,
    time::Duration,
};

use hyper_util::{
    rt::{TokioExecutor, TokioTimer},
    server::conn::auto::Builder,
};
use mesh_base::{Backoff, Chance, Clock, Counter, Gauge, Signals, Stop, Tasks};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};

use crate::{
    Answers, connection,
    connections::Connections,
    socket::WatchedSocket,
    tls::Tls,
    watch::{Patience, Watch},
};

/// How a server listens.
#[derive(Clone, Debug)]
pub struct HttpServerSettings {
    /// What it is called in logs and metrics: `http`, `admin`.
    pub name: &'static str,
    /// A name or an address of this machine.
    pub host: String,
    /// The port; 0 lets the system choose.
    pub port: u16,
    /// Connections at once.
    pub max_connections: usize,
    /// How long a connection may keep it waiting.
    pub patience: Patience,
    /// How long connections may go on after the stop was signalled.
    pub drain_timeout: Duration,
    /// Its TLS; `None`: it speaks plainly.
    pub tls: Option<Arc<Tls>>,
    /// Where the jitter of its waits comes from.
    pub chance: Chance,
}

impl HttpServerSettings {
    /// A server on `host:port`: 10,000 connections; 30 s for a head, 75 s idle, 30 s for a client that does not
    /// read; 20 s to drain.
    pub fn new(name: &'static str, host: impl Into<String>, port: u16) -> Self {
        let patience = Patience {
            head: Duration::from_secs(30),
            idle: Duration::from_secs(75),
            write: Duration::from_secs(30),
        };
        Self {
            name,
            host: host.into(),
            port,
            max_connections: 10_000,
            patience,
            drain_timeout: Duration::from_secs(20),
            tls: None,
            chance: Chance::system(),
        }
    }
}

/// Metrics of the HTTP servers of a process, told apart by server.
#[derive(Clone, Debug)]
pub struct HttpServerSignals {
    connections: Gauge,
    refused: Counter,
}

impl HttpServerSignals {
    /// Registers them; once a server.
    pub fn new(server: &'static str, signals: &Signals) -> Self {
        let (connections, refused) = match server {
            "admin" => ("admin_connections", "admin_accept_failures"),
            _ => ("http_connections", "http_accept_failures"),
        };
        Self {
            connections: signals.gauge(connections, "Open connections"),
            refused: signals.counter(refused, "Connections the system would not hand over"),
        }
    }
}

/// A bound server that does not run yet.
#[derive(Debug)]
pub struct HttpServer {
    settings: HttpServerSettings,
    listener: BoundListener,
    address: SocketAddr,
}

impl HttpServer {
    /// Binds; nothing is accepted yet. Blocks while a host name is looked up.
    ///
    /// # Errors
    /// When no address of the host can be bound.
    pub fn bind(settings: HttpServerSettings) -> io::Result<Self> {
        let addresses = (settings.host.as_str(), settings.port).to_socket_addrs()?;
        let mut failure = io::Error::new(io::ErrorKind::AddrNotAvailable, "the host has no address");
        for address in addresses {
            match listen(address) {
                Ok(listener) => {
                    let address = listener.local_addr()?;
                    return Ok(Self { settings, listener, address });
                }
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Accepts and serves until `stop`, then drains. Returns when every connection has ended.
    ///
    /// # Errors
    /// When the bound socket cannot be used at all.
    pub async fn serve<A: Answers>(
        self,
        answers: A,
        clock: Clock,
        signals: HttpServerSignals,
        stop: Stop,
    ) -> io::Result<()> {
        let Self { settings, listener, address } = self;
        let listener = TcpListener::from_std(listener)?;
        let running = Arc::new(Running {
            protocol: protocol(&settings),
            tls: settings.tls.clone(),
            handshake: settings.patience.head,
            connections: Connections::new(signals.connections.clone()),
            answers,
            clock,
            signals,
            tasks: Tasks::new(),
        });
        tracing::info!(server = settings.name, %address, "listening");
        accept(&listener, &settings, &running, &stop).await;
        drop(listener);
        running.connections.end_all(false);
        let drained = running.tasks.shut_down(settings.drain_timeout).await;
        if !drained {
            let left = running.connections.count();
            tracing::warn!(
                server = settings.name,
                connections = left,
                "connections were cut: they did not end in time"
            );
            running.connections.end_all(true);
            running.tasks.shut_down(Duration::from_secs(1)).await;
        }
        tracing::info!(server = settings.name, %address, "closed");
        Ok(())
    }
}

/// What a running server shares with its connections.
struct Running<A> {
    protocol: Builder<TokioExecutor>,
    tls: Option<Arc<Tls>>,
    /// How long a TLS handshake may take.
    handshake: Duration,
    connections: Arc<Connections>,
    answers: A,
    clock: Clock,
    signals: HttpServerSignals,
    tasks: Tasks,
}

fn listen(address: SocketAddr) -> io::Result<BoundListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(1_024)?;
    Ok(socket.into())
}

fn protocol(settings: &HttpServerSettings) -> Builder<TokioExecutor> {
    let mut protocol = Builder::new(TokioExecutor::new());
    protocol.http1().timer(TokioTimer::new()).header_read_timeout(None::<Duration>).half_close(false);
    protocol
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(Some(settings.patience.idle / 2))
        .keep_alive_timeout(settings.patience.write)
        .max_concurrent_streams(256)
        .max_header_list_size(512 << 10);
    protocol
}

async fn accept<A: Answers>(
    listener: &TcpListener,
    settings: &HttpServerSettings,
    running: &Arc<Running<A>>,
    stop: &Stop,
) {
    let places = Arc::new(Semaphore::new(settings.max_connections.min(Semaphore::MAX_PERMITS)));
    let backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(1), 0.2);
    let mut failures = 0;
    loop {
        let place = tokio::select! {
            place = places.clone().acquire_owned() => place.expect("the places are never closed"),
            () = stop.wait() => return,
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.wait() => return,
        };
        match accepted {
            Ok((stream, remote)) => {
                failures = 0;
                let watch = Watch::new(running.clock, settings.patience);
                give_up_after(&stream, settings.patience.write);
                start(running, stream, remote, watch, place);
            }
            // The connection was gone before it was taken; the next one may be there.
            Err(error) if is_of_the_connection(&error) => {}
            Err(error) => {
                failures += 1;
                running.signals.refused.inc();
                if failures == 1 {
                    tracing::warn!(server = settings.name, %error, "cannot accept connections; trying again");
                }
                tokio::select! {
                    () = tokio::time::sleep(backoff.random_delay(failures, &settings.chance)) => {}
                    () = stop.wait() => return,
                }
            }
        }
    }
}

fn start<A: Answers>(
    running: &Arc<Running<A>>,
    stream: TcpStream,
    remote: SocketAddr,
    watch: Arc<Watch>,
    place: tokio::sync::OwnedSemaphorePermit,
) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%remote, %error, "connection ended before it was served");
        return;
    }
    let served = running.clone();
    let listed = running.connections.add(&watch);
    running.tasks.spawn("http connection", async move {
        let _listed = listed;
        let socket = WatchedSocket::new(stream, watch.clone(), place);
        let (protocol, answers) = (&served.protocol, served.answers.clone());
        match &served.tls {
            None => connection::serve(socket, remote, None, watch, protocol, answers).await,
            Some(tls) => {
                let shaken = tokio::select! {
                    shaken = tokio::time::timeout(served.handshake, tls.accept(socket)) => shaken,
                    () = watch.finishing() => return,
                };
                match shaken {
                    Ok(Ok((stream, certificate))) => {
                        connection::serve(stream, remote, certificate, watch, protocol, answers).await;
                    }
                    Ok(Err(error)) => tracing::debug!(%remote, %error, "no TLS handshake"),
                    Err(_elapsed) => tracing::debug!(%remote, "the TLS handshake took too long"),
                }
            }
        }
    });
}

/// A peer that vanished without a word is noticed when what was sent to it is not confirmed for that long: an
/// open stream would be given events until the system's own patience ends, a quarter of an hour later.
fn give_up_after(stream: &TcpStream, unconfirmed: Duration) {
    #[cfg(target_os = "linux")]
    if let Err(error) = SockRef::from(stream).set_tcp_user_timeout(Some(unconfirmed)) {
        tracing::debug!(%error, "the system does not bound unconfirmed data");
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (stream, unconfirmed);
}

fn is_of_the_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}
