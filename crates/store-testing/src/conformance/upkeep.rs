//! Shards, pruning, closing, backups.

use postrider_domain::delivery::DeliveryState;
use postrider_domain::ids::{SHARDS, Shard};
use postrider_domain::ledger::Ledger;
use postrider_domain::time::Timestamp;
use postrider_store::{
    Acceptance, Accepted, Commit, DeliveryFilter, DestinationChange, Pruned, ShardLeases,
};

use super::Ground;
use super::dump::dump;
use super::ground::{ALL, numbers};
use crate::samples::{
    START, acceptance, acme, answer, answered, at, delivery_id, destination, digest, event, key,
    refused, replay, tenant, umbrella,
};

const DAY_MS: u64 = 86_400_000;

/// Midnight (UTC) of the day of [`START`], plus this many days.
fn midnight(day: u64) -> Timestamp {
    let first = START.as_unix_ms() / 86_400_000 * 86_400_000;
    Timestamp::from_unix_ms(first + i64::try_from(day * DAY_MS).unwrap())
}

async fn prune(ground: &Ground, before: Timestamp) -> Pruned {
    let mut total = Pruned::default();
    for _ in 0..1_000 {
        let pruned = ground.store.prune(before).await.unwrap();
        if pruned == Pruned::default() {
            return total;
        }
        total.events += pruned.events;
        total.deliveries += pruned.deliveries;
        total.attempts += pruned.attempts;
    }
    panic!("pruning does not end");
}

async fn a_node_alone_holds_every_shard(mut ground: Ground) {
    for _ in 0..2 {
        let leases = ground.leases().await;
        let shards: Vec<Shard> = leases.shards.iter().map(|(shard, _)| *shard).collect();
        assert_eq!(shards, (0..=u8::MAX).map(Shard).collect::<Vec<_>>());
        assert_eq!(shards.len(), usize::from(SHARDS));
        assert_eq!(ground.leases().await, leases, "renewed, not taken anew");
        ground.reopen().await;
    }
}

async fn shards_that_were_released_can_be_held_again(ground: Ground) {
    ground.put(&acme(), 1, 1).await;
    ground.accept("e", at(0), &[(1, 1)]).await;
    let before: ShardLeases = ground.leases().await;
    ground.store.release_shards().await.unwrap();
    let after = ground.leases().await;
    assert_eq!(after.shards.len(), before.shards.len());
    ground.attempt(1, 1, answered(200), at(5)).await;
    assert_eq!(ground.delivery(1).await.state, DeliveryState::Delivered { at: at(5) });
}

/// Day 0: event a succeeded after two attempts, b matched no subscription. Day 1: c succeeded at
/// one of two. Day 2: d succeeded.
async fn three_days(ground: &Ground) {
    ground.put(&acme(), 1, 1).await;
    ground.accept("a", at(0), &[(1, 1)]).await;
    ground.accept("b", at(1), &[]).await;
    ground.accept("c", at(DAY_MS), &[(2, 1), (3, 1)]).await;
    ground.accept("d", at(2 * DAY_MS), &[(4, 1)]).await;
    ground.attempt(1, 1, refused(), at(10)).await;
    ground.attempt(1, 1, answered(200), at(90_000)).await;
    ground.attempt(2, 1, answered(200), at(DAY_MS + 1)).await;
    ground.attempt(3, 1, refused(), at(DAY_MS + 1)).await;
    ground.attempt(4, 1, answered(200), at(2 * DAY_MS + 1)).await;
}

async fn pruning_removes_what_is_old_and_has_wholly_ended(mut ground: Ground) {
    three_days(&ground).await;
    assert_eq!(prune(&ground, midnight(0)).await, Pruned::default());
    let pruned = prune(&ground, midnight(2)).await;
    assert_eq!(pruned, Pruned { events: 2, deliveries: 1, attempts: 2 });
    for _ in 0..2 {
        for (id, stays) in [("a", false), ("b", false), ("c", true), ("d", true)] {
            let found = ground.store.event(&acme(), &id.parse().unwrap()).await.unwrap();
            assert_eq!(found.is_some(), stays, "{id}");
        }
        let everything = DeliveryFilter::default();
        let found = ground.store.list_deliveries(&acme(), &everything, &ALL).await.unwrap();
        assert_eq!(numbers(&found.items), [4, 3, 2]);
        let attempts =
            async |n| ground.store.attempts(&acme(), delivery_id(n)).await.unwrap().len();
        assert_eq!((attempts(1).await, attempts(2).await, attempts(3).await), (0, 1, 1));
        ground.reopen().await;
    }
}

