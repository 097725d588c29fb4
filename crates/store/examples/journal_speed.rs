//! How fast the journal is on this machine's disk: `cargo run --release --example journal_speed`.
//!
//! Prints records per second with many producers, the processor time per record, and the time of a
//! commit at a steady 5,000 records per second. Payloads have 600 bytes.

#![expect(clippy::print_stdout, reason = "it prints its figures")]
#![expect(clippy::unwrap_used, reason = "a measurement that cannot run should stop")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use postrider_store::embedded::journal::{Hooks, Journal, JournalOptions, Record, Reserve};
use postrider_store::embedded::medium::Disk;
use tokio::runtime::Builder;

const PAYLOAD_BYTES: usize = 600;

#[expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
fn now() -> Instant {
    Instant::now()
}

/// Processor time that this process has used.
fn processor_time() -> Duration {
    // Fields 14 and 15 of the line, in hundredths of a second; the name in field 2 has no spaces.
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let ticks = stat.split(' ').skip(13).take(2).map(|field| field.parse::<u64>().unwrap());
    Duration::from_millis(ticks.sum::<u64>() * 10)
}

struct Measured {
    journal: Arc<Journal>,
    batches: Arc<AtomicU64>,
    opened_in: Duration,
}

fn open(directory: &std::path::Path) -> Measured {
    let batches = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&batches);
    let synced = move |_: Vec<Record>| {
        count.fetch_add(1, Ordering::Relaxed);
    };
    let hooks = Hooks { synced: Box::new(synced), fatal: None };
    let disk = Arc::new(Disk::open(directory).unwrap());
    let start = now();
    let (journal, _) = Journal::open(disk, JournalOptions::new([1; 16], 1), hooks).unwrap();
    Measured { journal: Arc::new(journal), batches, opened_in: start.elapsed() }
}

/// Many producers, each with one append after another.
fn throughput(producers: u64, records_each: u64) {
    let directory = tempfile::tempdir_in(".").unwrap();
    let Measured { journal, batches, opened_in } = open(directory.path());
    let runtime = Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let payload = Bytes::from(vec![b'x'; PAYLOAD_BYTES]);
    let (start, used) = (now(), processor_time());
    let tasks: Vec<_> = (0..producers)
        .map(|_| {
            let (journal, payload) = (Arc::clone(&journal), payload.clone());
            runtime.spawn(async move {
                for _ in 0..records_each {
                    let appended = journal.append(1, payload.clone(), Reserve::Normal);
                    let position = appended.await.unwrap();
                    if position.sequence() % 10_000 == 0 {
                        journal.release(position);
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        runtime.block_on(task).unwrap();
    }
    let (elapsed, used) = (start.elapsed(), processor_time() - used);
    let records = producers * records_each;
    println!(
        "{producers:>5} producers: {:>7.0} records/s, {:.2} us processor time per record, \
         {:.1} records per commit (opened in {} ms)",
        records as f64 / elapsed.as_secs_f64(),
        used.as_secs_f64() * 1e6 / records as f64,
        records as f64 / batches.load(Ordering::Relaxed) as f64,
        opened_in.as_millis(),
    );
}

/// A steady rate: the time from each append to its answer.
fn steady(per_second: u64, seconds: u64) {
    let directory = tempfile::tempdir_in(".").unwrap();
    let Measured { journal, batches, .. } = open(directory.path());
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
    let payload = Bytes::from(vec![b'x'; PAYLOAD_BYTES]);
    let used = processor_time();
    let mut times: Vec<Duration> = runtime.block_on(async {
        let mut ticks = tokio::time::interval(Duration::from_millis(1));
        let mut tasks = Vec::new();
        for _ in 0..seconds * 1000 {
            ticks.tick().await;
            for _ in 0..per_second / 1000 {
                let (journal, payload) = (Arc::clone(&journal), payload.clone());
                tasks.push(tokio::spawn(async move {
                    let start = now();
                    let position = journal.append(1, payload, Reserve::Normal).await.unwrap();
                    if position.sequence() % 10_000 == 0 {
                        journal.release(position);
                    }
                    start.elapsed()
                }));
            }
        }
        let mut times = Vec::new();
        for task in tasks {
            times.push(task.await.unwrap());
        }
        times
    });
    let used = processor_time() - used;
    times.sort_unstable();
    let at = |share: usize| times[(times.len() - 1) * share / 1000].as_micros();
    println!(
        "{per_second} records/s: commit p50 {} us, p99 {} us, p99.9 {} us, max {} us, \
         {:.1} records per commit, {:.1} us processor time per record",
        at(500),
        at(990),
        at(999),
        at(1000),
        times.len() as f64 / batches.load(Ordering::Relaxed) as f64,
        used.as_secs_f64() * 1e6 / times.len() as f64,
    );
}

fn main() {
    for (producers, records_each) in [(1, 3_000), (64, 4_000), (1024, 600), (8192, 100)] {
        throughput(producers, records_each);
    }
    steady(5_000, 10);
    steady(1_000, 10);
}
