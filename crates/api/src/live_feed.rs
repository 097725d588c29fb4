//! The live feed of engine events: each is encoded once per tenant, however many streams are open.
//!
//! A tenant may have a hundred streams open, and a receiver that hangs ends hundreds of attempts in
//! one moment. If each stream encoded each event, a tenant could keep the threads of everybody busy
//! for a tenth of a second. So one background task encodes an event once, and only if a stream of
//! its tenant is open; it encodes the event a second time, without the bodies of responses, if a
//! stream wants it without them. A stream that wants only some events picks them out of the encoded
//! chunk. Events in quick succession are sent together, and the streams of a tenant share one limit
//! of bytes: the more streams there are, the longer a burst takes to be sent.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use postrider_domain::ids::{DestinationId, TenantId};
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
    /// For each event, the offset in `bytes` at which it ends, and what it is about.
    pub(crate) marks: Arc<[(usize, Mark)]>,
}

/// What an event is about. Streams that want only some events select by this.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Mark {
    pub(crate) destination: Option<DestinationId>,
    /// Whether the event is an attempt that delivered; `None` if the event is not an attempt.
    pub(crate) is_delivered: Option<bool>,
}

/// Whether the events of a stream contain the bodies of responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bodies {
    Shown,
    LeftOut,
}

impl Bodies {
    const BOTH: [Bodies; 2] = [Bodies::Shown, Bodies::LeftOut];
}

/// A subscription to one tenant's events from now on.
#[derive(Debug)]
pub(crate) struct Following {
    pub(crate) chunks: Receiver<Chunk>,
    /// The number of events before the first chunk that this stream can get.
    pub(crate) before: u64,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct LiveFeed(Arc<Mutex<Followed>>);

/// The channels of tenants with an open stream. The task runs while there is one.
type Followed = HashMap<TenantId, Channels>;

/// The channels of a tenant: one with and one without the bodies of responses.
#[derive(Debug, Clone)]
struct Channels {
    shown: Channel,
    left_out: Channel,
}

impl Channels {
    fn new() -> Self {
        Channels { shown: Channel::new(), left_out: Channel::new() }
    }

    const fn of(&self, bodies: Bodies) -> &Channel {
        match bodies {
            Bodies::Shown => &self.shown,
            Bodies::LeftOut => &self.left_out,
        }
    }

    /// How many streams the tenant has open.
    fn streams(&self) -> usize {
        self.shown.sender.receiver_count() + self.left_out.sender.receiver_count()
    }
}

#[derive(Debug, Clone)]
struct Channel {
    sender: Sender<Chunk>,
    /// The number of events sent to this channel so far, including dropped ones.
    events: Arc<AtomicU64>,
}

impl LiveFeed {
    fn followed(&self) -> MutexGuard<'_, Followed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a stream of a tenant's events.
    pub(crate) fn follow(
        &self,
        engine: &EngineHandle,
        tenant: &TenantId,
        bodies: Bodies,
    ) -> Following {
        let mut followed = self.followed();
        let is_first = followed.is_empty();
        let channels = followed.entry(tenant.clone()).or_insert_with(Channels::new);
        let channel = channels.of(bodies);
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

    /// The channels of a tenant; `None` if it has no open stream.
    fn channels(&self, tenant: &TenantId) -> Option<Channels> {
        self.followed().get(tenant).cloned()
    }

    /// Removes tenants without streams; returns whether none is left, which ends the task.
    fn forget_unfollowed(&self) -> bool {
        let mut followed = self.followed();
        followed.retain(|_, channels| channels.streams() > 0);
        followed.is_empty()
    }
}

/// The task that encodes events.
struct Task {
    feed: LiveFeed,
    buffers: HashMap<TenantId, Buffers>,
    /// The bytes in all buffers together.
    waiting_bytes: usize,
}

/// The events of a tenant that wait to be sent.
#[derive(Default)]
struct Buffers {
    shown: Buffer,
    left_out: Buffer,
}

impl Buffers {
    const fn of(&mut self, bodies: Bodies) -> &mut Buffer {
        match bodies {
            Bodies::Shown => &mut self.shown,
            Bodies::LeftOut => &mut self.left_out,
        }
    }

    const fn bytes(&self) -> usize {
        self.shown.bytes + self.left_out.bytes
    }

    fn give_up(&mut self, channels: &Channels, more: u64) {
        self.shown.give_up(&channels.shown, more);
        self.left_out.give_up(&channels.left_out, more);
    }
}

/// Events that wait to be sent to one channel.
#[derive(Default)]
struct Buffer {
    events: VecDeque<(String, Mark)>,
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
            self.buffers.retain(|tenant, _| feed.channels(tenant).is_some());
            self.waiting_bytes = self.buffers.values().map(Buffers::bytes).sum();
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
        let Some(channels) = self.feed.channels(tenant) else { return };
        let buffers = match self.buffers.get_mut(tenant) {
            Some(buffers) => buffers,
            None => self.buffers.entry(tenant.clone()).or_default(),
        };
        for bodies in Bodies::BOTH {
            if channels.of(bodies).sender.receiver_count() == 0 {
                continue;
            }
            let Some((name, data)) = live::told(event, bodies) else { return };
            let text = encoded(name, &data);
            if buffers.bytes() > WAITING_BYTES_MAX || self.waiting_bytes > WAITING_BYTES_TOTAL {
                self.waiting_bytes -= buffers.bytes();
                buffers.give_up(&channels, 0);
            }
            self.waiting_bytes += text.len();
            buffers.of(bodies).add(text, live::mark(event));
        }
    }

