//! `postrider doctor`: looks for what is wrong, and says what to do.

use std::path::Path;

use clap::Args;
use serde_json::{Value as Json, json};

use super::{Context, load};
use crate::cli::{Connection, ServerArgs};
use crate::config::Environment;
use crate::exit::Failure;
use crate::output::{Colour, Output, escaped};

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    #[command(flatten)]
    server: ServerArgs,
    /// The server's URL; also POSTRIDER_SERVER. Where it listens by its configuration unless set.
    #[arg(long = "server", value_name = "URL")]
    url: Option<String>,
    /// The API key; better by POSTRIDER_KEY.
    #[arg(long)]
    key: Option<String>,
}

/// What one check found.
struct Finding {
    what: &'static str,
    /// `Err` holds what is wrong and what to do.
    result: Result<String, String>,
}

pub(crate) async fn run(
    doctor: Doctor,
    environment: &Environment,
    output: Output,
) -> Result<(), Failure> {
    let mut findings = Vec::new();
    let mut find = |what, result| findings.push(Finding { what, result });
    match load(&doctor.server, environment) {
        Err(error) => find("configuration", Err(error.to_string())),
        Ok(loaded) => {
            find("configuration", Ok("no faults".to_owned()));
            let config = &loaded.config;
            find("data directory", data_directory(&config.data_dir));
            if config.admin_key.is_none() {
                find("admin key", private_file(&config.data_dir.join("admin.key")));
            }
            let keyring = config.keyring.clone();
            let keyring = keyring.unwrap_or_else(|| config.data_dir.join("keyring"));
            find("key ring", private_file(&keyring));
            let connection = Connection {
                server: doctor.url.or_else(|| {
                    let is_set = environment.get("POSTRIDER_SERVER").is_some();
                    (!is_set).then(|| format!("http://{}", config.listen))
                }),
                key: doctor.key.or_else(|| config.admin_key.clone()),
                tenant: None,
                data_dir: config.data_dir.clone(),
            };
            let context = Context::new(&connection, environment, output)?;
            find("server", reachable(&context, "/healthz").await);
            find("readiness", reachable(&context, "/readyz").await);
            find("ledger", ledger(&context).await);
        }
    }
    print(&findings, output)?;
    let faults = findings.iter().filter(|finding| finding.result.is_err()).count();
    if faults == 0 { Ok(()) } else { Err(Failure::failed(format!("{faults} checks failed"))) }
}

fn print(findings: &[Finding], output: Output) -> std::io::Result<()> {
    let as_json = |finding: &Finding| {
        let (ok, detail) = match &finding.result {
            Ok(detail) => (true, detail),
            Err(detail) => (false, detail),
        };
        json!({ "check": finding.what, "ok": ok, "detail": detail })
    };
    let all: Json = findings.iter().map(as_json).collect();
    output.value(&all, |_| {
        let line = |finding: &Finding| match &finding.result {
            Ok(detail) => format!(
                "{} {:<16}{}",
                output.paint(Colour::Green, "ok  "),
                finding.what,
                escaped(detail)
            ),
            Err(detail) => {
                let detail: Vec<_> = detail.lines().map(escaped).collect();
                let mark = output.paint(Colour::Red, "FAIL");
                format!("{mark} {:<16}{}", finding.what, detail.join("\n                     "))
            }
        };
        findings.iter().map(line).collect::<Vec<_>>().join("\n")
    })
}

fn data_directory(path: &Path) -> Result<String, String> {
    let shown = path.display();
    match std::fs::metadata(path) {
        Ok(found) if !found.is_dir() => Err(format!("{shown} is not a directory")),
        Ok(found) if found.permissions().readonly() => Err(format!("{shown} cannot be written")),
        Ok(_) => Ok(shown.to_string()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Ok(format!("{shown} does not exist yet; `postrider serve` creates it"))
        }
        Err(error) => Err(format!("{shown}: {error}")),
    }
}

/// A file that nobody else may read.
fn private_file(path: &Path) -> Result<String, String> {
    use std::os::unix::fs::PermissionsExt as _;

    let shown = path.display();
    match std::fs::metadata(path) {
        Ok(found) if found.permissions().mode() & 0o077 != 0 => {
            Err(format!("others can read {shown}; run: chmod 600 {shown}"))
        }
        Ok(_) => Ok(shown.to_string()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Ok(format!("{shown} is not there"))
        }
        Err(error) => Err(format!("{shown}: {error}")),
    }
}

async fn reachable(context: &Context, path: &str) -> Result<String, String> {
    match context.client.text(path).await {
        Ok((status, _)) if status.is_success() => Ok(context.client.server().to_string()),
        Ok((status, text)) => Err(format!("{path} answers {status}: {}", text.trim())),
        Err(failure) => Err(failure.to_string()),
    }
}

async fn ledger(context: &Context) -> Result<String, String> {
    let ledger = context.get("/v1/ledger", &[]).await.map_err(|failure| failure.to_string())?;
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
