//! `postrider doctor`: finds problems and says what to do about them.
//!
//! Exits with 0 if nothing is wrong (a note is not), with 1 if a check failed, and with 2 if the command
//! line is wrong.

mod data;
mod database;
mod machine;
mod quick;

use std::path::Path;
use std::time::Duration;

use clap::Args;
use postrider_api::vault::KeyRing;
use postrider_domain::time::Timestamp;
use postrider_transport::{Clock as _, SystemClock};
use serde_json::{Value as Json, json};

use super::{Context, load};
use crate::cli::{Connection, ServerArgs};
use crate::config::{Config, Environment, StoreChoice};
use crate::exit::Failure;
use crate::output::{Colour, Output, escaped, time};
use crate::table::wrapped;

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    #[command(flatten)]
    server: ServerArgs,
    /// The server's URL; also POSTRIDER_SERVER. By default the address in the configuration; over TLS
    /// that of health.
    #[arg(long = "server", value_name = "URL")]
    url: Option<String>,
    /// The API key; prefer POSTRIDER_KEY.
    #[arg(long)]
    key: Option<String>,
    /// Ask only whether the server is alive and ready, for health checks: no key, at most four
    /// seconds. Exits with 0 or 1.
    #[arg(long, conflicts_with_all = ["verify", "accept_loss", "key"])]
    quick: bool,
    /// Read every byte of the embedded store and name what is damaged. The server must be stopped.
    #[arg(long)]
    verify: bool,
    /// Accept the loss of the damaged part of this file, such as history/2026-11-16.db. The server
    /// must be stopped. Prefer to restore a backup, if there is one.
    #[arg(long, value_name = "FILE")]
    accept_loss: Vec<std::path::PathBuf>,
}

/// The result of one check.
struct Finding {
    what: &'static str,
    said: Said,
}

/// The level of a result, with its text.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    /// Everything is in order.
    Ok(String),
    /// The check passed, with advice on what could be better.
    Note(String),
    /// Something is wrong: what, and what to do.
    Fault(String),
}

pub(crate) async fn run(
    doctor: Doctor,
    environment: &Environment,
    output: Output,
) -> Result<(), Failure> {
    let findings = match load(&doctor.server, environment) {
        Err(error) => vec![found("configuration", Err(error.to_string()))],
        Ok(loaded) if doctor.quick => {
            let url = doctor.url.as_deref().or_else(|| environment.get("POSTRIDER_SERVER"));
            quick::look(url, &loaded.config).await
        }
        Ok(loaded) if doctor.verify || !doctor.accept_loss.is_empty() => {
            data::examine(&doctor.accept_loss, doctor.verify, &loaded.config).await
        }
        Ok(loaded) => examine(doctor, &loaded.config, environment, output).await?,
    };
    print(&findings, output)?;
    let is_fault = |finding: &&Finding| matches!(finding.said, Said::Fault(_));
    let faults = findings.iter().filter(is_fault).count();
    match faults {
        0 => Ok(()),
        1 => Err(Failure::failed("one check failed")),
        faults => Err(Failure::failed(format!("{faults} checks failed"))),
    }
}

fn found(what: &'static str, result: Result<String, String>) -> Finding {
    Finding { what, said: result.map_or_else(Said::Fault, Said::Ok) }
}

async fn examine(
    doctor: Doctor,
    config: &Config,
    environment: &Environment,
    output: Output,
) -> Result<Vec<Finding>, Failure> {
    let said = |what, said| Finding { what, said };
    let mut findings = vec![
        found("configuration", Ok("no faults".to_owned())),
        said("data directory", machine::data_directory(&config.data_dir)),
        said("disk", machine::disk(&config.data_dir)),
        said("open files", machine::open_files(config)),
        said("resolver", machine::resolver(config).await),
    ];
    if config.admin_key.is_none() {
        findings.push(found("admin key", private_file(&config.data_dir.join("admin.key"))));
    }
    findings.push(found("key ring", key_ring(config)));
    if let StoreChoice::Postgres(url) = &config.store {
        let looked = patiently(database::look(config, url)).await;
        let silent = || {
            let why = format!("it says nothing within {PATIENCE:?}: is it overwhelmed, or locked?");
            vec![found("database", Err(why))]
        };
        findings.extend(looked.unwrap_or_else(silent));
    } else {
        findings.extend(machine::store(&config.data_dir).await);
    }
    let now = examine_server(doctor, config, environment, output, &mut findings).await?;
    if config.store == StoreChoice::Embedded {
        let clock = machine::clock(&config.data_dir, now, SystemClock.now());
        findings.push(said("clock", clock));
    }
    Ok(findings)
}

