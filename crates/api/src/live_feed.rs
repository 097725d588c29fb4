//! The live feed of engine events: each is encoded once per tenant, however many streams are open.
//!
//! A tenant may have a hundred streams open, and hundreds of attempts may end in one moment. If
//! each stream encoded each event, one tenant could block the shared threads for a tenth of a
//! second. So one background task encodes each event once, and only if a stream of its tenant is
//! open. Events in quick succession are sent together, and the streams of a tenant share a limit of
//! bytes per interval: the more streams, the longer a burst takes.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use postrider_domain::ids::TenantId;
use postrider_engine::{EngineEvent, EngineHandle};
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::broadcast::{Receiver, Sender};
use tokio::time::Instant;

use crate::wire::live;

/// Events within this time are sent together; the first one after a pause is sent at once.
const GATHER: Duration = Duration::from_millis(100);
/// The most bytes that are sent in this time to all streams of a tenant together; each stream gets
/// at least one event.
const SENT_BYTES_MAX: usize = 1 << 20;
/// The size of a chunk; a single event may be longer.
const CHUNK_BYTES: usize = 16 << 10;
/// Bytes of a tenant's events that may wait to be sent, and of all tenants'.
const WAITING_BYTES_MAX: usize = 4 << 20;
const WAITING_BYTES_TOTAL: usize = 64 << 20;
/// Chunks of a tenant that are kept for slow readers.
const CHUNKS_MAX: usize = 64;
/// How many events are processed before due chunks are sent.
const TAKEN_MAX: usize = 1_000;

/// Encoded events of one tenant.
#[derive(Debug, Clone)]
pub(crate) struct Chunk {
    /// The number of events before these, including dropped ones. A stream that got fewer has
    /// missed some.
    pub(crate) before: u64,
    pub(crate) events: u64,
    pub(crate) bytes: Bytes,
}

/// A subscription to one tenant's events from now on.
#[derive(Debug)]
pub(crate) struct Following {
    pub(crate) chunks: Receiver<Chunk>,
    /// The number of events before the first chunk that it can get.
    pub(crate) before: u64,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct LiveFeed(Arc<Mutex<Followed>>);

/// The tenants with open streams. While there is one, the task runs.
type Followed = HashMap<TenantId, Channel>;

#[derive(Debug, Clone)]
struct Channel {
    sender: Sender<Chunk>,
    /// The number of events so far.
    events: Arc<AtomicU64>,
}

impl LiveFeed {
    fn followed(&self) -> MutexGuard<'_, Followed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a stream of a tenant's events.
    pub(crate) fn follow(&self, engine: &EngineHandle, tenant: &TenantId) -> Following {
        let mut followed = self.followed();
        let is_first = followed.is_empty();
        let channel = followed
            .entry(tenant.clone())
            .or_insert_with(|| Channel { sender: Sender::new(CHUNKS_MAX), events: Arc::default() });
        let chunks = channel.sender.subscribe();
        let before = channel.events.load(Ordering::Acquire);
        if is_first {
            // Subscribe before the stream is reported as open, so that it misses nothing from then
            // on.
            let events = engine.subscribe();
            let task = Task { feed: self.clone(), buffers: HashMap::new(), waiting_bytes: 0 };
            drop(engine.background().spawn(true, task.run(events)));
        }
        Following { chunks, before }
    }

    /// The channel of a tenant with open streams.
    fn channel(&self, tenant: &TenantId) -> Option<Channel> {
        self.followed().get(tenant).cloned()
    }

    /// Removes tenants without streams; returns whether none is left, which ends the task.
    fn forget_unfollowed(&self) -> bool {
        let mut followed = self.followed();
        followed.retain(|_, channel| channel.sender.receiver_count() > 0);
        followed.is_empty()
    }
}

/// The task that encodes events.
struct Task {
    feed: LiveFeed,
    buffers: HashMap<TenantId, Buffer>,
    /// The total size of all buffers.
    waiting_bytes: usize,
}

/// The events of a tenant that wait to be sent.
#[derive(Default)]
struct Buffer {
    events: VecDeque<String>,
    bytes: usize,
    sent_at: Option<Instant>,
}

impl Task {
    async fn run(mut self, mut events: Receiver<EngineEvent>) {
        loop {
            let round_ends = now() + GATHER;
            loop {
                match tokio::time::timeout_at(round_ends, events.recv()).await {
                    Ok(Ok(event)) => self.take(&event),
                    Ok(Err(RecvError::Lagged(unseen))) => self.tell_unseen(unseen),
                    // The engine has shut down: close all streams.
                    Ok(Err(RecvError::Closed)) => return self.feed.followed().clear(),
                    Err(_) => break,
                }
                self.drain(&mut events);
                self.send();
            }
            self.send();
            if self.feed.forget_unfollowed() {
                return;
            }
            let feed = &self.feed;
            self.buffers.retain(|tenant, _| feed.channel(tenant).is_some());
            self.waiting_bytes = self.buffers.values().map(|buffer| buffer.bytes).sum();
        }
    }

    fn drain(&mut self, events: &mut Receiver<EngineEvent>) {
        for _ in 0..TAKEN_MAX {
            match events.try_recv() {
                Ok(event) => self.take(&event),
                Err(TryRecvError::Lagged(unseen)) => self.tell_unseen(unseen),
                Err(TryRecvError::Empty | TryRecvError::Closed) => return,
            }
        }
    }

