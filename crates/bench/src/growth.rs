//! `postrider bench growth`: the cost of a delivery, the time of a start and the memory, as
//! subscriptions, destinations and waiting deliveries grow.
//!
//! Each point is a store that was filled before, and a server started on it. The measurement begins
//! after that.

use std::path::Path;
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use serde_json::{Value as Json, json};

use super::Scratch;
use super::fill::{self, Filling};
use super::load::{Load, Sent};
use super::process::{Helper, Server, new_key};
use super::receiver::{Ask, Report as Arrived};
use super::system::{Usage, resident_bytes};
use postrider_cli::exit::Failure;
use postrider_cli::output::{Output, line};
use postrider_cli::table::{Cell, Column, Table, wrapped};

#[derive(Debug, Args)]
pub(crate) struct Growth {
    /// Subscriptions at the point with many subscriptions.
    #[arg(long, default_value_t = 100_000, value_name = "N")]
    subscriptions: u64,
    /// Destinations at the point with many destinations; all get deliveries.
    #[arg(long, default_value_t = 50_000, value_name = "N")]
    destinations: u64,
    /// Waiting deliveries at the point with many waiting deliveries.
    #[arg(long, default_value_t = 5_000_000, value_name = "N")]
    waiting: u64,
    /// How long each point sends events, in batches of 100 as fast as they are accepted.
    #[arg(long, default_value_t = 5.0, value_name = "SECONDS")]
    seconds: f64,
    /// Directory for the data during the measurement.
    #[arg(long, default_value = ".", value_name = "DIRECTORY")]
    dir: std::path::PathBuf,
}

/// The results of a point.
#[derive(Debug, Clone, Serialize)]
struct Point {
    name: String,
    /// From the start of the process until it listens.
    start_ms: u128,
    /// From the start of the process until the first event sent afterwards has arrived.
    first_delivery_ms: u128,
    /// Memory right after the start.
    resident_bytes: u64,
    /// The peak memory.
    peak_bytes: u64,
    deliveries_per_second: f64,
    /// Processor time of the server.
    server_us: f64,
    lost: u64,
    repeated: u64,
}

pub(crate) fn run(growth: &Growth, output: Output) -> Result<(), Failure> {
    let scratch = Scratch::new(&growth.dir)?;
    let base = Filling { destinations: 1, ..Filling::default() };
    let points = [
        ("1 of each", base),
        (
            &*format!("{} subscriptions", growth.subscriptions),
            Filling { subscriptions: growth.subscriptions, ..base },
        ),
        (
            &*format!("{} destinations", growth.destinations),
            Filling { destinations: growth.destinations, ..base },
        ),
        (&*format!("{} waiting", growth.waiting), Filling { waiting: growth.waiting, ..base }),
    ]
    .map(|(name, filling)| (name.to_owned(), filling));
    let mut measured = Vec::new();
    for (number, (name, filling)) in points.into_iter().enumerate() {
        let data_dir = scratch.path().join(number.to_string());
        let point = measure(name, filling, &data_dir, growth.seconds)?;
        if !output.json {
            line(&format!("{}: {:.1} µs per delivery", point.name, point.server_us))?;
        }
        measured.push(point);
        std::fs::remove_dir_all(data_dir)?;
    }
    output.value(&json!({ "points": measured }), |_| show(&measured, output))?;
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "a measurement reads the machine's clock")]
fn measure(
    name: String,
    filling: Filling,
    data_dir: &Path,
    seconds: f64,
) -> Result<Point, Failure> {
    let mut receiver = Helper::start("receiver")?;
    let hello: Json = receiver.hear()?;
    let address = hello["address"].as_str().unwrap_or_default().to_owned();
    // A separate runtime, so that no thread of the store outlives the filling.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(fill::fill(data_dir, &address, filling))?;
    drop(runtime);
    let key = new_key()?;
    let begin = Instant::now();
    let mut server = Server::start(data_dir, None, &key)?;
    let start_ms = begin.elapsed().as_millis();
    let resident = resident_bytes(server.id());
    server.hear_no_more();
    let load = Load {
        servers: vec![server.address.clone()],
        key,
        tenant: "default".to_owned(),
        batch: 1,
        kinds: filling.destinations,
        payload_bytes: 500,
        connections: 1,
        rate: Some(100.0),
        seconds: 0.001,
        receiver: address,
        fan_out: 1,
        window: super::DEFAULT_WINDOW,
    };
    send(&mut receiver, &load)?;
    let first_delivery_ms = begin.elapsed().as_millis();
    let unlimited = Load { batch: 100, connections: 64, rate: None, seconds, ..load };
    send(&mut receiver, &Load { seconds: seconds / 4.0, ..unlimited.clone() })?;
    let before = Usage::of(server.id());
    let (sent, arrived) = send(&mut receiver, &unlimited)?;
    let used = Usage::of(server.id());
    server.stop()?;
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    let (deliveries, took, cpu) = (
        arrived.arrived.max(1) as f64,
        arrived.last_us.saturating_sub(sent.first_us).max(1) as f64 / 1e6,
        (used.cpu_us - before.cpu_us) as f64,
    );
    Ok(Point {
        name,
        start_ms,
        first_delivery_ms,
        resident_bytes: resident,
        peak_bytes: used.peak_bytes,
        deliveries_per_second: deliveries / took,
        server_us: cpu / deliveries,
        lost: arrived.lost,
        repeated: arrived.repeated,
    })
}

