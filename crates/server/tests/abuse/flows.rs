//! Attacks that multiply: fan-out, churn, labels, log lines; and receivers that record their
//! requests.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use postrider_test_support::receiver::{Request, answer_each, listen};
use serde_json::{Value as Json, json};

use crate::kit::{Client, Verdict, count, ms, now};
use crate::memory::subscribe_many;
use crate::receivers::hanging;
use crate::scene::Scene;
use crate::support::{Receiver, text};

/// The heads of a receiver's requests, the most that were open at once, and its answer.
#[derive(Default)]
pub(crate) struct Captured {
    pub(crate) heads: Mutex<Vec<String>>,
    open: AtomicUsize,
    pub(crate) open_most: AtomicUsize,
    pub(crate) answer: Mutex<String>,
}

/// A receiver that records the heads of its requests and gives the configured answer.
pub(crate) fn capturing(answer: &str, takes: Duration) -> (SocketAddr, Arc<Captured>) {
    let captured = Arc::new(Captured::default());
    answer.clone_into(&mut captured.answer.lock().unwrap());
    let shared = Arc::clone(&captured);
    let address =
        listen(move |stream| answer_each(stream, |request| keep(&request, &shared, takes)));
    (address, captured)
}

/// Records the head of a request, and answers it after a while.
fn keep(request: &Request, captured: &Captured, takes: Duration) -> String {
    let lines = request.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n"));
    captured.heads.lock().unwrap().push(format!(
        "POST {}\r\n{}",
        request.path,
        lines.collect::<String>()
    ));
    let open = captured.open.fetch_add(1, Ordering::SeqCst) + 1;
    captured.open_most.fetch_max(open, Ordering::SeqCst);
    thread::park_timeout(takes);
    captured.open.fetch_sub(1, Ordering::SeqCst);
    captured.answer.lock().unwrap().clone()
}

/// A receiver that fails with a body of this length.
pub(crate) fn echoing(bytes: usize) -> SocketAddr {
    let answer = format!("HTTP/1.1 500 x\r\ncontent-length: {bytes}\r\n\r\n{}", "b".repeat(bytes));
    capturing(&answer, Duration::ZERO).0
}

#[test]
fn large_batch_to_many_subscriptions_is_bounded() {
    let mut verdict = Verdict::of("batch of 1,000 events to many subscriptions");
    let scene = Scene::start();
    let hole = hanging();
    let made = subscribe_many(
        &scene,
        count(200, 3_000),
        |n| json!({"url": format!("http://{hole}/{n}"), "types": ["a.b"]}),
    );
    let quiet = scene.quiet();
    let before = scene.memory();
    let watch = scene.watch();
    let event = json!({"type": "a.b", "data": "x".repeat(count(2_000, 15_000))});
    let batch = json!(vec![event; 1000]).to_string();
    let begun = now();
    let answer = scene.attacker().send("POST", "/v1/events/batch", "", batch.as_bytes());
    let took = begun.elapsed();
    let status = answer.map_or(0, |answer| answer.status);
    thread::park_timeout(Duration::from_secs(1));
    verdict.victim(&quiet, &watch.end());
    let peak = scene.peak().saturating_sub(before);
    verdict.figure(format!(
        "{} deliveries in one request of {} MB: {status} after {}, memory +{peak} MiB",
        made * 1000,
        batch.len() / 1_000_000,
        ms(took)
    ));
    verdict.must(
        matches!(status, 202 | 413 | 422 | 429 | 503),
        format!("the batch was answered {status}"),
    );
    verdict.must(peak < 600, format!("memory grew by {peak} MiB"));
    verdict.must(scene.is_sound(), "the server is not sound afterwards");
    verdict.end();
}

