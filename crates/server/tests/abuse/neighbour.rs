//! The noisy neighbour: one tenant runs all attacks at once, another is measured alone and beside it.
//!
//! The attacker is a process of its own at the lowest priority (`nice -n 19`), and every one of its
//! attacks has a fixed rate, so that the measurement shows the server and not the attacker's share
//! of the processor. Both processor times are printed. The victim sends by a fixed schedule: a
//! latency counts from the time at which its request was due, so a stall counts for every request
//! that it delays.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::kit::{Client, VICTIM, Verdict, ms, now, percentile};
use crate::scene::Scene;

/// The length of a run, and the victim's events per second in it.
const TURN: Duration = Duration::from_secs(10);
const PER_SECOND: u32 = 100;
/// The victim's connections; each sends an equal share.
const SENDERS: u32 = 4;
/// The pages of deliveries that the victim reads per second, on a separate connection.
const LISTS_PER_SECOND: u32 = 20;
/// An event that has not arrived this long after the run counts as arriving then.
const LAST_ARRIVAL: Duration = Duration::from_secs(30);

/// When each of the victim's events arrived, by its number.
#[derive(Default)]
struct Arrivals(Mutex<Vec<Option<Instant>>>);

/// A minimal receiver: it records the number in the path of each request.
fn receiver(arrivals: &Arc<Arrivals>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let arrivals = Arc::clone(arrivals);
    drop(thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let arrivals = Arc::clone(&arrivals);
            drop(thread::spawn(move || take(stream, &arrivals)));
        }
    }));
    address
}

fn take(stream: TcpStream, arrivals: &Arrivals) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let mut writer = stream.try_clone().ok()?;
    let mut reader = BufReader::new(stream);
    loop {
        let (mut line, mut length) = (String::new(), 0);
        while line != "\r\n" {
            line.clear();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            let header = line.to_ascii_lowercase();
            if let Some(value) = header.strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let at = now();
        let body: serde_json::Value = serde_json::from_slice(&body).ok()?;
        if let Some(number) = body["data"]["n"].as_u64() {
            let mut all = arrivals.0.lock().unwrap();
            if let Some(place) = all.get_mut(usize::try_from(number).ok()?) {
                place.get_or_insert(at);
            }
        }
        writer.write_all(b"HTTP/1.1 200 x\r\ncontent-length: 0\r\n\r\n").ok()?;
    }
}

/// What the victim measured in one run.
#[derive(Default)]
struct Turn {
    arrival: Vec<Duration>,
    /// From the time at which a request was due to its answer: for events, and for lists.
    sent: Vec<Duration>,
    listed: Vec<Duration>,
    failed: usize,
    server_cpu: Duration,
    attacker_cpu: Duration,
    lasted: Duration,
}

fn is(answer: std::io::Result<crate::kit::Answer>, status: u16) -> bool {
    answer.is_ok_and(|answer| answer.status == status)
}

/// Sends the requests of one connection, one after the other; returns the latencies and the number
/// of failures.
fn send(
    address: SocketAddr,
    key: &str,
    start: Instant,
    numbers: impl Iterator<Item = (u32, u32)>,
    mut request: impl FnMut(&mut Client, u32) -> bool,
) -> (Vec<Duration>, usize) {
    let mut client = Client::new(address, key, VICTIM);
    let (mut answered, mut failed) = (Vec::new(), 0);
    for (n, of) in numbers {
        let due = start + TURN * n / of;
        while now() < due {
            thread::park_timeout(due.saturating_duration_since(now()));
        }
        // After a long stall nothing more is sent: the remaining requests count as failed.
        let is_over = now() > start + TURN + LAST_ARRIVAL;
        failed += usize::from(is_over || !request(&mut client, n));
        answered.push(due.elapsed());
    }
    (answered, failed)
}

