//! Lists, attempt logs and replays whose size the attacker chooses.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::kit::{Verdict, count, is_long, ms, now, percentile};
use crate::scene::Scene;
use crate::support::{Receiver, text};

/// Sends this many events in batches, and waits until all their deliveries have ended.
fn fill(scene: &mut Scene, kind: &str, events: usize) {
    let mut client = scene.attacker();
    let mut left = events;
    while left > 0 {
        let batch = json!(vec![json!({"type": kind, "data": 1}); left.min(1000)]);
        match client.post("/v1/events/batch", &batch).unwrap().status {
            202 => left -= left.min(1000),
            429 | 503 => thread::park_timeout(Duration::from_millis(200)),
            status => panic!("a batch was answered {status}"),
        }
    }
    scene.server.wait("everything to end", |server| {
        let ledger = server.get("/v1/ledger?scope=all");
        let open = ["queued", "in_flight", "waiting"].map(|state| ledger[state].as_u64().unwrap());
        (open == [0; 3]).then_some(())
    });
}

/// The median time of a list, and how many entries it had.
fn time_of(scene: &Scene, path: &str) -> (Duration, usize) {
    let mut client = scene.attacker();
    let mut times = Vec::new();
    let mut entries = 0;
    for _ in 0..7 {
        let begun = now();
        let answer = client.get(path).unwrap();
        times.push(begun.elapsed());
        assert_eq!(answer.status, 200, "{path}");
        entries = answer.json()["data"].as_array().map_or(0, Vec::len);
    }
    (percentile(&times, 50), entries)
}

#[test]
fn cost_of_a_list_follows_the_size_of_its_page() {
    let mut verdict = Verdict::of("lists of few entries among many deliveries");
    let mut scene = Scene::start();
    let receiver = Receiver::start(200);
    let other = text(&scene.subscribe(&receiver.url_of("other"), "other.x"), "id");
    scene.subscribe(&receiver.url(), "many.x");
    let (small, large) = (count(1_000, 10_000), count(5_000, 100_000));
    let paths = [
        format!("/v1/deliveries?subscription={other}&state=dead"),
        "/v1/deliveries?state=dead".to_owned(),
        "/v1/deliveries?type=other.x".to_owned(),
        "/v1/deliveries?type=other.x&state=cancelled&since=2020-01-01T00:00:00Z".to_owned(),
        "/v1/events?type=other.x".to_owned(),
    ];
    fill(&mut scene, "many.x", small);
    let measure = |scene: &Scene| -> Vec<Option<Duration>> {
        let known = |path: &String| scene.attacker().get(path).is_ok_and(|a| a.status == 200);
        paths.iter().map(|path| known(path).then(|| time_of(scene, path).0)).collect()
    };
    let before = measure(&scene);
    fill(&mut scene, "many.x", large - small);
    let after = measure(&scene);
    let quiet = scene.quiet();
    for ((path, before), after) in paths.iter().zip(before).zip(after) {
        let (Some(before), Some(after)) = (before, after) else { continue };
        let query = path.split_once('?').map_or("", |(_, query)| query).replace(&other, "…");
        let ratio = after.as_secs_f64() / before.as_secs_f64().max(2e-4);
        verdict.figure(format!("{query}: {} -> {}", ms(before), ms(after)));
        verdict
            .must_in_long_form(ratio < 4.0, format!("{query}: {ratio:.1} x for 10 x deliveries"));
    }
    let watch = scene.watch();
    let answered =
        storm(&scene, 40, Duration::from_secs(if is_long() { 10 } else { 3 }), &paths[0]);
    verdict.figure(format!("{small} and {large} deliveries, {answered} lists by 40 clients"));
    verdict.victim(&quiet, &watch.end());
    verdict.end();
}

