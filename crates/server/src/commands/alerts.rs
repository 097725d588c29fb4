//! `postrider alerts`: shows the targets of alerts, and sends them a test message.

use clap::{Args, Subcommand};
use serde_json::Value as Json;

use super::{Context, object};
use crate::exit::Failure;
use crate::output::{entries, part, table};

#[derive(Debug, Args)]
pub(crate) struct Alerts {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the targets, and what they were told that is not over.
    List,
    /// Send a test message to each target, and show the outcome. Fails if one fails.
    Test {
        /// Only to the target with this name.
        #[arg(long, value_name = "NAME")]
        target: Option<String>,
    },
}

pub(crate) async fn run(context: &Context, alerts: Alerts) -> Result<(), Failure> {
    match alerts.command {
        Command::List => {
            let list = context.get("/v1/alerts", &[]).await?;
            context.output.value(&list, targets)?;
            Ok(())
        }
        Command::Test { target } => {
            let body = object(vec![("target", target.map(Json::from))]);
            let list = context.post("/v1/alerts/test", Some(&body)).await?;
            context.output.value(&list, outcomes)?;
            let failed = entries(&list).iter().filter(|one| part(one, "outcome") != "sent").count();
            match failed {
                0 => Ok(()),
                1 => Err(Failure::failed("one target did not accept the message")),
                many => Err(Failure::failed(format!("{many} targets did not accept the message"))),
            }
        }
    }
}

fn targets(list: &Json) -> String {
    if entries(list).is_empty() {
        return "No target: set alerts.targets to be told when something is wrong.".to_owned();
    }
    let row = |target: &Json| {
        let firing = target.get("firing").and_then(Json::as_array).cloned().unwrap_or_default();
        let firing: Vec<String> = firing
            .iter()
            .map(|one| format!("{} {}", part(one, "count"), part(one, "kind")))
            .collect();
        let firing = if firing.is_empty() { "-".to_owned() } else { firing.join(", ") };
        let mut cells: Vec<String> =
            ["name", "kind", "to", "messages", "last_message_at", "failures"]
                .map(|name| part(target, name))
                .to_vec();
        cells.push(firing);
        cells
    };
    let head = ["NAME", "KIND", "TO", "SENT", "LAST", "FAILURES", "FIRING"];
    table(&head, entries(list).iter().map(row).collect())
}

fn outcomes(list: &Json) -> String {
    let row = |trial: &Json| {
        ["target", "kind", "to", "outcome", "duration_ms", "error"]
            .map(|name| part(trial, name))
            .to_vec()
    };
    let head = ["TARGET", "KIND", "TO", "OUTCOME", "MS", "ERROR"];
    table(&head, entries(list).iter().map(row).collect())
}
