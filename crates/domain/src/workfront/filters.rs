//! Workfront's filters, compiled to ours.
//!
//! A filter of Workfront names a field of the new or the old state, a comparison and a value; groups
//! join two to five of them. All errors are found here, with their place. `docs/guide/workfront.md`
//! has a table of every comparison, and of what differs.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value, json};

use super::{Happening, UnknownWord};
use crate::filter::{Filter, is_time};
use crate::limits;

/// How filters are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Connector {
    /// All must hold.
    #[default]
    And,
    /// One must hold.
    Or,
}

impl Connector {
    /// The name in requests and answers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Connector::And => "AND",
            Connector::Or => "OR",
        }
    }

    /// The key of our group.
    const fn group(self) -> &'static str {
        match self {
            Connector::And => "all",
            Connector::Or => "any",
        }
    }
}

impl FromStr for Connector {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        let found = [Connector::And, Connector::Or].into_iter().find(|one| one.as_str() == text);
        found.ok_or(UnknownWord("AND or OR"))
    }
}

/// Why filters were refused, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {why}")]
pub struct InvalidFilters {
    /// The place, such as `filters[2].filters[0].comparison`.
    pub place: String,
    /// What is wrong there, and what is allowed.
    pub why: String,
}

/// Workfront's comparisons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Eq,
    Ne,
    Gt,
    Gte,
    Lt,
    Lte,
    Contains,
    NotContains,
    ContainsOnly,
    Changed,
}

impl Comparison {
    /// Each with its name and our operator.
    const ALL: [(Comparison, &str, &str); 10] = [
        (Comparison::Eq, "eq", "eq"),
        (Comparison::Ne, "ne", "ne"),
        (Comparison::Gt, "gt", "gt"),
        (Comparison::Gte, "gte", "gte"),
        (Comparison::Lt, "lt", "lt"),
        (Comparison::Lte, "lte", "lte"),
        (Comparison::Contains, "contains", "contains"),
        (Comparison::NotContains, "notContains", "not_contains"),
        (Comparison::ContainsOnly, "containsOnly", "contains_only"),
        (Comparison::Changed, "changed", "changed"),
    ];

    fn op(self) -> &'static str {
        let known = Comparison::ALL.into_iter().find(|(one, ..)| *one == self);
        known.map_or("", |(_, _, op)| op)
    }

    /// Whether it compares by order.
    const fn is_ordered(self) -> bool {
        matches!(self, Comparison::Gt | Comparison::Gte | Comparison::Lt | Comparison::Lte)
    }

    /// How the conditions of an object's fields are joined: a negation holds if one of them does.
    const fn joins(self) -> Connector {
        match self {
            Comparison::Ne | Comparison::NotContains => Connector::Or,
            Comparison::Eq
            | Comparison::Gt
            | Comparison::Gte
            | Comparison::Lt
            | Comparison::Lte
            | Comparison::Contains
            | Comparison::ContainsOnly
            | Comparison::Changed => Connector::And,
        }
    }
}

impl Comparison {
    /// How the conditions for `true` and for `"true"` are joined; `None` for a comparison that takes one of them.
    const fn joins_spellings(self) -> Option<Connector> {
        match self {
            Comparison::Eq => Some(Connector::Or),
            Comparison::Ne => Some(Connector::And),
            Comparison::Gt
            | Comparison::Gte
            | Comparison::Lt
            | Comparison::Lte
            | Comparison::Contains
            | Comparison::NotContains
            | Comparison::ContainsOnly
            | Comparison::Changed => None,
        }
    }
}

/// The names of all comparisons.
pub fn comparisons() -> [&'static str; 10] {
    Comparison::ALL.map(|(_, name, _)| name)
}

/// The states that a filter can look at; the first one where it names none.
pub const STATES: [&str; 2] = ["newState", "oldState"];

/// Compiles the `filters` of a subscription to events of this kind. `None` where there are none.
pub fn compile(
    filters: &Value,
    connector: Connector,
    happening: Happening,
) -> Result<Option<Filter>, InvalidFilters> {
    let entries = list("filters", filters)?;
    if entries.is_empty() {
        return Ok(None);
    }
    let groups = entries.iter().filter(|entry| entry.get("type").is_some()).count();
    if groups > limits::WORKFRONT_GROUPS_MAX {
        let most = limits::WORKFRONT_GROUPS_MAX;
        return Err(at("filters", format!("{groups} groups, at most {most} are allowed")));
    }
    if entries.len() > limits::FILTER_CONDITIONS_MAX {
        let (count, most) = (entries.len(), limits::FILTER_CONDITIONS_MAX);
        return Err(at("filters", format!("{count} entries, at most {most} are allowed")));
    }
    let compiled: Result<Vec<Value>, InvalidFilters> = entries
        .iter()
        .enumerate()
        .map(|(n, entry)| {
            let place = format!("filters[{n}]");
            let entry = object(&place, entry)?;
            if entry.contains_key("type") {
                group(&place, entry, happening)
            } else {
                condition(&place, entry, happening)
            }
        })
        .collect();
    let source = joined(connector, compiled?);
    // What is left are limits of our own, such as the length of a field's path.
    let filter = Filter::compile_stored(&source);
    filter.map(Some).map_err(|error| at("filters", error.fault.to_string()))
}

