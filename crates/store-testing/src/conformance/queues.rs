//! The queues: which deliveries are due, in which order, and in which shards.

use std::collections::BTreeSet;
use std::sync::Arc;

use postrider_domain::delivery::{CancelReason, Delivery, DeliveryState};
use postrider_domain::event::Event;
use postrider_domain::ids::{DestinationId, EventId, SubscriptionId};
use postrider_domain::retry::{ScheduleClock, Slot};
use postrider_domain::time::Timestamp;
use postrider_store::{DueMark, ShardLeases, WaitingOrder};

use super::Ground;
use super::ground::numbers;
use crate::samples::{
    acceptance, acme, answered, at, delivery_id, destination, event, refused, subscription_id,
    umbrella,
};

fn to(n: u64) -> DestinationId {
    destination(&acme(), n).id
}

fn queue_mark(delivery: &Delivery) -> DueMark {
    DueMark { at: delivery.created_at, delivery: delivery.id }
}

fn due_mark(delivery: &Delivery) -> DueMark {
    DueMark { at: delivery.next_attempt_at().unwrap(), delivery: delivery.id }
}

/// Lets delivery `n` wait until `due_at`, last attempted at the given time.
async fn wait(ground: &Ground, n: u64, due_at: Timestamp, last_attempt_at: Option<Timestamp>) {
    let slot = Slot::new(1, due_at, ScheduleClock::starting_at(at(0)));
    let before = ground.delivery(n).await;
    let state = DeliveryState::Waiting(slot);
    let attempts = before.attempts + u32::from(last_attempt_at.is_some());
    ground.change(Delivery { state, attempts, last_attempt_at, ..before }).await;
}

/// Five deliveries that were not accepted in the order of their numbers, two of them at the same
/// time: 5, 1, 2, 4, 3.
async fn five_queued(ground: &Ground) {
    for (n, ms) in [(3, 30), (1, 10), (5, 5), (2, 10), (4, 20)] {
        ground.accept(&format!("e{n}"), at(ms), &[(n, n % 2)]).await;
    }
}

async fn queued_deliveries_come_by_acceptance_then_identifier(mut ground: Ground) {
    five_queued(&ground).await;
    for _ in 0..2 {
        let leases = ground.leases().await;
        let found = ground.store.queued(&leases, None, 100).await.unwrap();
        assert_eq!(numbers(&found), [5, 1, 2, 4, 3]);
        assert!(found.iter().all(|delivery| delivery.state == DeliveryState::Queued));
        ground.reopen().await;
    }
}

async fn queued_deliveries_come_after_the_mark_and_up_to_the_limit(ground: Ground) {
    five_queued(&ground).await;
    let leases = ground.leases().await;
    for limit in 1..=6 {
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let found = ground.store.queued(&leases, after, limit).await.unwrap();
            assert!(found.len() <= limit);
            let Some(last) = found.last() else { break };
            after = Some(queue_mark(last));
            seen.extend(numbers(&found));
        }
        assert_eq!(seen, [5, 1, 2, 4, 3], "by {limit}");
    }
    let between = DueMark { at: at(10), delivery: delivery_id(0) };
    let found = ground.store.queued(&leases, Some(between), 2).await.unwrap();
    assert_eq!(numbers(&found), [1, 2], "a mark need not be a delivery");
    assert_eq!(ground.store.queued(&leases, None, 0).await.unwrap(), []);
}

async fn queued_deliveries_are_those_of_the_held_shards(ground: Ground) {
    let all = ground.leases().await;
    let mut expected = Vec::new();
    for n in 0..20 {
        ground.accept(&format!("e{n}"), at(n), &[(n, n)]).await;
        if to(n).shard().0 % 2 == 1 {
            expected.push(n);
        }
    }
    assert!(!expected.is_empty() && expected.len() < 20);
    let odd = all.shards.iter().filter(|(shard, _)| shard.0 % 2 == 1).copied().collect();
    let odd = ShardLeases { shards: odd };
    let found = ground.store.queued(&odd, None, 100).await.unwrap();
    assert_eq!(numbers(&found), expected);
    let first = ground.store.queued(&odd, None, 1).await.unwrap();
    assert_eq!(numbers(&first), expected[..1], "the limit counts what is held");
    assert_eq!(ground.store.queued(&ShardLeases::default(), None, 100).await.unwrap(), []);
}

