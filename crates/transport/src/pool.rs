//! The pool of open connections.
//!
//! Connections are kept per tenant, scheme, host, port and TLS identity. One is reused only if its
//! peer's address is among the addresses that were resolved and vetted for this very request.
//! Nothing here opens a connection. The number of connections being opened to one host is limited;
//! a request that waits for that takes a connection that becomes idle meanwhile.

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

/// The current numbers of the pool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Connections that are open or being opened.
    pub open: usize,
    /// HTTP/1.1 connections that wait for a request.
    pub idle: usize,
    /// Requests that have not ended.
    pub in_flight: usize,
}

/// The counters of the pool.
#[derive(Debug, Default)]
pub(crate) struct Gauges {
    open: Arc<AtomicUsize>,
    in_flight: Arc<AtomicUsize>,
}

/// Counts as one until it is dropped.
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

/// An open connection of the pool.
#[derive(Debug)]
pub(crate) enum Kept {
    Http1(Box<Http1>),
    Http2(Lease),
}

/// What a request that needs a connection gets.
#[derive(Debug)]
pub(crate) enum Acquired {
    /// The permission to open one; others wait until this is dropped.
    Open(Option<OwnedSemaphorePermit>),
    /// A connection that became idle meanwhile.
    Kept(Kept),
}

/// The requests that open connections to one key, and those that wait.
#[derive(Debug)]
struct Openings {
    places: Arc<Semaphore>,
    /// Signalled when a connection becomes idle.
    given_back: Notify,
}

/// The connections of one key.
#[derive(Debug)]
struct Host {
    /// The connection that has been idle for longest is in front.
    idle: VecDeque<(Instant, Box<Http1>)>,
    http2: Option<Arc<Http2>>,
    /// Whether the last connection used HTTP/1.1 only, so that there is none to share.
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

    /// Takes an idle connection of this key to one of these addresses.
    pub(crate) fn take(&self, key: &PoolKey, addresses: &[IpAddr]) -> Option<Kept> {
        if let Some(lease) = self.share(key, addresses) {
            return Some(Kept::Http2(lease));
        }
        // Useless connections are closed after the lock is released.
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

    /// The HTTP/2 connection of this key, if there is one.
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

    /// Puts a connection back for the next request, if the limits allow it.
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

    /// Makes a new connection available to others.
    pub(crate) fn publish(self: &Arc<Self>, key: &Arc<PoolKey>, connection: &Arc<Http2>) {
        let mut state = self.state();
        let host = state.hosts.entry(Arc::clone(key)).or_insert_with(|| Host::new(&self.options));
        host.http1_only = false;
        host.http2 = Some(Arc::clone(connection));
        self.sweep_later(&mut state);
    }

    /// A lock to hold while a connection is opened, so that concurrent requests share one; `None`
    /// if the host is known to use HTTP/1.1 only.
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

    /// Waits until a connection may be opened or, if `may_be_kept`, until one becomes idle.
    pub(crate) async fn place(
        self: &Arc<Self>,
        key: &Arc<PoolKey>,
        addresses: &[IpAddr],
        may_be_kept: bool,
    ) -> Acquired {
        let openings = {
            let mut state = self.state();
            let host =
                state.hosts.entry(Arc::clone(key)).or_insert_with(|| Host::new(&self.options));
            let openings = Arc::clone(&host.openings);
            self.sweep_later(&mut state);
            openings
        };
        if let Ok(place) = Arc::clone(&openings.places).try_acquire_owned() {
            return Acquired::Open(Some(place));
        }
        let mut place = pin!(Arc::clone(&openings.places).acquire_owned());
        loop {
            let place = tokio::select! {
                biased;
                // The semaphore is never closed.
                place = &mut place => Some(place.ok()),
                () = openings.given_back.notified(), if may_be_kept => None,
            };
            if may_be_kept && let Some(kept) = self.take(key, addresses) {
                return Acquired::Kept(kept);
            }
            if let Some(place) = place {
                return Acquired::Open(place);
            }
        }
    }

    /// Records that a host has no HTTP/2.
    pub(crate) fn note_http1(&self, key: &PoolKey) {
        if let Some(host) = self.state().hosts.get_mut(key) {
            host.http1_only = true;
        }
    }

    /// Starts the task that closes idle connections, unless it is running; it ends when none is
    /// left.
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

    /// Closes connections that have been idle for too long; returns whether any are left.
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
