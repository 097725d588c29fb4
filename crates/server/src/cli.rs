//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::styling::Styles;
use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};

use crate::commands::{
    alerts, audit, backup, deliveries, destinations, doctor, erase, event_types, events, forecast,
    keys, listen, migrate, reference, replay, restore, send, subscriptions, tail, tenants,
};
use crate::output::ColourChoice;

const AFTER_HELP: &str = "\
Exit codes: 0 done · 1 failed · 2 wrong command line or configuration · 3 no such thing ·
4 key missing or not permitted · 5 server unreachable

With no configuration at all, `postrider serve` runs: an embedded durable store in
./postrider-data and the API on 127.0.0.1:8080.";

/// The commands by what they are for, as `postrider --help` lists them. What is in no group is listed
/// last.
const GROUPS: [(&str, &[&str]); 5] = [
    ("Run a server", &["serve", "demo", "config", "doctor"]),
    ("Send and receive", &["send", "listen", "tail"]),
    (
        "Look and act",
        &["subscriptions", "destinations", "deliveries", "events", "event-types", "replay", "mcp"],
    ),
    (
        "Administer",
        &["tenants", "keys", "audit", "alerts", "erase", "backup", "restore", "migrate", "keyring"],
    ),
    ("Plan", &["simulate", "bench"]),
];

/// Delivers events to subscribers' URLs, reliably.
#[derive(Debug, Parser)]
#[command(name = "postrider", version, long_version = crate::VERSION, after_help = AFTER_HELP)]
pub(crate) struct Cli {
    /// Print JSON instead of words.
    #[arg(long, global = true, help_heading = "Output")]
    pub(crate) json: bool,
    /// Use colours: on a terminal (unless NO_COLOR is set), always, or never.
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        value_enum,
        default_value_t,
        help_heading = "Output"
    )]
    pub(crate) color: Color,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// When colours are used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    #[default]
    Auto,
    Always,
    Never,
}

impl From<Color> for ColourChoice {
    fn from(color: Color) -> ColourChoice {
        match color {
            Color::Auto => ColourChoice::Auto,
            Color::Always => ColourChoice::Always,
            Color::Never => ColourChoice::Never,
        }
    }
}

/// What matters before the command line is parsed: the format of the error where that fails.
pub(crate) struct Early {
    pub(crate) json: bool,
    pub(crate) color: Color,
}

impl Early {
    /// Looks for `--json` and `--color` among the arguments.
    pub(crate) fn of(arguments: &[OsString]) -> Early {
        let options = || {
            let words = arguments.iter().map(|word| word.to_str().unwrap_or_default());
            words.take_while(|word| *word != "--")
        };
        let color = options().zip(options().skip(1).chain([""])).find_map(|(word, next)| {
            let value = if word == "--color" { Some(next) } else { word.strip_prefix("--color=") };
            Color::from_str(value?, false).ok()
        });
        Early { json: options().any(|word| word == "--json"), color: color.unwrap_or_default() }
    }
}

/// The command line, with its commands grouped by what they are for.
pub(crate) fn command(color: Color) -> clap::Command {
    let command = Cli::command().color(match color {
        Color::Auto => clap::ColorChoice::Auto,
        Color::Always => clap::ColorChoice::Always,
        Color::Never => clap::ColorChoice::Never,
    });
    let template = template(&command);
    command.help_template(template)
}

/// The help of the whole program.
fn template(command: &clap::Command) -> String {
    let styles = Styles::styled();
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let listed = |name: &str| {
        let found = command.find_subcommand(name).filter(|found| !found.is_hide_set())?;
        let about = found.get_about().map(ToString::to_string).unwrap_or_default();
        Some(format!("  {literal}{name:<14}{literal:#} {}\n", about.trim_end_matches('.')))
    };
    let grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
    let others = command.get_subcommands().map(clap::Command::get_name);
    let others: Vec<&str> = others.filter(|name| !grouped.contains(name)).collect();
    let mut text = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for (title, names) in GROUPS.iter().copied().chain([("More", &others[..])]) {
        let lines: String = names.iter().filter_map(|name| listed(name)).collect();
        if !lines.is_empty() {
            text += &format!("\n{header}{title}:{header:#}\n{lines}");
        }
    }
    text + &format!("\n{header}Options:{header:#}\n{{options}}{{after-help}}")
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
    /// List and show events.
    Events(Remote<events::Events>),
    /// Replay many deliveries.
    Replay(Remote<replay::Replay>),
    /// Show and change the catalogue of event types.
    EventTypes(Remote<event_types::EventTypes>),
    /// Erase the payload of an event, or of all events of an object.
    Erase(Remote<erase::Erase>),
    /// Create, show and delete tenants.
    Tenants(Remote<tenants::Tenants>),
    /// Create, list and delete API keys.
    Keys(Remote<keys::Keys>),
    /// Show the targets of alerts, and send them a test message.
    Alerts(Remote<alerts::Alerts>),
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
#[command(next_help_heading = "Server")]
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
#[command(next_help_heading = "Connection")]
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_lists_each_command_once_under_a_heading() {
        let help = command(Color::Never).render_help().to_string();
        let command = Cli::command();
        for one in command.get_subcommands() {
            let line = format!("\n  {:<14} ", one.get_name());
            assert_eq!(
                help.matches(&line).count(),
                usize::from(!one.is_hide_set()),
                "{line}{help}"
            );
        }
        for (title, names) in GROUPS {
            assert!(help.contains(&format!("\n{title}:\n")), "{help}");
            let known = names.iter().filter(|name| command.find_subcommand(name).is_some());
            assert!(known.count() >= names.len() - 1, "{title}");
        }
        assert!(help.contains("--json") && help.contains("Exit codes"), "{help}");
    }

    #[test]
    fn format_of_a_usage_error_is_known_before_the_line_is_parsed() {
        let early = |words: &[&str]| {
            let Early { json, color } =
                Early::of(&words.iter().map(OsString::from).collect::<Vec<_>>());
            (json, color)
        };
        assert_eq!(early(&["postrider", "x", "--json"]), (true, Color::Auto));
        assert_eq!(early(&["postrider", "--color", "never", "x"]), (false, Color::Never));
        assert_eq!(early(&["postrider", "--color=always"]), (false, Color::Always));
        assert_eq!(early(&["postrider", "--color"]), (false, Color::Auto));
        assert_eq!(early(&["postrider", "x", "--", "--json"]), (false, Color::Auto));
    }
}
