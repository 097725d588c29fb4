//! `postrider erase`: erases the payload of an event, or of all events of an object.

use std::time::Duration;

use clap::{ArgGroup, Args};
use serde_json::Value as Json;

use super::words::erasure as words;
use super::{Context, object, query, segment};
use crate::exit::Failure;
use crate::output::part;

/// How long to wait before the progress is looked at again.
const LOOK_EVERY: Duration = Duration::from_millis(500);

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("what").required(true).args(["event", "object", "job", "list"])))]
pub(crate) struct Erase {
    /// Erase the payload of this event.
    #[arg(long)]
    event: Option<String>,
    /// Erase the payloads of all events of this object.
    #[arg(long)]
    object: Option<String>,
    /// Show the progress of this erasure.
    #[arg(long, value_name = "ID")]
    job: Option<String>,
    /// List erasures.
    #[arg(long)]
    list: bool,
    /// Wait until it has finished.
    #[arg(long)]
    wait: bool,
    /// Erase without asking.
    #[arg(long)]
    yes: bool,
    /// With --list: show at most this many.
    #[arg(long)]
    limit: Option<u32>,
    /// With --list: the cursor of the page.
    #[arg(long)]
    cursor: Option<String>,
}

pub(crate) async fn run(context: &Context, arguments: Erase) -> Result<(), Failure> {
    if arguments.list {
        return list(context, arguments.limit, arguments.cursor).await;
    }
    let job = match arguments.job {
        Some(id) => context.get(&path(&id)?, &[]).await?,
        None => {
            if !arguments.yes {
                let what = "an erasure cannot be undone, and cancels what is still to be delivered: \
                            repeat the command with --yes";
                return Err(Failure::usage(what));
            }
            let body = object(vec![
                ("event", arguments.event.map(Json::from)),
                ("object", arguments.object.map(Json::from)),
            ]);
            context.post("/v1/erasures", Some(&body)).await?
        }
    };
    let job = if arguments.wait { finished(context, job).await? } else { job };
    Ok(context.output.value(&job, |job| words::one(&context.show(), job))?)
}

/// Waits until an erasure has finished.
#[expect(clippy::disallowed_methods, reason = "another process does not announce when it is done")]
async fn finished(context: &Context, mut job: Json) -> Result<Json, Failure> {
    while part(&job, "state") != "finished" {
        tokio::time::sleep(LOOK_EVERY).await;
        job = context.get(&path(&part(&job, "id"))?, &[]).await?;
    }
    Ok(job)
}

async fn list(
    context: &Context,
    limit: Option<u32>,
    cursor: Option<String>,
) -> Result<(), Failure> {
    let query = query(vec![("limit", limit.map(|limit| limit.to_string())), ("cursor", cursor)]);
    let list = context.get("/v1/erasures", &query).await?;
    context.output.value(&list, |list| words::list(&context.show(), list))?;
    Ok(())
}

fn path(id: &str) -> Result<String, Failure> {
    Ok(format!("/v1/erasures/{}", segment(id)?))
}
