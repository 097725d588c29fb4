//! Filters as a whole: tables of what passes, of what is refused and where, and properties.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::json;
use serde_json::value::RawValue;

use super::*;
use crate::event::{Event, RawJson};
use crate::ids::{EventId, TenantId};
use crate::time::Timestamp;

mod steps;

impl Filter {
    fn matches(&self, event: &EventView<'_>) -> bool {
        self.evaluate(event, &mut Budget::unlimited()).unwrap()
    }
}

/// An event as the API takes it: `{"type"?, "object"?, "data"?, "old"?}`, its parts kept as bytes.
fn event(json: &str) -> Event {
    let parts: BTreeMap<&str, &RawValue> = serde_json::from_str(json).unwrap();
    let raw = |part: &&RawValue| RawJson::parse(Bytes::from(part.get().to_owned())).unwrap();
    let text = |part: &&RawValue| serde_json::from_str::<String>(part.get()).unwrap();
    let kind = parts.get("type").map_or("task.updated".to_owned(), text);
    Event {
        id: EventId::new(Timestamp::EPOCH, [0; 10]),
        tenant: TenantId::default_tenant(),
        kind: kind.parse().unwrap(),
        object: parts.get("object").map(|part| text(part).parse().unwrap()),
        data: parts.get("data").map_or(RawJson::from_trusted(Bytes::from_static(b"{}")), raw),
        old: parts.get("old").map(raw),
        time: Timestamp::EPOCH,
        trace: None,
    }
}

#[track_caller]
fn check(filter: &str, event_json: &str, expected: bool) {
    let filter: Filter = serde_json::from_str(filter).unwrap();
    let event = event(event_json);
    assert_eq!(
        filter.matches(&EventView::new(&event)),
        expected,
        "{} on {event_json}",
        filter.source()
    );
}