/// Asks the server itself, and returns its time. Over TLS a server that nobody named is asked for its health only,
/// on the listener of health: the certificate of the API is for its public name.
async fn examine_server(
    doctor: Doctor,
    config: &Config,
    environment: &Environment,
    output: Output,
    findings: &mut Vec<Finding>,
) -> Result<Option<Timestamp>, Failure> {
    let is_named = doctor.url.is_some() || environment.get("POSTRIDER_SERVER").is_some();
    let is_health_only = config.server.tls_cert.is_some() && !is_named;
    let server = match (is_named, is_health_only) {
        (true, _) => doctor.url,
        (false, false) => Some(format!("http://{}", config.listen)),
        (false, true) => match quick::server(None, config) {
            Ok(health) => Some(health),
            Err(why) => {
                findings.push(Finding { what: "server", said: Said::Note(why) });
                return Ok(None);
            }
        },
    };
    let connection = Connection {
        server,
        // The health of a server with TLS is asked without encryption: no key goes there.
        key: doctor.key.or_else(|| config.admin_key.clone()).filter(|_| !is_health_only),
        tenant: None,
        data_dir: config.data_dir.clone(),
    };
    let context = Context::new(&connection, environment, output)?;
    let server = reachable(&context, "/healthz").await;
    let is_there = server.is_ok();
    findings.push(found("server", server));
    // Without a server, further checks would only repeat that it does not answer.
    if !is_there {
        return Ok(None);
    }
    findings.push(found("readiness", reachable(&context, "/readyz").await));
    if is_health_only {
        let why = "not asked: the certificate of the API is for its public name\n\
                   run: postrider doctor --server https://<that name>";
        findings.push(Finding { what: "ledger", said: Said::Note(why.to_owned()) });
        return Ok(None);
    }
    findings.push(found("ledger", ledger(&context).await));
    let server = patiently(context.get("/v1/server", &[])).await.and_then(Result::ok);
    Ok(server.and_then(|server| time(&server, "now")))
}

fn print(findings: &[Finding], output: Output) -> std::io::Result<()> {
    let as_json = |finding: &Finding| {
        let (level, detail) = match &finding.said {
            Said::Ok(detail) => ("ok", detail),
            Said::Note(detail) => ("note", detail),
            Said::Fault(detail) => ("fault", detail),
        };
        let ok = level != "fault";
        let advice = detail.split_once('\n').map(|(_, advice)| advice).filter(|_| level != "ok");
        json!({ "check": finding.what, "ok": ok, "level": level, "detail": detail, "advice": advice })
    };
    let all: Json = findings.iter().map(as_json).collect();
    output.value(&all, |_| {
        let line = |finding: &Finding| {
            let (mark, detail) = match &finding.said {
                Said::Ok(detail) => (output.paint(Colour::Green, "ok  "), detail),
                Said::Note(detail) => (output.paint(Colour::Yellow, "note"), detail),
                Said::Fault(detail) => (output.paint(Colour::Red, "FAIL"), detail),
            };
            let width = output.width().saturating_sub(21).max(40);
            let detail: Vec<_> =
                detail.lines().flat_map(|line| wrapped(&escaped(line), width)).collect();
            format!("{mark} {:<16}{}", finding.what, detail.join("\n                     "))
        };
        findings.iter().map(line).collect::<Vec<_>>().join("\n")
    })
}

/// Checks that only its owner can read a file.
fn private_file(path: &Path) -> Result<String, String> {
    use std::os::unix::fs::PermissionsExt as _;

    let shown = path.display();
    match std::fs::metadata(path) {
        Ok(found) if found.permissions().mode() & 0o077 != 0 => {
            Err(format!("others can read {shown}\nrun: chmod 600 {shown}"))
        }
        Ok(_) => Ok(shown.to_string()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Ok(format!("{shown} is not there"))
        }
        Err(error) => Err(format!("{shown}: {error}")),
    }
}

/// Checks the key ring: its permissions, and that it is one.
fn key_ring(config: &Config) -> Result<String, String> {
    let path = config.keyring_path();
    let private = private_file(&path)?;
    if path.exists() {
        KeyRing::read(&path).map_err(|error| error.to_string())?;
    }
    Ok(private)
}

async fn reachable(context: &Context, path: &str) -> Result<String, String> {
    match patiently(context.client.text(path)).await {
        None => Err(silent(context)),
        Some(Ok((status, _))) if status.is_success() => Ok(context.client.server().to_string()),
        Some(Ok((status, text))) => Err(format!("{path} answers {status}: {}", text.trim())),
        Some(Err(failure)) => Err(failure.to_string()),
    }
}

/// The time limit for an answer of a server or a database.
const PATIENCE: Duration = Duration::from_secs(10);

/// The result, or `None` after the time limit.
async fn patiently<T>(work: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(PATIENCE, work).await.ok()
}

fn silent(context: &Context) -> String {
    let server = context.client.server();
    format!("{server} says nothing within {PATIENCE:?}: it is stopped, or overwhelmed")
}

async fn ledger(context: &Context) -> Result<String, String> {
    let asked = patiently(context.get("/v1/ledger", &[])).await;
    let asked = asked.ok_or_else(|| silent(context))?;
    let ledger = asked.map_err(|failure| failure.to_string())?;
    let count = |name: &str| ledger.get(name).and_then(Json::as_u64).unwrap_or(0);
    let accepted = count("accepted");
    let names = ["queued", "in_flight", "waiting", "delivered", "dead", "cancelled"];
    let sum: u64 = names.iter().map(|name| count(name)).sum();
    if sum == accepted {
        Ok(format!("{accepted} accepted, all accounted for"))
    } else {
        Err(format!("{accepted} accepted, but {sum} accounted for: please report this"))
    }
}
