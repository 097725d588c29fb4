//! Equality and order of two JSON values.
//!
//! Numbers compare as numbers, RFC 3339 times as times, other scalars as text, case-sensitive.
//! Values without an order are neither less nor greater than any other. Values that are equal have
//! the same [`Class`], by which they can be looked up.

use std::cmp::Ordering;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::{Number, Value};

use super::budget::{Budget, OverBudget, bytes_steps};
use super::moment::Moment;

/// The value that a condition compares with, prepared once.
#[derive(Debug, Clone)]
pub(super) struct Operand {
    value: Value,
    moment: Option<Moment>,
    /// Whether only times compare with it, also such with an offset without a colon.
    is_time: bool,
}

impl Operand {
    pub(super) fn new(value: &Value) -> Self {
        let moment = value.as_str().and_then(Moment::parse);
        Operand { value: value.clone(), moment, is_time: false }
    }

    /// The value of a condition with `"as": "time"`; `None` if it is no time.
    pub(super) fn time(value: &Value) -> Option<Self> {
        let moment = Moment::parse_loosely(value.as_str()?)?;
        Some(Operand { value: value.clone(), moment: Some(moment), is_time: true })
    }

    pub(super) const fn value(&self) -> &Value {
        &self.value
    }

    /// The order of an event's value relative to this one; `None` if they have no order.
    pub(super) fn order_of(
        &self,
        value: &Value,
        budget: &mut Budget,
    ) -> Result<Option<Ordering>, OverBudget> {
        budget.spend(1)?;
        Ok(match (value, &self.value) {
            (Value::Number(a), Value::Number(b)) => Some(order_of_numbers(a, b)),
            (Value::String(a), Value::String(b)) => {
                // Only a comparison of times reads the whole text.
                let compared = if self.moment.is_some() { a.len() } else { a.len().min(b.len()) };
                budget.spend(bytes_steps(compared))?;
                if self.is_time { self.order_of_time(a) } else { Some(self.order_of_text(a, b)) }
            }
            (Value::Number(_), Value::String(_)) if self.is_time => None,
            (Value::Number(a), Value::String(b)) => Some(a.to_string().cmp(b)),
            (Value::String(a), Value::Number(b)) => Some(a.cmp(&b.to_string())),
            (_, _) => None,
        })
    }

    fn order_of_time(&self, text: &str) -> Option<Ordering> {
        Some(Moment::parse_loosely(text)?.cmp(&self.moment?))
    }

    fn order_of_text(&self, text: &str, own: &str) -> Ordering {
        let as_times = self.moment.and_then(|own| Some(Moment::parse(text)?.cmp(&own)));
        as_times.unwrap_or_else(|| text.cmp(own))
    }

    /// Whether a value of an event equals this one.
    pub(super) fn equals(&self, value: &Value, budget: &mut Budget) -> Result<bool, OverBudget> {
        match self.order_of(value, budget)? {
            Some(order) => Ok(order.is_eq()),
            None => is_same(value, &self.value, budget),
        }
    }

    /// Whether a text of an event contains this one.
    pub(super) fn is_part_of(&self, text: &str, budget: &mut Budget) -> Result<bool, OverBudget> {
        budget.spend(bytes_steps(text.len()))?;
        Ok(match &self.value {
            Value::String(part) => text.contains(part.as_str()),
            Value::Number(part) => text.contains(&part.to_string()),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => false,
        })
    }
}

/// The values of a `contains_only`, indexed by fingerprint: comparing two sets costs the sum of
/// their sizes, not the product.
#[derive(Debug, Clone)]
pub(super) struct OperandSet {
    operands: Box<[Operand]>,
    /// The fingerprint and the index of each operand, sorted.
    by_fingerprint: Box<[(u64, usize)]>,
}

impl OperandSet {
    pub(super) fn new(values: &[Value]) -> Self {
        let operands: Box<[Operand]> = values.iter().map(Operand::new).collect();
        let places = operands.iter().enumerate();
        let mut by_fingerprint: Box<[(u64, usize)]> =
            places.map(|(place, operand)| (set_fingerprint(&operand.value), place)).collect();
        by_fingerprint.sort_unstable();
        OperandSet { operands, by_fingerprint }
    }

