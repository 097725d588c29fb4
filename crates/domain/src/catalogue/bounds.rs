//! How much work a JSON Schema can cause, known before it runs.
//!
//! A validator cannot be interrupted, and whoever writes the schema chooses the work: references that branch
//! grow exponentially, in the validator and in its memory. So a schema is taken only if its work can be bounded,
//! and an event is validated only if [`Bounds::steps`] is small enough. **The bound is a number of steps, never
//! a time**: the same schema has the same outcome on the same event everywhere.
//!
//! [`Bounds`] knows how many rules of the schema are applied to one value at each depth of an event, at most.
//! A reference stands for the schema that it names. A subschema under `anyOf`, `oneOf`, `not` or `if` counts
//! twice: it is tried once for its outcome and once for its faults.

use std::collections::HashMap;

use serde_json::{Map, Value};

use crate::limits::{
    JSON_DEPTH_MAX, SCHEMA_BYTES_MAX, SCHEMA_CHAIN_MAX, SCHEMA_NODES_MAX, SCHEMA_RULES_MAX,
};

/// Why a schema is not taken: where, and what is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct SchemaFault {
    /// The place in the schema, as a JSON pointer.
    pub pointer: String,
    /// What is wrong, and what would be taken.
    pub what: String,
}

fn fault<T>(pointer: &str, what: impl Into<String>) -> Result<T, SchemaFault> {
    Err(SchemaFault { pointer: pointer.to_owned(), what: what.into() })
}

/// The drafts of JSON Schema that `$schema` may name.
const DRAFTS: [&str; 5] = [
    "json-schema.org/draft-04/schema",
    "json-schema.org/draft-06/schema",
    "json-schema.org/draft-07/schema",
    "json-schema.org/draft/2019-09/schema",
    "json-schema.org/draft/2020-12/schema",
];

/// Keywords whose work or meaning cannot be bounded here, each with what to do instead.
const REFUSED: [(&str, &str); 8] = [
    ("$dynamicRef", "give a $ref"),
    ("$dynamicAnchor", "refer to the place, as #/$defs/name"),
    ("$recursiveRef", "give a $ref"),
    ("$recursiveAnchor", "refer to the place, as #/$defs/name"),
    ("$anchor", "refer to the place, as #/$defs/name"),
    ("$vocabulary", "leave it out"),
    ("unevaluatedProperties", "use additionalProperties"),
    ("unevaluatedItems", "use items or additionalItems"),
];

/// The cost of matching a regular expression against 64 bytes, as a number of schema rules.
const PATTERN_RULES: u64 = 512;
/// Bytes of a text that count as one more step.
const STEP_BYTES: u64 = 64;

/// The most rules that are applied to one value at each depth of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounds {
    by_depth: Vec<u64>,
}

impl Bounds {
    /// Judges a schema.
    pub fn of(schema: &Value) -> Result<Bounds, SchemaFault> {
        let bytes = schema.to_string().len();
        if bytes > SCHEMA_BYTES_MAX {
            return fault("", format!("{bytes} bytes: a schema has at most {SCHEMA_BYTES_MAX}"));
        }
        let mut reader = Reader { root: schema, nodes: Vec::new(), known: HashMap::new() };
        reader.check_root()?;
        let root = reader.node(schema, "")?;
        let nodes = reader.nodes;
        check_expansion(&nodes, root)?;
        check_chains(&nodes)?;
        let mut by_depth: Vec<Vec<u64>> = Vec::with_capacity(JSON_DEPTH_MAX + 1);
        for depth in 0..=JSON_DEPTH_MAX {
            let below = depth.checked_sub(1).and_then(|below| by_depth.get(below));
            let rules = rules_at(&nodes, below.map(Vec::as_slice));
            by_depth.push(rules);
        }
        let by_depth: Vec<u64> =
            by_depth.iter().map(|rules| rules.get(root).copied().unwrap_or(0)).collect();
        let most = by_depth.iter().copied().max().unwrap_or(0);
        if most > SCHEMA_RULES_MAX {
            let what = format!(
                "it can apply {most} rules to one value, at most {SCHEMA_RULES_MAX}: use fewer \
                 alternatives, patterns or nested references"
            );
            return fault("", what);
        }
        Ok(Bounds { by_depth })
    }

