//! `postrider destinations`: URLs and their circuits.

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
        /// Those that are enabled, disabled or frozen.
        #[arg(long)]
        state: Option<String>,
        /// Those whose URL has this in it.
        #[arg(long, value_name = "TEXT")]
        search: Option<String>,
        /// At most so many.
        #[arg(long)]
        limit: Option<u32>,
        /// Where the next page begins.
        #[arg(long)]
        cursor: Option<String>,
    },
    /// Show one, and how near each threshold is.
    Get {
        /// Its identifier.
        id: String,
    },
    /// Show every transition of one, with its evidence.
    Timeline {
        /// Its identifier.
        id: String,
    },
    /// Enable one: the only way out of frozen.
    Enable(ByHand),
    /// Freeze one: it is never attempted until it is enabled.
    Freeze(ByHand),
}

#[derive(Debug, Args)]
struct ByHand {
    /// Its identifier.
    id: String,
    /// Why; it stands in the timeline.
    #[arg(long)]
    reason: Option<String>,
}

pub(crate) async fn run(context: &Context, arguments: Destinations) -> Result<(), Failure> {
    match arguments.command {
        Command::List { state, search, limit, cursor } => {
            let limit = limit.map(|limit| limit.to_string());
            let query =
                query(vec![("state", state), ("q", search), ("limit", limit), ("cursor", cursor)]);
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