/// One condition on `data.x`, over an event with that field.
#[track_caller]
fn check_x(op: &str, value: &str, x: &str, expected: bool) {
    let filter = format!(r#"{{"field": "data.x", "op": "{op}", "value": {value}}}"#);
    check(&filter, &format!(r#"{{"data": {{"x": {x}}}}}"#), expected);
    let negation = match op {
        "eq" => "ne",
        "contains" => "not_contains",
        _ => return,
    };
    let filter = format!(r#"{{"field": "data.x", "op": "{negation}", "value": {value}}}"#);
    check(&filter, &format!(r#"{{"data": {{"x": {x}}}}}"#), !expected);
}

#[test]
fn equality_knows_numbers_times_and_texts() {
    check_x("eq", r#""CUR""#, r#""CUR""#, true);
    check_x("eq", r#""CUR""#, r#""cur""#, false);
    check_x("eq", "1", "1.0", true);
    check_x("eq", "1", "2", false);
    check_x("eq", "9007199254740993", "9007199254740992", false);
    check_x("eq", "18446744073709551615", "18446744073709551615", true);
    check_x("eq", "1", r#""1""#, true);
    check_x("eq", r#""1""#, "1", true);
    check_x("eq", r#""1.0""#, "1", false);
    let (noon, same) = (r#""2026-01-01T12:00:00Z""#, r#""2026-01-01T13:00:00.000+01:00""#);
    check_x("eq", noon, same, true);
    check_x("eq", noon, r#""2026-01-01T12:00:00.000000001Z""#, false);
}

#[test]
fn equality_takes_truth_and_nothing_as_themselves_only() {
    check_x("eq", "true", "true", true);
    check_x("eq", "true", "false", false);
    check_x("eq", "true", r#""true""#, false);
    check_x("eq", r#""true""#, "true", false);
    check_x("eq", "null", "null", true);
    check_x("eq", "null", r#""null""#, false);
    check_x("eq", "null", "0", false);
    check_x("eq", "0", "false", false);
}

#[test]
fn equality_of_lists_and_objects_goes_all_the_way_down() {
    check_x("eq", "[1, 2]", "[1.0, 2]", true);
    check_x("eq", "[1, 2]", "[2, 1]", false);
    check_x("eq", "[]", "null", false);
    check_x("eq", r#"{"a": {"b": [1]}}"#, r#"{"a": {"b": [1e0]}}"#, true);
    check_x("eq", r#"{"a": 1, "b": 2}"#, r#"{"b": 2, "a": 1}"#, true);
    check_x("eq", r#"{"a": 1}"#, r#"{"a": 1, "b": null}"#, false);
    check_x("eq", "1", "[1]", false);
}

#[test]
fn order_is_that_of_numbers_times_and_texts_and_nothing_else() {
    for (value, x, gt, gte, lt, lte) in [
        ("10", "9", false, false, true, true),
        ("10", "10.0", false, true, false, true),
        ("10", "10.5", true, true, false, false),
        ("10", "1e400", true, true, false, false),
        ("10", "-1e400", false, false, true, true),
        (r#""b""#, r#""a""#, false, false, true, true),
        (r#""b""#, r#""ba""#, true, true, false, false),
        (r#""10""#, "9", true, true, false, false),
        (r#""2026-01-01T00:00:00Z""#, r#""2026-01-01T00:30:00+01:00""#, false, false, true, true),
        (r#""2026-01-01T00:00:00Z""#, r#""2026-01-01T01:00:00+01:00""#, false, true, false, true),
        (r#""2026-01-01T00:00:00Z""#, r#""9999-12-31T23:59:59Z""#, true, true, false, false),
        ("1", "true", false, false, false, false),
        ("1", "null", false, false, false, false),
        ("1", "[2]", false, false, false, false),
        (r#""a""#, r#"{"a": 1}"#, false, false, false, false),
    ] {
        check_x("gt", value, x, gt);
        check_x("gte", value, x, gte);
        check_x("lt", value, x, lt);
        check_x("lte", value, x, lte);
    }
}

#[test]
fn contains_looks_into_texts_and_lists() {
    check_x("contains", r#""rid""#, r#""postrider""#, true);
    check_x("contains", r#""Rid""#, r#""postrider""#, false);
    check_x("contains", r#""""#, r#""postrider""#, true);
    check_x("contains", "17", r#""order 17""#, true);
    check_x("contains", "true", r#""true""#, false);
    check_x("contains", r#""a""#, r#"["b", "a"]"#, true);
    check_x("contains", r#""a""#, r#"["ab"]"#, false);
    check_x("contains", "1", "[2, 1.0]", true);
    check_x("contains", "null", "[null]", true);
    check_x("contains", r#"{"id": 1}"#, r#"[{"id": 1.0}]"#, true);
    check_x("contains", r#""a""#, "[]", false);
    check_x("contains", r#""1""#, "123", false);
    check_x("contains", r#""a""#, r#"{"a": 1}"#, false);
    check_x("contains", "null", "null", false);
}

#[test]
fn contains_only_compares_sets() {
    check_x("contains_only", r#"["a", "b"]"#, r#"["b", "a", "b"]"#, true);
    check_x("contains_only", r#"["a", "b", "a"]"#, r#"["b", "a"]"#, true);
    check_x("contains_only", r#"["a", "b"]"#, r#"["a"]"#, false);
    check_x("contains_only", r#"["a"]"#, r#"["a", "b"]"#, false);
    check_x("contains_only", r#""a""#, r#"["a", "a"]"#, true);
    check_x("contains_only", r#""a""#, r#""a""#, true);
    check_x("contains_only", r#"["a"]"#, r#""a""#, true);
    check_x("contains_only", r#"["a", "b"]"#, r#""a""#, false);
    check_x("contains_only", "[1, 2]", "[2.0, 1]", true);
    check_x("contains_only", "[]", "[]", true);
    check_x("contains_only", "[]", r#"["a"]"#, false);
    check_x("contains_only", "null", "null", true);
    check_x("contains_only", "[null]", "[]", false);
}

#[test]
fn changed_compares_old_and_new() {
    let changed = r#"{"field": "data.x", "op": "changed"}"#;
    for (data, old, expected) in [
        (r#"{"x": 1}"#, r#"{"x": 2}"#, true),
        (r#"{"x": 1}"#, r#"{"x": 1.0}"#, false),
        (r#"{"x": 1}"#, r#"{"x": "1"}"#, true),
        (r#"{"x": [1, {"a": 2}]}"#, r#"{"x": [1, {"a": 2}]}"#, false),
        (r#"{"x": [1, {"a": 2}]}"#, r#"{"x": [1, {"a": 3}]}"#, true),
        (r#"{"x": null}"#, "{}", true),
        ("{}", r#"{"x": null}"#, true),
        ("{}", "{}", false),
        ("{}", "null", false),
        (r#"{"x": 1}"#, "null", true),
    ] {
        let event = format!(r#"{{"data": {data}, "old": {old}}}"#);
        check(changed, &event, expected);
        check(&changed.replace("data.x", "old.x"), &event, expected);
    }
    check(changed, r#"{"data": {"x": 1}}"#, false);
    let whole = r#"{"field": "data", "op": "changed"}"#;
    check(whole, r#"{"data": {"x": 1}, "old": {"x": 1}}"#, false);
    check(whole, r#"{"data": {"x": 1}, "old": {"x": 2}}"#, true);
}

#[test]
fn exists_asks_whether_it_is_there_and_null_is_there() {
    for (field, event, there) in [
        ("data.x", r#"{"data": {"x": null}}"#, true),
        ("data.x", r#"{"data": {"y": 1}}"#, false),
        ("data", r#"{"data": null}"#, true),
        ("old", r#"{"data": {}}"#, false),
        ("old", r#"{"old": {}}"#, true),
        ("object", "{}", false),
        ("object", r#"{"object": "T-1"}"#, true),
        ("type", "{}", true),
    ] {
        let filter = |rest: &str| format!(r#"{{"field": "{field}", "op": "exists"{rest}}}"#);
        check(&filter(""), event, there);
        check(&filter(r#", "value": true"#), event, there);
        check(&filter(r#", "value": false"#), event, !there);
    }
}

#[test]
fn a_missing_field_satisfies_only_the_negations() {
    for (op, expected) in [
        ("eq", false),
        ("ne", true),
        ("gt", false),
        ("gte", false),
        ("lt", false),
        ("lte", false),
        ("contains", false),
        ("not_contains", true),
        ("contains_only", false),
    ] {
        for field in ["data.x", "data.y.z", "data.list.1", "old.y", "object"] {
            let filter = format!(r#"{{"field": "{field}", "op": "{op}", "value": "a"}}"#);
            check(&filter, r#"{"data": {"y": "a", "list": ["a"]}}"#, expected);
        }
    }
}

#[test]
fn fields_are_found_in_every_part_of_an_event() {
    let event = r#"{"type": "task.done", "object": "T-1", "old": {"s": "OLD"},
        "data": {"s": "NEW", "list": [{"id": 7}, [8]], "0": {"01": "key"}, "ä b": 1}}"#;
    for (field, value) in [
        ("type", r#""task.done""#),
        ("object", r#""T-1""#),
        ("old.s", r#""OLD""#),
        ("data.s", r#""NEW""#),
        ("data.list.0.id", "7"),
        ("data.list.1.0", "8"),
        ("data.0.01", r#""key""#),
        ("data.ä b", "1"),
    ] {
        check(&format!(r#"{{"field": "{field}", "op": "eq", "value": {value}}}"#), event, true);
    }
    for missing in ["data.list.00", "data.list.+0", "data.list.2", "data.list.id", "data.s.0"] {
        check(&format!(r#"{{"field": "{missing}", "op": "exists"}}"#), event, false);
    }
    let huge = format!("data.list.{}", "9".repeat(40));
    check(&format!(r#"{{"field": "{huge}", "op": "exists"}}"#), event, false);
}

#[test]
fn groups_nest() {
    let filter = r#"{"all": [
        {"field": "type", "op": "eq", "value": "task.updated"},
        {"any": [
            {"field": "data.s", "op": "changed"},
            {"all": [{"field": "data.n", "op": "gt", "value": 5},
                     {"field": "data.n", "op": "lt", "value": 7}]}]}]}"#;
    check(filter, r#"{"data": {"s": 1}, "old": {"s": 2}}"#, true);
    check(filter, r#"{"data": {"n": 6}}"#, true);
    check(filter, r#"{"data": {"n": 7}}"#, false);
    check(filter, r#"{"type": "task.new", "data": {"n": 6}}"#, false);
}

#[test]
fn strange_but_well_formed_events_are_filtered_like_others() {
    let filter = r#"{"field": "data.status", "op": "eq", "value": "CUR"}"#;
    for rest in [r#""n": 1e400"#, r#""n": -1e999"#, r#""t": "\ud800""#, r#""status": "CUR""#] {
        check(filter, &format!(r#"{{"data": {{"status": "CUR", {rest}}}}}"#), true);
    }
    check(filter, r#"{"data": {"status": "CUR", "status": "OLD"}}"#, false);
    check(filter, r#"{"data": "CUR"}"#, false);
}

#[test]
fn an_event_is_parsed_only_where_a_filter_needs_it_and_only_once() {
    let event = event(r#"{"object": "T-1", "data": {"x": 1}, "old": {"x": 2}}"#);
    let view = EventView::new(&event);
    let filter = |json: Value| Filter::compile(&json).unwrap();
    assert!(filter(json!({"field": "object", "op": "eq", "value": "T-1"})).matches(&view));
    assert!(filter(json!({"field": "type", "op": "exists"})).matches(&view));
    assert_eq!(view.parsed(), (false, false));
    assert!(filter(json!({"field": "data.x", "op": "eq", "value": 1})).matches(&view));
    assert_eq!(view.parsed(), (true, false));
    let first: *const Value = view.root(field::Root::Data).unwrap();
    assert!(filter(json!({"field": "data.x", "op": "changed"})).matches(&view));
    assert_eq!(view.parsed(), (true, true));
    assert!(std::ptr::eq(first, view.root(field::Root::Data).unwrap()));
    assert_eq!(view.event().id, event.id);
}

#[track_caller]
fn check_refused(filter: Value, place: &str, says: &str) {
    let error = Filter::compile(&filter).unwrap_err();
    assert_eq!(error.place, place, "{error}");
    assert!(error.to_string().contains(says), "{error}");
    assert!(error.to_string().starts_with(&format!("{place}: ")), "{error}");
}

#[test]
fn what_is_neither_condition_nor_group_is_refused_with_its_place() {
    for neither in [json!(null), json!(true), json!("data.x"), json!([]), json!({})] {
        check_refused(neither.clone(), "filter", "a condition with `field` and `op`");
        check_refused(json!({"any": [neither]}), "filter.any[0]", "or a group with `all`");
    }
    let ok = json!({"field": "data.x", "op": "exists"});
    check_refused(json!({"all": ok}), "filter.all", "must be a list");
    check_refused(json!({"any": null}), "filter.any", "must be a list");
    check_refused(json!({"all": []}), "filter.all", "at least one condition");
    check_refused(json!({"all": [ok], "any": [ok]}), "filter.any", "nothing else");
    check_refused(json!({"any": [ok], "field": "data.x"}), "filter.field", "nothing else");
    check_refused(json!({"any": [ok], "a b": 1}), "filter", "nothing else");
    check_refused(json!({"feild": "data.x", "op": "eq"}), "filter.feild", "unknown key");
    check_refused(json!({"none": [ok]}), "filter.none", "unknown key");
    let extra = json!({"field": "data.x", "op": "exists", "values": 1});
    check_refused(json!({"all": [ok, {"any": [extra]}]}), "filter.all[1].any[0].values", "unknown");
}

#[test]
fn a_bad_field_or_operator_is_refused_with_its_place() {
    let field = |field: Value| json!({"field": field, "op": "exists"});
    check_refused(json!({"op": "exists"}), "filter.field", "the name of a field");
    check_refused(field(json!(1)), "filter.field", "the name of a field");
    for bad in ["", "x", "Data.x", ".data", " data", "$.data.x", "data[0]", "time"] {
        check_refused(field(json!(bad)), "filter.field", "must begin with data or old");
    }
    for bad in ["data.", "data..x", "old.x."] {
        check_refused(field(json!(bad)), "filter.field", "empty name");
    }
    check_refused(field(json!("object.id")), "filter.field", "no fields of their own");
    check_refused(field(json!("type.0")), "filter.field", "no fields of their own");
    assert!(Filter::compile(&field(json!(format!("data.{}", "ä".repeat(251))))).is_ok());
    let long = format!("data.{}", "ä".repeat(252));
    check_refused(field(json!(long)), "filter.field", "longer than 256 characters");

    for op in [json!("like"), json!("EQ"), json!(""), json!(1), json!(null)] {
        let bad = json!({"field": "data.x", "op": op, "value": 1});
        let nested = json!({"all": [field(json!("type")), {"any": [bad]}]});
        check_refused(
            nested,
            "filter.all[1].any[0].op",
            "one of eq, ne, gt, gte, lt, lte, contains",
        );
    }
    check_refused(json!({"field": "data.x"}), "filter.op", "changed, exists");
    let changed = |field: &str| json!({"field": field, "op": "changed"});
    check_refused(changed("type"), "filter.field", "name a field of data");
    check_refused(changed("object"), "filter.field", "name a field of data");
}

#[test]
fn a_value_that_the_operator_cannot_use_is_refused_with_its_place() {
    let with = |op: &str, value: Value| json!({"field": "data.x", "op": op, "value": value});
    for op in ["gt", "gte", "lt", "lte"] {
        for bad in [json!(null), json!(true), json!([1]), json!({"a": 1})] {
            let says = format!("`{op}` needs a number, a time or another text");
            check_refused(with(op, bad), "filter.value", &says);
        }
    }
    check_refused(with("contains_only", json!({})), "filter.value", "a list of values");
    let set = |n: usize| with("contains_only", (0..n).collect());
    assert!(Filter::compile(&set(100)).is_ok());
    check_refused(set(101), "filter.value", "101 values, at most 100");
    check_refused(with("changed", json!(null)), "filter.value", "takes no value");
    for bad in [json!(null), json!(1), json!("true")] {
        check_refused(with("exists", bad), "filter.value", "true or false");
    }
    let ops = ["eq", "ne", "gt", "gte", "lt", "lte", "contains", "not_contains", "contains_only"];
    for op in ops {
        let missing = json!({"field": "data.x", "op": op});
        check_refused(missing, "filter.value", &format!("`{op}` needs a value"));
        assert!(Filter::compile(&with(op, json!("x".repeat(4094)))).is_ok());
        let large = with(op, json!("x".repeat(4095)));
        check_refused(json!({"any": [large]}), "filter.any[0].value", "4096 bytes");
    }
}

#[test]
fn groups_have_limits() {
    let ok = json!({"field": "data.x", "op": "exists"});
    let nested = |n: usize| (0..n).fold(ok.clone(), |inner, _| json!({"all": [inner]}));
    assert!(Filter::compile(&nested(10)).is_ok());
    let place = format!("filter{}.all", ".all[0]".repeat(10));
    check_refused(nested(11), &place, "at most 10 groups");
    check_refused(nested(100), &place, "at most 10 groups");
    let beside = |n: usize| json!({"any": vec![nested(1); n]});
    assert!(Filter::compile(&beside(9)).is_ok());
    check_refused(beside(10), "filter.any[9].all", "nested ones included");
    let long = |n: usize| json!({"any": vec![ok.clone(); n]});
    assert!(Filter::compile(&long(20)).is_ok());
    check_refused(long(21), "filter.any", "21 entries, a group has at most 20");
}

#[test]
fn a_filter_is_shown_as_it_was_given_and_equal_whatever_the_order_of_keys() {
    let text = r#"{"value": "CUR", "op": "eq", "field": "data.status"}"#;
    let filter: Filter = serde_json::from_str(text).unwrap();
    let same = json!({"field": "data.status", "op": "eq", "value": "CUR"});
    assert_eq!(filter, Filter::compile(&same).unwrap());
    assert_eq!(filter.source(), &same);
    assert_eq!(serde_json::to_value(&filter).unwrap(), same);
    let other = json!({"field": "data.status", "op": "ne", "value": "CUR"});
    assert_ne!(filter, Filter::compile(&other).unwrap());
    let error = serde_json::from_str::<Filter>(r#"{"all": 1}"#).unwrap_err();
    assert!(error.to_string().contains("filter.all: must be a list"), "{error}");
}

#[test]
fn only_what_every_passing_event_must_equal_is_pinned() {
    let pins = |filter: Value| Filter::compile(&filter).unwrap().pins().count();
    let eq = json!({"field": "data.x", "op": "eq", "value": 1});
    assert_eq!(pins(eq.clone()), 1);
    assert_eq!(pins(json!({"field": "data.x", "op": "eq", "value": [1]})), 0);
    assert_eq!(pins(json!({"field": "data.x", "op": "ne", "value": 1})), 0);
    assert_eq!(pins(json!({"any": [eq]})), 0);
    let ne = json!({"field": "data.x", "op": "ne", "value": 1});
    assert_eq!(pins(json!({"all": [eq, ne, {"all": [eq]}, {"any": [eq]}, eq]})), 2);
}

/// Scalars that like to be confused with one another.
fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3i64..4).prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (-6i32..7).prop_map(|half| Value::from(f64::from(half) / 2.0)),
        "[a-c]{0,2}".prop_map(Value::from),
        "-?[0-3](\\.[05])?".prop_map(Value::from),
        "2026-01-01T0[0-2]:00:00(\\.0)?(Z|\\+0[01]:00)".prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ]
}

/// Any JSON, with keys that filters and their fields use.
fn anything() -> impl Strategy<Value = Value> {
    let key = "a|b|0|field|op|value|all|any|data|.{0,4}";
    scalar().prop_recursive(6, 40, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(key, inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn field() -> impl Strategy<Value = Value> {
    "((data|old)(\\.(a|b|0|1)){0,3})|object|type|.{0,3}".prop_map(Value::from)
}

/// JSON that is a filter, or nearly one.
fn almost_filter() -> impl Strategy<Value = Value> {
    let op = prop::sample::select(vec![
        "eq",
        "ne",
        "gt",
        "gte",
        "lt",
        "lte",
        "contains",
        "not_contains",
        "contains_only",
        "changed",
        "exists",
        "like",
    ]);
    let condition = prop_oneof![
        4 => (field(), op.clone(), scalar())
            .prop_map(|(field, op, value)| json!({"field": field, "op": op, "value": value})),
        2 => (field(), op.clone(), anything())
            .prop_map(|(field, op, value)| json!({"field": field, "op": op, "value": value})),
        1 => (field(), op).prop_map(|(field, op)| json!({"field": field, "op": op})),
        1 => anything(),
    ];
    condition.prop_recursive(3, 20, 4, |inner| {
        (prop::sample::select(vec!["all", "any"]), prop::collection::vec(inner, 0..4))
            .prop_map(|(group, entries)| json!({group: entries}))
    })
}

fn event_of(data: &Value, old: Option<&Value>) -> Event {
    let raw = |json: &Value| RawJson::from_trusted(Bytes::from(json.to_string()));
    Event { data: raw(data), old: old.map(raw), ..event("{}") }
}

fn passes(filter: Value, data: &Value) -> bool {
    let event = event_of(data, None);
    Filter::compile(&filter).unwrap().matches(&EventView::new(&event))
}

proptest! {
    #[test]
    fn no_filter_and_no_event_can_cause_a_panic(
        filter in almost_filter(), data in anything(), old in prop::option::of(anything()),
    ) {
        let event = event_of(&data, old.as_ref());
        match Filter::compile(&filter) {
            Ok(compiled) => {
                compiled.matches(&EventView::new(&event));
                prop_assert_eq!(compiled.source(), &filter);
            }
            Err(error) => prop_assert!(error.place.starts_with("filter")),
        }
    }

    #[test]
    fn no_bytes_can_cause_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let data = RawJson::from_trusted(Bytes::from(bytes));
        let event = Event { data, ..event("{}") };
        let filter = json!({"field": "data.a", "op": "exists"});
        Filter::compile(&filter).unwrap().matches(&EventView::new(&event));
    }

    #[test]
    fn not_equal_is_the_complement_of_equal(value in scalar(), x in scalar()) {
        let with = |op: &str| json!({"field": "data.x", "op": op, "value": value});
        let data = json!({"x": x});
        prop_assert_ne!(passes(with("eq"), &data), passes(with("ne"), &data));
        prop_assert_ne!(passes(with("contains"), &data), passes(with("not_contains"), &data));
    }

    #[test]
    fn equality_is_symmetric_and_everything_equals_itself(a in anything(), b in anything()) {
        let eq = |a: &Value, b: &Value| {
            compare::Operand::new(a).equals(b, &mut Budget::unlimited()).unwrap()
        };
        prop_assert_eq!(eq(&a, &b), eq(&b, &a));
        prop_assert!(eq(&a, &a));
    }

    #[test]
    fn what_has_an_order_is_less_equal_or_greater(value in scalar(), x in scalar()) {
        prop_assume!(value.is_number() || value.is_string());
        let holds = |op: &str| {
            passes(json!({"field": "data.x", "op": op, "value": value}), &json!({"x": x}))
        };
        let (lt, eq, gt) = (holds("lt"), holds("eq"), holds("gt"));
        let has_order = x.is_number() || x.is_string();
        prop_assert_eq!(u8::from(lt) + u8::from(eq) + u8::from(gt), u8::from(has_order));
        prop_assert_eq!(holds("lte"), lt || eq);
        prop_assert_eq!(holds("gte"), gt || eq);
    }

    #[test]
    fn equal_scalars_have_the_same_fingerprint(a in scalar(), b in scalar()) {
        if compare::Operand::new(&a).equals(&b, &mut Budget::unlimited()).unwrap() {
            prop_assert_eq!(fingerprint(&a), fingerprint(&b));
        }
        prop_assert!(fingerprint(&a).is_some());
    }

    #[test]
    fn contains_only_is_equality_of_sets(
        values in prop::collection::vec(0u8..4, 0..5), list in prop::collection::vec(0u8..4, 0..5),
    ) {
        let set = |list: &[u8]| list.iter().copied().collect::<BTreeSet<u8>>();
        let filter = json!({"field": "data.x", "op": "contains_only", "value": values});
        prop_assert_eq!(passes(filter, &json!({"x": list})), set(&values) == set(&list));
    }
}

#[test]
fn each_condition_has_a_verdict_of_its_own() {
    let event = event(r#"{"data": {"a": 1, "b": 2}}"#);
    let verdicts = |filter: Value| {
        let filter = Filter::compile(&filter).unwrap();
        let found = filter.conditions(&EventView::new(&event), &mut Budget::unlimited()).unwrap();
        let shown = found.iter().map(|one| format!("{}={}", one.place, one.holds));
        shown.collect::<Vec<_>>().join(" ")
    };
    let is = |field: &str, value: u32| json!({"field": field, "op": "eq", "value": value});
    assert_eq!(verdicts(is("data.a", 1)), "filter=true");
    let nested = json!({"all": [is("data.a", 7), {"any": [is("data.b", 2), is("data.b", 3)]}]});
    assert_eq!(
        verdicts(nested),
        "filter.all[0]=false filter.all[1].any[0]=true filter.all[1].any[1]=false"
    );
    let filter = Filter::compile(&is("data.a", 1)).unwrap();
    let spent = filter.conditions(&EventView::new(&event), &mut Budget::new(0));
    assert_eq!(spent, Err(OverBudget));
}
