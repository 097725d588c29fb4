//! Tests of the memory store only: its queue of writes, crashes and faults.

use std::time::Duration;

use postrider_domain::delivery::StateName;
use postrider_domain::ids::Shard;
use postrider_store::{
    Accepted, Commit, Configuration, DeliveryChange, Epoch, History, Intake, Upkeep, Work,
};

use super::*;
use crate::samples::{self, START, acceptance, acme, event};

/// A delay of this many milliseconds in paused time.
fn pause(ms: u64) -> Delay {
    Arc::new(move || {
        let pause = async move {
            let far = tokio::time::timeout(Duration::from_millis(ms), std::future::pending::<()>());
            assert!(far.await.is_err());
        };
        Box::pin(pause)
    })
}

/// A store whose sync takes this many milliseconds of paused time.
fn slow(ms: u64, seed: u64) -> MemoryStore {
    MemoryStore::new(MemoryOptions { sync: Some(pause(ms)), seed, ..MemoryOptions::default() })
}

async fn accept(store: &MemoryStore, n: u64) -> Result<Vec<Accepted>, StoreError> {
    let event = event(&acme(), &format!("e{n}"));
    store.accept(vec![acceptance(event, START, &[(n, 1)])]).await
}

async fn accepted(store: &MemoryStore) -> u64 {
    store.ledger(None).await.unwrap().accepted
}

