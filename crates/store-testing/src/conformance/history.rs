//! Reading: filters, counts, ledgers and tallies.

use postrider_domain::delivery::{CancelReason, StateName};
use postrider_domain::event::Event;
use postrider_domain::ledger::Ledger;
use postrider_store::{DeliveryFilter, EventFilter, PageRequest, Tally, TallyAt};

use super::Ground;
use super::ground::{ALL, numbers};
use crate::samples::{
    START, acceptance, acme, answered, at, destination, event, kind, refused, subscription_id,
    umbrella,
};

/// Events a, b, c of two types; deliveries 1 to 6 in every state, to destinations 1 and 2.
async fn fill(ground: &Ground) {
    for n in [1, 2] {
        ground.put(&acme(), n, n).await;
    }
    let events = [
        ("a", "task.updated", 10, vec![(1, 1), (2, 2)]),
        ("b", "task.deleted", 20, vec![(3, 1), (4, 2)]),
        ("c", "task.updated", 30, vec![(5, 1), (6, 2)]),
        ("d", "note.added", 40, vec![]),
    ];
    for (id, name, ms, deliveries) in events {
        let event = Event { kind: kind(name), ..event(&acme(), id) };
        let new = acceptance(event, at(ms), &deliveries);
        ground.store.accept(vec![new]).await.unwrap();
    }
    ground.accept_for(&umbrella(), "a", at(10), &[(9, 1)]).await;
    ground.attempt(1, 1, answered(200), at(50)).await;
    ground.attempt(2, 2, refused(), at(50)).await;
    ground.attempt(3, 1, refused(), at(50)).await;
    ground.attempt(3, 1, refused(), at(200_000_000)).await;
    ground.change(ground.delivery(4).await.cancelled(CancelReason::Asked, at(60)).unwrap()).await;
}

fn filters() -> Vec<(DeliveryFilter, &'static [u64])> {
    let any = DeliveryFilter::default;
    let one = Some(destination(&acme(), 1).id);
    let state = |state| DeliveryFilter { state: Some(state), ..any() };
    let event = |id: &str| Some(id.parse().unwrap());
    vec![
        (any(), &[6, 5, 4, 3, 2, 1]),
        (state(StateName::Queued), &[6, 5]),
        (state(StateName::InFlight), &[]),
        (state(StateName::Waiting), &[2]),
        (state(StateName::Delivered), &[1]),
        (state(StateName::Dead), &[3]),
        (state(StateName::Cancelled), &[4]),
        (DeliveryFilter { destination: one, ..any() }, &[5, 3, 1]),
        (DeliveryFilter { subscription: Some(subscription_id(2)), ..any() }, &[6, 4, 2]),
        (DeliveryFilter { subscription: Some(subscription_id(3)), ..any() }, &[]),
        (DeliveryFilter { event: event("b"), ..any() }, &[4, 3]),
        (DeliveryFilter { event: event("none"), ..any() }, &[]),
        (DeliveryFilter { kind: Some(kind("task.updated")), ..any() }, &[6, 5, 2, 1]),
        (DeliveryFilter { kind: Some(kind("task")), ..any() }, &[]),
        (DeliveryFilter { since: Some(at(20)), ..any() }, &[6, 5, 4, 3]),
        (DeliveryFilter { until: Some(at(20)), ..any() }, &[2, 1]),
        (DeliveryFilter { since: Some(at(20)), until: Some(at(30)), ..any() }, &[4, 3]),
        (DeliveryFilter { since: Some(at(30)), until: Some(at(20)), ..any() }, &[]),
        (DeliveryFilter { destination: one, ..state(StateName::Queued) }, &[5]),
        (
            DeliveryFilter { kind: Some(kind("task.updated")), until: Some(at(30)), ..any() },
            &[2, 1],
        ),
        (
            DeliveryFilter {
                state: Some(StateName::Dead),
                destination: one,
                subscription: Some(subscription_id(1)),
                event: event("b"),
                kind: Some(kind("task.deleted")),
                since: Some(at(20)),
                until: Some(at(21)),
                ended_since: Some(at(0)),
            },
            &[3],
        ),
    ]
}

async fn deliveries_are_listed_by_each_filter_alone_and_combined(mut ground: Ground) {
    fill(&ground).await;
    for _ in 0..2 {
        for (filter, expected) in filters() {
            let found = ground.store.list_deliveries(&acme(), &filter, &ALL).await.unwrap();
            assert_eq!(numbers(&found.items), expected, "{filter:?}");
            let count = ground.store.count_deliveries(&acme(), &filter).await.unwrap();
            assert_eq!(count, u64::try_from(expected.len()).unwrap(), "{filter:?}");
        }
        ground.reopen().await;
    }
}

