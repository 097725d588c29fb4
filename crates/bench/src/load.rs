//! The load generator: sends events over connections that are kept, at a rate or as fast as they
//! are accepted.
//!
//! At a rate, each event has a scheduled time. If no connection is free then, it is sent later, but
//! its latency still counts from the scheduled time: this avoids coordinated omission.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hyper::StatusCode;
use postrider_client::{Call, Client};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{Mutex, mpsc, watch};

use super::receiver::{self, Latency};
use super::{http, message, process, system};
use postrider_cli::exit::Failure;
use postrider_cli::output::line;

/// The most refused events that are recorded; a run with more is not a measurement.
const REFUSED_MAX: usize = 10_000;
/// The precision of the schedule: a smaller one would cost too much processor time.
const TICK: Duration = Duration::from_micros(200);

/// The task of the load generator.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Load {
    /// The addresses of the servers, used in turn.
    pub(crate) servers: Vec<String>,
    pub(crate) key: String,
    pub(crate) tenant: String,
    /// Events per request.
    pub(crate) batch: u64,
    /// The number of event types; each has its own destination.
    pub(crate) kinds: u64,
    pub(crate) payload_bytes: u64,
    /// Concurrent requests.
    pub(crate) connections: u64,
    /// Events per second; `None` for as fast as possible.
    pub(crate) rate: Option<f64>,
    pub(crate) seconds: f64,
    /// The address of the receiver, to ask for the number of arrivals.
    pub(crate) receiver: String,
    pub(crate) fan_out: u64,
    /// With no rate: the most deliveries on their way. Accepting more than arrives only grows a
    /// queue, which is not a sustainable rate. Zero for no limit.
    pub(crate) window: u64,
}

impl Load {
    /// About how long the body of a request is.
    fn body_bytes(&self) -> usize {
        usize::try_from(self.batch * (self.payload_bytes + 64)).unwrap_or(0)
    }
}

/// The result of the load generator.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Sent {
    /// The number of sent events, which are numbered from 0.
    pub(crate) events: u64,
    /// Numbers of the events that were not accepted.
    pub(crate) refused: Vec<u64>,
    /// The text of the first refusal.
    pub(crate) refusal: Option<String>,
    /// When the first event was scheduled.
    pub(crate) first_us: u64,
    /// When the last answer came.
    pub(crate) last_us: u64,
    /// From the scheduled time of a request to its answer.
    pub(crate) accepted: Latency,
    /// Processor time of this process, in microseconds.
    pub(crate) cpu_us: u64,
}

/// The next request: its number and its scheduled time.
type ScheduledRequest = (u64, u64);

/// The source of requests.
enum Source {
    /// A new request as soon as a connection is free and the window allows it.
    Unlimited { next: AtomicU64, until: Instant, window: Window },
    /// By a schedule.
    Scheduled(Mutex<mpsc::UnboundedReceiver<ScheduledRequest>>),
}

impl Source {
    async fn next(&self) -> Option<ScheduledRequest> {
        match self {
            Source::Unlimited { next, until, window } => {
                if now() >= *until {
                    return None;
                }
                let number = next.fetch_add(1, Ordering::Relaxed);
                window.wait_for(number).await;
                Some((number, message::now_us()))
            }
            Source::Scheduled(requests) => requests.lock().await.recv().await,
        }
    }
}

/// Limits the deliveries on their way.
struct Window {
    /// The limit; zero for none.
    size: u64,
    /// Deliveries per request.
    of_each: u64,
    arrived: watch::Receiver<u64>,
}

impl Window {
    /// Waits until the request with this number may be sent.
    async fn wait_for(&self, number: u64) {
        if self.size == 0 {
            return;
        }
        let sent = (number + 1) * self.of_each;
        // A request that is larger than the window waits for all before it.
        let enough = sent.saturating_sub(self.size.max(self.of_each));
        // The sender is dropped only at the end.
        drop(self.arrived.clone().wait_for(|arrived| *arrived >= enough).await);
    }
}