async fn what_ends_later_is_pruned_later(ground: Ground) {
    three_days(&ground).await;
    prune(&ground, midnight(2)).await;
    ground.attempt(3, 1, answered(200), at(DAY_MS + 90_000)).await;
    let pruned = prune(&ground, midnight(2)).await;
    assert_eq!(pruned, Pruned { events: 1, deliveries: 2, attempts: 3 });
    let pruned = prune(&ground, midnight(3)).await;
    assert_eq!(pruned, Pruned { events: 1, deliveries: 1, attempts: 1 });
}

async fn what_was_accepted_at_the_given_time_stays(ground: Ground) {
    let new = acceptance(event(&acme(), "e"), midnight(1), &[]);
    ground.store.accept(vec![new]).await.unwrap();
    assert_eq!(prune(&ground, midnight(1)).await, Pruned::default());
    assert!(ground.store.event(&acme(), &"e".parse().unwrap()).await.unwrap().is_some());
}

async fn nothing_unfinished_is_ever_pruned(mut ground: Ground) {
    three_days(&ground).await;
    ground.accept("queued", at(5), &[(7, 1)]).await;
    ground.change(ground.delivery(4).await.replayed(at(2 * DAY_MS + 2)).unwrap()).await;
    prune(&ground, midnight(1_000)).await;
    ground.reopen().await;
    let leases = ground.leases().await;
    let queued = ground.store.queued(&leases, None, 100).await.unwrap();
    let due = ground.store.due(&leases, None, Timestamp::MAX, 100).await.unwrap();
    assert_eq!((numbers(&queued), numbers(&due)), (vec![7], vec![3, 4]));
    for delivery in queued.iter().chain(&due) {
        let ids = [(acme(), delivery.event.clone())];
        assert!(ground.store.events(&ids).await.unwrap()[0].is_some());
        assert!(ground.store.delivery(&acme(), delivery.id).await.unwrap().is_some());
    }
    assert_eq!(ground.store.attempts(&acme(), delivery_id(3)).await.unwrap().len(), 1);
}

async fn pruning_changes_no_ledger_and_frees_identifiers(mut ground: Ground) {
    three_days(&ground).await;
    let expected = Ledger { accepted: 4, waiting: 1, delivered: 3, ..Ledger::default() };
    assert_eq!(ground.store.ledger(None).await.unwrap(), expected);
    prune(&ground, midnight(2)).await;
    ground.reopen().await;
    assert_eq!(ground.store.ledger(None).await.unwrap(), expected);
    assert_eq!(ground.store.ledger(Some(&acme())).await.unwrap(), expected);
    let new = acceptance(event(&acme(), "a"), at(3 * DAY_MS), &[(8, 1)]);
    let other = Acceptance { fingerprint: digest(9), ..new };
    assert_eq!(ground.store.accept(vec![other]).await.unwrap(), [Accepted::New]);
}

async fn pruning_keeps_what_people_set_up(ground: Ground) {
    three_days(&ground).await;
    ground.store.create_tenant(&tenant("acme", at(0))).await.unwrap();
    ground.store.create_key(&key("k", Some(&acme()), at(0))).await.unwrap();
    ground.store.put_replay(&replay(&acme(), 1, at(0))).await.unwrap();
    prune(&ground, midnight(1_000)).await;
    assert!(ground.store.tenant(&acme()).await.unwrap().is_some());
    assert!(ground.store.key("k").await.unwrap().is_some());
    assert_eq!(ground.store.subscriptions(&acme(), &ALL).await.unwrap().items.len(), 1);
    assert_eq!(ground.destination(1).await.circuit.counters.attempts, 5);
    assert_eq!(ground.store.running_replays().await.unwrap().len(), 1);
}

async fn old_answers_are_pruned_and_newer_ones_stay(ground: Ground) {
    for (name, created_at) in [("old", at(0)), ("edge", midnight(1)), ("new", at(DAY_MS))] {
        let kept = answer(1, created_at);
        ground.store.keep_idempotent_answer(&acme(), name, &kept, Timestamp::EPOCH).await.unwrap();
    }
    prune(&ground, midnight(1)).await;
    let found = async |name| ground.store.idempotent_answer(&acme(), name).await.unwrap().is_some();
    assert_eq!((found("old").await, found("edge").await, found("new").await), (false, true, true));
}

