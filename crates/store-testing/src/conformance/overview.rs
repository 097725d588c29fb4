//! The operator's view: lists of all tenants together, newest first.

use postrider_domain::delivery::StateName;
use postrider_store::{
    Accepted, Commit, Cursor, DestinationChange, Page, PageRequest, Shown, Span, StoreError,
};

use super::Ground;
use super::ground::ALL;
use crate::samples::{
    acceptance, acme, answered, at, delivery_id, destination, event, key, subscription_id, umbrella,
};

/// Follows the cursors of a list.
macro_rules! walked {
    ($limit:expr, $page:ident => $list:expr, $name:expr) => {{
        let (mut all, mut $page) = (Vec::new(), PageRequest { limit: $limit, cursor: None });
        loop {
            let Page { items, next } = $list.await.unwrap();
            assert!(items.len() <= $limit);
            all.extend(items.iter().map($name));
            $page.cursor = next;
            if $page.cursor.is_none() {
                break all;
            }
        }
    }};
}

/// Two tenants with two subscriptions each and events in turns, over two days.
async fn fill(ground: &Ground) {
    for (tenant, n) in [(acme(), 1), (umbrella(), 2), (acme(), 3), (umbrella(), 4)] {
        ground.put(&tenant, n, n).await;
    }
    let of = |tenant, id: &str, seconds, n, to| {
        vec![acceptance(event(&tenant, id), at(seconds), &[(n, to)])]
    };
    for batch in [
        of(acme(), "a", 10, 1, 1),
        of(umbrella(), "b", 20, 2, 2),
        of(acme(), "c", 30, 3, 1),
        of(umbrella(), "c", 30, 4, 2),
        of(umbrella(), "d", 40, 5, 2),
        of(acme(), "e", 90_000, 6, 1),
        of(umbrella(), "f", 90_001, 7, 4),
    ] {
        assert_eq!(ground.store.accept(batch).await.unwrap(), [Accepted::New]);
    }
    // 410 freezes destination 1, and leaves the delivery waiting.
    ground.attempt(1, 1, answered(200), at(11)).await;
    ground.attempt(3, 1, answered(410), at(31)).await;
}

async fn events_of_all_tenants_are_listed_newest_first(ground: Ground) {
    fill(&ground).await;
    let store = &ground.store;
    for limit in [1, 2, 3, 100] {
        let all = walked!(limit, page => store.events_of_all(Span::default(), &page), |one| {
            format!("{}/{}", one.event.tenant, one.event.id)
        });
        let expected =
            ["umbrella/f", "acme/e", "umbrella/d", "umbrella/c", "acme/c", "umbrella/b", "acme/a"];
        assert_eq!(all, expected, "{limit} at a time");
    }
    let span = Span { since: Some(at(20)), until: Some(at(40)) };
    let found = store.events_of_all(span, &ALL).await.unwrap().items;
    let ids: Vec<_> = found.iter().map(|one| one.event.id.as_str()).collect();
    assert_eq!(ids, ["c", "c", "b"]);
    let later = Span { since: Some(at(100_000)), until: None };
    assert_eq!(store.events_of_all(later, &ALL).await.unwrap().items, []);
}

async fn deliveries_of_all_tenants_are_listed_by_state_and_time(ground: Ground) {
    fill(&ground).await;
    let store = &ground.store;
    let number = |id| (1..9).find(|n| delivery_id(*n) == id).unwrap();
    for limit in [1, 2, 3, 100] {
        let list = |page: PageRequest| async move {
            store.deliveries_of_all(None, Span::default(), &page).await
        };
        let all = walked!(limit, page => list(page.clone()), |one| number(one.id));
        assert_eq!(all, [7, 6, 5, 4, 3, 2, 1], "{limit} at a time");
        let list = |page: PageRequest| async move {
            store.deliveries_of_all(Some(StateName::Queued), Span::default(), &page).await
        };
        let queued = walked!(limit, page => list(page.clone()), |one| number(one.id));
        assert_eq!(queued, [7, 6, 5, 4, 2], "{limit} at a time");
    }
    let list = async |state, span| {
        let found = store.deliveries_of_all(Some(state), span, &ALL).await.unwrap().items;
        found.iter().map(|one| number(one.id)).collect::<Vec<u64>>()
    };
    assert_eq!(list(StateName::Delivered, Span::default()).await, [1]);
    assert_eq!(list(StateName::Waiting, Span::default()).await, [3]);
    assert_eq!(list(StateName::Dead, Span::default()).await, [0; 0]);
    assert_eq!(list(StateName::InFlight, Span::default()).await, [0; 0]);
    let span = Span { since: Some(at(20)), until: Some(at(40)) };
    assert_eq!(list(StateName::Queued, span).await, [4, 2]);
}

