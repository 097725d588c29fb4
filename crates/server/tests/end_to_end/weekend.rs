//! The story of a weekend on a faster clock: Friday's failure, Monday's recovery, everything delivered
//! once. On the embedded store, and on PostgreSQL.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value as Json;

use crate::migrate::postgres;
use crate::support::server::Server;
use crate::support::{Receiver, Start, balances, text};

/// The ledger, which balances whenever somebody looks.
fn ledger(server: &Server) -> Json {
    let ledger = server.ledger();
    assert!(balances(&ledger), "{ledger}");
    ledger
}

/// The receiver has accepted each of these deliveries once, and nothing else.
fn assert_each_accepted_once(receiver: &Receiver, expected: &BTreeSet<String>) {
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    for one in receiver.arrived().into_iter().filter(|one| one.status == 200) {
        *times.entry(one.webhook_id).or_default() += 1;
    }
    let twice: Vec<_> = times.iter().filter(|(_, times)| **times != 1).collect();
    assert!(twice.is_empty(), "accepted more than once: {twice:?}");
    assert_eq!(&times.into_keys().collect::<BTreeSet<_>>(), expected);
}

fn weekend(start: Start) {
    let receiver = Receiver::start(200);
    // 48 hours are 8.7 seconds on this clock, and ten minutes 30 ms.
    let settings = ["--time-scale", "20000", "--set", "recovery.dead=replay"];
    let mut server = start.with(&settings).fresh();
    server.subscribe(&receiver.url());
    server.send(20);
    server.wait("Friday's events", |server| (ledger(server)["delivered"] == 20).then_some(()));

    receiver.answer(500);
    server.send(150);
    server.wait("the destination to be disabled", |server| {
        ledger(server);
        (server.destination()["state"] == "disabled").then_some(())
    });
    server.send(30);
    server
        .wait("all of Friday's to be dead", |server| (ledger(server)["dead"] == 180).then_some(()));
    assert_ne!(server.destination()["state"], "enabled");
    server.send(25);

    receiver.answer(200);
    server.wait("everything to be delivered", |server| {
        let ledger = ledger(server);
        (ledger["delivered"] == 225 && ledger["waiting"] == 0).then_some(())
    });
    assert_eq!(server.destination()["state"], "enabled");
    assert_eq!(ledger(&server)["dead"], 0);
    let mut all = BTreeSet::new();
    for delivery in server.all("/v1/deliveries") {
        let id = text(&delivery, "id");
        let one = server.get(&format!("/v1/deliveries/{id}"));
        let log = one["attempt_log"].as_array().unwrap();
        let taken = log.iter().filter(|attempt| attempt["status"] == 200).count();
        assert_eq!(taken, 1, "once: {one}");
        all.insert(id);
    }
    assert_eq!(all.len(), 225);
    assert_each_accepted_once(&receiver, &all);
    let jobs = server.get("/v1/replays");
    let replayed: u64 =
        jobs["data"].as_array().unwrap().iter().map(|job| job["done"].as_u64().unwrap()).sum();
    assert!(replayed >= 180, "{jobs}");
}

#[test]
fn a_weekend_outage_ends_with_everything_delivered_once() {
    weekend(Start::dev());
}

#[test]
fn a_weekend_outage_on_postgresql_ends_with_everything_delivered_once() {
    let database = postgres::Server::start();
    weekend(Start::dev().with(&["--store", &database.database("weekend")]));
}
