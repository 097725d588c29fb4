//! The receiver: answers as fast as it can and records what arrived, and when.
//!
//! It is a separate process that gets commands as lines on its standard input. A delivery has
//! arrived when its request was read completely.

use std::io::{BufRead as _, stdin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::{http, message};
use postrider_cli::exit::Failure;
use postrider_cli::output::line;

/// The request for the number of arrivals.
pub(crate) const COUNT_REQUEST: &[u8] = b"GET /count HTTP/1.1\r\nhost: receiver\r\n\r\n";

/// At least the most attempts that the server has in flight.
const CONNECTIONS_AT_ONCE: u32 = 4096;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// The commands of the receiver.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ask {
    /// Reset; from now on each event has this many deliveries.
    Begin { fan_out: u64 },
    /// Return the number of arrivals.
    Count,
    /// Return the report, if all events below `events` were accepted except `refused`.
    Report { events: u64, refused: Vec<u64> },
}

/// The report of the receiver.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Report {
    /// Requests that arrived.
    pub(crate) arrived: u64,
    /// Deliveries that never arrived.
    pub(crate) lost: u64,
    /// Deliveries that arrived more than once.
    pub(crate) repeated: u64,
    /// Deliveries of refused or unknown events.
    pub(crate) unexpected: u64,
    /// When the last delivery arrived.
    pub(crate) last_us: u64,
    /// From the scheduled time of an event to its arrival.
    pub(crate) latency: Latency,
}

/// Percentiles of a duration, in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub(crate) p50: u64,
    pub(crate) p90: u64,
    pub(crate) p99: u64,
    pub(crate) max: u64,
}

impl Latency {
    pub(crate) fn of(mut samples: Vec<u64>) -> Latency {
        samples.sort_unstable();
        let at = |percent: usize| {
            // The smallest sample that `percent` of the samples do not exceed.
            let place = (samples.len() * percent).div_ceil(100).saturating_sub(1);
            samples.get(place).copied().unwrap_or(0)
        };
        Latency { p50: at(50), p90: at(90), p99: at(99), max: at(100) }
    }
}

/// The arrivals since the last reset.
#[derive(Debug, Default)]
struct Tally {
    fan_out: u64,
    /// For each event, a bit for each of its deliveries that has arrived.
    seen: Vec<u64>,
    arrived: u64,
    repeated: u64,
    unexpected: u64,
    last_us: u64,
    latencies: Vec<u64>,
}

impl Tally {
    fn arrive(&mut self, n: u64, slot: u64, meant_us: u64, now_us: u64) {
        self.arrived += 1;
        self.last_us = now_us;
        if self.fan_out == 0 {
            return;
        }
        self.latencies.push(now_us.saturating_sub(meant_us));
        let (Ok(place), true) = (usize::try_from(n), slot < self.fan_out.min(64)) else {
            self.unexpected += 1;
            return;
        };
        if place >= self.seen.len() {
            self.seen.resize(place + 1, 0);
        }
        let bit = 1 << slot;
        self.repeated += u64::from(self.seen[place] & bit != 0);
        self.seen[place] |= bit;
    }

    fn report(&mut self, events: u64, refused: &[u64]) -> Report {
        let all = if self.fan_out >= 64 { u64::MAX } else { (1 << self.fan_out) - 1 };
        let (mut lost, mut unexpected) = (0, self.unexpected);
        for n in 0..events.max(self.seen.len() as u64) {
            let seen = usize::try_from(n).ok().and_then(|n| self.seen.get(n)).copied();
            let (seen, is_owed) = (seen.unwrap_or(0), n < events && !refused.contains(&n));
            if is_owed {
                lost += u64::from((all & !seen).count_ones());
            } else {
                unexpected += u64::from(seen.count_ones());
            }
        }
        let latency = Latency::of(std::mem::take(&mut self.latencies));
        let (arrived, repeated, last_us) = (self.arrived, self.repeated, self.last_us);
        Report { arrived, lost, repeated, unexpected, last_us, latency }
    }
}

type Shared = Arc<Mutex<Tally>>;

