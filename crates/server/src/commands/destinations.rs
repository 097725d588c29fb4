//! `postrider destinations`: lists destinations, enables and freezes them.

use clap::{Args, Subcommand};
use serde_json::Value as Json;

use super::words::destination as words;
use super::{Context, Paging, object, segment};
use crate::exit::Failure;

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
        #[command(flatten)]
        paging: Paging,
    },
    /// Show a destination, how its attempts went lately, and how near it is to each threshold.
    Get {
        /// The destination's identifier.
        id: String,
    },
    /// Show how a destination's attempts went, by the hour.
    Stats {
        /// The destination's identifier.
        id: String,
        /// How many hours, the current one included, 1 to 168.
        #[arg(long, value_name = "HOURS", default_value_t = 24)]
        hours: u32,
    },
    /// Show every transition of a destination, with its evidence.
    Timeline {
        /// The destination's identifier.
        id: String,
        #[command(flatten)]
        paging: Paging,
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
        Command::List { state, search, paging } => {
            let is_filtered = state.is_some() || search.is_some();
            let query = paging.query(vec![("state", state), ("q", search)]);
            let list = context.get("/v1/destinations", &query).await?;
            context.output.value(&list, |list| words::list(&context.show(), list, is_filtered))?;
        }
        Command::Get { id } => {
            let one = context.get(&path(&id, "")?, &[]).await?;
            // The words show statistics; `--json` prints the API's answer unchanged.
            let stats =
                if context.output.json { Json::Null } else { stats(context, &id, 24).await? };
            context.output.value(&one, |one| words::one(&context.show(), one, &stats))?;
        }
        Command::Stats { id, hours } => {
            let stats = stats(context, &id, hours).await?;
            context.output.value(&stats, |stats| words::stats(&context.show(), stats))?;
        }
        Command::Timeline { id, paging } => {
            let list = context.get(&path(&id, "/timeline")?, &paging.query(vec![])).await?;
            context.output.value(&list, |list| words::timeline(&context.show(), list))?;
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

async fn stats(context: &Context, id: &str, hours: u32) -> Result<Json, Failure> {
    context.get(&path(id, "/stats")?, &[("hours", hours.to_string())]).await
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

fn path(id: &str, what: &str) -> Result<String, Failure> {
    Ok(format!("/v1/destinations/{}{what}", segment(id)?))
}
