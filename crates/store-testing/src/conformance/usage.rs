//! Counts for quotas, and the removal of old replay jobs.

use postrider_domain::access::Scope;
use postrider_store::{Key, ReplayJob, ReplayState, Tenant, TenantDetails, Usage};

use super::Ground;
use crate::samples::{acme, at, replay, umbrella};

async fn a_tenants_use_is_counted_and_nobody_elses(ground: Ground) {
    let before = ground.store.usage(Some(&acme())).await.unwrap();
    assert_eq!(before, Usage::default());
    ground.put(&acme(), 1, 1).await;
    ground.put(&acme(), 2, 1).await;
    ground.put(&acme(), 3, 2).await;
    ground.put(&umbrella(), 4, 1).await;
    for (n, tenant) in [(1, Some(acme())), (2, Some(acme())), (3, Some(umbrella())), (4, None)] {
        let key = Key {
            id: format!("key{n}"),
            tenant,
            name: None,
            scopes: vec![Scope::Read],
            hash: [1; 32],
            created_at: at(n),
            expires_at: None,
            last_used_at: None,
        };
        assert!(ground.store.create_key(&key).await.unwrap());
    }
    ground.store.put_replay(&replay(&acme(), 1, at(1))).await.unwrap();
    let paused = ReplayJob { state: ReplayState::Paused, ..replay(&acme(), 2, at(2)) };
    ground.store.put_replay(&paused).await.unwrap();
    ground.store.put_replay(&replay(&umbrella(), 3, at(3))).await.unwrap();
    let expected = Usage { keys: 2, destinations: 2, replays: 2, replays_running: 1 };
    assert_eq!(ground.store.usage(Some(&acme())).await.unwrap(), expected);
    assert_eq!(ground.store.usage(None).await.unwrap().keys, 1, "the admin key");
    let tenants = ground.store.tenant_count().await.unwrap();
    let more = Tenant {
        id: "more".parse().unwrap(),
        name: None,
        created_at: at(1),
        details: TenantDetails::default(),
    };
    assert!(ground.store.create_tenant(&more).await.unwrap());
    assert_eq!(ground.store.tenant_count().await.unwrap(), tenants + 1);
}

async fn the_oldest_replays_that_have_ended_are_forgotten_first(ground: Ground) {
    let states = [
        ReplayState::Finished,
        ReplayState::Paused,
        ReplayState::Cancelled,
        ReplayState::Running,
        ReplayState::Finished,
        ReplayState::Finished,
    ];
    for (n, state) in (1..).zip(states) {
        let job = ReplayJob { state, ..replay(&acme(), n, at(n)) };
        ground.store.put_replay(&job).await.unwrap();
    }
    let other = ReplayJob { state: ReplayState::Finished, ..replay(&umbrella(), 9, at(9)) };
    ground.store.put_replay(&other).await.unwrap();
    assert_eq!(ground.store.forget_replays(&acme(), 2).await.unwrap(), 2);
    let page = postrider_store::PageRequest { limit: 10, cursor: None };
    let left = ground.store.replays(&acme(), &page).await.unwrap();
    let left: Vec<_> = left.items.iter().map(|job| job.created_at).collect();
    assert_eq!(left, [at(6), at(5), at(4), at(2)]);
    assert_eq!(ground.store.forget_replays(&acme(), 2).await.unwrap(), 0);
    assert_eq!(ground.store.replays(&umbrella(), &page).await.unwrap().items.len(), 1);
}

suite! { $ usage, conformance_usage:
    a_tenants_use_is_counted_and_nobody_elses,
    the_oldest_replays_that_have_ended_are_forgotten_first,
}
