//! `postrider replay`: bulk replay jobs.

use clap::{Args, Subcommand};
use serde_json::Value as Json;

use super::subscriptions::pretty;
use super::{Context, more, object, query, segment};
use crate::exit::Failure;
use crate::output::{entries, part, table};

#[derive(Debug, Args)]
pub(crate) struct Replay {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start a job, or only count the deliveries it would replay.
    Start(Box<Start>),
    /// List jobs.
    List {
        /// Show at most this many.
        #[arg(long)]
        limit: Option<u32>,
        /// The cursor of the page.
        #[arg(long)]
        cursor: Option<String>,
    },
    /// Show the progress of a job.
    Get {
        /// The job's identifier.
        id: String,
    },
    /// Pause a job.
    Pause {
        /// The job's identifier.
        id: String,
    },
    /// Resume a paused job.
    Resume {
        /// The job's identifier.
        id: String,
    },
    /// Cancel a job for good.
    Cancel {
        /// The job's identifier.
        id: String,
    },
}

#[derive(Debug, Args)]
struct Start {
    /// Deliveries to this destination.
    #[arg(long)]
    destination: Option<String>,
    /// Deliveries for this subscription.
    #[arg(long)]
    subscription: Option<String>,
    /// Deliveries of events of this type.
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// dead, delivered or cancelled; or waiting, to have each attempted now without waiting for its slot.
    #[arg(long)]
    state: Option<String>,
    /// Deliveries accepted at or after this RFC 3339 time.
    #[arg(long)]
    since: Option<String>,
    /// Deliveries accepted before this RFC 3339 time.
    #[arg(long)]
    until: Option<String>,
    /// Ended (for dead ones: died) at or after this RFC 3339 time.
    #[arg(long)]
    ended_since: Option<String>,
    /// At most so many a second.
    #[arg(long)]
    per_second: Option<u32>,
    /// Only count, replay nothing.
    #[arg(long)]
    dry_run: bool,
}

pub(crate) async fn run(context: &Context, arguments: Replay) -> Result<(), Failure> {
    let (path, verb) = match arguments.command {
        Command::Start(start) => {
            let answer = context.post("/v1/replays", Some(&body(*start))).await?;
            return Ok(context.output.value(&answer, pretty)?);
        }
        Command::List { limit, cursor } => return list(context, limit, cursor).await,
        Command::Get { id } => {
            let one = context.get(&path(&id, "")?, &[]).await?;
            return Ok(context.output.value(&one, pretty)?);
        }
        Command::Pause { id } => (path(&id, "/pause")?, "paused"),
        Command::Resume { id } => (path(&id, "/resume")?, "resumed"),
        Command::Cancel { id } => (path(&id, "/cancel")?, "cancelled"),
    };
    let answer = context.post(&path, None).await?;
    Ok(context.output.value(&answer, |_| verb.to_owned())?)
}

async fn list(
    context: &Context,
    limit: Option<u32>,
    cursor: Option<String>,
) -> Result<(), Failure> {
    let query = query(vec![("limit", limit.map(|limit| limit.to_string())), ("cursor", cursor)]);
    let list = context.get("/v1/replays", &query).await?;
    context.output.value(&list, |list| {
        let row = |one: &Json| {
            ["id", "state", "done", "total", "created_at"].map(|name| part(one, name)).to_vec()
        };
        let head = ["ID", "STATE", "DONE", "TOTAL", "CREATED"];
        table(&head, entries(list).iter().map(row).collect()) + &more(list)
    })?;
    Ok(())
}

fn body(start: Start) -> Json {
    object(vec![
        ("destination", start.destination.map(Json::from)),
        ("subscription", start.subscription.map(Json::from)),
        ("type", start.kind.map(Json::from)),
        ("state", start.state.map(Json::from)),
        ("since", start.since.map(Json::from)),
        ("until", start.until.map(Json::from)),
        ("ended_since", start.ended_since.map(Json::from)),
        ("per_second", start.per_second.map(Json::from)),
        ("dry_run", start.dry_run.then_some(Json::Bool(true))),
    ])
}

fn path(id: &str, what: &str) -> Result<String, Failure> {
    Ok(format!("/v1/replays/{}{what}", segment(id)?))
}
