//! A commit is applied as a whole or not at all.

use std::sync::Arc;

use postrider_domain::circuit::{CircuitState, Suspension};
use postrider_domain::delivery::{CancelReason, Delivery, DeliveryState, StateName};
use postrider_domain::ids::Shard;
use postrider_domain::ledger::Ledger;
use postrider_domain::policy::Policy;
use postrider_domain::settlement::settle;
use postrider_domain::time::Timestamp;
use postrider_store::{
    Commit, DeliveryChange, DestinationChange, Epoch, ReplayJob, ReplayState, ShardLeases,
    StoreError, Tally,
};

use super::Ground;
use super::ground::{ALL, commit_of, numbers, together};
use crate::samples::{
    acme, answered, at, delivery_id, destination, finished, refused, replay, replay_id, umbrella,
};

async fn ledger(ground: &Ground) -> Ledger {
    let ledger = ground.store.ledger(Some(&acme())).await.unwrap();
    assert!(ledger.balances(), "{ledger:?}");
    ledger
}

async fn an_attempt_changes_delivery_log_circuit_timeline_and_ledger(mut ground: Ground) {
    ground.put(&acme(), 1, 1).await;
    ground.accept("e", at(0), &[(1, 1)]).await;
    let (settled, before) = ground.settlement(1, 1, answered(410), at(9)).await;
    assert!(settled.transition.is_some(), "410 freezes");
    ground.settle(commit_of(settled.clone(), &before)).await;
    for _ in 0..2 {
        assert_eq!(ground.delivery(1).await, settled.delivery);
        assert_eq!(ground.destination(1).await, settled.destination);
        let log = ground.store.attempts(&acme(), delivery_id(1)).await.unwrap();
        assert_eq!(log, std::slice::from_ref(&settled.attempt));
        let id = destination(&acme(), 1).id;
        let timeline = ground.store.transitions(&acme(), id, &ALL).await.unwrap().items;
        assert_eq!(Some(&timeline[0]), settled.transition.as_ref());
        assert_eq!(timeline.len(), 1);
        let expected = Ledger { accepted: 1, waiting: 1, ..Ledger::default() };
        assert_eq!(ledger(&ground).await, expected);
        ground.reopen().await;
    }
}

async fn the_ledger_follows_a_delivery_through_its_whole_life(ground: Ground) {
    ground.put(&acme(), 1, 1).await;
    ground.accept("e", at(0), &[(1, 1), (2, 1)]).await;
    let standing = async || {
        let ledger = ledger(&ground).await;
        assert_eq!((ledger.accepted, ledger.in_flight), (2, 0));
        [ledger.queued, ledger.waiting, ledger.delivered, ledger.dead, ledger.cancelled]
    };
    assert_eq!(standing().await, [2, 0, 0, 0, 0]);
    ground.attempt(1, 1, refused(), at(0)).await;
    assert_eq!(standing().await, [1, 1, 0, 0, 0]);
    ground.attempt(1, 1, refused(), at(84_800)).await;
    assert_eq!(standing().await, [1, 1, 0, 0, 0], "it still waits");
    ground.attempt(1, 1, refused(), at(200_000_000)).await;
    assert_eq!(standing().await, [1, 0, 0, 1, 0]);
    ground.change(ground.delivery(1).await.replayed(at(200_000_001)).unwrap()).await;
    assert_eq!(standing().await, [1, 1, 0, 0, 0]);
    ground.attempt(1, 1, answered(200), at(200_000_002)).await;
    assert_eq!(standing().await, [1, 0, 1, 0, 0]);
    ground.change(ground.delivery(2).await.cancelled(CancelReason::Asked, at(3)).unwrap()).await;
    assert_eq!(standing().await, [0, 0, 1, 0, 1]);
    let attempts = ground.store.attempts(&acme(), delivery_id(1)).await.unwrap();
    assert_eq!(attempts.iter().map(|a| a.number).collect::<Vec<_>>(), [1, 2, 3, 4]);
}

