//! Receivers and name servers that belong to the attacker.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

use crate::kit::{Verdict, count, ms, now};
use crate::scene::Scene;
use crate::support::{Receiver, balances, text};

/// The behaviour of a hostile receiver after a request has begun.
#[derive(Debug, Clone, Copy)]
enum Mood {
    Hangs,
    InterimForever,
    HeadersForever,
    Cookies,
    SlowBody,
    RetryAfterYears,
}

/// A receiver that accepts everything and never answers.
pub(crate) fn hanging() -> SocketAddr {
    serve(Mood::Hangs).0
}

/// A receiver with this behaviour, and its number of connections.
fn serve(mood: Mood) -> (SocketAddr, Arc<AtomicUsize>) {
    let (sender, address) = std::sync::mpsc::channel();
    let taken = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&taken);
    drop(thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            sender.send(listener.local_addr().unwrap()).unwrap();
            loop {
                let Ok((stream, _)) = listener.accept().await else { continue };
                counted.fetch_add(1, Ordering::SeqCst);
                drop(tokio::spawn(treat(stream, mood)));
            }
        });
    }));
    (address.recv().unwrap(), taken)
}

/// Errors are ignored: the server may disconnect at any moment.
async fn treat(mut stream: TcpStream, mood: Mood) {
    let mut buffer = vec![0; 64 * 1024];
    let Ok(1..) = stream.read(&mut buffer).await else { return };
    match mood {
        Mood::Hangs => while let Ok(1..) = stream.read(&mut buffer).await {},
        Mood::InterimForever => {
            let interim = "HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n".repeat(100);
            while stream.write_all(interim.as_bytes()).await.is_ok() {}
        }
        Mood::HeadersForever => {
            drop(stream.write_all(b"HTTP/1.1 200 OK\r\n").await);
            let headers = "x-more: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n".repeat(100);
            while stream.write_all(headers.as_bytes()).await.is_ok() {}
        }
        Mood::Cookies => {
            let cookies = "set-cookie: a=b; path=/\r\n".repeat(4_000);
            let answer = format!("HTTP/1.1 200 OK\r\n{cookies}content-length: 0\r\n\r\n");
            drop(stream.write_all(answer.as_bytes()).await);
        }
        Mood::SlowBody => {
            drop(stream.write_all(b"HTTP/1.1 500 x\r\ncontent-length: 16384\r\n\r\n").await);
            let mut tick = tokio::time::interval(Duration::from_millis(100));
            while stream.write_all(b"z").await.is_ok() {
                tick.tick().await;
            }
        }
        Mood::RetryAfterYears => {
            let answer = "HTTP/1.1 503 x\r\nretry-after: 99999999999999999999\r\n\
                          connection: close\r\ncontent-length: 0\r\n\r\n";
            drop(stream.write_all(answer.as_bytes()).await);
        }
    }
}

/// Sends to hostile receivers, several destinations each, beside a healthy destination of the other
/// tenant: the healthy one must get all its events, and the server's memory must stay bounded.
fn beside(name: &'static str, moods: &[Mood]) {
    let mut verdict = Verdict::of(name);
    let mut scene = Scene::start();
    let healthy = Receiver::start(200);
    let wish = json!({"url": healthy.url(), "types": ["good.*"]});
    assert_eq!(scene.victim().status("POST", "/v1/subscriptions", &wish), 201);
    let quiet = scene.quiet();
    let before = scene.memory();
    let each = count(10, 40);
    for mood in moods {
        let (address, _) = serve(*mood);
        for n in 0..each {
            scene.subscribe(&format!("http://{address}/{n}"), "a.b");
        }
    }
    let watch = scene.watch();
    let batch = json!(vec![json!({"type": "a.b", "data": 1}); count(20, 200)]);
    let status = scene.attacker().status("POST", "/v1/events/batch", &batch);
    let begun = now();
    let pulses = count(50, 500);
    let mut victim = scene.victim();
    for n in 0..pulses {
        let event = json!({"type": "good.event", "data": n});
        verdict.must(victim.status("POST", "/v1/events", &event) == 202, "an event was refused");
    }
    healthy.wait_until(pulses);
    let took = begun.elapsed();
    let peak = scene.peak().saturating_sub(before);
    verdict.victim(&quiet, &watch.end());
    let destinations = each * moods.len();
    verdict.figure(format!(
        "{destinations} hostile destinations (batch {status}), {pulses} of the victim's arrived \
         within {}, memory +{peak} MiB",
        ms(took)
    ));
    verdict.must(peak < 300, format!("memory grew by {peak} MiB"));
    let ledger = scene.server.wait("the hostile attempts to end", |server| {
        let ledger = server.get("/v1/ledger?scope=all");
        (ledger["in_flight"] == 0 && ledger["queued"] == 0).then_some(ledger)
    });
    verdict.must(balances(&ledger), "the ledger does not balance");
    verdict.end();
}