    /// Whether these values and the operands are the same set, regardless of order and repetitions.
    pub(super) fn is_set_of(
        &self,
        values: &[Value],
        budget: &mut Budget,
    ) -> Result<bool, OverBudget> {
        let mut seen = vec![false; self.operands.len()];
        for value in values {
            budget.spend(size_steps(value))?;
            let fingerprint = set_fingerprint(value);
            let from = self.by_fingerprint.partition_point(|(other, _)| *other < fingerprint);
            let candidates = self.by_fingerprint.get(from..).unwrap_or_default();
            let mut is_known = false;
            for (_, place) in candidates.iter().take_while(|(other, _)| *other == fingerprint) {
                let Some(operand) = self.operands.get(*place) else { continue };
                if operand.equals(value, budget)? {
                    is_known = true;
                    if let Some(seen) = seen.get_mut(*place) {
                        *seen = true;
                    }
                }
            }
            if !is_known {
                return Ok(false);
            }
        }
        Ok(seen.iter().all(|seen| *seen))
    }
}

/// Whether two values are deeply equal: a number never equals a text here.
pub(super) fn is_same(a: &Value, b: &Value, budget: &mut Budget) -> Result<bool, OverBudget> {
    budget.spend(1)?;
    Ok(match (a, b) {
        (Value::Null, Value::Null) => true,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::Number(a), Value::Number(b)) => order_of_numbers(a, b).is_eq(),
        (Value::String(a), Value::String(b)) => {
            budget.spend(bytes_steps(a.len() + b.len()))?;
            a == b || Moment::parse(a).is_some_and(|a| Moment::parse(b) == Some(a))
        }
        (Value::Array(a), Value::Array(b)) => {
            if a.len() != b.len() {
                return Ok(false);
            }
            for (a, b) in a.iter().zip(b) {
                if !is_same(a, b, budget)? {
                    return Ok(false);
                }
            }
            true
        }
        (Value::Object(a), Value::Object(b)) => {
            if a.len() != b.len() {
                return Ok(false);
            }
            // A lookup compares the key once for each level of the map's tree.
            let levels = u64::from(usize::BITS - b.len().leading_zeros());
            for (key, a) in a {
                budget.spend(levels * (1 + bytes_steps(key.len())))?;
                let Some(b) = b.get(key) else { return Ok(false) };
                if !is_same(a, b, budget)? {
                    return Ok(false);
                }
            }
            true
        }
        (_, _) => false,
    })
}

/// The cost of computing the fingerprint of a value.
fn size_steps(value: &Value) -> u64 {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 1,
        Value::String(text) => 1 + bytes_steps(text.len()),
        Value::Array(values) => values.iter().map(size_steps).fold(1, u64::saturating_add),
        Value::Object(values) => values
            .iter()
            .map(|(key, value)| 1 + bytes_steps(key.len()) + size_steps(value))
            .fold(1, u64::saturating_add),
    }
}

/// A hash that is the same for all values that an operand considers equal.
fn set_fingerprint(value: &Value) -> u64 {
    fingerprint(value).unwrap_or_else(|| {
        let mut hasher = DefaultHasher::new();
        hash_deep(value, &mut hasher);
        hasher.finish()
    })
}

/// Hashes a value so that values that are equal by [`is_same`] have the same hash.
fn hash_deep(value: &Value, hasher: &mut DefaultHasher) {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => Class::of(value).hash(hasher),
        Value::String(text) => {
            Moment::parse(text).map_or(Class::Text(text), Class::Time).hash(hasher)
        }
        Value::Array(values) => {
            hasher.write_usize(values.len());
            values.iter().for_each(|value| hash_deep(value, hasher));
        }
        Value::Object(values) => {
            hasher.write_usize(values.len());
            // The order of keys does not matter.
            let entries = values.iter().map(|(key, value)| {
                let mut hasher = DefaultHasher::new();
                key.hash(&mut hasher);
                hash_deep(value, &mut hasher);
                hasher.finish()
            });
            hasher.write_u64(entries.fold(0, u64::wrapping_add));
        }
    }
}

/// A number in normal form: equal numbers have the same form.
#[derive(Debug, Clone, Copy)]
enum Numeric {
    /// Every whole number in the range of `i128`, however it was written.
    Whole(i128),
    /// Every other number: with a fraction, or out of range.
    Float(f64),
}