async fn a_delivery_is_settled_the_moment_after_it_was_accepted(mut ground: Ground) {
    ground.put(&acme(), 1, 1).await;
    let leases = ground.leases().await;
    for n in 0..40 {
        ground.accept(&format!("e{n}"), at(n), &[(n, 1)]).await;
        let delivery = ground.store.queued(&leases, None, 1).await.unwrap().remove(0);
        assert_eq!(numbers([&delivery]), [n]);
        let ending = if n % 3 == 0 { refused() } else { answered(200) };
        ground.attempt(n, 1, ending, at(n + 1)).await;
        if n % 10 == 9 {
            ground.reopen().await;
        }
    }
    let ledger = ledger(&ground).await;
    assert_eq!((ledger.queued, ledger.waiting, ledger.delivered), (0, 14, 26));
    let counters = ground.destination(1).await.circuit.counters;
    assert_eq!((counters.attempts, counters.failures), (40, 14));
}

async fn many_deliveries_and_destinations_are_settled_in_one_commit(mut ground: Ground) {
    for to in 0..4 {
        ground.put(&acme(), to, to).await;
    }
    let owed: Vec<_> = (0..40).map(|n| (n, n % 4)).collect();
    ground.accept("e", at(0), &owed).await;
    let mut commit = Commit::default();
    let mut destinations: Vec<_> = (0..4).map(|to| destination(&acme(), to)).collect();
    for (n, to) in owed {
        let before = ground.delivery(n).await;
        let place = &mut destinations[usize::try_from(to).unwrap()];
        let turn = before.turn().unwrap();
        let done = finished(at(5), if n % 2 == 0 { refused() } else { answered(200) });
        let policy = Policy::default();
        let settled = settle(&before, place, turn, done, at(6), Suspension::Off, &policy);
        *place = settled.destination.clone();
        commit.deliveries.extend(commit_of(settled, &before).deliveries);
    }
    commit.destinations.extend(destinations.iter().map(|learned| DestinationChange {
        tenant: learned.tenant.clone(),
        id: learned.id,
        circuit: learned.circuit.clone(),
        transitions: Vec::new(),
    }));
    ground.settle(commit).await;
    ground.reopen().await;
    let ledger = ledger(&ground).await;
    assert_eq!((ledger.waiting, ledger.delivered), (20, 20));
    for (to, expected) in (0..4).zip(destinations) {
        assert_eq!(ground.destination(to).await, expected);
    }
    for n in 0..40 {
        let log = ground.store.attempts(&acme(), delivery_id(n)).await.unwrap();
        assert_eq!(log.len(), 1);
    }
}

/// A commit that changes a delivery to destination 1, the circuit of destination 2, and a job.
async fn broad_commit(ground: &Ground) -> Commit {
    for n in [1, 2] {
        ground.put(&acme(), n, n).await;
    }
    ground.accept("e", at(0), &[(1, 1)]).await;
    let job = replay(&acme(), 1, at(0));
    ground.store.put_replay(&job).await.unwrap();
    let (settled, before) = ground.settlement(1, 1, refused(), at(5)).await;
    let mut commit = commit_of(settled, &before);
    let mut other = destination(&acme(), 2);
    let transition = other.circuit.freeze(Some("by hand".into()), at(6));
    commit.destinations.push(DestinationChange {
        tenant: acme(),
        id: other.id,
        circuit: other.circuit,
        transitions: transition.into_iter().collect(),
    });
    commit.replay = Some(ReplayJob { done: 3, position: Some(delivery_id(9)), ..job });
    commit
}

async fn assert_untouched(ground: &Ground) {
    assert_eq!(ground.delivery(1).await.state, DeliveryState::Queued);
    assert_eq!(ground.store.attempts(&acme(), delivery_id(1)).await.unwrap(), []);
    assert_eq!(ledger(ground).await.queued, 1);
    for n in [1, 2] {
        assert_eq!(ground.destination(n).await, destination(&acme(), n));
        let id = destination(&acme(), n).id;
        assert_eq!(ground.store.transitions(&acme(), id, &ALL).await.unwrap().items, []);
    }
    let job = ground.store.replay(&acme(), replay_id(1)).await.unwrap();
    assert_eq!(job, Some(replay(&acme(), 1, at(0))));
}

