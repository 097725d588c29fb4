//! From the embedded store to PostgreSQL and back: nothing is lost, changed or doubled, wherever
//! the transfer is interrupted.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use postrider_store::embedded::{self, EmbeddedStore};
use postrider_store::postgres::PostgresStore;
use postrider_store::transfer::{Moved, Phase, RecordKind, Target, TransferError, Watch, transfer};
use postrider_store::{Configuration, StoreError, Upkeep};
use postrider_store_testing::conformance::sequences::{everything, fill};
use postrider_store_testing::samples;

use crate::nodes::{node, options};
use crate::server::{self, Server};

/// Small batches, so that there are many points at which to stop.
const BATCH: usize = 7;

fn small() -> embedded::EmbeddedOptions {
    let (segment_bytes, reserve_bytes) = (1 << 20, 1 << 20);
    embedded::EmbeddedOptions {
        segment_bytes,
        reserve_bytes,
        ..embedded::EmbeddedOptions::default()
    }
}

struct Nobody;

impl Watch for Nobody {
    fn moved(&mut self, _: Phase, _: u64, _: u64) {}
}

/// Opens the target of a transfer by its address, as the command line does.
async fn open(place: &str) -> Arc<dyn Target> {
    if place.starts_with("postgres://") {
        return PostgresStore::connect_to_fill(place, options("move")).await.unwrap();
    }
    EmbeddedStore::open_to_fill(place, small()).unwrap()
}

async fn close(store: Arc<dyn Target>) {
    // An embedded store closes its files when it is dropped.
    drop(store);
}

async fn moved(from: &str, to: &str) -> Result<Moved, TransferError> {
    let (source, target) = (open(from).await, open(to).await);
    let moved = transfer(&*source, &*target, &mut Nobody, BATCH).await;
    close(source).await;
    close(target).await;
    moved
}

async fn lines_of(directory: &Path) -> Vec<String> {
    let store = EmbeddedStore::open(directory, small()).unwrap();
    let lines = everything(&*store).await;
    store.verify().await.unwrap();
    store.close().await.unwrap();
    lines
}

async fn filled(directory: &Path, seed: u64, steps: usize) -> Vec<String> {
    let store = EmbeddedStore::open(directory, small()).unwrap();
    fill(seed, steps, &*store).await;
    store.close().await.unwrap();
    lines_of(directory).await
}

#[tokio::test]
async fn random_records_are_the_same_after_a_transfer_there_and_back() {
    let server = Server::start();
    let mut records = 0;
    for seed in 0..3 {
        let folder = tempfile::tempdir().unwrap();
        let (here, back) = (folder.path().join("here"), folder.path().join("back"));
        let before = filled(&here, seed, 250).await;
        let url = server.database(&format!("moved_{seed}"));
        let there = moved(here.to_str().unwrap(), &url).await.unwrap();
        let cluster = node(&url, "one").await;
        assert_eq!(everything(&*cluster).await, before, "seed {seed}: in PostgreSQL");
        cluster.release_shards().await.unwrap();
        cluster.close().await.unwrap();
        drop(cluster);
        let and_back = moved(&url, back.to_str().unwrap()).await.unwrap();
        assert_eq!(lines_of(&back).await, before, "seed {seed}: and back");
        assert_eq!(there.digest, and_back.digest);
        for kind in [RecordKind::Event, RecordKind::Delivery, RecordKind::Attempt] {
            assert!(there.digest.of(kind).count > 10, "seed {seed}: enough {}", kind.as_str());
        }
        records += there.digest.records();
    }
    println!("moved there and back: 3 stores, {records} records, 0 differences");
}

struct Lines;

impl Watch for Lines {
    fn moved(&mut self, phase: Phase, done: u64, total: u64) {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{phase:?} {done} of {total}").and_then(|()| out.flush()).unwrap();
    }
}

/// The child process of the test below. Its input names both stores; without them it ends at once.
/// It prints a line for each batch.
#[tokio::test]
#[ignore = "the child of the kill test; it is started by that test"]
async fn the_process_that_moves() {
    let mut input = String::new();
    std::io::stdin().read_line(&mut input).unwrap();
    let Some((from, to)) = input.trim().split_once(' ') else { return };
    let (source, target) = (open(from).await, open(to).await);
    transfer(&*source, &*target, &mut Lines, BATCH).await.unwrap();
    println!("done");
}

/// Transfers in a child process that is killed after `lines` lines; returns whether it had finished
/// before.
fn move_until_killed(from: &str, to: &str, lines: usize) -> bool {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "transfer::the_process_that_moves", "--ignored", "--nocapture"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    writeln!(child.stdin.take().unwrap(), "{from} {to}").unwrap();
    let said = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut progress = said.filter(|line| line.contains(" of ") || line == "done");
    let last = progress.by_ref().take(lines.max(1)).last().expect("it says something");
    let is_done = last == "done";
    child.kill().unwrap();
    child.wait().unwrap();
    is_done
}

/// Kills the transfer again and again until it finishes.
async fn insist(from: &str, to: &str, seed: u64) -> (u64, Moved) {
    let mut kills = 0;
    for round in 1..200u64 {
        let lines = 1 + usize::try_from((seed * 31 + round * round * 7_919) % 90).unwrap();
        let is_done = move_until_killed(from, to, lines);
        if let Some(url) = [from, to].into_iter().find(|place| place.starts_with("postgres")) {
            // The server may notice only later that its client is dead.
            let refused = PostgresStore::connect(url, options("early")).await;
            let is_target = url == to;
            match refused {
                Err(StoreError::NotWritable { .. }) => assert!(is_target && !is_done),
                Ok(_) | Err(_) => assert!(!is_target || is_done),
            }
        }
        kills += 1;
        if is_done {
            break;
        }
    }
    (kills, moved(from, to).await.unwrap())
}

