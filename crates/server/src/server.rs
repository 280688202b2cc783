//! The HTTP server: binds, accepts, lets requests be answered, and drains.
//!
//! It takes a bounded number of connections; more of them wait, and those give way that never said who they are. When the system gives
//! no more file handles it waits before it tries again. Told to stop, it accepts nothing more, lets every
//! connection finish what it is answering, and cuts what is left when its time is over.

use std::{
    io,
    net::{SocketAddr, TcpListener as BoundListener, ToSocketAddrs},
    sync::{Arc, atomic::Ordering},
    time::{Duration, UNIX_EPOCH},
};

use hyper::server::conn::http1;
use hyper_util::rt::TokioTimer;
use mesh_base::{Backoff, Chance, Clock, Counter, Gauge, Signals, Stop, Tasks};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};

use crate::{
    Answers, ApiError, Hosts,
    connection::{self, Guarded, Protocols},
    connections::Connections,
    head,
    http2::Http2Settings,
    socket::WatchedSocket,
    tls::Tls,
    watch::{Patience, Watch},
};

/// How often a new connection that finds no place looks for one that gives way.
const GIVE_WAY_EVERY: Duration = Duration::from_millis(50);
/// How much of a request without TLS is read before it is told.
const MOST_OF_A_HEAD: usize = 16 << 10;

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
    /// The names it answers to where it listens on loopback; `None`: to any.
    pub hosts: Option<Hosts>,
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
            hosts: None,
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
    pub(crate) foreign_hosts: Counter,
}

impl HttpServerSignals {
    /// Registers them; once a server.
    pub fn new(server: &'static str, signals: &Signals) -> Self {
        let (connections, refused, foreign_hosts) = match server {
            "admin" => ("admin_connections", "admin_accept_failures", "admin_foreign_hosts"),
            _ => ("http_connections", "http_accept_failures", "http_foreign_hosts"),
        };
        Self {
            connections: signals.gauge(connections, "Open connections"),
            refused: signals.counter(refused, "Connections the system would not hand over"),
            foreign_hosts: signals.counter(foreign_hosts, "Requests for a host that this server is not"),
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
            protocols: protocols(&settings, clock),
            tls: settings.tls.clone(),
            handshake: settings.patience.head,
            connections: Connections::new(signals.connections.clone()),
            answers: Guarded {
                hosts: settings.hosts.clone().filter(|_| address.ip().is_loopback()),
                foreign: signals.foreign_hosts.clone(),
                answers,
            },
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
    protocols: Protocols,
    tls: Option<Arc<Tls>>,
    /// How long a TLS handshake may take.
    handshake: Duration,
    connections: Arc<Connections>,
    answers: Guarded<A>,
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

fn protocols(settings: &HttpServerSettings, clock: Clock) -> Protocols {
    let mut http1 = http1::Builder::new();
    http1.timer(TokioTimer::new()).header_read_timeout(None::<Duration>).half_close(false);
    http1.max_headers(head::READ_FIELDS).max_buf_size(head::READ);
    let http2 = Http2Settings {
        ping_every: settings.patience.idle / 2,
        pong_within: settings.patience.write,
        write: settings.patience.write,
        clock,
    };
    Protocols { http1, http2 }
}

async fn accept<A: Answers>(
    listener: &TcpListener,
    settings: &HttpServerSettings,
    running: &Arc<Running<A>>,
    stop: &Stop,
) {
    let places = Arc::new(Semaphore::new(settings.max_connections.min(Semaphore::MAX_PERMITS)));
    // What those may have of them together that never said who they are.
    let of_strangers = (settings.max_connections / 4 * 3).max(1);
    let backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(1), 0.2);
    let mut failures = 0;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.wait() => return,
        };
        match accepted {
            Ok((stream, remote)) => {
                failures = 0;
                let strangers = running.connections.strangers();
                if strangers.load(Ordering::Acquire) >= of_strangers {
                    running.connections.give_way();
                }
                let place = tokio::select! {
                    place = place(&places, &running.connections) => place,
                    () = stop.wait() => return,
                };
                let watch = Watch::new(running.clock, settings.patience, strangers.clone());
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

/// Waits for a place among the connections. While there is none, those give way that never said who they are.
async fn place(places: &Arc<Semaphore>, connections: &Connections) -> OwnedSemaphorePermit {
    loop {
        let waiting = tokio::time::timeout(GIVE_WAY_EVERY, places.clone().acquire_owned());
        if let Ok(place) = waiting.await {
            return place.expect("the places are never closed");
        }
        connections.give_way();
    }
}

fn start<A: Answers>(
    running: &Arc<Running<A>>,
    stream: TcpStream,
    remote: SocketAddr,
    watch: Arc<Watch>,
    place: OwnedSemaphorePermit,
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
        match &served.tls {
            None => {
                let answers = served.answers.clone();
                connection::serve(socket, remote, None, watch, &served.protocols, answers).await;
            }
            Some(tls) => {
                // Apart from the task: a connection without TLS should not hold room for this.
                Box::pin(serve_with_tls(tls, socket, remote, watch, &served)).await;
            }
        }
    });
}

async fn serve_with_tls<A: Answers>(
    tls: &Tls,
    socket: WatchedSocket,
    remote: SocketAddr,
    watch: Arc<Watch>,
    served: &Running<A>,
) {
    let shaking = async {
        if socket.speaks_plain_http().await? {
            tell_of_tls(socket, served.clock).await?;
            return Ok(None);
        }
        tls.accept(socket).await.map(Some)
    };
    let shaken = tokio::select! {
        shaken = tokio::time::timeout(served.handshake, shaking) => shaken,
        () = watch.finishing() => return,
    };
    match shaken {
        Ok(Ok(Some((stream, certificate)))) => {
            let answers = served.answers.clone();
            connection::serve(stream, remote, certificate, watch, &served.protocols, answers).await;
        }
        Ok(Ok(None)) => tracing::debug!(%remote, "plain HTTP on a port with TLS"),
        Ok(Err(error)) => tracing::debug!(%remote, %error, "no TLS handshake"),
        Err(_elapsed) => tracing::debug!(%remote, "the TLS handshake took too long"),
    }
}

/// Answers a client that speaks HTTP without TLS to a port with TLS, so that it can read what is wrong. The head of the request
/// is read first: a connection that is closed with unread input is reset, and the answer lost.
async fn tell_of_tls(mut socket: WatchedSocket, clock: Clock) -> io::Result<()> {
    let mut head = Vec::with_capacity(1_024);
    while head.len() < MOST_OF_A_HEAD && !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if socket.read_buf(&mut head).await? == 0 {
            break;
        }
    }
    let error = ApiError::invalid("this port speaks TLS: use https");
    let body = error.json();
    let date = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_millis(clock.now().0));
    let answer = format!(
        "HTTP/1.1 400 Bad Request\r\nDate: {date}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len() + 1
    );
    socket.write_all(&[answer.as_bytes(), &body, b"\n"].concat()).await?;
    socket.shutdown().await
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
