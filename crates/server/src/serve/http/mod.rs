//! An HTTP listener with limits and an orderly shutdown.
//!
//! HTTP/1.1 and HTTP/2, with or without TLS. **No client can keep others out**: connections are
//! limited per address and in total, each has deadlines, and idle ones are closed in favour of new
//! ones.

mod bodies;
mod connection;
mod connection_limits;
mod forwarded;
mod io;
mod refusal;
mod service;
mod tls;

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use postrider_transport::pause;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_rustls::TlsAcceptor;

use self::bodies::DiscardLimits;
use self::connection::{Deadlines, Overdue};
pub(crate) use self::connection_limits::ConnectionLimits;
use self::connection_limits::{AdmittedConnection, ConnectionTable};
use self::io::{Linger, Socket};
use self::service::Service;
pub(crate) use self::tls::Tls;
use crate::config::{Config, HttpSettings};

/// Concurrent requests on one HTTP/2 connection.
const HTTP2_STREAMS_MAX: u32 = 100;
/// Streams of one HTTP/2 connection that the client may reset before they are accepted. A client that
/// resets more (CVE-2023-44487) loses its connection.
const HTTP2_RESETS_MAX: usize = 20;
/// Streams of one HTTP/2 connection that may violate the protocol.
const HTTP2_FAULTS_MAX: usize = 100;
/// Flow-control windows: bytes that a client may send on one HTTP/2 stream before its body is read,
/// and on a whole connection.
const HTTP2_STREAM_WINDOW_BYTES: u32 = 64 * 1024;
const HTTP2_CONNECTION_WINDOW_BYTES: u32 = 256 * 1024;
/// The pause after an error such as "too many open files".
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Connections that are being refused at the same time.
const REFUSALS_MAX: usize = 64;
/// Bodies that are being discarded at the same time.
const DISCARDS_MAX: usize = 256;
/// An idle connection that is being closed still answers a request that is on its way, within this
/// time.
const GOODBYE: Duration = Duration::from_secs(1);

/// The options of a listener.
#[derive(Debug, Clone)]
pub(crate) struct ListenerOptions {
    pub(crate) http: HttpSettings,
    pub(crate) limits: ConnectionLimits,
    pub(crate) tls: Option<Tls>,
}

impl ListenerOptions {
    /// The API's options from the configuration, without TLS.
    pub(crate) fn of(config: &Config) -> ListenerOptions {
        let http = config.http.clone();
        let limits = ConnectionLimits {
            connections_max: http.connections_max,
            per_address_max: http.connections_per_address_max,
            trusted_proxies: config.server.trusted_proxies.clone(),
        };
        ListenerOptions { http, limits, tls: None }
    }
}

/// The state that all connections of a listener share.
struct Listener {
    router: Router,
    server: Builder<TokioExecutor>,
    deadlines: Deadlines,
    linger: Linger,
    discard: Arc<DiscardLimits>,
    table: Arc<ConnectionTable>,
    refusals: Arc<Semaphore>,
    acceptor: Option<TlsAcceptor>,
    stop: watch::Receiver<bool>,
}

/// Serves until told to stop, then until all requests in flight are answered. Idle connections are
/// closed at once.
pub(crate) async fn serve(
    socket: TcpListener,
    router: Router,
    options: ListenerOptions,
    mut stop: watch::Receiver<bool>,
) {
    let listener = match Listener::new(router, options, stop.clone()) {
        Ok(listener) => Arc::new(listener),
        Err(error) => {
            tracing::error!(%error, "cannot listen with TLS");
            return;
        }
    };
    // Closed when the last connection has ended.
    let (alive, mut ended) = mpsc::channel::<()>(1);
    loop {
        let (stream, peer) = tokio::select! {
            accepted = accept(&socket, &listener.table) => accepted,
            () = stopped(&mut stop) => break,
        };
        match listener.table.admit(peer.ip()) {
            Ok(admitted) => {
                let talk = Arc::clone(&listener).talk(stream, peer, admitted);
                let alive = alive.clone();
                drop(tokio::spawn(async move {
                    talk.await;
                    drop(alive);
                }));
            }
            Err(full) => listener.refuse(stream, peer, full),
        }
    }
    drop((socket, alive));
    // Nothing is ever sent: this resolves when the last connection has dropped its sender.
    ended.recv().await;
}

