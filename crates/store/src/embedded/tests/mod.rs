//! Tests of this backend only: pending identifiers, callers that go away, recovery.

mod lists;
mod unapplied;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use postrider_domain::time::Timestamp;

use crate::contract::{History, Intake, Upkeep};
use crate::embedded::{EmbeddedOptions, EmbeddedStore};
use crate::records::{Acceptance, Accepted};
use crate::samples;

const AT: Timestamp = Timestamp::from_unix_ms(1_794_735_000_000);

fn options() -> EmbeddedOptions {
    EmbeddedOptions { segment_bytes: 1 << 20, reserve_bytes: 1 << 16, ..EmbeddedOptions::default() }
}

fn acceptance(n: u64) -> Acceptance {
    let event = samples::event(&samples::acme(), &format!("e{n}"));
    Acceptance { id_given: true, ..samples::acceptance(event, AT, &[(n, 1)]) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_callers_with_the_same_event_get_one_new_and_duplicates() {
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
async fn caller_that_goes_away_during_an_append_blocks_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(directory.path(), options()).unwrap();
    let days = store.accept(vec![acceptance(1_000)]).await.unwrap();
    assert_eq!(days, [Accepted::New]);
    for n in 0..50u64 {
        {
            // Polled a few times and then dropped, somewhere in the middle of the append.
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
async fn opening_applies_records_that_are_only_in_the_journal() {
    let directory = tempfile::tempdir().unwrap();
    let (data, copy) = (directory.path().join("data"), directory.path().join("copy"));
    let store = EmbeddedStore::open(&data, options()).unwrap();
    // The applier is blocked, so the files are as a crash would leave them.
    let (go_on, wait) = std::sync::mpsc::channel::<()>();
    let (tell, standing) = tokio::sync::oneshot::channel();
    let still = Arc::clone(&store);
    let still = tokio::spawn(async move {
        let stand = move |_: &mut crate::embedded::Applier| {
            tell.send(()).unwrap();
            wait.recv().unwrap();
            Ok(())
        };
        still.run_in_applier(stand).await.unwrap();
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

/// An event that was accepted on day `n`, with an identifier that the application chose.
fn on_day(n: u64) -> Acceptance {
    let at = Timestamp::from_unix_ms(AT.as_unix_ms() + i64::try_from(n).unwrap() * 86_400_000);
    let event = samples::event(&samples::acme(), &format!("order-{n}"));
    Acceptance { id_given: true, ..samples::acceptance(event, at, &[(n, 1)]) }
}

#[tokio::test]
async fn chosen_identifier_is_found_on_any_day_and_a_new_one_reads_no_file() {
    const DAYS: u64 = 30;
    let directory = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(directory.path(), options()).unwrap();
    for n in 0..DAYS {
        assert_eq!(store.accept(vec![on_day(n)]).await.unwrap(), [Accepted::New]);
    }
    store.ledger(None).await.unwrap();
    let asked = |store: &EmbeddedStore, id: &str| {
        let guard = store.pool.read();
        guard.days_of(&samples::acme(), &id.parse().unwrap()).len()
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
    // After a crash: the Bloom filters are built again from the files.
    let copy = directory.path().join("copy");
    store.backup(&copy).await.unwrap();
    let crashed = EmbeddedStore::open(&copy, options()).unwrap();
    check(&crashed, usize::try_from(DAYS).unwrap()).await;
    crashed.verify().await.unwrap();
    drop(crashed);
    store.close().await.unwrap();
    // After an orderly close: the saved Bloom filters stay valid until the next indexed event of
    // their day.
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

/// Events of one millisecond, of which three in four have identifiers with the same beginning: all
/// but the first of these are indexed.
fn alike(n: u64) -> Acceptance {
    let mut random = [0; 10];
    random[2..].copy_from_slice(&n.to_be_bytes());
    if n.is_multiple_of(4) {
        random[..2].copy_from_slice(&n.to_be_bytes()[6..]);
    }
    let mut made = acceptance(n);
    Arc::make_mut(&mut made.event).id = postrider_domain::ids::EventId::new(AT, random);
    let id = postrider_domain::ids::DeliveryId::new(AT, random);
    for delivery in &mut made.deliveries {
        delivery.id = id;
        delivery.event = made.event.id.clone();
    }
    Acceptance { id_given: false, ..made }
}

#[tokio::test]
async fn more_events_than_a_millisecond_has_room_for_are_listed_once_each() {
    // Written one by one, and in batches so large that one statement writes several rows.
    for together in [1, 300] {
        listed_once_each(together).await;
    }
}

async fn listed_once_each(together: usize) {
    let directory = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(directory.path(), options()).unwrap();
    let made: Vec<Acceptance> = (0..300).map(alike).collect();
    for batch in made.chunks(together) {
        store.accept(batch.to_vec()).await.unwrap();
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

#[tokio::test]
async fn pruning_uses_the_counts_of_a_day_or_counts_its_rows() {
    let directory = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(directory.path(), options()).unwrap();
    let all: Vec<Acceptance> = (0..40).map(on_day).collect();
    store.accept(all).await.unwrap();
    store.close().await.unwrap();
    // Remove the counts of the day, as in a file of an earlier version.
    let main = rusqlite::Connection::open(directory.path().join("main.db")).unwrap();
    let forget = "DELETE FROM days WHERE day = (SELECT min(day) FROM days)";
    assert_eq!(main.execute(forget, []).unwrap(), 1);
    drop(main);
    let store = EmbeddedStore::open(directory.path(), options()).unwrap();
    let more: Vec<Acceptance> =
        (0..40).map(|n| with_name(on_day(n), &format!("more-{n}"))).collect();
    store.accept(more).await.unwrap();
    store.verify().await.unwrap();
    let of = |day: i64| {
        let guard = store.pool.read();
        let first = crate::embedded::files::Day::of(AT).number();
        let day = guard.days().into_iter().find(|known| known.number() == first + day).unwrap();
        let said = guard.main(|connection, path| {
            let find = format!("{} WHERE day = ?1", crate::embedded::files::rows::DAYS);
            let make = crate::embedded::files::rows::day_of;
            crate::embedded::files::rows::one(connection, path, "days", &find, [day.number()], make)
        });
        let said = said.unwrap().map(|(_, counts)| counts);
        (said, crate::embedded::contract::upkeep::contents(&guard, day).unwrap())
    };
    let pruned = |events, deliveries| crate::records::Pruned { events, deliveries, attempts: 0 };
    assert_eq!(of(0), (Some([0, 1, 0, 0]), pruned(2, 1)), "what is said is not all");
    assert_eq!(of(1), (Some([1, 2, 1, 0]), pruned(2, 1)));
    store.close().await.unwrap();
}

/// The same event with another identifier and no deliveries.
fn with_name(mut acceptance: Acceptance, id: &str) -> Acceptance {
    Arc::make_mut(&mut acceptance.event).id = id.parse().unwrap();
    acceptance.deliveries.clear();
    acceptance
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_reads_at_once_open_a_file_a_bounded_number_of_times() {
    let directory = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(directory.path(), options()).unwrap();
    store.accept((0..20).map(acceptance).collect()).await.unwrap();
    // Only what is applied is read from a file.
    store.barrier().await.unwrap();
    let read = |n: u64| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            store.delivery(&samples::acme(), samples::delivery_id(n % 20)).await.unwrap().unwrap()
        })
    };
    let reads: Vec<_> = (0..500).map(read).collect();
    for read in reads {
        read.await.unwrap();
    }
    let history = directory.path().join("history").canonicalize().unwrap();
    let open = std::fs::read_dir("/proc/self/fd").unwrap().filter(|entry| {
        let target = entry.as_ref().ok().and_then(|entry| std::fs::read_link(entry.path()).ok());
        target.is_some_and(|path| {
            path.starts_with(&history) && path.extension().is_some_and(|e| e == "db")
        })
    });
    let open = open.count();
    assert!(
        (1..=crate::embedded::files::read_pool::POINTS_MAX + 1).contains(&open),
        "it is open {open} times"
    );
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