    fn take(&mut self, event: &EngineEvent) {
        let Some(tenant) = live::whose(event) else { return };
        let Some(channel) = self.feed.channel(tenant) else { return };
        let Some((name, data)) = live::told(event) else { return };
        let buffer = match self.buffers.get_mut(tenant) {
            Some(buffer) => buffer,
            None => self.buffers.entry(tenant.clone()).or_default(),
        };
        let event = encoded(name, &data);
        if buffer.bytes > WAITING_BYTES_MAX || self.waiting_bytes > WAITING_BYTES_TOTAL {
            self.waiting_bytes -= buffer.bytes;
            buffer.give_up(&channel, 0);
        }
        self.waiting_bytes += event.len();
        buffer.add(event);
    }

    /// Sends the buffers of tenants to which nothing was sent for a while.
    fn send(&mut self) {
        let now = now();
        let is_due = |sent: Instant| now.duration_since(sent) >= GATHER;
        for (tenant, buffer) in &mut self.buffers {
            if !buffer.events.is_empty()
                && buffer.sent_at.is_none_or(is_due)
                && let Some(channel) = self.feed.channel(tenant)
            {
                self.waiting_bytes -= buffer.bytes;
                buffer.send(&channel);
                self.waiting_bytes += buffer.bytes;
                buffer.sent_at = Some(now);
            }
        }
    }

    /// The engine's events came too fast for this task: all streams are told that they missed some.
    fn tell_unseen(&mut self, unseen: u64) {
        let channels: Vec<_> =
            self.feed.followed().iter().map(|(t, c)| (t.clone(), c.clone())).collect();
        for (tenant, channel) in channels {
            let buffer = self.buffers.entry(tenant).or_default();
            self.waiting_bytes -= buffer.bytes;
            buffer.give_up(&channel, unseen);
        }
    }
}

impl Buffer {
    fn add(&mut self, event: String) {
        self.bytes += event.len();
        self.events.push_back(event);
    }

    /// Sends as many events as a tenant with this many streams may get, at least one.
    fn send(&mut self, channel: &Channel) {
        let mut left = SENT_BYTES_MAX / channel.sender.receiver_count().max(1);
        let (mut bytes, mut events) = (String::new(), 0);
        while let Some(event) = self.events.pop_front() {
            self.bytes -= event.len();
            left = left.saturating_sub(event.len());
            bytes.push_str(&event);
            events += 1;
            if bytes.len() >= CHUNK_BYTES || left == 0 {
                channel.send(std::mem::take(&mut bytes), std::mem::take(&mut events));
            }
            if left == 0 {
                return;
            }
        }
        if events > 0 {
            channel.send(bytes, events);
        }
    }

    /// Drops the buffer, and tells the streams that they missed these events and `more`.
    fn give_up(&mut self, channel: &Channel, more: u64) {
        let dropped = u64::try_from(self.events.len()).unwrap_or(u64::MAX);
        *self = Buffer { sent_at: self.sent_at, ..Buffer::default() };
        channel.events.fetch_add(more.saturating_add(dropped), Ordering::AcqRel);
        // An empty chunk with the new number: whoever gets it sees that some are missing.
        channel.send(String::new(), 0);
    }
}

impl Channel {
    fn send(&self, bytes: String, events: u64) {
        let before = self.events.fetch_add(events, Ordering::AcqRel);
        // Sending fails if no stream is open; the next round removes the channel.
        drop(self.sender.send(Chunk { before, events, bytes: bytes.into() }));
    }
}

#[expect(clippy::disallowed_methods, reason = "how long events are gathered is real time")]
fn now() -> Instant {
    Instant::now()
}

/// A server-sent event.
pub(crate) fn encoded(name: &str, data: &serde_json::Value) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn channel() -> Channel {
        Channel { sender: Sender::new(CHUNKS_MAX), events: Arc::default() }
    }

    fn buffer(events: usize, bytes: usize) -> Buffer {
        let mut buffer = Buffer::default();
        (0..events).for_each(|_| buffer.add("x".repeat(bytes)));
        buffer
    }

    fn received(chunks: &mut Receiver<Chunk>) -> Vec<Chunk> {
        std::iter::from_fn(|| chunks.try_recv().ok()).collect()
    }

    #[test]
    fn streams_of_a_tenant_share_what_is_sent_at_a_time() {
        for (streams, expected) in [(1, SENT_BYTES_MAX), (4, SENT_BYTES_MAX / 4), (64, 16 << 10)] {
            let channel = channel();
            let mut open: Vec<_> = (0..streams).map(|_| channel.sender.subscribe()).collect();
            let mut buffer = buffer(2_000, 1_024);
            buffer.send(&channel);
            let bytes = received(&mut open[0]).iter().map(|chunk| chunk.bytes.len()).sum::<usize>();
            assert_eq!(bytes, expected, "{streams} streams");
            assert_eq!(buffer.bytes, 2_000 * 1_024 - expected, "the others wait");
        }
        // A single event is sent however long it is.
        let channel = channel();
        let mut stream = channel.sender.subscribe();
        buffer(2, 2 * SENT_BYTES_MAX).send(&channel);
        assert_eq!(received(&mut stream).len(), 1);
    }

    #[test]
    fn chunks_are_numbered_so_that_what_is_given_up_is_noticed() {
        let channel = channel();
        let mut stream = channel.sender.subscribe();
        buffer(3, 10).send(&channel);
        buffer(5, 10).give_up(&channel, 7);
        buffer(2, 10).send(&channel);
        let numbers = received(&mut stream);
        let numbers: Vec<_> = numbers.iter().map(|chunk| (chunk.before, chunk.events)).collect();
        assert_eq!(numbers, [(0, 3), (15, 0), (15, 2)]);
    }
}
