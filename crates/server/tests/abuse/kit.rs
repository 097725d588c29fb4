//! Tools for attacker and victim: verdicts, connections from a chosen address, plain HTTP/1.1, and
//! a watch that measures the victim during an attack.

use std::cell::RefCell;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::Value as Json;
use tokio::net::TcpSocket;

/// A request without an answer after this time counts as unanswered. Much longer than any answer on
/// a busy machine, much shorter than the stalls that the attacks aim at.
pub(crate) const ANSWERED_WITHIN: Duration = Duration::from_secs(30);
/// Longer than any deadline of a connection, even on a busy machine.
pub(crate) const CLOSED_WITHIN: Duration = Duration::from_secs(45);

/// Half of the victim's requests must be answered within this time, also in the short form: on any machine, a
/// stall that lasts is longer.
const HALF_WITHIN: Duration = Duration::from_secs(5);
/// The victim creates a subscription in one of this many rounds.
const SUBSCRIBES_EVERY: usize = 10;

/// The address of the victim's requests.
pub(crate) const VICTIM: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// The address of the attacker's requests.
pub(crate) const ATTACKER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// Whether the suite runs in its long form (`cargo xtask abuse`).
#[expect(clippy::disallowed_methods, reason = "the long form is asked for by a variable")]
pub(crate) fn is_long() -> bool {
    std::env::var_os("ABUSE_LONG").is_some()
}

/// The value for the short or the long form.
pub(crate) fn count(short: usize, long: usize) -> usize {
    if is_long() { long } else { short }
}

#[expect(clippy::disallowed_methods, reason = "how long an answer takes is what is measured")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// The outcome of one attack: its figures and its violations.
pub(crate) struct Verdict {
    name: &'static str,
    figures: Vec<String>,
    faults: Vec<String>,
}

impl Verdict {
    pub(crate) fn of(name: &'static str) -> Verdict {
        Verdict { name, figures: Vec::new(), faults: Vec::new() }
    }

    pub(crate) fn figure(&mut self, figure: impl Into<String>) {
        self.figures.push(figure.into());
    }

    /// Records a violation unless the condition holds.
    pub(crate) fn must(&mut self, holds: bool, fault: impl Into<String>) {
        if !holds {
            self.faults.push(fault.into());
        }
    }

    /// A condition on ratios of times, checked only in the long form: a busy machine distorts them.
    pub(crate) fn must_in_long_form(&mut self, holds: bool, fault: impl Into<String>) {
        self.must(holds || !is_long(), fault);
    }

    /// Checks what the victim measured. It must always be answered, half of the time within
    /// [`HALF_WITHIN`]; in the long form its 99th percentile under attack must stay within fifty times the quiet one, which would reveal a
    /// stall.
    pub(crate) fn victim(&mut self, quiet: &Seen, beside: &Seen) {
        self.figure(format!("victim {beside} (quiet {quiet})"));
        if let Some(first) = beside.unanswered.first() {
            let count = beside.unanswered.len();
            self.must(false, format!("victim unanswered {count} times, the first {first}"));
        }
        self.must(!beside.api.is_empty(), "the victim was never answered");
        let half = beside.api_p(50);
        self.must(half < HALF_WITHIN, format!("victim stalled: p50 {}", ms(half)));
        let ratio = beside.api_p(99).as_secs_f64() / quiet.api_p(99).as_secs_f64().max(1e-4);
        self.must_in_long_form(ratio < 50.0, format!("victim stalled: p99 {ratio:.0} x quiet"));
    }

    /// Prints the line, and fails the test if there are violations.
    #[expect(clippy::print_stdout, reason = "every attack prints one line with its figures")]
    pub(crate) fn end(self) {
        let Verdict { name, figures, faults } = self;
        let figures = figures.join(", ");
        // Starts a new line, in case the test runner has begun one.
        if faults.is_empty() {
            println!("\nabuse: {name}: held: {figures}");
        } else {
            println!("\nabuse: {name}: NOT HELD: {} [{figures}]", faults.join("; "));
            panic!("{name}: {}", faults.join("; "));
        }
    }
}

thread_local! {
    static RUNTIME: RefCell<Option<tokio::runtime::Runtime>> = const { RefCell::new(None) };
}

/// Connects from this address of the loopback network.
pub(crate) fn connect(server: SocketAddr, source: Ipv4Addr) -> io::Result<TcpStream> {
    RUNTIME.with_borrow_mut(|runtime| {
        let runtime = runtime.get_or_insert_with(|| {
            tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
        });
        let stream = runtime.block_on(async {
            let socket = TcpSocket::new_v4()?;
            // Ten thousand connections from one address must not run out of lingering ports.
            socket.set_reuseaddr(true)?;
            socket.bind(SocketAddr::from((source, 0)))?;
            let connected = tokio::time::timeout(Duration::from_secs(10), socket.connect(server));
            connected.await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
        })?;
        let stream = stream.into_std()?;
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWERED_WITHIN))?;
        stream.set_write_timeout(Some(ANSWERED_WITHIN))?;
        Ok(stream)
    })
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn json(&self) -> Json {
        serde_json::from_slice(&self.body).unwrap_or(Json::Null)
    }

    /// The value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head
            .lines()
            .filter_map(|line| line.split_once(':'))
            .find_map(|(found, value)| found.eq_ignore_ascii_case(name).then_some(value.trim()))
    }
}

