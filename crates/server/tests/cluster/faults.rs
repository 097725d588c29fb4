//! Faults under load: a node killed, a node suspended, the database restarted, connections cut at
//! COMMIT, nodes that join and leave. Everything is checked at the end.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::proxy::{Cut, Proxy};
use crate::scene::{PLACES, Scene, now, rounds};
use crate::server::Server as Postgres;

#[test]
fn a_node_that_is_killed_loses_nothing() {
    let mut scene = Scene::new(3);
    let (mut acknowledged, mut in_flight, mut longest) =
        (Vec::new(), BTreeSet::new(), Duration::ZERO);
    for round in 0..rounds() {
        let load = scene.load();
        scene.receiver.wait_for_more(PLACES * 20);
        let place = round % 3;
        let began = now();
        scene.kill(place);
        in_flight.append(&mut scene.in_flight());
        longest = longest.max(scene.takeover(began, &format!("killed-{round}-")));
        acknowledged.extend(load.end());
        scene.start(place);
    }
    let ended = scene.settle(&acknowledged, &in_flight);
    println!("cluster, kill -9: {} of 3 nodes killed, takeover {longest:?}, {ended}", rounds());
}

#[test]
fn a_node_that_is_stopped_for_longer_than_its_lease_settles_nothing() {
    let mut scene = Scene::new(3);
    let (mut acknowledged, mut in_flight, mut longest) =
        (Vec::new(), BTreeSet::new(), Duration::ZERO);
    for round in 0..rounds() {
        let load = scene.load();
        scene.receiver.wait_for_more(PLACES * 20);
        let place = 2 - round % 2;
        let began = now();
        scene.node(place).signal("STOP");
        // A delivery that was about to be sent is sent when the node resumes.
        in_flight.append(&mut scene.unfinished());
        // Other nodes own its shards by then, so its lease has ended.
        longest = longest.max(scene.takeover(began, &format!("stopped-{round}-")));
        scene.node(place).signal("CONT");
        acknowledged.extend(load.end());
        let node = scene.nodes[place].as_mut().unwrap();
        node.wait_for_line(|line| line.contains("shards held"));
    }
    let ended = scene.settle(&acknowledged, &in_flight);
    println!("cluster, SIGSTOP: {} stops, takeover {longest:?}, {ended}", rounds());
}

#[test]
fn a_database_that_restarts_loses_nothing() {
    let mut scene = Scene::new(3);
    let (mut acknowledged, mut in_flight) = (Vec::new(), BTreeSet::new());
    for _ in 0..rounds() {
        for signal in ["INT", "QUIT"] {
            let load = scene.load();
            scene.receiver.wait_for_more(PLACES * 10);
            scene.postgres.restart(signal);
            in_flight.append(&mut scene.in_flight());
            scene.receiver.wait_for_more(PLACES * 10);
            acknowledged.extend(load.end());
        }
    }
    let ended = scene.settle(&acknowledged, &in_flight);
    println!("cluster, database: {} restarts, {ended}", rounds() * 2);
}

#[test]
fn connections_that_are_cut_at_commit_lose_nothing() {
    let postgres = Postgres::start();
    postgres.database("cluster");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let proxy = runtime.block_on(Proxy::to(postgres.port()));
    let url = proxy.url("cluster");
    let mut scene = Scene::at(postgres, url, 2, &[]);
    let (load, mut cuts) = (scene.load(), 0);
    for _ in 0..rounds() * 10 {
        for cut in [Cut::Before, Cut::After, Cut::Between] {
            proxy.cut_next(cut);
            scene.receiver.wait_for_more(2);
            // A cut that has not happened yet would hit the checks at the end.
            while !proxy.has_cut() {
                scene.receiver.wait_for_more(1);
            }
            cuts += 1;
        }
    }
    let acknowledged = load.end();
    // Nothing is sent twice: a settlement is repeated until its outcome is known.
    let ended = scene.settle(&acknowledged, &BTreeSet::new());
    println!("cluster, cut at COMMIT: {cuts} cuts, {ended}");
}

#[test]
fn nodes_come_and_go() {
    let mut scene = Scene::new(1);
    let (mut acknowledged, mut longest) = (Vec::new(), Duration::ZERO);
    for round in 0..rounds() {
        let load = scene.load();
        scene.receiver.wait_for_more(PLACES * 5);
        let began = now();
        for _ in 0..2 {
            scene.join();
        }
        let nodes = scene.nodes.len();
        // Shards move while their owners send: the old owner first lets its attempts in flight end.
        scene.wait_for_shares();
        longest = longest.max(scene.takeover(began, &format!("joined-{round}-")));
        acknowledged.extend(load.end());
        let load = scene.load();
        scene.receiver.wait_for_more(PLACES * 5);
        // A node that shuts down in order settles its attempts in flight: nothing is repeated.
        for place in nodes - 2..nodes {
            scene.leave(place);
        }
        longest = longest.max(scene.takeover(now(), &format!("left-{round}-")));
        acknowledged.extend(load.end());
    }
    // Nothing may arrive twice.
    let ended = scene.settle(&acknowledged, &BTreeSet::new());
    let n = rounds() * 2;
    println!("cluster, membership: {n} joins, {n} orderly ends, takeover {longest:?}, {ended}");
}
