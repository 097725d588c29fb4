//! JSON Schemas of the event type catalogue whose cost the attacker chooses.

use std::thread;

use serde_json::{Map, Value as Json, json};

use crate::kit::{Verdict, count, ms, now};
use crate::scene::Scene;

/// Definitions that each apply the one before twice: the last one means 2^n rules.
fn doubling(n: usize) -> Json {
    let mut defs = Map::new();
    defs.insert("d0".into(), json!({"type": "string"}));
    for i in 1..=n {
        let below = json!({ "$ref": format!("#/$defs/d{}", i - 1) });
        defs.insert(format!("d{i}"), json!({ "allOf": [below.clone(), below] }));
    }
    json!({ "$defs": defs, "$ref": format!("#/$defs/d{n}") })
}

fn nested(depth: usize) -> Json {
    (0..depth).fold(json!({}), |inner, _| json!({ "not": inner }))
}

/// Schemas that no server should compile.
fn forbidden() -> [(&'static str, Json); 8] {
    [
        ("2^60 rules by references", doubling(60)),
        ("a schema that refers to itself", json!({"$ref": "#"})),
        ("a reference to a URL", json!({"$ref": "http://127.0.0.1:9/schema.json"})),
        ("a reference to a file", json!({"$ref": "file:///etc/passwd"})),
        ("an automaton of gigabytes", json!({"pattern": "(?:(?:[a-z]{100}){100}){100}"})),
        ("a pattern that looks around", json!({"pattern": "^(?=(a+)+$)a"})),
        ("100 levels", nested(100)),
        ("6,000 subschemas", json!({ "anyOf": vec![json!({}); 6_000] })),
    ]
}

/// The dearest schema of this kind that is taken, by the number of its alternatives.
fn dearest(scene: &Scene, kind: impl Fn(usize) -> Json) -> usize {
    let mut client = scene.attacker();
    let (mut taken, mut refused) = (0, 8_192);
    while refused - taken > 16 {
        let n = usize::midpoint(taken, refused);
        let wish = json!({"name": format!("try.n{n}"), "schema": kind(n)});
        let status = client.status("POST", "/v1/event-types", &wish);
        if status == 201 { taken = n } else { refused = n }
    }
    taken
}

fn alternatives(n: usize) -> Json {
    let one = |i: usize| json!({"required": [format!("k{i}")]});
    json!({"items": {"anyOf": (0..n).map(one).collect::<Vec<_>>()}})
}

#[test]
fn schemas_do_not_stall_other_tenants() {
    let mut verdict = Verdict::of("JSON Schemas of the catalogue");
    let scene = Scene::start();
    let quiet = scene.quiet();
    let mut client = scene.attacker();
    for (what, schema) in forbidden() {
        let answer =
            client.post("/v1/event-types", &json!({"name": "for.bidden", "schema": schema}));
        let status = answer.map_or(0, |answer| answer.status);
        verdict.must(status == 422, format!("{what}: answered {status}"));
    }
    verdict.figure(format!("{} refused", forbidden().len()));

    let largest = dearest(&scene, alternatives);
    verdict.must(largest > 0, "not even a small schema is taken");
    for n in 0..count(2, 20) {
        let wish = json!({"name": format!("dear.n{n}"), "schema": alternatives(largest)});
        let status = client.status("POST", "/v1/event-types", &wish);
        verdict.must(status == 201, format!("the dearest schema: answered {status}"));
    }
    let refuse = json!({"unknown_types": "flag", "misfits": "refuse"});
    let status = client.status("PATCH", "/v1/catalogue", &refuse);
    verdict.must(status == 200, format!("the catalogue's rule: answered {status}"));

    let watch = scene.watch();
    let begun = now();
    let senders: Vec<_> = (0..4)
        .map(|n| {
            let attack = scene.attack();
            thread::spawn(move || {
                let mut client = attack.client();
                let send = |size: usize| {
                    let data = vec![json!({}); size];
                    let body = json!({"type": format!("dear.n{}", n % 2), "data": data});
                    client.status("POST", "/v1/events", &body)
                };
                [100, 1_000, 10_000, 300_000].map(send)
            })
        })
        .collect();
    let answers: Vec<u16> = senders.into_iter().flat_map(|one| one.join().unwrap()).collect();
    let took = begun.elapsed();
    verdict.victim(&quiet, &watch.end());
    let alternatives = format!("schemas of {largest} alternatives");
    verdict.figure(format!("{alternatives}: 16 events answered {answers:?} after {}", ms(took)));
    verdict.must(
        answers.iter().all(|status| matches!(status, 422 | 429 | 503)),
        format!("events that do not fit were answered {answers:?}"),
    );
    verdict.figure(format!("memory at most {} MiB", scene.peak()));
    verdict.must(scene.peak() < 400, format!("{} MiB", scene.peak()));
    verdict.must(scene.is_sound(), "the server is not sound afterwards");
    verdict.end();
}