async fn queued_deliveries_of_a_destination_come_likewise(mut ground: Ground) {
    five_queued(&ground).await;
    ground.reopen().await;
    let store = &ground.store;
    assert_eq!(numbers(&store.queued_of(to(1), None, 100).await.unwrap()), [5, 1, 3]);
    let first = store.queued_of(to(1), None, 1).await.unwrap();
    let rest = store.queued_of(to(1), Some(queue_mark(&first[0])), 100).await.unwrap();
    assert_eq!((numbers(&first), numbers(&rest)), (vec![5], vec![1, 3]));
    assert_eq!(numbers(&store.queued_of(to(0), None, 1).await.unwrap()), [2]);
    assert_eq!(store.queued_of(to(9), None, 100).await.unwrap(), []);
}

async fn what_is_acknowledged_is_listed_at_once(ground: Ground) {
    let leases = ground.leases().await;
    for n in 0..30 {
        ground.accept(&format!("e{n}"), at(100 - n), &[(n, 1)]).await;
        let found = ground.store.queued(&leases, None, 100).await.unwrap();
        assert_eq!(numbers(&found), (0..=n).rev().collect::<Vec<_>>());
    }
}

async fn what_is_settled_leaves_the_queue_at_once(ground: Ground) {
    ground.put(&acme(), 1, 1).await;
    let leases = ground.leases().await;
    for n in 0..5 {
        ground.accept(&format!("e{n}"), at(n), &[(n, 1)]).await;
    }
    ground.attempt(0, 1, answered(200), at(10)).await;
    ground.attempt(1, 1, refused(), at(10)).await;
    ground.change(ground.delivery(2).await.cancelled(CancelReason::Asked, at(10)).unwrap()).await;
    let queued = ground.store.queued(&leases, None, 100).await.unwrap();
    assert_eq!(numbers(&queued), [3, 4]);
    assert_eq!(numbers(&ground.store.queued_of(to(1), None, 100).await.unwrap()), [3, 4]);
    let due = ground.store.due(&leases, None, Timestamp::MAX, 100).await.unwrap();
    assert_eq!(numbers(&due), [1]);
    ground.attempt(1, 1, answered(204), at(90_000)).await;
    assert_eq!(ground.store.due(&leases, None, Timestamp::MAX, 100).await.unwrap(), []);
}

/// Six deliveries at two destinations: 4 and 2 wait for 100, 6 for 200, 1 and 5 for 300; 3 is
/// queued.
async fn six_waiting(ground: &Ground) {
    for n in 1..=6 {
        ground.accept(&format!("e{n}"), at(50 - n), &[(n, n % 2)]).await;
    }
    for (n, due) in [(1, 300), (5, 300), (6, 200), (2, 100), (4, 100)] {
        wait(ground, n, at(due), None).await;
    }
}

async fn waiting_deliveries_fall_due_by_time_then_identifier(mut ground: Ground) {
    six_waiting(&ground).await;
    for _ in 0..2 {
        let leases = ground.leases().await;
        let found = ground.store.due(&leases, None, at(1_000), 100).await.unwrap();
        assert_eq!(numbers(&found), [2, 4, 6, 1, 5]);
        ground.reopen().await;
    }
}

async fn what_falls_due_at_the_given_time_is_due_and_nothing_later(ground: Ground) {
    six_waiting(&ground).await;
    let leases = ground.leases().await;
    let cases: [(u64, &[u64]); 5] =
        [(99, &[]), (100, &[2, 4]), (199, &[2, 4]), (200, &[2, 4, 6]), (300, &[2, 4, 6, 1, 5])];
    for (until, expected) in cases {
        let found = ground.store.due(&leases, None, at(until), 100).await.unwrap();
        assert_eq!(numbers(&found), expected, "until {until}");
    }
}

async fn due_deliveries_come_after_the_mark_and_up_to_the_limit(ground: Ground) {
    six_waiting(&ground).await;
    let leases = ground.leases().await;
    for limit in 1..=6 {
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let found = ground.store.due(&leases, after, at(300), limit).await.unwrap();
            assert!(found.len() <= limit);
            let Some(last) = found.last() else { break };
            after = Some(due_mark(last));
            seen.extend(numbers(&found));
        }
        assert_eq!(seen, [2, 4, 6, 1, 5], "by {limit}");
    }
    let mark = DueMark { at: at(100), delivery: delivery_id(3) };
    let found = ground.store.due(&leases, Some(mark), at(200), 100).await.unwrap();
    assert_eq!(numbers(&found), [4, 6], "a mark need not be a delivery");
}

