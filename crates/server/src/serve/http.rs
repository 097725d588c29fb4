//! The listener of the API: connections in, within limits, and an orderly end.
//!
//! HTTP/1.1 and HTTP/2 without TLS (a proxy in front adds it). A head that does not come in time
//! ends its connection; beyond the limit of connections, new ones wait in the system's queue.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

use crate::config::HttpSettings;

/// Streams of one HTTP/2 connection at the same time.
const HTTP2_STREAMS_MAX: u32 = 256;
/// After an error such as "too many open files", the next try comes so much later.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until told to stop, then until what is in flight is answered. Connections that idle are
/// closed at once.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    settings: HttpSettings,
    mut stop: watch::Receiver<bool>,
) {
    let server = Arc::new(builder(&settings));
    let connections = GracefulShutdown::new();
    let room = Arc::new(Semaphore::new(settings.connections_max));
    loop {
        let accepted = tokio::select! {
            accepted = next(&listener, &room) => accepted,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        let Some((stream, permit)) = accepted else { continue };
        // Small answers must not wait for more; where it cannot be set, they are merely slower.
        stream.set_nodelay(true).unwrap_or_default();
        let service = TowerToHyperService::new(router.clone());
        let connection = server.serve_connection(TokioIo::new(stream), service).into_owned();
        let connection = connections.watch(connection);
        drop(tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to the API ended early");
            }
            drop(permit);
        }));
    }
    drop(listener);
    connections.shutdown().await;
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
        .max_header_list_size(u32::try_from(settings.header_bytes_max).unwrap_or(u32::MAX))
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(10));
    server
}

/// The next connection, when there is room for one.
async fn next(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
) -> Option<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let permit = Arc::clone(room).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => Some((stream, permit)),
        Err(error) => {
            tracing::warn!(%error, "cannot take a connection");
            pause().await;
            None
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "nothing tells when files are free again")]
async fn pause() {
    tokio::time::sleep(ACCEPT_PAUSE).await;
}
