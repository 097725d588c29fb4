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
