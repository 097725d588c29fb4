//! A synchronous standby takes over when the primary is killed: nothing acknowledged is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use postrider_domain::delivery::StateName;
use postrider_store::postgres::PostgresStore;
use postrider_store::{Accepted, DeliveryFilter, History, Intake, StoreError, Upkeep, Work};
use postrider_store_testing::samples::{acme, answered, at, delivery_id};

use crate::nodes::{attempted, delivery, node, owed, put_destinations};
use crate::server::Server;

const CALLERS: u64 = 8;
const EVENTS: u64 = 40;
const FAN_OUT: u64 = 2;

/// Accepts an event until that succeeds; returns whether an earlier try had succeeded without an
/// answer.
async fn accept(store: &PostgresStore, n: u64) -> bool {
    let mut was_lost = false;
    loop {
        match store.accept(vec![owed(n, FAN_OUT)]).await {
            Ok(answers) => {
                let is_new = answers == [Accepted::New];
                assert!(is_new || was_lost, "{n}: {answers:?}");
                return !is_new;
            }
            Err(StoreError::Unavailable(_)) => was_lost = true,
            Err(other) => panic!("{other}"),
        }
        tokio::task::yield_now().await;
    }
}

/// Settles delivery `n` as delivered, until that succeeds.
async fn deliver(store: &PostgresStore, n: u64) {
    loop {
        let settled = async {
            let leases = store.hold_shards().await?;
            let found = store.delivery(&acme(), delivery_id(n)).await?.unwrap();
            if found.state.name() == StateName::Delivered {
                return Ok(());
            }
            let commit = attempted(store, &found, answered(200), at(9_000)).await;
            store.settle(&leases, commit).await
        };
        match settled.await {
            Ok(()) => return,
            Err(StoreError::Unavailable(_)) => tokio::task::yield_now().await,
            Err(other) => panic!("{other}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn promoted_synchronous_standby_has_everything_that_was_acknowledged() {
    let primary = Arc::new(Server::start());
    primary.database("ha");
    let standby = Server::standby_of(&primary);
    primary.sql("postgres", "ALTER SYSTEM SET synchronous_standby_names = '*'");
    primary.sql("postgres", "SELECT pg_reload_conf()");
    let state = "SELECT coalesce(max(sync_state), '') FROM pg_stat_replication";
    while primary.sql("postgres", state) != "sync" {
        tokio::task::yield_now().await;
    }
    let (one, other) = (primary.port(), standby.port());
    let url = format!(
        "postgres://postrider@127.0.0.1:{one},127.0.0.1:{other}/ha?target_session_attrs=read-write"
    );
    let store = node(&url, "one").await;
    put_destinations(&store, FAN_OUT).await;
    accept(&store, 0).await;
    for n in 0..FAN_OUT {
        deliver(&store, n).await;
    }
    let acknowledged = Arc::new(AtomicU64::new(0));
    let callers: Vec<_> = (1..=CALLERS)
        .map(|caller| {
            let (store, acknowledged) = (Arc::clone(&store), Arc::clone(&acknowledged));
            tokio::spawn(async move {
                let mut unseen = 0;
                for n in 0..EVENTS {
                    unseen += u64::from(accept(&store, caller * 100 + n).await);
                    acknowledged.fetch_add(1, Ordering::AcqRel);
                }
                unseen
            })
        })
        .collect();
    while acknowledged.load(Ordering::Acquire) < CALLERS * EVENTS / 3 {
        tokio::task::yield_now().await;
    }
    let before = acknowledged.load(Ordering::Acquire);
    tokio::task::spawn_blocking(move || primary.kill()).await.unwrap();
    assert_eq!(standby.sql("postgres", "SELECT pg_promote()"), "t");
    let mut unseen = 0;
    for caller in callers {
        unseen += caller.await.unwrap();
    }
    deliver(&store, 100 * FAN_OUT).await;
    let ledger = store.ledger(None).await.unwrap();
    let all = (CALLERS * EVENTS + 1) * FAN_OUT;
    assert!(ledger.balances(), "{ledger:?}");
    assert_eq!((ledger.accepted, ledger.delivered), (all, FAN_OUT + 1));
    let found = store.count_deliveries(&acme(), &DeliveryFilter::default()).await.unwrap();
    assert_eq!(found, all, "each is there once");
    for n in 0..FAN_OUT {
        assert_eq!(delivery(&store, n).await.state.name(), StateName::Delivered);
        assert_eq!(store.attempts(&acme(), delivery_id(n)).await.unwrap().len(), 1);
    }
    println!(
        "standby promoted after the primary was killed: {before} events acknowledged before, {} in \
         all, {unseen} had happened unseen, 0 lost, 0 twice",
        CALLERS * EVENTS + 1
    );
}
