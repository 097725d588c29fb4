//! `postrider replay`: bulk replay jobs.

mod follow;

use clap::{Args, Subcommand};
use serde_json::Value as Json;

use super::words::replay as words;
use super::{Context, Paging, object, segment};
use crate::exit::Failure;
use crate::output::part;

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
    List(Paging),
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
    /// Show the progress until all are sent, with how many were delivered and failed. Exits with 1 if
    /// any failed.
    #[arg(long, conflicts_with = "dry_run")]
    follow: bool,
}

pub(crate) async fn run(context: &Context, arguments: Replay) -> Result<(), Failure> {
    let (output, show) = (context.output, context.show());
    let (path, verb) = match arguments.command {
        Command::Start(start) if start.follow => return follow::start(context, *start).await,
        Command::Start(start) => {
            let answer = context.post("/v1/replays", Some(&body(*start))).await?;
            return Ok(output.value(&answer, |job| words::started(&show, job))?);
        }
        Command::List(paging) => {
            let list = context.get("/v1/replays", &paging.query(vec![])).await?;
            return Ok(output.value(&list, |list| words::list(&show, list))?);
        }
        Command::Get { id } => {
            let one = context.get(&path(&id, "")?, &[]).await?;
            return Ok(output.value(&one, |one| words::one(&show, one))?);
        }
        Command::Pause { id } => (path(&id, "/pause")?, "paused"),
        Command::Resume { id } => (path(&id, "/resume")?, "resumed"),
        Command::Cancel { id } => (path(&id, "/cancel")?, "cancelled"),
    };
    let answer = context.post(&path, None).await?;
    Ok(output.value(&answer, |job| {
        format!("{verb}: {} of {} were sent", part(job, "done"), part(job, "total"))
    })?)
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
