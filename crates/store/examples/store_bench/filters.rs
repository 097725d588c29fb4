//! Measures a page of 50 deliveries for every combination of filters, with the indexes that a day's
//! file has now and with those of an earlier version, in turns.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use postrider_domain::delivery::{CancelReason, Delivery, StateName};
use postrider_domain::event::RawJson;
use postrider_domain::time::Timestamp;
use postrider_store::{Commit, DeliveryChange, DeliveryFilter, History, PageRequest, Upkeep};
use tokio::runtime::Runtime;

use super::world::{DAY, World, now};
use super::{Table, ms, open};

/// The type of event `n`; one type is rare.
fn kind_of(n: u64) -> &'static str {
    match n {
        n if n % 10_007 == 0 => "rare",
        n if n.is_multiple_of(2) => "even",
        _ => "odd",
    }
}

async fn fill(store: &impl postrider_store::Store, world: &World, count: u64) {
    let leases = store.hold_shards().await.unwrap();
    for first in (0..count).step_by(2_000) {
        let made: Vec<_> = (first..(first + 2_000).min(count))
            .map(|n| {
                let mut made = world.acceptance(n, n / 20);
                let event = Arc::make_mut(&mut made.event);
                event.data = RawJson::from_trusted("{}".into());
                event.kind = kind_of(n).parse().unwrap();
                made.deliveries[0].kind = event.kind.clone();
                made
            })
            .collect();
        let deliveries: Vec<Delivery> = made.iter().map(|a| a.deliveries[0].clone()).collect();
        store.accept(made).await.unwrap();
        let (mut arrived, mut others) = (Vec::new(), Vec::new());
        for (n, delivery) in (first..).zip(deliveries) {
            // No delivery of the last destination succeeds, so a list of its delivered ones has to
            // skip every row.
            if n % 20 == 19 || n % 5_003 == 0 {
                let after = delivery.cancelled(CancelReason::Asked, delivery.created_at).unwrap();
                let before = StateName::Queued;
                others.push(DeliveryChange {
                    before,
                    by_job: None,
                    delivery: after,
                    attempt: None,
                });
            } else {
                arrived.push(delivery);
            }
        }
        store.settle(&leases, world.arrived(arrived)).await.unwrap();
        let commit = Commit { deliveries: others, ..Commit::default() };
        store.settle(&leases, commit).await.unwrap();
    }
    store.ledger(None).await.unwrap();
}

/// Every combination of state, route and time.
fn combinations(world: &World) -> Vec<(String, DeliveryFilter)> {
    let states = [
        ("any state", None),
        ("delivered", Some(StateName::Delivered)),
        ("cancelled", Some(StateName::Cancelled)),
        ("dead (none)", Some(StateName::Dead)),
    ];
    let rare = || Some("rare".parse().unwrap());
    let (some, bad) = (world.destination(7), world.destination(19));
    let any = DeliveryFilter::default;
    let routes = [
        ("", any()),
        ("subscription", DeliveryFilter { subscription: Some(world.subscription(7)), ..any() }),
        ("destination", DeliveryFilter { destination: Some(some), ..any() }),
        ("failing destination", DeliveryFilter { destination: Some(bad), ..any() }),
        ("rare type", DeliveryFilter { kind: rare(), ..any() }),
        (
            "destination, rare type",
            DeliveryFilter { destination: Some(some), kind: rare(), ..any() },
        ),
    ];
    let at = |ms| Some(Timestamp::from_unix_ms(DAY.as_unix_ms() + ms));
    let times = [("", None, None), ("since, until", at(1_000), at(20_000))];
    let mut all = Vec::new();
    for (state_name, state) in states {
        for (route_name, route) in &routes {
            for (time_name, since, until) in times {
                let name = [state_name, route_name, time_name];
                let name = name.into_iter().filter(|part| !part.is_empty());
                let name = name.collect::<Vec<_>>().join(", ");
                all.push((name, DeliveryFilter { state, since, until, ..route.clone() }));
            }
        }
    }
    all
}

/// Gives the day's file the index by route and state, or the index by route alone.
fn keep_states(data: &Path, by_state: bool) {
    for entry in std::fs::read_dir(data.join("history")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "db") {
            let connection = rusqlite::Connection::open(&path).unwrap();
            let sql = if by_state {
                "DROP INDEX IF EXISTS deliveries_by_route;
                CREATE INDEX IF NOT EXISTS deliveries_of_route ON deliveries (route, state);"
            } else {
                "DROP INDEX IF EXISTS deliveries_of_route;
                CREATE INDEX IF NOT EXISTS deliveries_by_route ON deliveries (route);"
            };
            connection.execute_batch(sql).unwrap();
        }
    }
}

pub(crate) fn filters(runtime: &Runtime, data: &Path, count: u64, table: &mut Table) {
    let world = World::new(20);
    let store = open(data);
    runtime.block_on(fill(&*store, &world, count));
    runtime.block_on(store.close()).unwrap();
    drop(store);
    let combinations = combinations(&world);
    let mut figures: Vec<[Vec<Duration>; 2]> =
        combinations.iter().map(|_| [Vec::new(), Vec::new()]).collect();
    for turn in 0..4 {
        keep_states(data, turn % 2 == 0);
        let store = open(data);
        for ((_, filter), figures) in combinations.iter().zip(&mut figures) {
            let page = PageRequest { limit: 50, cursor: None };
            let mut took = Vec::new();
            for _ in 0..3 {
                let start = now();
                let listed = store.list_deliveries(world.tenant(), filter, &page);
                runtime.block_on(listed).unwrap();
                took.push(start.elapsed());
            }
            // The first of three runs is left out: its cache is cold.
            figures[turn % 2].extend(took.into_iter().skip(1).min());
        }
        runtime.block_on(store.close()).unwrap();
    }
    for ((name, _), [after, before]) in combinations.into_iter().zip(figures) {
        let least = |figures: Vec<Duration>| figures.into_iter().min().map(ms).unwrap_or_default();
        let figure = format!("{} now, {} before", least(after), least(before));
        table.add(format!("a page of 50 among {count}: {name}"), figure, "");
    }
}