#[tokio::test]
async fn transfer_that_is_killed_at_any_moment_continues_where_it_stopped() {
    let server = Server::start();
    let (mut kills, mut resumed) = (0, 0);
    for seed in [11, 12] {
        let folder = tempfile::tempdir().unwrap();
        let (here, back) = (folder.path().join("here"), folder.path().join("back"));
        let before = filled(&here, seed, 250).await;
        let url = server.database(&format!("killed_{seed}"));
        let (times, there) = insist(here.to_str().unwrap(), &url, seed).await;
        kills += times;
        resumed += there.resumed;
        let store = PostgresStore::connect(&url, options("one")).await.unwrap();
        assert_eq!(everything(&*store).await, before);
        store.release_shards().await.unwrap();
        store.close().await.unwrap();
        let (times, _) = insist(&url, back.to_str().unwrap(), seed).await;
        kills += times;
        assert_eq!(lines_of(&back).await, before);
    }
    println!("moves killed by kill -9: {kills}, {resumed} records kept from before, 0 differences");
}

/// A store with some records.
async fn some(folder: &Path, name: &str, seed: u64) -> PathBuf {
    let directory = folder.join(name);
    filled(&directory, seed, 60).await;
    directory
}

#[tokio::test]
async fn transfer_refuses_stores_that_it_would_mix_or_lose() {
    let (server, folder) = (server::shared(), tempfile::tempdir().unwrap());
    let one = some(folder.path(), "one", 1).await;
    let other = some(folder.path(), "other", 2).await;
    let (one, other) = (one.to_str().unwrap(), other.to_str().unwrap());
    let url = server.database("refusals");
    // The target is not empty, and not because of this transfer.
    assert!(matches!(moved(one, other).await, Err(TransferError::NotEmpty { .. })));
    // A server runs on the target, or on the source.
    let running = node(&url, "busy").await;
    running.hold_shards().await.unwrap();
    let refused = moved(one, &url).await;
    assert!(
        matches!(&refused, Err(TransferError::Running { side: "target", nodes })
        if nodes == &["busy"]),
        "{refused:?}"
    );
    let empty = folder.path().join("empty");
    let refused = moved(&url, empty.to_str().unwrap()).await;
    assert!(matches!(refused, Err(TransferError::Running { side: "source", .. })), "{refused:?}");
    running.release_shards().await.unwrap();
    // The beginning of another transfer.
    let (source, target) = (open(one).await, open(&url).await);
    let begun = postrider_store::transfer::Progress {
        source: source.identity().await.unwrap(),
        place: Some(postrider_store::transfer::TransferPosition::START),
        records: 0,
        finished: false,
    };
    target.write(Vec::new(), &begun).await.unwrap();
    drop((source, target));
    assert!(matches!(moved(other, &url).await, Err(TransferError::OtherSource)));
    let early = PostgresStore::connect(&url, options("early")).await;
    assert!(matches!(early, Err(StoreError::NotWritable { .. })), "nobody works with a half");
    // The transfer continues; after it is finished the same command only compares.
    assert!(!moved(one, &url).await.unwrap().was_finished);
    assert!(moved(one, &url).await.unwrap().was_finished);
    let refused = moved(other, &url).await;
    assert!(matches!(refused, Err(TransferError::NotEmpty { .. })), "{refused:?}");
    // The target has changed since.
    let store = node(&url, "one").await;
    store.create_tenant(&samples::tenant("new-one", samples::at(0))).await.unwrap();
    let refused = moved(one, &url).await;
    assert!(
        matches!(&refused, Err(TransferError::Finished { differences })
        if differences.len() == 1),
        "{refused:?}"
    );
}

#[tokio::test]
async fn source_that_changed_during_the_transfer_is_detected() {
    let (server, folder) = (server::shared(), tempfile::tempdir().unwrap());
    let here = some(folder.path(), "here", 5).await;
    let here = here.to_str().unwrap();
    let url = server.database("changed");
    assert!(!move_until_killed(here, &url, 8));
    let store = EmbeddedStore::open(here, small()).unwrap();
    store.create_tenant(&samples::tenant("aaa", samples::at(0))).await.unwrap();
    store.close().await.unwrap();
    drop(store);
    let refused = moved(here, &url).await;
    assert!(
        matches!(&refused, Err(TransferError::Differs { differences })
        if differences[0].kind == RecordKind::Tenant),
        "{refused:?}"
    );
    let half = PostgresStore::connect(&url, options("early")).await;
    assert!(matches!(half, Err(StoreError::NotWritable { .. })), "it stays unfinished");
}

#[tokio::test]
async fn store_with_an_unfinished_transfer_is_not_opened() {
    let (server, folder) = (server::shared(), tempfile::tempdir().unwrap());
    let here = some(folder.path(), "here", 6).await;
    let url = server.database("halves");
    moved(here.to_str().unwrap(), &url).await.unwrap();
    let back = folder.path().join("back");
    assert!(!move_until_killed(&url, back.to_str().unwrap(), 8));
    let half = EmbeddedStore::open(&back, small());
    assert!(matches!(half, Err(StoreError::NotWritable { .. })), "{half:?}");
    let missing = EmbeddedStore::open_to_move(folder.path().join("nothing"), small());
    assert!(matches!(missing, Err(StoreError::NotWritable { .. })), "{missing:?}");
    moved(&url, back.to_str().unwrap()).await.unwrap();
    drop(EmbeddedStore::open(&back, small()).unwrap());
}
