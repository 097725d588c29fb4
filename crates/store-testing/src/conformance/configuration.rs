//! Tenants, keys and stored answers.

use std::sync::Arc;

use postrider_domain::ids::TenantId;
use postrider_domain::time::Timestamp;
use postrider_store::{IdempotentAnswer, Key, StoreError, Tenant};

use super::Ground;
use super::ground::ALL;
use crate::samples::{acme, answer, at, key, subscription_id, tenant, umbrella};

async fn a_tenant_is_created_once_and_keeps_its_first_name(ground: Ground) {
    let first = tenant("acme", at(1));
    let second = Tenant { name: None, ..tenant("acme", at(2)) };
    assert!(ground.store.create_tenant(&first).await.unwrap());
    assert!(!ground.store.create_tenant(&second).await.unwrap());
    assert_eq!(ground.store.tenant(&acme()).await.unwrap(), Some(first));
    assert_eq!(ground.store.tenant(&umbrella()).await.unwrap(), None);
}

async fn a_tenant_is_there_after_a_restart(mut ground: Ground) {
    let nameless = Tenant { name: None, ..tenant("umbrella", at(2)) };
    ground.store.create_tenant(&tenant("acme", at(1))).await.unwrap();
    ground.store.create_tenant(&nameless).await.unwrap();
    ground.reopen().await;
    let page = ground.store.tenants(&ALL).await.unwrap();
    assert_eq!(page.items, [tenant("acme", at(1)), nameless]);
}

async fn a_deleted_tenant_takes_its_keys_along_and_no_others(ground: Ground) {
    let store = &ground.store;
    for name in ["acme", "umbrella"] {
        store.create_tenant(&tenant(name, at(1))).await.unwrap();
    }
    let admin = key("admin", None, at(1));
    let other = key("other", Some(&umbrella()), at(1));
    for key in [&key("one", Some(&acme()), at(1)), &admin, &other] {
        store.create_key(key).await.unwrap();
    }
    assert!(store.delete_tenant(&acme()).await.unwrap());
    assert_eq!(store.tenant(&acme()).await.unwrap(), None);
    assert_eq!(store.key("one").await.unwrap(), None);
    assert_eq!(store.key("admin").await.unwrap(), Some(admin));
    assert_eq!(store.key("other").await.unwrap(), Some(other));
    assert!(store.tenant(&umbrella()).await.unwrap().is_some());
    assert!(!store.delete_tenant(&acme()).await.unwrap(), "it is gone");
    assert!(store.create_tenant(&tenant("acme", at(9))).await.unwrap(), "and can come back");
    assert_eq!(store.keys(Some(&acme()), &ALL).await.unwrap().items, []);
}

async fn a_tenant_is_not_deleted_before_its_subscriptions_are_gone(ground: Ground) {
    let store = &ground.store;
    store.create_tenant(&tenant("acme", at(1))).await.unwrap();
    store.create_key(&key("one", Some(&acme()), at(1))).await.unwrap();
    ground.put(&acme(), 1, 1).await;
    let refused = store.delete_tenant(&acme()).await;
    assert!(matches!(refused, Err(StoreError::Internal(_))), "{refused:?}");
    assert!(store.mark_subscription_deleted(&acme(), subscription_id(1), at(2)).await.unwrap());
    let refused = store.delete_tenant(&acme()).await;
    assert!(matches!(refused, Err(StoreError::Internal(_))), "marked is not gone: {refused:?}");
    assert!(store.tenant(&acme()).await.unwrap().is_some());
    assert!(store.key("one").await.unwrap().is_some(), "nothing was removed");
    store.remove_subscription(&acme(), subscription_id(1)).await.unwrap();
    assert!(store.delete_tenant(&acme()).await.unwrap());
}

async fn a_key_is_read_back_as_it_was_whosesoever_it_is(mut ground: Ground) {
    let full = Key { last_used_at: Some(at(5)), ..key("full", Some(&acme()), at(1)) };
    let bare = Key {
        name: None,
        scopes: Vec::new(),
        hash: [0; 32],
        expires_at: None,
        ..key("bare", None, at(2))
    };
    for key in [&full, &bare] {
        assert!(ground.store.create_key(key).await.unwrap());
    }
    ground.reopen().await;
    assert_eq!(ground.store.key("full").await.unwrap(), Some(full));
    assert_eq!(ground.store.key("bare").await.unwrap(), Some(bare));
    assert_eq!(ground.store.key("none").await.unwrap(), None);
}