async fn a_filtered_list_is_walked_page_by_page(ground: Ground) {
    fill(&ground).await;
    for (filter, expected) in filters() {
        let (mut seen, mut cursor) = (Vec::new(), None);
        loop {
            let page = PageRequest { limit: 1, cursor };
            let page = ground.store.list_deliveries(&acme(), &filter, &page).await.unwrap();
            seen.extend(numbers(&page.items));
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(seen, expected, "{filter:?}");
    }
}

async fn a_delivery_that_changes_stays_in_its_place(ground: Ground) {
    fill(&ground).await;
    let filter = DeliveryFilter::default();
    let page = PageRequest { limit: 3, cursor: None };
    let first = ground.store.list_deliveries(&acme(), &filter, &page).await.unwrap();
    ground.attempt(6, 2, answered(200), at(70)).await;
    ground.attempt(2, 2, answered(200), at(90_000)).await;
    let page = PageRequest { limit: 3, cursor: first.next };
    let rest = ground.store.list_deliveries(&acme(), &filter, &page).await.unwrap();
    assert_eq!((numbers(&first.items), numbers(&rest.items)), (vec![6, 5, 4], vec![3, 2, 1]));
}

async fn events_are_listed_by_each_filter_alone_and_combined(mut ground: Ground) {
    fill(&ground).await;
    ground.reopen().await;
    let any = EventFilter::default;
    let updated = Some(kind("task.updated"));
    let cases: [(EventFilter, &[&str]); 7] = [
        (any(), &["d", "c", "b", "a"]),
        (EventFilter { kind: updated.clone(), ..any() }, &["c", "a"]),
        (EventFilter { kind: Some(kind("none")), ..any() }, &[]),
        (EventFilter { since: Some(at(20)), ..any() }, &["d", "c", "b"]),
        (EventFilter { until: Some(at(20)), ..any() }, &["a"]),
        (EventFilter { since: Some(at(10)), until: Some(at(30)), ..any() }, &["b", "a"]),
        (EventFilter { kind: updated, since: Some(at(11)), until: Some(at(31)), ..any() }, &["c"]),
    ];
    for (filter, expected) in cases {
        let (mut seen, mut cursor) = (Vec::new(), None);
        loop {
            let page = PageRequest { limit: 2, cursor };
            let page = ground.store.list_events(&acme(), &filter, &page).await.unwrap();
            seen.extend(page.items.iter().map(|record| record.event.id.to_string()));
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(seen, expected, "{filter:?}");
    }
    let page = ground.store.list_events(&acme(), &any(), &ALL).await.unwrap();
    let owed: Vec<_> = page.items.iter().map(|record| record.deliveries).collect();
    assert_eq!(owed, [0, 2, 2, 2]);
    let single = ground.store.event(&acme(), &"c".parse().unwrap()).await.unwrap();
    assert_eq!(single.as_ref(), page.items.get(1));
}

async fn waiting_counts_count_what_waits_and_not_what_is_queued(ground: Ground) {
    fill(&ground).await;
    let ids = [2, 1, 2, 7].map(|n| destination(&acme(), n).id);
    assert_eq!(ground.store.waiting_counts(&acme(), &ids).await.unwrap(), [1, 0, 1, 0]);
    ground.attempt(5, 1, refused(), at(70)).await;
    ground.attempt(6, 2, refused(), at(70)).await;
    assert_eq!(ground.store.waiting_counts(&acme(), &ids).await.unwrap(), [2, 1, 2, 0]);
    assert_eq!(ground.store.waiting_counts(&acme(), &[]).await.unwrap(), [0u64; 0]);
}

async fn ledgers_are_kept_for_each_tenant_and_in_total(mut ground: Ground) {
    assert_eq!(ground.store.ledger(None).await.unwrap(), Ledger::default());
    fill(&ground).await;
    ground.reopen().await;
    let ours = Ledger {
        accepted: 6,
        queued: 2,
        in_flight: 0,
        waiting: 1,
        delivered: 1,
        dead: 1,
        cancelled: 1,
    };
    let theirs = Ledger { accepted: 1, queued: 1, ..Ledger::default() };
    assert_eq!(ground.store.ledger(Some(&acme())).await.unwrap(), ours);
    assert_eq!(ground.store.ledger(Some(&umbrella())).await.unwrap(), theirs);
    assert_eq!(ground.store.ledger(None).await.unwrap(), ours + theirs);
    let nobody = crate::samples::tenant_id("nobody");
    assert_eq!(ground.store.ledger(Some(&nobody)).await.unwrap(), Ledger::default());
}

const MINUTE: u64 = 60_000;

/// In minute 0 three deliveries of acme are accepted and one of umbrella; in minute 1 one succeeds
/// and one fails; in minute 3333 one dies after another failure, and one is replayed, which is not
/// counted, and succeeds again.
async fn happen(ground: &Ground) {
    ground.put(&acme(), 1, 1).await;
    ground.accept("a", at(0), &[(1, 1), (2, 1)]).await;
    ground.accept("b", at(MINUTE - 1), &[(3, 1)]).await;
    ground.accept_for(&umbrella(), "a", at(1), &[(9, 1)]).await;
    ground.attempt(1, 1, answered(200), at(MINUTE)).await;
    ground.attempt(2, 1, refused(), at(2 * MINUTE - 1)).await;
    let late = 3_333 * MINUTE;
    ground.attempt(2, 1, refused(), at(late)).await;
    ground.change(ground.delivery(1).await.replayed(at(late)).unwrap()).await;
    ground.attempt(1, 1, answered(200), at(late + 5)).await;
}

fn tally(minute: u64, accepted: u64, delivered: u64, failed: u64, dead: u64) -> TallyAt {
    TallyAt { at: at(minute * MINUTE), tally: Tally { accepted, delivered, failed, dead } }
}

async fn tallies_say_what_happened_in_each_minute(mut ground: Ground) {
    happen(&ground).await;
    for _ in 0..2 {
        let ours = ground.store.tallies(Some(&acme()), START, at(4_000 * MINUTE), 1).await;
        let expected = [tally(0, 3, 0, 0, 0), tally(1, 0, 1, 1, 0), tally(3_333, 0, 1, 1, 1)];
        assert_eq!(ours.unwrap(), expected);
        let all = ground.store.tallies(None, START, at(2 * MINUTE), 1).await.unwrap();
        assert_eq!(all, [tally(0, 4, 0, 0, 0), tally(1, 0, 1, 1, 0)]);
        ground.reopen().await;
    }
}

async fn minutes_count_whole_from_since_to_until(ground: Ground) {
    happen(&ground).await;
    let (first, second) = (tally(0, 3, 0, 0, 0), tally(1, 0, 1, 1, 0));
    let cases = [
        (at(0), at(MINUTE), vec![first]),
        (at(0), at(MINUTE + 1), vec![first, second]),
        (at(1), at(MINUTE + 1), vec![second]),
        (at(MINUTE), at(2 * MINUTE), vec![second]),
        (at(0), at(0), vec![]),
        (at(2 * MINUTE), at(3 * MINUTE), vec![]),
    ];
    for (since, until, expected) in cases {
        let found = ground.store.tallies(Some(&acme()), since, until, 1).await.unwrap();
        assert_eq!(found, expected, "{since} to {until}");
    }
}

async fn spans_begin_at_multiples_of_their_length(ground: Ground) {
    happen(&ground).await;
    // 09:30 is a multiple of 5 and 30 minutes since the epoch, but not of 20.
    for (step, first) in [(5, 0), (30, 0)] {
        let found = ground.store.tallies(Some(&acme()), START, at(5 * MINUTE), step).await;
        assert_eq!(found.unwrap(), [tally(first, 3, 1, 1, 0)], "by {step}");
    }
    let found = ground.store.tallies(Some(&acme()), START, at(5 * MINUTE), 20).await.unwrap();
    let begin = START.as_unix_ms() / 60_000 / 20 * 20 * 60_000;
    assert_ne!(begin, START.as_unix_ms());
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].at.as_unix_ms(), begin);
    assert_eq!(found[0].tally, Tally { accepted: 3, delivered: 1, failed: 1, dead: 0 });
}

suite! { $ history, conformance_history:
    deliveries_are_listed_by_each_filter_alone_and_combined,
    a_filtered_list_is_walked_page_by_page,
    a_delivery_that_changes_stays_in_its_place,
    events_are_listed_by_each_filter_alone_and_combined,
    waiting_counts_count_what_waits_and_not_what_is_queued,
    ledgers_are_kept_for_each_tenant_and_in_total,
    tallies_say_what_happened_in_each_minute,
    minutes_count_whole_from_since_to_until,
    spans_begin_at_multiples_of_their_length,
}
