//! The machine's time of day is set while the server runs, and while it does not.

use std::collections::HashMap;
use std::time::Duration;

use postrider_domain::time::Timestamp;
use serde_json::{Value as Json, json};

use crate::set_clock::SetClock;
use crate::support::server::Server;
use crate::support::{Receiver, Start, text};

const HOUR_S: i64 = 3_600;
/// The offset of the first slot.
const FIRST_MS: i64 = 84_800;

fn start(skew: &SetClock) -> Start {
    let variables = skew.variables();
    variables.iter().fold(Start::dev(), |start, (name, value)| start.variable(name, value))
}

fn time(value: &Json, name: &str) -> Timestamp {
    text(value, name).parse().unwrap()
}

/// Sends an event whose delivery fails; returns the delivery after its first attempt.
fn failed_once(server: &mut Server) -> Json {
    let event = json!({"type": "task.updated", "data": 1});
    let id = text(&server.ask("POST", "/v1/events", Some(&event), 202), "id");
    let id = server.wait("the first attempt to fail", |server| {
        let event = server.get(&format!("/v1/events/{id}"));
        let delivery = &event["deliveries"][0];
        (delivery["attempts"] != 0).then(|| text(delivery, "id"))
    });
    server.get(&format!("/v1/deliveries/{id}"))
}

#[test]
fn a_clock_that_is_set_costs_no_slot_and_makes_no_attempt_early() {
    let (skew, receiver) = (SetClock::new(), Receiver::start(500));
    let mut server = start(&skew).fresh();
    server.subscribe(&receiver.url());
    let mut before = time(&failed_once(&mut server), "created_at");
    // With a clock that never goes back, a setback by 49 hours would cost every slot.
    let steps = [(-49 * HOUR_S, Some("-176")), (49 * HOUR_S, Some("352")), (-1_000 * HOUR_S, None)];
    for (seconds, by) in steps {
        match by {
            Some(by) => {
                skew.set(seconds);
                server.wait_for_line(|line| line.contains("time of day was set") && has(line, by));
            }
            None => {
                server.kill();
                skew.set(seconds);
                server = server.succeeded_by(start(&skew));
                server.wait_for_line(|line| line.contains("time of day was set"));
            }
        }
        let delivery = failed_once(&mut server);
        assert_eq!(delivery["state"], "waiting", "{delivery}");
        let first = time(&delivery["attempt_log"][0], "started_at");
        if delivery["attempts"] == 1 {
            let slot = time(&delivery, "next_attempt_at").ms_from(first);
            assert_eq!(slot, FIRST_MS, "{delivery}");
        }
        let created = time(&delivery, "created_at");
        let passed = created.ms_from(before);
        assert!((0..600_000).contains(&passed), "{passed} ms after the event before");
        before = created;
    }
    let mut last = HashMap::new();
    for arrived in receiver.arrived() {
        if let Some(earlier) = last.insert(arrived.webhook_id.clone(), arrived.at) {
            let gap = arrived.at.duration_since(earlier);
            assert!(gap >= Duration::from_secs(80), "a retry came after {gap:?}");
        }
    }
    let metrics =
        crate::support::http::request(server.address, &server.key, "GET", "/metrics", None);
    let metrics = format!("{metrics:?}");
    assert!(metrics.contains("postrider_clock_ahead_milliseconds"), "{metrics}");
}

/// Whether a log line reports a step of the clock whose number begins like this.
fn has(line: &str, by: &str) -> bool {
    [format!("by_ms={by}"), format!("\"by_ms\":{by}")].iter().any(|text| line.contains(text))
}

#[test]
fn step_of_the_clock_is_logged_for_the_operator() {
    let (skew, receiver) = (SetClock::new(), Receiver::start(200));
    let server = start(&skew).with(&["--set", "operator_tenant=default"]).fresh();
    server.subscribe_to(&receiver.url(), "postrider.*");
    skew.set(HOUR_S);
    let arrived = receiver.wait_for(1).remove(0);
    let event: Json = serde_json::from_slice(&arrived.body).unwrap();
    assert_eq!(event["type"], "postrider.clock.stepped", "{event}");
    let by = event["data"]["by_ms"].as_i64().unwrap();
    assert!((3_599_000..3_601_000).contains(&by), "{event}");
    assert_eq!(event["data"]["ahead_ms"].as_i64().unwrap().signum(), -1, "{event}");
}
