//! Filters whose cost the attacker chooses.

use std::thread;
use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::kit::{ATTACKER, Client, Verdict, count, ms, now};
use crate::scene::Scene;
use crate::support::Receiver;

/// Groups of twenty conditions that each compare a long list with a hundred values. The list
/// contains only the last value, so every comparison reads all of it.
pub(crate) fn filter(groups: usize) -> Json {
    let mut values: Vec<u32> = (100..199).collect();
    values.push(7);
    let condition = json!({"field": "data.l", "op": "contains_only", "value": values});
    let group = json!({ "any": vec![condition; 20] });
    json!({ "any": vec![group; groups] })
}

/// An event of about this many bytes for that filter.
pub(crate) fn event(bytes: usize) -> Json {
    json!({"type": "a.b", "data": {"l": vec![7; bytes / 2]}})
}

#[test]
fn filter_tests_do_not_stall_other_tenants() {
    let mut verdict = Verdict::of("filter tests with a read-only key");
    let scene = Scene::start();
    let quiet = scene.quiet();
    let body = json!({"filter": filter(9), "event": event(140_000)}).to_string();
    let watch = scene.watch();
    let begun = now();
    let attackers: Vec<_> = (0..8)
        .map(|_| {
            let (address, key, body) = (scene.address(), scene.reader.clone(), body.clone());
            thread::spawn(move || {
                let mut client = Client::new(address, &key, ATTACKER);
                let answer = client.send("POST", "/v1/filters/test", "", body.as_bytes());
                answer.map_or(0, |answer| answer.status)
            })
        })
        .collect();
    // Measure the victim at least once while the filter tests run.
    thread::park_timeout(Duration::from_secs(1));
    let answers: Vec<u16> = attackers.into_iter().map(|one| one.join().unwrap()).collect();
    let took = begun.elapsed();
    verdict.victim(&quiet, &watch.end());
    verdict.figure(format!("8 tests answered {answers:?} after {}", ms(took)));
    verdict.must(
        answers.iter().all(|status| matches!(status, 200 | 422 | 429 | 503)),
        format!("filter tests answered {answers:?}"),
    );
    verdict.end();
}

#[test]
fn subscription_filters_do_not_stall_other_tenants() {
    let mut verdict = Verdict::of("filters of subscriptions on large events");
    let scene = Scene::start();
    let receiver = Receiver::start(200);
    let quiet = scene.quiet();
    let mut client = scene.attacker();
    for n in 0..count(4, 20) {
        let wish = json!({"url": receiver.url_of(&n.to_string()), "types": ["a.b"], "filter": filter(count(1, 9))});
        let answer = client.post("/v1/subscriptions", &wish).unwrap();
        verdict.must(answer.status == 201, format!("creation answered {}", answer.json()));
    }
    let watch = scene.watch();
    let begun = now();
    let body = event(1_000_000).to_string();
    let mut answers = Vec::new();
    for _ in 0..2 {
        let answer = scene.attacker().send("POST", "/v1/events", "", body.as_bytes());
        answers.push(answer.map_or(0, |answer| answer.status));
    }
    thread::park_timeout(Duration::from_secs(1));
    let took = begun.elapsed();
    verdict.victim(&quiet, &watch.end());
    verdict.figure(format!("2 events of 1 MB answered {answers:?} after {}", ms(took)));
    verdict.must(
        answers.iter().all(|status| matches!(status, 202 | 422 | 429 | 503)),
        format!("events answered {answers:?}"),
    );
    verdict.must(scene.is_sound(), "the server is not sound afterwards");
    verdict.end();
}

#[test]
fn many_subscriptions_with_a_filter_each_do_not_stall_others() {
    let mut verdict = Verdict::of("batches against many filters");
    let scene = Scene::start();
    let quiet = scene.quiet();
    let mut client = scene.attacker();
    let mut made = 0;
    let wanted = count(100, 1_000);
    for n in 0..wanted {
        let filter = json!({"field": "data.n", "op": "eq", "value": format!("never-{n}")});
        let url = format!("http://127.0.0.1:9/{n}");
        let wish = json!({"url": url, "types": ["*"], "filter": filter});
        made += usize::from(client.post("/v1/subscriptions", &wish).unwrap().status == 201);
    }
    let watch = scene.watch();
    let batch = json!(vec![json!({"type": "a.b", "data": {"n": "x".repeat(5_000)}}); 1000]);
    let mut answers = Vec::new();
    for _ in 0..count(2, 10) {
        answers.push(client.post("/v1/events/batch", &batch).map_or(0, |answer| answer.status));
    }
    verdict.victim(&quiet, &watch.end());
    verdict.figure(format!("{made} filters, batches of 1,000 answered {answers:?}"));
    verdict.must(made == wanted, format!("{made} of {wanted} subscriptions were created"));
    verdict.must(
        answers.iter().all(|status| matches!(status, 202 | 429 | 503)),
        format!("batches answered {answers:?}"),
    );
    verdict.must(answers.contains(&202), "no batch was accepted");
    verdict.end();
}
