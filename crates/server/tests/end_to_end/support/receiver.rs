//! A receiver whose behaviour a test changes while it runs.

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
    pub(crate) path: String,
    pub(crate) webhook_id: String,
    /// The `webhook-timestamp` and `webhook-signature` headers.
    pub(crate) signed: [String; 2],
    /// The `traceparent` header.
    pub(crate) traceparent: String,
    /// When it was received completely.
    pub(crate) at: Instant,
    pub(crate) body: Vec<u8>,
    /// The status of the answer.
    pub(crate) status: u16,
}

#[derive(Default)]
struct State {
    arrived: Vec<Arrived>,
    /// While set, requests are received and not answered.
    held: bool,
    failed_once: HashSet<String>,
    /// Requests that are received and not answered yet, and the highest number so far.
    open: usize,
    open_most: usize,
}

struct Shared {
    status: AtomicU16,
    /// One in this many deliveries fails when it comes for the first time.
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

    /// Answers with this status after this time.
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

    /// A URL with this path; all paths behave alike.
    pub(crate) fn url_of(&self, path: &str) -> String {
        format!("http://{}/{path}", self.address)
    }

    /// Answers with this status from now on.
    pub(crate) fn answer(&self, status: u16) {
        self.shared.status.store(status, Ordering::SeqCst);
    }

    /// From now on one in this many deliveries fails when it comes for the first time.
    pub(crate) fn fail_first_of(&self, many: u64) {
        self.shared.first_fails_of.store(many, Ordering::SeqCst);
    }

    /// Stops or resumes answering requests.
    pub(crate) fn hold(&self, held: bool) {
        self.shared.state.lock().unwrap().held = held;
        self.shared.changed.notify_all();
    }

    /// All requests so far.
    pub(crate) fn arrived(&self) -> Vec<Arrived> {
        self.shared.state.lock().unwrap().arrived.clone()
    }

    /// The number of requests so far.
    pub(crate) fn count(&self) -> usize {
        self.shared.state.lock().unwrap().arrived.len()
    }

    /// The highest number of requests that were open at the same time.
    pub(crate) fn open_most(&self) -> usize {
        self.shared.state.lock().unwrap().open_most
    }

    /// Waits until this many requests have arrived, and returns them.
    pub(crate) fn wait_for(&self, count: usize) -> Vec<Arrived> {
        self.wait_until(count);
        self.arrived()
    }

    /// Waits until this many requests have arrived.
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

/// Selects one in `many` identifiers, always the same ones.
fn is_one_of(many: u64, webhook_id: &str) -> bool {
    let sum = webhook_id.bytes().fold(7u64, |sum, byte| sum.wrapping_mul(31) + u64::from(byte));
    many > 0 && sum.is_multiple_of(many)
}

fn respond(request: Request, shared: &Shared) -> String {
    let mut arrived = Arrived {
        path: request.path.clone(),
        webhook_id: request.header("webhook-id").to_owned(),
        signed: ["webhook-timestamp", "webhook-signature"]
            .map(|name| request.header(name).to_owned()),
        traceparent: request.header("traceparent").to_owned(),
        at: request.at,
        body: request.body,
        status: shared.status.load(Ordering::SeqCst),
    };
    let mut state = shared.state.lock().unwrap();
    let many = shared.first_fails_of.load(Ordering::SeqCst);
    if is_one_of(many, &arrived.webhook_id) && state.failed_once.insert(arrived.webhook_id.clone())
    {
        arrived.status = 500;
    }
    let status = arrived.status;
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
