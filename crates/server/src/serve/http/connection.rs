//! The state of one connection, and its deadlines.
//!
//! Every connection has three deadlines, with HTTP/1.1 and HTTP/2 alike: for its first complete
//! request, for being idle, and for reading the next piece of a response. **A client can hold a
//! connection open only by using it.**

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// Bytes that a client may send outside of requests: HTTP/2 pings, settings, window updates. More
/// than the flow-control window of a connection, so that an unread body is never taken for a flood.
const UNCLAIMED_BYTES_MAX: u64 = 1024 * 1024;

/// The deadlines of a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deadlines {
    /// From the connection to the first complete request head, including TLS and protocol
    /// detection.
    pub(super) first_head: Duration,
    /// Between two requests.
    pub(super) idle: Duration,
    /// For the client to read the next piece of a response.
    pub(super) write: Duration,
}

/// Why the server closes a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Overdue {
    /// No complete request came in time.
    NoRequest,
    /// No request for a long time.
    Idle,
    /// The client does not read its answer.
    Stalled,
    /// The connection is closed in favour of others.
    Evicted,
}

impl Overdue {
    /// The word for the log.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Overdue::NoRequest => "no_request",
            Overdue::Idle => "idle",
            Overdue::Stalled => "stalled",
            Overdue::Evicted => "evicted",
        }
    }
}

/// Bytes that a client sent and nobody read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unread {
    /// Everything was read.
    Nothing,
    /// Not a request: a head that is too long, or HTTP/2 frames.
    NoRequest,
    /// The rest of a body.
    Body,
}

/// One connection.
#[derive(Debug)]
pub(super) struct Connection {
    /// When the listener started: times of connections are relative to it.
    epoch: Instant,
    in_flight: AtomicUsize,
    has_asked: AtomicBool,
    idle_since_ms: AtomicU64,
    unclaimed_bytes: AtomicU64,
    has_unread_body: AtomicBool,
    is_evicted: AtomicBool,
    woken: Notify,
    answers: Mutex<Vec<Weak<InFlight>>>,
}

#[expect(clippy::disallowed_methods, reason = "deadlines of sockets, not of deliveries")]
pub(super) fn now() -> Instant {
    Instant::now()
}

impl Connection {
    pub(super) fn new(epoch: Instant) -> Arc<Connection> {
        let connection = Connection {
            epoch,
            in_flight: AtomicUsize::new(0),
            has_asked: AtomicBool::new(false),
            idle_since_ms: AtomicU64::new(0),
            unclaimed_bytes: AtomicU64::new(0),
            has_unread_body: AtomicBool::new(false),
            is_evicted: AtomicBool::new(false),
            woken: Notify::new(),
            answers: Mutex::default(),
        };
        connection.idle_since_ms.store(connection.ms(), Relaxed);
        Arc::new(connection)
    }

    fn ms(&self) -> u64 {
        u64::try_from(now().duration_since(self.epoch).as_millis()).unwrap_or(u64::MAX)
    }

    /// A complete request head has arrived.
    pub(super) fn begin(self: &Arc<Self>) -> Arc<InFlight> {
        self.in_flight.fetch_add(1, Relaxed);
        self.has_asked.store(true, Relaxed);
        self.claim();
        let begun = Arc::new(InFlight {
            connection: Arc::clone(self),
            progress_ms: AtomicU64::new(self.ms()),
            chunks: AtomicUsize::new(0),
            is_waiting: AtomicBool::new(true),
        });
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.retain(|answer| answer.strong_count() > 0);
        answers.push(Arc::downgrade(&begun));
        begun
    }

    /// The bytes read so far belong to a request.
    pub(super) fn claim(&self) {
        self.unclaimed_bytes.store(0, Relaxed);
    }

    /// Counts bytes that were read. Fails if a client floods.
    pub(super) fn read(&self, bytes: usize) -> io::Result<()> {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let unclaimed = self.unclaimed_bytes.fetch_add(bytes, Relaxed).saturating_add(bytes);
        if unclaimed > UNCLAIMED_BYTES_MAX {
            return Err(io::Error::other("the client sends frames without end and no request"));
        }
        Ok(())
    }

    /// A request was answered although its body was not read completely.
    pub(super) fn leave_body_unread(&self) {
        self.has_unread_body.store(true, Relaxed);
    }

    /// What the client may still be sending. If the socket were closed now, the connection would be
    /// reset, and the client would lose the response.
    pub(super) fn unread(&self) -> Unread {
        if self.has_unread_body.load(Relaxed) {
            Unread::Body
        } else if self.unclaimed_bytes.load(Relaxed) > 0 {
            Unread::NoRequest
        } else {
            Unread::Nothing
        }
    }

    /// The order in which connections are evicted, smallest first: those without any request, then
    /// those idle for longest. `None` while a request is in flight.
    pub(super) fn expendable(&self) -> Option<(bool, u64)> {
        let is_idle = self.in_flight.load(Relaxed) == 0 && !self.is_evicted.load(Relaxed);
        is_idle.then(|| (self.has_asked.load(Relaxed), self.idle_since_ms.load(Relaxed)))
    }

    /// Closes the connection in favour of others.
    pub(super) fn evict(&self) {
        self.is_evicted.store(true, Relaxed);
        self.woken.notify_one();
    }

    /// Resolves when a deadline of the connection has passed.
    pub(super) async fn overdue(&self, deadlines: Deadlines) -> Overdue {
        loop {
            match self.judge(self.ms(), deadlines) {
                Ok(look_again) => {
                    // Woken or timed out: check the deadlines again.
                    drop(tokio::time::timeout_at(look_again, self.woken.notified()).await);
                }
                Err(why) => return why,
            }
        }
    }

