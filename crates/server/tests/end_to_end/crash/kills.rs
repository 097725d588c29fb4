//! `kill -9` at random moments: under load, and during the start.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use crate::crash::{Load, Random, count, figure};
use crate::support::server::Server;
use crate::support::{Receiver, Start, balances};

/// Attempts at the same time to one destination: the default of `engine.destination_in_flight_max`.
const IN_FLIGHT_MAX: usize = 64;

/// Repeated requests of each delivery, by the kill before which they came, and the most for one
/// kill.
fn duplicates(receiver: &Receiver, counts: &[usize]) -> (usize, usize) {
    let mut seen = HashSet::new();
    let mut by_kill = vec![0; counts.len() + 1];
    for (index, arrived) in receiver.arrived().into_iter().enumerate() {
        if !seen.insert(arrived.webhook_id) {
            by_kill[counts.partition_point(|count| *count <= index)] += 1;
        }
    }
    (by_kill.iter().sum(), by_kill.into_iter().max().unwrap_or(0))
}

/// Checks that every acknowledged event is there with its three deliveries, that every delivery
/// arrived, and that nothing else arrived.
fn compare(server: &Server, acknowledged: &[String], receivers: &[&Receiver], kills: usize) {
    let deliveries = server.all("/v1/deliveries");
    let mut by_event: HashMap<&str, usize> = HashMap::new();
    for delivery in &deliveries {
        *by_event.entry(delivery["event_id"].as_str().unwrap()).or_default() += 1;
    }
    for id in acknowledged {
        let found = by_event.get(id.as_str()).copied().unwrap_or(0);
        assert_eq!(found, receivers.len(), "{id} was acknowledged: {found} deliveries are there");
    }
    let arrived: HashSet<_> = receivers
        .iter()
        .flat_map(|receiver| receiver.arrived())
        .map(|arrived| arrived.webhook_id)
        .collect();
    let known: HashSet<_> =
        deliveries.iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect();
    let (missing, unknown) = (known.difference(&arrived), arrived.difference(&known));
    assert_eq!(missing.count(), 0, "recorded as delivered, and never arrived");
    assert_eq!(unknown.count(), 0, "arrived, and nobody knows of it");
    // Every request is in the log of attempts, except those in flight at a kill.
    let requests: usize = receivers.iter().map(|receiver| receiver.count()).sum();
    let attempts: u64 = deliveries.iter().map(|one| one["attempts"].as_u64().unwrap()).sum();
    let attempts = usize::try_from(attempts).unwrap();
    let unrecorded = requests.checked_sub(attempts);
    let most = kills * IN_FLIGHT_MAX * receivers.len();
    assert!(
        unrecorded.is_some_and(|count| count <= most),
        "{requests} requests, {attempts} attempts in the log"
    );
    let ledger = server.ledger();
    assert!(balances(&ledger), "{ledger}");
    assert_eq!(ledger["accepted"], deliveries.len(), "{ledger}");
    assert_eq!(ledger["delivered"], deliveries.len(), "{ledger}");
}

#[test]
fn acknowledged_events_survive_being_killed() {
    let kills = count("CRASH_KILLS", 30);
    let mut random = Random::new();
    // On this clock 48 hours take half an hour, and ten minutes six seconds. No delivery may use up
    // its schedule: with many kills, the clock is slower.
    let scale = if kills > 60 { "20" } else { "100" };
    let start = || Start::dev().with(&["--time-scale", scale, "--set", "recovery=drain"]);
    let [healthy, flaky, broken] = [200, 200, 500].map(Receiver::start);
    flaky.fail_first_of(3);
    let mut server = start().fresh();
    for receiver in [&healthy, &flaky, &broken] {
        server.subscribe(&receiver.url());
    }
    let (mut acknowledged, mut counts, mut while_starting) = (Vec::new(), Vec::new(), 0);
    while counts.len() < kills {
        let load = Load::start(&server, &format!("event-{}", counts.len()), 3);
        let more = usize::try_from(random.below(60)).unwrap();
        healthy.wait_until(healthy.count() + more);
        random.moment(Duration::from_millis(5));
        server.kill();
        acknowledged.extend(load.acknowledged());
        counts.push(healthy.count());
        while counts.len() < kills && random.below(4) == 0 {
            // The next process is killed while it opens the store, or just after.
            let mut starting = start().spawn(&server.data_dir);
            random.moment(Duration::from_millis(400));
            starting.kill();
            counts.push(healthy.count());
            while_starting += 1;
        }
        server = server.succeeded_by(start());
        let ledger = server.ledger();
        assert!(balances(&ledger), "{ledger}");
    }

    broken.answer(200);
    flaky.fail_first_of(0);
    server.wait("everything to be delivered", |server| {
        let ledger = server.ledger();
        (ledger["delivered"] == ledger["accepted"]).then_some(())
    });
    compare(&server, &acknowledged, &[&healthy, &flaky, &broken], kills);
    let (repeats, most) = duplicates(&healthy, &counts);
    assert!(most <= IN_FLIGHT_MAX, "{most} repeats after one kill: more than were in flight");
    figure(&format!(
        "kill-9: {kills} kills ({while_starting} while starting), {} acknowledged, 0 lost, \
         {repeats} duplicates, at most {most} after one kill",
        acknowledged.len()
    ));
}
