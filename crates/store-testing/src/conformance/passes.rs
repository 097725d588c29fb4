//! Passes: used once, within limits, listed by tenant, and removed when their time is over.

use postrider_domain::ids::TenantId;
use postrider_store::{
    Cursor, PageRequest, Pass, PassKind, PassLimits, PassPut, StoreError, Tenant, TenantDetails,
};

use super::Ground;
use super::ground::ALL;
use crate::samples::{acme, at, umbrella};

const MANY: PassLimits = PassLimits { of_owner: 100, in_total: 100 };

fn pass(id: &str, kind: PassKind, owner: &str, tenant: Option<TenantId>, n: u64) -> Pass {
    Pass {
        id: id.to_owned(),
        kind,
        owner: owner.to_owned(),
        tenant,
        created_at: at(n),
        expires_at: at(n + 1_000),
        used_at: None,
        body: vec![0, 255, u8::try_from(n % 256).unwrap()],
    }
}

async fn pass_comes_back_as_it_was_after_a_restart(mut ground: Ground) {
    for (n, kind) in (0..).zip(PassKind::ALL) {
        let tenant = Some(acme()).filter(|_| n % 2 == 0);
        let pass = pass(&format!("p{n}"), kind, "owner", tenant, n);
        assert_eq!(ground.store.put_pass(&pass, MANY).await.unwrap(), PassPut::Stored);
        ground.reopen().await;
        assert_eq!(ground.store.pass(&pass.id).await.unwrap(), Some(pass));
    }
    assert_eq!(ground.store.pass("p9").await.unwrap(), None);
    assert_eq!(ground.store.pass("p\0").await.unwrap(), None);
}

async fn pass_with_a_known_identifier_only_prolongs_the_one_that_is_there(ground: Ground) {
    let first = pass("p", PassKind::Logo, "a", Some(acme()), 5);
    let second = pass("p", PassKind::Session, "b", None, 9);
    for one in [&first, &second, &first] {
        ground.store.put_pass(one, MANY).await.unwrap();
    }
    let kept = Pass { expires_at: second.expires_at, ..first };
    assert_eq!(ground.store.pass("p").await.unwrap(), Some(kept));
}

async fn pass_is_used_once_and_kept_until_then(mut ground: Ground) {
    let link = pass("p", PassKind::PortalLink, "acme", Some(acme()), 1);
    ground.store.put_pass(&link, MANY).await.unwrap();
    assert!(ground.store.use_pass("p", at(7), at(9_000)).await.unwrap());
    assert!(!ground.store.use_pass("p", at(8), at(9_999)).await.unwrap());
    assert!(!ground.store.use_pass("q", at(8), at(9_999)).await.unwrap());
    ground.reopen().await;
    let used = Pass { used_at: Some(at(7)), expires_at: at(9_000), ..link };
    assert_eq!(ground.store.pass("p").await.unwrap(), Some(used));
    let short = pass("r", PassKind::PortalLink, "acme", Some(acme()), 1);
    ground.store.put_pass(&short, MANY).await.unwrap();
    assert!(ground.store.use_pass("r", at(2), at(3)).await.unwrap());
    let found = ground.store.pass("r").await.unwrap().unwrap();
    assert_eq!(found.expires_at, short.expires_at, "never shortened");
}

async fn two_who_use_a_pass_at_the_same_time_are_one(ground: Ground) {
    let link = pass("p", PassKind::SignInLink, "k", None, 1);
    ground.store.put_pass(&link, MANY).await.unwrap();
    let (a, b, c) = tokio::join!(
        ground.store.use_pass("p", at(2), at(2)),
        ground.store.use_pass("p", at(3), at(3)),
        ground.store.use_pass("p", at(4), at(4)),
    );
    let used = [a, b, c].into_iter().filter(|used| *used.as_ref().unwrap()).count();
    assert_eq!(used, 1);
}