fn group(
    place: &str,
    entry: &Map<String, Value>,
    happening: Happening,
) -> Result<Value, InvalidFilters> {
    refuse_others(place, entry, &["type", "connector", "filters"])?;
    if entry.get("type") != Some(&json!("group")) {
        return Err(at(format!("{place}.type"), "must be group"));
    }
    let connector = word(place, entry, "connector")?.unwrap_or_default();
    let place = format!("{place}.filters");
    let filters = list(&place, entry.get("filters").unwrap_or(&Value::Null))?;
    if !limits::WORKFRONT_GROUP_FILTERS.contains(&filters.len()) {
        let (least, most) =
            (limits::WORKFRONT_GROUP_FILTERS.start(), limits::WORKFRONT_GROUP_FILTERS.end());
        return Err(at(place, format!("a group has {least} to {most} filters")));
    }
    let compiled: Result<Vec<Value>, InvalidFilters> = filters
        .iter()
        .enumerate()
        .map(|(n, filter)| {
            let place = format!("{place}[{n}]");
            condition(&place, object(&place, filter)?, happening)
        })
        .collect();
    Ok(joined(connector, compiled?))
}

fn condition(
    place: &str,
    entry: &Map<String, Value>,
    happening: Happening,
) -> Result<Value, InvalidFilters> {
    refuse_others(place, entry, &["fieldName", "fieldValue", "comparison", "state"])?;
    let name = match entry.get("fieldName") {
        Some(Value::String(name)) => name,
        _ => return Err(at(format!("{place}.fieldName"), "must be the name of a field")),
    };
    let name = checked(name).map_err(|why| at(format!("{place}.fieldName"), why))?;
    let comparison = match entry.get("comparison") {
        None => Comparison::Eq,
        Some(given) => {
            let known = Comparison::ALL.into_iter().find(|(_, name, _)| *given == json!(name));
            let names = || format!("must be one of {}", comparisons().join(", "));
            let unknown = || at(format!("{place}.comparison"), names());
            known.map(|(comparison, ..)| comparison).ok_or_else(unknown)?
        }
    };
    let root = match entry.get("state").map(Value::as_str) {
        None | Some(Some("newState")) => "data",
        Some(Some("oldState")) if happening == Happening::Create => {
            let why = "an object that is created has no old state: use newState";
            return Err(at(format!("{place}.state"), why));
        }
        Some(Some("oldState")) => "old",
        Some(_) => return Err(at(format!("{place}.state"), "must be newState or oldState")),
    };
    if comparison == Comparison::Changed {
        // It compares both states, and its value has no effect.
        return Ok(json!({"field": format!("data.{name}"), "op": comparison.op()}));
    }
    let place = format!("{place}.fieldValue");
    let Some(value) = entry.get("fieldValue") else {
        return Err(at(place, "missing: the comparison needs it"));
    };
    let mut conditions = Vec::new();
    let path = format!("{root}.{name}");
    descend(&path, value, comparison, &mut conditions).map_err(|why| at(place, why))?;
    Ok(joined(comparison.joins(), conditions))
}

/// Adds the conditions of a value. The fields of an object are fields below this one.
fn descend(
    path: &str,
    value: &Value,
    comparison: Comparison,
    conditions: &mut Vec<Value>,
) -> Result<(), String> {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, value) in fields {
                let path = format!("{path}.{}", checked(name)?);
                descend(&path, value, comparison, conditions)?;
            }
        }
        Value::Object(_)
        | Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_) => {
            if conditions.len() >= limits::FILTER_CONDITIONS_MAX {
                let most = limits::FILTER_CONDITIONS_MAX;
                return Err(format!("an object has at most {most} fields, nested ones included"));
            }
            conditions.push(one(path, value, comparison)?);
        }
    }
    Ok(())
}

