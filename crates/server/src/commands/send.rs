//! `postrider send`: hands an event in.

use std::io::Read as _;

use clap::Args;
use serde_json::{Value as Json, json};

use super::{Context, object, parse_json};
use crate::exit::Failure;
use crate::output::part;

#[derive(Debug, Args)]
pub(crate) struct Send {
    /// The event's type, such as task.updated.
    #[arg(value_name = "TYPE")]
    kind: String,
    /// Its data, as JSON; `-` reads the standard input.
    #[arg(default_value = "{}")]
    data: String,
    /// The old state of the object, as JSON.
    #[arg(long)]
    old: Option<String>,
    /// The identifier of the object that it happened to.
    #[arg(long)]
    object: Option<String>,
    /// The event's identifier; sending the same again does nothing new.
    #[arg(long)]
    id: Option<String>,
    /// When it happened, as an RFC 3339 time.
    #[arg(long)]
    time: Option<String>,
}

pub(crate) async fn run(context: &Context, send: Send) -> Result<(), Failure> {
    let data = if send.data == "-" {
        let mut text = String::new();
        std::io::stdin().lock().read_to_string(&mut text)?;
        text
    } else {
        send.data
    };
    let old = send.old.map(|old| parse_json(&old, "--old")).transpose()?;
    let event = object(vec![
        ("type", Some(json!(send.kind))),
        ("data", Some(parse_json(&data, "the data")?)),
        ("old", old),
        ("object", send.object.map(Json::from)),
        ("id", send.id.map(Json::from)),
        ("time", send.time.map(Json::from)),
    ]);
    let answer = context.post("/v1/events", Some(&event)).await?;
    context.output.value(&answer, |answer| {
        let repeat = if answer["duplicate"] == true { ", accepted before" } else { "" };
        let deliveries = part(answer, "deliveries");
        let hint = if deliveries == "0" { "\nNo subscription wants this event." } else { "" };
        format!("{}  deliveries: {deliveries}{repeat}{hint}", part(answer, "id"))
    })?;
    Ok(())
}
