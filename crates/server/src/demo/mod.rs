//! `postrider demo`: a server, receivers that misbehave on purpose, and traffic, for demonstration.
//!
//! Everything is on loopback, on free ports, in a temporary directory that is removed at the end.
//! The server is a real one and is used only through its API; its policy runs on a faster clock, so
//! that days pass in minutes.

mod receivers;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use hyper::Method;
use serde_json::{Value as Json, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

use self::receivers::MOODS;
use crate::cli::ServerArgs;
use crate::client::Client;
use crate::commands::load;
use crate::config::{Environment, Loaded, parse_duration};
use crate::exit::Failure;
use crate::output::{Colour, Output, entries, line, part, table};
use crate::serve::{ListenerOptions, Server, listen_http};
use crate::telemetry;

/// Events per batch, and the time between two batches.
const BATCH: u64 = 4;
const SEND_EVERY: Duration = Duration::from_millis(100);
/// How often the status is printed.
const TELL_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// End by itself after this time, such as 10s; otherwise at Ctrl-C.
    #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
    time: Option<Duration>,
    /// The address of the API; a free port by default.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: String,
    /// The factor by which the policy's clock is faster: at 200, ten minutes take three seconds.
    #[arg(long, value_name = "N", default_value = "200")]
    time_scale: String,
}

fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).ok_or_else(|| "a duration such as 10s or 2m".to_owned())
}

/// A temporary directory, removed on drop.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        // If it cannot be removed, it stays in the system's temporary directory.
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// Runs a demonstration to its end.
pub(crate) fn run(demo: &Demo, environment: &Environment, output: Output) -> Result<(), Failure> {
    let random = postrider_entropy::system_bytes::<16>().map_err(anyhow::Error::from)?;
    let name = postrider_domain::hex::encode(&random);
    let scratch = Scratch(std::env::temp_dir().join(format!("postrider-demo-{name}")));
    let arguments = ServerArgs {
        listen: Some(demo.listen.clone()),
        data_dir: Some(scratch.0.display().to_string()),
        dev: true,
        time_scale: Some(demo.time_scale.clone()),
        set: vec![
            format!("admin_key=demo_{name}"),
            "telemetry.log=error".to_owned(),
            "shutdown.deadline=1s".to_owned(),
        ],
        ..ServerArgs::default()
    };
    let loaded = load(&arguments, environment)?;
    let log = telemetry::start(&loaded.config.telemetry, output)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ended =
        runtime.block_on(Box::pin(show(demo, loaded, &log, format!("demo_{name}"), output)));
    runtime.shutdown_background();
    log.flush();
    drop(scratch);
    ended
}

async fn show(
    demo: &Demo,
    loaded: Loaded,
    log: &telemetry::LogHandle,
    key: String,
    output: Output,
) -> Result<(), Failure> {
    let options = ListenerOptions::of(&loaded.config);
    let mut server = Server::start_quietly(loaded, log).await?;
    let address = server.address();
    let client = Client::new(&format!("http://{address}"), Some(key.clone()), None)?;

    let listener = TcpListener::bind("127.0.0.1:0").await.context("no port for the receivers")?;
    let receivers = listener.local_addr()?;
    let (stop, stopped) = watch::channel(false);
    drop(tokio::spawn(listen_http(listener, receivers::router(), options, stopped)));
    for (path, _) in MOODS {
        let wish = json!({"url": format!("http://{receivers}/{path}"), "types": ["demo.*"]});
        client.ask(Method::POST, "/v1/subscriptions", &[], Some(wish.to_string().into())).await?;
    }
    introduce(address, &key, output)?;
    let traffic = tokio::spawn(send(client.clone()));
    let telling = tokio::spawn(tell(client.clone(), output));
    let over = async {
        match demo.time {
            Some(time) => drop(tokio::time::timeout(time, std::future::pending::<()>()).await),
            None => std::future::pending().await,
        }
    };
    let over = server.until(over).await;
    traffic.abort();
    telling.abort();
    let last = if over.is_ok() { Some(look(&client).await?) } else { None };
    stop.send_replace(true);
    server.stop().await?;
    over?;
    if let Some(last) = last {
        conclude(&last, output)?;
    }
    Ok(())
}

