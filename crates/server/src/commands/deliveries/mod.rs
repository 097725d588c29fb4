//! `postrider deliveries`: lists, watches, explains, retries, replays and cancels deliveries.

mod watch;

use clap::{Args, Subcommand};
use serde_json::Value as Json;

use super::words::delivery as words;
use super::{Context, Paging, segment};
use crate::exit::Failure;
use crate::output::part;

#[derive(Debug, Args)]
pub(crate) struct Deliveries {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List deliveries, newest first.
    List(Box<List>),
    /// Show a delivery with its attempts.
    Get {
        /// The delivery's identifier.
        id: String,
    },
    /// Watch a delivery until it ends, or the newest ones as they change.
    ///
    /// Exits with 0 if the delivery was delivered, with 1 if it died or was cancelled. Without an
    /// identifier it ends at Ctrl-C.
    Watch(Box<Watch>),
    /// Explain the state of a delivery, its reason, and what happens next.
    Explain {
        /// The delivery's identifier.
        id: String,
    },
    /// Attempt a waiting delivery now. Its slots stay as they are.
    Retry {
        /// The delivery's identifier.
        id: String,
    },
    /// Send a delivery again that has ended, with a new schedule.
    Replay {
        /// The delivery's identifier.
        id: String,
    },
    /// Cancel a delivery: it is not attempted any more.
    Cancel {
        /// The delivery's identifier.
        id: String,
    },
}

#[derive(Debug, Args)]
struct List {
    /// queued, in_flight, waiting, delivered, dead or cancelled.
    #[arg(long)]
    state: Option<String>,
    /// Deliveries to this destination.
    #[arg(long)]
    destination: Option<String>,
    /// Deliveries for this subscription, by its identifier or its uid.
    #[arg(long)]
    subscription: Option<String>,
    /// Deliveries of this event.
    #[arg(long)]
    event: Option<String>,
    /// Deliveries of events of this type.
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// Deliveries of events of this object.
    #[arg(long)]
    object: Option<String>,
    /// Deliveries accepted at or after this RFC 3339 time.
    #[arg(long)]
    since: Option<String>,
    /// Deliveries accepted before this RFC 3339 time.
    #[arg(long)]
    until: Option<String>,
    #[command(flatten)]
    paging: Paging,
}

#[derive(Debug, Args)]
struct Watch {
    /// The delivery's identifier; without it, all that the other options select.
    #[arg(conflicts_with_all = ["state", "destination", "subscription", "event", "kind", "since", "until"])]
    id: Option<String>,
    #[command(flatten)]
    list: List,
    /// Stop after this many changes.
    #[arg(long, value_name = "N", conflicts_with = "id")]
    count: Option<u64>,
}

pub(crate) async fn run(context: &Context, arguments: Deliveries) -> Result<(), Failure> {
    let output = context.output;
    match arguments.command {
        Command::List(list) => {
            let (is_filtered, query) = list.query();
            let list = context.get("/v1/deliveries", &query).await?;
            output.value(&list, |list| words::list(&context.show(), list, is_filtered))?;
        }
        Command::Get { id } => {
            let one = context.get(&path(&id, "")?, &[]).await?;
            // The words show the URL; `--json` prints the API's answer unchanged.
            let url = if output.json { None } else { url(context, &one).await };
            output.value(&one, |one| words::one(&context.show(), one, url.as_deref()))?;
        }
        Command::Watch(watch) => match watch.id {
            Some(id) => watch::one(context, &id).await?,
            None => watch::all(context, watch.list, watch.count).await?,
        },
        Command::Explain { id } => {
            let one = context.get(&path(&id, "/explain")?, &[]).await?;
            output.value(&one, |one| words::explained(&context.show(), one))?;
        }
        Command::Retry { id } => {
            let answer = context.post(&path(&id, "/retry")?, None).await?;
            output.value(&answer, |one| {
                let state = part(one, "state");
                format!("{id} is attempted as soon as its turn comes (it is {state} now)")
            })?;
        }
        Command::Replay { id } => {
            let answer = context.post(&path(&id, "/replay")?, None).await?;
            output.value(&answer, |_| format!("{id} is sent again"))?;
        }
        Command::Cancel { id } => {
            let answer = context.post(&path(&id, "/cancel")?, None).await?;
            output.value(&answer, |_| format!("{id} is cancelled"))?;
        }
    }
    Ok(())
}

/// The URL of a delivery's destination; `None` where a destination without subscriptions is forgotten already.
async fn url(context: &Context, delivery: &Json) -> Option<String> {
    let id = segment(delivery["destination_id"].as_str()?).ok()?;
    let destination = context.get(&format!("/v1/destinations/{id}"), &[]).await.ok()?;
    destination["url"].as_str().map(str::to_owned)
}

impl List {
    /// Whether it selects some of the deliveries only, and the query.
    fn query(self) -> (bool, Vec<(&'static str, String)>) {
        let pairs = vec![
            ("state", self.state),
            ("destination", self.destination),
            ("subscription", self.subscription),
            ("event", self.event),
            ("type", self.kind),
            ("object", self.object),
            ("since", self.since),
            ("until", self.until),
        ];
        (pairs.iter().any(|(_, value)| value.is_some()), self.paging.query(pairs))
    }
}

fn path(id: &str, what: &str) -> Result<String, Failure> {
    Ok(format!("/v1/deliveries/{}{what}", segment(id)?))
}