/// A client on one connection that is kept alive.
pub(crate) struct Client {
    server: SocketAddr,
    key: String,
    source: Ipv4Addr,
    stream: Option<BufReader<TcpStream>>,
}

impl Client {
    pub(crate) fn new(server: SocketAddr, key: &str, source: Ipv4Addr) -> Client {
        Client { server, key: key.to_owned(), source, stream: None }
    }

    /// Sends a request and reads its answer.
    pub(crate) fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &str,
        body: &[u8],
    ) -> io::Result<Answer> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => BufReader::new(connect(self.server, self.source)?),
        };
        let head = request_head(&self.key, method, path, headers, body.len());
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(body);
        stream.get_mut().write_all(&bytes)?;
        let answer = read_answer(&mut stream)?;
        if answer.header("connection") != Some("close") {
            self.stream = Some(stream);
        }
        Ok(answer)
    }

    pub(crate) fn get(&mut self, path: &str) -> io::Result<Answer> {
        self.send("GET", path, "", b"")
    }

    pub(crate) fn post(&mut self, path: &str, body: &Json) -> io::Result<Answer> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.send("POST", path, "", body.as_bytes())
    }

    /// The status of the answer; 0 if the connection was closed.
    pub(crate) fn status(&mut self, method: &str, path: &str, body: &Json) -> u16 {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.send(method, path, "", body.as_bytes()).map_or(0, |answer| answer.status)
    }
}

/// The head of a request with a body of this length.
pub(crate) fn request_head(
    key: &str,
    method: &str,
    path: &str,
    headers: &str,
    length: usize,
) -> String {
    let content_type = if headers.to_ascii_lowercase().contains("content-type:") {
        ""
    } else {
        "content-type: application/json\r\n"
    };
    format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\n\
         {content_type}{headers}content-length: {length}\r\n\r\n"
    )
}

/// Reads one answer: by length, by chunks, or until the end.
pub(crate) fn read_answer(stream: &mut BufReader<TcpStream>) -> io::Result<Answer> {
    let mut head = String::new();
    loop {
        let begin = head.len();
        if stream.read_line(&mut head)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if head[begin..].trim_end().is_empty() {
            break;
        }
    }
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| io::Error::other(format!("no status line: {head:?}")))?;
    if status == 100 {
        return read_answer(stream);
    }
    let mut answer = Answer { status, head, body: Vec::new() };
    if answer.header("transfer-encoding").is_some_and(|value| value.contains("chunked")) {
        loop {
            let mut line = String::new();
            stream.read_line(&mut line)?;
            let size = usize::from_str_radix(line.trim(), 16).map_err(io::Error::other)?;
            let begin = answer.body.len();
            answer.body.resize(begin + size + 2, 0);
            stream.read_exact(&mut answer.body[begin..])?;
            answer.body.truncate(begin + size);
            if size == 0 {
                return Ok(answer);
            }
        }
    }
    match answer.header("content-length").map(str::parse::<usize>) {
        Some(Ok(length)) => {
            answer.body.resize(length, 0);
            stream.read_exact(&mut answer.body)?;
        }
        _ if status == 204 => {}
        _ => drop(stream.read_to_end(&mut answer.body)?),
    }
    Ok(answer)
}

/// The state of a connection after waiting for its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The server closed it.
    Closed,
    /// It is still open.
    Open,
}

/// Reads and drops data until the server closes, at most until this time.
pub(crate) fn wait_for_end(stream: &mut TcpStream, until: Instant) -> End {
    let mut buffer = [0; 16 * 1024];
    loop {
        // Check at least once: it may have been closed while others were waited for.
        let left = until.saturating_duration_since(now()).max(Duration::from_millis(1));
        stream.set_read_timeout(Some(left)).unwrap();
        match stream.read(&mut buffer) {
            Ok(0) => return End::Closed,
            Ok(_) if now() >= until => return End::Open,
            Ok(_) => {}
            Err(error) if is_timeout(&error) => return End::Open,
            Err(_) => return End::Closed,
        }
    }
}

/// How many of these connections the server closes within [`CLOSED_WITHIN`].
pub(crate) fn count_closed(streams: &mut [TcpStream]) -> usize {
    let until = now() + CLOSED_WITHIN;
    let ends = streams.iter_mut().map(|stream| wait_for_end(stream, until));
    ends.filter(|end| *end == End::Closed).count()
}

