//! What only this backend has: identifiers on their way, callers that go away, recovery.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use postrider_domain::time::Timestamp;

use super::{EmbeddedStore, Options};
use crate::conformance::samples;
use crate::contract::{History, Intake, Upkeep};
use crate::records::{Acceptance, Accepted};

const AT: Timestamp = Timestamp::from_unix_ms(1_794_735_000_000);

fn options() -> Options {
    Options { segment_bytes: 1 << 20, reserve_bytes: 1 << 16, ..Options::default() }
}

fn acceptance(n: u64) -> Acceptance {
    let event = samples::event(&samples::acme(), &format!("e{n}"));
    Acceptance { id_given: true, ..samples::acceptance(event, AT, &[(n, 1)]) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_who_bring_the_same_event_at_once_one_is_first() {
    let directory = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(directory.path(), options()).unwrap();
    for n in 0..50 {
        let bring = || {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.accept(vec![acceptance(n)]).await.unwrap() })
        };
        let tasks: Vec<_> = (0..8).map(|_| bring()).collect();
        let mut new = 0;
        for task in tasks {
            match task.await.unwrap()[..] {
                [Accepted::New] => new += 1,
                [Accepted::Duplicate { deliveries: 1 }] => {}
                ref other => panic!("{other:?}"),
            }
        }
        assert_eq!(new, 1, "event {n}");
    }
    let ledger = store.ledger(None).await.unwrap();
    assert_eq!((ledger.accepted, ledger.queued), (50, 50));
    store.close().await.unwrap();
}

#[tokio::test]
async fn whoever_goes_away_while_an_event_is_written_blocks_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(directory.path(), options()).unwrap();
    let days = store.accept(vec![acceptance(1_000)]).await.unwrap();
    assert_eq!(days, [Accepted::New]);
    for n in 0..50u64 {
        {
            // Polled so often, and then dropped: somewhere on the way.
            let mut gone =
                pin!(store.accept(vec![Acceptance { id_given: n % 2 == 0, ..acceptance(n) }]));
            let mut context = Context::from_waker(Waker::noop());
            for _ in 0..=n % 3 {
                if gone.as_mut().poll(&mut context).is_ready() {
                    break;
                }
            }
        }
        let again = store.accept(vec![acceptance(n)]).await.unwrap();
        assert_ne!(again, [Accepted::Conflict], "event {n}");
        let third = store.accept(vec![acceptance(n)]).await.unwrap();
        assert_eq!(third, [Accepted::Duplicate { deliveries: 1 }], "event {n}");
    }
    assert_eq!(store.ledger(None).await.unwrap().accepted, 51);
    store.verify().await.unwrap();
    store.close().await.unwrap();
}

#[tokio::test]
async fn what_the_journal_has_and_sqlite_has_not_is_applied_when_it_opens() {
    let directory = tempfile::tempdir().unwrap();
    let (data, copy) = (directory.path().join("data"), directory.path().join("copy"));
    let store = EmbeddedStore::open(&data, options()).unwrap();
    // The applier stands still, so the files are those that a crash would leave.
    let (go_on, wait) = std::sync::mpsc::channel::<()>();
    let (tell, standing) = tokio::sync::oneshot::channel();
    let still = Arc::clone(&store);
    let still = tokio::spawn(async move {
        let stand = move |_: &mut super::Applier| {
            tell.send(()).unwrap();
            wait.recv().unwrap();
            Ok(())
        };
        still.job(stand).await.unwrap();
    });
    standing.await.unwrap();
    for n in 0..20 {
        store.accept(vec![acceptance(n)]).await.unwrap();
    }
    copy_tree(&data, &copy);
    go_on.send(()).unwrap();
    still.await.unwrap();
    let crashed = EmbeddedStore::open(&copy, options()).unwrap();
    assert_eq!(crashed.ledger(None).await.unwrap().accepted, 20);
    let again = crashed.accept(vec![acceptance(7)]).await.unwrap();
    assert_eq!(again, [Accepted::Duplicate { deliveries: 1 }]);
    crashed.verify().await.unwrap();
    crashed.close().await.unwrap();
    store.close().await.unwrap();
}

/// An event that was accepted on a day, with an identifier that somebody chose.
fn on_day(n: u64) -> Acceptance {
    let at = Timestamp::from_unix_ms(AT.as_unix_ms() + i64::try_from(n).unwrap() * 86_400_000);
    let event = samples::event(&samples::acme(), &format!("order-{n}"));
    Acceptance { id_given: true, ..samples::acceptance(event, at, &[(n, 1)]) }
}