async fn an_identifier_of_a_key_is_taken_for_every_tenant(ground: Ground) {
    let first = key("one", Some(&acme()), at(1));
    assert!(ground.store.create_key(&first).await.unwrap());
    for other in [Some(acme()), Some(umbrella()), None] {
        assert!(!ground.store.create_key(&key("one", other.as_ref(), at(2))).await.unwrap());
    }
    assert_eq!(ground.store.key("one").await.unwrap(), Some(first));
}

async fn keys_are_listed_by_whose_they_are(ground: Ground) {
    let store = &ground.store;
    let theirs = [key("a", Some(&acme()), at(1)), key("b", Some(&acme()), at(2))];
    let admin = key("c", None, at(3));
    for key in theirs.iter().chain([&admin]) {
        store.create_key(key).await.unwrap();
    }
    let [older, newer] = theirs;
    assert_eq!(store.keys(Some(&acme()), &ALL).await.unwrap().items, [newer, older]);
    assert_eq!(store.keys(None, &ALL).await.unwrap().items, [admin]);
    assert_eq!(store.keys(Some(&umbrella()), &ALL).await.unwrap().items, []);
}

async fn a_key_is_deleted_by_its_owner_alone(ground: Ground) {
    let store = &ground.store;
    store.create_key(&key("a", Some(&acme()), at(1))).await.unwrap();
    store.create_key(&key("admin", None, at(1))).await.unwrap();
    assert!(!store.delete_key(Some(&umbrella()), "a").await.unwrap());
    assert!(!store.delete_key(None, "a").await.unwrap());
    assert!(!store.delete_key(Some(&acme()), "admin").await.unwrap());
    assert!(store.key("a").await.unwrap().is_some());
    assert!(store.delete_key(Some(&acme()), "a").await.unwrap());
    assert!(!store.delete_key(Some(&acme()), "a").await.unwrap(), "it is gone");
    assert!(store.delete_key(None, "admin").await.unwrap());
    assert_eq!(store.key("a").await.unwrap(), None);
    assert_eq!(store.key("admin").await.unwrap(), None);
}

async fn the_last_use_of_a_key_never_moves_back(ground: Ground) {
    let store = &ground.store;
    store.create_key(&key("a", Some(&acme()), at(1))).await.unwrap();
    store.create_key(&key("b", None, at(1))).await.unwrap();
    let used = [("a".to_owned(), at(50)), ("missing".to_owned(), at(60))];
    store.touch_keys(&used).await.unwrap();
    store.touch_keys(&[("a".to_owned(), at(40))]).await.unwrap();
    store.touch_keys(&[]).await.unwrap();
    assert_eq!(store.key("a").await.unwrap().unwrap().last_used_at, Some(at(50)));
    assert_eq!(store.key("b").await.unwrap().unwrap().last_used_at, None);
    assert_eq!(store.key("missing").await.unwrap(), None);
}

async fn the_first_answer_for_a_key_stays(mut ground: Ground) {
    let (first, second) = (answer(1, at(1)), answer(2, at(2)));
    let kept =
        ground.store.keep_idempotent_answer(&acme(), "k", &first, Timestamp::EPOCH).await.unwrap();
    assert_eq!(kept, first);
    let kept =
        ground.store.keep_idempotent_answer(&acme(), "k", &second, Timestamp::EPOCH).await.unwrap();
    assert_eq!(kept, first, "an earlier one stays, and is what is returned");
    ground.reopen().await;
    let found = ground.store.idempotent_answer(&acme(), "k").await.unwrap();
    assert_eq!(found, Some(first));
    assert_eq!(ground.store.idempotent_answer(&acme(), "other").await.unwrap(), None);
}

async fn an_answer_takes_the_place_of_the_note_that_its_request_has_begun(mut ground: Ground) {
    let begun = |n, ms| IdempotentAnswer { status: IdempotentAnswer::BEGUN, ..answer(n, at(ms)) };
    let keep = async |ground: &Ground, kept: IdempotentAnswer| {
        ground.store.keep_idempotent_answer(&acme(), "k", &kept, at(1)).await.unwrap()
    };
    assert_eq!(keep(&ground, begun(1, 1)).await, begun(1, 1));
    ground.reopen().await;
    assert_eq!(keep(&ground, begun(2, 2)).await, begun(1, 1), "the first one stays");
    assert_eq!(keep(&ground, answer(3, at(3))).await, answer(3, at(3)));
    assert_eq!(keep(&ground, begun(4, 4)).await, answer(3, at(3)), "and so does its answer");
    let found = ground.store.idempotent_answer(&acme(), "k").await.unwrap();
    assert_eq!(found, Some(answer(3, at(3))));
}

