//! Damage to the history of a killed store is found and named at the start, and only an operator
//! can accept the loss.
//!
//! A copy of the files of an open store is what a kill leaves. `HISTORY_DAMAGE=2000` in the
//! environment makes the first test longer.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use postrider_domain::event::{Event, RawJson};
use postrider_domain::ids::TenantId;
use postrider_domain::mixing::Sequence;
use postrider_domain::time::Timestamp;
use postrider_store::embedded::{EmbeddedOptions, EmbeddedStore};
use postrider_store::{
    Acceptance, Configuration, History, Intake, StoreError, Tenant, TenantDetails, Upkeep,
};
use postrider_store_testing::samples;

/// A way to damage a file.
type Harm = fn(&Path);

/// The days of the events, with the names of their files.
const DAYS: [(i64, &str); 2] =
    [(1_794_700_800_000, "2026-11-15.db"), (1_794_787_200_000, "2026-11-16.db")];
const EVENTS: u64 = 160;
const DAMAGES: u64 = 60;

fn options() -> EmbeddedOptions {
    EmbeddedOptions { segment_bytes: 1 << 20, reserve_bytes: 1 << 16, ..EmbeddedOptions::default() }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap()
}

fn payload(n: u64) -> RawJson {
    RawJson::from_trusted(format!("\"payload {n} {}\"", "y".repeat(700)).into())
}

/// Event `n`; the days alternate.
fn acceptance(n: u64) -> Acceptance {
    let at = Timestamp::from_unix_ms(DAYS[usize::try_from(n % 2).unwrap()].0 + 1_000);
    let event = Event {
        id: format!("e{n}").parse().unwrap(),
        tenant: TenantId::default_tenant(),
        kind: "task.updated".parse().unwrap(),
        object: None,
        data: payload(n),
        old: None,
        time: at,
        trace: None,
    };
    let deliveries = samples::acceptance(event.clone(), at, &[(n, 1)]).deliveries;
    let event = Arc::new(event);
    Acceptance {
        event,
        accepted_at: at,
        fingerprint: [1; 32],
        id_given: true,
        mark: postrider_domain::catalogue::EventMark::default(),
        deliveries,
    }
}

/// Fills a store and keeps it open: its files have rows in every table, many of them only in the
/// write-ahead logs.
async fn fill(data: &Path) -> Arc<EmbeddedStore> {
    let store = EmbeddedStore::open(data, options()).unwrap();
    let tenant = Tenant {
        id: TenantId::default_tenant(),
        name: None,
        created_at: Timestamp::from_unix_ms(DAYS[0].0),
        details: TenantDetails::default(),
    };
    store.create_tenant(&tenant).await.unwrap();
    let record = samples::subscription(&tenant.id, 1, 1);
    store.put_subscription(&record, &samples::destination(&tenant.id, 1)).await.unwrap();
    accept(&store, 0..EVENTS / 2).await;
    store.close().await.unwrap();
    let store = EmbeddedStore::open(data, options()).unwrap();
    accept(&store, EVENTS / 2..EVENTS).await;
    store
}

async fn accept(store: &EmbeddedStore, events: std::ops::Range<u64>) {
    for n in events {
        store.accept(vec![acceptance(n)]).await.unwrap();
        // The read waits until everything before it is in the files.
        store.ledger(None).await.unwrap();
    }
}

fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy_tree(&path, &target);
        } else {
            fs::copy(&path, &target).unwrap();
        }
    }
}

/// The events that can be read, each checked for its payload.
async fn events(store: &EmbeddedStore) -> Vec<u64> {
    let mut there = Vec::new();
    for n in 0..EVENTS {
        let id = format!("e{n}").parse().unwrap();
        if let Some(found) = store.event(&TenantId::default_tenant(), &id).await.unwrap() {
            assert_eq!(found.event.data, payload(n));
            there.push(n);
        }
    }
    there
}

/// Opens the store; returns how many events are missing.
async fn open_and_count(data: &Path) -> Result<usize, StoreError> {
    let store = EmbeddedStore::open(data, options())?;
    let gone = usize::try_from(EVENTS).unwrap() - events(&store).await.len();
    store.close().await?;
    Ok(gone)
}

