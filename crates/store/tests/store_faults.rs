//! A full disk and failing syncs, tested in a child process on a file system of its own.
//!
//! Both need tools that may be missing (`unshare` with the right to mount, `strace`): then the
//! tests print that and do nothing.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use postrider_domain::attempt::{Attempt, Ending, Failure, FailureClass, Timings, Turn};
use postrider_domain::delivery::{Delivery, StateName};
use postrider_domain::event::{Event, RawJson};
use postrider_domain::ids::TenantId;
use postrider_domain::time::Timestamp;
use postrider_store::embedded::{EmbeddedOptions, EmbeddedStore};
use postrider_store::{
    Acceptance, Accepted, Commit, DeliveryChange, History, Intake, StoreError, Upkeep, Work,
};
use postrider_store_testing::samples;

const AT: Timestamp = Timestamp::from_unix_ms(1_794_735_000_000);

fn options() -> EmbeddedOptions {
    EmbeddedOptions { segment_bytes: 1 << 20, reserve_bytes: 1 << 20, ..EmbeddedOptions::default() }
}

fn tenant() -> TenantId {
    TenantId::default_tenant()
}

fn acceptance(n: u64, bytes: usize) -> Acceptance {
    let event = Event {
        id: format!("e{n}").parse().unwrap(),
        tenant: tenant(),
        kind: "task.updated".parse().unwrap(),
        object: None,
        data: RawJson::from_trusted(format!("\"{n} {}\"", "z".repeat(bytes)).into()),
        old: None,
        time: AT,
        trace: None,
    };
    let deliveries = samples::acceptance(event.clone(), AT, &[(n, 1)]).deliveries;
    let event = Arc::new(event);
    Acceptance {
        event,
        accepted_at: AT,
        fingerprint: [1; 32],
        id_given: true,
        mark: postrider_domain::catalogue::EventMark::default(),
        deliveries,
    }
}

fn arrived(delivery: &Delivery) -> Commit {
    let ending = Ending::Failed(Failure { class: FailureClass::Reset, detail: String::new() });
    let (turn, timings) = (Turn::First, Timings::default());
    let attempt = Attempt { number: 1, turn, started_at: AT, timings, ending };
    let change = DeliveryChange {
        before: StateName::Queued,
        by_job: None,
        delivery: delivery.delivered(AT, AT),
        attempt: Some(attempt),
    };
    Commit { deliveries: vec![change], ..Commit::default() }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap()
}

/// The input of a child process; `None` if the test was not started as a child.
fn told() -> Option<String> {
    let mut line = String::new();
    io::stdin().read_line(&mut line).unwrap();
    let line = line.trim().to_owned();
    (!line.is_empty()).then_some(line)
}

fn run_child(wrapper: &[&str], name: &str, tell: &str) -> io::Result<Output> {
    let program = std::env::current_exe()?;
    let program = program.to_str().unwrap();
    let arguments = [program, "--exact", name, "--ignored", "--nocapture"];
    let all: Vec<&str> = wrapper.iter().copied().chain(arguments).collect();
    let mut child = Command::new(all[0])
        .args(&all[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    writeln!(child.stdin.take().unwrap(), "{tell}")?;
    child.wait_with_output()
}

#[test]
#[ignore = "the child of the full-disk test; it is started by that test"]
fn child_on_a_small_disk() {
    let Some(directory) = told() else { return };
    let root = Path::new(&directory);
    let mount = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=160m", "none", &directory])
        .status()
        .unwrap();
    if !mount.success() {
        println!("cannot mount");
        return;
    }
    runtime().block_on(async {
        let options = EmbeddedOptions { reserve_bytes: 64 << 20, ..options() };
        let store = EmbeddedStore::open(root.join("data"), options).unwrap();
        let leases = store.hold_shards().await.unwrap();
        let mut accepted = Vec::new();
        let refusal = loop {
            let n = u64::try_from(accepted.len()).unwrap();
            match store.accept(vec![acceptance(n, 100_000)]).await {
                Ok(_) => accepted.push(samples::delivery_id(n)),
                Err(error) => break error,
            }
            assert!(accepted.len() < 5_000, "the disk is never full");
        };
        assert!(matches!(refusal, StoreError::DiskFull { .. }), "{refusal}");
        println!("refused after {} events: {refusal}", accepted.len());
        // Accepted deliveries can still be settled and read.
        for id in &accepted {
            let delivery = store.delivery(&tenant(), *id).await.unwrap().unwrap();
            store.settle(&leases, arrived(&delivery)).await.unwrap();
        }
        let ledger = store.ledger(None).await.unwrap();
        let all = u64::try_from(accepted.len()).unwrap();
        assert_eq!((ledger.accepted, ledger.delivered), (all, all));
        store.verify().await.unwrap();
        // The disk has space again: acceptance resumes by itself.
        let more = Command::new("mount").args(["-o", "remount,size=480m", &directory]).status();
        assert!(more.unwrap().success());
        let mut tries = 0;
        while let Err(error) = store.accept(vec![acceptance(all, 100)]).await {
            assert!(matches!(error, StoreError::DiskFull { .. }), "{error}");
            tries += 1;
            assert!(tries < 1_000, "it does not resume");
            tokio::time::timeout(
                std::time::Duration::from_millis(10),
                std::future::pending::<()>(),
            )
            .await
            .unwrap_err();
        }
        store.check().await.unwrap();
        store.close().await.unwrap();
        println!("disk full: {all} accepted before, all settled on the full disk, resumed");
    });
}

#[test]
fn on_a_full_disk_nothing_new_is_accepted_and_the_rest_is_finished() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().to_str().unwrap();
    let wrapper = ["unshare", "-m", "--"];
    match run_child(&wrapper, "child_on_a_small_disk", place) {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stdout);
            let errors = String::from_utf8_lossy(&output.stderr);
            if said.contains("cannot mount") || errors.contains("unshare failed") {
                println!("disk full: skipped, this user may not mount");
                return;
            }
            assert!(output.status.success(), "{said}\n{errors}");
            assert!(said.contains("disk full: "), "{said}\n{errors}");
            said.lines().filter(|line| line.contains("disk full: ")).for_each(|l| println!("{l}"));
        }
        Err(error) => println!("disk full: skipped, no unshare here ({error})"),
    }
}