impl Numeric {
    fn of(number: &Number) -> Self {
        let whole = number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from));
        // Without `arbitrary_precision`, a number that is not an integer is a float.
        whole.map_or_else(|| Numeric::of_float(number.as_f64().unwrap_or(0.0)), Numeric::Whole)
    }

    fn of_float(float: f64) -> Self {
        if float.fract() == 0.0 && float.abs() < 1e38 {
            Numeric::Whole(whole_part(float))
        } else {
            Numeric::Float(float)
        }
    }
}

/// The largest integer not above the float, within `i128`.
#[expect(clippy::cast_possible_truncation, reason = "saturates, which is what is wanted")]
const fn whole_part(float: f64) -> i128 {
    float.floor() as i128
}

fn order_of_numbers(a: &Number, b: &Number) -> Ordering {
    match (Numeric::of(a), Numeric::of(b)) {
        (Numeric::Whole(a), Numeric::Whole(b)) => a.cmp(&b),
        (Numeric::Float(a), Numeric::Float(b)) => a.total_cmp(&b),
        (Numeric::Whole(a), Numeric::Float(b)) => order_of_mixed(a, b),
        (Numeric::Float(a), Numeric::Whole(b)) => order_of_mixed(b, a).reverse(),
    }
}

/// The order of an integer and a float. They are never equal: a whole float within `i128` is a
/// [`Numeric::Whole`].
const fn order_of_mixed(whole: i128, float: f64) -> Ordering {
    if whole <= whole_part(float) { Ordering::Less } else { Ordering::Greater }
}

/// The key under which a scalar is looked up. Scalars that are equal for `eq` have the same class.
/// Different scalars may share a class, which only costs one more evaluation.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Class<'a> {
    Null,
    Bool(bool),
    Whole(i128),
    Float(u64),
    Time(Moment),
    Text(&'a str),
}

impl<'a> Class<'a> {
    /// The class of a scalar; arrays and objects have none.
    fn of(value: &'a Value) -> Option<Self> {
        match value {
            Value::Null => Some(Class::Null),
            Value::Bool(bool) => Some(Class::Bool(*bool)),
            Value::Number(number) => Some(Class::of_numeric(Numeric::of(number))),
            Value::String(text) => Some(Class::of_text(text)),
            Value::Array(_) | Value::Object(_) => None,
        }
    }

    const fn of_numeric(numeric: Numeric) -> Self {
        match numeric {
            Numeric::Whole(whole) => Class::Whole(whole),
            Numeric::Float(float) => Class::Float(float.to_bits()),
        }
    }

    /// A text that parses as a number has the number's class, because the two can be equal.
    fn of_text(text: &'a str) -> Self {
        if let Some(numeric) = read_number(text) {
            return Class::of_numeric(numeric);
        }
        Moment::parse(text).map_or(Class::Text(text), Class::Time)
    }
}

/// A hash that equal scalars share and different ones hardly ever do; arrays and objects have none.
pub(crate) fn fingerprint(value: &Value) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    Class::of(value)?.hash(&mut hasher);
    Some(hasher.finish())
}