/// Damages a file of the history in a way that `n` determines; returns the file and the kind of
/// damage.
fn damage(history: &Path, n: u64) -> (PathBuf, &'static str) {
    let mut random = Sequence::new(n);
    let day = DAYS[usize::try_from(n / 6 % 2).unwrap()].1;
    let (how, ending) = [
        ("flip in the log", "-wal"),
        ("cut of the log", "-wal"),
        ("flip in the file", ""),
        ("cut of the file", ""),
        ("log deleted", "-wal"),
        ("file deleted", ""),
    ][usize::try_from(n % 6).unwrap()];
    let path = history.join(format!("{day}{ending}"));
    let mut bytes = fs::read(&path).unwrap_or_default();
    let length = u64::try_from(bytes.len()).unwrap();
    if how.starts_with("flip") && length > 0 {
        for _ in 0..3 {
            let at = usize::try_from(random.below(length)).unwrap();
            bytes[at] ^= 1 << random.below(8);
        }
        fs::write(&path, bytes).unwrap();
    } else if how.starts_with("cut") && length > 0 {
        bytes.truncate(usize::try_from(random.below(length)).unwrap());
        fs::write(&path, bytes).unwrap();
    } else {
        drop(fs::remove_file(&path));
    }
    (history.join(day), how)
}

#[expect(clippy::disallowed_methods, reason = "the long form is asked for by the environment")]
fn damages() -> u64 {
    std::env::var("HISTORY_DAMAGE").ok().and_then(|n| n.parse().ok()).unwrap_or(DAMAGES)
}

#[test]
fn damaged_history_of_a_killed_store_is_refused_and_named_or_nothing_is_missing() {
    let directory = tempfile::tempdir().unwrap();
    let (data, killed) = (directory.path().join("data"), directory.path().join("killed"));
    let runtime = runtime();
    let store = runtime.block_on(fill(&data));
    copy_tree(&data, &killed);
    assert_eq!(runtime.block_on(open_and_count(&killed)).unwrap(), 0, "what a kill leaves opens");
    let mut became: BTreeMap<(&str, bool), u64> = BTreeMap::new();
    for n in 0..damages() {
        fs::remove_dir_all(&killed).unwrap();
        copy_tree(&data, &killed);
        let (file, how) = damage(&killed.join("history"), n);
        let refused = match runtime.block_on(open_and_count(&killed)) {
            Ok(gone) => {
                assert_eq!(gone, 0, "{how} {n}: {gone} events are gone without a word");
                false
            }
            Err(StoreError::Corrupt { place, what }) => {
                assert_eq!(place, file.display().to_string(), "{how} {n}: {what}");
                assert!(what.contains("postrider doctor --accept-loss history/"), "{what}");
                true
            }
            Err(other) => panic!("{how} {n}: {other:?}"),
        };
        *became.entry((how, refused)).or_default() += 1;
    }
    drop(store);
    let refused: u64 = became.iter().filter(|((_, is), _)| *is).map(|(_, n)| n).sum();
    println!(
        "history of a killed store: {} damaged, {refused} refused and named, the others whole, 0 events \
         gone without a word: {became:?}",
        damages()
    );
    assert!(refused >= damages() / 2);
}

#[test]
fn damage_in_days_that_are_not_read_at_the_start_is_found_by_readers_or_by_verify() {
    let directory = tempfile::tempdir().unwrap();
    let (data, killed) = (directory.path().join("data"), directory.path().join("killed"));
    let runtime = runtime();
    // Close the store, so that no write-ahead log hides the damage in a file.
    runtime.block_on(async { fill(&data).await.close().await.unwrap() });
    let unread = || EmbeddedOptions { check_bytes: 0, ..options() };
    let (mut at_start, mut by_readers, mut by_verify, mut harmless) = (0, 0, 0, 0);
    for n in (0..damages()).map(|n| n * 6 + 2) {
        copy_tree(&data, &killed);
        let (_, how) = damage(&killed.join("history"), n);
        assert_eq!(how, "flip in the file");
        let opened = EmbeddedStore::open(&killed, unread());
        let found = runtime.block_on(async {
            let Ok(store) = opened else { return [true, false, false] };
            let mut is_read = true;
            for n in 0..EVENTS {
                let id = format!("e{n}").parse().unwrap();
                match store.event(&TenantId::default_tenant(), &id).await {
                    Ok(Some(found)) => assert_eq!(found.event.data, payload(n)),
                    Ok(None) => {}
                    Err(StoreError::Corrupt { .. }) => is_read = false,
                    Err(other) => panic!("{n}: {other:?}"),
                }
            }
            let there = if is_read { events(&store).await.len() as u64 } else { 0 };
            let verified = store.verify().await.is_ok();
            assert!(!verified || there == EVENTS, "{n}: {there} events, and verify finds nothing");
            drop(store);
            [false, !is_read, !verified]
        });
        match found {
            [true, ..] => at_start += 1,
            [_, true, _] => by_readers += 1,
            [_, _, true] => by_verify += 1,
            _ => harmless += 1,
        }
        fs::remove_dir_all(&killed).unwrap();
    }
    assert!(by_readers + by_verify > 0, "no flip hit anything");
    println!(
        "history that is not read at the start: {} files with flips, {at_start} refused at the start, \
         {by_readers} named by readers, {by_verify} by verify only, {harmless} harmless, 0 wrong payloads",
        damages()
    );
}

