//! `postrider deliveries`: lists, explains, retries, replays and cancels deliveries.

use clap::{Args, Subcommand};
use serde_json::Value as Json;

use super::subscriptions::pretty;
use super::{Context, more, query, segment};
use crate::exit::Failure;
use crate::output::{entries, escaped, part, table};

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
    /// Show at most this many.
    #[arg(long)]
    limit: Option<u32>,
    /// The cursor of the page.
    #[arg(long)]
    cursor: Option<String>,
}

pub(crate) async fn run(context: &Context, arguments: Deliveries) -> Result<(), Failure> {
    let output = context.output;
    match arguments.command {
        Command::List(list) => {
            let list = context.get("/v1/deliveries", &filter(*list)).await?;
            output.value(&list, |list| shown(context, list) + &more(list))?;
        }
        Command::Get { id } => {
            let one = context.get(&path(&id, "")?, &[]).await?;
            output.value(&one, pretty)?;
        }
        Command::Explain { id } => {
            let one = context.get(&path(&id, "/explain")?, &[]).await?;
            output.value(&one, explained)?;
        }
        Command::Retry { id } => {
            let answer = context.post(&path(&id, "/retry")?, None).await?;
            output.value(&answer, |one| {
                format!(
                    "{id} is attempted as soon as its turn comes: {}",
                    part(one, "next_attempt_at")
                )
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

/// The explanation as text.
fn explained(explanation: &Json) -> String {
    let list = |name: &str| explanation[name].as_array().map_or(&[][..], Vec::as_slice);
    let mut lines = vec![part(explanation, "summary")];
    for because in list("because") {
        lines.push(format!("  - {}", escaped(because.as_str().unwrap_or_default())));
    }
    let next = &explanation["next"];
    if next.is_object() {
        let at = if next["at"].is_null() { "next".to_owned() } else { part(next, "at") };
        lines.push(format!("{at}: {}", part(next, "what")));
    }
    for way in list("unblock") {
        lines.push(format!("to unblock it: {}", part(way, "what")));
    }
    lines.join("\n")
}

fn filter(list: List) -> Vec<(&'static str, String)> {
    query(vec![
        ("state", list.state),
        ("destination", list.destination),
        ("subscription", list.subscription),
        ("event", list.event),
        ("type", list.kind),
        ("object", list.object),
        ("since", list.since),
        ("until", list.until),
        ("limit", list.limit.map(|limit| limit.to_string())),
        ("cursor", list.cursor),
    ])
}

fn shown(context: &Context, list: &Json) -> String {
    let row = |one: &Json| {
        let state = one.get("state").and_then(Json::as_str).unwrap_or("-");
        let mut row = vec![part(one, "id"), context.output.state(state)];
        row.extend(
            ["type", "attempts", "next_attempt_at", "created_at", "event_id"]
                .map(|name| part(one, name)),
        );
        row
    };
    let head = ["ID", "STATE", "TYPE", "ATTEMPTS", "NEXT ATTEMPT", "CREATED", "EVENT"];
    table(&head, entries(list).iter().map(row).collect())
}

fn path(id: &str, what: &str) -> Result<String, Failure> {
    Ok(format!("/v1/deliveries/{}{what}", segment(id)?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_explanation_reads_as_words() {
        let explanation = json!({
            "summary": "waiting for retry 1 of 11",
            "because": ["attempt 1 failed: refused"],
            "next": {"at": "T", "what": "it is attempted at its slot"},
            "unblock": [{"action": "fix_receiver", "what": "make the receiver answer"}],
        });
        assert_eq!(
            explained(&explanation),
            "waiting for retry 1 of 11\n  - attempt 1 failed: refused\nT: it is attempted at its \
             slot\nto unblock it: make the receiver answer"
        );
        assert_eq!(explained(&json!({"summary": "delivered"})), "delivered");
    }
}