#[test]
fn endless_interim_answers_end_at_the_deadline() {
    beside("receivers with endless interim answers", &[Mood::InterimForever]);
}

#[test]
fn endless_headers_end_at_the_deadline() {
    beside("receivers with endless headers", &[Mood::HeadersForever]);
}

#[test]
fn slow_bodies_and_thousands_of_cookies_hurt_nobody_else() {
    beside("receivers with slow bodies and 4,000 cookies", &[Mood::SlowBody, Mood::Cookies]);
}

#[test]
fn retry_after_of_years_keeps_the_last_slot() {
    let mut verdict = Verdict::of("Retry-After of years");
    let mut scene = Scene::start();
    let (address, _) = serve(Mood::RetryAfterYears);
    scene.subscribe(&format!("http://{address}/"), "a.b");
    let key = scene.mallory.clone();
    scene.attacker().post("/v1/events", &json!({"type": "a.b", "data": 1})).unwrap();
    let delivery = scene.server.wait("the attempt", |server| {
        let mut client = crate::kit::Client::new(server.address, &key, crate::kit::ATTACKER);
        let list = client.get("/v1/deliveries").unwrap().json();
        let one = list["data"][0].clone();
        (one["attempts"] == 1 && one["state"] == "waiting").then_some(one)
    });
    let next = text(&delivery, "next_attempt_at");
    verdict.figure(format!("next attempt at {next}, accepted {}", text(&delivery, "created_at")));
    // The last slot is about 48 hours after the first attempt: in this year or the next.
    let year = |text: &str| text[..4].parse::<u32>().unwrap();
    let created = text(&delivery, "created_at");
    verdict.must(year(&next) <= year(&created) + 1, format!("the next attempt is at {next}"));
    verdict.end();
}

/// Hundreds of names at a name server that never answers.
#[test]
fn names_that_hang_do_not_delay_others() {
    let mut verdict = Verdict::of("names that hang");
    let (sender, address) = std::sync::mpsc::channel();
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    drop(thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            sender.send(socket.local_addr().unwrap()).unwrap();
            let mut buffer = [0; 512];
            while socket.recv_from(&mut buffer).await.is_ok() {
                counted.fetch_add(1, Ordering::SeqCst);
            }
        });
    }));
    let server = address.recv().unwrap();
    let mut scene = Scene::with(&[&format!("dns.nameservers={server}")]);
    let healthy = Receiver::start(200);
    let wish = json!({"url": healthy.url(), "types": ["good.*"]});
    assert_eq!(scene.victim().status("POST", "/v1/subscriptions", &wish), 201);
    let quiet = scene.quiet();
    let names = count(100, 500);
    for n in 0..names {
        scene.subscribe(&format!("http://n{n}.hang.example.com/"), "a.b");
    }
    let watch = scene.watch();
    let batch = json!(vec![json!({"type": "a.b", "data": 1}); 20]);
    scene.attacker().post("/v1/events/batch", &batch).unwrap();
    let begun = now();
    let pulses = count(50, 500);
    let mut victim = scene.victim();
    for n in 0..pulses {
        let event = json!({"type": "good.event", "data": n});
        verdict.must(victim.status("POST", "/v1/events", &event) == 202, "an event was refused");
    }
    healthy.wait_until(pulses);
    verdict.victim(&quiet, &watch.end());
    verdict.figure(format!(
        "{names} names, {} questions, {pulses} of the victim's arrived within {}",
        asked.load(Ordering::SeqCst),
        ms(begun.elapsed())
    ));
    scene.server.wait("no attempt in flight", |server| {
        let ledger = server.get("/v1/ledger?scope=all");
        (ledger["in_flight"] == 0).then_some(())
    });
    verdict.end();
}
