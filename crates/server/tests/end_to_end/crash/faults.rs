//! System calls fail: the server must refuse or exit cleanly, and everything acknowledged must be
//! there afterwards.
//!
//! The faults come from `strace`, which counts for each thread separately: "the third" is the third
//! call of every thread. If it is missing, the tests print that and do nothing.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value as Json, json};

use crate::crash::{Load, count, figure};
use crate::support::server::Server;
use crate::support::{Receiver, Start, balances, http};

const KEY: &str = "the-admin-key-of-this-test-0001";

fn may_trace() -> bool {
    Command::new("strace")
        .args(["-qq", "-o", "/dev/null", "true"])
        .output()
        .is_ok_and(|output| output.status.success())
}

fn start() -> Start {
    Start::dev().with(&["--time-scale", "1000"]).variable("POSTRIDER_ADMIN_KEY", KEY)
}

/// Checks that the program ended by its own decision.
fn assert_is_clean(status: ExitStatus, log: &str, what: &str) {
    assert!(status.code().is_some(), "{what}: {status}\n{log}");
    assert!(!log.contains("panicked"), "{what}: {log}");
    assert!(
        status.success() || log.contains("ERROR") || log.contains("postrider: "),
        "{what}: it ended without saying why: {log}"
    );
}

/// What the server acknowledged in a run.
#[derive(Default)]
struct Told {
    /// Acknowledged events, with their number of deliveries.
    acknowledged: Vec<(String, u64)>,
    refused: usize,
    started: bool,
    status: Option<ExitStatus>,
}

impl Told {
    fn send(&mut self, server: &Server, id: &str) {
        let event = json!({"id": id, "type": "task.updated", "data": {"id": id}});
        match http::request(server.address, KEY, "POST", "/v1/events", Some(&event)) {
            Ok((202, answer)) => {
                let answer: Json = serde_json::from_str(&answer).unwrap();
                let deliveries = answer["deliveries"].as_u64().unwrap();
                self.acknowledged.push((id.to_owned(), deliveries));
            }
            Ok((status, answer)) => {
                assert!(status == 503 || status == 500, "{status}: {answer}");
                assert!(answer.contains("\"code\""), "no problem document: {answer}");
                self.refused += 1;
            }
            Err(_) => self.refused += 1,
        }
    }
}

/// A short run: subscribe, send events, read the ledger, shut down. The faults begin with the
/// process, or when it serves.
fn live(fault: &Fault, k: usize, place: &Path, receiver: &Receiver, what: &str) -> Told {
    let mut told = Told::default();
    let (data, trace) = (place.join("data"), place.join("trace"));
    let injection = fault.injection(k);
    let wrapper = [&["strace", "-D", "-f", "-qq", "-o", trace.to_str().unwrap()], &injection[..]];
    let start = match fault.begins {
        Begins::OnceServing => start(),
        Begins::WithTheProcess => start().under(&wrapper.concat()),
    };
    let mut server = match start.try_at(&data) {
        Ok(server) => server,
        Err((status, log)) => {
            assert_is_clean(status, &log, what);
            assert!(!status.success(), "{what}: it neither served nor failed: {log}");
            told.status = Some(status);
            return told;
        }
    };
    told.started = true;
    let strace = match fault.begins {
        Begins::OnceServing => Some(attach(&server, &trace, &injection)),
        Begins::WithTheProcess => None,
    };
    let ask = |method, path, body: Option<&Json>| {
        drop(http::request(server.address, KEY, method, path, body));
    };
    ask("POST", "/v1/subscriptions", Some(&json!({ "url": receiver.url(), "types": ["*"] })));
    for n in 0..4 {
        told.send(&server, &format!("event-{n}"));
    }
    ask("GET", "/v1/ledger", None);
    ask("GET", "/v1/deliveries", None);
    for n in 4..8 {
        told.send(&server, &format!("event-{n}"));
    }
    server.try_signal("TERM");
    let (status, log) = server.ended();
    assert_is_clean(status, &log, what);
    told.status = Some(status);
    if let Some(mut strace) = strace {
        strace.wait().unwrap();
    }
    told
}

