//! Subscriptions in words.

use serde_json::Value as Json;

use crate::output::{Colour, entries, escaped, part, time};
use crate::show::{Empty, Fields, Show, cell, url};
use crate::table::{Cell, Column};
use crate::times;

const EMPTY: Empty<'_> = Empty {
    nothing: "No subscriptions.",
    next: &["Create one: postrider subscriptions create https://your.example.com/hook 'task.*'"],
};

pub(in crate::commands) fn list(show: &Show, list: &Json) -> String {
    // Identifiers and names that the tenant gave have columns where one has them; where there is no room for
    // both, the name is left out.
    let has = |field: &str| entries(list).iter().any(|one| !one[field].is_null());
    let name = Column::new("NAME").cut(8);
    let name = if has("uid") { name.optional() } else { name };
    let given: Vec<(&str, Column)> = [("uid", Column::new("UID").cut(8)), ("name", name)]
        .into_iter()
        .filter(|(field, _)| has(field))
        .collect();
    let mut columns = vec![Column::new("ID")];
    columns.extend(given.iter().map(|(_, column)| *column));
    columns.extend([
        Column::new("ON"),
        Column::new("TYPES").cut(6),
        Column::new("URL").cut_middle(12),
        Column::new("FORMAT").optional(),
        Column::new("CREATED").optional(),
    ]);
    let row = |one: &Json| {
        let is_off = one["enabled"] == false;
        let mut cells = vec![cell(one, "id")];
        cells.extend(given.iter().map(|(field, _)| cell(one, field)));
        cells.extend([
            if is_off { Cell::painted("no", Colour::Yellow) } else { Cell::from("yes") },
            cell(one, "types"),
            url(one),
            cell(one, "format"),
            show.when(one, "created_at"),
        ]);
        cells
    };
    show.list(list, &columns, row, EMPTY)
}

pub(in crate::commands) fn one(show: &Show, one: &Json) -> String {
    fields(show, one).shown(show.output)
}

fn fields(show: &Show, one: &Json) -> Fields {
    let certificate = |certificate: &Json| {
        let until = time(certificate, "expires_at").map(times::exact).unwrap_or_default();
        format!("{}, valid until {until}", part(certificate, "subject"))
    };
    let client = one.get("client_certificate").filter(|one| one.is_object()).map(certificate);
    let authorities = one["ca_certificates"].as_array().filter(|list| !list.is_empty());
    let authorities =
        authorities.map(|list| list.iter().map(certificate).collect::<Vec<_>>().join("; "));
    let retiring = one["retiring_secrets"].as_u64().filter(|count| *count > 0).map(|count| {
        let until = time(one, "secret_overlap_ends_at");
        let until = until.map(|until| format!(" until {}", times::exact(until)));
        format!("{count} older, signing along{}", until.unwrap_or_default())
    });
    Fields::new()
        .with("subscription", cell(one, "id"))
        .with_part("uid", one, "uid")
        .with_part("name", one, "name")
        .with_part("description", one, "description")
        .with("url", cell(one, "url"))
        .with("types", cell(one, "types"))
        .with_part("object", one, "object")
        .with_part("filter", one, "filter")
        .with("format", cell(one, "format"))
        .with_some("policy", own_policy(one))
        .with_some("metadata", pairs(one, "metadata"))
        .with("enabled", cell(one, "enabled"))
        .with_some(
            "rate limit",
            one["rate_limit"].as_f64().map(|rate| format!("{rate} per second")),
        )
        .with_part("token", one, "auth_token")
        .with_some("headers", pairs(one, "headers"))
        .with_some("client cert", client)
        .with_some("trusts", authorities)
        .with_part("public key", one, "public_key")
        .with_some("secrets", retiring)
        .with("destination", cell(one, "destination_id"))
        .with_some("created", show.moment(one, "created_at"))
        .with_some("changed", changed(show, one))
}

/// An object as pairs, joined by commas; `None` if it has none.
fn pairs(one: &Json, name: &str) -> Option<String> {
    let pairs = one[name].as_object().filter(|pairs| !pairs.is_empty())?;
    let pair = |(name, value): (&String, &Json)| {
        format!("{}: {}", escaped(name), value.as_str().unwrap_or_default())
    };
    Some(pairs.iter().map(pair).collect::<Vec<_>>().join(", "))
}

/// The values of its own policy, such as `retry.max 3`; `None` if the server's policy holds.
fn own_policy(one: &Json) -> Option<String> {
    let groups = one["policy"].as_object()?;
    let values = groups.iter().flat_map(|(group, values)| {
        let values = values.as_object().into_iter().flatten();
        values
            .filter(|(_, value)| !value.is_null())
            .map(move |(name, _)| format!("{group}.{name} {}", part(&one["policy"][group], name)))
    });
    let values: Vec<String> = values.collect();
    (!values.is_empty()).then(|| values.join(", "))
}

/// When it was changed, if that is not when it was created.
fn changed(show: &Show, one: &Json) -> Option<Cell> {
    show.moment(one, "updated_at").filter(|_| one["updated_at"] != one["created_at"])
}

/// After a change: what it is now.
pub(in crate::commands) fn updated(show: &Show, one: &Json) -> String {
    format!("changed\n{}", self::one(show, one))
}

/// After a rotation: the new secret, which is shown once.
pub(in crate::commands) fn rotated(show: &Show, one: &Json) -> String {
    let until = time(one, "secret_overlap_ends_at");
    let old = match until {
        Some(until) => format!(
            "The old secret signs along until {} ({}).",
            times::exact(until),
            times::relative(show.now, until)
        ),
        None => "The old secret does not sign any more.".to_owned(),
    };
    format!(
        "{}\nsecret: {}\nKeep the secret: it is not shown again.\n{old}",
        part(one, "id"),
        part(one, "secret")
    )
}

/// The outcome of a test event.
pub(in crate::commands) fn tested(show: &Show, one: &Json) -> String {
    let outcome = part(one, "outcome");
    let how = match one["status"].as_u64() {
        Some(status) => format!("the receiver answered {status}"),
        None => part(one, "error"),
    };
    let head = format!("{}: {how} in {} ms", show.output.state(&outcome), part(one, "duration_ms"));
    let fields = Fields::new()
        .with_part("detail", one, "detail")
        .with_some("answer", super::delivery::answer(one))
        .with_some("took", super::delivery::phases(one));
    let fields = fields.shown(show.output);
    if fields.is_empty() { head } else { format!("{head}\n{fields}") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::own_policy;

    #[test]
    fn own_policy_names_only_the_values_that_are_given() {
        let policy =
            json!({"retry": {"max": 3, "unit_seconds": null}, "recovery": {"dead": "replay"}});
        let words = own_policy(&json!({"policy": policy})).unwrap();
        assert_eq!(words, "recovery.dead replay, retry.max 3");
        assert_eq!(own_policy(&json!({"policy": {"retry": {"max": null}}})), None);
        assert_eq!(own_policy(&json!({"policy": null})), None);
    }
}
