//! Deliveries and their attempts in words.

use serde_json::Value as Json;
use unicode_width::UnicodeWidthStr as _;

use crate::output::{escaped, part, time};
use crate::show::{Empty, Fields, Show, cell, state};
use crate::table::{Cell, Column, Table, cut, cut_middle};
use crate::times;

/// How much of a response's body is shown.
const ANSWER_CHARS_MAX: usize = 300;

pub(in crate::commands) fn list(show: &Show, list: &Json, is_filtered: bool) -> String {
    let columns = [
        Column::new("ID"),
        Column::new("STATE"),
        Column::new("TYPE").cut(10),
        Column::new("ATT").right(),
        Column::new("NEXT"),
        Column::new("AGE"),
        Column::new("EVENT").cut(36).optional(),
    ];
    let row = |one: &Json| {
        vec![
            cell(one, "id"),
            state(one),
            cell(one, "type"),
            cell(one, "attempts"),
            next(show, one),
            show.age(one, "created_at"),
            cell(one, "event_id"),
        ]
    };
    let empty = if is_filtered {
        Empty { nothing: "No delivery matches.", next: &["All of them: postrider deliveries list"] }
    } else {
        Empty {
            nothing: "No deliveries.",
            next: &[
                "There is one for each event that a subscription wants. Send one:",
                "  postrider send task.updated '{\"status\": \"CUR\"}'",
            ],
        }
    };
    show.list(list, &columns, row, empty)
}

/// When it is attempted next; what is overdue is attempted as soon as its turn comes.
fn next(show: &Show, one: &Json) -> Cell {
    match time(one, "next_attempt_at") {
        Some(then) if then <= show.now => Cell::from("now"),
        Some(then) => Cell::from(times::relative(show.now, then)),
        None => Cell::from("-"),
    }
}

/// A delivery with the URL of its destination; `None` where that is not known.
pub(in crate::commands) fn one(show: &Show, one: &Json, url: Option<&str>) -> String {
    let next = time(one, "next_attempt_at").map(|then| times::both(show.now, then));
    let mut text = Fields::new()
        .with("delivery", cell(one, "id"))
        .with("state", state(one))
        .with_part("reason", one, "reason")
        .with("type", cell(one, "type"))
        .with("event", cell(one, "event_id"))
        .with("subscription", cell(one, "subscription_id"))
        .with("destination", cell(one, "destination_id"))
        .with_some("url", url.map(escaped))
        .with_some("created", show.moment(one, "created_at"))
        .with_some("finished", show.moment(one, "finished_at"))
        .with_some("next", next)
        .shown(show.output);
    let attempts = one["attempt_log"].as_array().map_or(&[][..], Vec::as_slice);
    text += "\n\n";
    if attempts.is_empty() {
        text += "It was not attempted yet.";
    } else {
        text += &log(show, attempts);
        if !one["attempt_log_cursor"].is_null() {
            text += "\nThere are more attempts than are shown here.";
        }
    }
    if let Some(answer) = attempts.iter().rev().find_map(answer) {
        text += "\n\n";
        text += &Fields::new().with("last answer", answer).shown(show.output);
    }
    format!(
        "{text}\n\nWhy, and what happens next: postrider deliveries explain {}",
        part(one, "id")
    )
}

/// The attempts, oldest first.
fn log(show: &Show, attempts: &[Json]) -> String {
    let mut table = Table::new(&[
        Column::new("#").right(),
        Column::new("WHEN"),
        Column::new("TURN"),
        Column::new("OUTCOME"),
        Column::new("STATUS OR ERROR").cut(20),
        Column::new("TOOK").right(),
        Column::new("DETAIL").cut(24).optional(),
    ]);
    for attempt in attempts {
        let turn = match attempt["retry"].as_u64() {
            Some(number) => format!("retry {number}"),
            None => part(attempt, "turn"),
        };
        table.row(vec![
            cell(attempt, "number"),
            show.when(attempt, "started_at"),
            Cell::from(turn),
            Cell::state(&part(attempt, "outcome")),
            Cell::from(how(attempt)),
            Cell::from(format!("{} ms", part(attempt, "duration_ms"))),
            cell(attempt, "detail"),
        ]);
    }
    table.shown(show.output)
}

/// The status of an attempt, or its error where there was no response.
pub(in crate::commands) fn how(attempt: &Json) -> String {
    match attempt["status"].as_u64() {
        Some(status) => status.to_string(),
        None => part(attempt, "error"),
    }
}

/// The begin of a response's body, if there is any.
pub(super) fn answer(attempt: &Json) -> Option<String> {
    let body = attempt["response_body"].as_str().map(str::trim).filter(|body| !body.is_empty())?;
    Some(cut(&escaped(body), ANSWER_CHARS_MAX))
}

/// How long each phase of an attempt took.
pub(super) fn phases(attempt: &Json) -> Option<String> {
    let timings = &attempt["timings"];
    let phase =
        |name: &str, field: &str| timings[field].as_u64().map(|took| format!("{name} {took} ms"));
    let phases: Vec<_> = [
        phase("name", "dns_ms"),
        phase("connect", "connect_ms"),
        phase("TLS", "tls_ms"),
        phase("response", "response_ms"),
    ]
    .into_iter()
    .flatten()
    .collect();
    (!phases.is_empty()).then(|| phases.join(", "))
}

/// The explanation of a delivery.
pub(in crate::commands) fn explained(show: &Show, explanation: &Json) -> String {
    let list = |name: &str| explanation[name].as_array().map_or(&[][..], Vec::as_slice);
    let mut lines = vec![part(explanation, "summary")];
    for because in list("because") {
        lines.push(format!("  - {}", escaped(because.as_str().unwrap_or_default())));
    }
    let next = &explanation["next"];
    if next.is_object() {
        let at = match time(next, "at") {
            Some(at) => times::both(show.now, at),
            None => "next".to_owned(),
        };
        lines.push(format!("{at}: {}", part(next, "what")));
    }
    for way in list("unblock") {
        lines.push(format!("to unblock it: {}", part(way, "what")));
    }
    lines.join("\n")
}

/// One attempt in one line, or two where the terminal is narrow: `tail` and `deliveries watch`.
pub(in crate::commands) fn attempt_line(
    show: &Show,
    delivery: &Json,
    attempt: &Json,
    url: &str,
) -> String {
    let output = show.output;
    let begun = time(attempt, "started_at").map(times::of_day).unwrap_or_default();
    let (outcome, state) = (part(attempt, "outcome"), part(delivery, "state"));
    let how = format!("{:<9}  {} in {} ms", outcome, how(attempt), part(attempt, "duration_ms"));
    let next = match time(delivery, "next_attempt_at") {
        Some(then) => format!(", next {}", times::relative(show.now, then)),
        None => String::new(),
    };
    let first = format!("{begun}  {how}");
    let second = format!("{} #{} {state}{next}", part(delivery, "id"), part(attempt, "number"));
    let (url, kind) = (escaped(url), part(delivery, "type"));
    let widths = [&first, &second, &url, &kind].map(|text| text.width());
    let [first_width, second_width, ..] = widths;
    let first = first.replacen(&outcome, &output.state(&outcome), 1);
    let second = second.replacen(&state, &output.state(&state), 1);
    if widths.iter().sum::<usize>() + 6 <= output.width() {
        return format!("{first}  {url}  {second}  {kind}");
    }
    let room = |taken: usize| output.width().saturating_sub(taken).max(1);
    let url = cut_middle(&url, room(first_width + 2));
    format!("{first}  {url}\n  {second}  {}", cut(&kind, room(second_width + 4)))
}
