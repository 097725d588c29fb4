//! Destinations in words.

use serde_json::{Value as Json, json};

use crate::output::part;
use crate::show::{Empty, Fields, Show, cell, state, url};
use crate::table::{Cell, Column};

pub(in crate::commands) fn list(show: &Show, list: &Json, is_filtered: bool) -> String {
    let columns = [
        Column::new("ID"),
        Column::new("STATE"),
        Column::new("WAITING").right(),
        Column::new("URL").cut_middle(16),
        Column::new("FAILED").optional(),
        Column::new("LAST SUCCESS").optional(),
        Column::new("IN A ROW").right().optional(),
    ];
    let row = |one: &Json| {
        vec![
            cell(one, "id"),
            state(one),
            cell(one, "waiting"),
            url(one),
            Cell::from(format!("{} of {}", part(one, "failures"), part(one, "attempts"))),
            show.when(one, "last_success_at"),
            cell(one, "consecutive_failures"),
        ]
    };
    let empty = if is_filtered {
        Empty {
            nothing: "No destination matches.",
            next: &["All of them: postrider destinations list"],
        }
    } else {
        Empty {
            nothing: "No destinations.",
            next: &[
                "A URL becomes one with its first subscription:",
                "  postrider subscriptions create https://your.example.com/hook 'task.*'",
            ],
        }
    };
    show.list(list, &columns, row, empty)
}

/// A destination, with its statistics of the last 24 hours; null where those are not known.
pub(in crate::commands) fn one(show: &Show, one: &Json, stats: &Json) -> String {
    let attempts = format!(
        "{}, of which {} failed; {} failures in a row",
        part(one, "attempts"),
        part(one, "failures"),
        part(one, "consecutive_failures"),
    );
    let since = show.moment(one, "disabled_at").or_else(|| show.moment(one, "frozen_at"));
    let never = || Cell::from("never");
    let fields = Fields::new()
        .with("destination", cell(one, "id"))
        .with("url", cell(one, "url"))
        .with("state", state(one))
        .with_part("reason", one, "reason")
        .with_some("since", since)
        .with("waiting", cell(one, "waiting"))
        .with("attempts", attempts)
        .with("last success", show.moment(one, "last_success_at").unwrap_or_else(never))
        .with_some("next probe", show.moment(one, "next_probe_at"))
        .with_some("created", show.moment(one, "created_at"));
    let figures = figures(stats);
    let near = thresholds(&one["thresholds"]);
    let next = match one["state"].as_str() {
        Some("frozen") => {
            let id = part(one, "id");
            format!(
                "\n\nIt is not attempted until somebody enables it: postrider destinations enable {id}"
            )
        }
        Some("disabled") => {
            let id = part(one, "id");
            format!(
                "\n\nA probe that succeeds enables it. To do it now:\n  postrider destinations enable {id}"
            )
        }
        Some(_) | None => String::new(),
    };
    let lately = figures.map(|figures| format!("\n\n{}", figures.shown(show.output)));
    let (fields, near) = (fields.shown(show.output), near.shown(show.output));
    format!("{fields}{}\n\n{near}{next}", lately.unwrap_or_default())
}

/// How its attempts went lately.
fn figures(stats: &Json) -> Option<Fields> {
    let figures = stats.get("figures")?;
    let mut fields = Fields::new()
        .with("last 24 hours", went(&figures["last_24_hours"]))
        .with("last 7 days", went(&figures["last_7_days"]));
    let failures = stats["failures"].as_array().map_or(&[][..], Vec::as_slice);
    if !failures.is_empty() {
        fields = fields.with("failed by", failures_in_words(failures));
    }
    let recent = figures["recent"].as_array().map_or(&[][..], Vec::as_slice);
    if !recent.is_empty() {
        let mark = |one: &Json| if one["class"] == "delivered" { '.' } else { 'x' };
        let marks: String = recent.iter().map(mark).collect();
        fields = fields.with("recent", format!("{marks}  (oldest first, x failed)"));
    }
    Some(fields)
}

/// Counts, success rate and response times in a line.
fn went(counts: &Json) -> String {
    if counts["attempts"] == 0 {
        return "no attempts".to_owned();
    }
    let mut said = format!("{} attempts", part(counts, "attempts"));
    if counts["success_rate"].is_number() {
        said += &format!(", {} delivered", rate(counts));
    }
    if counts["p50_ms"].is_number() {
        let (half, most) = (part(counts, "p50_ms"), part(counts, "p99_ms"));
        said += &format!("; answered within {half} ms (half), {most} ms (99 %)");
    }
    said
}