/// Prints the addresses and what to try.
fn introduce(address: SocketAddr, key: &str, output: Output) -> Result<(), Failure> {
    if output.json {
        return Ok(output
            .value(&json!({"server": format!("http://{address}"), "key": key}), |_| {
                String::new()
            })?);
    }
    let bold = |text: &str| output.paint(Colour::Bold, text);
    let moods: Vec<String> =
        MOODS.iter().map(|(path, what)| format!("    /{path:<8} {what}")).collect();
    let connection = format!("--server http://{address} --key {key}");
    line(&format!(
        "\n  {}\n\n  The server is at http://{address} (its API is described at /docs), its key is \
         {key}.\n  One receiver with several moods, forty events a second for each:\n\n{}\n\n  Look \
         at it from another terminal:\n\n    postrider tail {connection}\n    postrider destinations \
         list {connection}\n    postrider deliveries list --state waiting {connection}\n\n  {}\n",
        bold("postrider demo"),
        moods.join("\n"),
        bold("Ctrl-C ends it and removes everything."),
    ))?;
    Ok(())
}

/// Sends events until it is stopped.
async fn send(client: Client) {
    let mut ticks = tokio::time::interval(SEND_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    for n in 0_u64.. {
        ticks.tick().await;
        let events: Vec<Json> = (0..BATCH)
            .map(|k| json!({"type": "demo.order.paid", "data": {"order": n * BATCH + k}}))
            .collect();
        let body = Json::from(events).to_string().into();
        // The server is shutting down: the demonstration is over.
        if client.ask(Method::POST, "/v1/events/batch", &[], Some(body)).await.is_err() {
            return;
        }
    }
}

/// The current status.
struct Standing {
    ledger: Json,
    destinations: Json,
}

async fn look(client: &Client) -> Result<Standing, Failure> {
    let ledger = client.ask(Method::GET, "/v1/ledger", &[], None).await?;
    let destinations = client.ask(Method::GET, "/v1/destinations", &[], None).await?;
    Ok(Standing { ledger, destinations })
}

impl Standing {
    fn json(&self) -> Json {
        let destinations: Vec<Json> = entries(&self.destinations)
            .iter()
            .map(|one| {
                let fields = ["url", "state", "attempts", "failures", "waiting", "reason"];
                fields.iter().map(|name| ((*name).to_owned(), one[*name].clone())).collect()
            })
            .collect();
        json!({"ledger": self.ledger, "destinations": destinations})
    }

    /// The status on one line.
    fn in_short(&self) -> String {
        let counts = ["accepted", "delivered", "queued", "in_flight", "waiting", "dead"];
        let counts = counts.map(|name| format!("{name} {}", part(&self.ledger, name)));
        let troubled = entries(&self.destinations).iter().filter(|one| one["state"] != "enabled");
        let troubled: Vec<String> =
            troubled.map(|one| format!("{} {}", path(one), part(one, "state"))).collect();
        let troubled =
            if troubled.is_empty() { "all enabled".to_owned() } else { troubled.join(", ") };
        format!("  {}  |  {troubled}", counts.join("  "))
    }
}

/// The path of a destination's URL.
fn path(destination: &Json) -> String {
    let url = part(destination, "url");
    url.rsplit_once('/').map_or_else(|| url.clone(), |(_, path)| format!("/{path}"))
}

/// Prints the status at intervals.
async fn tell(client: Client, output: Output) {
    let mut ticks = tokio::time::interval(TELL_EVERY);
    loop {
        ticks.tick().await;
        let Ok(standing) = look(&client).await else { return };
        let told = match output.json {
            true => output.value(&standing.json(), |_| String::new()),
            false => line(&standing.in_short()),
        };
        if told.is_err() {
            return;
        }
    }
}

/// Prints the result at the end.
fn conclude(last: &Standing, output: Output) -> Result<(), Failure> {
    let summary = json!({"end": last.json()});
    Ok(output.value(&summary, |_| {
        let rows = entries(&last.destinations).iter().map(|one| {
            let mut row = vec![path(one)];
            row.extend(["state", "attempts", "failures", "waiting"].map(|name| part(one, name)));
            row
        });
        let head = ["RECEIVER", "STATE", "ATTEMPTS", "FAILURES", "WAITING"];
        format!("\n{}\n\n{}", last.in_short(), table(&head, rows.collect()))
    })?)
}
