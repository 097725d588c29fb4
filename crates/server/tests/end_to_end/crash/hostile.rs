//! Receivers that misbehave in many ways, all at the same time.
//!
//! Each has its own URL, and so its own destination. There are no retries: the one attempt of each
//! delivery is checked.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value as Json, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::crash::{count, figure};
use crate::support::{Start, balances};

/// An event's data is this text, repeated: long enough not to fit into socket buffers.
const BODY: &str = "a receiver that answers early has not read all of this";
const BODIES: usize = 100;

/// The expected outcome of an attempt.
#[derive(Debug, Clone, PartialEq)]
struct Expected {
    status: Option<u16>,
    error: Option<String>,
    /// How its body ends, if that matters.
    body: Option<&'static str>,
}

fn answered(status: u16) -> Expected {
    let error = (!(200..300).contains(&status)).then(|| format!("status {status}"));
    Expected { status: Some(status), error, body: None }
}

fn delivered(body: &'static str) -> Expected {
    Expected { body: Some(body), ..answered(200) }
}

fn failed(error: &str) -> Expected {
    Expected { status: None, error: Some(error.to_owned()), body: None }
}

/// The behaviour of a receiver when a request arrives.
#[derive(Clone)]
enum Mood {
    /// Closes without reading the request, which resets the connection.
    Resets,
    /// Reads the request and closes its sending side.
    HalfCloses,
    /// Reads the request and never answers.
    Hangs,
    /// Answers with this and closes.
    Answers(Arc<Vec<u8>>),
    /// Sends the first text, and then the second one for ever.
    Repeats(&'static [u8], &'static [u8]),
    /// Sends this text, and then a byte now and then.
    Dribbles(&'static [u8]),
}

/// Reads the head of a request and the available part of its body.
async fn read_request(stream: &mut TcpStream) {
    let mut request: Vec<u8> = Vec::new();
    let mut buffer = [0; 4096];
    while !request.windows(4).any(|window| window == b"\r\n\r\n") {
        match stream.read(&mut buffer).await {
            Ok(read @ 1..) => request.extend(&buffer[..read]),
            Ok(0) | Err(_) => return,
        }
    }
}

impl Mood {
    /// Whether it never ends by itself: its connection is open until the sender closes it.
    fn is_endless(&self) -> bool {
        match self {
            Mood::Hangs | Mood::Repeats(..) | Mood::Dribbles(_) => true,
            Mood::Resets | Mood::HalfCloses | Mood::Answers(_) => false,
        }
    }
}

/// Connections of receivers that never end.
#[derive(Default)]
struct Endless {
    open: AtomicUsize,
    closed: AtomicUsize,
}

/// Errors mean that the sender has disconnected.
async fn behave(mood: Mood, mut stream: TcpStream) -> std::io::Result<()> {
    match mood {
        Mood::Resets => {
            stream.readable().await?;
            return Ok(());
        }
        Mood::HalfCloses => {
            read_request(&mut stream).await;
            stream.shutdown().await?;
        }
        Mood::Hangs => read_request(&mut stream).await,
        Mood::Answers(bytes) => {
            read_request(&mut stream).await;
            stream.write_all(&bytes).await?;
            stream.shutdown().await?;
        }
        Mood::Repeats(begin, again) => {
            read_request(&mut stream).await;
            stream.write_all(begin).await?;
            loop {
                stream.write_all(again).await?;
            }
        }
        Mood::Dribbles(begin) => {
            read_request(&mut stream).await;
            stream.write_all(begin).await?;
            let mut tick = tokio::time::interval(Duration::from_millis(200));
            loop {
                tick.tick().await;
                stream.write_all(b"x").await?;
            }
        }
    }
    // Reads everything else, until the sender disconnects.
    let mut buffer = [0; 4096];
    while stream.read(&mut buffer).await? > 0 {}
    Ok(())
}

/// Counts the connection of a receiver that never ends while it is open.
async fn counted(
    endless: Option<Arc<Endless>>,
    behaves: impl Future<Output = std::io::Result<()>>,
) {
    let Some(endless) = endless else { return drop(behaves.await) };
    endless.open.fetch_add(1, Ordering::SeqCst);
    drop(behaves.await);
    endless.open.fetch_sub(1, Ordering::SeqCst);
    endless.closed.fetch_add(1, Ordering::SeqCst);
}

/// Gzip of zeros, 160 times as many as its bytes: one block with the fixed codes, a zero and then
/// repetitions of length 258.
fn gzip_bomb(bytes: usize) -> Vec<u8> {
    let mut bits = Vec::new();
    let mut push = |value: u32, count: u32| (0..count).for_each(|n| bits.push(value >> n & 1));
    push(0b011, 3);
    push(0b0000_1100, 8);
    for _ in 0..bytes * 8 / 13 {
        push(0b1010_0011, 8);
        push(0, 5);
    }
    push(0, 7);
    let head = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    let packed = bits
        .chunks(8)
        .map(|byte| byte.iter().rev().fold(0u8, |sum, bit| sum << 1 | u8::try_from(*bit).unwrap()));
    head.into_iter().chain(packed).collect()
}

fn bytes(text: &str) -> Mood {
    Mood::Answers(Arc::new(text.as_bytes().to_vec()))
}

fn many_headers(count: usize) -> Mood {
    let headers: String = (0..count).map(|n| format!("x-{n}: {n}\r\n")).collect();
    bytes(&format!("HTTP/1.1 200 OK\r\n{headers}content-length: 0\r\n\r\n"))
}

/// All cases except those about a status: name, behaviour, and expected outcome.
fn moods() -> Vec<(&'static str, Mood, Expected)> {
    let bomb = gzip_bomb(1 << 20);
    let mut zipped = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n\r\n".to_vec();
    zipped.extend(&bomb);
    let ok = b"HTTP/1.1 200 OK\r\n";
    let endless = b"HTTP/1.1 200 OK\r\n\r\n";
    let chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let timeout = || failed("timeout (response)");
    let protocol = || failed("protocol");
    vec![
        ("resets", Mood::Resets, failed("reset")),
        ("half-closes", Mood::HalfCloses, failed("reset")),
        ("closes within the head", bytes("HTTP/1.1 200 OK\r\ncontent-le"), failed("reset")),
        ("hangs", Mood::Hangs, timeout()),
        ("dribbles a status line", Mood::Dribbles(b"HTTP/1.1 200 "), timeout()),
        ("dribbles a head", Mood::Dribbles(b"HTTP/1.1 200 OK\r\nx: "), timeout()),
        ("dribbles a body", Mood::Dribbles(endless), delivered("late")),
        ("garbage", bytes("\u{1}\u{2}\u{3}garbage\r\n\r\n"), protocol()),
        ("another protocol", bytes("SSH-2.0-OpenSSH_9.6\r\n"), protocol()),
        ("no status", bytes("HTTP/1.1 OK\r\n\r\n"), protocol()),
        ("a status of four digits", bytes("HTTP/1.1 2000 OK\r\n\r\n"), protocol()),
        ("an endless body", Mood::Repeats(endless, &[b'x'; 65536]), delivered("cut")),
        ("endless chunks", Mood::Repeats(chunked, b"5\r\nabcde\r\n"), delivered("cut")),
        ("endless headers", Mood::Repeats(ok, b"x: y\r\n"), protocol()),
        ("an endless header", Mood::Repeats(ok, &[b'x'; 65536]), protocol()),
        (
            "endless interim answers",
            Mood::Repeats(b"", b"HTTP/1.1 103 Early\r\nlink: </a>\r\n\r\n"),
            protocol(),
        ),
        ("a gzip bomb", Mood::Answers(Arc::new(zipped)), delivered("cut")),
        ("100,000 headers", many_headers(100_000), protocol()),
        ("90 headers", many_headers(90), delivered("whole")),
        (
            "a body that breaks off",
            bytes("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nshort"),
            delivered("broken"),
        ),
        (
            "two lengths",
            bytes("HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nx"),
            protocol(),
        ),
    ]
}

/// Every kind of redirect target; `trap` counts requests that follow one.
fn redirects(trap: SocketAddr) -> Vec<(String, Mood, Expected)> {
    let targets = [
        format!("http://{trap}/trap"),
        format!("//{trap}/trap"),
        "/elsewhere".to_owned(),
        "elsewhere".to_owned(),
        String::new(),
        "http://169.254.169.254/latest/meta-data/".to_owned(),
        "http://[::1]/".to_owned(),
        "https://192.0.2.1/".to_owned(),
        "file:///etc/passwd".to_owned(),
        "gopher://127.0.0.1/".to_owned(),
        "javascript:alert(1)".to_owned(),
    ];
    let mut all = Vec::new();
    for status in [300, 301, 302, 303, 304, 305, 307, 308] {
        for target in &targets {
            let head = format!("HTTP/1.1 {status} x\r\nlocation: {target}\r\n");
            let answer = bytes(&format!("{head}content-length: 0\r\n\r\n"));
            all.push((format!("{status} to {target:?}"), answer, answered(status)));
        }
    }
    all
}

struct Case {
    name: String,
    expected: Expected,
    events: usize,
    address: SocketAddr,
}

/// Starts a listener for each case, on a thread of its own.
fn start_all(
    cases: Vec<(String, Mood, Expected)>,
    times: usize,
    endless: &Arc<Endless>,
) -> Vec<Case> {
    let endless = Arc::clone(endless);
    let (sender, started) = std::sync::mpsc::channel();
    drop(thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            for (name, mood, expected) in cases {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let address = listener.local_addr().unwrap();
                let endless = mood.is_endless().then(|| Arc::clone(&endless));
                drop(tokio::spawn(async move {
                    while let Ok((stream, _)) = listener.accept().await {
                        drop(tokio::spawn(counted(endless.clone(), behave(mood.clone(), stream))));
                    }
                }));
                let events = if expected.error.as_ref().is_some_and(|e| e.starts_with("status")) {
                    1
                } else {
                    times
                };
                sender.send(Case { name, expected, events, address }).unwrap();
            }
            drop(sender);
            std::future::pending::<()>().await;
        });
    }));
    started.iter().collect()
}