async fn due_deliveries_are_those_of_the_held_shards(ground: Ground) {
    six_waiting(&ground).await;
    let all = ground.leases().await;
    let held: Vec<_> = all.shards.iter().filter(|(s, _)| *s == to(1).shard()).copied().collect();
    assert_ne!(to(0).shard(), to(1).shard());
    let one = ShardLeases { shards: held };
    let found = ground.store.due(&one, None, at(1_000), 100).await.unwrap();
    assert_eq!(numbers(&found), [1, 5]);
    let found = ground.store.due(&one, None, at(1_000), 1).await.unwrap();
    assert_eq!(numbers(&found), [1], "the limit counts what is held");
}

async fn a_delivery_that_is_moved_falls_due_once(ground: Ground) {
    six_waiting(&ground).await;
    let leases = ground.leases().await;
    wait(&ground, 2, at(250), Some(at(101))).await;
    wait(&ground, 5, at(50), Some(at(102))).await;
    let found = ground.store.due(&leases, None, at(1_000), 100).await.unwrap();
    assert_eq!(numbers(&found), [5, 4, 6, 2, 1]);
}

async fn the_probe_is_one_never_attempted_then_the_one_furthest_back(mut ground: Ground) {
    for n in 1..=6 {
        ground.accept(&format!("e{n}"), at(50 - n), &[(n, 1)]).await;
    }
    let waits = [(1, Some(7)), (2, Some(3)), (3, None), (4, Some(7)), (5, None)];
    for (n, last) in waits {
        wait(&ground, n, at(1_000 - n), last.map(at)).await;
    }
    for _ in 0..2 {
        let found = ground.store.waiting_of(to(1), WaitingOrder::ProbeRank, 100).await.unwrap();
        assert_eq!(numbers(&found), [3, 5, 2, 1, 4]);
        let found = ground.store.waiting_of(to(1), WaitingOrder::ProbeRank, 3).await.unwrap();
        assert_eq!(numbers(&found), [3, 5, 2]);
        ground.reopen().await;
    }
}

async fn the_oldest_that_wait_come_by_acceptance(mut ground: Ground) {
    six_waiting(&ground).await;
    ground.reopen().await;
    let found = ground.store.waiting_of(to(1), WaitingOrder::Oldest, 100).await.unwrap();
    assert_eq!(numbers(&found), [5, 1]);
    let found = ground.store.waiting_of(to(0), WaitingOrder::Oldest, 2).await.unwrap();
    assert_eq!(numbers(&found), [6, 4]);
    assert_eq!(ground.store.waiting_of(to(7), WaitingOrder::Oldest, 2).await.unwrap(), []);
}

async fn what_waits_at_a_destination_comes_by_due_time(mut ground: Ground) {
    six_waiting(&ground).await;
    wait(&ground, 6, at(50), Some(at(40))).await;
    for _ in 0..2 {
        let found = ground.store.waiting_of(to(0), WaitingOrder::Due, 100).await.unwrap();
        assert_eq!(numbers(&found), [6, 2, 4]);
        let found = ground.store.waiting_of(to(0), WaitingOrder::Due, 2).await.unwrap();
        assert_eq!(numbers(&found), [6, 2]);
        let found = ground.store.waiting_of(to(1), WaitingOrder::Due, 100).await.unwrap();
        assert_eq!(numbers(&found), [1, 5]);
        ground.reopen().await;
    }
}

async fn unfinished_are_the_queued_and_the_waiting_of_a_subscription(mut ground: Ground) {
    six_waiting(&ground).await;
    let delivery = ground.delivery(5).await;
    ground.change(delivery.cancelled(CancelReason::SubscriptionDeleted, at(60)).unwrap()).await;
    ground.reopen().await;
    let unfinished = async |id: SubscriptionId, limit| {
        let found = ground.store.unfinished_of(id, limit).await.unwrap();
        numbers(&found).into_iter().collect::<BTreeSet<u64>>()
    };
    assert_eq!(unfinished(subscription_id(1), 100).await, BTreeSet::from([1, 3]));
    assert_eq!(unfinished(subscription_id(0), 100).await, BTreeSet::from([2, 4, 6]));
    assert_eq!(unfinished(subscription_id(0), 2).await.len(), 2);
    assert_eq!(unfinished(subscription_id(9), 100).await, BTreeSet::new());
}

