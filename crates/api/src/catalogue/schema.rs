//! A JSON Schema, compiled: the one place that knows the library.
//!
//! **A schema is compiled only after its work is bounded** ([`Bounds`]), patterns run in time linear in the text, and
//! nothing is ever fetched: the library is built without it.

use std::fmt;

use jsonschema::{PatternOptions, Validator};
use postrider_domain::catalogue::bounds::{Bounds, SchemaFault};
use postrider_domain::catalogue::{Misfit, MisfitReason};
use postrider_domain::limits::SCHEMA_PATTERN_BYTES_MAX;
use serde_json::Value;

/// The longest detail of a fault.
const DETAIL_CHARS_MAX: usize = 300;
/// The longest place of a fault.
const POINTER_CHARS_MAX: usize = 500;

/// A compiled schema.
pub(crate) struct Schema {
    validator: Validator,
    bounds: Bounds,
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Schema")
    }
}

impl Schema {
    /// Compiles a schema. The fault names a place in the schema.
    pub(crate) fn compile(schema: &Value) -> Result<Schema, SchemaFault> {
        let bounds = Bounds::of(schema)?;
        let patterns = PatternOptions::regex()
            .size_limit(SCHEMA_PATTERN_BYTES_MAX)
            .dfa_size_limit(SCHEMA_PATTERN_BYTES_MAX);
        let options = jsonschema::options().with_pattern_options(patterns);
        // `format` is a note for people, as the newer drafts have it.
        let built = options.should_validate_formats(false).build(schema);
        let validator = built.map_err(|error| SchemaFault {
            pointer: error.instance_path().to_string(),
            what: format!("not a JSON Schema: {}", cut(&error.to_string(), DETAIL_CHARS_MAX)),
        })?;
        Ok(Schema { validator, bounds })
    }

    /// The most steps that validating this value takes.
    pub(crate) fn steps(&self, value: &Value) -> u64 {
        self.bounds.steps(value)
    }

    /// The first fault of a value; `None` if it fits. The fault holds no value of it.
    pub(crate) fn fault(&self, value: &Value) -> Option<Misfit> {
        let error = self.validator.validate(value).err()?;
        Some(Misfit {
            reason: MisfitReason::Payload,
            pointer: Some(cut(&error.instance_path().to_string(), POINTER_CHARS_MAX)),
            detail: cut(&masked(&error), DETAIL_CHARS_MAX),
        })
    }
}

/// The rule that was broken, without values of the payload. Keys of the payload that no rule names are values too.
fn masked(error: &jsonschema::ValidationError<'_>) -> String {
    let rule = error.schema_path().to_string();
    let text = error.masked().to_string();
    if rule.ends_with("additionalProperties") || rule.ends_with("propertyNames") {
        return format!("a key is not allowed here (rule {rule})");
    }
    format!("{text} (rule {rule})")
}

fn cut(text: &str, chars_max: usize) -> String {
    text.chars().filter(|c| !c.is_control()).take(chars_max).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fault_names_the_place_and_the_rule_but_no_value() {
        let schema = json!({
            "type": "object",
            "required": ["id"],
            "properties": {
                "id": {"type": "string"},
                "lines": {"type": "array", "items": {"properties": {"n": {"type": "integer"}}}},
                "kind": {"enum": ["a", "b"]},
            },
            "additionalProperties": false,
        });
        let schema = Schema::compile(&schema).unwrap();
        assert_eq!(schema.fault(&json!({"id": "x"})), None);
        for (data, pointer) in [
            (json!({"id": "x", "lines": [{"n": 1}, {"n": "kanarienvogel"}]}), "/lines/1/n"),
            (json!({"id": "x", "kind": "kanarienvogel"}), "/kind"),
            (json!({"id": "x", "kanarienvogel": 1}), ""),
            (json!("kanarienvogel"), ""),
            (json!({}), ""),
        ] {
            let fault = schema.fault(&data).unwrap();
            assert_eq!(fault.pointer.as_deref(), Some(pointer), "{fault:?}");
            assert!(!fault.detail.contains("kanarienvogel"), "{fault:?}");
            assert!(fault.detail.contains("rule /"), "{fault:?}");
        }
    }

    #[test]
    fn what_is_not_a_schema_is_refused_with_its_place() {
        for (schema, pointer) in [
            (json!({"type": "strong"}), "/type"),
            (json!({"properties": {"a": {"minLength": -1}}}), "/properties/a/minLength"),
            (json!({"properties": {"a": {"$ref": "https://example.com/"}}}), "/properties/a/$ref"),
        ] {
            assert_eq!(Schema::compile(&schema).unwrap_err().pointer, pointer, "{schema}");
        }
    }

    #[test]
    fn pattern_that_is_too_large_is_refused() {
        let schema = |pattern: &str| json!({"type": "string", "pattern": pattern});
        assert!(Schema::compile(&schema("^[a-z]{1,20}$")).is_ok());
        assert!(Schema::compile(&schema("(?:[a-z]{100}){100}")).is_err());
    }

    #[test]
    fn nested_repetitions_take_linear_time() {
        let schema = Schema::compile(&json!({"pattern": "^(a+)+$"})).unwrap();
        let text = json!("a".repeat(50_000) + "b");
        assert!(schema.fault(&text).is_some(), "a backtracking engine would not come back");
    }
}
