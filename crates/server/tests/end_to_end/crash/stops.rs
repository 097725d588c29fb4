//! Orderly shutdowns, under load and with hanging receivers.

use std::collections::BTreeSet;

use crate::crash::{Load, count, figure};
use crate::support::{Receiver, Start, balances};

#[test]
fn stops_under_load_lose_nothing_and_repeat_nothing() {
    let stops = count("CRASH_STOPS", 8);
    let (healthy, flaky) = (Receiver::start(200), Receiver::start(200));
    flaky.fail_first_of(3);
    let start = || Start::dev().with(&["--time-scale", "100"]);
    let mut server = start().fresh();
    server.subscribe(&healthy.url());
    server.subscribe(&flaky.url());
    let mut acknowledged = Vec::new();
    for stop in 0..stops {
        let load = Load::start(&server, &format!("event-{stop}"), 4);
        healthy.wait_until(healthy.count() + 20);
        server = server.restart(start());
        acknowledged.extend(load.acknowledged());
    }
    server.wait("everything to be delivered", |server| {
        let ledger = server.ledger();
        (ledger["delivered"] == ledger["accepted"]).then_some(())
    });
    assert!(balances(&server.ledger()));

    let deliveries = server.all("/v1/deliveries");
    let events: BTreeSet<_> =
        deliveries.iter().map(|delivery| delivery["event_id"].as_str().unwrap()).collect();
    for id in &acknowledged {
        assert!(events.contains(id.as_str()), "{id} was acknowledged and is lost");
    }
    // Each request is one attempt in the log, and each delivery has the attempts that it needs.
    let attempts: u64 = deliveries.iter().map(|one| one["attempts"].as_u64().unwrap()).sum();
    let arrived = healthy.count() + flaky.count();
    assert_eq!(u64::try_from(arrived).unwrap(), attempts, "something was sent and not recorded");
    assert_eq!(healthy.count() * 2, deliveries.len(), "a healthy receiver gets each once");
    figure(&format!(
        "SIGTERM: {stops} stops under load, {} acknowledged, 0 lost, 0 duplicates",
        acknowledged.len()
    ));
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
    // An orderly shutdown would take 100 s, or until the receiver answers, which it never does.
    let receiver = Receiver::start(200);
    let settings = ["--set", "attempt.deadline=100s", "--set", "shutdown.deadline=200s"];
    let mut server = Start::dev().with(&settings).fresh();
    server.subscribe(&receiver.url());
    receiver.hold(true);
    server.send(1);
    receiver.wait_for(1);
    server.signal("TERM");
    server.wait_for_line(|line| line.contains("\"stopping\""));
    server.signal("TERM");
    let (status, log) = server.ended();
    assert!(!status.success(), "{status}: {log}");
    assert_eq!(receiver.count(), 1);
    receiver.hold(false);
    let mut server = server.succeeded_by(Start::dev());
    server.wait("what was given up to be delivered", |server| {
        (server.ledger()["delivered"] == 1).then_some(())
    });
    figure("second SIGTERM: ends at once, 1 attempt given up, 0 lost");
}
