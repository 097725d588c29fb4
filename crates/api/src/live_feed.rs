//! What happens, for everybody who follows it: told once for each tenant, however many follow.
//!
//! A tenant may have a hundred streams open, and a receiver that hangs ends hundreds of attempts in
//! one moment. If each stream encoded each event, a tenant could keep the threads of everybody busy
//! for a tenth of a second. So one task, in the background, encodes an event once, and only where
//! somebody follows its tenant. What happens in quick succession goes out together.

use std::collections::HashMap;
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

/// What follows an event within this time goes out together with the next that does.
const GATHER: Duration = Duration::from_millis(100);
/// So many bytes go out at once; a single event may be longer.
const CHUNK_BYTES: usize = 16 << 10;
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
struct Buffer {
    bytes: Vec<u8>,
    events: u64,
    sent_at: Option<Instant>,
}

impl Task {
    async fn run(mut self, mut events: Receiver<EngineEvent>) {
        loop {
            let round_ends = Instant::now() + GATHER;
            loop {
                match tokio::time::timeout_at(round_ends, events.recv()).await {
                    Ok(Ok(event)) => self.take(&event),
                    Ok(Err(RecvError::Lagged(unseen))) => self.tell_unseen(unseen),
                    // The engine has stopped: so do the streams.
                    Ok(Err(RecvError::Closed)) => return self.feed.close(),
                    Err(_) => break,
                }
                // All that is there already, then what nobody has waited for long.
                self.drain(&mut events);
                self.send(|buffer, now| {
                    buffer.sent_at.is_none_or(|sent| now.duration_since(sent) >= GATHER)
                });
            }
            self.send(|_, _| true);
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
            None => self.buffers.entry(tenant.clone()).or_insert_with(Buffer::new),
        };
        buffer.add(name, &data);
        if buffer.bytes.len() >= CHUNK_BYTES {
            buffer.send(&channel, 0);
        }
    }

    /// Sends what is there of the tenants of which this holds.
    fn send(&mut self, is_due: impl Fn(&Buffer, Instant) -> bool) {
        let now = Instant::now();
        for (tenant, buffer) in &mut self.buffers {
            if buffer.events > 0
                && is_due(buffer, now)
                && let Some(channel) = self.feed.channel(tenant)
            {
                buffer.send(&channel, 0);
                buffer.sent_at = Some(now);
            }
        }
    }

    /// More happened than this task could see: everybody who follows is told.
    fn tell_unseen(&mut self, unseen: u64) {
        let channels: Vec<_> =
            self.feed.followed().tenants.iter().map(|(t, c)| (t.clone(), c.clone())).collect();
        for (tenant, channel) in channels {
            let buffer = self.buffers.entry(tenant).or_insert_with(Buffer::new);
            buffer.send(&channel, unseen);
        }
    }
}

impl Buffer {
    const fn new() -> Self {
        Buffer { bytes: Vec::new(), events: 0, sent_at: None }
    }

    /// One server-sent event. The data is JSON, so it has no line break.
    fn add(&mut self, name: &str, data: &serde_json::Value) {
        self.bytes.extend_from_slice(encoded(name, data).as_bytes());
        self.events += 1;
    }

    fn send(&mut self, channel: &Channel, unseen: u64) {
        let events = std::mem::take(&mut self.events);
        let bytes = Bytes::from(std::mem::take(&mut self.bytes));
        let told_before = channel.told.fetch_add(events, Ordering::AcqRel);
        // Nobody follows any more: the next round forgets the channel.
        drop(channel.sender.send(Chunk { told_before, events, unseen, bytes }));
    }
}

/// A server-sent event.
pub(crate) fn encoded(name: &str, data: &serde_json::Value) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}
