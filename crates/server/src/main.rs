//! The binary `postrider`: command line, configuration, wiring.
//!
//! **No decision is made here.** `serve` connects store, transport, engine and API; every other
//! command is a client of the public API.

mod cli;
mod commands;
mod config;
mod demo;
#[cfg(test)]
mod packaged;
mod serve;
mod telemetry;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::FromArgMatches as _;
use postrider_cli::{client, exit, output, show, table, times};

use crate::cli::{Cli, Command, Early};
use crate::commands::Context;
use crate::config::Environment;
use crate::exit::Failure;
use crate::output::Output;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The version, with commit and target.
pub(crate) const VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (",
    env!("POSTRIDER_COMMIT"),
    ", ",
    env!("BUILD_TARGET"),
    ", ",
    env!("BUILD_PROFILE"),
    ")"
);

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let environment = Environment::of_the_process();
    let cli = match parse(&arguments) {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    let output = Output::new(cli.json, cli.color.into(), environment.terminal());
    match run(cli.command, &environment, output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            report(&failure, output.json);
            ExitCode::from(failure.code)
        }
    }
}

/// Parses the command line; if that fails, or help is wanted, prints it and returns the exit code.
fn parse(arguments: &[OsString]) -> Result<Cli, ExitCode> {
    let early = Early::of(arguments);
    let mut command = cli::command(early.color);
    let parsed = command.try_get_matches_from_mut(arguments).and_then(|matches| {
        Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
    });
    parsed.map_err(|error| {
        let code = u8::try_from(error.exit_code()).unwrap_or(2);
        if early.json && code != 0 {
            report(&Failure::usage(usage(&error)), true);
        } else if error.print().is_err() {
            // Nobody reads the output any more.
        }
        ExitCode::from(code)
    })
}

/// What is wrong with the command line, without how it is used.
fn usage(error: &clap::Error) -> String {
    use clap::error::ErrorKind;

    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return "a command is missing: see --help".to_owned();
    }
    let text = error.render().to_string();
    let text = text.split("\n\nUsage:").next().unwrap_or(&text);
    let text = text.split("\n\nFor more information").next().unwrap_or(text);
    text.trim().trim_start_matches("error: ").to_owned()
}

#[expect(clippy::print_stderr, reason = "this is where a command says why it failed")]
fn report(failure: &Failure, json: bool) {
    if json {
        eprintln!("{}", failure.json());
    } else {
        eprintln!("postrider: {failure}");
    }
}

fn run(command: Command, environment: &Environment, output: Output) -> Result<(), Failure> {
    // A chart and the manual are for everybody; all other files have secrets or what tenants said in them.
    if !matches!(command, Command::Forecast(_) | Command::Man { .. }) {
        serve::keep_private();
    }
    match command {
        Command::Serve(arguments) => serve::run(&arguments, environment, output),
        Command::Demo(demo) => demo::run(&demo, output),
        Command::Config(arguments) => {
            commands::config::run(&commands::load(&arguments, environment)?, output)
        }
        Command::Forecast(arguments) => commands::forecast::run(&arguments, environment, output),
        Command::Bench(bench) => postrider_bench::run(&bench, output),
        Command::Reference(reference) => commands::reference::run(&reference),
        Command::Version => {
            let version =
                serde_json::json!({ "version": env!("CARGO_PKG_VERSION"), "build": VERSION });
            Ok(output.value(&version, |_| format!("postrider {VERSION}"))?)
        }
        Command::Completions { shell } => Ok(commands::manual::completions(shell)?),
        Command::Man { directory } => Ok(commands::manual::pages(&directory)?),
        command @ (Command::Send(_)
        | Command::Listen(_)
        | Command::Tail(_)
        | Command::Subscriptions(_)
        | Command::Destinations(_)
        | Command::Deliveries(_)
        | Command::Events(_)
        | Command::Replay(_)
        | Command::EventTypes(_)
        | Command::Erase(_)
        | Command::Keys(_)
        | Command::Tenants(_)
        | Command::Alerts(_)
        | Command::Audit(_)
        | Command::Backup(_)
        | Command::Keyring(_)
        | Command::Restore(_)
        | Command::Doctor(_)
        | Command::Mcp(_)
        | Command::Migrate(_)) => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(Box::pin(ask(command, environment, output)))
        }
    }
}

/// Runs a command that talks to a server or receives from one.
async fn ask(command: Command, environment: &Environment, output: Output) -> Result<(), Failure> {
    let context = |connection| Context::new(connection, environment, output);
    match command {
        Command::Send(remote) => {
            commands::send::run(&context(&remote.connection)?, remote.command).await
        }
        Command::Listen(listen) => commands::listen::run(listen, output).await,
        Command::Keyring(keyring) => commands::keyring::run(&keyring, environment, output).await,
        Command::Tail(remote) => {
            commands::tail::run(&context(&remote.connection)?, remote.command).await
        }
        Command::Subscriptions(remote) => {
            commands::subscriptions::run(&context(&remote.connection)?, remote.command).await
        }
        Command::Destinations(remote) => {
            commands::destinations::run(&context(&remote.connection)?, remote.command).await
        }
        Command::Deliveries(remote) => {
            commands::deliveries::run(&context(&remote.connection)?, remote.command).await
        }
        Command::Replay(remote) => {
            commands::replay::run(&context(&remote.connection)?, remote.command).await
        }
        Command::EventTypes(remote) => {
            commands::event_types::run(&context(&remote.connection)?, remote.command).await
        }
        Command::Erase(remote) => {
            commands::erase::run(&context(&remote.connection)?, remote.command).await
        }
        Command::Events(remote) => {
            commands::events::run(&context(&remote.connection)?, remote.command).await
        }
        Command::Tenants(remote) => {
            commands::tenants::run(&context(&remote.connection)?, remote.command).await
        }
        Command::Alerts(remote) => {
            commands::alerts::run(&context(&remote.connection)?, remote.command).await
        }
        Command::Audit(remote) => {
            commands::audit::run(&context(&remote.connection)?, remote.command).await
        }
        Command::Keys(remote) => {
            let connection = &remote.connection;
            commands::keys::run(connection, remote.command, environment, output).await
        }
        Command::Backup(remote) => {
            commands::backup::run(&remote.connection, &remote.command, environment, output).await
        }
        Command::Restore(restore) => commands::restore::run(&restore, output).await,
        Command::Mcp(remote) => {
            commands::mcp::run(&context(&remote.connection)?, remote.command).await
        }
        Command::Doctor(doctor) => {
            Box::pin(commands::doctor::run(doctor, environment, output)).await
        }
        Command::Migrate(migrate) => commands::migrate::run(migrate, environment, output).await,
        Command::Serve(_)
        | Command::Demo(_)
        | Command::Config(_)
        | Command::Forecast(_)
        | Command::Bench(_)
        | Command::Reference(_)
        | Command::Completions { .. }
        | Command::Man { .. }
        | Command::Version => Ok(()),
    }
}
