//! `postrider alerts`: shows the targets of alerts, and sends them a test message.

use clap::{Args, Subcommand};
use serde_json::Value as Json;

use super::words::alert as words;
use super::{Context, object};
use crate::exit::Failure;
use crate::output::{entries, part};

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
            context.output.value(&list, |list| words::list(&context.show(), list))?;
            Ok(())
        }
        Command::Test { target } => {
            let body = object(vec![("target", target.map(Json::from))]);
            let list = context.post("/v1/alerts/test", Some(&body)).await?;
            context.output.value(&list, |list| words::tested(&context.show(), list))?;
            let failed = entries(&list).iter().filter(|one| part(one, "outcome") != "sent").count();
            match failed {
                0 => Ok(()),
                1 => Err(Failure::failed("one target did not accept the message")),
                many => Err(Failure::failed(format!("{many} targets did not accept the message"))),
            }
        }
    }
}
