//! `kill -9` on a process that appends to a journal on real files at full speed.
//!
//! The parent knows only what the child printed: each line is one acknowledgement. After each kill
//! it opens the journal and checks that every printed record is there, complete and at its
//! position.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use bytes::Bytes;
use postrider_store::embedded::journal::{Hooks, Journal, JournalOptions, Position, Reserve};
use postrider_store::embedded::medium::Disk;

const KILLS: u64 = 20;
const TASKS: u64 = 32;

fn options(nonce: u64, applied: u64) -> JournalOptions {
    JournalOptions {
        segment_bytes: 1 << 20,
        applied: Position::new(applied),
        ..JournalOptions::new(*b"the-kill-9-store", nonce)
    }
}

/// The payload with this number; payloads differ, and their lengths vary.
fn payload(number: u64) -> Bytes {
    let length = usize::try_from(number % 1200).unwrap();
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.extend((0..length).map(|i| u8::try_from((i as u64 + number) % 253).unwrap()));
    Bytes::from(bytes)
}

/// The child process of the test below: appends for ever, and prints what was acknowledged. Its
/// input names the directory; without a directory it ends at once.
#[test]
#[ignore = "the child of the kill test; it is started by that test"]
fn child_that_appends_until_it_is_killed() {
    let mut line = String::new();
    io::stdin().read_line(&mut line).unwrap();
    let mut words = line.split_whitespace();
    let (Some(directory), Some(round), Some(applied)) = (words.next(), words.next(), words.next())
    else {
        return;
    };
    let (round, applied): (u64, u64) = (round.parse().unwrap(), applied.parse().unwrap());
    let disk = Arc::new(Disk::open(directory).unwrap());
    let (journal, _) = Journal::open(disk, options(round, applied), Hooks::none()).unwrap();
    let journal = Arc::new(journal);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let journal = Arc::clone(&journal);
            runtime.spawn(async move {
                for i in 0.. {
                    let number = (round << 40) | (task << 32) | i;
                    let appended = journal.append(1, payload(number), Reserve::Normal);
                    let position = appended.await.unwrap().sequence();
                    println!("ack {position} {number}");
                }
            })
        })
        .collect();
    for task in tasks {
        runtime.block_on(task).unwrap();
    }
}

/// Starts a child, kills it after `kill_after` acknowledgements, and returns everything that it
/// printed.
fn acknowledged_until_killed(
    directory: &Path,
    round: u64,
    applied: u64,
    kill_after: usize,
) -> BTreeMap<u64, u64> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_that_appends_until_it_is_killed", "--ignored", "--nocapture"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    writeln!(input, "{} {round} {applied}", directory.display()).unwrap();
    let mut acknowledged = BTreeMap::new();
    let mut killed = false;
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    // A line that the kill cut off was not acknowledged completely.
    while output.read_line(&mut line).unwrap() > 0 && line.ends_with('\n') {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let ["ack", position, number] = words[..] {
            acknowledged.insert(position.parse().unwrap(), number.parse().unwrap());
        }
        line.clear();
        if acknowledged.len() >= kill_after && !killed {
            child.kill().unwrap();
            killed = true;
        }
    }
    child.wait().unwrap();
    assert!(killed, "the child ended by itself");
    acknowledged
}

#[test]
fn acknowledged_records_survive_kill_9() {
    let directory = tempfile::tempdir().unwrap();
    let (mut applied, mut total, mut untold, mut torn) = (0, 0, 0, 0);
    for round in 1..=KILLS {
        // The numbers are arbitrary, so that each kill hits the child at another point.
        let kill_after = usize::try_from(1 + round * 7919 % 3001).unwrap();
        let mut acknowledged =
            acknowledged_until_killed(directory.path(), round, applied, kill_after);
        let disk = Arc::new(Disk::open(directory.path()).unwrap());
        let (journal, recovered) =
            Journal::open(disk, options(1000 + round, applied), Hooks::none()).unwrap();
        torn += u64::from(recovered.torn().is_some());
        total += acknowledged.len();
        for record in recovered.into_records() {
            let record = record.unwrap();
            applied += 1;
            assert_eq!(record.position.sequence(), applied, "no gap");
            let number = u64::from_le_bytes(record.payload[..8].try_into().unwrap());
            assert_eq!(record.payload, payload(number), "whole");
            match acknowledged.remove(&applied) {
                Some(told) => assert_eq!(number, told, "in its place"),
                None => untold += 1,
            }
        }
        assert!(acknowledged.is_empty(), "lost: {acknowledged:?}");
        // As if SQLite had applied all records: the child may reuse the files.
        journal.release(Position::new(applied));
        journal.close().unwrap();
    }
    println!(
        "journal kill-9: {KILLS} kills, {total} acknowledged, 0 lost \
         ({untold} more were durable but not yet told, {torn} torn tails)"
    );
}
