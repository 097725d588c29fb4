//! What the derived schemas of Workfront's API cannot say: the words that a field may have, and the
//! forms of filters and groups. The words come from the domain, which also checks them.

use postrider_domain::limits::{FILTER_CONDITIONS_MAX, WORKFRONT_GROUP_FILTERS};
use postrider_domain::workfront::filters::{self, Connector};
use postrider_domain::workfront::{Happening, OBJECT_CODES, Version};
use serde_json::{Value, json};

/// Completes the schemas of the document.
pub(super) fn describe(document: &mut Value) {
    let schemas = document.pointer_mut("/components/schemas").and_then(Value::as_object_mut);
    let Some(schemas) = schemas else { return };
    let versions = json!(Version::ALL.map(Version::as_str));
    let happenings = json!(Happening::ALL.map(Happening::as_str));
    let connectors = json!([Connector::And, Connector::Or].map(Connector::as_str));
    let words = [
        ("objCode", json!(OBJECT_CODES)),
        ("eventType", happenings),
        ("version", versions),
        ("filterConnector", connectors.clone()),
    ];
    for schema in schemas.values_mut() {
        let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
        let Some(properties) = properties else { continue };
        for (name, words) in &words {
            if let Some(property) = properties.get_mut(*name) {
                restrict(property, words);
            }
        }
        if let Some(filters) = properties.get_mut("filters") {
            filters["items"] = json!({"oneOf": [reference("Filter"), reference("FilterGroup")]});
            filters["maxItems"] = json!(FILTER_CONDITIONS_MAX);
        }
    }
    let encoded = schemas.get_mut("Encoded").and_then(|schema| schema.get_mut("oneOf"));
    let choices = encoded.and_then(Value::as_array_mut).into_iter().flatten();
    for text in choices.filter(|choice| choice["type"] == "string") {
        text["enum"] = json!(["true", "false", ""]);
    }
    schemas.insert("Filter".to_owned(), filter());
    schemas.insert("FilterGroup".to_owned(), group(&connectors));
}

/// Allows only these words, and null where the field may be null.
fn restrict(property: &mut Value, words: &Value) {
    let is_nullable =
        property["type"].as_array().is_some_and(|types| types.contains(&json!("null")));
    let mut words = words.clone();
    if is_nullable && let Some(words) = words.as_array_mut() {
        words.push(Value::Null);
    }
    property["enum"] = words;
}

fn reference(schema: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{schema}") })
}

fn filter() -> Value {
    json!({
        "type": "object",
        "description": "A comparison of one field. Every one but `changed` needs `fieldValue`.",
        "required": ["fieldName"],
        "properties": {
            "fieldName": {
                "type": "string", "minLength": 1, "pattern": "^[^.]+$",
                "description": "The name of the field, without dots.",
            },
            "fieldValue": {
                "description": "What it is compared with. The fields of an object are fields below this one.",
            },
            "comparison": {
                "type": "string", "enum": filters::comparisons(), "default": "eq",
                "description": "How it is compared.",
            },
            "state": {
                "type": "string", "enum": filters::STATES, "default": filters::STATES[0],
                "description": "Which state the field is of. Events of the type CREATE have no old state.",
            },
        },
        "additionalProperties": false,
        "example": {"fieldName": "status", "fieldValue": "CUR", "comparison": "eq", "state": "newState"},
    })
}

fn group(connectors: &Value) -> Value {
    json!({
        "type": "object",
        "description": "Several filters, joined by a connector. A subscription has at most 10 groups.",
        "required": ["type", "filters"],
        "properties": {
            "type": {"type": "string", "enum": ["group"], "description": "Says that it is a group."},
            "connector": {
                "type": "string", "enum": connectors, "default": "AND",
                "description": "How its filters are joined.",
            },
            "filters": {
                "type": "array", "items": reference("Filter"),
                "minItems": WORKFRONT_GROUP_FILTERS.start(), "maxItems": WORKFRONT_GROUP_FILTERS.end(),
                "description": "Its filters.",
            },
        },
        "additionalProperties": false,
    })
}
