//! The connection is lost at COMMIT, or the server restarts: nothing is lost, nothing counts twice.

use std::sync::Arc;

use postrider_domain::ledger::Ledger;
use postrider_domain::time::Timestamp;
use postrider_store::postgres::{PostgresOptions, PostgresStore};
use postrider_store::{
    Acceptance, Accepted, Commit, DeliveryFilter, History, Intake, ShardLeases, Statistics,
    StoreError, Upkeep, Work,
};
use postrider_store_testing::samples::{
    START, acme, answered, at, delivery_id, destination, refused,
};

use crate::nodes::{attempted, delivery, node, options, owed, put_destinations};
use crate::proxy::{Cut, Proxy};
use crate::server::Server;

const CUTS: [Cut; 3] = [Cut::Before, Cut::After, Cut::Between];

async fn ledger(store: &PostgresStore) -> Ledger {
    let ledger = store.ledger(None).await.unwrap();
    assert!(ledger.balances(), "{ledger:?}");
    ledger
}

#[tokio::test]
async fn acceptance_cut_off_at_its_commit_is_stored_once_after_a_repeat() {
    let server = Server::start();
    server.database("cut");
    let proxy = Proxy::to(server.port()).await;
    // No hints: sending one would be another commit.
    let quiet = PostgresOptions { listen: false, ..options("one") };
    let store = PostgresStore::connect(&proxy.url("cut"), quiet).await.unwrap();
    store.accept(vec![owed(0, 5)]).await.unwrap();
    let (mut unseen, mut rounds) = (0, 0);
    for (n, cut) in (1u64..).zip(CUTS.into_iter().cycle().take(30)) {
        let batch = vec![Acceptance { id_given: n % 2 == 0, ..owed(n, 5) }];
        proxy.cut_next(cut);
        let lost = store.accept(batch.clone()).await;
        assert!(matches!(lost, Err(StoreError::Unavailable(_))), "{cut:?}: {lost:?}");
        assert!(proxy.has_cut());
        let again = store.accept(batch).await.unwrap();
        let happened = again == [Accepted::Duplicate { deliveries: 5 }];
        assert!(happened || again == [Accepted::New], "{again:?}");
        match cut {
            Cut::Before => assert!(!happened),
            Cut::After => assert!(happened),
            Cut::Between => {}
        }
        unseen += u64::from(happened);
        rounds += 1;
        assert_eq!(ledger(&store).await.accepted, 5 * (n + 1), "{cut:?}");
        let all = store.count_deliveries(&acme(), &DeliveryFilter::default()).await.unwrap();
        assert_eq!(all, 5 * (n + 1));
    }
    println!("cut at COMMIT, accept: {rounds} cuts, {unseen} had happened, 0 lost, 0 twice");
}

/// Repeats a settlement until it succeeds; returns the number of tries.
async fn insist(store: &PostgresStore, leases: &ShardLeases, commit: &Commit) -> u64 {
    for tries in 1.. {
        match store.settle(leases, commit.clone()).await {
            Ok(()) => return tries,
            Err(StoreError::Unavailable(_)) => {}
            Err(other) => panic!("{other}"),
        }
    }
    unreachable!("it is tried for ever")
}

#[tokio::test]
async fn settlement_cut_off_at_its_commit_counts_once_after_a_repeat() {
    let server = Server::start();
    server.database("cut");
    let proxy = Proxy::to(server.port()).await;
    let store = node(&proxy.url("cut"), "one").await;
    put_destinations(&store, 3).await;
    let leases = store.hold_shards().await.unwrap();
    store.accept((0..12).map(|n| owed(n, 3)).collect()).await.unwrap();
    let (mut cuts, mut attempts, mut failures) = (0, 0u64, 0u64);
    for n in 0..36u64 {
        // Two failures, then success; 410 changes the circuit too.
        for (turn, ending) in [refused(), answered(410), answered(200)].into_iter().enumerate() {
            let now = at(1_000 + n);
            let before = delivery(&store, n).await;
            let commit = attempted(&store, &before, ending, now).await;
            let cut = CUTS[usize::try_from(n).unwrap() % 3];
            proxy.cut_next(cut);
            let tries = insist(&store, &leases, &commit).await;
            assert_eq!(tries, 2, "{cut:?}: once in vain, once to be sure");
            cuts += 1;
            attempts += 1;
            failures += u64::from(turn < 2);
            assert_eq!(delivery(&store, n).await, commit.deliveries[0].delivery);
            let log = store.attempts(&acme(), delivery_id(n)).await.unwrap();
            assert_eq!(log.len(), turn + 1);
        }
        let ledger = ledger(&store).await;
        assert_eq!((ledger.accepted, ledger.delivered, ledger.waiting), (36, n + 1, 0));
    }
    let tallies = store.tallies(None, START, Timestamp::MAX, 1).await.unwrap();
    let sum = |count: fn(&postrider_store::Tally) -> u64| {
        tallies.iter().map(|at| count(&at.tally)).sum::<u64>()
    };
    assert_eq!((sum(|t| t.delivered), sum(|t| t.failed)), (36, failures));
    let ids: Vec<_> = (0..3).map(|n| destination(&acme(), n).id).collect();
    let counted = store.attempt_sums(None, &ids, [Timestamp::EPOCH; 2]).await.unwrap();
    assert_eq!(counted.iter().map(|one| one.sums[0].attempts()).sum::<u64>(), attempts);
    println!(
        "cut at COMMIT, settle: {cuts} cuts, {attempts} attempts logged once, ledger and tallies \
         exact"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_restarts_in_the_middle_loses_nothing() {
    let server = Arc::new(Server::start());
    let url = server.database("restarted");
    let store = node(&url, "one").await;
    store.accept(vec![owed(0, 2)]).await.unwrap();
    let callers: Vec<_> = (1..=8u64)
        .map(|caller| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                let (mut unavailable, mut unseen) = (0u64, 0u64);
                for n in 0..40 {
                    let batch = vec![owed(caller * 100 + n, 2)];
                    let mut was_lost = false;
                    loop {
                        match store.accept(batch.clone()).await {
                            Ok(answers) => {
                                let is_new = answers == [Accepted::New];
                                assert!(is_new || was_lost, "{answers:?}");
                                unseen += u64::from(!is_new);
                                break;
                            }
                            Err(StoreError::Unavailable(_)) => {
                                was_lost = true;
                                unavailable += 1;
                                tokio::task::yield_now().await;
                            }
                            Err(other) => panic!("{other}"),
                        }
                    }
                }
                (unavailable, unseen)
            })
        })
        .collect();
    for signal in ["INT", "QUIT", "INT", "QUIT"] {
        let server = Arc::clone(&server);
        tokio::task::spawn_blocking(move || server.restart(signal)).await.unwrap();
    }
    let (mut unavailable, mut unseen) = (0, 0);
    for caller in callers {
        let (tries, found) = caller.await.unwrap();
        unavailable += tries;
        unseen += found;
    }
    let ledger = ledger(&store).await;
    assert_eq!((ledger.accepted, ledger.queued), (2 * 321, 2 * 321));
    println!(
        "restarts: 4, acknowledged 321 events, {unavailable} refused tries, {unseen} had happened, \
         0 lost, 0 twice"
    );
}
