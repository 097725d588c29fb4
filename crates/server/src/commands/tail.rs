//! `postrider tail`: follows attempts live.

use std::collections::HashMap;

use clap::{Args, ValueEnum};
use serde_json::{Value as Json, json};

use super::stream::{Happening, Stream};
use super::words::delivery::attempt_line;
use super::{Context, query};
use crate::exit::Failure;
use crate::output::{Colour, escaped, line, part, time};
use crate::times;

/// URLs that are remembered; after that all are asked for again.
const URLS_MAX: usize = 10_000;

#[derive(Debug, Args)]
pub(crate) struct Tail {
    /// Stop after this many attempts.
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    #[command(flatten)]
    filter: Filter,
}

/// Selects what is shown.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Filters")]
struct Filter {
    /// Of the attempts only those that failed, or were delivered.
    #[arg(long, value_enum)]
    outcome: Option<Outcome>,
    /// Of this destination only.
    #[arg(long, value_name = "ID")]
    destination: Option<String>,
    /// Attempts for this subscription only.
    #[arg(long, value_name = "ID")]
    subscription: Option<String>,
    /// Attempts for this event only.
    #[arg(long, value_name = "ID")]
    event: Option<String>,
    /// Attempts of events of this type only; `task.*` for all that begin with `task.`.
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// Attempts whose URL has this in it.
    #[arg(long, value_name = "TEXT")]
    url: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Outcome {
    Failed,
    Delivered,
}

impl Filter {
    /// Whether an attempt is wanted. Where its URL matters, that must be known.
    fn wants(&self, delivery: &Json, url: &str) -> bool {
        let is = |wanted: &Option<String>, field: &str| {
            wanted.as_deref().is_none_or(|wanted| delivery[field] == wanted)
        };
        let kind = delivery["type"].as_str().unwrap_or_default();
        let is_kind = self.kind.as_deref().is_none_or(|wanted| match wanted.strip_suffix('*') {
            Some(begin) => kind.starts_with(begin),
            None => kind == wanted,
        });
        is(&self.subscription, "subscription_id")
            && is(&self.event, "event_id")
            && is_kind
            && self.url.as_deref().is_none_or(|wanted| url.contains(wanted))
    }

    /// Whether only attempts are wanted: other events have neither subscription, event nor type.
    const fn is_of_attempts(&self) -> bool {
        self.subscription.is_some() || self.event.is_some() || self.kind.is_some()
    }
}

/// The URLs of destinations, asked for once.
#[derive(Default)]
pub(super) struct Urls(HashMap<String, String>);

impl Urls {
    /// The URL of a destination; a dash if it is gone.
    pub(super) async fn of(&mut self, context: &Context, id: &str) -> Result<String, Failure> {
        if let Some(url) = self.0.get(id) {
            return Ok(url.clone());
        }
        let url = match context.get(&format!("/v1/destinations/{}", super::segment(id)?), &[]).await
        {
            Ok(destination) => destination["url"].as_str().unwrap_or("-").to_owned(),
            Err(failure) if failure.code == 3 => "-".to_owned(),
            Err(failure) => return Err(failure),
        };
        if self.0.len() >= URLS_MAX {
            self.0.clear();
        }
        self.0.insert(id.to_owned(), url.clone());
        Ok(url)
    }
}

pub(crate) async fn run(context: &Context, tail: Tail) -> Result<(), Failure> {
    let outcome = tail.filter.outcome.map(|outcome| match outcome {
        Outcome::Failed => "failed".to_owned(),
        Outcome::Delivered => "delivered".to_owned(),
    });
    let destination = tail.filter.destination.clone();
    let query = query(vec![("outcome", outcome), ("destination", destination)]);
    let mut stream = Stream::open(context, &query).await?;
    let (mut urls, mut seen) = (Urls::default(), 0);
    loop {
        let happening = stream.next().await?;
        if !print(context, &tail.filter, &mut urls, &happening).await? {
            continue;
        }
        seen += 1;
        if tail.count == Some(seen) {
            return Ok(());
        }
    }
}

/// Prints an event of the stream, if it is wanted.
async fn print(
    context: &Context,
    filter: &Filter,
    urls: &mut Urls,
    Happening { name, data }: &Happening,
) -> Result<bool, Failure> {
    let is_attempt = name == "attempt";
    let delivery = &data["delivery"];
    let url = match delivery["destination_id"].as_str() {
        Some(id) => urls.of(context, id).await?,
        None => data["url"].as_str().unwrap_or("-").to_owned(),
    };
    let is_end = matches!(name.as_str(), "lagged" | "closed");
    let is_wanted = if delivery.is_object() {
        filter.wants(delivery, &url)
    } else {
        is_end || (!filter.is_of_attempts() && filter.wants(delivery, &url))
    };
    if !is_wanted {
        return Ok(false);
    }
    if context.output.json {
        let mut data = data.clone();
        if delivery.is_object() && url != "-" {
            data["url"] = json!(url);
        }
        line(&json!({ "event": name, "data": data }).to_string())?;
        return Ok(true);
    }
    let text = if is_attempt {
        attempt_line(&context.show(), delivery, &data["attempt"], &url)
    } else {
        other(context, name, data, &url)
    };
    line(&text)?;
    Ok(true)
}

/// What is no attempt, in one line.
fn other(context: &Context, name: &str, data: &Json, url: &str) -> String {
    let output = context.output;
    let url = escaped(url);
    let now = times::of_day(context.show().now);
    match name {
        "transition" => {
            let transition = &data["transition"];
            let at = time(transition, "at").map_or(now, times::of_day);
            let (from, to) = (part(transition, "from"), part(transition, "to"));
            let change = if from == to { to.clone() } else { format!("{from} → {to}") };
            let change = change.replace(&to, &output.state(&to));
            format!("{at}  {change}  {url}\n          {}", part(transition, "reason"))
        }
        "dead" => {
            let delivery = &data["delivery"];
            let dead = output.state("dead");
            format!(
                "{now}  {dead}       {}  {}  {url}",
                part(delivery, "type"),
                part(delivery, "id")
            )
        }
        "lagged" => output.paint(
            Colour::Yellow,
            &format!(
                "{now}  {} events were missed: this terminal reads too slowly",
                part(data, "missed")
            ),
        ),
        "closed" => output.paint(Colour::Red, &format!("{now}  closed: {}", part(data, "reason"))),
        name => {
            let name = output.paint(Colour::Yellow, &escaped(name));
            format!("{now}  {name}  {url}  {}", escaped(&data.to_string()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filter_selects_attempts_by_delivery_and_url() {
        let delivery =
            json!({"subscription_id": "sub_1", "event_id": "evt_1", "type": "task.updated"});
        let set = |text: &str| Some(text.to_owned());
        let none = Filter::default;
        for (filter, wanted) in [
            (none(), true),
            (Filter { subscription: set("sub_1"), ..none() }, true),
            (Filter { subscription: set("sub_2"), ..none() }, false),
            (Filter { event: set("evt_2"), ..none() }, false),
            (Filter { kind: set("task.updated"), ..none() }, true),
            (Filter { kind: set("task.*"), ..none() }, true),
            (Filter { kind: set("task"), ..none() }, false),
            (Filter { kind: set("note.*"), ..none() }, false),
            (Filter { url: set("example.com"), ..none() }, true),
            (Filter { url: set("elsewhere"), ..none() }, false),
            (Filter { kind: set("*"), event: set("evt_1"), url: set("/in"), ..none() }, true),
        ] {
            assert_eq!(filter.wants(&delivery, "https://example.com/in"), wanted, "{filter:?}");
        }
    }
}
