//! Whether an event passes a filter. What is missing or does not fit is simply not a match; the one
//! thing that can go wrong is that the steps of the [`Budget`] are used up before the answer is known.

use std::cmp::Ordering;

use serde_json::Value;

use super::ConditionVerdict;
use super::budget::{Budget, OverBudget};
use super::compare::{Operand, is_same};
use super::compile::{Expression, Test};
use super::field::{Field, Root};
use super::view::EventView;

impl Expression {
    pub(super) fn needs_json(&self) -> bool {
        match self {
            Expression::All(entries) | Expression::Any(entries) => {
                entries.iter().any(Expression::needs_json)
            }
            Expression::Condition(field, _) => field.is_state(),
        }
    }

    pub(super) fn holds(
        &self,
        event: &EventView<'_>,
        budget: &mut Budget,
    ) -> Result<bool, OverBudget> {
        match self {
            Expression::All(entries) => {
                for entry in entries {
                    if !entry.holds(event, budget)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Expression::Any(entries) => {
                for entry in entries {
                    if entry.holds(event, budget)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Expression::Condition(field, test) => {
                budget.spend(field.steps())?;
                test.holds(field, event, budget)
            }
        }
    }
}

impl Expression {
    /// Adds the verdict on each condition.
    pub(super) fn each_condition(
        &self,
        place: &str,
        event: &EventView<'_>,
        budget: &mut Budget,
        found: &mut Vec<ConditionVerdict>,
    ) -> Result<(), OverBudget> {
        let (word, entries) = match self {
            Expression::All(entries) => ("all", entries),
            Expression::Any(entries) => ("any", entries),
            Expression::Condition(..) => {
                let holds = self.holds(event, budget)?;
                found.push(ConditionVerdict { place: place.to_owned(), holds });
                return Ok(());
            }
        };
        for (n, entry) in entries.iter().enumerate() {
            entry.each_condition(&format!("{place}.{word}[{n}]"), event, budget, found)?;
        }
        Ok(())
    }
}

impl Test {
    /// A missing field equals nothing and contains nothing, so that only the two negations (and
    /// an `exists` that wants it missing) hold for it.
    fn holds(
        &self,
        field: &Field,
        event: &EventView<'_>,
        budget: &mut Budget,
    ) -> Result<bool, OverBudget> {
        if let Test::Changed = self {
            return has_changed(field, event, budget);
        }
        let Some(value) = field.find(event) else {
            return Ok(matches!(
                self,
                Test::NotEqual(_) | Test::NotContains(_) | Test::Exists(false)
            ));
        };
        let mut order = |operand: &Operand| operand.order_of(value, budget);
        Ok(match self {
            Test::Equal(operand) => operand.equals(value, budget)?,
            Test::NotEqual(operand) => !operand.equals(value, budget)?,
            Test::Greater(operand) => order(operand)?.is_some_and(Ordering::is_gt),
            Test::GreaterOrEqual(operand) => order(operand)?.is_some_and(Ordering::is_ge),
            Test::Less(operand) => order(operand)?.is_some_and(Ordering::is_lt),
            Test::LessOrEqual(operand) => order(operand)?.is_some_and(Ordering::is_le),
            Test::Contains(operand) => contains(value, operand, budget)?,
            Test::NotContains(operand) => !contains(value, operand, budget)?,
            Test::ContainsOnly(operands) => operands.is_set_of(elements(value), budget)?,
            Test::Changed => false,
            Test::Exists(wanted) => *wanted,
        })
    }
}

fn contains(value: &Value, operand: &Operand, budget: &mut Budget) -> Result<bool, OverBudget> {
    match value {
        Value::String(text) => operand.is_part_of(text, budget),
        Value::Array(values) => {
            for value in values {
                if operand.equals(value, budget)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => Ok(false),
    }
}

/// A list's elements; a single value is a list of one.
fn elements(value: &Value) -> &[Value] {
    value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice)
}

/// Whether the same path leads to different values in `old` and in `data`. An event that does not
/// say what was before has changed nothing.
fn has_changed(
    field: &Field,
    event: &EventView<'_>,
    budget: &mut Budget,
) -> Result<bool, OverBudget> {
    let Some(old) = event.root(Root::Old) else { return Ok(false) };
    let new = event.root(Root::Data).and_then(|data| field.find_below(data));
    match (field.find_below(old), new) {
        (Some(old), Some(new)) => Ok(!is_same(old, new, budget)?),
        (old, new) => Ok(old.is_some() != new.is_some()),
    }
}
