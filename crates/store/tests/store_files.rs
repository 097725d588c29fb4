//! The files are not as they should be: damaged, in use, read-only, of a newer version, or missing.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use postrider_domain::delivery::{Delivery, DeliveryState, StateName};
use postrider_domain::event::{Event, RawJson};
use postrider_domain::ids::TenantId;
use postrider_domain::retry::{ScheduleClock, Slot};
use postrider_domain::time::Timestamp;
use postrider_store::embedded::{EmbeddedOptions, EmbeddedStore};
use postrider_store::{
    Acceptance, Commit, Configuration, DeliveryChange, History, Intake, StoreError, Tenant,
    TenantDetails, Upkeep, Work,
};
use postrider_store_testing::samples;

const EVENTS: u64 = 300;
const AT: Timestamp = Timestamp::from_unix_ms(1_794_735_000_000);

fn options() -> EmbeddedOptions {
    EmbeddedOptions { segment_bytes: 1 << 20, reserve_bytes: 1 << 16, ..EmbeddedOptions::default() }
}

fn payload(n: u64) -> RawJson {
    RawJson::from_trusted(format!("\"payload {n} {}\"", "y".repeat(500)).into())
}

fn acceptance(n: u64) -> Acceptance {
    let event = Arc::new(Event {
        id: format!("e{n}").parse().unwrap(),
        tenant: TenantId::default_tenant(),
        kind: "task.updated".parse().unwrap(),
        object: None,
        data: payload(n),
        old: None,
        time: AT,
        trace: None,
    });
    let deliveries = samples::acceptance((*event).clone(), AT, &[(n, 1)]).deliveries;
    Acceptance {
        event,
        accepted_at: AT,
        fingerprint: [1; 32],
        id_given: true,
        mark: postrider_domain::catalogue::EventMark::default(),
        deliveries,
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap()
}

/// Creates a closed store with rows in every table.
fn closed_store(data: &Path) {
    runtime().block_on(async {
        let store = EmbeddedStore::open(data, options()).unwrap();
        let tenant = Tenant {
            id: TenantId::default_tenant(),
            name: None,
            created_at: AT,
            details: TenantDetails::default(),
        };
        assert!(store.create_tenant(&tenant).await.unwrap());
        let (record, to) =
            (samples::subscription(&tenant.id, 1, 1), samples::destination(&tenant.id, 1));
        store.put_subscription(&record, &to).await.unwrap();
        for n in 0..EVENTS {
            store.accept(vec![acceptance(n)]).await.unwrap();
        }
        store.verify().await.unwrap();
        store.close().await.unwrap();
    });
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

fn files(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found
}

/// Opens, verifies and reads everything; returns the first error.
async fn open_and_read(data: &Path) -> Result<(), StoreError> {
    let store = EmbeddedStore::open(data, options())?;
    let outcome = async {
        store.verify().await?;
        for n in 0..EVENTS {
            let id = format!("e{n}").parse().unwrap();
            let event = store.event(&TenantId::default_tenant(), &id).await?;
            let event = event.unwrap_or_else(|| panic!("event {n} is gone without a word"));
            assert_eq!(event.event.data, payload(n), "a wrong payload was given out");
        }
        Ok(())
    };
    let outcome = outcome.await;
    drop(store);
    outcome
}

/// Checks that an error names the file, or at least its directory.
fn assert_named(error: &StoreError, file: &Path) {
    let StoreError::Corrupt { place, .. } = error else {
        panic!("{}: {error:?}", file.display());
    };
    let directory = file.parent().unwrap().display().to_string();
    assert!(place.starts_with(&directory), "{place} for {}", file.display());
}

#[test]
fn flipped_bits_and_cut_files_are_noticed_and_named() {
    let directory = tempfile::tempdir().unwrap();
    let whole = directory.path().join("whole");
    closed_store(&whole);
    let runtime = runtime();
    let (mut flips, mut cuts, mut noticed, mut harmless) = (0, 0, 0, 0);
    for file in files(&whole) {
        let name = file.strip_prefix(&whole).unwrap().to_owned();
        let length = fs::metadata(&file).unwrap().len();
        if length == 0 || name == Path::new("reserve") {
            continue;
        }
        let is_database = name.extension().is_some_and(|extension| extension == "db");
        let samples = if is_database { 60 } else { 12 };
        for sample in 0..samples {
            let damaged = directory.path().join("damaged");
            copy_tree(&whole, &damaged);
            let path = damaged.join(&name);
            let at = usize::try_from(length * sample / samples + sample % 97).unwrap();
            let mut bytes = fs::read(&path).unwrap();
            if sample % 10 == 9 && is_database {
                cuts += 1;
                bytes.truncate(at);
            } else {
                flips += 1;
                let at = at.min(bytes.len() - 1);
                bytes[at] ^= 1 << (sample % 8);
            }
            fs::write(&path, bytes).unwrap();
            match runtime.block_on(open_and_read(&damaged)) {
                Ok(()) => harmless += 1,
                Err(error) => {
                    noticed += 1;
                    assert_named(&error, &path);
                }
            }
            fs::remove_dir_all(&damaged).unwrap();
        }
    }
    println!(
        "bit rot: {flips} flipped bits and {cuts} cut files, {noticed} noticed and named, \
         {harmless} in places without meaning, 0 wrong payloads"
    );
    assert!(noticed > 40, "{noticed}");
}

#[test]
fn damaged_counter_is_reported_with_its_table() {
    let directory = tempfile::tempdir().unwrap();
    let whole = directory.path().join("whole");
    closed_store(&whole);
    let runtime = runtime();
    runtime.block_on(async {
        // One delivery waits, so that every counter has a row.
        let store = EmbeddedStore::open(&whole, options()).unwrap();
        let delivery = acceptance(0).deliveries.remove(0);
        let slot = Slot::new(1, AT, ScheduleClock::starting_at(AT));
        let waiting = Delivery { state: DeliveryState::Waiting(slot), ..delivery };
        let change = DeliveryChange {
            before: StateName::Queued,
            by_job: None,
            delivery: waiting,
            attempt: None,
        };
        let commit = Commit { deliveries: vec![change], ..Commit::default() };
        let leases = store.hold_shards().await.unwrap();
        store.settle(&leases, commit).await.unwrap();
        store.close().await.unwrap();
    });
    for (table, change) in [
        ("ledger", "UPDATE ledger SET delivered = delivered + 1, accepted = accepted + 1"),
        ("ledger", "UPDATE ledger SET tenant = 'somebody'"),
        ("tallies", "UPDATE tallies SET accepted = accepted + 1"),
        ("tallies", "UPDATE tallies SET minute = minute + 1"),
        ("backlog", "UPDATE backlog SET waiting = waiting + 1"),
        ("days", "UPDATE days SET attempts = attempts + 1"),
        ("days", "UPDATE days SET whole = 1 - whole"),
        ("meta", "UPDATE meta SET value = value + 1 WHERE key = 'applied'"),
        ("meta", "UPDATE meta SET value = zeroblob(16) WHERE key = 'store_id'"),
        ("meta", "UPDATE meta SET value = 0 WHERE key = 'has_journal'"),
    ] {
        let damaged = directory.path().join("damaged");
        copy_tree(&whole, &damaged);
        let connection = rusqlite::Connection::open(damaged.join("main.db")).unwrap();
        assert!(connection.execute(change, []).unwrap() > 0, "{change}");
        drop(connection);
        let error = runtime.block_on(open_and_read(&damaged)).unwrap_err();
        assert_named(&error, &damaged.join("main.db"));
        assert!(error.to_string().contains(&format!("table {table}, row ")), "{change}: {error}");
        fs::remove_dir_all(&damaged).unwrap();
    }
}

#[test]
fn second_process_is_refused_because_the_directory_is_in_use() {
    let directory = tempfile::tempdir().unwrap();
    let first = EmbeddedStore::open(directory.path(), options()).unwrap();
    let error = EmbeddedStore::open(directory.path(), options()).unwrap_err();
    assert!(matches!(error, StoreError::Locked { .. }), "{error}");
    drop(first);
    EmbeddedStore::open(directory.path(), options()).unwrap();
}

#[test]
fn a_newer_file_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    closed_store(directory.path());
    let day = files(&directory.path().join("history")).remove(0);
    for path in [directory.path().join("main.db"), day] {
        let bytes = fs::read(&path).unwrap();
        let mut newer = bytes.clone();
        newer[60..64].copy_from_slice(&77u32.to_be_bytes());
        fs::write(&path, &newer).unwrap();
        let error = runtime().block_on(open_and_accept(directory.path())).unwrap_err();
        let StoreError::NewerVersion { found, place, .. } = error else { panic!("{error:?}") };
        assert_eq!((found, place), (77, path.display().to_string()));
        fs::write(&path, &bytes).unwrap();
    }
    runtime().block_on(open_and_read(directory.path())).unwrap();
}

async fn open_and_accept(data: &Path) -> Result<(), StoreError> {
    let store = EmbeddedStore::open(data, options())?;
    store.accept(vec![acceptance(EVENTS + 1)]).await?;
    store.close().await
}

#[test]
fn missing_journal_is_not_taken_for_an_empty_one() {
    let directory = tempfile::tempdir().unwrap();
    closed_store(directory.path());
    fs::remove_dir_all(directory.path().join("journal")).unwrap();
    let error = EmbeddedStore::open(directory.path(), options()).unwrap_err();
    assert!(matches!(&error, StoreError::Corrupt { what, .. } if what.contains("gone")), "{error}");
}

#[test]
fn error_names_a_directory_that_cannot_be_written() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, b"").unwrap();
    let error = EmbeddedStore::open(file.join("data"), options()).unwrap_err();
    assert!(matches!(error, StoreError::NotWritable { .. }), "{error}");
    let locked = directory.path().join("locked");
    fs::create_dir(&locked).unwrap();
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o500)).unwrap();
    match EmbeddedStore::open(&locked, options()) {
        Ok(_) => println!("read-only directory: skipped, this user may write everywhere"),
        Err(error) => assert!(matches!(error, StoreError::NotWritable { .. }), "{error}"),
    }
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn the_data_directory_is_for_its_owner_alone() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("a/b");
    drop(EmbeddedStore::open(&data, options()).unwrap());
    let mode = fs::metadata(&data).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn backup_runs_beside_writes_and_only_into_an_empty_directory() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    closed_store(&at("data"));
    runtime().block_on(async {
        let store = EmbeddedStore::open(at("data"), options()).unwrap();
        let busy = {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                for n in EVENTS..EVENTS + 500 {
                    store.accept(vec![acceptance(n)]).await.unwrap();
                }
            })
        };
        store.backup(&at("copy")).await.unwrap();
        assert!(store.backup(&at("copy")).await.is_err(), "it is not empty any more");
        busy.await.unwrap();
        assert!(EmbeddedStore::restore(at("copy"), at("data")).is_err());
        assert!(EmbeddedStore::restore(at("nothing"), at("other")).is_err());
        store.close().await.unwrap();
    });
    EmbeddedStore::restore(at("copy"), at("restored")).unwrap();
    runtime().block_on(open_and_read(&at("restored"))).unwrap();
}