async fn a_commit_to_a_shard_that_is_not_held_changes_nothing(mut ground: Ground) {
    let commit = broad_commit(&ground).await;
    let all = ground.leases().await;
    let touched: [Shard; 2] = [1, 2].map(|n| destination(&acme(), n).id.shard());
    assert_ne!(touched[0], touched[1]);
    for missing in touched {
        let shards = all.shards.iter().filter(|(shard, _)| *shard != missing).copied().collect();
        let refused = ground.store.settle(&ShardLeases { shards }, commit.clone()).await;
        let is_fenced = matches!(refused, Err(StoreError::Fenced { shard }) if shard == missing);
        assert!(is_fenced, "{refused:?}");
    }
    assert_untouched(&ground).await;
    ground.reopen().await;
    assert_untouched(&ground).await;
    let shards = all.shards.into_iter().filter(|(shard, _)| touched.contains(shard)).collect();
    ground.store.settle(&ShardLeases { shards }, commit).await.unwrap();
    assert_eq!(ledger(&ground).await.waiting, 1, "the two that it touches are enough");
}

async fn a_commit_with_an_older_epoch_changes_nothing(ground: Ground) {
    let commit = broad_commit(&ground).await;
    let mut leases = ground.leases().await;
    let stale = destination(&acme(), 2).id.shard();
    for (shard, epoch) in &mut leases.shards {
        assert!(epoch.0 >= 1, "epochs begin at 1");
        if *shard == stale {
            *epoch = Epoch(epoch.0 - 1);
        }
    }
    let refused = ground.store.settle(&leases, commit).await;
    assert!(matches!(refused, Err(StoreError::Fenced { shard }) if shard == stale), "{refused:?}");
    assert_untouched(&ground).await;
}

async fn repeating_a_commit_changes_nothing_more(ground: Ground) {
    if !ground.backend.can_be_unavailable() {
        return;
    }
    let commit = broad_commit(&ground).await;
    for _ in 0..3 {
        ground.settle(commit.clone()).await;
        assert_eq!(ledger(&ground).await.waiting, 1);
        assert_eq!(ground.store.attempts(&acme(), delivery_id(1)).await.unwrap().len(), 1);
        let id = destination(&acme(), 2).id;
        let timeline = ground.store.transitions(&acme(), id, &ALL).await.unwrap();
        assert_eq!(timeline.items.len(), 1);
        let tallies = ground.store.tallies(Some(&acme()), at(0), at(60_000), 1).await.unwrap();
        assert_eq!(tallies[0].tally.failed, 1);
        let to = destination(&acme(), 1).id;
        let hours = ground.store.attempt_hours(&acme(), to, Timestamp::EPOCH).await.unwrap();
        assert_eq!((hours.len(), hours[0].1.attempts()), (1, 1));
    }
    let frozen = ground.destination(2).await.circuit.state;
    assert!(matches!(frozen, CircuitState::Frozen { .. }));
}

async fn an_empty_commit_is_no_fault(ground: Ground) {
    ground.settle(Commit::default()).await;
    ground.store.settle(&ShardLeases::default(), Commit::default()).await.unwrap();
}

async fn a_job_advances_with_the_commit_and_stays_paused_where_it_was_paused(mut ground: Ground) {
    let job = replay(&acme(), 1, at(0));
    let ended = ReplayJob {
        done: 4,
        position: Some(delivery_id(4)),
        state: ReplayState::Finished,
        finished_at: Some(at(9)),
        ..job.clone()
    };
    let cases = [
        (ReplayState::Running, ReplayState::Finished, Some(at(9))),
        (ReplayState::Paused, ReplayState::Paused, None),
        (ReplayState::Cancelled, ReplayState::Cancelled, None),
    ];
    for (stored, expected, finished_at) in cases {
        ground.store.put_replay(&ReplayJob { state: stored, ..job.clone() }).await.unwrap();
        ground.settle(Commit { replay: Some(ended.clone()), ..Commit::default() }).await;
        ground.reopen().await;
        let found = ground.store.replay(&acme(), job.id).await.unwrap().unwrap();
        let expected = ReplayJob { state: expected, finished_at, ..ended.clone() };
        assert_eq!(found, expected, "was {stored:?}");
    }
}

