//! Events in words.

use serde_json::Value as Json;

use crate::output::pretty;
use crate::show::{Empty, Fields, Show, cell};
use crate::table::Column;

pub(in crate::commands) fn list(show: &Show, list: &Json, is_filtered: bool) -> String {
    let columns = [
        Column::new("ID"),
        Column::new("TYPE").cut(10),
        Column::new("OBJECT").cut(8),
        Column::new("DELIVERIES").right(),
        Column::new("ACCEPTED"),
    ];
    let row = |one: &Json| {
        vec![
            cell(one, "id"),
            cell(one, "type"),
            cell(one, "object"),
            cell(one, "delivery_count"),
            show.when(one, "accepted_at"),
        ]
    };
    let empty = if is_filtered {
        Empty { nothing: "No event matches.", next: &["All of them: postrider events list"] }
    } else {
        Empty {
            nothing: "No events.",
            next: &["Send one: postrider send task.updated '{\"status\": \"CUR\"}'"],
        }
    };
    show.list(list, &columns, row, empty)
}

pub(in crate::commands) fn one(show: &Show, one: &Json) -> String {
    let fields = Fields::new()
        .with("event", cell(one, "id"))
        .with("type", cell(one, "type"))
        .with_part("object", one, "object")
        .with_some("happened", show.moment(one, "time"))
        .with_some("accepted", show.moment(one, "accepted_at"))
        .with("deliveries", cell(one, "delivery_count"))
        .shown(show.output);
    let mut text = format!("{fields}\n\ndata\n{}", pretty(&one["data"]));
    if !one["old"].is_null() {
        text += &format!("\n\nold\n{}", pretty(&one["old"]));
    }
    let deliveries = serde_json::json!({ "data": one["deliveries"] });
    if one["deliveries"].as_array().is_some_and(|list| !list.is_empty()) {
        text += &format!("\n\n{}", super::delivery::list(show, &deliveries, false));
    } else {
        text += "\n\nNo subscription wanted it.";
    }
    text
}
