//! The database's clock is set while nodes run: the nodes find each other's time.

use std::time::Duration;

use postrider_domain::time::Timestamp;
use postrider_store::Upkeep as _;
use postrider_store::postgres::{PostgresOptions, PostgresStore};

use crate::server::Server;
use crate::set_clock::SetClock;

const HOUR_MS: i64 = 3_600_000;

async fn node(server: &Server, name: &str) -> std::sync::Arc<PostgresStore> {
    let lease = Duration::from_millis(200);
    let options = PostgresOptions { node: name.into(), lease, ..PostgresOptions::default() };
    PostgresStore::connect(&server.url("clocks"), options).await.unwrap()
}

#[tokio::test]
async fn starting_node_finds_the_time_of_the_running_nodes() {
    let skew = SetClock::new();
    let server = Server::start_in(&skew.variables());
    server.database("clocks");
    let a = node(&server, "a").await;
    let first = a.look_at_clock().await.unwrap();
    assert_eq!((first.others_ahead_ms, first.has_others, first.last), (None, false, None));
    a.hold_shards().await.unwrap();
    a.tell_clock(first.now).await.unwrap();

    let b = node(&server, "b").await;
    let near = |ms: i64, expected: i64| (ms - expected).abs() < HOUR_MS / 2;
    for (seconds, ahead_ms) in [(49 * 3600, -49 * HOUR_MS), (-49 * 3600, 49 * HOUR_MS)] {
        skew.set(seconds);
        let before = b.look_at_clock().await.unwrap();
        assert_eq!(before.others_ahead_ms, None, "what was said before the clock was set is old");
        assert!(before.has_others);
        // The node's own clock continues at the pace of real time.
        a.tell_clock(first.now).await.unwrap();
        let seen = b.look_at_clock().await.unwrap();
        assert!(near(seen.now.ms_from(first.now), seconds * 1000), "{seen:?}");
        assert!(near(seen.others_ahead_ms.unwrap(), ahead_ms), "{seen:?}");
        let (last, last_ahead_ms) = seen.last.unwrap();
        assert!(near(last.ms_from(first.now), 0) && near(last_ahead_ms, ahead_ms), "{seen:?}");
        assert_eq!(a.look_at_clock().await.unwrap().others_ahead_ms, None, "b has said nothing");
    }
    assert!(first.now > Timestamp::EPOCH);
}

#[tokio::test]
async fn lease_of_a_dead_node_ends_even_if_the_database_clock_was_set_back() {
    let skew = SetClock::new();
    let server = Server::start_in(&skew.variables());
    server.database("clocks");
    let dead = node(&server, "a").await;
    assert_eq!(dead.hold_shards().await.unwrap().shards.len(), 256);
    let alive = node(&server, "b").await;
    skew.set(-49 * 3600);
    // The lease of the dead node ends in 49 hours by the database's clock.
    while alive.hold_shards().await.unwrap().shards.len() < 256 {
        tokio::task::yield_now().await;
    }
    let fenced = dead.hold_shards().await.unwrap();
    assert!(fenced.shards.len() <= 128, "it comes back as a new node");
}
