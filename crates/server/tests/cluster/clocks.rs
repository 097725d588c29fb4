//! Nodes whose clocks differ by an hour, and a database clock that is set: Postrider's times
//! continue unchanged.

use serde_json::json;

use crate::scene::{PLACES, Scene, now};
use crate::server::Server as Postgres;
use crate::set_clock::SetClock;
use crate::skew;

/// The acceptance time, in milliseconds, of an event that this node accepts now.
fn accepted_at(scene: &Scene, place: usize) -> i64 {
    let event = json!({"type": "task.mark", "data": {"mark": place}});
    let id = scene.node(place).ask("POST", "/v1/events", Some(&event), 202)["id"].clone();
    let id = id.as_str().unwrap();
    let sql = format!("SELECT accepted_at FROM postrider.event_ids WHERE id = '{id}'");
    scene.postgres.sql("cluster", &sql).parse().unwrap()
}

#[test]
fn clocks_an_hour_apart_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let library = skew::library(folder.path());
    let library = library.to_str().unwrap();
    let postgres = Postgres::start();
    let url = postgres.database("cluster");
    let variables = [("LD_PRELOAD", library), (skew::SECONDS, "±3600")];
    let mut scene = Scene::at(postgres, url, 3, &variables);
    for (place, off) in [(1, "\"off_ms\":3"), (2, "\"off_ms\":-3")] {
        let node = scene.nodes[place].as_mut().unwrap();
        node.wait_for_line(|line| line.contains("clock differs") && line.contains(off));
    }
    let load = scene.load();
    scene.receiver.wait_for_more(PLACES * 20);
    let began = now();
    scene.kill(1);
    let in_flight = scene.in_flight();
    let took = scene.takeover(began, "skewed-");
    let acknowledged = load.end();
    let stamps = "SELECT max(abs(created_at - extract(epoch FROM clock_timestamp()) * 1000))::bigint \
                  FROM postrider.deliveries_done";
    let furthest: u64 = scene.postgres.sql("cluster", stamps).parse().unwrap();
    assert!(furthest < 600_000, "a time that is {furthest} ms off was written");
    let ended = scene.settle(&acknowledged, &in_flight);
    println!("cluster, clocks an hour apart: takeover {took:?}, {ended}");
}

#[test]
fn a_database_clock_that_is_set_costs_no_slot_and_makes_nothing_early() {
    let skew = SetClock::new();
    let postgres = Postgres::start_in(&skew.variables());
    let url = postgres.database("cluster");
    let mut scene = Scene::at(postgres, url, 2, &[]);
    let load = scene.load();
    scene.receiver.wait_for_more(PLACES * 10);
    for (seconds, by) in [(49 * 3600, "\"by_ms\":1"), (-49 * 3600, "\"by_ms\":-3")] {
        let before = accepted_at(&scene, 0);
        skew.set(seconds);
        for node in scene.nodes.iter_mut().flatten() {
            node.wait_for_line(|line| line.contains("time of day was set") && line.contains(by));
        }
        scene.receiver.wait_for_more(PLACES * 10);
        for place in 0..2 {
            let passed = accepted_at(&scene, place) - before;
            assert!((0..600_000).contains(&passed), "{passed} ms later on node {place}");
        }
    }
    // A starting node has the time of the other nodes, not of the database.
    let before = accepted_at(&scene, 0);
    scene.join();
    let passed = accepted_at(&scene, 2) - before;
    assert!((0..600_000).contains(&passed), "{passed} ms later on the node that started");
    // A node that dies while the clock is set back is replaced too.
    scene.wait_for_shares();
    scene.node(1).signal("STOP");
    skew.set(-98 * 3600);
    scene.kill(1);
    let acknowledged = load.end();
    let event = json!({"type": "task.mark", "data": {"mark": "succeeded"}});
    scene.any().ask("POST", "/v1/events", Some(&event), 202);
    scene.receiver.wait_for_event("succeeded", PLACES);
    // Leases that end by the database's clock may cause duplicates, like every takeover.
    let mut explained = scene.unfinished();
    explained.append(&mut scene.settled());
    let ended = scene.settle(&acknowledged, &explained);
    println!("cluster, the database's clock set by 49 h: {ended}");
}