    /// The most steps that it takes to validate a value.
    pub fn steps(&self, value: &Value) -> u64 {
        let mut steps = 0;
        self.count(value, 0, &mut steps);
        steps
    }

    fn count(&self, value: &Value, depth: usize, steps: &mut u64) {
        let rules = self.by_depth.get(depth).copied().unwrap_or(SCHEMA_RULES_MAX);
        let bytes = |text: &str| u64::try_from(text.len()).unwrap_or(u64::MAX) / STEP_BYTES;
        let mut add = |size: u64| {
            *steps = steps.saturating_add(rules.saturating_mul(size.saturating_add(1)));
        };
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => add(0),
            Value::String(text) => add(bytes(text)),
            Value::Array(items) => {
                add(0);
                items.iter().for_each(|item| self.count(item, depth + 1, steps));
            }
            Value::Object(fields) => {
                add(fields.keys().map(|key| 1 + bytes(key)).sum());
                fields.values().for_each(|field| self.count(field, depth + 1, steps));
            }
        }
    }
}

/// A subschema: its own rules, and the others that it applies.
#[derive(Debug, Default)]
struct Node {
    rules: u64,
    /// Applied to the same value, each with how often.
    here: Vec<(usize, u64)>,
    /// Applied to values inside it: all of these,
    inside: Vec<usize>,
    /// and of each of these groups one, because a key or an index is in one place only.
    one_of_inside: Vec<Vec<usize>>,
}

struct Reader<'s> {
    root: &'s Value,
    nodes: Vec<Node>,
    /// Subschemas that were read, or are being read, by their place in memory.
    known: HashMap<*const Value, usize>,
}

impl<'s> Reader<'s> {
    fn check_root(&self) -> Result<(), SchemaFault> {
        let Value::Object(fields) = self.root else {
            let is_plain = self.root.is_boolean();
            return if is_plain {
                Ok(())
            } else {
                fault("", "a schema is an object, or a boolean")
            };
        };
        match fields.get("$schema") {
            None => Ok(()),
            Some(Value::String(named)) => {
                let bare = named.trim_start_matches("https://").trim_start_matches("http://");
                if DRAFTS.contains(&bare.trim_end_matches('#')) {
                    return Ok(());
                }
                fault("/$schema", "an unknown draft: one of 4, 6, 7, 2019-09 and 2020-12")
            }
            Some(_) => fault("/$schema", "a text: the URI of the draft"),
        }
    }

