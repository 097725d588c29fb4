//! The attacker's process: it runs all attacks of one tenant at once, each at its own rate.

use std::io::{BufRead as _, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::filters::{event, filter};
use crate::kit::{ATTACKER, Client, connect, now, request_head};
use crate::receivers::hanging;
use crate::wire::{END_HEADERS, HEADERS, Http2, PING, RST_STREAM, frame, request};

/// The server to attack, and the keys.
#[derive(Clone)]
struct Target {
    address: SocketAddr,
    /// A key with every scope except `admin`.
    key: String,
    /// A key with the scope `read` alone.
    reader: String,
    /// A receiver that hangs.
    hole: SocketAddr,
    /// Subscriptions of the attacker.
    subscriptions: Vec<String>,
    /// Parts of the names of the attacks to run; empty for all.
    only: Vec<String>,
}

impl Target {
    fn client(&self) -> Client {
        Client::new(self.address, &self.key, ATTACKER)
    }
}

/// Repeats an action on a thread of its own, with at least this time between two runs.
fn every(
    name: &str,
    pause: Duration,
    target: &Target,
    mut attack: impl FnMut(&Target, usize) + Send + 'static,
) {
    if !target.only.is_empty() && !target.only.iter().any(|part| name.contains(part.as_str())) {
        return;
    }
    let target = target.clone();
    drop(thread::spawn(move || {
        for n in 0.. {
            let next = now() + pause;
            attack(&target, n);
            thread::park_timeout(next.saturating_duration_since(now()));
        }
    }));
}

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[test]
#[ignore = "started by the noisy neighbour's test"]
fn attacker_process() {
    #[expect(clippy::disallowed_methods, reason = "whoever starts it says whom to attack")]
    let Ok(words) = std::env::var("ABUSE_TARGET") else { return };
    drop(rlimit::increase_nofile_limit(u64::MAX));
    let words: Vec<&str> = words.split(' ').collect();
    let mut target = Target {
        address: words[0].parse().unwrap(),
        key: words[1].to_owned(),
        reader: words[2].to_owned(),
        hole: hanging(),
        subscriptions: Vec::new(),
        only: words[3..].iter().map(|&part| part.to_owned()).collect(),
    };
    prepare(&mut target);
    println!("attacker ready");
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).unwrap();
    assert_eq!(line.trim(), "go");
    requests(&target);
    bodies(&target);
    connections(&target);
    flows(&target);
    // Until the parent process ends it, or has ended.
    drop(std::io::stdin().lock().read_to_end(&mut Vec::new()));
}

/// Creates subscriptions with costly filters and hanging receivers, and a history for the lists.
/// Whatever a quota refuses is skipped.
fn prepare(target: &mut Target) {
    let mut client = target.client();
    let mut subscribe = |wish: Json| {
        let answer = client.post("/v1/subscriptions", &wish).unwrap();
        answer.json()["id"].as_str().map(str::to_owned)
    };
    for n in 0..300 {
        let url = format!("http://{}/{n}", target.hole);
        target.subscriptions.extend(subscribe(json!({"url": url, "types": ["large.event"]})));
    }
    for n in 0..20 {
        let url = format!("http://{}/f{n}", target.hole);
        subscribe(json!({"url": url, "types": ["filtered.event"], "filter": filter(9)}));
    }
    for n in 0..20 {
        let url = format!("http://{}/b{n}", target.hole);
        subscribe(json!({"url": url, "types": ["batch.event"]}));
    }
    let batch = json!(vec![json!({"type": "nobody.wants", "data": "x".repeat(3_000)}); 1000]);
    for _ in 0..5 {
        client.post("/v1/events/batch", &batch).unwrap();
    }
}

