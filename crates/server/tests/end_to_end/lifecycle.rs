//! The life of deliveries and destinations, on a faster clock.
//!
//! The tests assert only that an attempt is never early. How late it is depends on the machine.

use std::time::Duration;

use postrider_domain::time::Timestamp;
use serde_json::Value as Json;

use crate::support::server::Server;
use crate::support::{Receiver, Start, balances, text};

fn started_at(attempt: &Json) -> Timestamp {
    text(attempt, "started_at").parse().unwrap()
}

/// When a retry is due after the first attempt, in milliseconds, on a clock that is `scale` times
/// faster.
fn offset(retry: u64, scale: u64) -> i64 {
    let unit = Duration::from_millis(84_800) / u32::try_from(scale).unwrap();
    i64::try_from((unit * ((1 << retry) - 1)).as_millis()).unwrap()
}

/// Waits until the only delivery is dead, and checks that each attempt was made in its slot.
///
/// A slot that falls due while an attempt is in flight is spent. The attempt's record does not have
/// the time of its settlement, but the log line is written right after it. So the test checks three
/// things: no attempt is made before its slot; no attempt is made in a slot that passed while the
/// previous one was in flight; and no slot is skipped that was still in the future when the
/// previous log line was written.
fn check_schedule(server: &mut Server, scale: u64, retries: u64) -> Json {
    let delivery = server.wait("the delivery to be dead", |server| {
        let delivery = server.delivery();
        (delivery["state"] == "dead").then_some(delivery)
    });
    let attempts = delivery["attempt_log"].as_array().unwrap();
    let anchor = started_at(&attempts[0]).as_unix_ms();
    let (mut slot, mut ended, mut logged) = (0, 0, i64::MIN);
    for (n, attempt) in attempts.iter().enumerate() {
        assert_eq!(attempt["number"], n + 1);
        let started = started_at(attempt).as_unix_ms() - anchor;
        if n > 0 {
            let retry = attempt["retry"].as_u64().unwrap();
            assert!(retry > slot, "retry {retry} after {slot}");
            assert!(started >= offset(retry, scale), "retry {retry} came at {started} ms");
            assert!(offset(retry, scale) >= ended, "retry {retry} was spent at {ended} ms");
            for spent in slot + 1..retry {
                assert!(offset(spent, scale) <= logged, "retry {spent} was left out");
            }
            slot = retry;
        }
        ended = started + attempt["duration_ms"].as_i64().unwrap();
        let number = format!("\"attempt\":{},", n + 1);
        let line = server.wait_for_line(|line| line.contains(&number));
        let line: Json = serde_json::from_str(&line).unwrap();
        // Rounded up to the next millisecond.
        logged = text(&line, "timestamp").parse::<Timestamp>().unwrap().as_unix_ms() + 1 - anchor;
    }
    for spent in slot + 1..=retries {
        assert!(offset(spent, scale) <= logged, "retry {spent} was left out");
    }
    assert_eq!(delivery["attempts"], attempts.len());
    delivery
}

#[test]
fn a_whole_schedule_of_48_hours_ends_dead_and_can_be_replayed() {
    let receiver = Receiver::start(500);
    let mut server = Start::dev().with(&["--time-scale", "10000"]).fresh();
    server.subscribe(&receiver.url());
    server.send(1);
    // On this clock the first slots are milliseconds apart, and some may be spent. The last ones
    // are seconds apart.
    let delivery = check_schedule(&mut server, 10_000, 11);
    let attempts = delivery["attempt_log"].as_array().unwrap();
    assert_eq!(attempts.last().unwrap()["retry"], 11, "the last slot is at 48 hours");
    assert_eq!(receiver.arrived().len(), attempts.len());
    let id = text(&delivery, "id");
    assert!(receiver.arrived().iter().all(|arrived| arrived.webhook_id == id));

    receiver.answer(200);
    server.ask("POST", &format!("/v1/deliveries/{id}/replay"), None, 202);
    let replayed = server.wait("the replay to be delivered", |server| {
        let delivery = server.delivery();
        (delivery["state"] == "delivered").then_some(delivery)
    });
    assert_eq!(replayed["attempts"], attempts.len() + 1, "the count goes on");
    assert!(balances(&server.ledger()));
}

#[expect(clippy::print_stdout, reason = "the line with its figure")]
/// Fails every attempt on a clock so slow that no slot passes while an attempt is in flight.
fn every_slot_is_used(scale: u64, retries: u64) {
    let receiver = Receiver::start(500);
    let (scale_text, max) = (scale.to_string(), format!("retry.max={retries}"));
    let mut server = Start::dev().with(&["--time-scale", &scale_text, "--set", &max]).fresh();
    server.subscribe(&receiver.url());
    server.send(1);
    // Wait for each attempt separately: the whole may take longer than the time limit of one wait.
    for number in 1..=retries + 1 {
        server.wait_for_line(|line| line.contains(&format!("\"attempt\":{number},")));
    }
    let delivery = check_schedule(&mut server, scale, retries);
    let used: Vec<u64> = delivery["attempt_log"].as_array().unwrap()[1..]
        .iter()
        .map(|attempt| attempt["retry"].as_u64().unwrap())
        .collect();
    assert_eq!(used, (1..=retries).collect::<Vec<_>>());
    println!("schedule: scale {scale}, {} attempts, each in its slot", used.len() + 1);
}

