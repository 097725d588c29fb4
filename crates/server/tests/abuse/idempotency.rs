//! Clients that disconnect before the answer and repeat; unlimited idempotency keys.

use std::io::Write as _;
use std::net::Shutdown;
use std::thread;
use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::kit::{ATTACKER, Verdict, connect, count, now, request_head};
use crate::scene::{Attack, Scene};
use crate::support::text;

/// Sends the request and disconnects after `after` microseconds.
fn abandon(scene: &Scene, path: &str, headers: &str, body: &str, after: u64) {
    let mut stream = connect(scene.address(), ATTACKER).unwrap();
    let head = request_head(&scene.mallory, "POST", path, headers, body.len());
    stream.write_all((head + body).as_bytes()).unwrap();
    thread::park_timeout(Duration::from_micros(after));
    // Closing with unread bytes resets the connection; a shutdown alone would be orderly.
    if after.is_multiple_of(2) {
        stream.shutdown(Shutdown::Both).unwrap_or_default();
    }
}

/// Repeats until the answer is not "in progress".
fn repeat(attack: &Attack, path: &str, headers: &str, body: &str) -> (u16, Json) {
    let until = now() + Duration::from_secs(60);
    loop {
        let mut client = attack.client();
        if let Ok(answer) = client.send("POST", path, headers, body.as_bytes()) {
            let is_busy = answer.status == 503 || answer.status == 429 || {
                let code = &answer.json()["code"];
                answer.status == 409 && code.as_str().is_some_and(|code| code.contains("progress"))
            };
            if !is_busy || now() > until {
                return (answer.status, answer.json());
            }
        }
        assert!(now() < until, "no answer to a repeat");
        thread::park_timeout(Duration::from_millis(20));
    }
}

#[test]
fn abandoned_requests_have_one_effect_and_one_answer() {
    let mut verdict = Verdict::of("disconnects before the answer, repeated");
    let scene = Scene::start();
    let attack = scene.attack();
    let rounds = count(60, 1_000);
    // The usual response time: the disconnects are spread over twice that time.
    let begun = now();
    for n in 0..10 {
        let body = json!({"type": "calibrate.x", "data": n});
        scene.attacker().post("/v1/events", &body).unwrap();
    }
    let usual = u64::try_from(begun.elapsed().as_micros()).unwrap() / 10;
    let (mut refused, mut different) = (Vec::new(), 0);
    for n in 0..rounds {
        let after =
            usual * 2 * u64::try_from(n * 37 % rounds).unwrap() / u64::try_from(rounds).unwrap();
        let (path, body, good) = if n % 3 == 2 {
            let url = format!("http://127.0.0.1:9/{n}");
            ("/v1/subscriptions", json!({"url": url, "types": ["never.sent"]}), 201)
        } else {
            ("/v1/events", json!({"type": "once.only", "data": n}), 202)
        };
        let (headers, body) = (format!("idempotency-key: round-{n}\r\n"), body.to_string());
        abandon(&scene, path, &headers, &body, after);
        let (status, first) = repeat(&attack, path, &headers, &body);
        if status != good {
            refused.push(format!("{status} {}", first["code"]));
            continue;
        }
        if path == "/v1/subscriptions" && first["secret"].as_str().is_none() {
            refused.push("a subscription without its secret".to_owned());
        }
        let (_, second) = repeat(&attack, path, &headers, &body);
        different += usize::from(text(&first, "id") != text(&second, "id"));
    }
    let stored = all(&scene, "/v1/events").iter().filter(|e| e["type"] == "once.only").count();
    let subscriptions = all(&scene, "/v1/subscriptions").len();
    let (events, wanted) = (rounds - rounds / 3, rounds / 3);
    verdict.figure(format!(
        "{rounds} disconnects: {stored} events of {events}, {subscriptions} subscriptions of {wanted}, \
         {} repeats refused, {different} with another answer",
        refused.len()
    ));
    verdict.must(stored == events, format!("{stored} events stored of {events}"));
    verdict.must(subscriptions == wanted, format!("{subscriptions} subscriptions of {wanted}"));
    verdict.must(refused.is_empty(), format!("refused: {:?}", refused.first()));
    verdict.must(different == 0, format!("{different} repeats got another answer"));
    verdict.end();
}

/// All entries of the attacker's list.
pub(crate) fn all(scene: &Scene, path: &str) -> Vec<Json> {
    let mut client = scene.attacker();
    let (mut all, mut cursor) = (Vec::new(), String::new());
    loop {
        let mut page = client.get(&format!("{path}?limit=1000{cursor}")).unwrap().json();
        all.append(page["data"].as_array_mut().unwrap());
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return all,
        }
    }
}

#[test]
fn idempotency_keys_without_end_are_bounded_in_memory() {
    let mut verdict = Verdict::of("idempotency keys without end");
    let scene = Scene::start();
    let quiet = scene.quiet();
    let before = scene.memory();
    let watch = scene.watch();
    let keys = count(1_000, 20_000);
    let attack = &scene.attack();
    let refused: usize = thread::scope(|scope| {
        let senders: Vec<_> = (0..4)
            .map(|sender| {
                scope.spawn(move || {
                    let mut client = attack.client();
                    let mine = (0..keys).filter(|n| n % 4 == sender);
                    mine.filter(|n| {
                        let headers = format!("idempotency-key: {n}-{}\r\n", "k".repeat(240));
                        let body = json!({"type": "a.b", "data": n}).to_string();
                        let answer = client.send("POST", "/v1/events", &headers, body.as_bytes());
                        !answer.is_ok_and(|answer| answer.status == 202)
                    })
                    .count()
                })
            })
            .collect();
        senders.into_iter().map(|sender| sender.join().unwrap()).sum()
    });
    let grown = scene.memory().saturating_sub(before);
    verdict.victim(&quiet, &watch.end());
    verdict.figure(format!("{keys} keys, {refused} refused, memory +{grown} MiB"));
    verdict.must(grown < 150, format!("memory grew by {grown} MiB"));
    verdict.end();
}

#[test]
fn one_idempotency_key_used_at_once_has_one_effect() {
    let mut verdict = Verdict::of("one idempotency key from many connections at once");
    let scene = Scene::start();
    let attack = &scene.attack();
    let rounds = count(10, 100);
    let mut wrong = Vec::new();
    for n in 0..rounds {
        let ids: Vec<_> = thread::scope(|scope| {
            let askers: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(move || {
                        let body = json!({"type": "once.only", "data": n}).to_string();
                        let headers = format!("idempotency-key: same-{n}\r\n");
                        repeat(attack, "/v1/events", &headers, &body)
                    })
                })
                .collect();
            askers.into_iter().map(|asker| asker.join().unwrap()).collect()
        });
        let first = ids[0].1["id"].clone();
        if ids.iter().any(|(status, body)| *status != 202 || body["id"] != first) {
            wrong.push(format!("{ids:?}"));
        }
    }
    let stored = all(&scene, "/v1/events").len();
    verdict.figure(format!("{rounds} keys, 8 requests each: {stored} events"));
    verdict.must(stored == rounds, format!("{stored} events stored of {rounds}"));
    verdict.must(wrong.is_empty(), format!("different answers: {:?}", wrong.first()));
    verdict.end();
}
