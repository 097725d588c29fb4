//! `postrider destinations`: lists destinations, enables and freezes them.

use clap::{Args, Subcommand};
use serde_json::Value as Json;

use super::subscriptions::pretty;
use super::{Context, more, object, query, segment};
use crate::exit::Failure;
use crate::output::{entries, part, table};

#[derive(Debug, Args)]
pub(crate) struct Destinations {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List destinations.
    List {
        /// Show at most this many.
        #[arg(long)]
        limit: Option<u32>,
        /// The cursor of the page.
        #[arg(long)]
        cursor: Option<String>,
    },
    /// Show a destination, and how near it is to each threshold.
    Get {
        /// The destination's identifier.
        id: String,
    },
    /// Show every transition of a destination, with its evidence.
    Timeline {
        /// The destination's identifier.
        id: String,
    },
    /// Enable a destination: the only way out of frozen.
    Enable(ByHand),
    /// Freeze a destination: it is not attempted until it is enabled.
    Freeze(ByHand),
}

#[derive(Debug, Args)]
struct ByHand {
    /// The destination's identifier.
    id: String,
    /// The reason, which is shown in the timeline.
    #[arg(long)]
    reason: Option<String>,
}

pub(crate) async fn run(context: &Context, arguments: Destinations) -> Result<(), Failure> {
    match arguments.command {
        Command::List { limit, cursor } => {
            let query =
                query(vec![("limit", limit.map(|limit| limit.to_string())), ("cursor", cursor)]);
            let list = context.get("/v1/destinations", &query).await?;
            context.output.value(&list, |list| shown(context, list) + &more(list))?;
        }
        Command::Get { id } => {
            let one = context.get(&path(&id, "")?, &[]).await?;
            context.output.value(&one, pretty)?;
        }
        Command::Timeline { id } => {
            let list = context.get(&path(&id, "/timeline")?, &[]).await?;
            context.output.value(&list, pretty)?;
        }
        Command::Enable(by_hand) => turn(context, by_hand, "/enable").await?,
        Command::Freeze(by_hand) => turn(context, by_hand, "/freeze").await?,
    }
    Ok(())
}

async fn turn(context: &Context, by_hand: ByHand, what: &str) -> Result<(), Failure> {
    let body = object(vec![("reason", by_hand.reason.map(Json::from))]);
    let answer = context.post(&path(&by_hand.id, what)?, Some(&body)).await?;
    let state = context.output.state(answer.get("state").and_then(Json::as_str).unwrap_or("done"));
    context.output.value(&answer, |_| format!("{} is {state}", by_hand.id))?;
    Ok(())
}

fn shown(context: &Context, list: &Json) -> String {
    let row = |one: &Json| {
        let state = one.get("state").and_then(Json::as_str).unwrap_or("-");
        let mut row = vec![part(one, "id"), context.output.state(state)];
        row.extend(
            ["waiting", "attempts", "failures", "consecutive_failures", "last_success_at", "url"]
                .map(|name| part(one, name)),
        );
        row
    };
    let head =
        ["ID", "STATE", "WAITING", "ATTEMPTS", "FAILURES", "CONSECUTIVE", "LAST SUCCESS", "URL"];
    table(&head, entries(list).iter().map(row).collect())
}

fn path(id: &str, what: &str) -> Result<String, Failure> {
    Ok(format!("/v1/destinations/{}{what}", segment(id)?))
}
