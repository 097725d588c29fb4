//! `postrider bench drain`: how fast a server sends the deliveries that waited for their first
//! attempt when it started, while no new events arrive.
//!
//! The store is filled before; the measurement begins with the start of the server.

use std::path::Path;

use clap::Args;
use serde::Serialize;
use serde_json::{Value as Json, json};

use super::Scratch;
use super::fill::{self, Filling};
use super::growth::receive;
use super::message::now_us;
use super::process::{Helper, Server, new_key};
use super::receiver::Ask;
use super::system::Usage;
use postrider_cli::exit::Failure;
use postrider_cli::output::Output;
use postrider_cli::table::{Cell, Column, Table};

#[derive(Debug, Args)]
pub(crate) struct Drain {
    /// Queued deliveries, each of an event of its own.
    #[arg(long, default_value_t = 400_000, value_name = "N")]
    queued: u64,
    /// Destinations that share them.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    destinations: u64,
    /// Bytes of the data of each event.
    #[arg(long, default_value_t = 500, value_name = "BYTES")]
    payload_bytes: u64,
    /// Directory for the data during the measurement.
    #[arg(long, default_value = ".", value_name = "DIRECTORY")]
    dir: std::path::PathBuf,
}

/// The result.
#[derive(Debug, Clone, Copy, Serialize)]
struct Drained {
    deliveries: u64,
    /// From the start of the process until the last delivery arrived.
    seconds: f64,
    deliveries_per_second: f64,
    /// Processor time of the server per delivery.
    server_us: f64,
    /// The peak memory of the server.
    peak_bytes: u64,
}

pub(crate) fn run(drain: &Drain, output: Output) -> Result<(), Failure> {
    let scratch = Scratch::new(&drain.dir)?;
    let drained = measure(drain, scratch.path())?;
    output.value(&json!(drained), |_| show(drained, output))?;
    Ok(())
}

fn measure(drain: &Drain, data_dir: &Path) -> Result<Drained, Failure> {
    let mut receiver = Helper::start("receiver")?;
    let hello: Json = receiver.hear()?;
    let address = hello["address"].as_str().unwrap_or_default().to_owned();
    let (queued, payload_bytes) = (drain.queued, drain.payload_bytes);
    let filling =
        Filling { destinations: drain.destinations, queued, payload_bytes, ..Filling::default() };
    // A separate runtime, so that no thread of the store outlives the filling.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(fill::fill(data_dir, &address, filling))?;
    drop(runtime);
    let _: Json = receiver.ask(&Ask::Begin { fan_out: 1 })?;
    let key = new_key()?;
    let begin_us = now_us();
    let mut server = Server::start(data_dir, None, &key)?;
    server.hear_no_more();
    let arrived = receive(&mut receiver, queued)?;
    let used = Usage::of(server.id());
    server.stop()?;
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    let (deliveries, seconds, cpu_us) = (
        queued.max(1) as f64,
        arrived.last_us.saturating_sub(begin_us).max(1) as f64 / 1e6,
        used.cpu_us as f64,
    );
    Ok(Drained {
        deliveries: queued,
        seconds,
        deliveries_per_second: deliveries / seconds,
        server_us: cpu_us / deliveries,
        peak_bytes: used.peak_bytes,
    })
}

fn show(drained: Drained, output: Output) -> String {
    let number = |head| Column::new(head).right();
    let heads = ["QUEUED", "SECONDS", "PER S", "CPU", "MB"].map(number);
    let mut table = Table::new(&heads);
    let cells = [
        drained.deliveries.to_string(),
        format!("{:.2}", drained.seconds),
        format!("{:.0}", drained.deliveries_per_second),
        format!("{:.1} µs", drained.server_us),
        (drained.peak_bytes / 1_000_000).to_string(),
    ];
    table.row(cells.into_iter().map(Cell::from).collect());
    table.shown(output)
}
