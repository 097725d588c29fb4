//! Which open connection may carry this request?
//!
//! Connections are kept per tenant, scheme, host, port and TLS identity, and used again only while
//! the address they go to is among those that the name has now and that were vetted for this very
//! request. Nothing here opens a connection. Only so many are opened to one host at the same time;
//! who waits for that takes a connection that others have given back meanwhile.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until};

use crate::clock::instant_now;
use crate::http1::Http1;
use crate::http2::{Http2, Lease};
use crate::options::PoolOptions;
use crate::request::PoolKey;

/// What is open right now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Connections that are open or being opened.
    pub open: usize,
    /// HTTP/1.1 connections that wait for a request.
    pub idle: usize,
    /// Requests that have not ended.
    pub in_flight: usize,
}

/// Counts what is open.
#[derive(Debug, Default)]
pub(crate) struct Gauges {
    open: Arc<AtomicUsize>,
    in_flight: Arc<AtomicUsize>,
}

/// Something that counts until it is dropped.
#[derive(Debug)]
pub(crate) struct Counted(Arc<AtomicUsize>);

impl Gauges {
    pub(crate) fn connection(&self) -> Counted {
        Counted::new(&self.open)
    }

    pub(crate) fn request(&self) -> Counted {
        Counted::new(&self.in_flight)
    }
}

