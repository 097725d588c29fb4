//! Tenants, keys and the audit log in words.

use serde_json::Value as Json;

use crate::output::{Colour, escaped, part};
use crate::show::{Empty, Fields, Show, cell};
use crate::table::{Cell, Column};

pub(in crate::commands) fn tenants(show: &Show, list: &Json) -> String {
    let columns = [Column::new("ID"), Column::new("NAME").cut(12), Column::new("CREATED")];
    let row = |one: &Json| vec![cell(one, "id"), cell(one, "name"), show.when(one, "created_at")];
    let empty =
        Empty { nothing: "No tenants.", next: &["Create one: postrider tenants create acme"] };
    show.list(list, &columns, row, empty)
}

pub(in crate::commands) fn tenant(show: &Show, one: &Json) -> String {
    Fields::new()
        .with("tenant", cell(one, "id"))
        .with_part("name", one, "name")
        .with_part("description", one, "description")
        .with_some("metadata", pairs(one, "metadata"))
        .with_some("quotas", pairs(one, "quotas"))
        .with_some("requests", rate(one, "requests_per_second"))
        .with_some("events", rate(one, "events_per_second"))
        .with_some("created", show.moment(one, "created_at"))
        .shown(show.output)
}

/// An object as pairs, joined by commas; `None` if it has none.
fn pairs(one: &Json, name: &str) -> Option<String> {
    let pairs = one[name].as_object().filter(|pairs| !pairs.is_empty())?;
    let pair = |key: &String| format!("{}: {}", escaped(key), part(&one[name], key));
    Some(pairs.keys().map(pair).collect::<Vec<_>>().join(", "))
}

/// A limit of its own, in words; `None` if the server's holds.
fn rate(one: &Json, name: &str) -> Option<String> {
    one[name].as_u64().map(|rate| format!("at most {rate} per second"))
}

pub(in crate::commands) fn keys(show: &Show, list: &Json) -> String {
    let columns = [
        Column::new("ID"),
        Column::new("TENANT").cut(8),
        Column::new("SCOPES"),
        Column::new("NAME").cut(8),
        Column::new("LAST USED"),
        Column::new("EXPIRES"),
    ];
    let row = |key: &Json| {
        let tenant = if key["tenant"].is_null() { Cell::from("all") } else { cell(key, "tenant") };
        let used = show.when(key, "last_used_at");
        let expires = if key["expires_at"].is_null() {
            Cell::from("never")
        } else {
            show.when(key, "expires_at")
        };
        vec![cell(key, "id"), tenant, cell(key, "scopes"), cell(key, "name"), used, expires]
    };
    let empty = Empty {
        nothing: "No keys.",
        next: &["Create one: postrider keys create --scopes ingest --name billing"],
    };
    show.list(list, &columns, row, empty)
}

/// A key that was just created. It is shown once.
pub(in crate::commands) fn created_key(show: &Show, key: &Json) -> String {
    let fields = Fields::new()
        .with("key", Cell::painted(&part(key, "key"), Colour::Bold))
        .with("id", cell(key, "id"))
        .with(
            "tenant",
            if key["tenant"].is_null() { Cell::from("all") } else { cell(key, "tenant") },
        )
        .with("scopes", cell(key, "scopes"))
        .with_part("name", key, "name")
        .with_some("expires", show.moment(key, "expires_at"));
    format!("{}\nKeep the key: it is not shown again.", fields.shown(show.output))
}

pub(in crate::commands) fn audit(show: &Show, list: &Json) -> String {
    let columns = [
        Column::new("AGE"),
        Column::new("BY").cut(6),
        Column::new("ACTION").cut(19),
        Column::new("TARGET"),
        Column::new("RESULT").cut(6),
        Column::new("TENANT").optional(),
        Column::new("ADDRESS").optional(),
    ];
    let row = |entry: &Json| {
        let by =
            if entry["key_name"].is_null() { cell(entry, "key") } else { cell(entry, "key_name") };
        let problem = part(entry, "problem");
        let result = match entry["status"].as_u64() {
            Some(status) if problem == "-" => Cell::from(status.to_string()),
            Some(status) => Cell::painted(&format!("{status} {problem}"), Colour::Red),
            None => Cell::from("-"),
        };
        vec![
            show.age(entry, "at"),
            by,
            cell(entry, "action"),
            cell(entry, "target"),
            result,
            cell(entry, "tenant"),
            cell(entry, "address"),
        ]
    };
    let empty = Empty {
        nothing: "No entry.",
        next: &["The audit log has an entry for each change that somebody makes."],
    };
    show.list(list, &columns, row, empty)
}