async fn events_come_in_the_order_asked_for_with_gaps(ground: Ground) {
    let (one, two) = (event(&acme(), "one"), event(&umbrella(), "two"));
    for (n, event) in [(1, &one), (2, &two)] {
        let new = acceptance(event.clone(), at(0), &[(n, 1)]);
        ground.store.accept(vec![new]).await.unwrap();
    }
    let ask = [
        (umbrella(), "two".parse().unwrap()),
        (acme(), "two".parse().unwrap()),
        (acme(), "one".parse().unwrap()),
        (acme(), "none".parse().unwrap()),
        (umbrella(), "two".parse().unwrap()),
    ];
    let found = ground.store.events(&ask).await.unwrap();
    let (one, two) = (Some(Arc::new(one)), Some(Arc::new(two)));
    assert_eq!(found, [two.clone(), None, one, None, two]);
    assert_eq!(ground.store.events(&[]).await.unwrap(), []);
}

async fn events_of_several_days_and_chosen_identifiers_come_together(mut ground: Ground) {
    const DAY_MS: u64 = 24 * 3600 * 1000;
    let made = |ms: u64, random: [u8; 10]| EventId::new(at(ms), random);
    let ids = [
        (made(0, [1; 10]), 0),
        ("order-7".parse().unwrap(), 0),
        // It begins like the first, so their rows cannot both follow from the identifier.
        (made(0, [1, 1, 1, 9, 9, 9, 9, 9, 9, 9]), 0),
        (made(DAY_MS, [2; 10]), DAY_MS),
        ("order-8".parse().unwrap(), DAY_MS),
        // Its identifier names a day before that of its acceptance.
        (made(5, [3; 10]), DAY_MS),
        (made(DAY_MS + 5, [4; 10]), DAY_MS + 5),
        (made(10, [5; 10]), 10),
    ];
    let mut ask = vec![
        ((acme(), made(7, [6; 10])), None),
        ((acme(), made(20 * DAY_MS, [6; 10])), None),
        // The identifier is another tenant's.
        ((umbrella(), ids[0].0.clone()), None),
    ];
    for (n, (id, ms)) in (1..).zip(&ids) {
        let one = Event { id: id.clone(), ..event(&acme(), "any") };
        ground.store.accept(vec![acceptance(one.clone(), at(*ms), &[(n, 1)])]).await.unwrap();
        ask.push(((acme(), id.clone()), Some(Arc::new(one))));
    }
    // In the umbrella's numbers the same identifier is another event.
    let other = Event { id: ids[3].0.clone(), ..event(&umbrella(), "any") };
    let new = acceptance(other.clone(), at(DAY_MS), &[(20, 1)]);
    ground.store.accept(vec![new]).await.unwrap();
    ask.push(((umbrella(), other.id.clone()), Some(Arc::new(other))));
    for _ in 0..2 {
        // Neither the order of the identifiers nor that of their rows, and each twice.
        ask.rotate_left(5);
        let twice = ask.iter().chain(ask.iter().rev());
        let (asked, expected): (Vec<_>, Vec<_>) = twice.cloned().unzip();
        assert_eq!(ground.store.events(&asked).await.unwrap(), expected);
        ground.reopen().await;
    }
}

suite! { $ queues, conformance_queues:
    queued_deliveries_come_by_acceptance_then_identifier,
    queued_deliveries_come_after_the_mark_and_up_to_the_limit,
    queued_deliveries_are_those_of_the_held_shards,
    queued_deliveries_of_a_destination_come_likewise,
    what_is_acknowledged_is_listed_at_once,
    what_is_settled_leaves_the_queue_at_once,
    waiting_deliveries_fall_due_by_time_then_identifier,
    what_falls_due_at_the_given_time_is_due_and_nothing_later,
    due_deliveries_come_after_the_mark_and_up_to_the_limit,
    due_deliveries_are_those_of_the_held_shards,
    a_delivery_that_is_moved_falls_due_once,
    the_probe_is_one_never_attempted_then_the_one_furthest_back,
    the_oldest_that_wait_come_by_acceptance,
    what_waits_at_a_destination_comes_by_due_time,
    unfinished_are_the_queued_and_the_waiting_of_a_subscription,
    events_come_in_the_order_asked_for_with_gaps,
    events_of_several_days_and_chosen_identifiers_come_together,
}