/// Complete requests that cost the server more than the attacker.
fn requests(target: &Target) {
    // 16 costly filter tests a second.
    for _ in 0..4 {
        let body = json!({"filter": filter(9), "event": event(140_000)}).to_string();
        every("filter-tests", millis(250), target, move |target, _| {
            let mut client = Client::new(target.address, &target.reader, ATTACKER);
            drop(client.send("POST", "/v1/filters/test", "", body.as_bytes()));
        });
    }
    // 100 lists a second that find nothing, 50 explanations, 20 pages of a megabyte.
    for _ in 0..10 {
        every("empty-lists", millis(100), target, |target, n| {
            let subscription = target.subscriptions.get(n % 7).map_or("none", String::as_str);
            let path = format!("/v1/deliveries?subscription={subscription}&state=dead&limit=1000");
            drop(target.client().get(&path));
        });
    }
    every("explanations", millis(20), target, |target, n| {
        let list = target.client().get("/v1/deliveries?limit=1");
        let id = list.map_or(Json::Null, |answer| answer.json()["data"][0]["id"].clone());
        if n % 2 == 0 {
            let id = id.as_str().unwrap_or("none");
            drop(target.client().get(&format!("/v1/deliveries/{id}/explain")));
        }
    });
    every("large-pages", millis(50), target, |target, _| {
        drop(target.client().get("/v1/events?limit=1000"))
    });
    // 50 unknown keys per second, each of which must be looked up.
    every("unknown-keys", millis(20), target, |target, n| {
        let key = format!("pr_{n:016x}_{}", "A".repeat(43));
        drop(Client::new(target.address, &key, ATTACKER).get("/v1/events"));
    });
    // Ten replays per second, ten subscriptions created and deleted, twenty test sends at a time.
    every("replays", millis(100), target, |target, _| {
        drop(target.client().post("/v1/replays", &json!({"state": "delivered", "per_second": 1})));
    });
    every("churn", millis(100), target, |target, n| {
        let url = format!("http://{}/c{}", target.hole, n % 50);
        let wish = json!({"url": url, "types": ["churn.event"]});
        let made = target.client().post("/v1/subscriptions", &wish);
        let id = made.map_or(Json::Null, |answer| answer.json()["id"].clone());
        if let Some(id) = id.as_str() {
            target.client().status("DELETE", &format!("/v1/subscriptions/{id}"), &Json::Null);
        }
    });
    for sender in 0..20 {
        every("test-sends", millis(200), target, move |target, _| {
            let subscription = target.subscriptions.get(sender).map_or("none", String::as_str);
            let path = format!("/v1/subscriptions/{subscription}/test");
            target.client().status("POST", &path, &Json::Null);
        });
    }
}

/// Bodies that are held, truncated, too large or hostile.
fn bodies(target: &Target) {
    // Thirty batches of 16 MB, sent in pieces of 64 KiB ten times per second, with the read-only
    // key and with the other.
    for sender in 0..30 {
        let mut held: Option<TcpStream> = None;
        every("held-bodies", millis(100), target, move |target, n| {
            if held.is_none() {
                held = connect(target.address, ATTACKER).ok().and_then(|mut stream| {
                    stream.set_write_timeout(Some(millis(50))).ok()?;
                    let key = if sender % 2 == 0 { &target.key } else { &target.reader };
                    let head = request_head(key, "POST", "/v1/events/batch", "", 16_000_000);
                    stream.write_all(head.as_bytes()).ok()?;
                    Some(stream)
                });
            }
            let piece = [b' '; 64 * 1024];
            if held.as_mut().is_some_and(|stream| n % 100 == 0 || stream.write_all(&piece).is_err())
            {
                held = None;
            }
        });
    }
    // Five hostile bodies of half a megabyte a second.
    let nested = format!("{{\"type\":\"a.b\",\"data\":{}", "[".repeat(500_000));
    every("hostile-bodies", millis(200), target, move |target, _| {
        drop(target.client().send("POST", "/v1/events", "", nested.as_bytes()));
    });
    // Twenty requests per second whose client disconnects at once.
    every("disconnects", millis(50), target, |target, n| {
        let body = json!({"type": "nobody.wants", "data": n}).to_string();
        let headers = format!("idempotency-key: storm-{n}\r\n");
        let head = request_head(&target.key, "POST", "/v1/events", &headers, body.len());
        if let Ok(mut stream) = connect(target.address, ATTACKER) {
            drop(stream.write_all((head + &body).as_bytes()));
        }
    });
}

