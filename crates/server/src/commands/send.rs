//! `postrider send`: sends an event to the API.

use std::io::Read as _;

use clap::Args;
use hyper::Method;
use serde::Serialize;
use serde_json::value::RawValue;

use super::Context;
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
    /// The event's identifier; sending the same event again has no effect.
    #[arg(long)]
    id: Option<String>,
    /// When it happened, as an RFC 3339 time.
    #[arg(long)]
    time: Option<String>,
}

/// The event as it is sent: JSON arguments are sent byte for byte.
#[derive(Serialize)]
struct Event<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    data: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    old: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    object: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<&'a str>,
}

fn raw<'a>(text: &'a str, what: &str) -> Result<&'a RawValue, Failure> {
    serde_json::from_str(text).map_err(|error| Failure::usage(format!("{what}: {error}")))
}

pub(crate) async fn run(context: &Context, send: Send) -> Result<(), Failure> {
    let data = if send.data == "-" {
        let mut text = String::new();
        std::io::stdin().lock().read_to_string(&mut text)?;
        text
    } else {
        send.data
    };
    let event = Event {
        kind: &send.kind,
        data: raw(&data, "the data")?,
        old: send.old.as_deref().map(|old| raw(old, "--old")).transpose()?,
        object: send.object.as_deref(),
        id: send.id.as_deref(),
        time: send.time.as_deref(),
    };
    let body = serde_json::to_vec(&event).map_err(|error| Failure::usage(error.to_string()))?;
    let answer = context.ask(Method::POST, "/v1/events", &[], Some(body.into())).await?;
    context.output.value(&answer, |answer| {
        let repeat = if answer["duplicate"] == true { ", accepted before" } else { "" };
        let deliveries = part(answer, "deliveries");
        let hint = if deliveries == "0" { "\nNo subscription wants this event." } else { "" };
        format!("{}  deliveries: {deliveries}{repeat}{hint}", part(answer, "id"))
    })?;
    Ok(())
}
