//! What happens, for everybody who follows it: told once for each tenant, however many follow.
//!
//! A tenant may have a hundred streams open, and a receiver that hangs ends hundreds of attempts in
//! one moment. If each stream encoded each event, a tenant could keep the threads of everybody busy
//! for a tenth of a second. So one task, in the background, encodes an event once, and only where
//! somebody follows its tenant. What happens in quick succession goes out together, and the streams of
//! a tenant share what is sent at a time: the more there are, the longer a burst takes to go out.

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

/// What happens within this time goes out together, and at once where it is the first for so long.
const GATHER: Duration = Duration::from_millis(100);
/// So many bytes go out in this time to all streams of a tenant together, and to each of them at least
/// one event.
const SENT_BYTES_MAX: usize = 1 << 20;
/// So many bytes make a chunk; a single event may be longer.
const CHUNK_BYTES: usize = 16 << 10;
/// Bytes of a tenant's events that may wait to go out, and of all tenants'.
const WAITING_BYTES_MAX: usize = 4 << 20;
const WAITING_BYTES_TOTAL: usize = 64 << 20;
/// Chunks of a tenant that are kept for whoever reads slowly.
const CHUNKS_MAX: usize = 64;
/// Events that are taken before what is due is sent.
const TAKEN_MAX: usize = 1_000;

/// Events of one tenant, as they are sent.
#[derive(Debug, Clone)]
pub(crate) struct Chunk {
    /// How many events there were before these, those included that were given up. Whoever has got
    /// fewer has missed some.
    pub(crate) before: u64,
    pub(crate) events: u64,
    pub(crate) bytes: Bytes,
}

/// Events of one tenant from now on.
#[derive(Debug)]
pub(crate) struct Following {
    pub(crate) chunks: Receiver<Chunk>,
    /// How many events there were before the first chunk that it can get.
    pub(crate) before: u64,
}

/// Tells what happens.
#[derive(Debug, Clone, Default)]
pub(crate) struct LiveFeed(Arc<Mutex<Followed>>);

/// The tenants that somebody follows. While there is one, the task is there.
type Followed = HashMap<TenantId, Channel>;

#[derive(Debug, Clone)]
struct Channel {
    sender: Sender<Chunk>,
    /// How many events there were so far.
    events: Arc<AtomicU64>,
}

impl LiveFeed {
    fn followed(&self) -> MutexGuard<'_, Followed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows a tenant.
    pub(crate) fn follow(&self, engine: &EngineHandle, tenant: &TenantId) -> Following {
        let mut followed = self.followed();
        let is_first = followed.is_empty();
        let channel = followed
            .entry(tenant.clone())
            .or_insert_with(|| Channel { sender: Sender::new(CHUNKS_MAX), events: Arc::default() });
        let chunks = channel.sender.subscribe();
        let before = channel.events.load(Ordering::Acquire);
        if is_first {
            // Before anybody is told that the stream is open: it misses nothing from then on.
            let events = engine.subscribe();
            let task = Task { feed: self.clone(), buffers: HashMap::new(), waiting_bytes: 0 };
            drop(engine.background().spawn(true, task.run(events)));
        }
        Following { chunks, before }
    }

    /// The channel of a tenant that somebody follows.
    fn channel(&self, tenant: &TenantId) -> Option<Channel> {
        self.followed().get(tenant).cloned()
    }

    /// Forgets tenants that nobody follows any more. Without any the task is over.
    fn forget_unfollowed(&self) -> bool {
        let mut followed = self.followed();
        followed.retain(|_, channel| channel.sender.receiver_count() > 0);
        followed.is_empty()
    }
}

/// The one that encodes.
struct Task {
    feed: LiveFeed,
    buffers: HashMap<TenantId, Buffer>,
    /// What all buffers hold.
    waiting_bytes: usize,
}

/// What is to go out for a tenant.
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
                    // The engine has stopped: so do the streams.
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

    /// Sends what is there of the tenants that were not sent anything for a while.
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

    /// More happened than this task could see: everybody who follows is told.
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

    /// Sends as much as is due to a tenant with so many streams, at least one event.
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

    /// Tells those who follow that they miss what is here, and so much more.
    fn give_up(&mut self, channel: &Channel, more: u64) {
        let dropped = u64::try_from(self.events.len()).unwrap_or(u64::MAX);
        *self = Buffer { sent_at: self.sent_at, ..Buffer::default() };
        channel.events.fetch_add(more.saturating_add(dropped), Ordering::AcqRel);
        // Nothing, but after those: whoever gets it sees that some are missing.
        channel.send(String::new(), 0);
    }
}

impl Channel {
    fn send(&self, bytes: String, events: u64) {
        let before = self.events.fetch_add(events, Ordering::AcqRel);
        // Where nobody follows any more, the next round forgets the channel.
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
        // One event goes out however long it is.
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
