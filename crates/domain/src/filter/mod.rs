//! Conditions on an event, compiled when a subscription is created.
//!
//! A filter is one condition, `{"field": "data.status", "op": "eq", "value": "CUR"}`, or one group,
//! `{"all": […]}` or `{"any": […]}`, of conditions and groups. Errors are reported at compile time,
//! with their place. Evaluation never panics and takes no more steps than its budget; if they do
//! not suffice, the outcome is [`OverBudget`].

mod budget;
mod compare;
mod compile;
mod error;
mod evaluate;
mod field;
mod grammar;
mod moment;
mod view;

use std::hash::{Hash, Hasher};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

pub use self::budget::{Budget, OverBudget};
pub(crate) use self::compare::fingerprint;
use self::compile::{Expression, Test};
pub use self::error::{FilterError, FilterFault};
pub(crate) use self::field::Field;
pub use self::grammar::{CONDITION_KEYS, FIELDS, Operator, operators};
pub use self::view::EventView;
use crate::limits;

/// Whether one condition of a filter holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConditionVerdict {
    /// Where it stands: `filter`, `filter.all[2]`, `filter.any[0].all[1]`.
    pub place: String,
    /// Whether it holds.
    pub holds: bool,
}

/// Whether a condition with `"as": "time"` reads this text as a time.
pub(crate) fn is_time(text: &str) -> bool {
    moment::Moment::parse_loosely(text).is_some()
}

/// A compiled filter. Two are equal when their sources are, whatever the order of keys.
#[derive(Debug, Clone)]
pub struct Filter {
    source: Value,
    expression: Expression,
}

impl Filter {
    /// Compiles a filter, or reports the first error and its place.
    pub fn compile(source: &Value) -> Result<Self, FilterError> {
        let expression = compile::compile(source, limits::FILTER_GROUPS_MAX)?;
        Ok(Filter { expression, source: source.clone() })
    }

    /// Compiles a filter that was accepted before, or that Workfront's filters were compiled to: it
    /// may have more groups.
    pub(crate) fn compile_stored(source: &Value) -> Result<Self, FilterError> {
        let expression = compile::compile(source, limits::FILTER_STORED_GROUPS_MAX)?;
        Ok(Filter { expression, source: source.clone() })
    }

    /// The filter as it was given.
    pub const fn source(&self) -> &Value {
        &self.source
    }

    /// Whether the event passes the filter, within the budget.
    pub fn evaluate(&self, event: &EventView<'_>, budget: &mut Budget) -> Result<bool, OverBudget> {
        self.expression.holds(event, budget)
    }

    /// Whether each condition holds by itself, in the order in which they are written, within so many
    /// steps. The filter's own answer is [`Filter::evaluate`].
    pub fn conditions(
        &self,
        event: &EventView<'_>,
        budget: &mut Budget,
    ) -> Result<Vec<ConditionVerdict>, OverBudget> {
        let mut found = Vec::new();
        self.expression.each_condition("filter", event, budget, &mut found)?;
        Ok(found)
    }

    /// Whether a condition looks into an event's `data` or `old`.
    pub fn needs_json(&self) -> bool {
        self.expression.needs_json()
    }

    /// Fields that must equal a certain scalar in every event that passes, with the scalar's
    /// fingerprint: each `eq` that is the whole filter or directly in its outermost `all`.
    pub(crate) fn pins(&self) -> impl Iterator<Item = (&Field, u64)> {
        let conditions = match &self.expression {
            Expression::All(entries) => entries,
            single @ (Expression::Any(_) | Expression::Condition(..)) => {
                std::slice::from_ref(single)
            }
        };
        conditions.iter().filter_map(|entry| match entry {
            Expression::Condition(field, Test::Equal(operand)) => {
                Some((field, fingerprint(operand.value())?))
            }
            Expression::Condition(..) | Expression::All(_) | Expression::Any(_) => None,
        })
    }
}

impl PartialEq for Filter {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

impl Eq for Filter {}

impl Hash for Filter {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.source.hash(state);
    }
}

impl Serialize for Filter {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.source.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Filter {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let source = Value::deserialize(deserializer)?;
        Filter::compile_stored(&source).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests;