impl Listener {
    fn new(
        router: Router,
        options: ListenerOptions,
        stop: watch::Receiver<bool>,
    ) -> anyhow::Result<Listener> {
        let http = &options.http;
        let acceptor = options.tls.as_ref().map(Tls::acceptor).transpose()?;
        if let Some(tls) = options.tls.clone() {
            drop(tokio::spawn(tls.follow(stop.clone())));
        }
        Ok(Listener {
            router,
            server: builder(http),
            deadlines: Deadlines {
                first_head: http.header_read_timeout,
                idle: http.idle_timeout,
                write: http.write_timeout,
            },
            linger: Linger { bytes_max: http.discard_bytes_max, time_max: http.discard_timeout },
            discard: Arc::new(DiscardLimits {
                bytes_max: http.discard_bytes_max,
                time_max: http.discard_timeout,
                places: Semaphore::new(DISCARDS_MAX),
            }),
            table: ConnectionTable::new(options.limits),
            refusals: Arc::new(Semaphore::new(REFUSALS_MAX)),
            acceptor,
            stop,
        })
    }

    /// Refuses a connection over a limit with an answer. With TLS, or if too many are being
    /// refused, it is closed without an answer.
    fn refuse(&self, stream: TcpStream, peer: SocketAddr, full: connection_limits::LimitReached) {
        tracing::debug!(%peer, limit = full.as_str(), "connection refused: too many are open");
        let place = Arc::clone(&self.refusals).try_acquire_owned();
        if let (Ok(place), None) = (place, &self.acceptor) {
            drop(tokio::spawn(async move {
                refusal::answer(stream, full).await;
                drop(place);
            }));
        }
    }

    /// Serves one connection until it ends.
    async fn talk(
        self: Arc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
        admitted: AdmittedConnection,
    ) {
        // Small responses must not wait for more data. If this fails, they are only slower.
        stream.set_nodelay(true).unwrap_or_default();
        let connection = Arc::clone(&admitted.connection);
        let socket = Socket::new(stream, Arc::clone(&connection), self.linger);
        let service = Service {
            router: self.router.clone(),
            peer: peer.ip(),
            has_tls: self.acceptor.is_some(),
            table: Arc::clone(&self.table),
            connection: Arc::clone(&connection),
            discard: Arc::clone(&self.discard),
        };
        let Some(acceptor) = &self.acceptor else {
            return Box::pin(self.serve(socket, service)).await;
        };
        let mut stop = self.stop.clone();
        tokio::select! {
            secured = acceptor.accept(socket) => match secured {
                Ok(secured) => Box::pin(self.serve(secured, service)).await,
                Err(error) => tracing::debug!(%peer, %error, "a TLS handshake failed"),
            },
            why = connection.overdue(self.deadlines) => tracing::debug!(%peer, why = why.as_str(), "connection closed"),
            () = stopped(&mut stop) => {}
        }
    }

    async fn serve<S>(&self, socket: S, service: Service)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (peer, connection) = (service.peer, Arc::clone(&service.connection));
        let mut stop = self.stop.clone();
        let mut talk = pin!(self.server.serve_connection(TokioIo::new(socket), service));
        let mut is_stopping = false;
        loop {
            tokio::select! {
                ended = talk.as_mut() => {
                    if let Err(error) = ended {
                        tracing::debug!(%peer, %error, "a connection to the API ended early");
                    }
                    return;
                }
                why = connection.overdue(self.deadlines) => {
                    tracing::debug!(%peer, why = why.as_str(), "connection closed");
                    if why == Overdue::Idle {
                        talk.as_mut().graceful_shutdown();
                        drop(tokio::time::timeout(GOODBYE, talk).await);
                    }
                    return;
                }
                () = stopped(&mut stop), if !is_stopping => {
                    is_stopping = true;
                    talk.as_mut().graceful_shutdown();
                }
            }
        }
    }
}

/// Resolves when the listener is told to stop, or the sender is dropped.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    drop(stop.wait_for(|stop| *stop).await);
}

fn builder(settings: &HttpSettings) -> Builder<TokioExecutor> {
    let mut server = Builder::new(TokioExecutor::new());
    server
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(settings.header_read_timeout)
        .max_headers(settings.headers_max)
        .max_buf_size(settings.header_bytes_max);
    server
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(HTTP2_STREAMS_MAX)
        .max_pending_accept_reset_streams(HTTP2_RESETS_MAX)
        .max_local_error_reset_streams(HTTP2_FAULTS_MAX)
        .initial_stream_window_size(HTTP2_STREAM_WINDOW_BYTES)
        .initial_connection_window_size(HTTP2_CONNECTION_WINDOW_BYTES)
        .max_header_list_size(u32::try_from(settings.header_bytes_max).unwrap_or(u32::MAX))
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(10));
    server
}

/// The next connection.
async fn accept(socket: &TcpListener, table: &ConnectionTable) -> (TcpStream, SocketAddr) {
    loop {
        match socket.accept().await {
            Ok(accepted) => return accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                // Usually too many files are open: closing idle connections frees some.
                table.relieve();
                // Nothing tells when files are free again.
                pause(ACCEPT_PAUSE).await;
            }
        }
    }
}
