//! A receiver whose behaviour a test turns while it runs.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use postrider_test_support::receiver::{Request, answer, answer_each, listen};

use super::{Deadline, PATIENCE};

/// One request as it arrived.
#[derive(Debug, Clone)]
pub(crate) struct Arrived {
    pub(crate) webhook_id: String,
    /// Where it names its trace.
    pub(crate) traceparent: String,
    /// When the whole of it was there.
    pub(crate) at: Instant,
    pub(crate) body: Vec<u8>,
}

#[derive(Default)]
struct State {
    arrived: Vec<Arrived>,
    /// While set, requests are taken and not answered.
    held: bool,
    failed_once: HashSet<String>,
    /// Taken and not answered yet, and the most there ever were.
    open: usize,
    open_most: usize,
}

struct Shared {
    status: AtomicU16,
    /// Of so many deliveries one fails when it comes for the first time.
    first_fails_of: AtomicU64,
    /// How long every answer takes.
    takes: Duration,
    state: Mutex<State>,
    changed: Condvar,
}

pub(crate) struct Receiver {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl Receiver {
    /// Listens on a free port and answers with this status.
    pub(crate) fn start(status: u16) -> Receiver {
        Receiver::start_slow(status, Duration::ZERO)
    }

    /// The same, and every answer takes so long.
    pub(crate) fn start_slow(status: u16, takes: Duration) -> Receiver {
        let shared = Arc::new(Shared {
            status: AtomicU16::new(status),
            first_fails_of: AtomicU64::new(0),
            takes,
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let for_connections = Arc::clone(&shared);
        let address = listen(move |stream| {
            answer_each(stream, |request| respond(request, &for_connections));
        });
        Receiver { address, shared }
    }

    pub(crate) fn url(&self) -> String {
        self.url_of("hook")
    }

    /// The URL with this path, which is answered like every other.
    pub(crate) fn url_of(&self, path: &str) -> String {
        format!("http://{}/{path}", self.address)
    }

    /// Answers with this status from now on.
    pub(crate) fn answer(&self, status: u16) {
        self.shared.status.store(status, Ordering::SeqCst);
    }

    /// From now on one delivery of so many fails when it comes for the first time.
    pub(crate) fn fail_first_of(&self, many: u64) {
        self.shared.first_fails_of.store(many, Ordering::SeqCst);
    }

    /// Takes requests without answering them, or goes on.
    pub(crate) fn hold(&self, held: bool) {
        self.shared.state.lock().unwrap().held = held;
        self.shared.changed.notify_all();
    }

    /// Everything that arrived so far.
    pub(crate) fn arrived(&self) -> Vec<Arrived> {
        self.shared.state.lock().unwrap().arrived.clone()
    }

    /// How many requests arrived so far.
    pub(crate) fn count(&self) -> usize {
        self.shared.state.lock().unwrap().arrived.len()
    }

    /// How many requests were ever open at the same time.
    pub(crate) fn open_most(&self) -> usize {
        self.shared.state.lock().unwrap().open_most
    }

    /// Waits until so many requests have arrived.
    pub(crate) fn wait_for(&self, count: usize) -> Vec<Arrived> {
        self.wait_until(count);
        self.arrived()
    }

    /// Waits until so many requests have arrived, and copies none of them.
    pub(crate) fn wait_until(&self, count: usize) {
        let deadline = Deadline::new();
        let mut state = self.shared.state.lock().unwrap();
        while state.arrived.len() < count {
            let arrived = state.arrived.len();
            assert!(!deadline.has_passed(), "only {arrived} of {count} requests arrived");
            state = self.shared.changed.wait_timeout(state, PATIENCE).unwrap().0;
        }
    }
}

/// One of so many identifiers, always the same ones.
fn is_one_of(many: u64, webhook_id: &str) -> bool {
    let sum = webhook_id.bytes().fold(7u64, |sum, byte| sum.wrapping_mul(31) + u64::from(byte));
    many > 0 && sum.is_multiple_of(many)
}

fn respond(request: Request, shared: &Shared) -> String {
    let arrived = Arrived {
        webhook_id: request.header("webhook-id").to_owned(),
        traceparent: request.header("traceparent").to_owned(),
        at: request.at,
        body: request.body,
    };
    let mut status = shared.status.load(Ordering::SeqCst);
    let mut state = shared.state.lock().unwrap();
    let many = shared.first_fails_of.load(Ordering::SeqCst);
    if is_one_of(many, &arrived.webhook_id) && state.failed_once.insert(arrived.webhook_id.clone())
    {
        status = 500;
    }
    state.arrived.push(arrived);
    state.open += 1;
    state.open_most = state.open_most.max(state.open);
    shared.changed.notify_all();
    while state.held {
        state = shared.changed.wait(state).unwrap();
    }
    drop(state);
    if !shared.takes.is_zero() {
        thread::park_timeout(shared.takes);
    }
    shared.state.lock().unwrap().open -= 1;
    answer(status)
}
