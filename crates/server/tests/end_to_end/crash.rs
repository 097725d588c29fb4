//! Ends of all kinds, and what is there afterwards.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::json;

use crate::support::{Receiver, Start, balances, http};

#[test]
fn what_was_acknowledged_survives_being_killed() {
    const KILLS: usize = 5;
    let receiver = Receiver::start(200);
    let broken = Receiver::start(500);
    let mut server = Start::dev().with(&["--time-scale", "1000"]).fresh();
    server.subscribe(&receiver.url());
    server.subscribe(&broken.url());
    let mut acknowledged = Vec::new();
    for kill in 0..KILLS {
        let stop = Arc::new(AtomicBool::new(false));
        let senders: Vec<_> = (0..2)
            .map(|sender| {
                let (address, key) = (server.address, server.key.clone());
                let stop = Arc::clone(&stop);
                thread::spawn(move || {
                    let mut acknowledged = Vec::new();
                    for n in 0.. {
                        let id = format!("event-{kill}-{sender}-{n}");
                        let event = json!({"id": id, "type": "task.updated", "data": {"n": n}});
                        match http::request(address, &key, "POST", "/v1/events", Some(&event)) {
                            Ok((202, _)) => acknowledged.push(id),
                            Ok((status, answer)) => panic!("{status}: {answer}"),
                            // Killed in the middle: this one was not acknowledged.
                            Err(_) => break,
                        }
                        if stop.load(Ordering::Relaxed) {
                            break;
                        }
                    }
                    acknowledged
                })
            })
            .collect();
        receiver.wait_for(receiver.arrived().len() + 20);
        server = server.kill_and_restart(Start::dev().with(&["--time-scale", "1000"]));
        stop.store(true, Ordering::Relaxed);
        for sender in senders {
            acknowledged.extend(sender.join().unwrap());
        }
        assert!(balances(&server.ledger()), "{}", server.ledger());
    }

    for id in &acknowledged {
        let event = server.get(&format!("/v1/events/{id}"));
        assert_eq!(event["deliveries"].as_array().unwrap().len(), 2, "{event}");
    }
    broken.answer(200);
    let accepted = server.ledger()["accepted"].as_u64().unwrap();
    let expected = u64::try_from(acknowledged.len()).unwrap() * 2;
    assert!(accepted >= expected, "{accepted} accepted, {expected} acknowledged");
    server.wait("everything to end", |server| {
        let ledger = server.ledger();
        let ended = ledger["delivered"].as_u64().unwrap() + ledger["dead"].as_u64().unwrap();
        (ended == ledger["accepted"]).then_some(())
    });
    let ledger = server.ledger();
    assert!(balances(&ledger), "{ledger}");
    assert_eq!(ledger["dead"], 0, "{ledger}");
    let arrived = receiver.arrived();
    let distinct: BTreeSet<_> = arrived.iter().map(|one| &one.webhook_id).collect();
    println!(
        "kill-9: {KILLS} kills, {} acknowledged, 0 lost, {} duplicates",
        acknowledged.len(),
        arrived.len() - distinct.len()
    );
}

#[test]
fn a_stop_waits_for_what_is_in_flight() {
    let receiver = Receiver::start(200);
    let mut server = Start::dev().fresh();
    server.subscribe(&receiver.url());
    receiver.hold(true);
    server.send(3);
    receiver.wait_for(3);
    server.signal("TERM");
    server.wait_for_line(|line| line.contains("\"stopping\""));
    receiver.hold(false);
    let server = server.restart_after_end(Start::dev());
    let ledger = server.ledger();
    assert_eq!(ledger["delivered"], 3, "{ledger}");
    assert_eq!(receiver.arrived().len(), 3, "none was sent twice");
    let list = server.get("/v1/deliveries");
    assert!(list["data"].as_array().unwrap().iter().all(|one| one["attempts"] == 1), "{list}");
}

#[test]
fn a_second_stop_ends_at_once() {
    let receiver = Receiver::start(200);
    let mut server = Start::dev().with(&["--set", "attempt.deadline=100s"]).fresh();
    server.subscribe(&receiver.url());
    receiver.hold(true);
    server.send(1);
    receiver.wait_for(1);
    server.signal("TERM");
    server.wait_for_line(|line| line.contains("\"stopping\""));
    server.signal("TERM");
    let (status, log) = server.ended();
    assert!(!status.success(), "{status}: {log}");
    receiver.hold(false);
}

#[test]
fn a_reload_takes_what_can_be_taken_and_names_the_rest() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("postrider.toml");
    std::fs::write(&path, "telemetry.log = \"info\"\n").unwrap();
    let mut server = Start::dev().with(&["--config", path.to_str().unwrap()]).fresh();
    std::fs::write(&path, "telemetry.log = \"debug\"\nhttp.headers_max = 50\n").unwrap();
    server.signal("HUP");
    let line = server.wait_for_line(|line| line.contains("\"reloaded\""));
    assert!(line.contains("telemetry.log"), "{line}");
    let line = server.wait_for_line(|line| line.contains("needs a restart"));
    assert!(line.contains("http.headers_max"), "{line}");
    std::fs::write(&path, "nonsense = 1\n").unwrap();
    server.signal("HUP");
    let line = server.wait_for_line(|line| line.contains("nonsense"));
    assert!(line.contains("stays as it was"), "{line}");
    server.get("/v1/ledger");
}
