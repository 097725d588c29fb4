//! Whether an event passes a filter. Cannot fail: what is missing or does not fit is simply not
//! a match.

use std::cmp::Ordering;

use serde_json::Value;

use super::compare::{Operand, is_same};
use super::compile::{Expression, Test};
use super::field::{Field, Root};
use super::view::EventView;

impl Expression {
    pub(super) fn holds(&self, event: &EventView<'_>) -> bool {
        match self {
            Expression::All(entries) => entries.iter().all(|entry| entry.holds(event)),
            Expression::Any(entries) => entries.iter().any(|entry| entry.holds(event)),
            Expression::Condition(field, test) => test.holds(field, event),
        }
    }
}

impl Test {
    /// A missing field equals nothing and contains nothing, so that only the two negations (and
    /// an `exists` that wants it missing) hold for it.
    fn holds(&self, field: &Field, event: &EventView<'_>) -> bool {
        let value = || field.find(event);
        let order = |operand: &Operand| value().and_then(|value| operand.order_of(value));
        let equals = |operand: &Operand| value().is_some_and(|value| operand.equals(value));
        let contains = |operand| value().is_some_and(|value| contains(value, operand));
        match self {
            Test::Equal(operand) => equals(operand),
            Test::NotEqual(operand) => !equals(operand),
            Test::Greater(operand) => order(operand).is_some_and(Ordering::is_gt),
            Test::GreaterOrEqual(operand) => order(operand).is_some_and(Ordering::is_ge),
            Test::Less(operand) => order(operand).is_some_and(Ordering::is_lt),
            Test::LessOrEqual(operand) => order(operand).is_some_and(Ordering::is_le),
            Test::Contains(operand) => contains(operand),
            Test::NotContains(operand) => !contains(operand),
            Test::ContainsOnly(operands) => {
                value().is_some_and(|value| is_the_set(elements(value), operands))
            }
            Test::Changed => has_changed(field, event),
            Test::Exists(wanted) => value().is_some() == *wanted,
        }
    }
}

fn contains(value: &Value, operand: &Operand) -> bool {
    match value {
        Value::String(text) => operand.is_part_of(text),
        Value::Array(values) => values.iter().any(|value| operand.equals(value)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => false,
    }
}

/// A list's elements; a single value is a list of one.
fn elements(value: &Value) -> &[Value] {
    value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice)
}

/// Whether two lists have the same values, whatever their order and repetitions.
fn is_the_set(values: &[Value], operands: &[Operand]) -> bool {
    values.iter().all(|value| operands.iter().any(|operand| operand.equals(value)))
        && operands.iter().all(|operand| values.iter().any(|value| operand.equals(value)))
}

/// Whether the same path leads to different values in `old` and in `data`. An event that does not
/// say what was before has changed nothing.
fn has_changed(field: &Field, event: &EventView<'_>) -> bool {
    let Some(old) = event.root(Root::Old) else { return false };
    let new = event.root(Root::Data).and_then(|data| field.find_below(data));
    match (field.find_below(old), new) {
        (Some(old), Some(new)) => !is_same(old, new),
        (old, new) => old.is_some() != new.is_some(),
    }
}
