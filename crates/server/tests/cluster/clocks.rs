//! Clocks an hour apart: only the database's counts.

use std::process::Command;

use crate::scene::{PLACES, Scene, now};
use crate::server::Server as Postgres;

/// Moves the time of day that a process sees, and no other clock.
const SKEW: &str = r#"
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t id, struct timespec *at) {
    int result = syscall(SYS_clock_gettime, id, at);
    const char *skew = getenv("TEST_SKEW_SECONDS");
    if (result == 0 && id == CLOCK_REALTIME && skew) at->tv_sec += atol(skew);
    return result;
}
"#;

#[test]
fn clocks_an_hour_apart_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (source, library) = (folder.path().join("skew.c"), folder.path().join("skew.so"));
    std::fs::write(&source, SKEW).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source);
    assert!(cc.status().unwrap().success(), "cc, which every build here needs");
    let library = library.to_str().unwrap();
    let postgres = Postgres::start();
    let url = postgres.database("cluster");
    let variables = [("LD_PRELOAD", library), ("TEST_SKEW_SECONDS", "±3600")];
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