/// Connections that are silent, stream, do not read, or use HTTP/2.
fn connections(target: &Target) {
    // Up to 10,000 silent connections from twenty addresses, 500 per second; closed ones are
    // replaced.
    let mut open: Vec<TcpStream> = Vec::new();
    every("silent-connections", millis(20), target, move |target, n| {
        for m in 0..10 {
            let source = Ipv4Addr::new(127, 0, 0, u8::try_from(10 + (n + m) % 20).unwrap());
            if open.len() < 10_000
                && let Ok(mut stream) = connect(target.address, source)
            {
                drop(stream.write_all(b"PRI * HTTP/2.0\r\n"));
                drop(stream.set_nonblocking(true));
                open.push(stream);
            }
        }
        if n % 50 == 0 {
            open.retain_mut(|stream| {
                let read = stream.read(&mut [0; 64]);
                read.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
            });
        }
    });
    // Up to 1,100 streams, 50 per second, that are never read; twenty lists that are not read.
    for (name, path, most, pause) in
        [("streams", "/v1/stream", 1_100, 20), ("unread-lists", "/v1/events?limit=1000", 20, 250)]
    {
        let mut open: Vec<TcpStream> = Vec::new();
        every(name, millis(pause), target, move |target, n| {
            if let Ok(mut stream) = connect(target.address, ATTACKER) {
                let head = request_head(&target.key, "GET", path, "", 0);
                drop(stream.write_all(head.as_bytes()));
                if open.len() < most {
                    open.push(stream);
                } else {
                    open[n % most] = stream;
                }
            }
        });
    }
    // 2,000 streams per second that are reset at once, and 5,000 pings.
    let mut resets: Option<(Http2, u32)> = None;
    every("resets", millis(100), target, move |target, _| {
        let opened = || Some((Http2::open(target.address, ATTACKER, &[]).ok()?, 1));
        let Some((mut http2, mut stream)) = resets.take().or_else(opened) else { return };
        let block = request("POST", "/v1/events", &target.key);
        let mut bytes = Vec::new();
        for n in 0..200u64 {
            bytes.extend(frame(HEADERS, END_HEADERS, stream, &block));
            bytes.extend(frame(RST_STREAM, 0, stream, &8u32.to_be_bytes()));
            bytes.extend(frame(PING, 0, 0, &n.to_be_bytes()));
            bytes.extend(frame(PING, 0, 0, &n.to_be_bytes()));
            stream += 2;
        }
        if http2.send(&bytes).is_ok() && !http2.drain(millis(1)).1 {
            resets = Some((http2, stream));
        }
    });
}

/// Events with a large fan-out.
fn flows(target: &Target) {
    // A megabyte to 300 hanging receivers every five seconds; one per second against twenty costly
    // filters; 500 small events to twenty hanging receivers twice per second.
    let large = json!({"type": "large.event", "data": "x".repeat(1_000_000)}).to_string();
    every("large-events", millis(5_000), target, move |target, _| {
        drop(target.client().send("POST", "/v1/events", "", large.as_bytes()));
    });
    let mut filtered = event(1_000_000);
    filtered["type"] = json!("filtered.event");
    let filtered = filtered.to_string();
    every("filtered-events", millis(1_000), target, move |target, _| {
        drop(target.client().send("POST", "/v1/events", "", filtered.as_bytes()));
    });
    let batch = json!(vec![json!({"type": "batch.event", "data": 1}); 500]).to_string();
    every("batches", millis(500), target, move |target, _| {
        drop(target.client().send("POST", "/v1/events/batch", "", batch.as_bytes()));
    });
}
