//! Crashes and faults of all kinds, with the real binary: nothing acknowledged may be lost.
//!
//! Every test prints one line with its figure. By default the short form runs; environment
//! variables set the counts of the long form (`cargo xtask trust --long`).

mod disconnects;
mod disk;
mod fairness;
mod faults;
mod hostile;
mod kills;
mod neighbours;
mod outage;
mod soak;
mod stops;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::json;

use crate::support::http;
use crate::support::server::Server;

/// The count of a test: from the variable, or that of the short form.
#[expect(clippy::disallowed_methods, reason = "whoever runs the long form says how long it is")]
fn count(variable: &str, short: usize) -> usize {
    match std::env::var(variable) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{variable}={text} is not a number")),
        Err(_) => short,
    }
}

/// Prints the line that goes into `docs/internals/trust.md`.
#[expect(clippy::print_stdout, reason = "a test of trust prints its figure")]
fn figure(line: &str) {
    // Starts a new line, in case the test runner has begun one.
    println!("\n{line}");
}

/// Pseudo-random numbers from a printed seed (`CRASH_SEED` sets it). The scheduling of threads is
/// not reproduced.
struct Random(u64);

impl Random {
    #[expect(clippy::disallowed_methods, reason = "a seed that differs from run to run")]
    fn new() -> Random {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos();
        let seed = count("CRASH_SEED", usize::try_from(now).unwrap());
        figure(&format!("seed {seed}"));
        Random(u64::try_from(seed).unwrap().wrapping_mul(2).wrapping_add(1))
    }

    /// From 0 to one less than this.
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }

    /// Waits for a random time, at most this long.
    fn moment(&mut self, most: Duration) {
        let micros = self.below(u64::try_from(most.as_micros()).unwrap().max(1));
        thread::park_timeout(Duration::from_micros(micros));
    }
}

/// Senders of events, one at a time each, until the server is gone or shutting down, or until they
/// are stopped.
struct Load {
    senders: Vec<JoinHandle<Vec<String>>>,
    end: Arc<AtomicBool>,
}

impl Load {
    fn start(server: &Server, name: &str, senders: usize) -> Load {
        let end = Arc::new(AtomicBool::new(false));
        let senders = (0..senders).map(|sender| {
            let (address, key) = (server.address, server.key.clone());
            let (name, end) = (format!("{name}-{sender}"), Arc::clone(&end));
            thread::spawn(move || {
                let mut acknowledged = Vec::new();
                for n in 0.. {
                    if end.load(Ordering::SeqCst) {
                        break;
                    }
                    let id = format!("{name}-{n}");
                    let event = json!({"id": id, "type": "task.updated", "data": {"n": n}});
                    match http::request(address, &key, "POST", "/v1/events", Some(&event)) {
                        Ok((202, _)) => acknowledged.push(id),
                        Ok((503, _)) | Err(_) => break,
                        Ok((status, answer)) => panic!("{status}: {answer}"),
                    }
                }
                acknowledged
            })
        });
        Load { senders: senders.collect(), end }
    }

    /// Stops the senders, and returns the identifiers of the acknowledged events.
    fn acknowledged(self) -> Vec<String> {
        self.end.store(true, Ordering::SeqCst);
        self.senders.into_iter().flat_map(|sender| sender.join().unwrap()).collect()
    }
}

/// The percentile of the values.
fn percentile(values: &mut [Duration], hundredths: usize) -> Duration {
    values.sort_unstable();
    let last = values.len().saturating_sub(1);
    values.get(last * hundredths / 100).copied().unwrap_or_default()
}
