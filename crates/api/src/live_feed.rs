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
/// Bytes of a tenant's events that may wait to go out.
const WAITING_BYTES_MAX: usize = 4 << 20;
/// Chunks of a tenant that are kept for whoever reads slowly.
const CHUNKS_MAX: usize = 128;

/// Events of one tenant, as they are sent.
#[derive(Debug, Clone)]
pub(crate) struct Chunk {
    /// How many events of the tenant were told before these.
    pub(crate) told_before: u64,
    pub(crate) events: u64,
    /// Some that happened before these were not seen, of whichever tenant: so many.
    pub(crate) unseen: u64,
    pub(crate) bytes: Bytes,
}

/// Events of one tenant from now on.
#[derive(Debug)]
pub(crate) struct Following {
    pub(crate) chunks: Receiver<Chunk>,
    /// How many events were told before the first chunk that it can get.
    pub(crate) told: u64,
}

/// Tells what happens.
#[derive(Debug, Clone, Default)]
pub(crate) struct LiveFeed(Arc<Mutex<Followed>>);

#[derive(Debug, Default)]
struct Followed {
    tenants: HashMap<TenantId, Channel>,
    /// Whether the task is there.
    is_running: bool,
}

#[derive(Debug, Clone)]
struct Channel {
    sender: Sender<Chunk>,
    told: Arc<AtomicU64>,
}

impl LiveFeed {
    fn followed(&self) -> MutexGuard<'_, Followed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows a tenant.
    pub(crate) fn follow(&self, engine: &EngineHandle, tenant: &TenantId) -> Following {
        let mut followed = self.followed();
        let channel = followed
            .tenants
            .entry(tenant.clone())
            .or_insert_with(|| Channel { sender: Sender::new(CHUNKS_MAX), told: Arc::default() });
        let chunks = channel.sender.subscribe();
        let told = channel.told.load(Ordering::Acquire);
        if !std::mem::replace(&mut followed.is_running, true) {
            // Before anybody is told that the stream is open: it misses nothing from then on.
            let events = engine.subscribe();
            let task = Task { feed: self.clone(), buffers: HashMap::new() };
            drop(engine.background().spawn(true, task.run(events)));
        }
        Following { chunks, told }
    }

    /// The channel of a tenant that somebody follows.
    fn channel(&self, tenant: &TenantId) -> Option<Channel> {
        self.followed().tenants.get(tenant).cloned()
    }

    /// Forgets tenants that nobody follows any more. Without any the task is over.
    fn forget_unfollowed(&self) -> bool {
        let mut followed = self.followed();
        followed.tenants.retain(|_, channel| channel.sender.receiver_count() > 0);
        followed.is_running = !followed.tenants.is_empty();
        !followed.is_running
    }

    fn close(&self) {
        *self.followed() = Followed::default();
    }
}

/// The one that encodes.
struct Task {
    feed: LiveFeed,
    buffers: HashMap<TenantId, Buffer>,
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
                    Ok(Err(RecvError::Closed)) => return self.feed.close(),
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
        }
    }

    fn drain(&mut self, events: &mut Receiver<EngineEvent>) {
        loop {
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
        if buffer.bytes > WAITING_BYTES_MAX {
            buffer.give_up(&channel, 0);
        }
        buffer.add(encoded(name, &data));
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
                buffer.send(&channel);
                buffer.sent_at = Some(now);
            }
        }
    }

    /// More happened than this task could see: everybody who follows is told.
    fn tell_unseen(&mut self, unseen: u64) {
        let channels: Vec<_> =
            self.feed.followed().tenants.iter().map(|(t, c)| (t.clone(), c.clone())).collect();
        for (tenant, channel) in channels {
            self.buffers.entry(tenant).or_default().give_up(&channel, unseen);
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
                channel.send(std::mem::take(&mut bytes), std::mem::take(&mut events), 0);
            }
            if left == 0 {
                return;
            }
        }
        if events > 0 {
            channel.send(bytes, events, 0);
        }
    }

    /// Tells those who follow that they miss what is here, and so much more.
    fn give_up(&mut self, channel: &Channel, more: u64) {
        let dropped = u64::try_from(self.events.len()).unwrap_or(u64::MAX);
        *self = Buffer { sent_at: self.sent_at, ..Buffer::default() };
        channel.send(String::new(), 0, more.saturating_add(dropped));
    }
}

impl Channel {
    fn send(&self, bytes: String, events: u64, unseen: u64) {
        let told_before = self.told.fetch_add(events, Ordering::AcqRel);
        // Where nobody follows any more, the next round forgets the channel.
        drop(self.sender.send(Chunk { told_before, events, unseen, bytes: bytes.into() }));
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