    /// Whether a deadline has passed, or when to check again.
    fn judge(&self, now: u64, deadlines: Deadlines) -> Result<Instant, Overdue> {
        if self.is_evicted.load(Relaxed) {
            return Err(Overdue::Evicted);
        }
        // The start and the end of a request do not wake this, so it checks often enough for all
        // three deadlines.
        let shortest = deadlines.first_head.min(deadlines.idle).min(deadlines.write);
        let look_again = now.saturating_add(as_ms(shortest));
        if self.in_flight.load(Relaxed) == 0 {
            let (limit, why) = if self.has_asked.load(Relaxed) {
                (deadlines.idle, Overdue::Idle)
            } else {
                (deadlines.first_head, Overdue::NoRequest)
            };
            let at = self.idle_since_ms.load(Relaxed).saturating_add(as_ms(limit));
            return if now >= at { Err(why) } else { Ok(self.instant(at.min(look_again))) };
        }
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let stalls =
            answers.iter().filter_map(Weak::upgrade).filter_map(|it| it.stalled_since_ms());
        let since = stalls.min().unwrap_or(now);
        let at = since.saturating_add(as_ms(deadlines.write));
        if now >= at { Err(Overdue::Stalled) } else { Ok(self.instant(at.min(look_again))) }
    }

    fn instant(&self, ms: u64) -> Instant {
        self.epoch + Duration::from_millis(ms)
    }
}

fn as_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).max(1)
}

/// A request, from its head until the last byte of its response is written.
#[derive(Debug)]
pub(super) struct InFlight {
    connection: Arc<Connection>,
    progress_ms: AtomicU64,
    /// Pieces of the response that are not written yet.
    chunks: AtomicUsize,
    /// Whether the client waits for the server, and not the server for the client.
    is_waiting: AtomicBool,
}

impl InFlight {
    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// The handler is computing the next piece of the response: the write deadline does not run.
    pub(super) fn wait(&self) {
        self.is_waiting.store(true, Relaxed);
        self.connection.claim();
    }

    /// The next piece of the response is ready: the write deadline runs.
    pub(super) fn offer(&self) {
        self.is_waiting.store(false, Relaxed);
        self.progress();
    }

    pub(super) fn chunk_offered(&self) {
        self.chunks.fetch_add(1, Relaxed);
        self.offer();
    }

    pub(super) fn chunk_written(&self) {
        self.chunks.fetch_sub(1, Relaxed);
        self.progress();
    }

    fn progress(&self) {
        self.progress_ms.store(self.connection.ms(), Relaxed);
        self.connection.claim();
    }

    /// Since when the client has not read the available data.
    fn stalled_since_ms(&self) -> Option<u64> {
        let owes = self.chunks.load(Relaxed) > 0 || !self.is_waiting.load(Relaxed);
        owes.then(|| self.progress_ms.load(Relaxed))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let connection = &self.connection;
        connection.idle_since_ms.store(connection.ms(), Relaxed);
        connection.in_flight.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINES: Deadlines = Deadlines {
        first_head: Duration::from_secs(10),
        idle: Duration::from_secs(60),
        write: Duration::from_secs(30),
    };

    /// Whether a connection is overdue after this many seconds in which nothing happens.
    fn after(connection: &Connection, seconds: u64) -> Option<Overdue> {
        connection.judge(connection.ms() + 1000 * seconds, DEADLINES).err()
    }

    #[test]
    fn connection_has_a_deadline_for_each_thing_it_does() {
        let connection = Connection::new(now());
        assert_eq!(after(&connection, 9), None);
        assert_eq!(after(&connection, 10), Some(Overdue::NoRequest));
        let request = connection.begin();
        assert_eq!(after(&connection, 3600), None, "execution has a deadline of its own");
        request.chunk_offered();
        assert_eq!(after(&connection, 29), None);
        assert_eq!(after(&connection, 31), Some(Overdue::Stalled));
        request.chunk_written();
        request.wait();
        assert_eq!(after(&connection, 3600), None, "a stream with nothing to say is not stalled");
        drop(request);
        assert_eq!(after(&connection, 59), None);
        assert_eq!(after(&connection, 61), Some(Overdue::Idle));
        connection.evict();
        assert_eq!(after(&connection, 0), Some(Overdue::Evicted));
    }

    #[test]
    fn progress_of_one_answer_does_not_excuse_another() {
        let connection = Connection::new(now());
        let (reads, stalls) = (connection.begin(), connection.begin());
        stalls.chunk_offered();
        stalls.progress_ms.store(0, Relaxed);
        reads.chunk_offered();
        let at = 1000 * DEADLINES.write.as_secs();
        reads.progress_ms.store(at, Relaxed);
        assert_eq!(connection.judge(at, DEADLINES).err(), Some(Overdue::Stalled));
        drop(stalls);
        assert_eq!(connection.judge(at, DEADLINES).err(), None);
    }

    #[test]
    fn frames_that_belong_to_no_request_are_limited() {
        let connection = Connection::new(now());
        for _ in 0..1024 {
            connection.read(1024).unwrap();
        }
        assert!(connection.read(1).is_err());
        drop(connection.begin());
        connection.read(1024).unwrap();
        assert_eq!(connection.unread(), Unread::NoRequest);
        connection.leave_body_unread();
        assert_eq!(connection.unread(), Unread::Body);
    }
}
