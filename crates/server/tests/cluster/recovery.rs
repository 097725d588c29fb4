//! Recovery in a cluster of two nodes: what people ask for and what a policy does is sent once, whichever
//! node owns the destination, and although an owner is killed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Value as Json, json};

use crate::server::Server as Postgres;
use crate::support::receiver::Receiver;
use crate::support::server::Server;
use crate::support::{Start, balances, text};

const DATABASE: &str = "recovery";
const DESTINATIONS: usize = 8;

/// Starts a node; more nodes share the key ring of the first one.
fn join(url: &str, folder: &Path, name: &str, settings: &[&str]) -> Server {
    let here = folder.join(name);
    std::fs::create_dir_all(&here).unwrap();
    if name != "a" {
        std::fs::copy(folder.join("a/keyring"), here.join("keyring")).unwrap();
    }
    let mut start = Start::dev()
        .with(&["--store", url, "--set", &format!("node={name}")])
        .variable("POSTRIDER_ADMIN_KEY", "admin-key-of-the-cluster-tests");
    for setting in settings {
        start = start.with(&["--set", setting]);
    }
    start.at(&here)
}

/// Two nodes, each with half of the shards.
fn pair(postgres: &Postgres, folder: &Path, settings: &[&str]) -> [Server; 2] {
    let url = postgres.database(DATABASE);
    let mut first = join(&url, folder, "a", settings);
    let second = join(&url, folder, "b", settings);
    first.wait("both nodes to have their half of the shards", |_| {
        let sql = "SELECT count(*) FROM (SELECT owner FROM postrider.shards GROUP BY owner \
                   HAVING count(*) = 128) AS s";
        (postgres.sql(DATABASE, sql) == "2").then_some(())
    });
    [first, second]
}

fn wait_for(server: &mut Server, state: &str, count: usize) {
    server.wait(&format!("{count} to be {state}"), |server| {
        let ledger = server.ledger();
        assert!(balances(&ledger), "{ledger}");
        (ledger[state] == count).then_some(())
    });
}

fn destinations(server: &Server) -> Vec<String> {
    let list = server.get("/v1/destinations");
    let list = list["data"].as_array().unwrap();
    assert_eq!(list.len(), DESTINATIONS);
    list.iter().map(|one| text(one, "id")).collect()
}

/// How often the receiver has accepted each delivery.
fn accepted(receiver: &Receiver) -> BTreeMap<String, usize> {
    let mut times = BTreeMap::new();
    for one in receiver.arrived().into_iter().filter(|one| one.status == 200) {
        *times.entry(one.webhook_id).or_default() += 1;
    }
    times
}

#[test]
fn bulk_retry_and_enabling_with_drain_and_dead_since_send_each_once_from_either_node() {
    let (postgres, folder) = (Postgres::start(), tempfile::tempdir().unwrap());
    let receiver = Receiver::start(500);
    let [mut first, second] = pair(&postgres, folder.path(), &[]);
    // Each destination has two subscriptions: what one is owed waits, what the other is owed dies at once.
    for n in 0..DESTINATIONS {
        let url = receiver.url_of(&format!("place-{n}"));
        first.subscribe_to(&url, "task.updated");
        let none = json!({"retry": {"max": 0}});
        let body = json!({"url": url, "types": ["task.*"], "policy": none});
        second.ask("POST", "/v1/subscriptions", Some(&body), 201);
    }
    first.send(3);
    wait_for(&mut first, "waiting", DESTINATIONS * 3);
    wait_for(&mut first, "dead", DESTINATIONS * 3);
    receiver.answer(200);
    let all = destinations(&first);
    let (half, _) = all.split_at(DESTINATIONS / 2);
    for id in half {
        let body = json!({"state": "waiting", "destination": id});
        second.ask("POST", "/v1/replays", Some(&body), 201);
    }
    wait_for(&mut first, "delivered", DESTINATIONS / 2 * 3);
    assert_eq!(first.ledger()["dead"], DESTINATIONS * 3, "a retry replays nothing");
    for (n, id) in all.iter().enumerate() {
        let body = json!({"waiting": "drain", "dead_since": "2020-01-01T00:00:00Z"});
        let node = if n % 2 == 0 { &first } else { &second };
        node.ask("POST", &format!("/v1/destinations/{id}/enable"), Some(&body), 200);
    }
    wait_for(&mut first, "delivered", DESTINATIONS * 6);
    let times = accepted(&receiver);
    assert_eq!(times.len(), DESTINATIONS * 6);
    assert!(times.values().all(|times| *times == 1), "{times:?}");
}

#[test]
fn what_died_is_replayed_although_an_owner_is_killed_meanwhile() {
    const DEAD: usize = DESTINATIONS * 40;
    let (postgres, folder) = (Postgres::start(), tempfile::tempdir().unwrap());
    let receiver = Receiver::start(500);
    // Every delivery dies with its first failure, and only people freeze.
    let settings = [
        "recovery.dead=replay",
        "recovery.dead_per_second=20",
        "retry.max=0",
        "circuit.disable_grace=100000",
    ];
    let [mut first, mut second] = pair(&postgres, folder.path(), &settings);
    for n in 0..DESTINATIONS {
        first.subscribe(&receiver.url_of(&format!("place-{n}")));
    }
    first.send(40);
    wait_for(&mut first, "dead", DEAD);
    let all = destinations(&first);
    let switch = |to: &str| {
        for id in &all {
            first.ask("POST", &format!("/v1/destinations/{id}/{to}"), None, 200);
        }
    };
    switch("freeze");
    receiver.answer(200);
    let before = receiver.count();
    switch("enable");
    receiver.wait_until(before + DEAD / 8);
    second.kill();
    // What arrived and is not settled may come once more. Settled ones are read first.
    let sql = "SELECT 'dlv_' || replace(id::text, '-', '') FROM postrider.deliveries_done WHERE state = 2";
    let settled = postgres.sql(DATABASE, sql);
    let settled: BTreeSet<&str> = settled.lines().collect();
    let in_flight: BTreeSet<String> =
        accepted(&receiver).into_keys().filter(|id| !settled.contains(id.as_str())).collect();
    wait_for(&mut first, "delivered", DEAD);
    let times = accepted(&receiver);
    assert_eq!(times.len(), DEAD);
    let twice: Vec<_> =
        times.iter().filter(|(id, times)| **times > 1 && !in_flight.contains(*id)).collect();
    assert!(twice.is_empty(), "replayed twice, and not in flight: {twice:?}");
    let jobs = first.get("/v1/replays");
    let jobs: &Vec<Json> = jobs["data"].as_array().unwrap();
    assert_eq!(jobs.len(), DESTINATIONS, "one job for each destination: {jobs:?}");
}
