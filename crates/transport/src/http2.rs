//! An HTTP/2 connection that many requests share; a task of its own drives it.
//!
//! hyper delays requests while the receiver permits no more streams. The connection is retired (it
//! takes no new requests and ends with its last one) when the receiver sends GOAWAY, when it
//! breaks, and when a request on it timed out: it may be dead although it looks open.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::time::Instant;

use crate::clock::instant_now;
use crate::fault::{self, Fault};
use crate::http1::Unanswered;
use crate::payload::Payload;
use crate::stream::{Flow, Stream};

/// The largest head of a response.
const HEADER_LIST_BYTES_MAX: u32 = 64 * 1024;
/// Flow-control windows: what a receiver may send of one body, and of all bodies, before it is
/// read.
const STREAM_WINDOW_BYTES: u32 = 64 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;

/// An open connection that may carry many requests.
#[derive(Debug)]
pub(crate) struct Http2 {
    sender: http2::SendRequest<Payload>,
    peer: IpAddr,
    flow: Arc<Flow>,
    retired: AtomicBool,
    streams: AtomicUsize,
    idle_since: Mutex<Instant>,
}

/// A request's use of a connection; it is counted until it is dropped.
#[derive(Debug)]
pub(crate) struct Lease(Arc<Http2>);

impl Http2 {
    pub(crate) async fn new(stream: Stream, peer: IpAddr) -> Result<Arc<Self>, Fault> {
        let flow = stream.flow();
        let io = TokioIo::new(stream.for_http2());
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .max_header_list_size(HEADER_LIST_BYTES_MAX)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            // Until the receiver has said how many streams it permits, use one.
            .initial_max_send_streams(1)
            .handshake(io)
            .await
            .map_err(|error| fault::of_exchange(&error))?;
        // It ends when the last sender is dropped and the last stream is done, or when it breaks;
        // each request on it gets the error.
        tokio::spawn(async move { drop(connection.await) });
        Ok(Arc::new(Http2 {
            sender,
            peer,
            flow,
            retired: AtomicBool::new(false),
            streams: AtomicUsize::new(0),
            idle_since: Mutex::new(instant_now()),
        }))
    }

    /// The peer's address.
    pub(crate) fn peer(&self) -> IpAddr {
        self.peer
    }

    /// Whether the connection accepts new requests.
    pub(crate) fn is_live(&self) -> bool {
        !self.retired.load(Relaxed) && self.sender.is_ready()
    }

    /// From now on it accepts no new requests.
    pub(crate) fn retire(&self) {
        self.retired.store(true, Relaxed);
    }

    /// Since when it has carried no request; `None` while it carries one.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        let idle = self.streams.load(Relaxed) == 0;
        idle.then(|| *self.idle_since.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn lease(self: &Arc<Self>) -> Lease {
        self.streams.fetch_add(1, Relaxed);
        Lease(Arc::clone(self))
    }
}

impl Lease {
    /// Sends a request; resolves at the end of the response's headers.
    pub(crate) async fn send(
        &self,
        request: http::Request<Payload>,
    ) -> Result<http::Response<Incoming>, Unanswered> {
        let mut sender = self.0.sender.clone();
        let answered = sender.send_request(request).await;
        self.0.flow.begin();
        answered.map_err(|error| {
            let died = fault::is_death(&error);
            if died {
                self.0.retire();
            }
            Unanswered::new(&error, &self.0.flow, died)
        })
    }

    /// The next piece of a response's body.
    pub(crate) fn poll_body(
        &mut self,
        body: &mut Incoming,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = Pin::new(body).poll_frame(cx);
        if frame.is_ready() {
            self.0.flow.begin();
        }
        frame
    }

    pub(crate) fn connection(&self) -> &Arc<Http2> {
        &self.0
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        *self.0.idle_since.lock().unwrap_or_else(PoisonError::into_inner) = instant_now();
        self.0.streams.fetch_sub(1, Relaxed);
    }
}