#[tokio::test(start_paused = true)]
async fn writes_that_are_not_durable_are_not_read() {
    let store = slow(10, 0);
    let writer = tokio::spawn({
        let store = store.clone();
        async move { accept(&store, 1).await }
    });
    tokio::task::yield_now().await;
    assert_eq!((store.writes_in_line(), accepted(&store).await), (1, 0));
    assert_eq!(writer.await.unwrap().unwrap(), [Accepted::New]);
    assert_eq!((store.writes_in_line(), accepted(&store).await), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_read_answers_what_is_durable_when_its_time_has_passed() {
    let options =
        MemoryOptions { sync: Some(pause(5)), read: Some(pause(10)), ..MemoryOptions::default() };
    let store = MemoryStore::new(options);
    let reader = tokio::spawn({
        let store = store.clone();
        async move { accepted(&store).await }
    });
    tokio::task::yield_now().await;
    accept(&store, 1).await.unwrap();
    assert!(!reader.is_finished());
    assert_eq!(reader.await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_crash_keeps_what_was_acknowledged_and_a_prefix_of_the_rest() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..40 {
        let store = slow(10, seed);
        accept(&store, 0).await.unwrap();
        let writers: Vec<_> = (1..=3)
            .map(|n| {
                let store = store.clone();
                tokio::spawn(async move { accept(&store, n).await })
            })
            .collect();
        tokio::task::yield_now().await;
        assert_eq!(store.writes_in_line(), 3);
        let left = store.crash();
        let survived = accepted(&left).await;
        assert!((1..=4).contains(&survived));
        for n in 0..4 {
            let found = left.delivery(&acme(), samples::delivery_id(n)).await.unwrap();
            assert_eq!(found.is_some(), n < survived, "seed {seed}: a prefix, and no more");
        }
        seen.insert(survived);
        for writer in writers {
            assert!(matches!(writer.await.unwrap(), Err(StoreError::Stopped(_))));
        }
        assert!(matches!(accept(&store, 9).await, Err(StoreError::Stopped(_))));
        assert!(matches!(store.ledger(None).await, Err(StoreError::Stopped(_))));
        assert_eq!(accept(&left, 9).await.unwrap(), [Accepted::New]);
    }
    assert_eq!(seen.len(), 4, "every length of prefix was seen");
}

#[tokio::test]
async fn a_write_that_meets_a_full_disk_did_not_happen_and_the_next_one_does() {
    let store = MemoryStore::default();
    store.fail_next(Fault::DiskFull, 2);
    for _ in 0..2 {
        assert!(matches!(store.check().await, Err(StoreError::DiskFull { .. })));
        assert!(matches!(accept(&store, 1).await, Err(StoreError::DiskFull { .. })));
    }
    assert_eq!(accepted(&store).await, 0);
    store.check().await.unwrap();
    assert_eq!(accept(&store, 1).await.unwrap(), [Accepted::New]);
    let operations = Operations { reads: 1, writes: 3, failed: 2 };
    assert_eq!(store.operations(), operations);
}

#[tokio::test]
async fn an_unavailable_write_happened_or_did_not_and_can_be_repeated() {
    for (fault, happened) in [(Fault::UnavailableBefore, false), (Fault::UnavailableAfter, true)] {
        let store = MemoryStore::default();
        store.fail_next(fault, 1);
        assert!(matches!(accept(&store, 1).await, Err(StoreError::Unavailable(_))));
        assert_eq!(accepted(&store).await, u64::from(happened));
        let again = accept(&store, 1).await.unwrap();
        let repeated = Accepted::Duplicate { deliveries: 1 };
        assert_eq!(again, [if happened { repeated } else { Accepted::New }]);
        assert_eq!(accepted(&store).await, 1);
    }
}

#[tokio::test]
async fn a_store_that_stopped_stays_stopped_until_it_is_opened_anew() {
    let store = MemoryStore::default();
    store.fail_later(1, Fault::Stopped, 1);
    accept(&store, 1).await.unwrap();
    assert!(matches!(accept(&store, 2).await, Err(StoreError::Stopped(_))));
    assert!(matches!(accept(&store, 3).await, Err(StoreError::Stopped(_))));
    assert!(matches!(store.check().await, Err(StoreError::Stopped(_))));
    assert!(matches!(store.close().await, Err(StoreError::Stopped(_))));
    store.heal();
    assert!(matches!(accept(&store, 3).await, Err(StoreError::Stopped(_))));
    let left = store.crash();
    assert_eq!(accepted(&left).await, 1);
    assert_eq!(accept(&left, 2).await.unwrap(), [Accepted::New]);
}

#[tokio::test]
async fn reads_fail_when_told_and_plans_can_be_taken_back() {
    let store = MemoryStore::default();
    store.fail_next_reads(1);
    assert!(matches!(store.tenant(&acme()).await, Err(StoreError::Unavailable(_))));
    assert_eq!(store.tenant(&acme()).await.unwrap(), None);
    store.fail_next_reads(5);
    store.fail_next(Fault::DiskFull, 5);
    store.heal();
    assert_eq!(store.tenant(&acme()).await.unwrap(), None);
    accept(&store, 1).await.unwrap();
}

#[tokio::test]
async fn a_commit_that_does_not_fit_is_refused_whole() {
    let store = MemoryStore::default();
    accept(&store, 1).await.unwrap();
    accept(&store, 2).await.unwrap();
    let leases = store.hold_shards().await.unwrap();
    let cancelled = |delivery: &postrider_domain::delivery::Delivery, before| DeliveryChange {
        before,
        by_job: None,
        delivery: delivery
            .cancelled(postrider_domain::delivery::CancelReason::Asked, START)
            .unwrap(),
        attempt: None,
    };
    let queued = store.queued(&leases, None, 10).await.unwrap();
    let fits = cancelled(&queued[0], StateName::Queued);
    let does_not = cancelled(&queued[1], StateName::Waiting);
    let commit = Commit { deliveries: vec![fits, does_not], ..Commit::default() };
    let refused = store.settle(&leases, commit).await;
    assert!(matches!(refused, Err(StoreError::Internal(_))), "{refused:?}");
    assert_eq!(store.ledger(None).await.unwrap().queued, 2);
}

#[tokio::test]
async fn a_shard_that_was_given_away_is_refused_until_it_is_held_again() {
    let store = MemoryStore::default();
    accept(&store, 1).await.unwrap();
    let old = store.hold_shards().await.unwrap();
    assert!(old.shards.iter().all(|(_, epoch)| *epoch == Epoch(1)));
    let delivery = store.queued(&old, None, 1).await.unwrap().remove(0);
    let shard: Shard = delivery.destination.shard();
    store.give_away(shard);
    let change = DeliveryChange {
        before: StateName::Queued,
        by_job: None,
        delivery: delivery.delivered(START, START),
        attempt: None,
    };
    let commit = Commit { deliveries: vec![change], ..Commit::default() };
    let refused = store.settle(&old, commit.clone()).await;
    assert!(matches!(refused, Err(StoreError::Fenced { shard: which }) if which == shard));
    let new = store.hold_shards().await.unwrap();
    store.settle(&new, commit).await.unwrap();
    assert_eq!(store.ledger(Some(&acme())).await.unwrap().delivered, 1);
}
