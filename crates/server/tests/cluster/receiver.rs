//! A receiver that records each request with its path and time. Requests to `/bad…` fail.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use postrider_test_support::receiver::{Request, answer, answer_each, listen};

use crate::support::{Deadline, PATIENCE};

#[derive(Default)]
struct Shared {
    arrived: Mutex<Vec<Request>>,
    changed: Condvar,
}

pub(crate) struct Receiver {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl Receiver {
    pub(crate) fn start() -> Receiver {
        let shared = Arc::new(Shared::default());
        let for_connections = Arc::clone(&shared);
        let address = listen(move |stream| {
            answer_each(stream, |request| respond(request, &for_connections));
        });
        Receiver { address, shared }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn arrived(&self) -> MutexGuard<'_, Vec<Request>> {
        self.shared.arrived.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The deliveries to good paths, with how often each came.
    pub(crate) fn good(&self) -> BTreeMap<String, usize> {
        let mut all = BTreeMap::new();
        for one in self.arrived().iter().filter(|one| is_good(one)) {
            *all.entry(one.header("webhook-id").to_owned()).or_default() += 1;
        }
        all
    }

    /// The times of requests to bad paths, by path.
    pub(crate) fn bad(&self) -> BTreeMap<String, Vec<Instant>> {
        let mut all: BTreeMap<String, Vec<Instant>> = BTreeMap::new();
        for one in self.arrived().iter().filter(|one| !is_good(one)) {
            all.entry(one.path.clone()).or_default().push(one.at);
        }
        all
    }

    /// Waits until this many more requests have come to good paths.
    pub(crate) fn wait_for_more(&self, more: usize) {
        let (begin, mut count) = (self.arrived().len(), 0);
        self.wait(begin, |one| {
            count += usize::from(is_good(one));
            count >= more
        });
    }

    /// Waits until an event with this text has come to this many good paths; returns when the last
    /// one came.
    pub(crate) fn wait_for_event(&self, text: &str, places: usize) -> Instant {
        let mut seen = BTreeSet::new();
        self.wait(0, |one| {
            if is_good(one) && one.text().contains(text) {
                seen.insert(one.path.clone());
            }
            seen.len() >= places
        })
    }

    /// Checks the requests one by one, each once, because checking blocks new ones. Returns the
    /// time of the request that was waited for.
    fn wait(&self, begin: usize, mut is_last: impl FnMut(&Request) -> bool) -> Instant {
        let (deadline, mut next) = (Deadline::new(), begin);
        let mut arrived = self.arrived();
        loop {
            if let Some(last) = arrived[next..].iter().find(|one| is_last(one)) {
                return last.at;
            }
            next = arrived.len();
            assert!(
                !deadline.has_passed(),
                "{next} arrived, the last of them {:?}",
                arrived.last()
            );
            let waited = self.shared.changed.wait_timeout(arrived, PATIENCE / 10);
            arrived = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

fn is_good(one: &Request) -> bool {
    !one.path.starts_with("/bad")
}

/// The shortest time between two consecutive times.
pub(crate) fn shortest_gap(times: &[Instant]) -> Option<Duration> {
    times.windows(2).map(|two| two[1] - two[0]).min()
}

fn respond(request: Request, shared: &Shared) -> String {
    let status = if is_good(&request) { 200 } else { 500 };
    shared.arrived.lock().unwrap_or_else(PoisonError::into_inner).push(request);
    shared.changed.notify_all();
    answer(status)
}
