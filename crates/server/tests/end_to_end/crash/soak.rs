//! Minutes with hundreds of destinations of all behaviours, in real time: afterwards nothing is
//! left over.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use postrider_test_support::receiver::listen;
use serde_json::json;

use super::{count, figure};
use crate::support::server::Server;
use crate::support::{Start, balances};

const DESTINATIONS: usize = 300;

/// One behaviour for each path `/n`, until all are told to succeed.
fn moody(is_good: Arc<AtomicBool>) -> SocketAddr {
    listen(move |stream| answer(stream, &is_good))
}

fn answer(mut stream: TcpStream, is_good: &AtomicBool) {
    let mut request = [0; 4096];
    while let Ok(read @ 1..) = stream.read(&mut request) {
        let head = String::from_utf8_lossy(&request[..read]);
        let path = head.split(' ').nth(1).and_then(|path| path.get(1..)).unwrap_or_default();
        let n: usize = path.parse().unwrap_or(0);
        let mood = if is_good.load(Ordering::Relaxed) { 9 } else { n % 10 };
        let status = match mood {
            0 => return,
            1 => {
                // Never answers, until the sender disconnects.
                while let Ok(1..) = stream.read(&mut request) {}
                return;
            }
            2 => "500 x",
            3 => "429 x\r\nretry-after: 2",
            4 => {
                thread::park_timeout(Duration::from_millis(700));
                "200 x"
            }
            5 => "302 x\r\nlocation: http://127.0.0.1/",
            _ => "200 x",
        };
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\nok");
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// Open sockets, threads, and memory in KiB. (The store's readers hold some files for good.)
fn held(server: &Server) -> (usize, usize, u64) {
    let list = |what: &str| {
        let directory = format!("/proc/{}/{what}", server.pid());
        std::fs::read_dir(directory).unwrap().filter_map(Result::ok)
    };
    let is_socket = |file: &std::fs::DirEntry| {
        std::fs::read_link(file.path()).is_ok_and(|to| to.to_string_lossy().starts_with("socket"))
    };
    let sockets = list("fd").filter(is_socket).count();
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    let memory = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    (sockets, list("task").count(), memory)
}

#[test]
#[ignore = "takes minutes; run it by name"]
#[expect(clippy::disallowed_methods, reason = "it is to last for a while of real time")]
fn after_minutes_in_all_moods_nothing_is_left_over() {
    let seconds = count("SOAK_SECONDS", 180);
    rlimit::increase_nofile_limit(u64::MAX).unwrap();
    let is_good = Arc::new(AtomicBool::new(false));
    let receivers = moody(Arc::clone(&is_good));
    let mut server = Start::dev()
        .with(&["--time-scale", "5000", "--set", "telemetry.attempts=false"])
        .with(&["--set", "attempt.deadline=1s", "--set", "dns.timeout=500ms"])
        .fresh();
    for n in 0..DESTINATIONS {
        server.subscribe_to(&format!("http://{receivers}/{n}"), &format!("kind.n{}", n % 30));
    }
    let begin = Instant::now();
    let (mut early, mut sent) = (None, 0);
    while begin.elapsed() < Duration::from_secs(seconds.try_into().unwrap()) {
        let batch: Vec<_> =
            (0..30).map(|n| json!({"type": format!("kind.n{n}"), "data": sent})).collect();
        server.ask("POST", "/v1/events/batch", Some(&json!(batch)), 202);
        sent += batch.len();
        thread::park_timeout(Duration::from_millis(100));
        // After a quarter of the time every cache and pool has its full size.
        if early.is_none() && begin.elapsed().as_secs() * 4 > u64::try_from(seconds).unwrap() {
            early = Some(held(&server));
        }
    }
    let (_, _, memory_early) = early.unwrap();
    let busy = held(&server);
    is_good.store(true, Ordering::Relaxed);
    let ledger = server.wait("everything to end", |server| {
        let ledger = server.ledger();
        let open = ["queued", "in_flight", "waiting"].map(|name| ledger[name].as_u64().unwrap());
        (open == [0, 0, 0]).then_some(ledger)
    });
    assert!(balances(&ledger), "{ledger}");
    // Idle connections are closed after some seconds.
    let rest = server.wait("connections to be closed", |server| {
        let rest = held(server);
        (rest.0 < 10).then_some(rest)
    });
    figure(&format!(
        "soak: {seconds} s, {DESTINATIONS} destinations in all moods, {sent} events, {} deliveries, \
         {} delivered, {} dead; afterwards {} open sockets (of {}), {} threads (of {}); memory {} MiB, \
         {} MiB at a quarter of the time",
        ledger["accepted"],
        ledger["delivered"],
        ledger["dead"],
        rest.0,
        busy.0,
        rest.1,
        busy.1,
        rest.2 / 1024,
        memory_early / 1024,
    ));
    assert!(rest.2 < memory_early * 3 / 2 + 20 * 1024, "memory grew to {} KiB", rest.2);
}