/// Starts without the fault, and checks that everything acknowledged is there and arrives.
fn check_afterwards(data: &Path, receiver: &Receiver, told: &Told, what: &str) {
    let mut server = start().try_at(data).unwrap_or_else(|(status, log)| {
        panic!("{what}: it does not start afterwards: {status}\n{log}");
    });
    for (id, deliveries) in &told.acknowledged {
        let path = format!("/v1/events/{id}");
        let (status, answer) = http::request(server.address, KEY, "GET", &path, None).unwrap();
        assert_eq!(status, 200, "{what}: {id} was acknowledged and is lost: {answer}");
        let event: Json = serde_json::from_str(&answer).unwrap();
        let found = u64::try_from(event["deliveries"].as_array().unwrap().len()).unwrap();
        assert_eq!(found, *deliveries, "{what}: {event}");
    }
    server.wait("everything to be delivered", |server| {
        let ledger = server.ledger();
        assert!(balances(&ledger), "{what}: {ledger}");
        (ledger["delivered"] == ledger["accepted"]).then_some(())
    });
    let arrived = receiver.arrived();
    for delivery in server.all("/v1/deliveries") {
        let id = delivery["id"].as_str().unwrap();
        assert!(arrived.iter().any(|one| one.webhook_id == id), "{what}: {id} never arrived");
    }
}

/// A kind of fault: the system calls, the error, and whether all later calls fail too.
#[derive(Clone, Copy)]
struct Fault {
    begins: Begins,
    calls: &'static str,
    error: &'static str,
    onwards: bool,
}

#[derive(Clone, Copy)]
enum Begins {
    WithTheProcess,
    OnceServing,
}

impl Fault {
    fn plus(&self) -> &'static str {
        if self.onwards { "+" } else { "" }
    }

    /// The arguments for strace.
    fn injection(&self, k: usize) -> [&'static str; 4] {
        let inject = format!("inject={}:error={}:when={k}{}", self.calls, self.error, self.plus());
        // Leaking a few words per test run is harmless.
        ["-e", format!("trace={}", self.calls).leak(), "-e", inject.leak()]
    }

    /// All kinds of faults.
    fn all() -> Vec<Fault> {
        let mut all = Vec::new();
        for begins in [Begins::WithTheProcess, Begins::OnceServing] {
            for (calls, error) in [
                ("fsync,fdatasync", "EIO"),
                ("pwrite64,pwritev,pwritev2", "EIO"),
                ("pwrite64,pwritev,pwritev2", "ENOSPC"),
                ("rename,renameat,renameat2,ftruncate,fallocate,unlink,mkdir", "EIO"),
                ("rename,renameat,renameat2,ftruncate,fallocate,unlink,mkdir", "ENOSPC"),
            ] {
                all.extend([false, true].map(|onwards| Fault { begins, calls, error, onwards }));
            }
        }
        all
    }
}

#[derive(Default)]
struct Sum {
    runs: usize,
    acknowledged: usize,
    refused: usize,
    not_started: usize,
    ended_early: usize,
}

impl Sum {
    fn add(&mut self, told: &Told) {
        self.runs += 1;
        self.acknowledged += told.acknowledged.len();
        self.refused += told.refused;
        self.not_started += usize::from(!told.started);
        let failed = told.status.is_some_and(|status| !status.success());
        self.ended_early += usize::from(told.started && failed);
    }
}

/// One run in which the k-th call fails, and a second run afterwards; `None` if there is no k-th
/// call any more.
fn run(fault: &Fault, k: usize) -> Option<Told> {
    let when = match fault.begins {
        Begins::WithTheProcess => "of the process",
        Begins::OnceServing => "while serving",
    };
    let (Fault { calls, error, .. }, plus) = (fault, fault.plus());
    let what = format!("{calls} number {k}{plus} {when} fails with {error}");
    let place = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(200);
    let told = live(fault, k, place.path(), &receiver, &what);
    let (data, trace) = (place.path().join("data"), place.path().join("trace"));
    if !std::fs::read_to_string(&trace).unwrap().contains("INJECTED") {
        return None;
    }
    check_afterwards(&data, &receiver, &told, &what);
    Some(told)
}

