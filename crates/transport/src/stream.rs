//! The byte stream of a connection, plain or encrypted, and the state of its data flow.
//!
//! It tracks three things: whether any byte of a response has come (otherwise the request may be
//! sent again on a new connection); how many bytes came before the end of headers, so that no
//! receiver can send endless data that is not a response; and the cause of an error, because hyper
//! and h2 keep only its text.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use postrider_domain::attempt::FailureClass;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::fault::{self, Fault};
use crate::pool::Counted;

/// The most bytes before the end of a response's headers, including informational responses.
pub(crate) const HEAD_BYTES_MAX: usize = 64 * 1024;

/// The most bytes on an HTTP/2 connection while none of its requests makes progress. More than its
/// windows and the head of a response together, so that only floods of other frames reach it.
const HTTP2_IDLE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The state of a connection's data flow; shared with the waiting request.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    /// Bytes received since the request began.
    read_bytes: AtomicUsize,
    /// Whether the head is complete, so that its limit no longer applies.
    head_done: AtomicBool,
    /// Whether the last write was blocked.
    write_blocked: AtomicBool,
    /// The cause of a failure, if hyper's error does not have it.
    fault: OnceLock<Fault>,
}

impl Flow {
    /// A request begins.
    pub(crate) fn begin(&self) {
        self.read_bytes.store(0, Relaxed);
        self.head_done.store(false, Relaxed);
    }

    /// The end of headers was received.
    pub(crate) fn head_done(&self) {
        self.head_done.store(true, Relaxed);
    }

    /// Whether any byte came since the request began.
    pub(crate) fn has_read(&self) -> bool {
        self.read_bytes.load(Relaxed) > 0
    }

    /// The cause of a failure, if hyper's error does not have it.
    pub(crate) fn fault(&self) -> Option<Fault> {
        self.fault.get().cloned()
    }

    /// Whether the receiver does not read what we send.
    pub(crate) fn is_write_blocked(&self) -> bool {
        self.write_blocked.load(Relaxed)
    }
}

/// A plain or an encrypted stream.
#[derive(Debug)]
enum Wire {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// An open connection. It counts as open until it is dropped.
#[derive(Debug)]
pub(crate) struct Stream {
    wire: Wire,
    flow: Arc<Flow>,
    /// The most bytes that may come before a response.
    head_bytes_max: usize,
    _counted: Counted,
}

impl Stream {
    pub(crate) fn plain(stream: TcpStream, counted: Counted) -> Self {
        let flow = Arc::default();
        let wire = Wire::Plain(stream);
        Stream { wire, flow, head_bytes_max: HEAD_BYTES_MAX, _counted: counted }
    }

    pub(crate) fn tls(stream: TlsStream<TcpStream>, counted: Counted) -> Self {
        let (wire, flow) = (Wire::Tls(Box::new(stream)), Arc::default());
        Stream { wire, flow, head_bytes_max: HEAD_BYTES_MAX, _counted: counted }
    }

    /// Whether HTTP/2 was negotiated.
    pub(crate) fn is_http2(&self) -> bool {
        match &self.wire {
            Wire::Plain(_) => false,
            Wire::Tls(stream) => stream.get_ref().1.alpn_protocol() == Some(b"h2"),
        }
    }

    /// Adapts the limits to HTTP/2, which has its own limit for heads and many concurrent requests.
    pub(crate) fn for_http2(self) -> Self {
        Stream { head_bytes_max: HTTP2_IDLE_BYTES_MAX, ..self }
    }

    pub(crate) fn flow(&self) -> Arc<Flow> {
        Arc::clone(&self.flow)
    }

    /// Records the cause; the returned error only ends the connection.
    fn broken(&self, fault: Fault) -> io::Error {
        // The first error is the cause of all others.
        drop(self.flow.fault.set(fault));
        io::ErrorKind::InvalidData.into()
    }

    fn note_write<T>(&self, poll: Poll<T>) -> Poll<T> {
        self.flow.write_blocked.store(poll.is_pending(), Relaxed);
        poll
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read_bytes = self.flow.read_bytes.load(Relaxed);
        if read_bytes > self.head_bytes_max && !self.flow.head_done.load(Relaxed) {
            let detail = format!("no answer in more than {} bytes", self.head_bytes_max);
            let fault = Fault::theirs(FailureClass::Protocol, detail);
            return Poll::Ready(Err(self.broken(fault)));
        }
        let filled = buf.filled().len();
        let poll = match &mut self.wire {
            Wire::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Wire::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        };
        let new = buf.filled().len() - filled;
        if new > 0 {
            self.flow.read_bytes.store(read_bytes.saturating_add(new), Relaxed);
        }
        poll.map_err(|error| match fault::of_tls(&error) {
            Some(fault) => self.broken(fault),
            None => error,
        })
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let poll = match &mut self.wire {
            Wire::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Wire::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        };
        self.note_write(poll)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let poll = match &mut self.wire {
            Wire::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Wire::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        };
        self.note_write(poll)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.wire {
            Wire::Plain(stream) => stream.is_write_vectored(),
            Wire::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let poll = match &mut self.wire {
            Wire::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Wire::Tls(stream) => Pin::new(stream).poll_flush(cx),
        };
        self.note_write(poll)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.wire {
            Wire::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Wire::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