    /// Reads a subschema and all that it applies; returns its index.
    fn node(&mut self, schema: &'s Value, at: &str) -> Result<usize, SchemaFault> {
        let address: *const Value = schema;
        if let Some(&known) = self.known.get(&address) {
            return Ok(known);
        }
        let index = self.nodes.len();
        if index >= SCHEMA_NODES_MAX {
            return fault(at, format!("a schema has at most {SCHEMA_NODES_MAX} subschemas"));
        }
        self.nodes.push(Node::default());
        self.known.insert(address, index);
        let node = match schema {
            Value::Bool(_) => Node { rules: 1, ..Node::default() },
            Value::Object(fields) => self.keywords(fields, at)?,
            Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                return fault(at, "a schema is an object, or a boolean");
            }
        };
        if let Some(place) = self.nodes.get_mut(index) {
            *place = node;
        }
        Ok(index)
    }

    fn keywords(&mut self, fields: &'s Map<String, Value>, at: &str) -> Result<Node, SchemaFault> {
        let mut node = Node { rules: 1, ..Node::default() };
        for (keyword, value) in fields {
            let place = format!("{at}/{}", escaped(keyword));
            if let Some((_, instead)) = REFUSED.iter().find(|(refused, _)| refused == keyword) {
                return fault(&place, format!("{keyword} is not supported: {instead}"));
            }
            node.rules = node.rules.saturating_add(1);
            self.keyword(&mut node, (keyword, value), &place)?;
        }
        Ok(node)
    }

    fn keyword(
        &mut self,
        node: &mut Node,
        (keyword, value): (&str, &'s Value),
        at: &str,
    ) -> Result<(), SchemaFault> {
        let size = |value: &Value| match value {
            Value::Array(items) => u64::try_from(items.len()).unwrap_or(u64::MAX),
            Value::Object(fields) => u64::try_from(fields.len()).unwrap_or(u64::MAX),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
        };
        match keyword {
            "$id" | "id" if value.is_string() && at != format!("/{keyword}") => {
                return fault(at, "only the whole schema may have an identifier");
            }
            "$ref" => node.here.push((self.reference(value, at)?, 1)),
            "allOf" => self.list(value, at, 1, node)?,
            "anyOf" | "oneOf" => self.list(value, at, 2, node)?,
            "not" | "if" | "then" | "else" => node.here.push((self.node(value, at)?, 2)),
            "dependentSchemas" | "dependencies" => {
                for (key, schema) in entries(value) {
                    if !schema.is_array() {
                        let below = format!("{at}/{}", escaped(key));
                        node.here.push((self.node(schema, &below)?, 1));
                    }
                }
            }
            "properties" => {
                let group = self.map(value, at)?;
                node.one_of_inside.push(group);
            }
            "patternProperties" => {
                let patterns = size(value).saturating_mul(PATTERN_RULES);
                node.rules = node.rules.saturating_add(patterns);
                let all = self.map(value, at)?;
                node.inside.extend(all);
            }
            "additionalProperties" | "additionalItems" | "contains" | "propertyNames" => {
                node.inside.push(self.node(value, at)?);
            }
            "items" | "prefixItems" => match value {
                Value::Array(schemas) => {
                    let mut group = Vec::new();
                    for (n, schema) in schemas.iter().enumerate() {
                        group.push(self.node(schema, &format!("{at}/{n}"))?);
                    }
                    node.one_of_inside.push(group);
                }
                Value::Null
                | Value::Bool(_)
                | Value::Number(_)
                | Value::String(_)
                | Value::Object(_) => node.inside.push(self.node(value, at)?),
            },
            "pattern" => node.rules = node.rules.saturating_add(PATTERN_RULES),
            // A value is compared with each of them.
            "enum" | "required" | "dependentRequired" | "type" => {
                node.rules = node.rules.saturating_add(size(value));
            }
            // Each entry is compared with others.
            "uniqueItems" => node.rules = node.rules.saturating_add(8),
            _ => {}
        }
        Ok(())
    }

    fn list(
        &mut self,
        value: &'s Value,
        at: &str,
        times: u64,
        node: &mut Node,
    ) -> Result<(), SchemaFault> {
        let Value::Array(schemas) = value else { return fault(at, "an array of schemas") };
        for (n, schema) in schemas.iter().enumerate() {
            node.here.push((self.node(schema, &format!("{at}/{n}"))?, times));
        }
        Ok(())
    }

    fn map(&mut self, value: &'s Value, at: &str) -> Result<Vec<usize>, SchemaFault> {
        let below = |key: &str| format!("{at}/{}", escaped(key));
        entries(value).map(|(key, schema)| self.node(schema, &below(key))).collect()
    }

    /// The subschema that a reference names. Only places of the same schema are taken.
    fn reference(&mut self, value: &'s Value, at: &str) -> Result<usize, SchemaFault> {
        let local = "a reference to a place in this schema, as #/$defs/name";
        let Value::String(named) = value else { return fault(at, local) };
        let Some(pointer) = named.strip_prefix('#') else { return fault(at, local) };
        let decoded = percent_decoded(pointer);
        let target = decoded.as_deref().and_then(|pointer| self.root.pointer(pointer));
        match target {
            Some(target) => self.node(target, pointer),
            None => fault(at, format!("{local}; there is nothing at {named}")),
        }
    }
}

fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

/// A key as a part of a JSON pointer.
fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// A pointer in a reference may be percent-encoded, as in a URI.
fn percent_decoded(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let mut digit = || char::from(bytes.next()?).to_digit(16);
            let (high, low) = (digit()?, digit()?);
            out.push(u8::try_from(high * 16 + low).ok()?);
        } else {
            out.push(byte);
        }
    }
    String::from_utf8(out).ok()
}

/// Refuses a schema that becomes too large when each reference is replaced by what it names.
fn check_expansion(nodes: &[Node], root: usize) -> Result<(), SchemaFault> {
    let mut sizes: Vec<Option<u64>> = vec![None; nodes.len()];
    let size = expanded(nodes, root, &mut sizes, &mut vec![false; nodes.len()]);
    let most = u64::try_from(SCHEMA_NODES_MAX).unwrap_or(u64::MAX);
    if size > most {
        let what = format!("with its references it has {size} subschemas, at most {most}");
        return fault("", what);
    }
    Ok(())
}