pub(crate) fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// What a victim measured in one run.
#[derive(Default, Clone)]
pub(crate) struct Seen {
    pub(crate) health: Vec<Duration>,
    pub(crate) api: Vec<Duration>,
    pub(crate) unanswered: Vec<String>,
}

impl Seen {
    pub(crate) fn api_p(&self, hundredths: usize) -> Duration {
        percentile(&self.api, hundredths)
    }
}

impl std::fmt::Display for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let health = ms(percentile(&self.health, 99));
        write!(f, "healthz p99 {health}, API p99 {}", ms(self.api_p(99)))
    }
}

pub(crate) fn ms(duration: Duration) -> String {
    format!("{:.1} ms", duration.as_secs_f64() * 1e3)
}

/// The percentile of the values.
pub(crate) fn percentile(values: &[Duration], hundredths: usize) -> Duration {
    let mut values = values.to_vec();
    values.sort_unstable();
    let last = values.len().saturating_sub(1);
    values.get(last * hundredths / 100).copied().unwrap_or_default()
}

/// A victim that checks health, sends an event and lists, repeatedly, each time on a new
/// connection, until it is stopped.
pub(crate) struct Watch {
    end: Arc<AtomicBool>,
    thread: JoinHandle<Seen>,
}

impl Watch {
    pub(crate) fn start(server: SocketAddr, key: &str) -> Watch {
        let end = Arc::new(AtomicBool::new(false));
        let (told, key) = (Arc::clone(&end), key.to_owned());
        let thread = thread::spawn(move || {
            let mut seen = Seen::default();
            loop {
                tick(&mut seen, server, &key);
                if told.load(Ordering::SeqCst) || seen.unanswered.len() >= 3 {
                    return seen;
                }
                thread::park_timeout(Duration::from_millis(10));
            }
        });
        Watch { end, thread }
    }

    pub(crate) fn end(self) -> Seen {
        self.end.store(true, Ordering::SeqCst);
        self.thread.join().unwrap()
    }
}

/// A run without an attack.
pub(crate) fn quiet(server: SocketAddr, key: &str) -> Seen {
    let mut seen = Seen::default();
    for _ in 0..count(10, 100) {
        tick(&mut seen, server, key);
        thread::park_timeout(Duration::from_millis(10));
    }
    seen
}

fn tick(seen: &mut Seen, server: SocketAddr, key: &str) {
    let event = br#"{"type":"watch.tick","data":{}}"#.as_slice();
    for (method, path, body, good) in [
        ("GET", "/healthz", b"".as_slice(), 200),
        ("POST", "/v1/events", event, 202),
        ("GET", "/v1/subscriptions?limit=1", b"".as_slice(), 200),
        ("GET", "/v1/destinations?limit=1", b"".as_slice(), 200),
    ] {
        let begun = now();
        let answer = Client::new(server, key, VICTIM).send(method, path, "", body);
        let took = begun.elapsed();
        match answer {
            Ok(answer) if answer.status == good && path == "/healthz" => seen.health.push(took),
            Ok(answer) if answer.status == good => seen.api.push(took),
            Ok(answer) => {
                let why = answer.json()["detail"].to_string();
                seen.unanswered.push(format!("{method} {path}: {} {why}", answer.status));
            }
            Err(error) => {
                // One unanswered request is enough for this run.
                seen.unanswered.push(format!("{method} {path}: {error}"));
                return;
            }
        }
    }
    if seen.health.len() % SUBSCRIBES_EVERY == 1 {
        subscribe_anew(seen, server, key);
    }
}

/// Creates a subscription with a new URL, and deletes it, which is not measured.
fn subscribe_anew(seen: &mut Seen, server: SocketAddr, key: &str) {
    let url = format!("http://127.0.0.1:9/watch-{}", seen.health.len());
    let wish = serde_json::json!({"url": url, "types": ["watch.never"]});
    let mut client = Client::new(server, key, VICTIM);
    let begun = now();
    let answer = client.post("/v1/subscriptions", &wish);
    let took = begun.elapsed();
    match answer.map(|answer| (answer.status, answer.json())) {
        Ok((201, made)) => {
            seen.api.push(took);
            let path = format!("/v1/subscriptions/{}", made["id"].as_str().unwrap_or_default());
            match client.status("DELETE", &path, &Json::Null) {
                204 => {}
                other => seen.unanswered.push(format!("DELETE {path}: {other}")),
            }
        }
        Ok((status, problem)) => {
            let why = problem["detail"].to_string();
            seen.unanswered.push(format!("POST /v1/subscriptions: {status} {why}"));
        }
        Err(error) => seen.unanswered.push(format!("POST /v1/subscriptions: {error}")),
    }
}