    /// Sends the buffers of tenants to which nothing was sent for a while.
    fn send(&mut self) {
        let now = now();
        let is_due = |sent: Instant| now.duration_since(sent) >= GATHER;
        for (tenant, buffers) in &mut self.buffers {
            let mut channels = None;
            for bodies in Bodies::BOTH {
                let buffer = buffers.of(bodies);
                if buffer.events.is_empty() || !buffer.sent_at.is_none_or(is_due) {
                    continue;
                }
                let found = channels.get_or_insert_with(|| self.feed.channels(tenant));
                let Some(channels) = found else { break };
                self.waiting_bytes -= buffer.bytes;
                buffer.send(channels.of(bodies), channels.streams());
                self.waiting_bytes += buffer.bytes;
                buffer.sent_at = Some(now);
            }
        }
    }

    /// The engine's events came too fast for this task: all streams are told that they missed some.
    fn tell_unseen(&mut self, unseen: u64) {
        let channels: Vec<_> =
            self.feed.followed().iter().map(|(t, c)| (t.clone(), c.clone())).collect();
        for (tenant, channels) in channels {
            let buffers = self.buffers.entry(tenant).or_default();
            self.waiting_bytes -= buffers.bytes();
            buffers.give_up(&channels, unseen);
        }
    }
}

impl Buffer {
    fn add(&mut self, event: String, mark: Mark) {
        self.bytes += event.len();
        self.events.push_back((event, mark));
    }

    /// Sends the events that are due, at least one. The limit of bytes is shared by all `streams`
    /// of the tenant.
    fn send(&mut self, channel: &Channel, streams: usize) {
        let mut left = SENT_BYTES_MAX / streams.max(1);
        let (mut bytes, mut marks) = (String::new(), Vec::new());
        while let Some((event, mark)) = self.events.pop_front() {
            self.bytes -= event.len();
            left = left.saturating_sub(event.len());
            bytes.push_str(&event);
            marks.push((bytes.len(), mark));
            if bytes.len() >= CHUNK_BYTES || left == 0 {
                channel.send(std::mem::take(&mut bytes), std::mem::take(&mut marks));
            }
            if left == 0 {
                return;
            }
        }
        if !marks.is_empty() {
            channel.send(bytes, marks);
        }
    }

    /// Drops the buffered events. Streams are told that they missed these and `more` others.
    fn give_up(&mut self, channel: &Channel, more: u64) {
        let dropped = u64::try_from(self.events.len()).unwrap_or(u64::MAX);
        *self = Buffer { sent_at: self.sent_at, ..Buffer::default() };
        channel.events.fetch_add(more.saturating_add(dropped), Ordering::AcqRel);
        // An empty chunk: its count of earlier events shows the streams that they missed some.
        channel.send(String::new(), Vec::new());
    }
}

impl Channel {
    fn new() -> Self {
        Channel { sender: Sender::new(CHUNKS_MAX), events: Arc::default() }
    }

    fn send(&self, bytes: String, marks: Vec<(usize, Mark)>) {
        let events = u64::try_from(marks.len()).unwrap_or(u64::MAX);
        let before = self.events.fetch_add(events, Ordering::AcqRel);
        let (bytes, marks) = (bytes.into(), marks.into());
        // Sending fails if no stream is left; the next round removes the channel.
        drop(self.sender.send(Chunk { before, events, bytes, marks }));
    }
}

#[expect(clippy::disallowed_methods, reason = "how long events are gathered is real time")]
fn now() -> Instant {
    Instant::now()
}

/// Encodes a server-sent event.
pub(crate) fn encoded(name: &str, data: &serde_json::Value) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(events: usize, bytes: usize) -> Buffer {
        let mut buffer = Buffer::default();
        (0..events).for_each(|_| buffer.add("x".repeat(bytes), Mark::default()));
        buffer
    }

    fn received(chunks: &mut Receiver<Chunk>) -> Vec<Chunk> {
        std::iter::from_fn(|| chunks.try_recv().ok()).collect()
    }

    #[test]
    fn streams_of_a_tenant_share_what_is_sent_at_a_time() {
        for (streams, expected) in [(1, SENT_BYTES_MAX), (4, SENT_BYTES_MAX / 4), (64, 16 << 10)] {
            let channel = Channel::new();
            let mut open: Vec<_> = (0..streams).map(|_| channel.sender.subscribe()).collect();
            let mut buffer = buffer(2_000, 1_024);
            buffer.send(&channel, streams);
            let bytes = received(&mut open[0]).iter().map(|chunk| chunk.bytes.len()).sum::<usize>();
            assert_eq!(bytes, expected, "{streams} streams");
            assert_eq!(buffer.bytes, 2_000 * 1_024 - expected, "the others wait");
        }
        // An event that is longer than the limit is sent nevertheless.
        let channel = Channel::new();
        let mut stream = channel.sender.subscribe();
        buffer(2, 2 * SENT_BYTES_MAX).send(&channel, 1);
        assert_eq!(received(&mut stream).len(), 1);
    }

    #[test]
    fn chunks_are_numbered_so_that_what_is_given_up_is_noticed() {
        let channel = Channel::new();
        let mut stream = channel.sender.subscribe();
        buffer(3, 10).send(&channel, 1);
        buffer(5, 10).give_up(&channel, 7);
        buffer(2, 10).send(&channel, 1);
        let numbers = received(&mut stream);
        let numbers: Vec<_> = numbers.iter().map(|chunk| (chunk.before, chunk.events)).collect();
        assert_eq!(numbers, [(0, 3), (15, 0), (15, 2)]);
    }

    #[test]
    fn marks_say_where_each_event_ends() {
        let channel = Channel::new();
        let mut stream = channel.sender.subscribe();
        buffer(3, 10).send(&channel, 1);
        let marks = received(&mut stream)[0].marks.clone();
        assert_eq!(marks.iter().map(|(end, _)| *end).collect::<Vec<_>>(), [10, 20, 30]);
    }
}
