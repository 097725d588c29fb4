//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::commands::{
    audit, backup, deliveries, destinations, doctor, forecast, keys, listen, migrate, reference,
    replay, restore, send, subscriptions, tail,
};

const AFTER_HELP: &str = "\
Exit codes: 0 done · 1 failed · 2 wrong command line or configuration · 3 no such thing ·
4 key missing or not permitted · 5 server unreachable

With no configuration at all, `postrider serve` runs: an embedded durable store in
./postrider-data and the API on 127.0.0.1:8080.";

/// Delivers events to subscribers' URLs, reliably.
#[derive(Debug, Parser)]
#[command(name = "postrider", version, long_version = crate::VERSION, after_help = AFTER_HELP)]
pub(crate) struct Cli {
    /// Print JSON instead of words.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the server.
    Serve(ServerArgs),
    /// Start a demonstration: a server, receivers that misbehave on purpose, and traffic.
    Demo(crate::demo::Demo),
    /// Print the effective configuration with the origin of each value.
    Config(ServerArgs),
    /// Send an event.
    Send(Remote<send::Send>),
    /// Receive deliveries here, verify and print them.
    Listen(listen::Listen),
    /// Follow attempts live.
    Tail(Remote<tail::Tail>),
    /// Create, show and change subscriptions.
    Subscriptions(Remote<subscriptions::Subscriptions>),
    /// Show destinations, enable and freeze them.
    Destinations(Remote<destinations::Destinations>),
    /// Show deliveries, explain, retry, replay and cancel them.
    Deliveries(Remote<deliveries::Deliveries>),
    /// Replay many deliveries.
    Replay(Remote<replay::Replay>),
    /// Create, list and delete API keys.
    Keys(Remote<keys::Keys>),
    /// Show the audit log: who changed what.
    Audit(Remote<audit::Audit>),
    /// Make a backup of all data, also while a server is running.
    Backup(Remote<backup::Backup>),
    /// Create a data directory from a backup.
    Restore(restore::Restore),
    /// Forecast what a policy does while a URL is down: table and chart.
    #[command(name = "simulate")]
    Forecast(forecast::ForecastArgs),
    /// Show the key ring of secrets at rest, or add a key to it.
    Keyring(crate::commands::keyring::Keyring),
    /// Serve an assistant by the Model Context Protocol, on standard input and output.
    Mcp(Remote<crate::commands::mcp::Mcp>),
    /// Find problems: configuration, files, server, key, ledger.
    Doctor(doctor::Doctor),
    /// Measure this machine: deliveries per second, latency, cost, and the limit of HTTP itself.
    Bench(Box<postrider_bench::Bench>),
    /// Move all data to another store: from a data directory to PostgreSQL, or back.
    Migrate(migrate::Migrate),
    /// Print the version.
    Version,
    /// Print a page of the reference, for `cargo xtask reference`.
    #[command(hide = true)]
    Reference(reference::Reference),
    /// Print the completions of a shell, to be put where that shell looks for them.
    Completions {
        /// Which shell.
        shell: clap_complete::Shell,
    },
    /// Write the man pages into a directory.
    #[command(hide = true)]
    Man {
        /// An existing directory.
        directory: PathBuf,
    },
}

/// The arguments that configure the server.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ServerArgs {
    /// Configuration file (TOML); also POSTRIDER_CONFIG.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Address of the API and the dashboard.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<String>,
    /// Directory for all data on this machine.
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) data_dir: Option<String>,
    /// The store: `embedded`, or the address of a PostgreSQL database.
    #[arg(long, value_name = "STORE")]
    pub(crate) store: Option<String>,
    /// Certificate chain of the API (PEM), which enables TLS. Read again when it changes.
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_cert: Option<String>,
    /// Private key of the certificate (PEM).
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_key: Option<String>,
    /// For development: allows receivers on loopback, and plain http.
    #[arg(long)]
    pub(crate) dev: bool,
    /// Divide the policy's durations by N, for demonstrations; with --dev only.
    #[arg(long, value_name = "N")]
    pub(crate) time_scale: Option<String>,
    /// Any other setting, as in --set retry.max=11; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
}

/// A command that talks to a server.
#[derive(Debug, Args)]
pub(crate) struct Remote<T: Args> {
    #[command(flatten)]
    pub(crate) connection: Connection,
    #[command(flatten)]
    pub(crate) command: T,
}

/// The server, the key and the tenant.
#[derive(Debug, Clone, Args)]
pub(crate) struct Connection {
    /// The server's URL; also POSTRIDER_SERVER.
    #[arg(long, value_name = "URL", global = true)]
    pub(crate) server: Option<String>,
    /// The API key; prefer POSTRIDER_KEY, which other users of this machine cannot see.
    #[arg(long, global = true)]
    pub(crate) key: Option<String>,
    /// The tenant to act for, with an admin key; also POSTRIDER_TENANT.
    #[arg(long = "as", value_name = "TENANT", global = true)]
    pub(crate) tenant: Option<String>,
    /// Directory with admin.key, which is used if no other key is given.
    #[arg(long, value_name = "DIRECTORY", global = true, default_value = "./postrider-data")]
    pub(crate) data_dir: PathBuf,
}
