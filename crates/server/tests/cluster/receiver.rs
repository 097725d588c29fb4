//! A receiver that remembers what came, where and when. What is sent to `/bad…` fails.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{Deadline, PATIENCE};

/// One request.
#[derive(Debug, Clone)]
pub(crate) struct Arrived {
    pub(crate) path: String,
    pub(crate) webhook_id: String,
    pub(crate) body: String,
    pub(crate) at: Instant,
}

#[derive(Default)]
struct Shared {
    arrived: Mutex<Vec<Arrived>>,
    changed: Condvar,
}

pub(crate) struct Receiver {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl Receiver {
    pub(crate) fn start() -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared::default());
        let for_connections = Arc::clone(&shared);
        drop(thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let shared = Arc::clone(&for_connections);
                // A connection that breaks is the sender's business.
                drop(thread::spawn(move || connection(stream, &shared)));
            }
        }));
        Receiver { address, shared }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn arrived(&self) -> MutexGuard<'_, Vec<Arrived>> {
        self.shared.arrived.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The deliveries that came to good places, with how often each came.
    pub(crate) fn good(&self) -> BTreeMap<String, usize> {
        let mut all = BTreeMap::new();
        for one in self.arrived().iter().filter(|one| is_good(one)) {
            *all.entry(one.webhook_id.clone()).or_default() += 1;
        }
        all
    }

    /// When something came to a bad place, by place.
    pub(crate) fn bad(&self) -> BTreeMap<String, Vec<Instant>> {
        let mut all: BTreeMap<String, Vec<Instant>> = BTreeMap::new();
        for one in self.arrived().iter().filter(|one| !is_good(one)) {
            all.entry(one.path.clone()).or_default().push(one.at);
        }
        all
    }

    /// Waits until so many more have come to good places.
    pub(crate) fn wait_for_more(&self, more: usize) {
        let (begin, mut count) = (self.arrived().len(), 0);
        self.wait(begin, |one| {
            count += usize::from(is_good(one));
            count >= more
        });
    }

    /// Waits until an event with this text has come to so many good places; says when the last did.
    pub(crate) fn wait_for_event(&self, text: &str, places: usize) -> Instant {
        let mut seen = BTreeSet::new();
        self.wait(0, |one| {
            if is_good(one) && one.body.contains(text) {
                seen.insert(one.path.clone());
            }
            seen.len() >= places
        })
    }

    /// Looks at one after the other, each once: whoever looks holds up what comes. Says when the one
    /// came that was the last to wait for.
    fn wait(&self, begin: usize, mut is_last: impl FnMut(&Arrived) -> bool) -> Instant {
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

fn is_good(one: &Arrived) -> bool {
    !one.path.starts_with("/bad")
}

/// The shortest time between two of these.
pub(crate) fn shortest_gap(times: &[Instant]) -> Option<Duration> {
    times.windows(2).map(|two| two[1] - two[0]).min()
}

#[expect(clippy::disallowed_methods, reason = "says when something came")]
fn connection(stream: TcpStream, shared: &Shared) -> io::Result<()> {
    let mut writer = stream.try_clone()?;
    let mut reader = BufReader::new(stream);
    loop {
        let (mut line, mut length, mut webhook_id) = (String::new(), 0, String::new());
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
        loop {
            line.clear();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.trim().parse().map_err(io::Error::other)?,
                "webhook-id" => value.trim().clone_into(&mut webhook_id),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let status = if path.starts_with("/bad") { 500 } else { 200 };
        let body = String::from_utf8_lossy(&body).into_owned();
        let arrived = Arrived { path, webhook_id, body, at: Instant::now() };
        shared.arrived.lock().unwrap_or_else(PoisonError::into_inner).push(arrived);
        shared.changed.notify_all();
        writer
            .write_all(format!("HTTP/1.1 {status} x\r\ncontent-length: 2\r\n\r\nok").as_bytes())?;
    }
}
