//! The story of a weekend on a faster clock: Friday's failure, Monday's recovery, everything delivered
//! once.

use serde_json::Value as Json;

use crate::support::server::Server;
use crate::support::{Receiver, Start, balances, text};

/// The ledger, which balances whenever somebody looks.
fn ledger(server: &Server) -> Json {
    let ledger = server.ledger();
    assert!(balances(&ledger), "{ledger}");
    ledger
}

#[test]
fn a_weekend_outage_ends_with_everything_delivered_once() {
    let receiver = Receiver::start(200);
    // 48 hours are 8.7 seconds on this clock, and ten minutes 30 ms.
    let settings = ["--time-scale", "20000", "--set", "recovery.dead=replay"];
    let mut server = Start::dev().with(&settings).fresh();
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
    for delivery in server.all("/v1/deliveries") {
        let one = server.get(&format!("/v1/deliveries/{}", text(&delivery, "id")));
        let log = one["attempt_log"].as_array().unwrap();
        let taken = log.iter().filter(|attempt| attempt["status"] == 200).count();
        assert_eq!(taken, 1, "once: {one}");
    }
    let jobs = server.get("/v1/replays");
    let replayed: u64 =
        jobs["data"].as_array().unwrap().iter().map(|job| job["done"].as_u64().unwrap()).sum();
    assert!(replayed >= 180, "{jobs}");
}
