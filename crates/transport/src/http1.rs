//! An HTTP/1.1 connection that its user polls.
//!
//! There is no task behind a connection: it makes progress while it is polled for a request or its
//! body, and is idle in the pool otherwise. So no task has to be woken for each step, and dropping
//! an unfinished request closes its connection: nothing is left over.

use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;

use crate::fault::{self, Fault};
use crate::payload::Payload;
use crate::stream::{Flow, HEAD_BYTES_MAX, Stream};

/// An open connection with at most one request on it.
#[derive(Debug)]
pub(crate) struct Http1 {
    sender: http1::SendRequest<Payload>,
    /// `None` when it has ended.
    connection: Option<http1::Connection<TokioIo<Stream>, Payload>>,
    flow: Arc<Flow>,
    peer: IpAddr,
}

/// A request without a response.
#[derive(Debug)]
pub(crate) struct Unanswered {
    /// The fault that ended the exchange.
    pub(crate) fault: Fault,
    /// Whether the connection was closed before the first byte of a response.
    pub(crate) died_silently: bool,
}

impl Unanswered {
    pub(crate) fn new(error: &hyper::Error, flow: &Flow, died_silently: bool) -> Self {
        match flow.fault() {
            Some(fault) => Unanswered { fault, died_silently: false },
            None => Unanswered { fault: fault::of_exchange(error), died_silently },
        }
    }
}

impl Http1 {
    pub(crate) async fn new(stream: Stream, peer: IpAddr) -> Result<Self, Fault> {
        let flow = stream.flow();
        // hyper reads up to 100 headers into an array on the stack; more are a protocol failure.
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(HEAD_BYTES_MAX)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| fault::of_exchange(&error))?;
        Ok(Http1 { sender, connection: Some(connection), flow, peer })
    }

    /// The peer's address.
    pub(crate) fn peer(&self) -> IpAddr {
        self.peer
    }

    pub(crate) fn flow(&self) -> &Arc<Flow> {
        &self.flow
    }

    /// Sends a request; resolves at the end of the response's headers.
    pub(crate) async fn send(
        &mut self,
        request: http::Request<Payload>,
    ) -> Result<http::Response<Incoming>, Unanswered> {
        self.flow.begin();
        let mut response = pin!(self.sender.send_request(request));
        let connection = &mut self.connection;
        let answered = poll_fn(|cx| {
            drive(connection, cx);
            // Only the connection can complete the response, and it is polled right here, so the
            // response's own waker is not needed.
            response.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        })
        .await;
        self.flow.head_done();
        answered.map_err(|error| {
            Unanswered::new(&error, &self.flow, fault::is_death(&error) && !self.flow.has_read())
        })
    }

    /// The next piece of a response's body.
    pub(crate) fn poll_body(
        &mut self,
        body: &mut Incoming,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let mut unwoken = Context::from_waker(Waker::noop());
        let frame = Pin::new(&mut *body).poll_frame(&mut unwoken);
        if frame.is_ready() {
            return frame;
        }
        drive(&mut self.connection, cx);
        Pin::new(body).poll_frame(&mut unwoken)
    }

    /// Whether another request may be sent: the connection is open, everything was sent and
    /// received, and the receiver has neither closed it nor sent unexpected data.
    pub(crate) fn is_reusable(&mut self) -> bool {
        drive(&mut self.connection, &mut Context::from_waker(Waker::noop()));
        self.connection.is_some() && self.sender.is_ready()
    }
}

/// Drives a connection as far as possible. Its errors are reported to the waiting request.
fn drive(
    connection: &mut Option<http1::Connection<TokioIo<Stream>, Payload>>,
    cx: &mut Context<'_>,
) {
    if let Some(open) = connection
        && Pin::new(open).poll(cx).is_ready()
    {
        *connection = None;
    }
}
