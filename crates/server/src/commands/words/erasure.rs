//! Erasures in words.

use serde_json::Value as Json;

use crate::output::{part, pretty};
use crate::show::{Empty, Show, cell, state};
use crate::table::{Cell, Column, wrapped};

pub(in crate::commands) fn list(show: &Show, list: &Json) -> String {
    let columns = [
        Column::new("ID"),
        Column::new("STATE"),
        Column::new("OF").cut(10),
        Column::new("ERASED").right(),
        Column::new("CREATED"),
        Column::new("CANCELLED").right().optional(),
    ];
    let row = |one: &Json| {
        let of = if one["event"].is_null() { part(one, "object") } else { part(one, "event") };
        vec![
            cell(one, "id"),
            state(one),
            Cell::from(of),
            cell(one, "erased"),
            show.when(one, "created_at"),
            cell(one, "cancelled"),
        ]
    };
    let empty = Empty {
        nothing: "No erasures.",
        next: &["Erase the payload of an event: postrider erase --event ID"],
    };
    show.list(list, &columns, row, empty)
}

pub(in crate::commands) fn one(show: &Show, job: &Json) -> String {
    let number = |name: &str| job.get(name).and_then(Json::as_u64).unwrap_or(0);
    let counted = |name: &str, one: &str, many: &str| match number(name) {
        1 => format!("1 {one}"),
        count => format!("{count} {many}"),
    };
    let state = match part(job, "state").as_str() {
        "erasing" => "payloads are being removed",
        "scrubbing" => "the payloads are gone; the store's files are being overwritten",
        "finished" => "finished",
        _ => return pretty(job),
    };
    let text = format!(
        "{}: {state}\n{} erased, {} erased before, {} cancelled, {} erased\nBackups are not reached: they \
         keep what they have.",
        part(job, "id"),
        counted("erased", "event", "events"),
        number("already"),
        counted("cancelled", "delivery", "deliveries"),
        counted("attempts", "response body", "response bodies"),
    );
    let lines = text.lines().flat_map(|line| wrapped(line, show.output.width()));
    lines.collect::<Vec<_>>().join("\n")
}