fn read_number(text: &str) -> Option<Numeric> {
    if !text.starts_with(|first: char| first == '-' || first.is_ascii_digit()) {
        return None;
    }
    if let Ok(whole) = text.parse::<i64>() {
        return Some(Numeric::Whole(whole.into()));
    }
    if let Ok(whole) = text.parse::<u64>() {
        return Some(Numeric::Whole(whole.into()));
    }
    text.parse().ok().filter(|float: &f64| float.is_finite()).map(Numeric::of_float)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn order(operand: &Value, value: &Value) -> Option<Ordering> {
        Operand::new(operand).order_of(value, &mut Budget::unlimited()).unwrap()
    }

    #[track_caller]
    fn check(a: &str, b: &str, expected: Option<Ordering>) {
        let (a, b): (Value, Value) =
            (serde_json::from_str(a).unwrap(), serde_json::from_str(b).unwrap());
        assert_eq!(order(&b, &a), expected, "{a} to {b}");
        assert_eq!(order(&a, &b), expected.map(Ordering::reverse), "{b} to {a}");
    }

    #[test]
    fn numbers_compare_exactly_however_they_are_written() {
        let (less, equal) = (Some(Ordering::Less), Some(Ordering::Equal));
        check("1", "1.0", equal);
        check("-0.0", "0", equal);
        check("1e2", "100", equal);
        check("1", "1.5", less);
        check("-1.5", "-1", less);
        check("-2", "-1.5", less);
        check("9007199254740992", "9007199254740993", less);
        check("9007199254740993", "9007199254740992.0", Some(Ordering::Greater));
        check("18446744073709551615", "18446744073709551616", less);
        check("9223372036854775807", "9223372036854775808", less);
        check("-9223372036854775808", "-9223372036854775808.0", equal);
        check("18446744073709551615", "1e300", less);
        check("-1e300", "-9223372036854775808", less);
        check("1e300", "1e301", less);
        check("1e40", "1e40", equal);
        check("0.1", "0.2", less);
    }

    #[test]
    fn times_compare_as_times_and_the_rest_as_text() {
        let (less, equal) = (Some(Ordering::Less), Some(Ordering::Equal));
        check(r#""2026-01-01T00:00:00Z""#, r#""2026-01-01T01:00:00+01:00""#, equal);
        check(r#""2026-01-01T00:00:00.000000001Z""#, r#""2026-01-01T00:00:00.000000002Z""#, less);
        check(r#""2026-01-01T00:30:00+01:00""#, r#""2026-01-01T00:00:00Z""#, less);
        check(r#""2026-01-01""#, r#""2026-01-01T00:00:00Z""#, less);
        check(r#""B""#, r#""a""#, less);
        check(r#""10""#, r#""9""#, less);
        check("10", r#""9""#, less);
        check("5", r#""5""#, equal);
        check("5.0", r#""5""#, Some(Ordering::Greater));
    }

    #[test]
    fn values_without_an_order_do_not_compare() {
        for scalar in ["1", r#""a""#, "null", "true", "[]", "{}"] {
            for other in ["null", "true", "[]", "{}"] {
                check(scalar, other, None);
            }
        }
    }

    #[test]
    fn equality_is_deep() {
        let is_same = |a: &Value, b: &Value| is_same(a, b, &mut Budget::unlimited()).unwrap();
        let same = |a: Value, b: Value| is_same(&a, &b) && is_same(&b, &a);
        assert!(same(json!({"a": [1, {"b": null}]}), json!({"a": [1.0, {"b": null}]})));
        assert!(same(json!(["2026-01-01T00:00:00Z"]), json!(["2026-01-01T00:00:00.0Z"])));
        assert!(!same(json!({"a": 1}), json!({"a": 1, "b": 2})));
        assert!(!same(json!({"a": 1}), json!({"b": 1})));
        assert!(!same(json!([1, 2]), json!([2, 1])));
        assert!(!same(json!([1]), json!(["1"])));
        assert!(!same(json!([true]), json!([false])));
        assert!(!same(json!("2026-01-01T00:00:00Z"), json!("x")));
    }

    #[test]
    fn equal_values_have_the_same_class() {
        let texts = ["", "-", "a", "5", "5.0", "007", "-0", "1e400", "-inf", "0x1", "1e40"];
        let times = ["2026-01-01T00:00:00Z", "2026-01-01T01:00:00+01:00", "2026-01-01"];
        let numbers = ["5", "5.0", "-0.0", "0", "18446744073709551615", "1e40", "0.1", "1e300"];
        let others = ["null", "true", "false"];
        let values: Vec<Value> = texts
            .iter()
            .chain(&times)
            .map(|text| json!(text))
            .chain(numbers.iter().chain(&others).map(|json| serde_json::from_str(json).unwrap()))
            .collect();
        let mut equal_pairs = 0;
        for a in &values {
            for b in &values {
                if Operand::new(b).equals(a, &mut Budget::unlimited()).unwrap() {
                    equal_pairs += 1;
                    assert_eq!(Class::of(a), Class::of(b), "{a} {b}");
                }
            }
        }
        assert!(equal_pairs > values.len(), "{equal_pairs}");
        assert_ne!(Class::of(&json!("true")), Class::of(&json!(true)));
        assert_eq!(Class::of(&json!([])), None);
    }
}
