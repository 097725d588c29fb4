//! What a receiver gets: a delivery in each format, and the events that Postrider sends itself.

use postrider_engine::{Field, FieldKind, OPERATIONAL_EVENTS, OperationalEvent};
use serde_json::{Value, json};

use super::finish::{camel, fields, reference};

/// The headers of a delivery, for the document and for the page.
pub(crate) const HEADERS: [(&str, &str); 3] = [
    (
        "webhook-id",
        "The id of the delivery, the same for every attempt: a receiver that has seen it answers 2xx and does nothing.",
    ),
    (
        "webhook-timestamp",
        "When the attempt was made, in seconds since 1970; refuse what is older than five minutes.",
    ),
    (
        "webhook-signature",
        "`v1,` and the base64 of the HMAC-SHA256 of `id.timestamp.body`, or `v1a,` and an ed25519 signature. Several, \
         separated by spaces, while a secret is being rotated: one that verifies is enough.",
    ),
];

/// A delivery in the format `standard`, as JSON.
pub(crate) fn delivery_example() -> Value {
    json!({
        "type": "task.updated",
        "timestamp": "2026-11-15T09:30:00.000Z",
        "id": "evt_01a1ec86c85a7eecaf1e16cbc52d8c7e",
        "object": "task-17",
        "data": {"status": "CUR", "priority": 4},
        "old": {"status": "NEW", "priority": 4},
    })
}

/// An event that Postrider sends itself, in the format `standard`, as JSON.
pub(crate) fn operational_example(event: &OperationalEvent) -> Value {
    // A test reads every example, so a fault in one does not get this far.
    let data: Value = serde_json::from_str(event.example).unwrap_or_default();
    json!({
        "type": event.name,
        "timestamp": "2026-11-15T09:30:00.000Z",
        "id": "evt_01a1ec86c85a7eecaf1e16cbc52d8c7e",
        "data": data,
    })
}

/// The schema of an object with these fields.
fn object(all: &[Field]) -> Value {
    let needed: Vec<&str> =
        all.iter().filter(|field| !field.is_optional).map(|field| field.name).collect();
    json!({
        "type": "object",
        "required": needed,
        "properties": fields(all.iter().map(|field| (field.name, schema_of(field)))),
    })
}

fn schema_of(field: &Field) -> Value {
    let mut schema = match field.kind {
        FieldKind::Text => json!({"type": "string"}),
        FieldKind::TextOrNull => json!({"type": ["string", "null"]}),
        FieldKind::Id(prefix) => json!({"type": "string", "pattern": format!("^{prefix}")}),
        FieldKind::Time => json!({"type": "string", "format": "date-time"}),
        FieldKind::Integer => json!({"type": "integer", "format": "int64"}),
        FieldKind::Boolean => json!({"type": "boolean"}),
        FieldKind::Word(words) => json!({"type": "string", "enum": words}),
        FieldKind::Object(inner) => object(inner),
    };
    schema["description"] = field.meaning.into();
    schema
}

/// Adds the webhooks and their schemas.
pub(super) fn add(document: &mut Value) {
    let when = json!({"type": "string", "format": "date-time", "description": "When it happened."});
    let payload = json!({
        "type": "object",
        "description": "The body of a delivery in the format `standard`.",
        "required": ["type", "timestamp", "id", "data"],
        "properties": {
            "type": {"type": "string", "description": "The event's type."},
            "timestamp": when,
            "id": {"type": "string", "description": "The id of the event."},
            "object": {"type": "string", "description": "The object that it happened to."},
            "data": {"description": "The new state, byte for byte as it was sent."},
            "old": {"description": "The state before."},
        },
    });
    if let Some(schemas) = document["components"]["schemas"].as_object_mut() {
        schemas.insert("StandardPayload".to_owned(), payload);
    }
    let mut webhooks = vec![(
        "delivery",
        webhook(
            "receiveDelivery",
            "An event is delivered",
            "A POST to the URL of a subscription, signed as Standard Webhooks has it.",
            reference("StandardPayload"),
            delivery_example(),
        ),
    )];
    for event in OPERATIONAL_EVENTS {
        let schema = json!({
            "type": "object",
            "required": ["type", "timestamp", "id", "data"],
            "properties": {
                "type": {"type": "string", "const": event.name},
                "timestamp": when,
                "id": {"type": "string", "description": "The id of the event."},
                "data": object(event.fields),
            },
        });
        let example = operational_example(event);
        let words = std::iter::once("receive").chain(event.name.split(['.', '_']));
        webhooks
            .push((event.name, webhook(&camel(words), event.name, event.when, schema, example)));
    }
    document["webhooks"] = fields(webhooks.into_iter());
}

fn webhook(id: &str, summary: &str, description: &str, schema: Value, example: Value) -> Value {
    let headers = HEADERS.map(|(name, meaning)| {
        json!({
            "name": name, "in": "header", "required": true, "description": meaning, "schema": {"type": "string"},
        })
    });
    let content = json!({ "schema": schema, "example": example });
    json!({"post": {
        "operationId": id,
        "summary": summary,
        "description": description,
        "security": [],
        "parameters": headers,
        "requestBody": {"required": true, "content": {"application/json": content}},
        "responses": {
            "2XX": {"description": "Delivered, whatever the body"},
            "410": {"description": "The destination is frozen: nothing more is sent until somebody enables it"},
            "default": {"description": "Failed, to be retried; `Retry-After` is observed with 429 and 503"},
        },
    }})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_our_own_events_have_types_and_an_example() {
        let document = crate::openapi();
        for event in OPERATIONAL_EVENTS {
            let body = &document["webhooks"][event.name]["post"]["requestBody"]["content"]["application/json"];
            let data = &body["schema"]["properties"]["data"]["properties"];
            for field in event.fields {
                let schema = &data[field.name];
                assert!(schema["type"].is_string(), "{} {}: {schema}", event.name, field.name);
                assert_eq!(schema["description"], field.meaning);
                let example = &body["example"]["data"][field.name];
                assert!(!example.is_null(), "{} {}: no example", event.name, field.name);
            }
        }
    }
}
