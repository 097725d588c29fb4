//! The audit log: entries are found by every filter, page by page, and are removed by age and
//! number.

use postrider_domain::time::Timestamp;
use postrider_store::{AuditEntry, AuditFilter, Cursor, PageRequest, StoreError};

use super::Ground;
use super::ground::ALL;
use crate::samples::{acme, at, audit, umbrella};

/// Twelve entries: every third one by the server itself, the others of two tenants in turn.
async fn twelve(ground: &Ground) -> Vec<AuditEntry> {
    let mut entries = Vec::new();
    for n in 0..12u64 {
        let tenant = match n % 3 {
            0 => None,
            1 => Some(acme()),
            _ => Some(umbrella()),
        };
        let (action, status) =
            if n % 2 == 0 { ("key.create", 201) } else { ("subscription.create", 409) };
        let entry = audit(n, tenant, action, status);
        ground.store.put_audit(&entry).await.unwrap();
        entries.push(entry);
    }
    entries.reverse();
    entries
}

async fn listed(ground: &Ground, filter: &AuditFilter) -> Vec<AuditEntry> {
    ground.store.audit(filter, &ALL).await.unwrap().items
}

async fn entries_come_back_newest_first_after_a_restart(mut ground: Ground) {
    let all = twelve(&ground).await;
    ground.reopen().await;
    assert_eq!(listed(&ground, &AuditFilter::default()).await, all);
}

async fn every_filter_and_pair_of_filters_wants_what_it_says(ground: Ground) {
    let all = twelve(&ground).await;
    let tenants = [None, Some(acme())];
    let texts = |text: &str| [None, Some(text.to_owned())];
    let times = [None, Some(at(4))];
    for tenant in tenants {
        for actor in texts("k1") {
            for action in texts("key.create") {
                for target in texts("t0") {
                    for since in times {
                        let (tenant, actor) = (tenant.clone(), actor.clone());
                        let (action, target) = (action.clone(), target.clone());
                        let until = since.map(|_| at(9));
                        let filter = AuditFilter { tenant, actor, action, target, since, until };
                        let is_in = |entry: &&AuditEntry| {
                            since.is_none_or(|since| entry.at >= since && entry.at < at(9))
                        };
                        let wanted: Vec<AuditEntry> = all
                            .iter()
                            .filter(is_in)
                            .filter(|entry| filter.wants(entry))
                            .cloned()
                            .collect();
                        assert_eq!(listed(&ground, &filter).await, wanted, "{filter:?}");
                    }
                }
            }
        }
    }
}

async fn pages_of_any_length_have_every_entry_once(ground: Ground) {
    let all = twelve(&ground).await;
    for limit in [1, 5, 12, 13] {
        let (mut found, mut cursor) = (Vec::new(), None);
        loop {
            let request = PageRequest { limit, cursor };
            let page = ground.store.audit(&AuditFilter::default(), &request).await.unwrap();
            found.extend(page.items);
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(found, all, "{limit} on a page");
    }
    let nonsense = PageRequest { limit: 1, cursor: Some(Cursor("nonsense".into())) };
    let refused = ground.store.audit(&AuditFilter::default(), &nonsense).await;
    assert!(matches!(refused, Err(StoreError::UnknownCursor)), "{refused:?}");
}

async fn an_entry_with_the_same_identifier_replaces_the_one_before(ground: Ground) {
    let first = audit(1, Some(acme()), "key.create", 201);
    let second = AuditEntry { status: Some(409), ..first.clone() };
    for entry in [&first, &second] {
        ground.store.put_audit(entry).await.unwrap();
    }
    assert_eq!(listed(&ground, &AuditFilter::default()).await, [second]);
}

async fn entries_go_by_age_and_the_oldest_of_a_tenant_with_too_many(ground: Ground) {
    let all = twelve(&ground).await;
    let store = &ground.store;
    let times = async || -> Vec<Timestamp> {
        listed(&ground, &AuditFilter::default()).await.iter().map(|entry| entry.at).collect()
    };
    assert_eq!(store.prune_audit(at(3), 100, 100).await.unwrap(), 3);
    assert_eq!(times().await, all[..9].iter().map(|entry| entry.at).collect::<Vec<_>>());
    // Of each of the three owners of entries, one refused entry.
    assert_eq!(store.prune_audit(at(3), 100, 1).await.unwrap(), 2);
    let wanted = [11, 10, 9, 8, 7, 6, 4].map(at);
    assert_eq!(times().await, wanted, "of 3 and 9, and of 5 and 11, the older one is gone");
    assert_eq!(store.prune_audit(at(3), 2, 1).await.unwrap(), 1);
    assert_eq!(times().await, [11, 10, 9, 8, 7, 6].map(at));
    assert_eq!(store.prune_audit(at(3), 2, 1).await.unwrap(), 0);
}

suite! { $
    audit, conformance_audit:
    an_entry_with_the_same_identifier_replaces_the_one_before,
    entries_come_back_newest_first_after_a_restart,
    entries_go_by_age_and_the_oldest_of_a_tenant_with_too_many,
    every_filter_and_pair_of_filters_wants_what_it_says,
    pages_of_any_length_have_every_entry_once,
}