async fn destinations_of_all_tenants_are_listed_and_the_failing_ones_by_themselves(ground: Ground) {
    fill(&ground).await;
    let store = &ground.store;
    for limit in [1, 3, 100] {
        let all =
            walked!(limit, page => store.destinations_of_all(Shown::All, &page), |one| one.id);
        assert_eq!(all.len(), 4, "{limit} at a time");
        let failing =
            walked!(limit, page => store.destinations_of_all(Shown::Failing, &page), |one| one.id);
        assert_eq!(failing, [destination(&acme(), 1).id]);
    }
    let both = [destination(&umbrella(), 2).id, destination(&acme(), 1).id];
    assert_eq!(store.waiting_of_all(&both).await.unwrap(), [0, 1]);
    // Enabled again.
    let (id, circuit) = (destination(&acme(), 1).id, destination(&acme(), 1).circuit);
    let change = DestinationChange { tenant: acme(), id, circuit, transitions: Vec::new() };
    ground.settle(Commit { destinations: vec![change], ..Commit::default() }).await;
    let store = &ground.store;
    assert_eq!(store.destinations_of_all(Shown::Failing, &ALL).await.unwrap().items, []);
    // Unused.
    store.mark_subscription_deleted(&acme(), subscription_id(3), at(5)).await.unwrap();
    store.remove_subscription(&acme(), subscription_id(3)).await.unwrap();
    assert_eq!(store.destinations_of_all(Shown::All, &ALL).await.unwrap().items.len(), 3);
}

async fn subscriptions_and_keys_of_all_tenants_are_listed(ground: Ground) {
    fill(&ground).await;
    let store = &ground.store;
    store.create_key(&key("k1", Some(&acme()), at(1))).await.unwrap();
    store.create_key(&key("k2", None, at(2))).await.unwrap();
    store.create_key(&key("k3", Some(&umbrella()), at(3))).await.unwrap();
    store.mark_subscription_deleted(&umbrella(), subscription_id(4), at(5)).await.unwrap();
    for limit in [1, 2, 100] {
        let keys = walked!(limit, page => store.keys_of_all(&page), |key| key.id.clone());
        assert_eq!(keys, ["k3", "k2", "k1"]);
        let all =
            walked!(limit, page => store.subscriptions_of_all(&page), |one| one.subscription.id);
        assert_eq!(all, [3, 2, 1].map(subscription_id));
    }
}

async fn malformed_cursor_is_refused_by_each_list_of_all_tenants(ground: Ground) {
    let store = &ground.store;
    let page = PageRequest { limit: 1, cursor: Some(Cursor("nonsense".to_owned())) };
    let refused = |error: StoreError| assert!(matches!(error, StoreError::UnknownCursor));
    refused(store.keys_of_all(&page).await.unwrap_err());
    refused(store.subscriptions_of_all(&page).await.unwrap_err());
    refused(store.destinations_of_all(Shown::All, &page).await.unwrap_err());
    refused(store.events_of_all(Span::default(), &page).await.unwrap_err());
    refused(store.deliveries_of_all(None, Span::default(), &page).await.unwrap_err());
}

suite! { $ overview, conformance_overview:
    events_of_all_tenants_are_listed_newest_first,
    deliveries_of_all_tenants_are_listed_by_state_and_time,
    destinations_of_all_tenants_are_listed_and_the_failing_ones_by_themselves,
    subscriptions_and_keys_of_all_tenants_are_listed,
    malformed_cursor_is_refused_by_each_list_of_all_tenants,
}