/// Creates records of every kind.
async fn fill(ground: &Ground) {
    for name in ["acme", "umbrella"] {
        ground.store.create_tenant(&tenant(name, at(0))).await.unwrap();
    }
    ground.store.create_key(&key("k", Some(&acme()), at(0))).await.unwrap();
    ground.store.create_key(&key("admin", None, at(0))).await.unwrap();
    three_days(ground).await;
    ground.put(&umbrella(), 9, 9).await;
    ground.accept_for(&umbrella(), "theirs", at(3), &[(9, 9)]).await;
    ground.store.put_replay(&replay(&acme(), 1, at(4))).await.unwrap();
    let mut frozen = destination(&acme(), 1);
    let transition = frozen.circuit.freeze(None, at(5));
    let change = DestinationChange {
        tenant: acme(),
        id: frozen.id,
        circuit: frozen.circuit,
        transitions: transition.into_iter().collect(),
    };
    ground.settle(Commit { destinations: vec![change], ..Commit::default() }).await;
}

async fn a_store_that_is_closed_and_opened_again_has_everything(mut ground: Ground) {
    fill(&ground).await;
    let tenants = [acme(), umbrella()];
    let before = dump(&*ground.store, &tenants, START).await;
    assert!(before.len() > 20);
    for _ in 0..3 {
        ground.reopen().await;
        assert_eq!(dump(&*ground.store, &tenants, START).await, before);
    }
}

async fn a_copy_has_everything_and_goes_its_own_way(ground: Ground) {
    fill(&ground).await;
    let tenants = [acme(), umbrella()];
    let before = dump(&*ground.store, &tenants, START).await;
    let Some(copy) = ground.backend.copy(&*ground.store).await else { return };
    ground.accept("later", at(6), &[(20, 1)]).await;
    assert_eq!(dump(&*copy, &tenants, START).await, before);
    let new = acceptance(event(&acme(), "other"), at(7), &[(21, 1)]);
    assert_eq!(copy.accept(vec![new]).await.unwrap(), [Accepted::New]);
    copy.close().await.unwrap();
    assert_eq!(ground.store.delivery(&acme(), delivery_id(21)).await.unwrap(), None);
    assert_eq!(ground.delivery(20).await.state, DeliveryState::Queued);
}

async fn a_healthy_store_says_so(ground: Ground) {
    ground.store.check().await.unwrap();
}

suite! { $ upkeep, conformance_upkeep:
    a_node_alone_holds_every_shard,
    shards_that_were_released_can_be_held_again,
    pruning_removes_what_is_old_and_has_wholly_ended,
    what_ends_later_is_pruned_later,
    what_was_accepted_at_the_given_time_stays,
    nothing_unfinished_is_ever_pruned,
    pruning_changes_no_ledger_and_frees_identifiers,
    pruning_keeps_what_people_set_up,
    old_answers_are_pruned_and_newer_ones_stay,
    a_store_that_is_closed_and_opened_again_has_everything,
    a_copy_has_everything_and_goes_its_own_way,
    a_healthy_store_says_so,
    first_claim_of_a_name_stays_after_reopening,
    claim_is_replaced_only_where_it_is_the_expected_one,
}

async fn claim_is_replaced_only_where_it_is_the_expected_one(mut ground: Ground) {
    let store = &ground.store;
    assert_eq!(store.claimed("book").await.unwrap(), None);
    assert!(!store.replace_claim("book", Some(b""), b"none is not empty").await.unwrap());
    assert!(store.replace_claim("book", None, b"first").await.unwrap());
    assert!(!store.replace_claim("book", None, b"second").await.unwrap());
    assert!(!store.replace_claim("book", Some(b"other"), b"second").await.unwrap());
    assert_eq!(store.claimed("book").await.unwrap().as_deref(), Some(&b"first"[..]));
    let (one, two) = tokio::join!(
        store.replace_claim("book", Some(b"first"), b"one"),
        store.replace_claim("book", Some(b"first"), b"two"),
    );
    assert!(one.unwrap() != two.unwrap(), "exactly one of them");
    let won = store.claimed("book").await.unwrap();
    ground.reopen().await;
    assert_eq!(ground.store.claimed("book").await.unwrap(), won);
    assert_eq!(ground.store.claim("book", b"late").await.unwrap(), won.unwrap());
}

async fn first_claim_of_a_name_stays_after_reopening(mut ground: Ground) {
    assert_eq!(ground.store.claim("ring", b"first").await.unwrap(), b"first");
    assert_eq!(ground.store.claim("ring", b"second").await.unwrap(), b"first");
    assert_eq!(ground.store.claim("other", b"second").await.unwrap(), b"second");
    ground.reopen().await;
    assert_eq!(ground.store.claim("ring", b"third").await.unwrap(), b"first");
}