fn locked(tally: &Shared) -> MutexGuard<'_, Tally> {
    tally.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs until its standard input ends.
pub(crate) fn run() -> Result<(), Failure> {
    let tally = Shared::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listener = runtime.block_on(async { bind() })?;
    line(&json!({ "address": listener.local_addr()? }).to_string())?;
    let shared = Arc::clone(&tally);
    drop(std::thread::spawn(move || runtime.block_on(listen(listener, shared))));
    for asked in stdin().lock().lines() {
        let asked = serde_json::from_str(&asked?).map_err(|error| {
            Failure::usage(format!("the receiver got an unknown command: {error}"))
        })?;
        line(&answer(asked, &tally).to_string())?;
    }
    Ok(())
}

/// Listens with a backlog for all connections at the begin of a measurement: a dropped one would be
/// retried only after a second, which would distort the latency.
fn bind() -> std::io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(([127, 0, 0, 1], 0).into())?;
    socket.listen(CONNECTIONS_AT_ONCE)
}

fn answer(asked: Ask, tally: &Shared) -> serde_json::Value {
    let mut tally = locked(tally);
    match asked {
        Ask::Begin { fan_out } => {
            *tally = Tally { fan_out, ..Tally::default() };
            json!({})
        }
        Ask::Count => json!({ "arrived": tally.arrived }),
        Ask::Report { events, refused } => json!(tally.report(events, &refused)),
    }
}

async fn listen(listener: TcpListener, tally: Shared) {
    while let Ok((stream, _)) = listener.accept().await {
        drop(tokio::spawn(serve(stream, Arc::clone(&tally))));
    }
}

async fn serve(mut stream: TcpStream, tally: Shared) {
    drop(stream.set_nodelay(true));
    let mut buffer = Vec::with_capacity(32 * 1024);
    while let Ok(1..) = stream.read_buf(&mut buffer).await {
        while let Some(request) = http::message(&buffer) {
            let answered = if buffer.starts_with(b"GET") {
                let count = locked(&tally).arrived.to_string();
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", count.len());
                stream.write_all((head + &count).as_bytes()).await
            } else {
                note(&buffer[..request.end], request.body, &tally);
                stream.write_all(ANSWER).await
            };
            buffer.drain(..request.end);
            if answered.is_err() {
                return;
            }
        }
    }
}

/// Records a request. The path ends with the index of the subscription among those that get the
/// event.
fn note(request: &[u8], body: usize, tally: &Shared) {
    let now_us = message::now_us();
    let slot = http::path(request).and_then(|path| {
        let last = path.rsplit(|byte| *byte == b'/').next()?;
        std::str::from_utf8(last).ok()?.parse().ok()
    });
    let found = message::find(request.get(body..).unwrap_or_default());
    let mut tally = locked(tally);
    match (found, slot) {
        (Some((n, meant_us)), Some(slot)) => tally.arrive(n, slot, meant_us, now_us),
        (_, _) => tally.unexpected += 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_distinguishes_lost_repeated_and_unexpected() {
        let mut tally = Tally { fan_out: 2, ..Tally::default() };
        for (n, slot) in [(0, 0), (0, 1), (1, 0), (1, 0), (3, 0), (3, 1), (9, 5)] {
            tally.arrive(n, slot, 100, 100 + n);
        }
        // Of four events the last one was refused, so it should not have arrived; the third has not
        // arrived; the second has arrived twice at one subscription and never at the other.
        let report = tally.report(4, &[3]);
        assert_eq!((report.arrived, report.lost), (7, 3));
        assert_eq!((report.repeated, report.unexpected), (1, 3));
    }

    #[test]
    fn percentiles_are_samples() {
        let latency = Latency::of((1..=1000).rev().collect());
        assert_eq!((latency.p50, latency.p90, latency.p99, latency.max), (500, 900, 990, 1000));
        assert_eq!(Latency::of(vec![7]), Latency { p50: 7, p90: 7, p99: 7, max: 7 });
        assert_eq!(Latency::of(Vec::new()), Latency::default());
    }
}