/// One sender's share of the events.
fn send_events(
    address: SocketAddr,
    key: &str,
    sender: u32,
    start: Instant,
) -> (Vec<Duration>, usize) {
    let total = PER_SECOND * 10;
    let numbers = (sender..total).step_by(usize::try_from(SENDERS).unwrap()).map(|n| (n, total));
    send(address, key, start, numbers, |client, n| {
        let body = json!({"type": "good.event", "data": {"n": n}}).to_string();
        is(client.send("POST", "/v1/events", "", body.as_bytes()), 202)
    })
}

fn send_lists(address: SocketAddr, key: &str, start: Instant) -> (Vec<Duration>, usize) {
    let total = LISTS_PER_SECOND * 10;
    send(address, key, start, (0..total).map(|n| (n, total)), |client, _| {
        is(client.get("/v1/deliveries?limit=10"), 200)
    })
}

fn turn(scene: &Scene, arrivals: &Arrivals, attacker: u32) -> Turn {
    let total = PER_SECOND * 10;
    *arrivals.0.lock().unwrap() = vec![None; usize::try_from(total).unwrap()];
    let before = [cpu(scene.server.pid()), cpu(attacker)];
    let (address, key) = (scene.address(), scene.alice.as_str());
    let start = now() + Duration::from_millis(50);
    let mut turn = Turn::default();
    thread::scope(|scope| {
        let senders: Vec<_> = (0..SENDERS)
            .map(|n| scope.spawn(move || send_events(address, key, n, start)))
            .collect();
        let (listed, failed) = send_lists(address, key, start);
        turn.listed = listed;
        turn.failed += failed;
        for sender in senders {
            let (sent, failed) = sender.join().unwrap();
            turn.sent.extend(sent);
            turn.failed += failed;
        }
    });
    let [server_cpu, attacker_cpu] = [cpu(scene.server.pid()), cpu(attacker)];
    turn.server_cpu = server_cpu.saturating_sub(before[0]);
    turn.attacker_cpu = attacker_cpu.saturating_sub(before[1]);
    turn.lasted = start.elapsed();
    let until = now() + LAST_ARRIVAL;
    while now() < until && arrivals.0.lock().unwrap().iter().any(Option::is_none) {
        thread::park_timeout(Duration::from_millis(20));
    }
    for (n, arrived) in (0u32..).zip(arrivals.0.lock().unwrap().iter()) {
        let due = start + TURN * n / total;
        let arrived = arrived.unwrap_or_else(|| {
            turn.failed += 1;
            until
        });
        turn.arrival.push(arrived.saturating_duration_since(due));
    }
    turn
}

/// The processor time that a process has used.
fn cpu(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split(' ').collect();
    let ticks = |n: usize| fields.get(n).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    // After the process name: the state is field 1, user and system time are 12 and 13, in
    // hundredths of a second.
    Duration::from_millis((ticks(12) + ticks(13)) * 10)
}

/// The attacker's process; it is killed on drop.
struct Attacker(Child);

impl Attacker {
    /// Starts it and waits until its preparations are done.
    fn start(scene: &Scene) -> Attacker {
        let program = std::env::current_exe().unwrap();
        let mut command = Command::new("nice");
        command.args(["-n", "19"]).arg(program);
        command.args(["--ignored", "--exact", "storm::attacker_process", "--nocapture"]);
        let keys = [scene.mallory.as_str(), scene.reader.as_str()];
        let target = format!("{} {} {} {}", scene.address(), keys[0], keys[1], only());
        command.env("ABUSE_TARGET", target.trim_end());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let ready =
            lines.by_ref().map_while(Result::ok).any(|line| line.contains("attacker ready"));
        assert!(ready, "the attacker ended");
        // Its output must be read, so that it does not block.
        drop(thread::spawn(move || lines.for_each(drop)));
        Attacker(child)
    }

    fn go(&mut self) {
        self.0.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    }
}