#[test]
fn on_a_gentler_clock_every_attempt_has_its_slot() {
    every_slot_is_used(100, 4);
}

/// The whole schedule takes 3.6 minutes on this clock.
#[test]
#[ignore = "takes minutes; run it by name"]
fn all_twelve_attempts_have_their_slots() {
    every_slot_is_used(800, 11);
}

#[test]
fn a_destination_is_disabled_probed_and_enabled_again() {
    let receiver = Receiver::start(500);
    let mut server = Start::dev().with(&["--time-scale", "1000"]).fresh();
    server.subscribe(&receiver.url());
    server.send(101);
    let disabled = server.wait("the destination to be disabled", |server| {
        let destination = server.destination();
        (destination["state"] == "disabled").then_some(destination)
    });
    assert!(disabled["next_probe_at"].is_string(), "{disabled}");
    assert!(disabled["consecutive_failures"].as_u64().unwrap() >= 101, "{disabled}");

    receiver.answer(200);
    server.wait("a probe to enable it", |server| {
        (server.destination()["state"] == "enabled").then_some(())
    });
    server.wait("everything to be delivered", |server| {
        (server.ledger()["delivered"] == 101).then_some(())
    });
    let path = format!("/v1/destinations/{}/timeline", text(&disabled, "id"));
    let timeline = server.get(&path);
    let steps: Vec<_> = (timeline["data"].as_array().unwrap().iter())
        .map(|one| ["from", "to"].map(|name| text(one, name)).join(" to "))
        .collect();
    assert_eq!(steps.first().unwrap(), "disabled to enabled", "{timeline}");
    assert_eq!(steps.last().unwrap(), "enabled to disabled", "{timeline}");
    for line in [
        "postrider_circuits{state=\"enabled\"} 1",
        "postrider_circuits{state=\"disabled\"} 0",
        "postrider_circuits{state=\"frozen\"} 0",
        "postrider_circuit_transitions_total{from=\"enabled\",to=\"disabled\"} 1",
        "postrider_circuit_transitions_total{from=\"disabled\",to=\"enabled\"} 1",
    ] {
        server.wait(line, |server| server.metrics().contains(line).then_some(()));
    }
    assert!(balances(&server.ledger()));
}

#[test]
fn a_frozen_destination_is_not_attempted_until_the_call_enables_it() {
    let receiver = Receiver::start(500);
    let start = ["--time-scale", "1000", "--set", "circuit.freeze_consecutive=3"];
    let mut server = Start::dev().with(&start).fresh();
    server.subscribe(&receiver.url());
    server.send(1);
    let frozen = server.wait("the destination to be frozen", |server| {
        let destination = server.destination();
        (destination["state"] == "frozen").then_some(destination)
    });
    let arrived = receiver.arrived().len();
    assert_eq!(arrived, 3);

    receiver.answer(200);
    server.send(1);
    server.wait("the second delivery to wait", |server| {
        (server.ledger()["waiting"] == 2).then_some(())
    });
    assert_eq!(receiver.arrived().len(), arrived, "nothing is sent to a frozen destination");

    let path = format!("/v1/destinations/{}/enable", text(&frozen, "id"));
    let enabled = server.ask("POST", &path, Some(&serde_json::json!({"reason": "mended"})), 200);
    assert_eq!(enabled["state"], "enabled");
    assert_eq!(enabled["consecutive_failures"], 0);
    server.wait("both to be delivered", |server| (server.ledger()["delivered"] == 2).then_some(()));
    assert!(balances(&server.ledger()));
}

#[test]
fn a_healthy_destination_does_not_notice_one_that_hangs() {
    let (hanging, healthy) = (Receiver::start(200), Receiver::start(200));
    hanging.hold(true);
    let mut server = Start::dev().fresh();
    server.subscribe(&hanging.url());
    server.subscribe(&healthy.url());
    server.send(200);
    healthy.wait_for(200);
    server.wait("the healthy half to be delivered", |server| {
        (server.ledger()["delivered"] == 200).then_some(())
    });
    hanging.hold(false);
    assert!(balances(&server.ledger()));
}

#[test]
fn reload_takes_live_settings_and_names_those_that_need_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("postrider.toml");
    std::fs::write(&path, "telemetry.log = \"info\"\n").unwrap();
    let mut server = Start::dev().with(&["--config", path.to_str().unwrap()]).fresh();
    let settings =
        ["telemetry.log = \"debug\"", "http.headers_max = 50", "circuit.freeze_consecutive = 1"];
    std::fs::write(&path, settings.join("\n")).unwrap();
    server.signal("HUP");
    let line = server.wait_for_line(|line| line.contains("\"reloaded\""));
    assert!(line.contains("circuit.freeze_consecutive, telemetry.log"), "{line}");
    let line = server.wait_for_line(|line| line.contains("needs a restart"));
    assert!(line.contains("http.headers_max"), "{line}");
    std::fs::write(&path, "nonsense = 1\n").unwrap();
    server.signal("HUP");
    let line = server.wait_for_line(|line| line.contains("nonsense"));
    assert!(line.contains("stays as it was"), "{line}");

    server.subscribe("http://127.0.0.1:1/nobody");
    server.send(1);
    server.wait("one failure to freeze, by the new policy", |server| {
        (server.destination()["state"] == "frozen").then_some(())
    });
}