#[tokio::test]
async fn a_chosen_identifier_is_known_on_every_day_and_a_new_one_asks_no_file() {
    const DAYS: u64 = 30;
    let directory = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(directory.path(), options()).unwrap();
    for n in 0..DAYS {
        assert_eq!(store.accept(vec![on_day(n)]).await.unwrap(), [Accepted::New]);
    }
    store.ledger(None).await.unwrap();
    let asked = |store: &EmbeddedStore, id: &str| {
        let looking = store.pool.look();
        looking.days_of(&samples::acme(), &id.parse().unwrap()).len()
    };
    let check = async |store: &EmbeddedStore, at_most: usize| {
        for n in 0..DAYS {
            let again = store.accept(vec![on_day(n)]).await.unwrap();
            assert_eq!(again, [Accepted::Duplicate { deliveries: 1 }], "order-{n}");
            let other = Acceptance { fingerprint: [9; 32], ..on_day(n) };
            assert_eq!(store.accept(vec![other]).await.unwrap(), [Accepted::Conflict]);
            assert!((1..=at_most).contains(&asked(store, &format!("order-{n}"))), "order-{n}");
        }
        (0..100).map(|n| asked(store, &format!("new-{n}"))).sum::<usize>()
    };
    let wrong = check(&store, 3).await;
    assert!(wrong < 30, "{wrong} files are asked for 100 new identifiers on {DAYS} days");
    // As a crash leaves it: the sieves are made anew from the files.
    let copy = directory.path().join("copy");
    store.backup(&copy).await.unwrap();
    let crashed = EmbeddedStore::open(&copy, options()).unwrap();
    check(&crashed, usize::try_from(DAYS).unwrap()).await;
    crashed.verify().await.unwrap();
    drop(crashed);
    store.close().await.unwrap();
    // As closing leaves it: they are kept, until the next odd event of their day.
    for round in 0..3 {
        let store = EmbeddedStore::open(directory.path(), options()).unwrap();
        for n in 0..DAYS {
            let mut more = on_day(n);
            let id = format!("order-{n}-{round}").parse().unwrap();
            Arc::make_mut(&mut more.event).id = id;
            more.deliveries.clear();
            assert_eq!(store.accept(vec![more.clone()]).await.unwrap(), [Accepted::New]);
            store.ledger(None).await.unwrap();
            let again = store.accept(vec![more]).await.unwrap();
            assert_eq!(again, [Accepted::Duplicate { deliveries: 0 }]);
        }
        check(&store, usize::try_from(DAYS).unwrap()).await;
        store.verify().await.unwrap();
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn more_events_than_a_millisecond_has_room_for_are_listed_once_each() {
    let directory = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(directory.path(), options()).unwrap();
    // Identifiers that begin alike: all but the first of them are odd.
    let many: u64 = 300;
    for n in 0..many {
        let at = AT;
        let mut random = [0; 10];
        random[2..].copy_from_slice(&n.to_be_bytes());
        let mut made = acceptance(n);
        Arc::make_mut(&mut made.event).id = postrider_domain::ids::EventId::new(at, random);
        let id = postrider_domain::ids::DeliveryId::new(at, random);
        for delivery in &mut made.deliveries {
            delivery.id = id;
            delivery.event = made.event.id.clone();
        }
        store.accept(vec![Acceptance { id_given: false, ..made }]).await.unwrap();
    }
    let mut page = crate::records::PageRequest { limit: 7, cursor: None };
    let (mut events, mut deliveries) = (Vec::new(), Vec::new());
    loop {
        let found = store.list_events(&samples::acme(), &Default::default(), &page).await.unwrap();
        events.extend(found.items.iter().map(|record| record.event.id.clone()));
        page.cursor = found.next;
        if page.cursor.is_none() {
            break;
        }
    }
    loop {
        let all = Default::default();
        let found = store.list_deliveries(&samples::acme(), &all, &page).await.unwrap();
        deliveries.extend(found.items.iter().map(|delivery| delivery.id));
        page.cursor = found.next;
        if page.cursor.is_none() {
            break;
        }
    }
    assert_eq!((events.len(), deliveries.len()), (300, 300));
    assert!(events.is_sorted_by(|one, other| one > other));
    assert!(deliveries.is_sorted_by(|one, other| one > other));
    for id in &events {
        assert!(store.event(&samples::acme(), id).await.unwrap().is_some(), "{id}");
    }
    for id in deliveries {
        assert!(store.delivery(&samples::acme(), id).await.unwrap().is_some(), "{id}");
    }
    store.verify().await.unwrap();
    store.close().await.unwrap();
}

fn copy_tree(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy_tree(&path, &target);
        } else {
            std::fs::copy(&path, &target).unwrap();
        }
    }
}