/// The condition of a single value.
fn one(path: &str, value: &Value, comparison: Comparison) -> Result<Value, String> {
    let op = comparison.op();
    if let (Some(connector), Some(both)) = (comparison.joins_spellings(), spellings(value)) {
        let both = both.map(|value| json!({"field": path, "op": op, "value": value}));
        return Ok(joined(connector, both.into()));
    }
    if !comparison.is_ordered() {
        return Ok(json!({"field": path, "op": op, "value": value}));
    }
    match value {
        // Workfront writes numbers as texts too.
        Value::String(text) => match serde_json::from_str::<Number>(text) {
            Ok(number) => Ok(json!({"field": path, "op": op, "value": number})),
            Err(_) if is_time(text) => {
                Ok(json!({"field": path, "op": op, "value": text, "as": "time"}))
            }
            Err(_) => Ok(json!({"field": path, "op": op, "value": text})),
        },
        Value::Number(_) => Ok(json!({"field": path, "op": op, "value": value})),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
            Err("must be a number, a time or another text, since nothing else has an order".into())
        }
    }
}

/// `true` and `false` in both ways that they are written: Workfront's filters have them as texts, and the fields that
/// they are compared with are booleans.
fn spellings(value: &Value) -> Option<[Value; 2]> {
    let boolean = match value {
        Value::Bool(boolean) => *boolean,
        Value::String(text) => text.parse().ok()?,
        Value::Null | Value::Number(_) | Value::Array(_) | Value::Object(_) => return None,
    };
    Some([json!(boolean), json!(boolean.to_string())])
}

/// A name that can be a step of our paths.
fn checked(name: &str) -> Result<&str, String> {
    if name.is_empty() {
        return Err("a field needs a name".to_owned());
    }
    if name.contains('.') {
        return Err("a name with a dot cannot be compared here".to_owned());
    }
    Ok(name)
}

/// One of them is itself; several are a group.
fn joined(connector: Connector, mut entries: Vec<Value>) -> Value {
    match entries.len() {
        1 => entries.remove(0),
        _ => json!({ connector.group(): entries }),
    }
}

fn word<T: FromStr<Err = UnknownWord>>(
    place: &str,
    entry: &Map<String, Value>,
    key: &str,
) -> Result<Option<T>, InvalidFilters> {
    let Some(given) = entry.get(key) else { return Ok(None) };
    let text = given.as_str().unwrap_or_default();
    text.parse().map(Some).map_err(|why: UnknownWord| at(format!("{place}.{key}"), why.to_string()))
}

fn list<'v>(place: &str, value: &'v Value) -> Result<&'v [Value], InvalidFilters> {
    let list = value.as_array().map(Vec::as_slice);
    list.ok_or_else(|| at(place, "must be a list of filters"))
}

fn object<'v>(place: &str, value: &'v Value) -> Result<&'v Map<String, Value>, InvalidFilters> {
    value.as_object().ok_or_else(|| at(place, "must be an object: a filter or a group"))
}

/// Refuses keys that are not among these. The unknown key is not repeated.
fn refuse_others(
    place: &str,
    entry: &Map<String, Value>,
    known: &[&str],
) -> Result<(), InvalidFilters> {
    if entry.keys().all(|key| known.contains(&key.as_str())) {
        return Ok(());
    }
    Err(at(place, format!("has an unknown field: known are {}", known.join(", "))))
}