fn all_cases(trap: SocketAddr) -> Vec<(String, Mood, Expected)> {
    let mut cases: Vec<_> =
        moods().into_iter().map(|(name, mood, end)| (name.to_owned(), mood, end)).collect();
    for status in 200..600u16 {
        let answer = bytes(&format!("HTTP/1.1 {status} x\r\ncontent-length: 0\r\n\r\n"));
        cases.push((format!("status {status}"), answer, answered(status)));
    }
    // An interim response is not a response: the connection ends before there is one.
    for status in (100..200u16).filter(|status| *status != 101) {
        let answer = bytes(&format!("HTTP/1.1 {status} x\r\n\r\n"));
        cases.push((format!("status {status}"), answer, failed("reset")));
    }
    cases.push(("status 101".to_owned(), bytes("HTTP/1.1 101 x\r\n\r\n"), answered(101)));
    cases.extend(redirects(trap));
    cases
}

/// Checks the attempt of one delivery; returns its duration.
fn check(case: &Case, delivery: &Json) -> u64 {
    let log = delivery["attempt_log"].as_array().unwrap();
    assert_eq!(log.len(), 1, "{}: {delivery}", case.name);
    let (attempt, Expected { status, error, body }) = (&log[0], &case.expected);
    assert_eq!(attempt["status"], json!(status), "{}: {attempt}", case.name);
    assert_eq!(attempt["error"], json!(error), "{}: {attempt}", case.name);
    if let Some(body) = body {
        assert_eq!(attempt["response_body_end"], *body, "{}: {attempt}", case.name);
    }
    let kept = attempt["response_body"].as_str().unwrap_or_default();
    // A byte that is not UTF-8 is shown as three bytes.
    assert!(kept.len() <= 3 * 16 * 1024, "{}: {} bytes kept", case.name, kept.len());
    let state = if error.is_none() { "delivered" } else { "dead" };
    assert_eq!(delivery["state"], state, "{}: {delivery}", case.name);
    attempt["duration_ms"].as_u64().unwrap()
}

