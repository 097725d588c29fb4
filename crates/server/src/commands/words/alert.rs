//! Targets of alerts in words.

use serde_json::Value as Json;

use crate::output::part;
use crate::show::{Empty, Show, cell};
use crate::table::{Cell, Column};

const EMPTY: Empty<'_> = Empty {
    nothing: "No target of alerts.",
    next: &[
        "To be told when something is wrong, set this in the server's configuration:",
        "  alerts.targets = [{ name = \"ops\", email = [\"ops@example.com\"] }]",
    ],
};

pub(in crate::commands) fn list(show: &Show, list: &Json) -> String {
    let columns = [
        Column::new("NAME").cut(12),
        Column::new("KIND"),
        Column::new("TO").cut_middle(16),
        Column::new("SENT").right(),
        Column::new("LAST"),
        Column::new("FAILED").right(),
        Column::new("FIRING").wrap(),
    ];
    let row = |target: &Json| {
        let firing = target["firing"].as_array().map_or(&[][..], Vec::as_slice);
        let firing: Vec<String> = firing
            .iter()
            .map(|one| format!("{} {}", part(one, "count"), part(one, "kind").replace('_', " ")))
            .collect();
        vec![
            cell(target, "name"),
            cell(target, "kind"),
            cell(target, "to"),
            cell(target, "messages"),
            show.when(target, "last_message_at"),
            cell(target, "failures"),
            Cell::from(if firing.is_empty() { "-".to_owned() } else { firing.join(", ") }),
        ]
    };
    show.list(list, &columns, row, EMPTY)
}

/// The outcome of a test message to each target.
pub(in crate::commands) fn tested(show: &Show, list: &Json) -> String {
    let columns = [
        Column::new("NAME").cut(12),
        Column::new("KIND"),
        Column::new("TO").cut_middle(16),
        Column::new("OUTCOME"),
        Column::new("MS").right(),
        Column::new("ERROR").wrap(),
    ];
    let row = |trial: &Json| {
        vec![
            cell(trial, "target"),
            cell(trial, "kind"),
            cell(trial, "to"),
            Cell::state(&part(trial, "outcome")),
            cell(trial, "duration_ms"),
            cell(trial, "error"),
        ]
    };
    show.list(list, &columns, row, EMPTY)
}