impl Drop for Attacker {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[expect(clippy::disallowed_methods, reason = "the number of rounds comes from the command line")]
fn rounds() -> usize {
    std::env::var("ABUSE_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(5)
}

/// Parts of the names of attacks, separated by spaces, to run only these.
#[expect(clippy::disallowed_methods, reason = "the attacks come from the command line")]
fn only() -> String {
    std::env::var("ABUSE_ONLY").unwrap_or_default()
}

#[test]
#[ignore = "minutes of real time: `cargo xtask abuse neighbour`"]
fn attacks_of_one_tenant_do_not_affect_another() {
    let mut verdict = Verdict::of("noisy neighbour");
    let rounds = rounds();
    let mut turns: [Vec<Turn>; 2] = [Vec::new(), Vec::new()];
    let mut peak = 0;
    for round in 1..=rounds {
        let scene = Scene::start();
        let arrivals = Arc::new(Arrivals::default());
        let url = format!("http://{}/", receiver(&arrivals));
        let wish = json!({"url": url, "types": ["good.*"]});
        assert_eq!(scene.victim().status("POST", "/v1/subscriptions", &wish), 201);
        let mut attacker = Attacker::start(&scene);
        let pid = attacker.0.id();
        let alone = turn(&scene, &arrivals, pid);
        attacker.go();
        // After some seconds all attacks are running.
        thread::park_timeout(Duration::from_secs(5));
        let beside = turn(&scene, &arrivals, pid);
        peak = peak.max(scene.peak());
        println!("round {round}: alone {}; beside {}", shown(&alone), shown(&beside));
        turns[0].push(alone);
        turns[1].push(beside);
    }
    let [alone, beside] = &turns;
    for (name, of) in [
        ("event to arrival", (|turn| &turn.arrival) as fn(&Turn) -> &Vec<Duration>),
        ("API for events", |turn| &turn.sent),
        ("API for lists", |turn| &turn.listed),
    ] {
        let pooled = |turns: &[Turn], p: usize| {
            percentile(&turns.iter().flat_map(|turn| of(turn).clone()).collect::<Vec<_>>(), p)
        };
        let mut ratios: Vec<f64> = (alone.iter().zip(beside))
            .map(|(a, b)| percentile(of(b), 99).as_secs_f64() / percentile(of(a), 99).as_secs_f64())
            .collect();
        ratios.sort_by(f64::total_cmp);
        let median = ratios[ratios.len() / 2];
        verdict.figure(format!(
            "{name} p50 {} alone, {} beside; p99 {} alone, {} beside (median of the rounds {median:.2} x)",
            ms(pooled(alone, 50)),
            ms(pooled(beside, 50)),
            ms(pooled(alone, 99)),
            ms(pooled(beside, 99)),
        ));
        verdict.must(median <= 1.5, format!("{name}: p99 {median:.2} x"));
    }
    let failed: usize = beside.iter().map(|turn| turn.failed).sum();
    let percent = |time: fn(&Turn) -> Duration, turns: &[Turn]| {
        let all: f64 = turns.iter().map(|turn| time(turn).as_secs_f64()).sum();
        let lasted: f64 = turns.iter().map(|turn| turn.lasted.as_secs_f64()).sum();
        format!("{:.0} %", all * 100.0 / lasted)
    };
    verdict.figure(format!(
        "{rounds} rounds, {failed} of the victim's requests failed or came too late; of one processor \
         the server used {} alone and {} beside, the attacker {}; memory at most {peak} MiB",
        percent(|turn| turn.server_cpu, alone),
        percent(|turn| turn.server_cpu, beside),
        percent(|turn| turn.attacker_cpu, beside),
    ));
    verdict.must(failed == 0, format!("{failed} of the victim's requests failed or came too late"));
    verdict.end();
}

fn shown(turn: &Turn) -> String {
    let [p50, p99] = [50, 99].map(|p| ms(percentile(&turn.arrival, p)));
    let [sent, listed] = [&turn.sent, &turn.listed].map(|times| ms(percentile(times, 99)));
    format!(
        "arrival p50 {p50}, p99 {p99}, events p99 {sent}, lists p99 {listed}, {} failed, server {:.1} s, attacker {:.1} s",
        turn.failed,
        turn.server_cpu.as_secs_f64(),
        turn.attacker_cpu.as_secs_f64()
    )
}
