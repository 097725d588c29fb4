//! Ends of all kinds, and what is there afterwards.

use std::collections::BTreeSet;
use std::thread::{self, JoinHandle};

use serde_json::json;

use crate::support::server::Server;
use crate::support::{Receiver, Start, balances, http};

/// Sends events, one at a time, until the server is gone or says that it is stopping. Gives the
/// identifiers of those that were acknowledged.
fn keep_sending(server: &Server, name: String) -> JoinHandle<Vec<String>> {
    let (address, key) = (server.address, server.key.clone());
    thread::spawn(move || {
        let mut acknowledged = Vec::new();
        for n in 0.. {
            let id = format!("{name}-{n}");
            let event = json!({"id": id, "type": "task.updated", "data": {"n": n}});
            match http::request(address, &key, "POST", "/v1/events", Some(&event)) {
                Ok((202, _)) => acknowledged.push(id),
                Ok((503, _)) | Err(_) => break,
                Ok((status, answer)) => panic!("{status}: {answer}"),
            }
        }
        acknowledged
    })
}

fn collect(senders: Vec<JoinHandle<Vec<String>>>) -> Vec<String> {
    senders.into_iter().flat_map(|sender| sender.join().unwrap()).collect()
}

/// How many requests were repeats of one that had arrived before.
fn duplicates(receiver: &Receiver) -> usize {
    let arrived = receiver.arrived();
    let distinct: BTreeSet<_> = arrived.iter().map(|one| &one.webhook_id).collect();
    arrived.len() - distinct.len()
}

/// Kills a server under ingest and failing receivers, again and again; then everything that was
/// acknowledged must be there, and arrive.
#[expect(clippy::print_stdout, reason = "a test of trust prints its figure")]
fn kill_again_and_again(kills: usize, arguments: &[&str]) {
    let start = || Start::dev().with(arguments);
    let (receiver, broken) = (Receiver::start(200), Receiver::start(500));
    let mut server = start().fresh();
    server.subscribe(&receiver.url());
    server.subscribe(&broken.url());
    let mut acknowledged = Vec::new();
    for kill in 0..kills {
        let senders = (0..3).map(|n| keep_sending(&server, format!("event-{kill}-{n}"))).collect();
        // Each time at another moment.
        receiver.wait_for(receiver.arrived().len() + 5 + kill * 7 % 60);
        server = server.kill_and_restart(start());
        acknowledged.extend(collect(senders));
        assert!(balances(&server.ledger()), "{}", server.ledger());
    }

    for id in &acknowledged {
        let event = server.get(&format!("/v1/events/{id}"));
        assert_eq!(event["deliveries"].as_array().unwrap().len(), 2, "{event}");
    }
    broken.answer(200);
    server.wait("everything to be delivered", |server| {
        let ledger = server.ledger();
        (ledger["delivered"] == ledger["accepted"]).then_some(())
    });
    let ledger = server.ledger();
    let expected = u64::try_from(acknowledged.len()).unwrap() * 2;
    assert!(balances(&ledger) && ledger["accepted"].as_u64().unwrap() >= expected, "{ledger}");
    let repeats = duplicates(&receiver);
    assert!(repeats <= kills * 64, "{repeats} repeats: more than can have been in flight");
    println!(
        "kill-9: {kills} kills, {} acknowledged, 0 lost, {repeats} duplicates",
        acknowledged.len()
    );
}

#[test]
fn what_was_acknowledged_survives_being_killed() {
    kill_again_and_again(8, &["--time-scale", "1000"]);
}

#[test]
#[ignore = "minutes: cargo test -p postrider --test end_to_end -- --ignored --nocapture"]
fn what_was_acknowledged_survives_being_killed_often() {
    // The clock is slow enough for nothing to die of age meanwhile.
    kill_again_and_again(100, &["--time-scale", "100", "--set", "recovery=drain"]);
}

#[test]
fn a_stop_under_load_loses_nothing_and_repeats_nothing() {
    let receiver = Receiver::start(200);
    let server = Start::dev().fresh();
    server.subscribe(&receiver.url());
    let senders = (0..4).map(|n| keep_sending(&server, format!("event-{n}"))).collect();
    receiver.wait_for(100);
    let mut server = server.restart(Start::dev());
    let acknowledged = collect(senders);
    let accepted = server.wait("everything to be delivered", |server| {
        let ledger = server.ledger();
        (ledger["delivered"] == ledger["accepted"]).then(|| ledger["accepted"].as_u64().unwrap())
    });
    assert!(accepted >= u64::try_from(acknowledged.len()).unwrap());
    for id in &acknowledged {
        assert_eq!(server.get(&format!("/v1/events/{id}"))["id"], **id);
    }
    assert_eq!(duplicates(&receiver), 0);
    assert_eq!(u64::try_from(receiver.arrived().len()).unwrap(), accepted);
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
