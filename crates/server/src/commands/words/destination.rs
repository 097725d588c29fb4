//! Destinations in words.

use serde_json::Value as Json;

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

pub(in crate::commands) fn one(show: &Show, one: &Json) -> String {
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
    format!("{}\n\n{}{next}", fields.shown(show.output), near.shown(show.output))
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
    let hours = |name: &str| by_time["seconds_without_success"][name].as_u64().unwrap_or(0) / 3600;
    let time = format!(
        "{} failures in a row, and {} h of {} h without success",
        count(&by_time["consecutive_failures"]),
        hours("now"),
        hours("limit"),
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
