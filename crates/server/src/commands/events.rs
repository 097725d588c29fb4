//! `postrider events`: lists and shows events.

use clap::{Args, Subcommand};

use super::words::event;
use super::{Context, Paging, escaped_segment};
use crate::exit::Failure;

#[derive(Debug, Args)]
pub(crate) struct Events {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List events, newest first.
    List {
        /// Events of this type.
        #[arg(long = "type", value_name = "TYPE")]
        kind: Option<String>,
        /// Events accepted at or after this RFC 3339 time.
        #[arg(long, value_name = "TIME")]
        since: Option<String>,
        /// Events accepted before this RFC 3339 time.
        #[arg(long, value_name = "TIME")]
        until: Option<String>,
        #[command(flatten)]
        paging: Paging,
    },
    /// Show an event with its payload and its deliveries.
    Get {
        /// The event's identifier.
        id: String,
    },
}

pub(crate) async fn run(context: &Context, events: Events) -> Result<(), Failure> {
    match events.command {
        Command::List { kind, since, until, paging } => {
            let is_filtered = kind.is_some() || since.is_some() || until.is_some();
            let query = paging.query(vec![("type", kind), ("since", since), ("until", until)]);
            let list = context.get("/v1/events", &query).await?;
            context.output.value(&list, |list| event::list(&context.show(), list, is_filtered))?;
        }
        Command::Get { id } => {
            let one = context.get(&format!("/v1/events/{}", escaped_segment(&id)?), &[]).await?;
            context.output.value(&one, |one| event::one(&context.show(), one))?;
        }
    }
    Ok(())
}
