//! The socket of a connection: counts the bytes read, and closes without losing a response.
//!
//! A socket that is closed while the client still sends is reset, and a reset makes the client
//! discard the response that it has not read yet. So the server first shuts down its sending side,
//! then reads and discards for a moment.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;

use super::connection::{Connection, Unread, now};

/// How much is discarded of data that is not a request: a flood is not read.
const STRAY_BYTES_MAX: usize = 128 * 1024;

/// How much unread data is discarded before the socket is closed, and for how long.
#[derive(Debug, Clone, Copy)]
pub(super) struct Linger {
    pub(super) bytes_max: usize,
    pub(super) time_max: Duration,
}

/// A socket that belongs to a connection.
#[derive(Debug)]
pub(super) struct Socket {
    stream: TcpStream,
    connection: Arc<Connection>,
    linger: Linger,
    closing: Closing,
}

#[derive(Debug)]
enum Closing {
    No,
    Lingering { until: Pin<Box<Sleep>>, left: usize },
    Done,
}

impl Socket {
    pub(super) fn new(stream: TcpStream, connection: Arc<Connection>, linger: Linger) -> Socket {
        Socket { stream, connection, linger, closing: Closing::No }
    }

    /// Reads and discards until the client has closed its side, or the time or byte limit is
    /// reached.
    fn poll_linger(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Closing::Lingering { until, left } = &mut self.closing else { return Poll::Ready(()) };
        let mut discarded = [0; 16 * 1024];
        loop {
            if until.as_mut().poll(context).is_ready() {
                return Poll::Ready(());
            }
            let mut buffer = ReadBuf::new(&mut discarded);
            let read = ready!(Pin::new(&mut self.stream).poll_read(context, &mut buffer));
            let count = buffer.filled().len();
            *left = left.saturating_sub(count);
            if read.is_err() || count == 0 || *left == 0 {
                return Poll::Ready(());
            }
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        Poll::Ready(self.connection.read(buffer.filled().len() - before))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if matches!(self.closing, Closing::No) {
            ready!(Pin::new(&mut self.stream).poll_shutdown(context))?;
            let bytes_max = match self.connection.unread() {
                Unread::Nothing => 0,
                Unread::NoRequest => self.linger.bytes_max.min(STRAY_BYTES_MAX),
                Unread::Body => self.linger.bytes_max,
            };
            self.closing = if bytes_max > 0 {
                let until = Box::pin(tokio::time::sleep_until(now() + self.linger.time_max));
                Closing::Lingering { until, left: bytes_max }
            } else {
                Closing::Done
            };
        }
        ready!(self.poll_linger(context));
        self.closing = Closing::Done;
        Poll::Ready(Ok(()))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