async fn commits_at_the_same_time_are_all_applied(ground: Ground) {
    for to in 0..10 {
        ground.put(&acme(), to, to).await;
    }
    let owed: Vec<_> = (0..10).map(|n| (n, n)).collect();
    ground.accept("e", at(0), &owed).await;
    let leases = Arc::new(ground.leases().await);
    let mut tasks = Vec::new();
    for n in 0..10 {
        let (settled, before) = ground.settlement(n, n, answered(200), at(5)).await;
        let (store, leases) = (Arc::clone(&ground.store), Arc::clone(&leases));
        tasks.push(async move { store.settle(&leases, commit_of(settled, &before)).await });
    }
    assert!(together(tasks).await.into_iter().all(|answer| answer.is_ok()));
    assert_eq!(ledger(&ground).await.delivered, 10);
}

async fn one_tenants_commit_moves_one_tenants_ledger(ground: Ground) {
    ground.put(&acme(), 1, 1).await;
    ground.accept("e", at(0), &[(1, 1)]).await;
    ground.accept_for(&umbrella(), "e", at(0), &[(2, 1)]).await;
    ground.attempt(1, 1, answered(200), at(5)).await;
    let theirs = ground.store.ledger(Some(&umbrella())).await.unwrap();
    assert_eq!(theirs, Ledger { accepted: 1, queued: 1, ..Ledger::default() });
    let total = ground.store.ledger(None).await.unwrap();
    assert_eq!(total, theirs + ledger(&ground).await);
}

async fn a_delivery_that_changes_without_an_attempt_has_none_in_its_log(ground: Ground) {
    ground.accept("e", at(0), &[(1, 1)]).await;
    let after = ground.delivery(1).await.not_admitted(at(5), &Policy::default().retry);
    let change =
        DeliveryChange { before: StateName::Queued, by_job: None, delivery: after, attempt: None };
    ground.settle(Commit { deliveries: vec![change], ..Commit::default() }).await;
    let Delivery { attempts, state, .. } = ground.delivery(1).await;
    assert_eq!((attempts, state.name()), (0, StateName::Waiting));
    assert_eq!(ground.store.attempts(&acme(), delivery_id(1)).await.unwrap(), []);
}

async fn an_attempt_that_ends_after_its_delivery_did_is_logged_and_moves_nothing(ground: Ground) {
    ground.put(&acme(), 1, 1).await;
    ground.accept("e", at(0), &[(1, 1), (2, 1)]).await;
    ground.attempt(1, 1, answered(200), at(5)).await;
    ground.change(ground.delivery(2).await.cancelled(CancelReason::Asked, at(5)).unwrap()).await;
    let before = ledger(&ground).await;
    ground.attempt(1, 1, answered(200), at(6)).await;
    ground.attempt(2, 1, answered(200), at(6)).await;
    ground.attempt(2, 1, refused(), at(7)).await;
    assert_eq!(ledger(&ground).await, before);
    assert_eq!(ground.delivery(1).await.state, DeliveryState::Delivered { at: at(5) });
    assert_eq!(ground.delivery(2).await.state.name(), StateName::Cancelled);
    for n in [1, 2] {
        let log = ground.store.attempts(&acme(), delivery_id(n)).await.unwrap();
        assert_eq!(log.len(), 2);
        assert_eq!(ground.delivery(n).await.attempts, 2);
    }
    let tallies = ground.store.tallies(Some(&acme()), at(0), at(60_000), 1).await.unwrap();
    let expected = Tally { accepted: 2, delivered: 1, failed: 1, dead: 0 };
    assert_eq!(tallies[0].tally, expected, "what arrived counts once");
}

suite! { $ settling, conformance_settling:
    an_attempt_changes_delivery_log_circuit_timeline_and_ledger,
    the_ledger_follows_a_delivery_through_its_whole_life,
    a_delivery_is_settled_the_moment_after_it_was_accepted,
    many_deliveries_and_destinations_are_settled_in_one_commit,
    a_commit_to_a_shard_that_is_not_held_changes_nothing,
    a_commit_with_an_older_epoch_changes_nothing,
    repeating_a_commit_changes_nothing_more,
    an_empty_commit_is_no_fault,
    a_job_advances_with_the_commit_and_stays_paused_where_it_was_paused,
    commits_at_the_same_time_are_all_applied,
    one_tenants_commit_moves_one_tenants_ledger,
    a_delivery_that_changes_without_an_attempt_has_none_in_its_log,
    an_attempt_that_ends_after_its_delivery_did_is_logged_and_moves_nothing,
}
