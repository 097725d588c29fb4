//! How fast the embedded store is on this machine, and how much it needs.
//!
//! ```text
//! cargo run --release -p postrider-store --example store_bench -- all
//! … throughput 400000   whole lives: processor time and bytes written
//! … throughput 40000 20000   the same with payloads of 20 KB
//! … steady 5000 10      acknowledgements at 5,000 events a second for 10 seconds
//! … waiting 5000000     a backlog: memory, opening, the next 1,000 due, rescheduling
//! … lists 10000000      pages of 50 among that many attempts, then removing the day
//! … filters 1000000    pages of 50 by every combination of filters, with the indexes of now and before
//! … ids 30 20000        chosen identifiers: days that are kept, events that are sent
//! ```
//!
//! Everything is written below `target` in the working directory, so that it is on a disk.

#![expect(clippy::print_stdout, reason = "it prints its figures")]
#![expect(clippy::unwrap_used, reason = "a measurement that cannot run should stop")]
#![expect(clippy::cast_precision_loss, reason = "figures for people")]

mod filters;
mod world;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use postrider_domain::delivery::{Delivery, StateName};
use postrider_domain::time::Timestamp;
use postrider_store::embedded::{EmbeddedOptions, EmbeddedStore};
use postrider_store::{
    Commit, DeliveryFilter, DueMark, EventFilter, History, Intake, PageRequest, Upkeep,
    WaitingOrder, Work,
};
use tokio::runtime::Runtime;
use world::{DAY, PAYLOAD_BYTES, World, memory_mb, now, processor_time, written_bytes};

const BATCH: u64 = 100;

/// The allocator of the server.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mode = arguments.next().unwrap_or_else(|| "throughput".to_owned());
    let mut number = |default| arguments.next().map_or(default, |n| n.parse().unwrap());
    let modes: Vec<&str> = match mode.as_str() {
        "all" => vec!["throughput", "steady", "ids", "waiting", "lists"],
        one @ ("throughput" | "steady" | "waiting" | "lists" | "filters" | "ids") => vec![one],
        other => {
            println!(
                "unknown mode {other}: all, throughput, steady, waiting, lists, filters or ids"
            );
            return;
        }
    };
    std::fs::create_dir_all("target").unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = { runtime }.worker_threads(2).enable_all().build().unwrap();
    let mut table = Table::default();
    for mode in modes {
        // Each measurement has a directory of its own, which is removed before the next one begins.
        let directory = tempfile::tempdir_in("target").unwrap();
        let data = directory.path().join("data");
        match mode {
            "throughput" => {
                let (count, bytes) = (number(400_000), number(PAYLOAD_BYTES));
                throughput(&runtime, &data, count, bytes, &mut table);
            }
            "steady" => steady(&runtime, &data, number(5_000), number(10), &mut table),
            "waiting" => waiting(&runtime, &data, number(5_000_000), &mut table),
            "lists" => lists(&runtime, &data, number(10_000_000), &mut table),
            "filters" => filters::filters(&runtime, &data, number(1_000_000), &mut table),
            _ => ids(&runtime, &data, number(30), number(20_000), &mut table),
        }
        table.print(mode);
    }
}

