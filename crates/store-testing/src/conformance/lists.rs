//! Every list, page by page: no entry twice, none missing, in the order of the contract.

use std::cmp::Reverse;

use postrider_domain::attempt::{Answer, Attempt, BodyEnd, Ending};
use postrider_domain::circuit::{Circuit, Counters, Evidence, StateName, Transition};
use postrider_domain::delivery::Delivery;
use postrider_domain::event::Event;
use postrider_domain::ids::TenantId;
use postrider_domain::time::Timestamp;
use postrider_store::{
    Accepted, Commit, Cursor, DeliveryFilter, DestinationChange, EventFilter, Page, PageRequest,
    StoreError,
};

use super::Ground;
use super::ground::ALL;
use crate::samples::{
    acceptance, acme, answered, at, delivery_id, destination, event, every_attempt, json, key,
    replay, subscription, subscription_id, tenant, umbrella,
};

/// The lists of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum List {
    Tenants,
    Keys,
    AdminKeys,
    Subscriptions,
    Destinations,
    Events,
    Deliveries,
    Transitions,
    Replays,
}

impl List {
    const ALL: [List; 9] = [
        List::Tenants,
        List::Keys,
        List::AdminKeys,
        List::Subscriptions,
        List::Destinations,
        List::Events,
        List::Deliveries,
        List::Transitions,
        List::Replays,
    ];

    /// Adds entry `n`. Two entries each have the same time, and the larger identifier is added
    /// first as often as last.
    async fn add(self, ground: &Ground, n: u64) -> (Reverse<Timestamp>, Reverse<String>) {
        let store = &ground.store;
        let (time, id, whose) = (at(n / 2), format!("n{:02}", (n * 7) % 50), acme());
        let name = match self {
            List::Tenants => {
                assert!(store.create_tenant(&tenant(&id, time)).await.unwrap());
                id
            }
            List::Keys => {
                assert!(store.create_key(&key(&id, Some(&whose), time)).await.unwrap());
                id
            }
            List::AdminKeys => {
                let id = format!("admin-{id}");
                assert!(store.create_key(&key(&id, None, time)).await.unwrap());
                id
            }
            List::Subscriptions | List::Destinations => {
                let mut record = subscription(&whose, n, n);
                record.subscription.created_at = time;
                let mut destination = destination(&whose, n);
                destination.created_at = time;
                store.put_subscription(&record, &destination).await.unwrap();
                let is_destination = self == List::Destinations;
                let destination = destination.id.to_string();
                if is_destination { destination } else { record.subscription.id.to_string() }
            }
            List::Events | List::Deliveries => {
                let deliveries = [(100 + (n * 7) % 50, 1)];
                let new = acceptance(event(&whose, &id), time, &deliveries);
                assert_eq!(store.accept(vec![new]).await.unwrap(), [Accepted::New]);
                let is_delivery = self == List::Deliveries;
                if is_delivery { delivery_id(deliveries[0].0).to_string() } else { id }
            }
            List::Transitions => add_transition(ground, &whose, n).await,
            List::Replays => {
                let job = replay(&whose, (n * 7) % 50, time);
                store.put_replay(&job).await.unwrap();
                job.id.to_string()
            }
        };
        (Reverse(time), Reverse(name))
    }

