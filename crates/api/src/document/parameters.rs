//! What the parameters of a query may be: numbers, times, one of a few words, identifiers.
//!
//! The routes take them as text and parse them themselves, so that an error names its field. A test of the API sends
//! values outside of these schemas, which are refused, and values inside of them, which are not.

use postrider_domain::delivery::StateName;
use postrider_domain::ids::DestinationId;
use postrider_domain::limits::{
    EVENT_ID_BYTES_MAX, EVENT_TYPE_CHARS_MAX, OBJECT_ID_CHARS_MAX, PAGE_DEFAULT, PAGE_MAX,
    SUBSCRIPTION_UID_BYTES_MAX,
};
use serde_json::{Value, json};

use crate::routes::destination_stats::{HOURS_DEFAULT, HOURS_MAX};
use crate::routes::destinations::PART_CHARS_MAX;
use crate::routes::ledger::{STEP_MINUTES_DEFAULT, STEP_MINUTES_MAX};
use crate::settings::{CURSOR_CHARS_MAX, STATS_DESTINATIONS_MAX};

/// Gives the parameters of a call their schemas.
pub(super) fn describe(path: &str, operation: &mut Value) {
    let parameters = operation.get_mut("parameters").and_then(Value::as_array_mut);
    for parameter in parameters.into_iter().flatten() {
        let name = parameter["name"].as_str().unwrap_or_default().to_owned();
        match parameter["in"].as_str() {
            Some("query") => {
                if let Some(schema) = in_query(path, &name) {
                    parameter["schema"] = schema;
                }
                if name == "ids" {
                    // One value with commas, and at least one identifier in it.
                    parameter["style"] = "form".into();
                    parameter["explode"] = false.into();
                    parameter["required"] = true.into();
                }
            }
            Some("path") if name == "number" => {
                parameter["schema"] = json!({"type": "integer", "minimum": 1});
            }
            Some(_) | None => {}
        }
    }
}

/// The schema of a parameter; `None` for text that is compared and not parsed.
fn in_query(path: &str, name: &str) -> Option<Value> {
    let schema = match name {
        "limit" => number(PAGE_MAX, PAGE_DEFAULT),
        "cursor" => text(CURSOR_CHARS_MAX),
        "since" | "until" => json!({"type": "string", "format": "date-time"}),
        "hours" => number(HOURS_MAX, HOURS_DEFAULT),
        "step_minutes" => number(STEP_MINUTES_MAX, STEP_MINUTES_DEFAULT),
        "state" if path == "/v1/deliveries" => words(&StateName::ALL.map(StateName::as_str)),
        "state" => words(&["enabled", "disabled", "frozen", "failing"]),
        "scope" if path.starts_with("/v1/event-types") => words(&["tenant", "server"]),
        "scope" if path == "/v1/keys" => words(&["admin"]),
        "scope" => words(&["all"]),
        "outcome" => words(&["failed", "delivered"]),
        "body" => words(&["yes", "no"]),
        "destination" => destination(),
        "ids" => json!({
            "type": "array", "items": destination(), "minItems": 1, "maxItems": STATS_DESTINATIONS_MAX,
        }),
        "type" => json!({
            "type": "string", "maxLength": EVENT_TYPE_CHARS_MAX, "pattern": "^[A-Za-z0-9_-]+(\\.[A-Za-z0-9_-]+)*$",
        }),
        "event" => text(EVENT_ID_BYTES_MAX),
        "object" => text(OBJECT_ID_CHARS_MAX),
        "subscription" | "uid" => text(SUBSCRIPTION_UID_BYTES_MAX),
        "tenant" => json!({"type": "string", "pattern": "^[a-z0-9][a-z0-9_-]{0,63}$"}),
        "q" => json!({"type": "string", "maxLength": PART_CHARS_MAX}),
        "metadata" => json!({"type": "string", "pattern": "^[^:]*:", "example": "customer:4711"}),
        _ => return None,
    };
    Some(schema)
}

fn number(max: impl Into<Value>, default: impl Into<Value>) -> Value {
    json!({"type": "integer", "minimum": 1, "maximum": max.into(), "default": default.into()})
}

fn text(max: usize) -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": max})
}

fn words(all: &[&str]) -> Value {
    json!({"type": "string", "enum": all})
}

fn destination() -> Value {
    json!({"type": "string", "pattern": format!("^{}[0-9a-f]{{32}}$", DestinationId::PREFIX)})
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Text of any form: it is compared with what is stored.
    const FREE: [&str; 3] = ["action", "key", "target"];

    #[test]
    fn parameters_of_queries_have_the_schema_that_they_are_parsed_by() {
        let document = crate::openapi();
        let mut seen = 0;
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                for parameter in operation["parameters"].as_array().into_iter().flatten() {
                    if parameter["in"] != "query" {
                        continue;
                    }
                    let name = parameter["name"].as_str().unwrap();
                    let is_bare = parameter["schema"] == json!({"type": "string"});
                    assert_eq!(is_bare, FREE.contains(&name), "{method} {path}: {name}");
                    seen += 1;
                }
            }
        }
        assert!(seen > 50, "{seen}");
        let hours = in_query("/v1/destinations/{id}/stats", "hours").unwrap();
        assert_eq!(hours, json!({"type": "integer", "minimum": 1, "maximum": 168, "default": 24}));
    }
}