#[test]
fn whichever_call_fails_nothing_acknowledged_is_lost() {
    if !may_trace() {
        return figure("k-th I/O error: skipped, no strace here, or it is not allowed");
    }
    // The short form tests the first few calls, then every n-th; the long form tests all.
    let step = count("CRASH_FAULT_STEP", 60);
    let (faults, next) = (Fault::all(), AtomicUsize::new(0));
    let sum = Mutex::new(Sum::default());
    let work = || {
        while let Some(fault) = faults.get(next.fetch_add(1, Ordering::Relaxed)) {
            let mut k = 1;
            while let Some(told) = run(fault, k) {
                sum.lock().unwrap().add(&told);
                k += if k < 2 { 1 } else { step };
            }
        }
    };
    // Most of the time is spent waiting for strace and the disk, so runs overlap.
    std::thread::scope(|scope| {
        for _ in 0..count("CRASH_FAULT_JOBS", 2) {
            scope.spawn(work);
        }
    });
    let sum = sum.into_inner().unwrap();
    let Sum { runs, refused, acknowledged, .. } = sum;
    assert!(runs > 20 && refused > 0 && acknowledged > 0, "{runs} {refused} {acknowledged}");
    figure(&format!(
        "k-th I/O error: {} runs, {} acknowledged, {} refused, {} did not start, {} ended by \
         themselves, all recovered, 0 lost",
        sum.runs, sum.acknowledged, sum.refused, sum.not_started, sum.ended_early
    ));
}

/// Makes system calls of a running process fail from now on.
fn attach(server: &Server, trace: &Path, injection: &[&str]) -> std::process::Child {
    let mut strace = Command::new("strace")
        .args(["-f", "-p", &server.pid().to_string(), "-o", trace.to_str().unwrap()])
        .args(injection)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(strace.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(said.any(|line| line.contains(" attached")), "strace does not attach");
    // strace keeps printing about threads; its output must be read.
    drop(std::thread::spawn(move || said.for_each(drop)));
    strace
}

const SYNCS_FAIL: [&str; 4] =
    ["-e", "trace=fsync,fdatasync", "-e", "inject=fsync,fdatasync:error=EIO"];

#[test]
fn after_a_failed_sync_nothing_is_acknowledged_and_the_process_ends() {
    if !may_trace() {
        return figure("sync failure: skipped, no strace here, or it is not allowed");
    }
    let times = count("CRASH_SYNCS", 3);
    let receiver = Receiver::start(200);
    let mut server = start().fresh();
    server.subscribe(&receiver.url());
    let mut acknowledged = Vec::new();
    for time in 0..times {
        let load = Load::start(&server, &format!("event-{time}"), 3);
        receiver.wait_until(receiver.count() + 10);
        let trace = server.data_dir.with_file_name("trace");
        let mut strace = attach(&server, &trace, &SYNCS_FAIL);
        let mut late = Told::default();
        late.send(&server, &format!("late-{time}"));
        assert!(late.acknowledged.is_empty(), "acknowledged although no sync succeeds");
        let (status, log) = server.ended();
        strace.wait().unwrap();
        assert_is_clean(status, &log, "a failed sync");
        assert!(!status.success() && log.contains("the store has stopped"), "{status}: {log}");
        acknowledged.extend(load.acknowledged());
        server = server.succeeded_by(start());
    }
    server.wait("everything to be delivered", |server| {
        let ledger = server.ledger();
        (ledger["delivered"] == ledger["accepted"]).then_some(())
    });
    for id in &acknowledged {
        assert_eq!(server.get(&format!("/v1/events/{id}"))["id"], **id);
    }
    figure(&format!(
        "sync failure: {times} times, nothing acknowledged after it, the process ended each time, \
         {} acknowledged before, 0 lost",
        acknowledged.len()
    ));
}