impl Counted {
    fn new(gauge: &Arc<AtomicUsize>) -> Self {
        gauge.fetch_add(1, Relaxed);
        Counted(Arc::clone(gauge))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// A connection that was open already.
#[derive(Debug)]
pub(crate) enum Kept {
    Http1(Box<Http1>),
    Http2(Lease),
}

/// What somebody got who needs a connection.
#[derive(Debug)]
pub(crate) enum Place {
    /// May open one; others wait until this is dropped.
    Open(Option<OwnedSemaphorePermit>),
    /// One that was given back meanwhile.
    Kept(Kept),
}

/// Who opens connections to one key, and who waits for that.
#[derive(Debug)]
struct Openings {
    places: Arc<Semaphore>,
    /// Somebody may take a connection that was given back.
    given_back: Notify,
}

/// The connections of one key.
#[derive(Debug)]
struct Host {
    /// The one that waits longest is in front.
    idle: VecDeque<(Instant, Box<Http1>)>,
    http2: Option<Arc<Http2>>,
    /// Whether the last connection spoke HTTP/1.1 only, so that there is none to share.
    http1_only: bool,
    /// Held while a connection is opened that others may be able to share.
    gate: Arc<tokio::sync::Mutex<()>>,
    openings: Arc<Openings>,
}

impl Host {
    fn new(options: &PoolOptions) -> Self {
        let openings = Openings {
            places: Arc::new(Semaphore::new(options.opening_per_host_max.max(1))),
            given_back: Notify::new(),
        };
        Host {
            idle: VecDeque::new(),
            http2: None,
            http1_only: false,
            gate: Arc::default(),
            openings: Arc::new(openings),
        }
    }
}

#[derive(Debug, Default)]
struct State {
    hosts: HashMap<Arc<PoolKey>, Host>,
    idle: usize,
    is_swept: bool,
}

/// The open connections.
#[derive(Debug)]
pub(crate) struct Pool {
    options: PoolOptions,
    state: Mutex<State>,
}

impl Pool {
    pub(crate) fn new(options: PoolOptions) -> Arc<Self> {
        Arc::new(Pool { options, state: Mutex::default() })
    }

    pub(crate) fn stats(&self, gauges: &Gauges) -> PoolStats {
        PoolStats {
            open: gauges.open.load(Relaxed),
            idle: self.state().idle,
            in_flight: gauges.in_flight.load(Relaxed),
        }
    }

    /// A connection for a request of this key, to one of these addresses.
    pub(crate) fn take(&self, key: &PoolKey, addresses: &[IpAddr]) -> Option<Kept> {
        if let Some(lease) = self.share(key, addresses) {
            return Some(Kept::Http2(lease));
        }
        // Those that are of no use are closed when the lock is released.
        let mut useless = Vec::new();
        loop {
            let now = instant_now();
            let (since, mut connection) = {
                let mut state = self.state();
                let taken = state.hosts.get_mut(key)?.idle.pop_back()?;
                state.idle -= 1;
                taken
            };
            let usable = now.duration_since(since) < self.options.idle_timeout
                && addresses.contains(&connection.peer())
                && connection.is_reusable();
            if usable {
                return Some(Kept::Http1(connection));
            }
            useless.push(connection);
        }
    }

    /// A share of the HTTP/2 connection of this key, where there is one.
    pub(crate) fn share(&self, key: &PoolKey, addresses: &[IpAddr]) -> Option<Lease> {
        if !key.https {
            return None;
        }
        let mut state = self.state();
        let host = state.hosts.get_mut(key)?;
        let connection = host.http2.as_ref()?;
        if !connection.is_live() || !addresses.contains(&connection.peer()) {
            host.http2 = None;
            return None;
        }
        Some(connection.lease())
    }

    /// Keeps a connection for the next request, where there is room for it.
    pub(crate) fn keep(self: &Arc<Self>, key: &Arc<PoolKey>, mut connection: Box<Http1>) {
        if !connection.is_reusable() {
            return;
        }
        let mut state = self.state();
        if state.idle >= self.options.idle_max {
            return;
        }
        let host = match state.hosts.get_mut(key) {
            Some(host) => host,
            None => state.hosts.entry(Arc::clone(key)).or_insert_with(|| Host::new(&self.options)),
        };
        if host.idle.len() >= self.options.idle_per_host_max {
            return;
        }
        host.http1_only = true;
        host.idle.push_back((instant_now(), connection));
        host.openings.given_back.notify_one();
        state.idle += 1;
        self.sweep_later(&mut state);
    }

    /// Lets others share a new connection.
    pub(crate) fn publish(self: &Arc<Self>, key: &Arc<PoolKey>, connection: &Arc<Http2>) {
        let mut state = self.state();
        let host = state.hosts.entry(Arc::clone(key)).or_insert_with(|| Host::new(&self.options));
        host.http1_only = false;
        host.http2 = Some(Arc::clone(connection));
        self.sweep_later(&mut state);
    }

    /// What to hold while a connection is opened, so that requests that come at the same time
    /// share one; `None` where the host is known to speak HTTP/1.1 only.
    pub(crate) fn gate(
        self: &Arc<Self>,
        key: &Arc<PoolKey>,
    ) -> Option<Arc<tokio::sync::Mutex<()>>> {
        let mut state = self.state();
        let host = state.hosts.entry(Arc::clone(key)).or_insert_with(|| Host::new(&self.options));
        let gate = (!host.http1_only).then(|| Arc::clone(&host.gate));
        self.sweep_later(&mut state);
        gate
    }

    /// Waits until a connection may be opened, or takes one that was given back meanwhile where
    /// that `may_be_kept`.
    pub(crate) async fn place(
        self: &Arc<Self>,
        key: &Arc<PoolKey>,
        addresses: &[IpAddr],
        may_be_kept: bool,
    ) -> Place {
        let openings = {
            let mut state = self.state();
            let host =
                state.hosts.entry(Arc::clone(key)).or_insert_with(|| Host::new(&self.options));
            let openings = Arc::clone(&host.openings);
            self.sweep_later(&mut state);
            openings
        };
        if let Ok(place) = Arc::clone(&openings.places).try_acquire_owned() {
            return Place::Open(Some(place));
        }
        let mut place = pin!(Arc::clone(&openings.places).acquire_owned());
        loop {
            let place = tokio::select! {
                biased;
                // Never closed.
                place = &mut place => Some(place.ok()),
                () = openings.given_back.notified(), if may_be_kept => None,
            };
            if may_be_kept && let Some(kept) = self.take(key, addresses) {
                return Place::Kept(kept);
            }
            if let Some(place) = place {
                return Place::Open(place);
            }
        }
    }

    /// Remembers that a host has no HTTP/2.
    pub(crate) fn note_http1(&self, key: &PoolKey) {
        if let Some(host) = self.state().hosts.get_mut(key) {
            host.http1_only = true;
        }
    }

    /// Makes sure that idle connections will be closed, by a task that ends when none is left.
    fn sweep_later(self: &Arc<Self>, state: &mut State) {
        if state.is_swept {
            return;
        }
        state.is_swept = true;
        let pause = (self.options.idle_timeout / 8).max(Duration::from_millis(1));
        let pool = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                sleep_until(instant_now() + pause).await;
                if !pool.upgrade().is_some_and(|pool| pool.sweep()) {
                    break;
                }
            }
        });
    }

    /// Closes what has been idle for too long; says whether anything is left.
    fn sweep(&self) -> bool {
        let now = instant_now();
        let mut useless = Vec::new();
        let mut state = self.state();
        let State { hosts, idle, is_swept } = &mut *state;
        hosts.retain(|_, host| {
            while let Some((since, _)) = host.idle.front()
                && now.duration_since(*since) >= self.options.idle_timeout
            {
                useless.extend(host.idle.pop_front());
                *idle -= 1;
            }
            let expired = host.http2.as_ref().is_some_and(|http2| {
                let idle_since = http2.idle_since();
                !http2.is_live()
                    || idle_since.is_some_and(|since| {
                        now.duration_since(since) >= self.options.http2_idle_timeout
                    })
            });
            if expired {
                host.http2 = None;
            }
            let is_waited_for = Arc::strong_count(&host.gate) > 1
                || Arc::strong_count(&host.openings) > 1
                || Arc::strong_count(&host.openings.places) > 1;
            !host.idle.is_empty() || host.http2.is_some() || is_waited_for
        });
        *is_swept = !hosts.is_empty();
        let is_swept = *is_swept;
        // Connections are closed after the lock is released.
        drop(state);
        drop(useless);
        is_swept
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