/// Accepts and settles a few events, and records the answers in a file that is not synced.
#[test]
#[ignore = "the child of the failing-sync test; it is started by that test"]
fn child_whose_sync_fails() {
    let Some(line) = told() else { return };
    let (data, log) = line.split_once(' ').unwrap();
    let mut log = fs::OpenOptions::new().create(true).append(true).open(log).unwrap();
    runtime().block_on(async {
        let told = Arc::new(std::sync::Mutex::new(None));
        let fatal = Arc::clone(&told);
        let hook = move |why: &str| *fatal.lock().unwrap() = Some(why.to_owned());
        let options = EmbeddedOptions { fatal: Some(Arc::new(hook)), ..options() };
        let store = match EmbeddedStore::open(data, options) {
            Ok(store) => store,
            Err(error) => {
                writeln!(log, "open {error}").unwrap();
                return;
            }
        };
        let leases = store.hold_shards().await.unwrap();
        for n in 0..6 {
            let acceptance = acceptance(n, 200);
            let delivery = acceptance.deliveries[0].clone();
            match store.accept(vec![acceptance]).await {
                Ok(_) => writeln!(log, "accepted {n}").unwrap(),
                Err(error) => {
                    writeln!(log, "refused {error}").unwrap();
                    let is_final = matches!(error, StoreError::Stopped(_));
                    assert!(!is_final || told.lock().unwrap().is_some(), "nobody was told");
                    continue;
                }
            }
            if store.settle(&leases, arrived(&delivery)).await.is_ok() {
                writeln!(log, "settled {n}").unwrap();
            }
            if let Err(error) = store.ledger(None).await {
                writeln!(log, "unread {error}").unwrap();
            }
        }
        if let Err(error) = store.close().await {
            writeln!(log, "close {error}").unwrap();
        }
    });
}

/// After the fault: everything acknowledged is there, and the store verifies.
async fn check_after_fault(data: &Path, log: &str) -> (u64, bool) {
    let store = EmbeddedStore::open(data, options()).unwrap();
    let mut accepted = 0;
    for line in log.lines() {
        let (what, n) = line.split_once(' ').unwrap();
        if !matches!(what, "accepted" | "settled") {
            continue;
        }
        let n: u64 = n.parse().unwrap();
        let delivery = store.delivery(&tenant(), samples::delivery_id(n)).await.unwrap();
        let delivery = delivery.unwrap_or_else(|| panic!("delivery {n} is lost"));
        if what == "settled" {
            assert_eq!(delivery.state.name(), StateName::Delivered, "settlement {n} is lost");
        }
        accepted += u64::from(what == "accepted");
    }
    store.verify().await.unwrap();
    // The store accepts events again.
    let again = store.accept(vec![acceptance(1_000, 10)]).await.unwrap();
    assert_eq!(again, [Accepted::New]);
    store.close().await.unwrap();
    let failed =
        log.lines().any(|line| !line.starts_with("accepted") && !line.starts_with("settled"));
    (accepted, failed)
}