async fn an_answer_that_is_too_old_gives_way(ground: Ground) {
    let keep = async |kept: IdempotentAnswer, since| {
        ground.store.keep_idempotent_answer(&acme(), "k", &kept, at(since)).await.unwrap()
    };
    assert_eq!(keep(answer(1, at(10)), 0).await, answer(1, at(10)));
    assert_eq!(keep(answer(2, at(20)), 10).await, answer(1, at(10)), "not older than that");
    assert_eq!(keep(answer(2, at(20)), 11).await, answer(2, at(20)));
    let found = ground.store.idempotent_answer(&acme(), "k").await.unwrap();
    assert_eq!(found, Some(answer(2, at(20))));
}

async fn many_answers_at_once_are_kept_each_for_itself(ground: Ground) {
    let keep = |n: u8| {
        let store = Arc::clone(&ground.store);
        async move {
            let (key, kept) = (format!("k{}", n / 2), answer(n, at(1)));
            store.keep_idempotent_answer(&acme(), &key, &kept, Timestamp::EPOCH).await.unwrap()
        }
    };
    let kept = super::ground::together((0..100).map(keep).collect()).await;
    for (n, pair) in kept.chunks(2).enumerate() {
        assert_eq!(pair[0], pair[1], "two with the same key have one answer");
        let found = ground.store.idempotent_answer(&acme(), &format!("k{n}")).await.unwrap();
        assert_eq!(found.as_ref(), Some(&pair[0]));
    }
}

async fn answers_are_forgotten_by_age_and_the_oldest_of_a_tenant_with_too_many(ground: Ground) {
    let store = &ground.store;
    let size = u64::try_from(answer(1, at(0)).body.len()).unwrap();
    for (tenant, most) in [(acme(), 6u8), (umbrella(), 2)] {
        for n in 0..most {
            let (key, kept) = (format!("k{n}"), answer(1, at(u64::from(n) * 10)));
            let since = Timestamp::EPOCH;
            store.keep_idempotent_answer(&tenant, &key, &kept, since).await.unwrap();
        }
    }
    let left = async |tenant: TenantId| {
        let mut left = Vec::new();
        for n in 0..6 {
            let found = store.idempotent_answer(&tenant, &format!("k{n}")).await.unwrap();
            left.extend(found.map(|_| n));
        }
        left
    };
    assert_eq!(store.forget_answers(at(10), 100, u64::MAX).await.unwrap(), 2, "one of each");
    assert_eq!((left(acme()).await, left(umbrella()).await), (vec![1, 2, 3, 4, 5], vec![1]));
    assert_eq!(store.forget_answers(at(10), 3, u64::MAX).await.unwrap(), 2);
    assert_eq!((left(acme()).await, left(umbrella()).await), (vec![3, 4, 5], vec![1]));
    assert_eq!(store.forget_answers(at(10), 3, 2 * size).await.unwrap(), 1);
    assert_eq!((left(acme()).await, left(umbrella()).await), (vec![4, 5], vec![1]));
    assert_eq!(store.forget_answers(at(10), 3, 2 * size).await.unwrap(), 0);
}

async fn an_answer_is_kept_for_each_tenant_alone(ground: Ground) {
    let store = &ground.store;
    let (ours, theirs) = (answer(1, at(1)), answer(2, at(2)));
    store.keep_idempotent_answer(&acme(), "k", &ours, Timestamp::EPOCH).await.unwrap();
    assert_eq!(store.idempotent_answer(&umbrella(), "k").await.unwrap(), None);
    let kept =
        store.keep_idempotent_answer(&umbrella(), "k", &theirs, Timestamp::EPOCH).await.unwrap();
    assert_eq!(kept, theirs);
    assert_eq!(store.idempotent_answer(&acme(), "k").await.unwrap(), Some(ours));
}

suite! { $ configuration, conformance_configuration:
    a_tenant_is_created_once_and_keeps_its_first_name,
    a_tenant_is_there_after_a_restart,
    a_deleted_tenant_takes_its_keys_along_and_no_others,
    a_tenant_is_not_deleted_before_its_subscriptions_are_gone,
    a_key_is_read_back_as_it_was_whosesoever_it_is,
    an_identifier_of_a_key_is_taken_for_every_tenant,
    keys_are_listed_by_whose_they_are,
    a_key_is_deleted_by_its_owner_alone,
    the_last_use_of_a_key_never_moves_back,
    an_answer_takes_the_place_of_the_note_that_its_request_has_begun,
    an_answer_that_is_too_old_gives_way,
    answers_are_forgotten_by_age_and_the_oldest_of_a_tenant_with_too_many,
    many_answers_at_once_are_kept_each_for_itself,
    the_first_answer_for_a_key_stays,
    an_answer_is_kept_for_each_tenant_alone,
}
