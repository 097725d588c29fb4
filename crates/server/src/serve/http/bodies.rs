//! Bodies of requests and responses. The unread rest of a request's body can be discarded after the
//! answer is known. A response is written in pieces, so that the write deadline applies to each.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use tokio::sync::Semaphore;

use super::connection::InFlight;
use super::connection_limits::ForwardedRequest;

/// The largest piece of a response.
const CHUNK_BYTES_MAX: usize = 64 * 1024;

/// If no byte of a refused body comes for this long, the client gets its answer.
const QUIET_MAX: Duration = Duration::from_secs(1);

/// How much of an unread body is discarded, so that the answer reaches the client.
#[derive(Debug)]
pub(super) struct DiscardLimits {
    pub(super) bytes_max: usize,
    pub(super) time_max: Duration,
    /// Permits for discarding bodies at the same time.
    pub(super) places: Semaphore,
}

/// A request's body, shared by the handler and by the listener, which discards what the handler did
/// not read.
#[derive(Clone)]
pub(super) struct RequestBody {
    body: Arc<Mutex<UnreadBody>>,
    in_flight: Arc<InFlight>,
}

struct UnreadBody {
    /// `None` once it is being discarded.
    body: Option<Incoming>,
    was_read: bool,
}

impl RequestBody {
    pub(super) fn new(body: Incoming, in_flight: Arc<InFlight>) -> RequestBody {
        let rest = UnreadBody { body: Some(body), was_read: false };
        RequestBody { body: Arc::new(Mutex::new(rest)), in_flight }
    }

    fn rest(&self) -> MutexGuard<'_, UnreadBody> {
        self.body.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads and discards the unread rest, within limits; returns whether all of it was read. A
    /// client that sent `Expect: 100-continue` and got no 100 does not send its body.
    pub(super) async fn discard(&self, limits: &DiscardLimits, expects: bool) -> bool {
        let (body, was_read) = {
            let mut rest = self.rest();
            (rest.body.take(), rest.was_read)
        };
        let Some(mut body) = body.filter(|body| !body.is_end_stream()) else { return true };
        let bytes_max = u64::try_from(limits.bytes_max).unwrap_or(u64::MAX);
        if (expects && !was_read) || body.size_hint().lower() > bytes_max {
            return false;
        }
        let Ok(_place) = limits.places.try_acquire() else { return false };
        let reading = async {
            let mut left = limits.bytes_max;
            loop {
                // A client that has stopped sending waits for its answer.
                let Ok(frame) = tokio::time::timeout(QUIET_MAX, body.frame()).await else {
                    return false;
                };
                let Some(frame) = frame else { return true };
                let Ok(frame) = frame else { return false };
                self.in_flight.connection().claim();
                let Some(less) = left.checked_sub(frame.data_ref().map_or(0, Bytes::len)) else {
                    return false;
                };
                left = less;
            }
        };
        tokio::time::timeout(limits.time_max, reading).await.unwrap_or(false)
    }
}

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let mut rest = self.rest();
        rest.was_read = true;
        let Some(body) = rest.body.as_mut() else {
            let gone = io::Error::other("the request was answered before its body was read");
            return Poll::Ready(Some(Err(axum::Error::new(gone))));
        };
        let frame = ready!(Pin::new(body).poll_frame(context));
        self.in_flight.connection().claim();
        Poll::Ready(frame.map(|frame| frame.map_err(axum::Error::new)))
    }

    fn is_end_stream(&self) -> bool {
        self.rest().body.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.rest().body.as_ref().map(HttpBody::size_hint).unwrap_or_default()
    }
}

/// A response's body, in pieces of bounded size.
pub(super) struct ResponseBody {
    body: Body,
    /// The rest of the handler's current piece.
    rest: Bytes,
    in_flight: Arc<InFlight>,
    _place: Option<ForwardedRequest>,
}

impl ResponseBody {
    pub(super) fn new(
        body: Body,
        in_flight: Arc<InFlight>,
        place: Option<ForwardedRequest>,
    ) -> ResponseBody {
        in_flight.offer();
        ResponseBody { body, rest: Bytes::new(), in_flight, _place: place }
    }

    fn next_chunk(&mut self) -> Frame<Bytes> {
        let chunk = self.rest.split_to(self.rest.len().min(CHUNK_BYTES_MAX));
        self.in_flight.chunk_offered();
        Frame::data(Bytes::from_owner(Chunk { chunk, in_flight: Arc::clone(&self.in_flight) }))
    }
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if !self.rest.is_empty() {
            return Poll::Ready(Some(Ok(self.next_chunk())));
        }
        self.in_flight.wait();
        match ready!(Pin::new(&mut self.body).poll_frame(context)) {
            Some(Ok(frame)) => Poll::Ready(Some(Ok(match frame.into_data() {
                Ok(data) => {
                    self.rest = data;
                    self.next_chunk()
                }
                Err(trailers) => trailers,
            }))),
            other => Poll::Ready(other),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = u64::try_from(self.rest.len()).unwrap_or(u64::MAX);
        let of_body = self.body.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(of_body.lower().saturating_add(rest));
        if let Some(upper) = of_body.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        // All remaining pieces have been written to the connection.
        self.in_flight.wait();
    }
}

/// A piece of a response, until it is written.
struct Chunk {
    chunk: Bytes,
    in_flight: Arc<InFlight>,
}

impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        &self.chunk
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        self.in_flight.chunk_written();
    }
}