/// Asks the receiver repeatedly how many deliveries have arrived.
#[expect(clippy::disallowed_methods, reason = "arrivals are looked at a thousand times a second")]
async fn watch_arrivals(mut receiver: Connection, seen: watch::Sender<u64>) {
    while let Ok(count) = receiver.exchange(receiver::COUNT_REQUEST).await {
        seen.send_replace(count.parse().unwrap_or(0));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[expect(clippy::disallowed_methods, reason = "a measurement reads the machine's clock")]
fn now() -> Instant {
    Instant::now()
}

/// Reads the task from the standard input, sends, and prints the result.
pub(crate) fn run() -> Result<(), Failure> {
    let load: Load = process::read_task()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut sent = runtime.block_on(send(load))?;
    sent.cpu_us = system::cpu_us(std::process::id()).unwrap_or(0);
    line(&serde_json::json!(sent).to_string())?;
    Ok(())
}

async fn send(load: Load) -> Result<Sent, Failure> {
    let mut clients = Vec::new();
    // At least one client per server, distributed evenly. A client sends one request at a time, so
    // each keeps one connection.
    let count = usize::try_from(load.connections).unwrap_or(usize::MAX).max(load.servers.len());
    for server in load.servers.iter().cycle().take(count) {
        clients.push(client(server, &load)?);
    }
    let source = Arc::new(source(&load).await?);
    let load = Arc::new(load);
    let tasks: Vec<_> = clients
        .into_iter()
        .map(|client| tokio::spawn(work(client, Arc::clone(&load), Arc::clone(&source))))
        .collect();
    let (mut sent, mut latencies) = (Sent { first_us: u64::MAX, ..Sent::default() }, Vec::new());
    for task in tasks {
        let one = task.await.map_err(|error| Failure::failed(error.to_string()))??;
        sent.events += one.events;
        sent.refused.extend(one.refused);
        sent.refusal = sent.refusal.or(one.refusal);
        sent.first_us = sent.first_us.min(one.first_us);
        sent.last_us = sent.last_us.max(one.last_us);
        latencies.extend(one.latencies);
    }
    sent.accepted = Latency::of(latencies);
    Ok(sent)
}

async fn source(load: &Load) -> Result<Source, Failure> {
    let length = Duration::from_secs_f64(load.seconds);
    let Some(rate) = load.rate else {
        let (seen, arrived) = watch::channel(0);
        if load.window > 0 {
            let receiver = Connection::open(&load.receiver).await?;
            drop(tokio::spawn(watch_arrivals(receiver, seen)));
        }
        let of_each = load.batch * load.fan_out.max(1);
        let window = Window { size: load.window, of_each, arrived };
        return Ok(Source::Unlimited { next: AtomicU64::new(0), until: now() + length, window });
    };
    #[expect(clippy::cast_precision_loss, reason = "a batch is small")]
    let gap = Duration::from_secs_f64(load.batch as f64 / rate.max(0.001));
    let (sender, requests) = mpsc::unbounded_channel();
    // A separate thread: the runtime's timers are too coarse for a latency below a millisecond.
    std::thread::Builder::new()
        .name("schedule".to_owned())
        .spawn(move || keep_schedule(gap, length, &sender))?;
    Ok(Source::Scheduled(Mutex::new(requests)))
}

#[expect(clippy::disallowed_methods, reason = "a schedule is kept by the machine's clock")]
fn keep_schedule(
    gap: Duration,
    length: Duration,
    requests: &mpsc::UnboundedSender<ScheduledRequest>,
) {
    let (begin, begin_us) = (Instant::now(), message::now_us());
    let mut due = Duration::ZERO;
    let mut number = 0;
    while due < length {
        let passed = begin.elapsed();
        if due > passed {
            std::thread::sleep((due - passed).max(TICK));
            continue;
        }
        let meant_us = begin_us + u64::try_from(due.as_micros()).unwrap_or(u64::MAX);
        if requests.send((number, meant_us)).is_err() {
            return;
        }
        number += 1;
        due = gap.mul_f64(f64::from(u32::try_from(number).unwrap_or(u32::MAX)));
    }
}

/// The result of one connection.
#[derive(Default)]
struct Part {
    events: u64,
    refused: Vec<u64>,
    refusal: Option<String>,
    first_us: u64,
    last_us: u64,
    latencies: Vec<u64>,
}

/// A client that repeats nothing: a measurement counts what was refused or lost.
fn client(server: &str, load: &Load) -> Result<Client, Failure> {
    let builder = Client::builder(format!("http://{server}")).retries(0);
    let client = builder.key(&load.key).tenant(&load.tenant).build();
    client.map_err(|error| Failure::usage(error.to_string()))
}

async fn work(client: Client, load: Arc<Load>, source: Arc<Source>) -> Result<Part, Failure> {
    let mut part = Part { first_us: u64::MAX, ..Part::default() };
    while let Some((number, meant_us)) = source.next().await {
        let first = number * load.batch;
        let mut body = Vec::with_capacity(load.body_bytes());
        put_body(&mut body, &load, first, meant_us);
        let call = match load.batch {
            1 => Call::post("/v1/events").body(body),
            _ => Call::post("/v1/events/batch").lines(body),
        };
        let answer = client.fetch(&call).await;
        part.first_us = part.first_us.min(meant_us);
        part.last_us = message::now_us();
        part.latencies.push(part.last_us.saturating_sub(meant_us));
        part.events += load.batch;
        let refusal = match answer {
            Ok((StatusCode::ACCEPTED, _)) => continue,
            Ok((status, text)) => format!("{status}: {}", String::from_utf8_lossy(&text)),
            Err(error) => error.to_string(),
        };
        part.refused.extend(first..first + load.batch);
        if part.refused.len() > REFUSED_MAX {
            return Err(Failure::failed(format!("too much was refused: {refusal}")));
        }
        part.refusal.get_or_insert(refusal);
    }
    Ok(part)
}

fn put_body(out: &mut Vec<u8>, load: &Load, first: u64, meant_us: u64) {
    for n in first..first + load.batch {
        message::put_event(out, n % load.kinds.max(1), n, meant_us, load.payload_bytes);
        out.extend_from_slice(if load.batch > 1 { b"\n" } else { b"" });
    }
}

/// A connection to the receiver of the measurement, with one request at a time.
struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    async fn open(server: &str) -> Result<Connection, Failure> {
        let stream = TcpStream::connect(server).await?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream, buffer: Vec::with_capacity(1024) })
    }

    /// The text of the answer.
    async fn exchange(&mut self, request: &[u8]) -> std::io::Result<String> {
        self.stream.write_all(request).await?;
        self.buffer.clear();
        loop {
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            if let Some(answer) = http::message(&self.buffer) {
                let text = self.buffer.get(answer.body..answer.end).unwrap_or_default();
                return Ok(String::from_utf8_lossy(text).into_owned());
            }
        }
    }
}
