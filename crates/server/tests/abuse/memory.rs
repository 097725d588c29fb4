//! Memory that one client can occupy: fan-out of large events, held bodies, unread answers
//! and quotas.

use std::io::Write as _;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::kit::{ATTACKER, Client, Verdict, connect, count, count_closed, is_long, request_head};
use crate::receivers::hanging;
use crate::scene::{Scene, knows};

/// Creates this many subscriptions on four connections; returns how many were created.
pub(crate) fn subscribe_many(
    scene: &Scene,
    count: usize,
    wish: impl Fn(usize) -> Json + Sync,
) -> usize {
    let attack = &scene.attack();
    thread::scope(|scope| {
        let makers: Vec<_> = (0..4)
            .map(|maker| {
                let wish = &wish;
                scope.spawn(move || {
                    let mut client = attack.client();
                    let mine = (0..count).filter(|n| n % 4 == maker);
                    mine.filter(|n| client.status("POST", "/v1/subscriptions", &wish(*n)) == 201)
                        .count()
                })
            })
            .collect();
        makers.into_iter().map(|maker| maker.join().unwrap()).sum()
    })
}

#[test]
fn fan_out_of_a_large_event_to_hanging_receivers_is_bounded() {
    let verdict = Verdict::of("1 MB event to hanging receivers");
    check_fan_out(
        verdict,
        |hole, n| json!({"url": format!("http://{hole}/{n}"), "types": ["large.event"]}),
    );
}

/// A body in the format `workfront` names its subscription, so no two are alike.
#[test]
fn fan_out_of_a_large_event_in_bodies_that_differ_is_bounded() {
    let verdict = Verdict::of("1 MB event to hanging receivers, format workfront");
    check_fan_out(verdict, |hole, n| {
        let url = format!("http://{hole}/{n}");
        // Both versions, each as it is and as base64: four renderings of the event.
        let version = if n % 2 == 0 { "v1" } else { "v2" };
        let workfront = json!({"version": version, "base64": n % 4 < 2});
        json!({"url": url, "types": ["large.event"], "format": "workfront", "workfront": workfront})
    });
}

fn check_fan_out(mut verdict: Verdict, wish: impl Fn(SocketAddr, usize) -> Json + Sync) {
    let scene = Scene::start();
    let hole = hanging();
    let wanted = count(400, 3_000);
    let made = subscribe_many(&scene, wanted, |n| wish(hole, n));
    let quiet = scene.quiet();
    let before = scene.memory();
    let watch = scene.watch();
    verdict.must(made == wanted, format!("{made} subscriptions of {wanted}"));
    let body = json!({"type": "large.event", "data": "x".repeat(1_000_000)}).to_string();
    let answer = scene.attacker().send("POST", "/v1/events", "", body.as_bytes());
    let answer = answer.map_or(0, |answer| answer.status);
    // Wait until some attempts have timed out and others have taken their places.
    thread::park_timeout(Duration::from_secs(if is_long() { 20 } else { 8 }));
    verdict.victim(&quiet, &watch.end());
    let peak = scene.peak();
    verdict
        .figure(format!("{made} subscriptions, answered {answer}, memory {before} -> {peak} MiB"));
    verdict.must(matches!(answer, 202 | 429 | 503), format!("the event was answered {answer}"));
    verdict.must(peak < 300, format!("memory reached {peak} MiB"));
    verdict.end();
}

/// Sends all but the last kilobyte of a batch on this many connections, and holds them open.
fn hold_bodies(
    scene: &Scene,
    key: &str,
    connections: usize,
    bytes: usize,
) -> Vec<std::net::TcpStream> {
    let head = request_head(key, "POST", "/v1/events/batch", "", bytes);
    let piece = vec![b' '; 64 * 1024];
    let mut open = Vec::new();
    for _ in 0..connections {
        let Ok(mut stream) = connect(scene.address(), ATTACKER) else { continue };
        stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
        drop(stream.write_all(head.as_bytes()));
        let mut sent = 0;
        while sent + piece.len() < bytes && stream.write_all(&piece).is_ok() {
            sent += piece.len();
        }
        open.push(stream);
    }
    open
}

#[test]
fn held_bodies_take_bounded_memory() {
    let mut verdict = Verdict::of("held batch bodies");
    let connections = count(24, 50);
    for (who, name) in [(true, "read-only key"), (false, "ingest key")] {
        let scene = Scene::start();
        let quiet = scene.quiet();
        let before = scene.memory();
        let watch = scene.watch();
        let key = if who { scene.reader.clone() } else { scene.mallory.clone() };
        let mut open = hold_bodies(&scene, &key, connections, 16_000_000);
        let grown = scene.peak().saturating_sub(before);
        let seen = watch.end();
        verdict.figure(format!("{name}: {} held, memory +{grown} MiB", open.len()));
        verdict.victim(&quiet, &seen);
        let most = if who { 64 } else { 300 };
        verdict.must(grown < most, format!("{name}: memory grew by {grown} MiB"));
        let closed = count_closed(&mut open);
        verdict.must(closed == open.len(), format!("{name}: {closed} closed of {}", open.len()));
    }
    verdict.end();
}