/// A success rate with one decimal; a dash where there is none.
fn rate(counts: &Json) -> String {
    match counts["success_rate"].as_f64() {
        Some(rate) => format!("{:.1} %", (rate * 1000.0).floor() / 10.0),
        None => "-".to_owned(),
    }
}

fn failures_in_words(failures: &[Json]) -> String {
    let say = |one: &Json| format!("{} × {}", part(one, "class"), part(one, "count"));
    failures.iter().map(say).collect::<Vec<_>>().join(", ")
}

/// The hours of a destination, newest first, and how attempts failed.
pub(in crate::commands) fn stats(show: &Show, stats: &Json) -> String {
    let columns = [
        Column::new("HOUR"),
        Column::new("ATTEMPTS").right(),
        Column::new("DELIVERED").right(),
        Column::new("FAILED").right(),
        Column::new("SUCCESS").right(),
        Column::new("P50 MS").right(),
        Column::new("P99 MS").right(),
    ];
    let row = |one: &Json| {
        vec![
            show.when(one, "at"),
            cell(one, "attempts"),
            cell(one, "delivered"),
            cell(one, "failed"),
            Cell::from(rate(one)),
            cell(one, "p50_ms"),
            cell(one, "p99_ms"),
        ]
    };
    let hours = stats["hours"].as_array().map_or(&[][..], Vec::as_slice);
    let busy: Vec<Json> =
        hours.iter().rev().filter(|hour| hour["attempts"] != 0).cloned().collect();
    let list = json!({"data": busy, "next_cursor": null});
    let empty = Empty { nothing: "No attempts in this time.", next: &[] };
    let table = show.list(&list, &columns, row, empty);
    if busy.is_empty() {
        return table;
    }
    let failures = stats["failures"].as_array().map_or(&[][..], Vec::as_slice);
    let mut total = Fields::new().with("together", went(&stats["total"]));
    if !failures.is_empty() {
        total = total.with("failed by", failures_in_words(failures));
    }
    format!("{table}\n\n{}", total.shown(show.output))
}

/// How near it is to each threshold.
fn thresholds(near: &Json) -> Fields {
    let share = &near["disabled_by_failure_share"];
    let percent = |value: &Json| format!("{:.0} %", value.as_f64().unwrap_or(0.0) * 100.0);
    let by_share = format!(
        "more than {} of more than {} attempts failed: now {} of {} ({})",
        percent(&share["limit"]),
        part(share, "grace"),
        part(share, "failures"),
        part(share, "attempts"),
        percent(&share["share"]),
    );
    let count =
        |progress: &Json| format!("{} of {}", part(progress, "now"), part(progress, "limit"));
    let by_time = &near["frozen_by_time"];
    let seconds = |name: &str| by_time["seconds_without_success"][name].as_u64().unwrap_or(0);
    // With `--time-scale` the limit can be less than an hour.
    let (unit, name) = if seconds("limit") < 3600 { (1, "s") } else { (3600, "h") };
    let time = format!(
        "{} failures in a row, and {} {name} of {} {name} without success",
        count(&by_time["consecutive_failures"]),
        seconds("now") / unit,
        seconds("limit") / unit,
    );
    let in_a_row = |name: &str| format!("{} failures in a row", count(&near[name]));
    Fields::new()
        .with("disabled when", by_share)
        .with("or at", in_a_row("disabled_by_consecutive_failures"))
        .with("frozen when", time)
        .with("or at", in_a_row("frozen_by_consecutive_failures"))
}

pub(in crate::commands) fn timeline(show: &Show, list: &Json) -> String {
    let columns = [
        Column::new("WHEN"),
        Column::new("STATE"),
        Column::new("FAILED"),
        Column::new("WHY").wrap(),
    ];
    let row = |one: &Json| {
        let counters = &one["counters"];
        vec![
            show.when(one, "at"),
            Cell::state(&part(one, "to")),
            Cell::from(format!("{} of {}", part(counters, "failures"), part(counters, "attempts"))),
            cell(one, "reason"),
        ]
    };
    let empty =
        Empty { nothing: "Nothing happened: it is enabled since it was created.", next: &[] };
    show.list(list, &columns, row, empty)
}