#[test]
fn subscription_churn_while_events_flow_balances() {
    let mut verdict = Verdict::of("subscription churn while events flow");
    let mut scene = Scene::start();
    let receiver = Receiver::start(200);
    let quiet = scene.quiet();
    let watch = scene.watch();
    let end = AtomicBool::new(false);
    let (mut rounds, mut failed) = (0, Vec::new());
    let attack = scene.attack();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = attack.client();
            while !end.load(Ordering::SeqCst) {
                let batch = json!(vec![json!({"type": "a.b", "data": 1}); 50]);
                client.status("POST", "/v1/events/batch", &batch);
            }
        });
        let mut client = attack.client();
        for n in 0..count(150, 2_000) {
            let wish = json!({"url": receiver.url_of(&(n % 7).to_string()), "types": ["a.*"]});
            let made = client.post("/v1/subscriptions", &wish).unwrap();
            if made.status != 201 {
                failed.push(made.status);
                continue;
            }
            let path = format!("/v1/subscriptions/{}", text(&made.json(), "id"));
            client.status("PATCH", &path, &json!({"enabled": false}));
            client.status("PATCH", &path, &json!({"enabled": true}));
            match client.status("DELETE", &path, &Json::Null) {
                204 => rounds += 1,
                status => failed.push(status),
            }
        }
        end.store(true, Ordering::SeqCst);
    });
    verdict.victim(&quiet, &watch.end());
    let ledger = scene.server.wait("everything to end", |server| {
        let ledger = server.get("/v1/ledger?scope=all");
        let open = ["queued", "in_flight"].map(|state| ledger[state].as_u64().unwrap());
        (open == [0; 2]).then_some(ledger)
    });
    verdict.figure(format!(
        "{rounds} created, changed and deleted, {} refused, {ledger}",
        failed.len()
    ));
    verdict.must(crate::support::balances(&ledger), "the ledger does not balance");
    verdict.must(failed.iter().all(|status| *status == 429), format!("{:?}", failed.first()));
    verdict.end();
}

#[test]
fn metrics_do_not_grow_with_what_tenants_choose() {
    let mut verdict = Verdict::of("metrics beside many types, tenants and destinations");
    let mut scene = Scene::start();
    let size = |scene: &Scene| scene.victim().get("/metrics").unwrap().body.len();
    let receiver = Receiver::start(200);
    scene.subscribe(&receiver.url(), "warm.up");
    scene.attacker().post("/v1/events", &json!({"type": "warm.up", "data": 1})).unwrap();
    receiver.wait_until(1);
    let before = size(&scene);
    let types = count(1_000, 10_000);
    scene.subscribe(&receiver.url_of("all"), "t.*");
    let mut client = scene.attacker();
    for n in 0..types / 500 {
        let events: Vec<_> =
            (0..500).map(|m| json!({"type": format!("t.n{n}.m{m}"), "data": 1})).collect();
        client.post("/v1/events/batch", &json!(events)).unwrap();
    }
    let mut admin = Client::new(scene.address(), &scene.server.key, crate::kit::ATTACKER);
    for n in 0..count(50, 500) {
        admin.status("POST", "/v1/tenants", &json!({"id": format!("t{n}")}));
        let body = json!({"type": "a.b", "data": 1}).to_string();
        let headers = format!("postrider-tenant: t{n}\r\n");
        drop(admin.send("POST", "/v1/events", &headers, body.as_bytes()));
    }
    scene.server.wait("all to be delivered", |server| {
        let ledger = server.get("/v1/ledger?scope=all");
        (ledger["queued"] == 0 && ledger["in_flight"] == 0).then_some(())
    });
    let after = size(&scene);
    verdict.figure(format!("{types} types: /metrics {before} -> {after} bytes"));
    verdict.must(after < before * 2 + 20_000, format!("/metrics grew from {before} to {after}"));
    verdict.end();
}