/// How large a subschema is with its references. A reference back to where it stands counts once.
fn expanded(nodes: &[Node], at: usize, sizes: &mut [Option<u64>], is_open: &mut [bool]) -> u64 {
    if let Some(size) = sizes.get(at).copied().flatten() {
        return size;
    }
    if is_open.get(at).copied().unwrap_or(true) {
        return 1;
    }
    let Some(node) = nodes.get(at) else { return 1 };
    set(is_open, at, true);
    let mut size = 1u64;
    let here = node.here.iter().map(|(child, _)| child);
    for &child in here.chain(&node.inside).chain(node.one_of_inside.iter().flatten()) {
        size = size.saturating_add(expanded(nodes, child, sizes, is_open));
    }
    set(is_open, at, false);
    set(sizes, at, Some(size));
    size
}

fn set<T>(list: &mut [T], at: usize, value: T) {
    if let Some(place) = list.get_mut(at) {
        *place = value;
    }
}

/// Refuses references that lead back to themselves for the same value, which would never end, and chains that
/// would need too much stack.
fn check_chains(nodes: &[Node]) -> Result<(), SchemaFault> {
    let mut lengths = vec![1usize; nodes.len()];
    // The longest chain without a circle has at most as many steps as are allowed.
    for _ in 0..=SCHEMA_CHAIN_MAX {
        let mut grew = false;
        for (at, node) in nodes.iter().enumerate() {
            let longest = node.here.iter().filter_map(|(child, _)| lengths.get(*child)).max();
            let length = 1 + longest.copied().unwrap_or(0);
            if lengths.get(at).is_some_and(|known| *known < length) {
                set(&mut lengths, at, length);
                grew = true;
            }
        }
        if !grew {
            return Ok(());
        }
    }
    let what = format!(
        "a reference leads back to itself, or more than {SCHEMA_CHAIN_MAX} subschemas apply each \
         other to one value"
    );
    fault("", what)
}