#[test]
fn kill_between_the_files_of_days_and_main_is_not_taken_for_damage() {
    let directory = tempfile::tempdir().unwrap();
    let (data, killed) = (directory.path().join("data"), directory.path().join("killed"));
    let runtime = runtime();
    runtime.block_on(async {
        let store = EmbeddedStore::open(&data, options()).unwrap();
        accept(&store, 0..20).await;
        // `main.db` from before, all other files from after.
        fs::create_dir(&killed).unwrap();
        for name in ["main.db", "main.db-wal"] {
            fs::copy(data.join(name), killed.join(name)).unwrap();
        }
        accept(&store, 20..EVENTS).await;
        copy_tree(&data.join("journal"), &killed.join("journal"));
        copy_tree(&data.join("history"), &killed.join("history"));
        drop(store);
        let store = EmbeddedStore::open(&killed, options()).unwrap();
        assert_eq!(events(&store).await.len() as u64, EVENTS);
        store.verify().await.unwrap();
        store.close().await.unwrap();
        assert_eq!(open_and_count(&killed).await.unwrap(), 0);
    });
}

#[test]
fn loss_is_given_up_by_an_operator_and_the_ledger_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let (data, killed) = (directory.path().join("data"), directory.path().join("killed"));
    let runtime = runtime();
    let store = runtime.block_on(fill(&data));
    let now = Timestamp::from_unix_ms(DAYS[1].0 + 5_000);
    let day = DAYS[1].1;
    let half = usize::try_from(EVENTS / 2).unwrap();
    let cases: [(&str, Harm, bool); 3] = [
        ("file deleted", |path| fs::remove_file(path).unwrap(), false),
        ("log deleted", |path| fs::remove_file(path.with_extension("db-wal")).unwrap(), false),
        ("zeroes", |path| fs::write(path, vec![0; 40_000]).unwrap(), true),
    ];
    for (how, harm, is_moved) in cases {
        drop(fs::remove_dir_all(&killed));
        copy_tree(&data, &killed);
        if how == "zeroes" {
            // Without its write-ahead log, the file has only what was checkpointed.
            fs::remove_file(killed.join("history").join(day).with_extension("db-wal")).unwrap();
        }
        harm(&killed.join("history").join(day));
        runtime.block_on(async {
            assert!(open_and_count(&killed).await.is_err(), "{how}");
            let loss = EmbeddedStore::accept_loss(&killed, day, now).await.unwrap();
            assert_eq!(loss.aside.is_some(), is_moved, "{how}: {loss:?}");
            let store = EmbeddedStore::open(&killed, options()).unwrap();
            let there = events(&store).await;
            let lost = usize::try_from(EVENTS).unwrap() - there.len();
            let of_the_other = there.iter().filter(|n| **n % 2 == 0).count();
            assert_eq!(of_the_other, half, "{how}: the other day is whole");
            assert_eq!(loss.cancelled, lost as u64, "{how}");
            assert!(lost > 0 && lost <= half, "{how}: {lost}");
            let ledger = store.ledger(None).await.unwrap();
            assert!(ledger.balances() && ledger.cancelled == lost as u64, "{how}: {ledger:?}");
            assert_eq!(ledger.accepted, EVENTS);
            store.verify().await.unwrap();
            accept(&store, EVENTS..EVENTS + 3).await;
            store.close().await.unwrap();
            let again = EmbeddedStore::accept_loss(&killed, day, now).await.unwrap();
            assert_eq!((again.cancelled, again.unknown), (0, 0), "{how}: it can be repeated");
            let again =
                EmbeddedStore::accept_loss(&killed, "2001-01-01.db", now).await.unwrap_err();
            assert!(again.to_string().contains("knows of no such day"), "{again}");
            let again = EmbeddedStore::accept_loss(&killed, DAYS[0].1, now).await.unwrap_err();
            assert!(again.to_string().contains("nothing is missing in it"), "{again}");
            println!("loss given up, {how}: {lost} of {EVENTS} events gone, the ledger balances");
        });
    }
    drop(store);
}
