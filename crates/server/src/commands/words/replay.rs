//! Bulk replay jobs in words.

use serde_json::Value as Json;

use crate::output::part;
use crate::show::{Empty, Fields, Show, cell, state};
use crate::table::{Cell, Column};
use crate::times;

const EMPTY: Empty<'_> = Empty {
    nothing: "No replays.",
    next: &["Count what died: postrider replay start --state dead --dry-run"],
};

pub(in crate::commands) fn list(show: &Show, list: &Json) -> String {
    let columns = [
        Column::new("ID"),
        Column::new("STATE"),
        Column::new("SENT").right(),
        Column::new("OUTCOME").optional(),
        Column::new("STARTED"),
        Column::new("WHICH").cut(8),
    ];
    let row = |one: &Json| {
        vec![
            cell(one, "id"),
            state(one),
            Cell::from(format!("{} of {}", part(one, "done"), part(one, "total"))),
            Cell::from(outcome(one).unwrap_or_default()),
            show.when(one, "created_at"),
            Cell::from(which(one)),
        ]
    };
    show.list(list, &columns, row, EMPTY)
}

/// Which deliveries it replays.
fn which(one: &Json) -> String {
    let filter = &one["filter"];
    let exact = |name: &str| crate::output::time(filter, name).map(times::exact);
    let given = |name: &str| Some(part(filter, name)).filter(|value| value != "-");
    let parts = [
        given("state"),
        given("destination").map(|id| format!("to {id}")),
        given("subscription").map(|id| format!("for {id}")),
        given("type").map(|kind| format!("of type {kind}")),
        exact("since").map(|at| format!("accepted since {at}")),
        exact("until").map(|at| format!("accepted before {at}")),
        exact("ended_since").map(|at| format!("ended since {at}")),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// What became of the deliveries that it sent; `None` if that is not known, or if it has sent none.
pub(in crate::commands) fn outcome(one: &Json) -> Option<String> {
    let count = |name: &str| one["outcomes"][name].as_u64();
    if one["done"] == 0 {
        return None;
    }
    let (delivered, failed) = (count("delivered")?, count("failed")?);
    let mut text = format!("delivered {delivered}, failed {failed}");
    for name in ["dead", "withdrawn", "pending"] {
        if let Some(count) = count(name).filter(|count| *count > 0) {
            text += &format!(", {name} {count}");
        }
    }
    Some(text)
}

pub(in crate::commands) fn one(show: &Show, one: &Json) -> String {
    if one["dry_run"] == true {
        let total = one["total"].as_u64().unwrap_or(0);
        return match total {
            0 => "No delivery matches: there is nothing to replay.".to_owned(),
            1 => "It would replay 1 delivery. Nothing was sent.".to_owned(),
            total => format!("It would replay {total} deliveries. Nothing was sent."),
        };
    }
    let skipped = one["skipped"].as_u64().filter(|skipped| *skipped > 0).map(|skipped| {
        format!(
            "{skipped}: they were on their way without it, had ended or been replayed meanwhile, their \
             subscription was deleted, or their destination is frozen"
        )
    });
    let pace = one["per_second"].as_u64().map(|pace| format!("at most {pace} a second"));
    Fields::new()
        .with("replay", cell(one, "id"))
        .with("state", state(one))
        .with("which", which(one))
        .with("sent", format!("{} of {}", part(one, "done"), part(one, "total")))
        .with_some("not sent", skipped)
        .with_some("outcome", outcome(one))
        .with_some("pace", pace)
        .with_some("started", show.moment(one, "created_at"))
        .with_some("finished", show.moment(one, "finished_at"))
        .shown(show.output)
}

/// After it was started: how to look at it.
pub(in crate::commands) fn started(show: &Show, job: &Json) -> String {
    let is_running = job["state"] == "running";
    let hint = format!("\nIts progress: postrider replay get {}", part(job, "id"));
    one(show, job) + if is_running { &hint } else { "" }
}