/// The rules that each subschema applies to one value so many levels inside, given those one level less.
fn rules_at(nodes: &[Node], below: Option<&[u64]>) -> Vec<u64> {
    let own = |node: &Node| match below {
        None => node.rules,
        Some(below) => {
            let of = |child: &usize| below.get(*child).copied().unwrap_or(0);
            let all = node.inside.iter().map(of).fold(0, u64::saturating_add);
            let groups = node.one_of_inside.iter().map(|group| group.iter().map(of).max());
            groups.flatten().fold(all, u64::saturating_add)
        }
    };
    let mut rules: Vec<u64> = nodes.iter().map(own).collect();
    // There is no circle among those that apply to the same value, so this ends.
    let base = rules.clone();
    for _ in 0..=SCHEMA_CHAIN_MAX {
        let mut grew = false;
        for (at, node) in nodes.iter().enumerate() {
            let of = |(child, times): &(usize, u64)| {
                rules.get(*child).copied().unwrap_or(0).saturating_mul(*times)
            };
            let here = node.here.iter().map(of).fold(0, u64::saturating_add);
            let sum = base.get(at).copied().unwrap_or(0).saturating_add(here);
            if rules.get(at).is_some_and(|known| *known != sum) {
                set(&mut rules, at, sum);
                grew = true;
            }
        }
        if !grew {
            break;
        }
    }
    rules
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refusal(schema: &Value) -> (String, String) {
        let fault = Bounds::of(schema).unwrap_err();
        (fault.pointer.clone(), fault.to_string())
    }

    #[test]
    fn plain_schema_is_taken_and_its_work_grows_with_the_event() {
        let schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "required": ["id"],
            "properties": {
                "id": {"type": "string", "minLength": 1},
                "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
            },
            "$defs": {"line": {"type": "object", "properties": {"n": {"type": "integer"}}}},
        });
        let bounds = Bounds::of(&schema).unwrap();
        let event = |lines: usize| json!({"id": "a", "lines": vec![json!({"n": 1}); lines]});
        let (few, many) = (bounds.steps(&event(10)), bounds.steps(&event(1_000)));
        assert!(few < 1_000, "{few}");
        assert!(many > 50 * few && many < 100_000, "{few} {many}");
    }

    #[test]
    fn recursion_through_the_payload_is_taken() {
        let tree = json!({
            "properties": {"children": {"type": "array", "items": {"$ref": "#"}}},
        });
        let bounds = Bounds::of(&tree).unwrap();
        let deep = (0..20).fold(json!({}), |inner, _| json!({"children": [inner]}));
        assert!(bounds.steps(&deep) < 1_000);
    }

    #[test]
    fn reference_to_itself_is_refused() {
        for schema in [
            json!({"$ref": "#"}),
            json!({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
                "allOf": [{"$ref": "#/$defs/a"}]}),
        ] {
            assert!(refusal(&schema).1.contains("leads back to itself"), "{schema}");
        }
    }

    /// `levels` definitions, each of which applies the next one twice.
    fn doubling(levels: usize, wrap: impl Fn(Value) -> Value) -> Value {
        let mut definitions = Map::new();
        for level in 0..levels {
            let next = json!({"$ref": format!("#/$defs/d{}", level + 1)});
            definitions.insert(format!("d{level}"), wrap(next));
        }
        definitions.insert(format!("d{levels}"), json!({"type": "string"}));
        json!({"$ref": "#/$defs/d0", "$defs": definitions})
    }

    #[test]
    fn exponential_schemas_are_refused_whichever_keyword_branches() {
        let in_place = doubling(25, |next| json!({"allOf": [next, next]}));
        let any = doubling(25, |next| json!({"anyOf": [next, next]}));
        let inside = doubling(25, |next| json!({"properties": {"a": next, "b": next}}));
        let patterns = doubling(25, |next| json!({"patternProperties": {"a": next, "b": next}}));
        for schema in [in_place, any, inside, patterns] {
            assert!(refusal(&schema).1.contains("at most"), "{schema}");
        }
    }

    #[test]
    fn recursion_that_doubles_at_each_level_is_refused() {
        let twice = json!({"allOf": [
            {"additionalProperties": {"$ref": "#"}},
            {"additionalProperties": {"$ref": "#"}},
        ]});
        assert!(refusal(&twice).1.contains("rules to one value"));
    }

    #[test]
    fn references_that_leave_the_schema_are_refused_with_their_place() {
        for named in ["https://example.com/s.json", "other.json#/a", "#anchor", "#/nowhere"] {
            let schema = json!({"properties": {"a/b": {"$ref": named}}});
            let (pointer, what) = refusal(&schema);
            assert_eq!(pointer, "/properties/a~1b/$ref", "{named}");
            assert!(what.contains("#/$defs/name"), "{what}");
        }
        assert!(Bounds::of(&json!({"$ref": "#/%24defs/a", "$defs": {"a": true}})).is_ok());
    }

    #[test]
    fn keywords_that_cannot_be_bounded_are_refused() {
        for (keyword, _) in REFUSED {
            let schema = json!({"items": {keyword: true}});
            assert_eq!(refusal(&schema).0, format!("/items/{keyword}"));
        }
        assert_eq!(refusal(&json!({"$schema": "https://example.com/own"})).0, "/$schema");
        assert_eq!(refusal(&json!({"properties": {"a": {"$id": "x"}}})).0, "/properties/a/$id");
        assert!(Bounds::of(&json!({"$id": "https://example.com/a", "type": "object"})).is_ok());
        assert!(Bounds::of(&json!({"properties": {"id": {"type": "string"}}})).is_ok());
        for odd in [json!(7), json!("a"), json!({"items": 7}), json!({"allOf": {}})] {
            assert!(Bounds::of(&odd).is_err(), "{odd}");
        }
    }

    #[test]
    fn large_schema_and_large_event_are_noticed() {
        let large = json!({"description": "x".repeat(SCHEMA_BYTES_MAX)});
        assert!(refusal(&large).1.contains("bytes"));
        let bounds = Bounds::of(&json!({"items": {"pattern": "^a"}})).unwrap();
        let texts = json!(vec!["x".repeat(1_000); 100]);
        assert!(bounds.steps(&texts) > 500 * 1_500, "{}", bounds.steps(&texts));
    }
}