/// This many clients request a path repeatedly; returns the number of answers.
pub(crate) fn storm(scene: &Scene, clients: usize, lasting: Duration, path: &str) -> usize {
    let (end, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    let attack = scene.attack();
    thread::scope(|scope| {
        for _ in 0..clients {
            scope.spawn(|| {
                let mut client = attack.client();
                while !end.load(Ordering::SeqCst) {
                    // A refusal is an answer too; a refused client continues.
                    if client.get(path).is_ok() {
                        answered.fetch_add(1, Ordering::SeqCst);
                    }
                }
            });
        }
        thread::park_timeout(lasting);
        end.store(true, Ordering::SeqCst);
    });
    answered.load(Ordering::SeqCst)
}

#[test]
fn attempt_log_of_one_delivery_is_answered_in_pages() {
    let mut verdict = Verdict::of("attempt log of one delivery");
    let mut scene = Scene::with(&["retry.max=0", "circuit.disable_grace=100000"]);
    let receiver = crate::flows::echoing(16 * 1024);
    scene.subscribe(&format!("http://{receiver}/"), "a.b");
    let mut client = scene.attacker();
    client.post("/v1/events", &json!({"type": "a.b", "data": 1})).unwrap();
    let rounds = count(150, 1_000);
    let key = scene.mallory.clone();
    let mut path = String::new();
    for n in 1..=rounds {
        let delivery = scene.server.wait("the delivery to be dead", |server| {
            let mut client = crate::kit::Client::new(server.address, &key, crate::kit::ATTACKER);
            let list = client.get("/v1/deliveries?limit=1").unwrap().json();
            let one = list["data"][0].clone();
            (one["state"] == "dead" && one["attempts"] == n).then_some(one)
        });
        path = format!("/v1/deliveries/{}", text(&delivery, "id"));
        if n < rounds {
            client.post(&format!("{path}/replay"), &Json::Null).unwrap();
        }
    }
    let answer = client.get(&path).unwrap();
    let shown = answer.json()["attempt_log"].as_array().map_or(0, Vec::len);
    let bytes = answer.body.len();
    verdict.figure(format!(
        "{rounds} attempts of 16 KiB: {shown} in one answer of {} KiB",
        bytes / 1024
    ));
    verdict.must(bytes < 2 << 20, format!("one answer of {bytes} bytes"));
    verdict.end();
}

#[test]
fn running_replay_jobs_of_one_tenant_are_limited() {
    let mut verdict = Verdict::of("replay jobs");
    let mut scene = Scene::start();
    let receiver = Receiver::start(200);
    scene.subscribe(&receiver.url(), "a.b");
    fill(&mut scene, "a.b", 2_000);
    let quiet = scene.quiet();
    let watch = scene.watch();
    let mut client = scene.attacker();
    let wish = json!({"state": "delivered", "per_second": 1});
    let (mut made, mut refused) = (0, 0);
    for _ in 0..count(200, 1_500) {
        match client.status("POST", "/v1/replays", &wish) {
            201 => made += 1,
            429 | 503 | 409 => refused += 1,
            status => verdict.must(false, format!("a replay was answered {status}")),
        }
    }
    let hers = scene.victim().status("POST", "/v1/replays", &wish);
    verdict.victim(&quiet, &watch.end());
    verdict.figure(format!("{made} made, {refused} refused, another tenant's answered {hers}"));
    verdict.must(refused > 0, format!("{made} jobs run at the same time"));
    verdict.must(hers == 201, format!("another tenant's replay answered {hers}"));
    verdict.end();
}

#[test]
fn replay_of_everything_again_and_again_balances() {
    let mut verdict = Verdict::of("replay of everything in a loop");
    let mut scene = Scene::start();
    let receiver = Receiver::start(200);
    scene.subscribe(&receiver.url(), "a.b");
    fill(&mut scene, "a.b", count(1_000, 20_000));
    let quiet = scene.quiet();
    let watch = scene.watch();
    let mut client = scene.attacker();
    let mut answers = [0; 3];
    for _ in 0..count(20, 100) {
        let wish = json!({"state": "delivered"});
        let made = client.post("/v1/replays", &wish).unwrap();
        let path = format!("/v1/replays/{}/cancel", made.json()["id"].as_str().unwrap_or("none"));
        match made.status {
            201 => answers[0] += 1,
            429 | 503 | 409 => answers[1] += 1,
            _ => answers[2] += 1,
        }
        drop(client.post(&path, &Json::Null));
    }
    verdict.victim(&quiet, &watch.end());
    let ledger = scene.server.wait("everything to end", |server| {
        let ledger = server.get("/v1/ledger?scope=all");
        (ledger["queued"] == 0 && ledger["in_flight"] == 0).then_some(ledger)
    });
    verdict.figure(format!("{answers:?} made, refused, else; {} arrived", receiver.count()));
    verdict.must(answers[2] == 0, "a replay was answered by something else");
    verdict
        .must(crate::support::balances(&ledger), format!("the ledger does not balance: {ledger}"));
    verdict.end();
}