/// The system calls that are made to fail, and the error.
struct Sweep {
    name: &'static str,
    calls: &'static str,
    error: &'static str,
    /// Whether all calls from the k-th on fail, or only the k-th.
    from_then_on: bool,
}

/// The step between two tested values of k; 1 if all are requested.
fn stride(short: u32) -> u32 {
    #[expect(clippy::disallowed_methods, reason = "the long form is asked for by a variable")]
    let all = std::env::var_os("STORE_FAULTS").is_some();
    if all { 1 } else { short }
}

/// Makes the k-th of some system calls fail, for each k, until there is no k-th call. Afterwards
/// everything acknowledged must be there, and the store must verify.
#[expect(clippy::print_stdout, reason = "a test of trust prints its figure")]
fn sweep(sweep: &Sweep, step: u32) -> Option<u32> {
    let runtime = runtime();
    let Sweep { name, calls, error, from_then_on } = sweep;
    let (mut faults, mut acknowledged, mut noticed, mut nth) = (0, 0, 0, 1);
    loop {
        let directory = tempfile::tempdir().unwrap();
        let (data, log) = (directory.path().join("data"), directory.path().join("log"));
        let on = if *from_then_on { "+" } else { "" };
        let inject = format!("inject={calls}:error={error}:when={nth}{on}");
        let trace = directory.path().join("trace");
        let which = format!("trace={calls}");
        let trace_name = trace.to_str().unwrap();
        let wrapper = ["strace", "-f", "-qq", "-o", trace_name, "-e", &which, "-e", &inject];
        let tell = format!("{} {}", data.display(), log.display());
        let output = match run_child(&wrapper, "child_whose_sync_fails", &tell) {
            Ok(output) => output,
            Err(error) => {
                println!("failing {name}: skipped, no strace here ({error})");
                return None;
            }
        };
        let said = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        if errors.contains("PTRACE") || errors.contains("ptrace") {
            println!("failing {name}: skipped, this user may not trace");
            return None;
        }
        // The call failed while the program was being loaded, before it did anything.
        if !output.status.success() && !log.exists() {
            assert!(!data.exists(), "{name} {nth}, {error}: {said}\n{errors}");
            nth += step;
            continue;
        }
        assert!(output.status.success(), "{name} {nth}, {error}: {said}\n{errors}");
        if !fs::read_to_string(&trace).unwrap().contains("INJECTED") {
            break;
        }
        faults += 1;
        let log = fs::read_to_string(&log).unwrap_or_default();
        let (accepted, failed) = runtime.block_on(check_after_fault(&data, &log));
        acknowledged += accepted;
        noticed += u32::from(failed);
        nth += step;
    }
    let on = if *from_then_on { ", from then on" } else { "" };
    println!(
        "failing {name} ({error}{on}): {faults} places of {}, {noticed} noticed, {acknowledged} \
         events acknowledged, 0 lost",
        nth - 1
    );
    Some(faults)
}

#[test]
fn whichever_sync_fails_nothing_acknowledged_is_lost() {
    for (error, from_then_on) in [("EIO", false), ("EIO", true), ("ENOSPC", false)] {
        let syncs = Sweep { name: "syncs", calls: "fsync,fdatasync", error, from_then_on };
        let faults = sweep(&syncs, 1);
        assert!(faults.is_none_or(|faults| faults > 20), "{faults:?}");
    }
}

/// Covers writes of the journal and of SQLite.
#[test]
fn whichever_write_fails_nothing_acknowledged_is_lost() {
    for (error, from_then_on) in
        [("EIO", false), ("ENOSPC", false), ("EIO", true), ("ENOSPC", true)]
    {
        let writes = Sweep { name: "writes", calls: "pwrite64", error, from_then_on };
        let faults = sweep(&writes, stride(17));
        assert!(faults.is_none_or(|faults| faults > 5), "{faults:?}");
    }
}

/// Covers system calls that change lengths, names and reservations of files.
#[test]
fn whichever_change_of_a_file_fails_nothing_acknowledged_is_lost() {
    let calls = "ftruncate,fallocate,rename,renameat,renameat2,unlink,unlinkat,mkdir,openat";
    for error in ["EIO", "ENOSPC"] {
        let changes = Sweep { name: "changes of files", calls, error, from_then_on: false };
        let faults = sweep(&changes, stride(5));
        assert!(faults.is_none_or(|faults| faults > 5), "{faults:?}");
    }
}

#[test]
fn whichever_read_fails_nothing_acknowledged_is_lost() {
    let reads = Sweep { name: "reads", calls: "pread64", error: "EIO", from_then_on: false };
    let faults = sweep(&reads, stride(5));
    assert!(faults.is_none_or(|faults| faults > 3), "{faults:?}");
}
