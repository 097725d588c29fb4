//! Clocks an hour apart: only the database's counts.

use crate::scene::{PLACES, Scene, now};
use crate::server::Server as Postgres;
use crate::skew;

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