#[test]
fn every_hostile_receiver_gets_its_class_within_the_deadline_and_the_memory() {
    let trapped = Arc::new(AtomicUsize::new(0));
    let trap = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let trap_address = trap.local_addr().unwrap();
    let counter = Arc::clone(&trapped);
    drop(thread::spawn(move || {
        for _ in trap.incoming() {
            counter.fetch_add(1, Ordering::SeqCst);
        }
    }));
    rlimit::increase_nofile_limit(u64::MAX).unwrap();
    let endless = Arc::new(Endless::default());
    let cases = start_all(all_cases(trap_address), count("CRASH_HOSTILE_EACH", 5), &endless);
    let mut server = Start::dev().with(&["--set", "retry.max=0"]).fresh();
    let mut by_subscription = HashMap::new();
    let mut events = Vec::new();
    for (n, case) in cases.iter().enumerate() {
        let kind = format!("hostile.n{n}");
        let body = json!({ "url": format!("http://{}/hook", case.address), "types": [kind] });
        let made = server.ask("POST", "/v1/subscriptions", Some(&body), 201);
        by_subscription.insert(made["id"].as_str().unwrap().to_owned(), case);
        let data = BODY.repeat(BODIES);
        events.extend((0..case.events).map(|_| json!({ "type": kind, "data": data })));
    }
    let before = server.peak_memory_kib();
    for batch in events.chunks(1000) {
        server.ask("POST", "/v1/events/batch", Some(&json!(batch)), 202);
    }
    // The attempts of one destination follow each other, so many take long; but some must end all
    // the time.
    let (all, mut ended) = (u64::try_from(events.len()).unwrap(), 0);
    while ended < all {
        ended = server.wait("another delivery to end", |server| {
            let ledger = server.ledger();
            let now = ledger["delivered"].as_u64().unwrap() + ledger["dead"].as_u64().unwrap();
            (now > ended).then_some(now)
        });
    }
    let grown = (server.peak_memory_kib() - before) / 1024;
    let (mut slowest, mut successes) = (0, 0);
    for delivery in server.all("/v1/deliveries") {
        let case = by_subscription[delivery["subscription_id"].as_str().unwrap()];
        let path = format!("/v1/deliveries/{}", delivery["id"].as_str().unwrap());
        slowest = slowest.max(check(case, &server.get(&path)));
        successes += usize::from(case.expected.error.is_none());
    }
    assert_eq!(trapped.load(Ordering::SeqCst), 0, "a redirect was followed");
    // Receivers that hang, dribble or repeat go on until the sender closes the connection. So every attempt
    // on them was ended by its deadline or its limits, and none holds a connection afterwards.
    server.wait("the server to close the connections of endless receivers", |_| {
        (endless.open.load(Ordering::SeqCst) == 0).then_some(())
    });
    assert!(endless.closed.load(Ordering::SeqCst) >= 9, "there were endless receivers");
    let handed_in = u64::try_from(events.len() * BODY.len() * BODIES / (1 << 20)).unwrap();
    assert!(grown < 120 + handed_in, "memory grew by {grown} MiB, {handed_in} of them handed in");
    assert!(balances(&server.ledger()));
    figure(&format!(
        "hostile receivers: {} kinds, {} attempts, {successes} successes and all of them 2xx, each \
         with its class, slowest {slowest} ms, memory grew by {grown} MiB, 0 redirects followed",
        cases.len(),
        events.len()
    ));
}