#[test]
fn lists_that_nobody_reads_take_bounded_memory() {
    let mut verdict = Verdict::of("large lists that nobody reads");
    let scene = Scene::start();
    let mut client = scene.attacker();
    let quiet = scene.quiet();
    // Subscriptions of about 200 KB each, almost all of it the filter.
    let value = vec!["v".repeat(250); 4];
    let condition = json!({"field": "data.a", "op": "contains_only", "value": value});
    let filter = json!({ "any": vec![json!({ "any": vec![condition; 20] }); 9] });
    for n in 0..count(40, 120) {
        let url = format!("http://127.0.0.1:9/{n}");
        let wish = json!({"url": url, "types": ["a.b"], "filter": filter});
        let status = client.status("POST", "/v1/subscriptions", &wish);
        verdict.must(matches!(status, 201 | 429), format!("a subscription was answered {status}"));
    }
    let path = "/v1/subscriptions?limit=1000";
    let page = client.get(path).unwrap().body.len();
    let before = scene.memory();
    let watch = scene.watch();
    let mut open = Vec::new();
    for _ in 0..20 {
        let mut stream = connect(scene.address(), ATTACKER).unwrap();
        let head = request_head(&scene.mallory, "GET", path, "", 0);
        stream.write_all(head.as_bytes()).unwrap();
        open.push(stream);
    }
    thread::park_timeout(Duration::from_secs(5));
    let grown = scene.memory().saturating_sub(before);
    verdict.victim(&quiet, &watch.end());
    verdict.figure(format!("a page of {} KiB, 20 unread: memory +{grown} MiB", page / 1024));
    verdict.must(page < 8 << 20, format!("a page of {page} bytes"));
    verdict.must(grown < 200, format!("memory grew by {grown} MiB"));
    verdict.end();
}

#[test]
fn each_tenant_has_a_quota_for_every_stored_record() {
    let mut verdict = Verdict::of("quotas per tenant");
    let quotas = ["limits.tenant_subscriptions", "limits.tenant_keys"];
    let settings = quotas.map(|quota| format!("{quota}=5"));
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let scene = Scene::with(&settings);
    let (mut attacker, mut victim) = (scene.attacker(), scene.victim());
    let mut admin = Client::new(scene.address(), &scene.server.key, ATTACKER);
    let subscription = |n: usize| json!({"url": format!("http://127.0.0.1:9/{n}"), "types": ["a"]});
    let made = made_of(20, |n| attacker.status("POST", "/v1/subscriptions", &subscription(n)));
    let hers = victim.status("POST", "/v1/subscriptions", &subscription(0));
    verdict.figure(format!("subscriptions {made} of 20 (another tenant's answered {hers})"));
    verdict.must(made <= 5, "no quota on subscriptions");
    verdict.must(hers == 201, "one tenant's quota is another's");
    let key = json!({"tenant": "mallory", "scopes": ["read"]});
    let made = made_of(20, |_| admin.status("POST", "/v1/keys", &key));
    verdict.figure(format!("keys {made} of 20"));
    verdict.must(made <= 5, "no quota on keys");
    let known = quotas.iter().filter(|quota| knows(quota)).count();
    verdict.figure(format!("{known} of {} settings known", quotas.len()));
    verdict.end();
}

fn made_of(count: usize, mut make: impl FnMut(usize) -> u16) -> usize {
    (0..count).filter(|n| make(*n) == 201).count()
}

#[test]
fn unfinished_deliveries_of_one_tenant_are_bounded() {
    let mut verdict = Verdict::of("acceptance outruns delivery");
    // The default limit is ten times that: too large for a short test.
    let scene = Scene::with(&[if is_long() { "" } else { "limits.tenant_queued=50000" }]);
    let hole = hanging();
    let made = subscribe_many(
        &scene,
        count(20, 100),
        |n| json!({"url": format!("http://{hole}/{n}"), "types": ["a.b"]}),
    );
    let quiet = scene.quiet();
    let watch = scene.watch();
    let mut client = scene.attacker();
    let batch = json!(vec![json!({"type": "a.b", "data": 1}); 1000]);
    let (mut accepted, mut refused, mut retry_after) = (0usize, Vec::new(), None);
    for _ in 0..count(10, 20) {
        match client.post("/v1/events/batch", &batch) {
            Ok(answer) if answer.status == 202 => accepted += made * 1000,
            Ok(answer) => {
                retry_after = answer.header("retry-after").map(str::to_owned);
                refused.push(answer.status);
            }
            Err(_) => refused.push(0),
        }
    }
    verdict.victim(&quiet, &watch.end());
    verdict.figure(format!(
        "{accepted} deliveries accepted for {made} subscriptions, {} refused {:?} retry-after \
         {retry_after:?}, memory {} MiB",
        refused.len(),
        refused.first(),
        scene.peak()
    ));
    verdict.must(!refused.is_empty(), "nothing was refused: unfinished deliveries have no limit");
    verdict.must(
        refused.iter().all(|status| matches!(status, 429 | 503)) && retry_after.is_some(),
        format!("refused by {refused:?}, retry-after {retry_after:?}"),
    );
    verdict.must(scene.is_sound(), "the server is not sound afterwards");
    verdict.end();
}
