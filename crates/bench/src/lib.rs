//! `postrider bench`: measures throughput, latency and cost of deliveries, compared with what HTTP
//! itself allows on the same machine.
//!
//! Load generator, server, receiver and the bare client are separate processes of this program on
//! loopback. **A scenario fails if an accepted event did not arrive, or arrived twice**, whatever
//! its figures.

mod ceiling;
mod drain;
mod ending;
mod fill;
mod growth;
mod http;
mod load;
mod message;
mod nodes;
mod plan;
mod process;
mod receiver;
mod report;
mod run;
mod system;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use self::plan::Extent;
use self::report::Report;
use postrider_cli::exit::Failure;
use postrider_cli::output::Output;

/// The arguments of `postrider bench`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Bench {
    #[command(subcommand)]
    part: Option<Part>,
    #[command(flatten)]
    settings: Settings,
}

/// Other measurements, and the processes of a measurement.
#[derive(Debug, Subcommand)]
enum Part {
    /// The cost of a delivery as subscriptions, destinations and waiting deliveries grow.
    Growth(growth::Growth),
    /// How fast deliveries that wait for their first attempt are sent after a start.
    Drain(drain::Drain),
    /// The load generator.
    #[command(hide = true)]
    Load,
    /// The receiver.
    #[command(hide = true)]
    Receiver,
    /// The bare HTTP client.
    #[command(hide = true)]
    Ceiling,
    /// Another command of this program that ends with its parent process.
    #[command(hide = true)]
    Attached {
        parent: u32,
        #[arg(last = true)]
        arguments: Vec<String>,
    },
}

/// The default window: as many deliveries as a destination's lane holds in memory.
const DEFAULT_WINDOW: u64 = 4_000;

#[derive(Debug, Args)]
struct Settings {
    /// Half a second of everything: to see that it works, not how fast it is.
    #[arg(long)]
    quick: bool,
    /// How long each scenario sends events.
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<f64>,
    /// Only the scenarios whose name contains this; may be repeated.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// The store: an empty PostgreSQL database, or the embedded store.
    #[arg(long, value_name = "STORE")]
    store: Option<String>,
    /// Number of servers that share the database and the load.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=64))]
    nodes: u64,
    /// Concurrent requests.
    #[arg(long, default_value_t = 64, value_name = "N")]
    connections: u64,
    /// The most deliveries on their way when events are sent as fast as possible; 0 for no limit,
    /// which measures how a queue is worked off rather than a sustainable rate.
    #[arg(long, default_value_t = DEFAULT_WINDOW, value_name = "N")]
    window: u64,
    /// Directory for the data; on a disk, not in memory, for meaningful figures.
    #[arg(long, default_value = ".", value_name = "DIRECTORY")]
    dir: PathBuf,
}

impl Settings {
    fn extent(&self) -> Result<Extent, Failure> {
        let extent = if self.quick { Extent::QUICK } else { Extent::FULL };
        match self.seconds {
            None => Ok(extent),
            Some(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(Extent { seconds, ..extent }),
            Some(_) => Err(Failure::usage("--seconds must be between 0.1 and 3600")),
        }
    }
}

/// Measures, or runs as one of the processes of a measurement.
pub fn run(bench: &Bench, output: Output) -> Result<(), Failure> {
    match &bench.part {
        None => {
            ending::watch()?;
            measure(&bench.settings, output)
        }
        Some(Part::Growth(growth)) => {
            ending::watch()?;
            growth::run(growth, output)
        }
        Some(Part::Drain(drain)) => {
            ending::watch()?;
            drain::run(drain, output)
        }
        Some(Part::Load) => load::run(),
        Some(Part::Receiver) => receiver::run(),
        Some(Part::Ceiling) => ceiling::run(),
        Some(Part::Attached { parent, arguments }) => ending::become_attached(*parent, arguments),
    }
}

fn measure(settings: &Settings, output: Output) -> Result<(), Failure> {
    let extent = settings.extent()?;
    let wanted = |name: &str| {
        settings.only.is_empty() || settings.only.iter().any(|only| name.contains(only.as_str()))
    };
    let all = plan::scenarios(extent);
    let names: Vec<_> = all.iter().map(|one| one.name.clone()).collect();
    let scenarios: Vec<_> = all.into_iter().filter(|one| wanted(&one.name)).collect();
    if scenarios.is_empty() {
        let message = format!(
            "no scenario has {} in its name\nthere are: {}",
            settings.only.join(" or "),
            names.join("; ")
        );
        return Err(Failure::usage(message));
    }
    if settings.nodes > 1 && settings.store.is_none() {
        return Err(Failure::usage("several nodes share a database: give --store postgres://…"));
    }
    let scratch = Scratch::new(&settings.dir)?;
    let mut bench = run::Run::new(settings, extent, scratch.path())?;
    let mut report = Report::new(settings.nodes, bench.sees_postgres());
    for scenario in scenarios {
        let measured = bench.measure(&scenario)?;
        report.add(measured, output)?;
    }
    bench.end()?;
    report.finish(output)
}

/// A directory that is removed when the measurement ends.
struct Scratch(PathBuf);

impl Scratch {
    fn new(parent: &Path) -> Result<Scratch, Failure> {
        let path = parent.join(format!("postrider-bench-{}", std::process::id()));
        std::fs::create_dir_all(&path)
            .map_err(|error| Failure::failed(format!("{}: {error}", path.display())))?;
        ending::keep_in_mind(&path);
        Ok(Scratch(path))
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // If it cannot be removed, it stays.
        drop(std::fs::remove_dir_all(&self.0));
    }
}
