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
        /// Those that are enabled, disabled or frozen, or failing: disabled or frozen.
        #[arg(long)]
        state: Option<String>,
        /// Those whose URL has this in it.
        #[arg(long, value_name = "TEXT")]
        search: Option<String>,
        /// At most so many.
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
    /// Enable one: the only way out of frozen. May send what waits and what died there.
    Enable(Enable),
    /// Freeze one: it is never attempted until it is enabled.
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

#[derive(Debug, Args)]
struct Enable {
    #[command(flatten)]
    by_hand: ByHand,
    /// What waits follows its `slots`, or is sent at once (`drain`); as configured unless given.
    #[arg(long, value_name = "HOW")]
    waiting: Option<String>,
    /// Replay what died there at this RFC 3339 time or later.
    #[arg(long, value_name = "TIME")]
    dead_since: Option<String>,
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
        Command::Enable(Enable { by_hand: ByHand { id, reason }, waiting, dead_since }) => {
            let body = object(vec![
                ("reason", reason.map(Json::from)),
                ("waiting", waiting.map(Json::from)),
                ("dead_since", dead_since.map(Json::from)),
            ]);
            turn(context, &id, "/enable", &body).await?;
        }
        Command::Freeze(ByHand { id, reason }) => {
            let body = object(vec![("reason", reason.map(Json::from))]);
            turn(context, &id, "/freeze", &body).await?;
        }
    }
    Ok(())
}

async fn turn(context: &Context, id: &str, what: &str, body: &Json) -> Result<(), Failure> {
    let answer = context.post(&path(id, what)?, Some(body)).await?;
    let word = |name: &str| answer.get(name).and_then(Json::as_str);
    let state = context.output.state(word("state").unwrap_or("done"));
    let replay = word("replay").map(|job| format!("; {job} replays what died there"));
    let replay = replay.unwrap_or_default();
    context.output.value(&answer, |_| format!("{id} is {state}{replay}"))?;
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