#[test]
fn log_lines_cannot_be_forged() {
    let mut verdict = Verdict::of("log injection");
    let mut scene =
        Scene::of(&mut crate::support::Start::dev().with(&["--set", "telemetry.log=debug"]));
    let forged =
        "x\n{\"level\":\"ERROR\",\"message\":\"forged\"}\r\n\u{1b}[31mred\u{1b}[0m\u{7f}\u{2028}";
    let (address, _) = capturing(
        "HTTP/1.1 500 x\r\nx: y\r\ncontent-length: 38\r\n\r\n\n{\"level\":\"ERROR\",\"message\":\"forged\"}\n",
        Duration::ZERO,
    );
    let mut client = scene.attacker();
    let made = scene.subscribe(&format!("http://{address}/%0a%1b"), "a.b");
    let mut admin = Client::new(scene.address(), &scene.server.key, crate::kit::ATTACKER);
    for (path, body) in [
        ("/v1/events", json!({"type": "a.b", "data": forged, "object": forged})),
        ("/v1/events", json!({"type": forged, "data": forged, "id": forged})),
        (
            "/v1/subscriptions",
            json!({"url": format!("http://127.0.0.1/{forged}"), "types": [forged]}),
        ),
        (
            "/v1/subscriptions",
            json!({"url": "http://127.0.0.1/", "types": ["a"], "headers": {forged: forged}}),
        ),
    ] {
        client.status("POST", path, &body);
    }
    admin.status(
        "POST",
        "/v1/keys",
        &json!({"tenant": "mallory", "scopes": ["read"], "name": forged}),
    );
    admin.status("POST", "/v1/tenants", &json!({"id": forged, "name": forged}));
    admin.status("POST", "/v1/tenants", &json!({"id": "fine", "name": forged}));
    let destination = client.get("/v1/destinations").unwrap().json()["data"][0]["id"].clone();
    let freeze = format!("/v1/destinations/{}/freeze", destination.as_str().unwrap_or("none"));
    client.status("POST", &freeze, &json!({"reason": forged}));
    drop(client.send("GET", "/v1/\u{1b}[31mevents", "", b""));
    drop(client.send(
        "GET",
        "/v1/events",
        "user-agent: \u{1b}[31mx\r\nidempotency-key: \u{1b}\r\n",
        b"",
    ));
    client.status("DELETE", &format!("/v1/subscriptions/{}", text(&made, "id")), &Json::Null);
    scene.server.signal("TERM");
    let (_, log) = scene.server.ended();
    let lines: Vec<&str> = log.lines().filter(|line| !line.is_empty()).collect();
    let broken: Vec<_> = lines
        .iter()
        .filter(|line| {
            serde_json::from_str::<Json>(line).map_or(true, |line| line["message"] == "forged")
                || line.chars().any(char::is_control)
        })
        .collect();
    verdict.figure(format!("{} log lines, {} forged or broken", lines.len(), broken.len()));
    verdict.must(broken.is_empty(), format!("{:?}", broken.first()));
    verdict.end();
}

#[test]
fn test_sends_keep_the_limit_of_the_destination() {
    const LIMIT: usize = 4;
    let mut verdict = Verdict::of("test sends past the limit, and to a frozen destination");
    // The limit adapts between these two, so it is always this one.
    let scene = Scene::with(&[
        &format!("engine.destination_in_flight_start={LIMIT}"),
        &format!("engine.destination_in_flight_max={LIMIT}"),
    ]);
    let (address, captured) =
        capturing("HTTP/1.1 200 x\r\ncontent-length: 0\r\n\r\n", Duration::from_secs(2));
    let made = scene.subscribe(&format!("http://{address}/"), "a.b");
    let path = format!("/v1/subscriptions/{}/test", text(&made, "id"));
    let wanted = count(150, 400);
    let attack = scene.attack();
    let answers: Vec<u16> = thread::scope(|scope| {
        let senders: Vec<_> = (0..wanted)
            .map(|_| scope.spawn(|| attack.client().status("POST", &path, &Json::Null)))
            .collect();
        senders.into_iter().map(|sender| sender.join().unwrap()).collect()
    });
    let most = captured.open_most.load(Ordering::SeqCst);
    let refused = answers.iter().filter(|status| matches!(status, 429 | 503)).count();
    verdict.figure(format!("{wanted} at once: {most} in flight at most, {refused} refused"));
    verdict.must(most <= LIMIT, format!("{most} in flight to one destination, not {LIMIT}"));
    verdict.must(refused > 0, "no test send was refused");
    let other = answers.iter().find(|status| !matches!(status, 200 | 429 | 503));
    verdict.must(other.is_none(), format!("a test send was answered {other:?}"));
    let destination = scene.attacker().get("/v1/destinations").unwrap().json()["data"][0].clone();
    let freeze = format!("/v1/destinations/{}/freeze", text(&destination, "id"));
    assert_eq!(scene.attacker().status("POST", &freeze, &json!({"reason": "x"})), 200);
    let before = captured.heads.lock().unwrap().len();
    let status = scene.attacker().status("POST", &path, &Json::Null);
    let sent = captured.heads.lock().unwrap().len() - before;
    verdict.figure(format!("frozen: answered {status}, {sent} sent"));
    verdict.must(sent == 0 && status == 409, format!("frozen: answered {status}, {sent} sent"));
    verdict.end();
}
