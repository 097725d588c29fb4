//! `postrider deliveries watch`: one delivery until it ends, or all as they change.

use std::collections::HashMap;
use std::io::IsTerminal as _;
use std::time::Duration;

use serde_json::{Value as Json, json};

use super::super::tail::Urls;
use super::super::words::delivery::{self as words, attempt_line};
use super::{Context, List, path};
use crate::exit::Failure;
use crate::output::{entries, escaped, line, part};
use crate::show::Show;
use crate::times;

/// How often the server is asked.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// Deliveries that are watched unless `--limit` says otherwise.
const LIMIT: u32 = 20;

/// Follows one delivery until it ends. Fails if it was not delivered.
pub(super) async fn one(context: &Context, id: &str) -> Result<(), Failure> {
    let (path, mut urls) = (path(id, "")?, Urls::default());
    let mut ticks = ticks();
    let mut seen = 0;
    let mut last_state = String::new();
    loop {
        ticks.tick().await;
        let delivery = context.get(&path, &[]).await?;
        let destination = delivery["destination_id"].as_str().unwrap_or_default();
        let url = urls.of(context, destination).await?;
        let attempts = delivery["attempt_log"].as_array().map_or(&[][..], Vec::as_slice);
        let number = |attempt: &Json| attempt["number"].as_u64().unwrap_or(0);
        for attempt in attempts.iter().filter(|attempt| number(attempt) > seen) {
            print_attempt(context, &delivery, attempt, &url)?;
        }
        seen = attempts.iter().map(number).max().unwrap_or(seen).max(seen);
        let state = part(&delivery, "state");
        let has_ended = !delivery["finished_at"].is_null();
        if state != last_state && seen == 0 || has_ended {
            print_state(context, &delivery)?;
        }
        last_state.clone_from(&state);
        match state.as_str() {
            "delivered" if has_ended => return Ok(()),
            _ if has_ended => return Err(Failure::failed(format!("{} is {state}", escaped(id)))),
            _ => {}
        }
    }
}

fn print_attempt(
    context: &Context,
    delivery: &Json,
    attempt: &Json,
    url: &str,
) -> Result<(), Failure> {
    if context.output.json {
        let data = json!({ "delivery": without_log(delivery), "attempt": attempt, "url": url });
        return Ok(line(&json!({ "event": "attempt", "data": data }).to_string())?);
    }
    Ok(line(&attempt_line(&context.show(), delivery, attempt, url))?)
}

fn print_state(context: &Context, delivery: &Json) -> Result<(), Failure> {
    if context.output.json {
        let data = json!({ "delivery": without_log(delivery) });
        return Ok(line(&json!({ "event": "state", "data": data }).to_string())?);
    }
    let (show, state) = (context.show(), part(delivery, "state"));
    let reason = part(delivery, "reason");
    let reason = if reason == "-" { String::new() } else { format!(" ({reason})") };
    let now = times::of_day(show.now);
    let state = context.output.state(&state);
    Ok(line(&format!("{now}  {state}{reason}  {}", part(delivery, "id")))?)
}

fn without_log(delivery: &Json) -> Json {
    let mut delivery = delivery.clone();
    if let Some(fields) = delivery.as_object_mut() {
        for name in ["attempt_log", "attempt_log_cursor", "schedule"] {
            fields.remove(name);
        }
    }
    delivery
}

/// Shows the newest deliveries as they change: a table that is drawn again on a terminal, otherwise a
/// line for each change.
pub(super) async fn all(
    context: &Context,
    mut list: List,
    count: Option<u64>,
) -> Result<(), Failure> {
    list.paging.limit = list.paging.limit.or(Some(LIMIT));
    let (is_filtered, query) = list.query();
    let output = context.output;
    let draws = !output.json && output.redraws() && std::io::stdout().is_terminal();
    let mut ticks = ticks();
    let mut changes = Changes::default();
    let mut seen = 0;
    loop {
        ticks.tick().await;
        let mut list = context.get("/v1/deliveries", &query).await?;
        // The newest are watched: another page would not be.
        list["next_cursor"] = Json::Null;
        let changed = changes.take(entries(&list));
        seen += u64::try_from(changed.len()).unwrap_or(u64::MAX);
        if draws {
            let show = context.show();
            let table = words::list(&show, &list, is_filtered);
            line(&format!("\u{1b}[2J\u{1b}[H{}  Ctrl-C ends\n\n{table}", times::exact(show.now)))?;
        } else {
            for delivery in changed {
                print_change(context, delivery)?;
            }
        }
        if count.is_some_and(|count| seen >= count) {
            return Ok(());
        }
    }
}

fn print_change(context: &Context, delivery: &Json) -> Result<(), Failure> {
    if context.output.json {
        return Ok(line(&delivery.to_string())?);
    }
    Ok(line(&change_line(&context.show(), delivery))?)
}

/// A delivery in a line that fits 80 columns, if the name of its type is not long.
fn change_line(show: &Show, delivery: &Json) -> String {
    let (now, state) = (times::of_day(show.now), part(delivery, "state"));
    let space = " ".repeat(9_usize.saturating_sub(state.len()));
    let (state, id) = (show.output.state(&state), part(delivery, "id"));
    let (attempts, kind) = (part(delivery, "attempts"), part(delivery, "type"));
    format!("{now}  {state}{space}  {id}  #{attempts}  {kind}")
}

fn ticks() -> tokio::time::Interval {
    let mut ticks = tokio::time::interval(ASK_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    ticks
}

/// What was seen of each delivery on the page.
#[derive(Default)]
struct Changes(HashMap<String, (String, u64)>);

impl Changes {
    /// Those of the page, oldest first, that are new or have changed.
    fn take<'a>(&mut self, page: &'a [Json]) -> Vec<&'a Json> {
        let mut now = HashMap::new();
        let mut changed = Vec::new();
        for delivery in page.iter().rev() {
            let (id, state) = (part(delivery, "id"), part(delivery, "state"));
            let seen = (state, delivery["attempts"].as_u64().unwrap_or(0));
            if self.0.get(&id) != Some(&seen) {
                changed.push(delivery);
            }
            now.insert(id, seen);
        }
        self.0 = now;
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delivery_is_shown_again_only_when_it_has_changed() {
        let one = |id: &str, state: &str, attempts: u64| json!({"id": id, "state": state, "attempts": attempts});
        let ids =
            |changed: Vec<&Json>| changed.iter().map(|one| part(one, "id")).collect::<Vec<_>>();
        let mut changes = Changes::default();
        let page = [one("b", "queued", 0), one("a", "waiting", 1)];
        assert_eq!(ids(changes.take(&page)), ["a", "b"]);
        assert!(changes.take(&page).is_empty());
        let page = [one("b", "delivered", 1), one("a", "waiting", 1)];
        assert_eq!(ids(changes.take(&page)), ["b"]);
        let page = [one("b", "delivered", 1), one("a", "waiting", 2)];
        assert_eq!(ids(changes.take(&page)), ["a"]);
    }

    #[test]
    fn change_of_a_delivery_fits_80_columns() {
        let now = "2026-11-18T02:14:57Z".parse().unwrap();
        let show = Show { output: crate::output::Output::plain(80), now };
        let delivery = json!({
            "id": "dlv_019a86d99e3877078707070707070707", "state": "delivered", "attempts": 12,
            "type": "task.updated",
        });
        let line = change_line(&show, &delivery);
        let expected =
            "02:14:57  delivered  dlv_019a86d99e3877078707070707070707  #12  task.updated";
        assert_eq!((line.as_str(), line.len() <= 80), (expected, true));
    }
}