    async fn page(self, ground: &Ground, page: &PageRequest) -> Result<Page<String>, StoreError> {
        let (store, whose) = (&ground.store, acme());
        Ok(match self {
            List::Tenants => names(store.tenants(page).await?, |tenant| tenant.id.to_string()),
            List::Keys => names(store.keys(Some(&whose), page).await?, |key| key.id.clone()),
            List::AdminKeys => names(store.keys(None, page).await?, |key| key.id.clone()),
            List::Subscriptions => {
                let found = store.subscriptions(&whose, page).await?;
                names(found, |record| record.subscription.id.to_string())
            }
            List::Destinations => {
                names(store.destinations(&whose, page).await?, |d| d.id.to_string())
            }
            List::Events => {
                let found = store.list_events(&whose, &EventFilter::default(), page).await?;
                names(found, |record| record.event.id.to_string())
            }
            List::Deliveries => {
                let found = store.list_deliveries(&whose, &DeliveryFilter::default(), page).await?;
                names(found, |delivery| delivery.id.to_string())
            }
            List::Transitions => {
                let id = destination(&whose, 1).id;
                names(store.transitions(&whose, id, page).await?, |t| {
                    t.counters.attempts.to_string()
                })
            }
            List::Replays => names(store.replays(&whose, page).await?, |job| job.id.to_string()),
        })
    }

    /// The names of entries in the order of the list.
    fn ordered(self, mut entries: Vec<(Reverse<Timestamp>, Reverse<String>)>) -> Vec<String> {
        match self {
            List::Tenants => entries.sort_by(|one, other| other.1.cmp(&one.1)),
            List::Transitions => entries.reverse(),
            List::Keys
            | List::AdminKeys
            | List::Subscriptions
            | List::Destinations
            | List::Events
            | List::Deliveries
            | List::Replays => entries.sort(),
        }
        entries.into_iter().map(|(_, Reverse(name))| name).collect()
    }

    async fn walk(self, ground: &Ground, limit: usize) -> Vec<String> {
        let (mut seen, mut cursor) = (Vec::new(), None);
        loop {
            let page = self.page(ground, &PageRequest { limit, cursor }).await.unwrap();
            assert!(page.items.len() <= limit, "{self:?}");
            let is_last = page.next.is_none();
            assert!(is_last || page.items.len() == limit, "{self:?}: only the last one is short");
            seen.extend(page.items);
            cursor = page.next;
            if is_last {
                return seen;
            }
        }
    }
}

async fn add_transition(ground: &Ground, whose: &TenantId, n: u64) -> String {
    if n == 0 {
        ground.put(whose, 1, 1).await;
    }
    let transition = Transition {
        at: at(n / 2),
        from: StateName::Closed,
        to: StateName::Frozen,
        evidence: Evidence::ByHand { reason: None },
        counters: Counters { attempts: n, ..Counters::default() },
    };
    let mut circuit = Circuit::new(at(0));
    circuit.counters.attempts = n;
    let change = DestinationChange {
        tenant: whose.clone(),
        id: destination(whose, 1).id,
        circuit,
        transitions: vec![transition],
    };
    ground.settle(Commit { destinations: vec![change], ..Commit::default() }).await;
    n.to_string()
}

fn names<T>(page: Page<T>, name: impl Fn(&T) -> String) -> Page<String> {
    Page { items: page.items.iter().map(name).collect(), next: page.next }
}

async fn every_list_is_in_its_order_whatever_the_limit(ground: Ground) {
    // A subscription creates a destination, and an event deliveries: each pair is one kind here.
    for list in List::ALL {
        if matches!(list, List::Destinations | List::Deliveries) {
            continue;
        }
        assert_eq!(list.walk(&ground, 5).await, [""; 0], "{list:?}");
        let mut entries = Vec::new();
        for n in 0..7 {
            entries.push(list.add(&ground, n).await);
        }
        let expected = list.ordered(entries);
        for limit in 1..=8 {
            let seen = list.walk(&ground, limit).await;
            assert_eq!(seen, expected, "{list:?} by {limit}");
        }
    }
}

async fn destinations_and_deliveries_are_in_their_order_whatever_the_limit(ground: Ground) {
    for list in [List::Destinations, List::Deliveries] {
        let mut entries = Vec::new();
        for n in 0..7 {
            entries.push(list.add(&ground, n).await);
        }
        let expected = list.ordered(entries);
        for limit in 1..=8 {
            assert_eq!(list.walk(&ground, limit).await, expected, "{list:?} by {limit}");
        }
    }
}

