//! A destination recovers after an outage, with very many deliveries waiting for it.

use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::crash::neighbours::{Pulse, in_order};
use crate::crash::{count, figure};
use crate::support::{Receiver, Start, balances, text};

#[test]
fn a_destination_that_returns_is_not_flooded_and_nobody_else_notices() {
    let waiting = count("CRASH_WAITING", 20_000);
    // Slow enough that as many requests overlap as the limit allows.
    let returning = Receiver::start_slow(500, Duration::from_millis(2));
    let other = Receiver::start(200);
    let settings = ["--time-scale", "100", "--set", "recovery=drain"];
    let mut server =
        Start::dev().with(&settings).with(&["--set", "telemetry.attempts=false"]).fresh();
    let made = server.subscribe_to(&returning.url(), "order.placed");
    server.subscribe_to(&other.url(), "pulse.*");

    let mut quiet = Pulse::send(&server, &other, 200, |_| "pulse.quiet".to_owned());
    let events: Vec<_> =
        (0..1000).map(|n| json!({ "type": "order.placed", "data": { "n": n } })).collect();
    for _ in 0..waiting.div_ceil(1000) {
        server.ask("POST", "/v1/events/batch", Some(&json!(events)), 202);
    }
    server.wait("everything to wait", |server| {
        let ledger = server.ledger();
        (ledger["queued"] == 0 && ledger["in_flight"].as_u64() <= Some(1)).then_some(())
    });
    let backlog = server.ledger()["waiting"].as_u64().unwrap();
    let failed_before = returning.count();

    returning.answer(200);
    let mut busy = Pulse::send(&server, &other, 200, |_| "pulse.busy".to_owned());
    let mut delivered = 0;
    let all = u64::try_from(waiting.div_ceil(1000) * 1000 + 400).unwrap();
    while delivered < all {
        // However long it takes, it must make progress.
        delivered = server.wait("more to be delivered", |server| {
            let now = server.ledger()["delivered"].as_u64().unwrap();
            (now > delivered).then_some(now)
        });
    }
    let ledger = server.ledger();
    assert!(balances(&ledger) && ledger["dead"] == 0, "{ledger}");
    let peak = returning.open_most();
    assert!(peak <= 64, "{peak} requests at the same time");
    let list = server.get("/v1/destinations");
    let destinations = list["data"].as_array().unwrap();
    let destination = destinations.iter().find(|one| one["url"] == made["url"]).unwrap();
    let timeline = server.get(&format!("/v1/destinations/{}/timeline", text(destination, "id")));
    let entries = timeline["data"].as_array().unwrap();
    let is_trip = |one: &&Json| one["from"] == "enabled" && one["to"] == "disabled";
    let trips = entries.iter().filter(is_trip).count();
    assert_eq!(trips, 1, "{timeline}");
    assert_eq!(destination["state"], "enabled", "{destination}");
    let (quiet, busy) = (in_order(&mut quiet), in_order(&mut busy));
    assert!(busy.p99 < quiet.p99 * 2 + Duration::from_secs(1), "{busy}, quiet {quiet}");
    figure(&format!(
        "return after an outage: {backlog} waiting, {failed_before} failed before, peak {peak} at \
         a time, 1 trip, 0 dead; another destination meanwhile {busy}, before {quiet}; memory at \
         most {} MiB",
        server.peak_memory_kib() / 1024
    ));
}