/// Sends events, and waits until everything has arrived or nothing more arrives.
fn send(receiver: &mut Helper, load: &Load) -> Result<(Sent, Arrived), Failure> {
    let _: Json = receiver.ask(&Ask::Begin { fan_out: 1 })?;
    let sent: Sent = Helper::task("load", load)?;
    if let Some(refusal) = &sent.refusal {
        return Err(Failure::failed(format!("events were refused: {refusal}")));
    }
    let arrived = receive(receiver, sent.events)?;
    Ok((sent, arrived))
}

/// Waits until the deliveries of this many events have arrived, or nothing more arrives.
#[expect(clippy::disallowed_methods, reason = "a measurement reads the machine's clock")]
pub(crate) fn receive(receiver: &mut Helper, events: u64) -> Result<Arrived, Failure> {
    let (mut seen, mut since) = (0, Instant::now());
    while seen < events && since.elapsed() < Duration::from_secs(20) {
        let count: Json = receiver.ask(&Ask::Count)?;
        let arrived = count["arrived"].as_u64().unwrap_or(0);
        if arrived > seen {
            (seen, since) = (arrived, Instant::now());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let report = Ask::Report { events, refused: Vec::new() };
    let arrived: Arrived = receiver.ask(&report)?;
    if arrived.lost + arrived.repeated + arrived.unexpected > 0 {
        return Err(Failure::failed(format!(
            "{} deliveries were lost, {} arrived more than once, {} were not owed",
            arrived.lost, arrived.repeated, arrived.unexpected
        )));
    }
    Ok(arrived)
}

fn show(points: &[Point], output: Output) -> String {
    let number = |head| Column::new(head).right();
    let mut table = Table::new(&[
        Column::new("POINT").cut(16),
        number("START"),
        number("FIRST"),
        number("PER S"),
        number("CPU"),
        number("LOST"),
        number("MB"),
        number("MB AT START").optional(),
    ]);
    let mb = |bytes: u64| (bytes / 1_000_000).to_string();
    for point in points {
        let cells = [
            point.name.clone(),
            format!("{} ms", point.start_ms),
            format!("{} ms", point.first_delivery_ms),
            format!("{:.0}", point.deliveries_per_second),
            format!("{:.1} µs", point.server_us),
            point.lost.to_string(),
            mb(point.peak_bytes),
            mb(point.resident_bytes),
        ];
        table.row(cells.into_iter().map(Cell::from).collect());
    }
    let legend = "START: until the server listens; FIRST: until its first delivery. PER S: deliveries, batches of \
                  100. CPU: processor time of the server per delivery. MB: its most memory.";
    let legend = wrapped(legend, output.width()).join("\n");
    format!("\n{}\n\n{legend}", table.shown(output))
}