/// Rows of the report: name, measured value, target.
#[derive(Default)]
struct Table(Vec<(String, String, &'static str)>);

impl Table {
    fn add(&mut self, what: impl Into<String>, figure: String, target: &'static str) {
        self.0.push((what.into(), figure, target));
    }

    /// Prints the rows since the last call.
    fn print(&mut self, mode: &str) {
        println!("\n| {mode} | figure | target |\n|---|---|---|");
        for (what, figure, target) in self.0.drain(..) {
            println!("| {what} | {figure} | {target} |");
        }
    }
}

fn ms(duration: Duration) -> String {
    format!("{:.2} ms", duration.as_secs_f64() * 1e3)
}

fn open(data: &Path) -> Arc<EmbeddedStore> {
    EmbeddedStore::open(data, EmbeddedOptions::default()).unwrap()
}

fn per(duration: Duration, n: u64) -> f64 {
    duration.as_secs_f64() * 1e6 / n as f64
}

/// Whole lives of deliveries: accepted singly or in batches by many callers, settled in batches.
fn throughput(runtime: &Runtime, data: &Path, count: u64, payload: u64, table: &mut Table) {
    for (name, batch) in [("single events", 1u64), ("batches of 100", BATCH)] {
        let data = data.join(batch.to_string());
        let store = open(&data);
        let world = Arc::new(World::with_payloads(100, payload));
        let leases = runtime.block_on(store.hold_shards()).unwrap();
        // Building the values is not the store's work: its processor time is measured and
        // subtracted.
        let (start, used) = (now(), processor_time());
        for n in (0..count).step_by(100) {
            let made: Vec<_> = (n..n + 100).map(|n| world.acceptance(n, n / 20)).collect();
            let deliveries = made.iter().map(|a| a.deliveries[0].clone()).collect();
            std::hint::black_box((world.arrived(deliveries), made));
        }
        let (making, _) = (processor_time() - used, start);
        let (start, used, written) = (now(), processor_time(), written_bytes());
        let tasks = 64;
        let each = count / tasks;
        let (accepted, mut to_settle) = tokio::sync::mpsc::unbounded_channel();
        for task in 0..tasks {
            let (store, world, accepted) =
                (Arc::clone(&store), Arc::clone(&world), accepted.clone());
            runtime.spawn(async move {
                for n in (0..each).step_by(usize::try_from(batch).unwrap()) {
                    let made: Vec<_> = (n..(n + batch).min(each))
                        .map(|n| world.acceptance(n * tasks + task, (n * tasks) / 20))
                        .collect();
                    let deliveries: Vec<_> = made.iter().map(|a| a.deliveries[0].clone()).collect();
                    store.accept(made).await.unwrap();
                    accepted.send(deliveries).unwrap();
                }
            });
        }
        drop(accepted);
        // Settles together the deliveries that have ended meanwhile, as the engine does.
        runtime.block_on(async {
            let mut waiting = Vec::new();
            while to_settle.recv_many(&mut waiting, 100).await > 0 {
                let commit = world.arrived(waiting.drain(..).flatten().collect());
                store.settle(&leases, commit).await.unwrap();
            }
        });
        let acknowledged = start.elapsed();
        let ledger = runtime.block_on(store.ledger(None)).unwrap();
        let (applied, used) = (start.elapsed(), processor_time() - used);
        runtime.block_on(store.close()).unwrap();
        let total = each * tasks;
        assert_eq!((ledger.accepted, ledger.delivered), (total, total));
        let rate = |took: Duration| format!("{:.0}/s", total as f64 / took.as_secs_f64());
        let each = format!("{:.2} µs", per(used.saturating_sub(making), total));
        table.add(format!("{name}: processor time per delivery"), each, "6 µs");
        let bytes = (written_bytes() - written) as f64 / total as f64;
        table.add(format!("{name}: written per delivery"), format!("{bytes:.0} bytes"), "3 KB");
        table.add(format!("{name}: acknowledged"), rate(acknowledged), "");
        table.add(format!("{name}: applied"), rate(applied), "");
    }
}

/// Acknowledgements at a steady rate, with settlements beside them.
fn steady(runtime: &Runtime, data: &Path, rate: u64, seconds: u64, table: &mut Table) {
    let store = open(data);
    let world = Arc::new(World::new(100));
    let mut times: Vec<Duration> = runtime.block_on(async {
        let leases = store.hold_shards().await.unwrap();
        let mut ticks = tokio::time::interval(Duration::from_millis(1));
        let mut handles = Vec::new();
        let mut n = 0;
        for ms in 0..seconds * 1000 {
            ticks.tick().await;
            let mut together = Vec::new();
            while n < (ms + 1) * rate / 1000 {
                let made = world.acceptance(n, ms);
                together.push(made.deliveries[0].clone());
                let store = Arc::clone(&store);
                handles.push(tokio::spawn(async move {
                    let start = now();
                    store.accept(vec![made]).await.unwrap();
                    start.elapsed()
                }));
                n += 1;
            }
            let (store, leases) = (Arc::clone(&store), leases.clone());
            let commit = world.arrived(together);
            drop(tokio::spawn(async move { store.settle(&leases, commit).await.unwrap() }));
        }
        let mut times = Vec::new();
        for handle in handles {
            times.push(handle.await.unwrap());
        }
        times
    });
    times.sort_unstable();
    let at = |share: usize| ms(times[(times.len() - 1) * share / 1000]);
    let name = format!("{rate} events/s for {seconds} s, acknowledged after");
    for (share, which) in [(500, "p50"), (990, "p99"), (999, "p99.9"), (1000, "at most")] {
        table.add(format!("{name}, {which}"), at(share), "");
    }
    table.add("memory", format!("{} MB", memory_mb()), "");
    runtime.block_on(store.close()).unwrap();
}

/// Accepts `count` deliveries and fails each once, so that each is due at its own time.
async fn fill_waiting(store: &EmbeddedStore, world: &World, count: u64) {
    let leases = store.hold_shards().await.unwrap();
    for first in (0..count).step_by(2_000) {
        let made: Vec<_> = (first..(first + 2_000).min(count))
            .map(|n| {
                let mut made = world.acceptance(n, n / 100);
                // The queue does not hold payloads, so small ones make the same queue.
                let event = Arc::make_mut(&mut made.event);
                event.data = postrider_domain::event::RawJson::from_trusted("{}".into());
                made
            })
            .collect();
        let due = |n: u64| {
            let ms = 90_000_000 + i64::try_from(n.wrapping_mul(7_919) % 3_600_000).unwrap();
            Timestamp::from_unix_ms(DAY.as_unix_ms() + ms)
        };
        let deliveries: Vec<Delivery> = made.iter().map(|a| a.deliveries[0].clone()).collect();
        store.accept(made).await.unwrap();
        let changes = (first..).zip(deliveries).map(|(n, d)| world.failed(d, due(n)));
        let commit = Commit { deliveries: changes.collect(), ..Commit::default() };
        store.settle(&leases, commit).await.unwrap();
    }
}

fn waiting(runtime: &Runtime, data: &Path, count: u64, table: &mut Table) {
    let world = World::new(1_000);
    let store = open(data);
    let start = now();
    runtime.block_on(fill_waiting(&store, &world, count));
    runtime.block_on(store.close()).unwrap();
    drop(store);
    let made = format!("{:.0} s", start.elapsed().as_secs_f64());
    table.add(format!("{count} deliveries made to wait"), made, "");
    let start = now();
    let store = open(data);
    let opened = start.elapsed();
    runtime.block_on(async {
        let leases = store.hold_shards().await.unwrap();
        let start = now();
        let mut due = store.due(&leases, None, Timestamp::MAX, 1_000).await.unwrap();
        let first = start.elapsed();
        assert_eq!(due.len(), 1_000);
        let start = now();
        for _ in 0..20 {
            let last = due.last().unwrap();
            let mark = DueMark { at: last.next_attempt_at().unwrap(), delivery: last.id };
            due = store.due(&leases, Some(mark), Timestamp::MAX, 1_000).await.unwrap();
        }
        let next = start.elapsed() / 20;
        let start = now();
        for _ in 0..20 {
            let later = |d: Delivery| world.failed(d, Timestamp::from_unix_ms(i64::MAX / 4));
            let deliveries = due.drain(..).map(later).collect();
            store.settle(&leases, Commit { deliveries, ..Commit::default() }).await.unwrap();
            due = store.due(&leases, None, Timestamp::MAX, 1_000).await.unwrap();
        }
        let again = start.elapsed() / 20;
        let start = now();
        for n in 0..100 {
            let order = WaitingOrder::ProbeRank;
            let probe = store.waiting_of(world.destination(n), order, 1).await.unwrap();
            assert_eq!(probe.len(), 1);
        }
        let probe = start.elapsed() / 100;
        table.add("opened", ms(opened), "");
        table.add("the first 1,000 due", ms(first), "");
        table.add("start to the first due", ms(opened + first), "5 s");
        table.add("the next 1,000 due", ms(next), "");
        table.add("1,000 rescheduled, and the next taken", ms(again), "");
        table.add("a probe found", ms(probe), "");
        table.add("memory", format!("{} MB", memory_mb()), "300 MB");
        store.close().await.unwrap();
    });
}

fn lists(runtime: &Runtime, data: &Path, count: u64, table: &mut Table) {
    let store = open(data);
    let world = World::new(1_000);
    let start = now();
    runtime.block_on(async {
        let leases = store.hold_shards().await.unwrap();
        for first in (0..count).step_by(2_000) {
            let made: Vec<_> = (first..(first + 2_000).min(count))
                .map(|n| {
                    let mut made = world.acceptance(n, n / 200);
                    let event = Arc::make_mut(&mut made.event);
                    event.data = postrider_domain::event::RawJson::from_trusted("{}".into());
                    made
                })
                .collect();
            let deliveries = made.iter().map(|a| a.deliveries[0].clone()).collect();
            store.accept(made).await.unwrap();
            store.settle(&leases, world.arrived(deliveries)).await.unwrap();
        }
        store.ledger(None).await.unwrap();
    });
    let made = format!("{:.0} s", start.elapsed().as_secs_f64());
    table.add(format!("{count} attempts made"), made, "");
    let filters = [
        ("all", DeliveryFilter::default()),
        ("delivered", DeliveryFilter { state: Some(StateName::Delivered), ..Default::default() }),
        ("dead (none)", DeliveryFilter { state: Some(StateName::Dead), ..Default::default() }),
        (
            "one destination",
            DeliveryFilter { destination: Some(world.destination(7)), ..Default::default() },
        ),
    ];
    runtime.block_on(async {
        for (name, filter) in filters {
            let mut page = PageRequest { limit: 50, cursor: None };
            let (start, mut pages) = (now(), 0u32);
            while pages < 20 {
                let found = store.list_deliveries(world.tenant(), &filter, &page).await.unwrap();
                pages += 1;
                page.cursor = found.next;
                if page.cursor.is_none() {
                    break;
                }
            }
            let took = start.elapsed() / pages;
            table.add(format!("a page of 50 deliveries, {name}"), ms(took), "");
        }
        let page = PageRequest { limit: 50, cursor: None };
        let start = now();
        let found = store.list_events(world.tenant(), &EventFilter::default(), &page).await;
        assert_eq!(found.unwrap().items.len(), 50);
        table.add("a page of 50 events", ms(start.elapsed()), "");
        let kind = Some("task.updated".parse().unwrap());
        let filter = EventFilter { kind, ..EventFilter::default() };
        let start = now();
        let found = store.list_events(world.tenant(), &filter, &page).await;
        assert_eq!(found.unwrap().items.len(), 50);
        table.add("a page of 50 events of a type", ms(start.elapsed()), "");
        let start = now();
        let pruned = store.prune(Timestamp::MAX).await.unwrap();
        assert_eq!(pruned.attempts, count);
        table.add("the day removed", ms(start.elapsed()), "");
        store.close().await.unwrap();
    });
}

/// Accepts `count` events with identifiers that the application chose, while `days` days are kept.
fn ids(runtime: &Runtime, data: &Path, days: u64, count: u64, table: &mut Table) {
    let store = open(data);
    let world = World::new(100);
    runtime.block_on(async {
        let chosen = |n: u64, ms: u64, name: String| {
            let mut made = world.acceptance(n, ms);
            Arc::make_mut(&mut made.event).id = name.parse().unwrap();
            made.deliveries.clear();
            postrider_store::Acceptance { id_given: true, ..made }
        };
        for day in 0..days {
            let ms = day * 86_400_000;
            let made = (0..1_000).map(|n| chosen(n, ms, format!("old-{day}-{n}"))).collect();
            store.accept(made).await.unwrap();
        }
        store.ledger(None).await.unwrap();
        let last = (days - 1) * 86_400_000 + 1_000;
        for (name, what) in [("new", "a new one"), ("new", "one of the last day again")] {
            let used = processor_time();
            for n in (0..count).step_by(100) {
                let made =
                    (n..n + 100).map(|n| chosen(n, last + n / 20, format!("{name}-{n}"))).collect();
                store.accept(made).await.unwrap();
            }
            store.ledger(None).await.unwrap();
            let each = format!("{:.2} µs", per(processor_time() - used, count));
            table.add(format!("{days} days kept, chosen identifiers: {what}"), each, "");
        }
        let used = processor_time();
        for n in (0..count).step_by(100) {
            let made = (n..n + 100).map(|n| {
                let day = n % days;
                chosen(n % 1_000, day * 86_400_000, format!("old-{day}-{}", n % 1_000))
            });
            store.accept(made.collect()).await.unwrap();
        }
        let each = format!("{:.2} µs", per(processor_time() - used, count));
        table.add(format!("{days} days kept, chosen identifiers: one of any day again"), each, "");
        store.close().await.unwrap();
    });
}