async fn oldest_pass_of_an_owner_gives_way_and_the_total_refuses(ground: Ground) {
    let store = &ground.store;
    let limits = PassLimits { of_owner: 2, in_total: 4 };
    let put = async |id: &str, kind, owner: &str, n| {
        store.put_pass(&pass(id, kind, owner, None, n), limits).await.unwrap()
    };
    for (n, id) in (0..).zip(["a1", "a2", "a3"]) {
        assert_eq!(put(id, PassKind::Session, "a", n).await, PassPut::Stored);
    }
    assert_eq!(store.pass("a1").await.unwrap(), None, "the oldest gave way");
    assert!(store.pass("a2").await.unwrap().is_some());
    assert_eq!(put("b1", PassKind::Session, "b", 9).await, PassPut::Stored);
    assert_eq!(put("c1", PassKind::Session, "c", 9).await, PassPut::Stored);
    assert_eq!(put("b2", PassKind::Session, "b", 9).await, PassPut::Full);
    assert_eq!(store.pass("b2").await.unwrap(), None);
    assert_eq!(put("a4", PassKind::Session, "a", 10).await, PassPut::Stored, "a2 makes room");
    assert_eq!(put("b2", PassKind::Logo, "b", 9).await, PassPut::Stored, "each kind by itself");
    assert!(store.delete_pass("c1").await.unwrap() && !store.delete_pass("c1").await.unwrap());
    assert_eq!(put("c2", PassKind::Session, "c", 9).await, PassPut::Stored);
}

async fn passes_of_a_tenant_and_kind_are_listed_newest_first(ground: Ground) {
    let store = &ground.store;
    for n in 0..6 {
        let tenant = if n % 2 == 0 { acme() } else { umbrella() };
        // Two have the same time.
        let link = pass(&format!("p{n}"), PassKind::PortalLink, "o", Some(tenant), n / 3);
        store.put_pass(&link, MANY).await.unwrap();
    }
    store.put_pass(&pass("s", PassKind::Session, "o", Some(acme()), 9), MANY).await.unwrap();
    for limit in [1, 2, 3, 4] {
        let (mut found, mut cursor) = (Vec::new(), None);
        loop {
            let request = PageRequest { limit, cursor };
            let page = store.passes(&acme(), PassKind::PortalLink, &request).await.unwrap();
            found.extend(page.items.into_iter().map(|pass| pass.id));
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(found, ["p4", "p2", "p0"], "{limit} on a page");
    }
    let nonsense = PageRequest { limit: 1, cursor: Some(Cursor("nonsense".into())) };
    let refused = store.passes(&acme(), PassKind::PortalLink, &nonsense).await;
    assert!(matches!(refused, Err(StoreError::UnknownCursor)), "{refused:?}");
}

async fn passes_go_when_they_have_expired(ground: Ground) {
    let store = &ground.store;
    for n in 0..4 {
        let session = pass(&format!("p{n}"), PassKind::Session, "o", None, n);
        store.put_pass(&session, MANY).await.unwrap();
    }
    assert_eq!(store.prune_passes(at(1_002)).await.unwrap(), 2);
    assert!(store.pass("p1").await.unwrap().is_none() && store.pass("p2").await.unwrap().is_some());
    assert_eq!(store.prune_passes(at(1_002)).await.unwrap(), 0);
}

async fn passes_of_a_deleted_tenant_are_removed_with_it(ground: Ground) {
    let store = &ground.store;
    let tenant =
        Tenant { id: acme(), name: None, created_at: at(0), details: TenantDetails::default() };
    store.create_tenant(&tenant).await.unwrap();
    for (id, tenant) in [("a", Some(acme())), ("u", Some(umbrella())), ("n", None)] {
        store.put_pass(&pass(id, PassKind::PortalLink, "o", tenant, 1), MANY).await.unwrap();
    }
    assert!(store.delete_tenant(&acme()).await.unwrap());
    assert!(store.pass("a").await.unwrap().is_none());
    assert!(store.pass("u").await.unwrap().is_some() && store.pass("n").await.unwrap().is_some());
    let left = store.passes(&acme(), PassKind::PortalLink, &ALL).await.unwrap();
    assert!(left.items.is_empty());
}

suite! { $
    passes, conformance_passes:
    oldest_pass_of_an_owner_gives_way_and_the_total_refuses,
    pass_comes_back_as_it_was_after_a_restart,
    pass_is_used_once_and_kept_until_then,
    pass_with_a_known_identifier_only_prolongs_the_one_that_is_there,
    passes_go_when_they_have_expired,
    passes_of_a_deleted_tenant_are_removed_with_it,
    passes_of_a_tenant_and_kind_are_listed_newest_first,
    two_who_use_a_pass_at_the_same_time_are_one,
}
