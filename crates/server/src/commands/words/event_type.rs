//! Event types of the catalogue in words.

use serde_json::Value as Json;

use crate::output::pretty;
use crate::show::{Empty, Fields, Show, cell};
use crate::table::{Cell, Column};

pub(in crate::commands) fn list(show: &Show, list: &Json) -> String {
    let columns = [
        Column::new("NAME").cut(12),
        Column::new("SCOPE"),
        Column::new("SCHEMA"),
        Column::new("DEPRECATED"),
        Column::new("DESCRIPTION").wrap(),
    ];
    let row = |one: &Json| {
        let has_schema = one.get("schema").is_some_and(|schema| !schema.is_null());
        vec![
            cell(one, "name"),
            cell(one, "scope"),
            Cell::from(if has_schema { "yes" } else { "-" }),
            Cell::from(if one["deprecated"] == true { "yes" } else { "-" }),
            cell(one, "description"),
        ]
    };
    let empty = Empty {
        nothing: "No event types.",
        next: &["See how to add some: postrider event-types --help"],
    };
    show.list(list, &columns, row, empty)
}

pub(in crate::commands) fn one(show: &Show, one: &Json) -> String {
    let scope = match one["scope"].as_str() {
        Some("server") => "all tenants (the server's)",
        _ => "this tenant",
    };
    let deprecated =
        (one["deprecated"] == true).then_some("yes: applications should stop sending it");
    let mut text = Fields::new()
        .with("event type", cell(one, "name"))
        .with_part("means", one, "description")
        .with("holds for", scope)
        .with_some("deprecated", deprecated)
        .with_some("created", show.moment(one, "created_at"))
        .with_some("changed", show.moment(one, "updated_at"))
        .shown(show.output);
    let nothing = [("schema", "No schema: any data fits."), ("example", "No example.")];
    for (name, without) in nothing {
        text += &match one[name].is_null() {
            true => format!("\n\n{without}"),
            false => format!("\n\n{name}\n{}", pretty(&one[name])),
        };
    }
    text
}