fn at(place: impl Into<String>, why: impl Into<String>) -> InvalidFilters {
    InvalidFilters { place: place.into(), why: why.into() }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::event::{Event, RawJson};
    use crate::filter::{Budget, EventView};
    use crate::ids::TenantId;
    use crate::time::Timestamp;

    #[track_caller]
    fn check(filters: Value, compiled: Value) {
        let filter = compile(&filters, Connector::And, Happening::Update).unwrap().unwrap();
        assert_eq!(*filter.source(), compiled);
    }

    #[track_caller]
    fn refused(filters: Value, place: &str, why: &str) {
        let error = compile(&filters, Connector::And, Happening::Update).unwrap_err();
        assert_eq!(error.place, place, "{error}");
        assert!(error.why.contains(why), "{error}");
    }

    #[test]
    fn every_comparison_has_its_operator() {
        for (_, name, op) in Comparison::ALL {
            let filter = json!([{"fieldName": "name", "fieldValue": "again", "comparison": name}]);
            let expected = match op {
                "changed" => json!({"field": "data.name", "op": op}),
                _ => json!({"field": "data.name", "op": op, "value": "again"}),
            };
            check(filter, expected);
        }
    }

    #[test]
    fn a_filter_compares_for_equality_in_the_new_state_unless_it_says_otherwise() {
        let plain = json!([{"fieldName": "projectID", "fieldValue": "5db1"}]);
        check(plain, json!({"field": "data.projectID", "op": "eq", "value": "5db1"}));
        let old = json!([{"fieldName": "name", "fieldValue": "a", "comparison": "contains", "state": "oldState"}]);
        check(old, json!({"field": "old.name", "op": "contains", "value": "a"}));
    }

    #[test]
    fn ordered_comparisons_read_numbers_and_times_from_texts() {
        let lt =
            |value: Value| json!([{"fieldName": "f", "fieldValue": value, "comparison": "lt"}]);
        let field = "data.f";
        check(lt(json!("100")), json!({"field": field, "op": "lt", "value": 100}));
        check(lt(json!(1.5)), json!({"field": field, "op": "lt", "value": 1.5}));
        check(lt(json!("abc")), json!({"field": field, "op": "lt", "value": "abc"}));
        let time = "2022-12-18T16:00:00.000-0800";
        check(lt(json!(time)), json!({"field": field, "op": "lt", "value": time, "as": "time"}));
        refused(lt(json!(null)), "filters[0].fieldValue", "has an order");
    }

    #[test]
    fn the_fields_of_an_object_are_fields_below() {
        let nested = |comparison: &str| {
            json!([{
                "fieldName": "data", "comparison": comparison, "state": "newState",
                "fieldValue": {"fields": {"children": {"customerId": "c", "name": "New Campaign"}}},
            }])
        };
        let conditions = |op: &str| {
            json!([
                {"field": "data.data.fields.children.customerId", "op": op, "value": "c"},
                {"field": "data.data.fields.children.name", "op": op, "value": "New Campaign"},
            ])
        };
        check(nested("eq"), json!({"all": conditions("eq")}));
        check(nested("ne"), json!({"any": conditions("ne")}));
        check(nested("notContains"), json!({"any": conditions("not_contains")}));
        let custom = json!([{"fieldName": "parameterValues", "fieldValue": {"DE: field": "v"}}]);
        check(custom, json!({"field": "data.parameterValues.DE: field", "op": "eq", "value": "v"}));
        let empty = json!([{"fieldName": "parameterValues", "fieldValue": {}}]);
        check(empty, json!({"field": "data.parameterValues", "op": "eq", "value": {}}));
    }

    #[test]
    fn groups_are_groups() {
        let filters = json!([
            {"fieldName": "percentComplete", "fieldValue": "100", "comparison": "lt"},
            {"type": "group", "connector": "OR", "filters": [
                {"fieldName": "status", "fieldValue": "CUR", "comparison": "eq"},
                {"fieldName": "priority", "fieldValue": "1", "comparison": "eq"},
            ]},
        ]);
        let compiled = json!([
            {"field": "data.percentComplete", "op": "lt", "value": 100},
            {"any": [
                {"field": "data.status", "op": "eq", "value": "CUR"},
                {"field": "data.priority", "op": "eq", "value": "1"},
            ]},
        ]);
        check(filters.clone(), json!({ "all": compiled }));
        let any = compile(&filters, Connector::Or, Happening::Update).unwrap().unwrap();
        assert_eq!(*any.source(), json!({ "any": compiled }));
        let none = compile(&json!([]), Connector::And, Happening::Update).unwrap();
        assert_eq!(none, None);
    }

    #[test]
    fn as_many_groups_and_filters_as_workfront_allows_are_accepted_and_no_more() {
        let pair = json!({"a": 1, "b": 2});
        let filter = json!({"fieldName": "f", "fieldValue": pair, "comparison": "ne"});
        let group = |count: usize| json!({"type": "group", "filters": vec![filter.clone(); count]});
        let mut entries = vec![group(5); 10];
        entries.extend(vec![filter.clone(); 10]);
        let widest = compile(&json!(entries), Connector::Or, Happening::Update).unwrap().unwrap();
        let stored = serde_json::to_value(&widest).unwrap();
        assert_eq!(serde_json::from_value::<Filter>(stored).unwrap(), widest);
        refused(json!(vec![group(5); 11]), "filters", "at most 10");
        refused(json!([group(1)]), "filters[0].filters", "2 to 5");
        refused(json!([group(6)]), "filters[0].filters", "2 to 5");
        refused(json!(vec![filter.clone(); 21]), "filters", "at most 20");
    }

    #[test]
    fn faults_have_their_place() {
        let one = |key: &str, value: Value| {
            let mut filter = json!({"fieldName": "name", "fieldValue": "x"});
            filter[key] = value;
            json!([filter])
        };
        refused(json!("x"), "filters", "a list");
        refused(json!([1]), "filters[0]", "an object");
        refused(json!([{}]), "filters[0].fieldName", "the name of a field");
        refused(json!([{"fieldName": "x"}]), "filters[0].fieldValue", "missing");
        refused(one("fieldName", json!("")), "filters[0].fieldName", "needs a name");
        refused(one("fieldName", json!("a.b")), "filters[0].fieldName", "a dot");
        refused(one("fieldValue", json!({"a.b": 1})), "filters[0].fieldValue", "a dot");
        refused(one("comparison", json!("equals")), "filters[0].comparison", "eq, ne");
        refused(one("comparison", json!(7)), "filters[0].comparison", "eq, ne");
        refused(one("state", json!("old")), "filters[0].state", "newState or oldState");
        refused(one("operator", json!("eq")), "filters[0]", "unknown field");
        refused(one("type", json!("filter")), "filters[0]", "unknown field");
        refused(one("fieldValue", json!("x".repeat(5000))), "filters", "larger than");
        let group =
            |connector: Value| json!([{"type": "group", "connector": connector, "filters": []}]);
        refused(group(json!("XOR")), "filters[0].connector", "AND or OR");
        refused(json!([{"type": "list"}]), "filters[0].type", "must be group");
        let nested = json!([{"type": "group", "filters": [{"type": "group"}, {}]}]);
        refused(nested, "filters[0].filters[0]", "unknown field");
        let old = one("state", json!("oldState"));
        let error = compile(&old, Connector::And, Happening::Create).unwrap_err();
        assert_eq!(error.place, "filters[0].state");
        let many: Map<String, Value> = (0..21).map(|n| (n.to_string(), json!(n))).collect();
        refused(one("fieldValue", Value::Object(many)), "filters[0].fieldValue", "at most 20");
    }

    /// Whether an event with this `data` passes a filter of the field `f`.
    fn holds(comparison: &str, value: Value, data: Value) -> bool {
        let filters = json!([{"fieldName": "f", "fieldValue": value, "comparison": comparison}]);
        let filter = compile(&filters, Connector::And, Happening::Update).unwrap().unwrap();
        let event = Event {
            id: "evt_1".parse().unwrap(),
            tenant: TenantId::default_tenant(),
            kind: "TASK.UPDATE".parse().unwrap(),
            object: None,
            data: RawJson::parse(Bytes::from(data.to_string())).unwrap(),
            old: None,
            time: Timestamp::EPOCH,
            trace: None,
        };
        filter.evaluate(&EventView::new(&event), &mut Budget::unlimited()).unwrap()
    }

    #[test]
    fn booleans_equal_the_texts_that_workfront_writes() {
        for value in [json!("true"), json!(true)] {
            for (field, is_equal) in [
                (json!(true), true),
                (json!("true"), true),
                (json!(false), false),
                (json!("false"), false),
                (json!("True"), false),
                (json!(1), false),
                (Value::Null, false),
            ] {
                assert_eq!(
                    holds("eq", value.clone(), json!({"f": field})),
                    is_equal,
                    "{value} {field}"
                );
                assert_eq!(
                    holds("ne", value.clone(), json!({"f": field})),
                    !is_equal,
                    "{value} {field}"
                );
            }
            assert!(holds("ne", value.clone(), json!({})));
            assert!(!holds("eq", value, json!({})));
        }
        assert!(holds("eq", json!({"isDone": "false"}), json!({"f": {"isDone": false}})));
        assert!(holds("eq", json!("yes"), json!({"f": "yes"})));
        let pair = |op: &str| json!([{"field": "data.f", "op": op, "value": true}, {"field": "data.f", "op": op, "value": "true"}]);
        let filter = |comparison: &str| json!([{"fieldName": "f", "fieldValue": "true", "comparison": comparison}]);
        check(filter("eq"), json!({"any": pair("eq")}));
        check(filter("ne"), json!({"all": pair("ne")}));
    }

    #[test]
    fn times_are_compared_as_times_across_offsets() {
        let holds = |comparison: &str, value: &str, field: &str| {
            holds(comparison, json!(value), json!({ "f": field }))
        };
        let filter = "2022-12-11T16:00:00.000-0800";
        // As texts, all of these would compare the other way round.
        assert!(holds("gt", filter, "2022-12-11T15:30:00.000-0900"));
        assert!(holds("lt", filter, "2022-12-11T16:30:00.000-0700"));
        assert!(holds("gte", filter, "2022-12-12T00:00:00Z"));
        assert!(holds("lte", filter, "2022-12-11T17:00:00.000-0700"));
        assert!(!holds("gt", filter, "no time"));
        assert!(!holds("lte", filter, "no time"));
    }
}