async fn a_full_last_page_is_the_last_one(ground: Ground) {
    for n in 0..4 {
        List::Keys.add(&ground, n).await;
    }
    let page = PageRequest { limit: 4, cursor: None };
    let page = List::Keys.page(&ground, &page).await.unwrap();
    assert_eq!((page.items.len(), page.next), (4, None));
}

async fn who_walks_meets_everything_once_while_entries_are_added(mut ground: Ground) {
    for list in List::ALL {
        if matches!(list, List::Destinations | List::Events) {
            continue;
        }
        let mut entries = Vec::new();
        for n in 10..16 {
            entries
                .push(list.add(&ground, if list == List::Transitions { n - 10 } else { n }).await);
        }
        let at_first = list.ordered(entries);
        let (mut seen, mut cursor, mut n) = (Vec::new(), None, 16);
        loop {
            let page = list.page(&ground, &PageRequest { limit: 2, cursor }).await.unwrap();
            seen.extend(page.items);
            if n < 20 {
                list.add(&ground, n).await;
                n += 1;
                ground.reopen().await;
            }
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        let mut once = seen.clone();
        once.sort();
        once.dedup();
        assert_eq!(once.len(), seen.len(), "{list:?}: nothing twice");
        seen.retain(|name| at_first.contains(name));
        assert_eq!(seen, at_first, "{list:?}: nothing missing");
    }
}

async fn a_cursor_stays_good_when_its_entry_is_gone(ground: Ground) {
    for list in [List::Keys, List::Subscriptions, List::Tenants] {
        let mut entries = Vec::new();
        for n in 0..4 {
            entries.push(list.add(&ground, n).await);
        }
        let expected = list.ordered(entries);
        let first = list.page(&ground, &PageRequest { limit: 2, cursor: None }).await.unwrap();
        assert_eq!(first.items, expected[..2]);
        for gone in &first.items {
            match list {
                List::Keys => {
                    assert!(ground.store.delete_key(Some(&acme()), gone).await.unwrap());
                }
                List::Tenants => {
                    assert!(ground.store.delete_tenant(&gone.parse().unwrap()).await.unwrap());
                }
                List::Subscriptions
                | List::AdminKeys
                | List::Destinations
                | List::Events
                | List::Deliveries
                | List::Transitions
                | List::Replays => {
                    let id = (0..4).map(subscription_id).find(|id| id.to_string() == *gone);
                    let store = &ground.store;
                    let marked = store.mark_subscription_deleted(&acme(), id.unwrap(), at(9)).await;
                    assert!(marked.unwrap());
                }
            }
        }
        let page = PageRequest { limit: 2, cursor: first.next };
        let rest = list.page(&ground, &page).await.unwrap();
        assert_eq!((rest.items, rest.next), (expected[2..].to_vec(), None), "{list:?}");
    }
}

async fn a_cursor_that_is_none_is_refused(ground: Ground) {
    for list in List::ALL {
        for nonsense in ["", "no such place", "\u{0}", "ß:1", &"9".repeat(400)] {
            let cursor = Some(Cursor(nonsense.into()));
            let refused = list.page(&ground, &PageRequest { limit: 2, cursor }).await;
            assert!(matches!(refused, Err(StoreError::UnknownCursor)), "{list:?} {nonsense:?}");
        }
    }
}

async fn page_of_large_events_ends_early(ground: Ground) {
    let large = "x".repeat(900 * 1024);
    let mut names = Vec::new();
    for n in 0..7 {
        let name = format!("e{n}");
        let event = Event { data: json(&format!("\"{large}\"")), ..event(&acme(), &name) };
        let new = acceptance(event, at(n), &[]);
        assert_eq!(ground.store.accept(vec![new]).await.unwrap(), [Accepted::New]);
        names.insert(0, name);
    }
    let (mut seen, mut cursor) = (Vec::new(), None);
    loop {
        let page = PageRequest { limit: 10, cursor };
        let found = List::Events.page(&ground, &page).await.unwrap();
        assert!((1..=4).contains(&found.items.len()), "{}", found.items.len());
        seen.extend(found.items);
        cursor = found.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(seen, names);
}

async fn attempts_are_paged_by_number_and_by_size(ground: Ground) {
    ground.put(&acme(), 1, 1).await;
    ground.accept("e", at(0), &[(1, 1)]).await;
    let body = bytes::Bytes::from(vec![b'x'; 16 * 1024]);
    for number in 1..=80 {
        let delivery = Delivery { attempts: number, ..ground.delivery(1).await };
        let answer =
            Answer { status: 500, retry_after: None, body: body.clone(), body_end: BodyEnd::Whole };
        let attempt =
            Attempt { number, ending: Ending::Answered(answer), ..every_attempt().remove(0) };
        let change = ground.change_to(delivery, Some(attempt)).await;
        ground.settle(Commit { deliveries: vec![change], ..Commit::default() }).await;
    }
    for (limit, first_page) in [(1_000, 40..=70), (7, 7..=7)] {
        let (mut seen, mut cursor) = (Vec::new(), None);
        loop {
            let page = PageRequest { limit, cursor };
            let found = ground.store.attempt_page(&acme(), delivery_id(1), &page).await.unwrap();
            assert!(!seen.is_empty() || first_page.contains(&found.items.len()), "{limit}");
            seen.extend(found.items.iter().map(|attempt| attempt.number));
            cursor = found.next;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(seen, (1..=80).collect::<Vec<_>>(), "{limit}");
    }
    // The cursor is the number of the previous attempt, so the last attempt is found directly.
    let last = PageRequest { limit: 1, cursor: Some(Cursor("79".into())) };
    let found = ground.store.attempt_page(&acme(), delivery_id(1), &last).await.unwrap();
    assert_eq!((found.items[0].number, found.next), (80, None));
    let other = ground.store.attempt_page(&umbrella(), delivery_id(1), &ALL).await.unwrap();
    assert_eq!(other.items, []);
    assert_eq!(ground.store.attempts(&acme(), delivery_id(1)).await.unwrap().len(), 80);
}

async fn deliveries_of_deleted_subscriptions_are_not_replayable(ground: Ground) {
    for n in [1, 2] {
        ground.put(&acme(), n, n).await;
    }
    ground.accept("e", at(0), &[(1, 1), (2, 2)]).await;
    for n in [1, 2] {
        ground.attempt(n, n, answered(200), at(50)).await;
    }
    let delivered = DeliveryFilter {
        state: Some(postrider_domain::delivery::StateName::Delivered),
        ..DeliveryFilter::default()
    };
    let store = &ground.store;
    let count = async || store.count_replayable(&acme(), &delivered).await.unwrap();
    assert_eq!(count().await, 2);
    assert!(store.mark_subscription_deleted(&acme(), subscription_id(2), at(60)).await.unwrap());
    assert_eq!(count().await, 1, "its subscription is marked as deleted");
    store.remove_subscription(&acme(), subscription_id(2)).await.unwrap();
    assert_eq!(count().await, 1, "its subscription is gone");
    assert_eq!(store.count_deliveries(&acme(), &delivered).await.unwrap(), 2);
    assert_eq!(store.count_replayable(&umbrella(), &delivered).await.unwrap(), 0);
}

suite! { $ lists, conformance_lists:
    every_list_is_in_its_order_whatever_the_limit,
    destinations_and_deliveries_are_in_their_order_whatever_the_limit,
    a_full_last_page_is_the_last_one,
    who_walks_meets_everything_once_while_entries_are_added,
    a_cursor_stays_good_when_its_entry_is_gone,
    a_cursor_that_is_none_is_refused,
    page_of_large_events_ends_early,
    attempts_are_paged_by_number_and_by_size,
    deliveries_of_deleted_subscriptions_are_not_replayable,
}
