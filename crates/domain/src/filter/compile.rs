//! Compiles the JSON of a filter to an expression, or reports the place of the first error.
//!
//! All errors are found here; evaluation cannot fail.

use serde_json::{Map, Value};

use super::compare::{Operand, OperandSet};
use super::error::{FilterError, FilterFault};
use super::field::Field;
use super::grammar::CONDITION_KEYS;
use crate::limits;

/// A filter, ready to be evaluated.
#[derive(Debug, Clone)]
pub(super) enum Expression {
    /// Every one must hold.
    All(Box<[Expression]>),
    /// At least one must hold.
    Any(Box<[Expression]>),
    /// One condition.
    Condition(Field, Test),
}

/// The test of a condition.
#[derive(Debug, Clone)]
pub(super) enum Test {
    Equal(Operand),
    NotEqual(Operand),
    Greater(Operand),
    GreaterOrEqual(Operand),
    Less(Operand),
    LessOrEqual(Operand),
    Contains(Operand),
    NotContains(Operand),
    ContainsOnly(OperandSet),
    Changed,
    Exists(bool),
}

/// The operators by their names in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Op {
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
    Exists,
}

impl Op {
    pub(super) const ALL: [Op; 11] = [
        Op::Eq,
        Op::Ne,
        Op::Gt,
        Op::Gte,
        Op::Lt,
        Op::Lte,
        Op::Contains,
        Op::NotContains,
        Op::ContainsOnly,
        Op::Changed,
        Op::Exists,
    ];

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Op::Eq => "eq",
            Op::Ne => "ne",
            Op::Gt => "gt",
            Op::Gte => "gte",
            Op::Lt => "lt",
            Op::Lte => "lte",
            Op::Contains => "contains",
            Op::NotContains => "not_contains",
            Op::ContainsOnly => "contains_only",
            Op::Changed => "changed",
            Op::Exists => "exists",
        }
    }

    /// A list of all operators, for error messages.
    pub(super) fn list() -> String {
        Op::ALL.map(Op::as_str).join(", ")
    }

    /// The test of a condition; `as_time` makes it read texts as times.
    fn test(self, value: Option<&Value>, as_time: bool) -> Result<Test, FilterFault> {
        let any = || {
            let value = value.ok_or(FilterFault::ValueMissing { op: self.as_str() })?;
            if !as_time {
                return Ok(Operand::new(value));
            }
            Operand::time(value).ok_or(FilterFault::NotATime)
        };
        Ok(match self {
            Op::Eq => Test::Equal(any()?),
            Op::Ne => Test::NotEqual(any()?),
            Op::Gt => Test::Greater(self.ordered(any()?)?),
            Op::Gte => Test::GreaterOrEqual(self.ordered(any()?)?),
            Op::Lt => Test::Less(self.ordered(any()?)?),
            Op::Lte => Test::LessOrEqual(self.ordered(any()?)?),
            Op::Contains => Test::Contains(any()?),
            Op::NotContains => Test::NotContains(any()?),
            Op::ContainsOnly => Test::ContainsOnly(self.set(&any()?)?),
            Op::Changed if value.is_some() => return Err(FilterFault::ValueUnwanted),
            Op::Changed => Test::Changed,
            Op::Exists => Test::Exists(self.flag(value)?),
        })
    }

    /// Whether it compares by order.
    const fn is_ordered(self) -> bool {
        matches!(self, Op::Gt | Op::Gte | Op::Lt | Op::Lte)
    }

    fn ordered(self, operand: Operand) -> Result<Operand, FilterFault> {
        if operand.value().is_number() || operand.value().is_string() {
            Ok(operand)
        } else {
            Err(self.needs("a number, a time or another text, since nothing else has an order"))
        }
    }

    fn set(self, operand: &Operand) -> Result<OperandSet, FilterFault> {
        match operand.value() {
            Value::Object(_) => Err(self.needs("a list of values, or a single one")),
            Value::Array(values) if values.len() > limits::FILTER_SET_VALUES_MAX => {
                Err(FilterFault::TooManyValues { count: values.len() })
            }
            Value::Array(values) => Ok(OperandSet::new(values)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                Ok(OperandSet::new(std::slice::from_ref(operand.value())))
            }
        }
    }

    fn flag(self, value: Option<&Value>) -> Result<bool, FilterFault> {
        let flag = value.map_or(Some(true), Value::as_bool);
        flag.ok_or_else(|| self.needs("true or false, or no value, which means true"))
    }

    const fn needs(self, allowed: &'static str) -> FilterFault {
        FilterFault::ValueKind { op: self.as_str(), allowed }
    }
}

/// Compiles a whole filter of at most so many groups.
pub(super) fn compile(source: &Value, groups_max: usize) -> Result<Expression, FilterError> {
    Compiler { groups: 0, groups_max }.expression("filter", source)
}

struct Compiler {
    /// Groups so far; their limit also bounds the depth of the recursion.
    groups: usize,
    groups_max: usize,
}

impl Compiler {
    fn expression(&mut self, place: &str, source: &Value) -> Result<Expression, FilterError> {
        let Value::Object(object) = source else {
            return Err(at(place, FilterFault::NotAnObject));
        };
        if let Some(entries) = object.get("all") {
            self.group(place, "all", object, entries).map(Expression::All)
        } else if let Some(entries) = object.get("any") {
            self.group(place, "any", object, entries).map(Expression::Any)
        } else {
            condition(place, object)
        }
    }

    fn group(
        &mut self,
        place: &str,
        name: &str,
        object: &Map<String, Value>,
        entries: &Value,
    ) -> Result<Box<[Expression]>, FilterError> {
        if let Some(other) = object.keys().find(|key| *key != name) {
            return Err(at(&below(place, other), FilterFault::BesideGroup));
        }
        let place = below(place, name);
        let Value::Array(entries) = entries else {
            return Err(at(&place, FilterFault::NotAList));
        };
        self.groups += 1;
        if self.groups > self.groups_max {
            return Err(at(&place, FilterFault::TooManyGroups));
        }
        match entries.len() {
            0 => Err(at(&place, FilterFault::EmptyGroup)),
            1..=limits::FILTER_CONDITIONS_MAX => entries
                .iter()
                .enumerate()
                .map(|(n, entry)| self.expression(&format!("{place}[{n}]"), entry))
                .collect(),
            count => Err(at(&place, FilterFault::TooManyEntries { count })),
        }
    }
}

fn condition(place: &str, object: &Map<String, Value>) -> Result<Expression, FilterError> {
    if let Some(unknown) = object.keys().find(|key| !CONDITION_KEYS.contains(&key.as_str())) {
        return Err(at(&below(place, unknown), FilterFault::UnknownKey));
    }
    if object.is_empty() {
        return Err(at(place, FilterFault::NotAnObject));
    }
    let text = |key: &str| object.get(key).and_then(Value::as_str);
    let field = text("field")
        .ok_or(FilterFault::FieldMissing)
        .and_then(Field::parse)
        .map_err(|fault| at(&below(place, "field"), fault))?;
    let op = text("op")
        .and_then(|name| Op::ALL.into_iter().find(|op| op.as_str() == name))
        .ok_or_else(|| at(&below(place, "op"), FilterFault::Op))?;
    if op == Op::Changed && !field.is_state() {
        return Err(at(&below(place, "field"), FilterFault::NotState));
    }
    let value = object.get("value");
    if value.is_some_and(|value| value.to_string().len() > limits::FILTER_VALUE_BYTES_MAX) {
        return Err(at(&below(place, "value"), FilterFault::ValueTooLarge));
    }
    let as_time = match object.get("as") {
        None => false,
        Some(kind) if kind == "time" && op.is_ordered() => true,
        Some(_) => return Err(at(&below(place, "as"), FilterFault::As)),
    };
    let test = op.test(value, as_time).map_err(|fault| at(&below(place, "value"), fault))?;
    Ok(Expression::Condition(field, test))
}

fn at(place: &str, fault: FilterFault) -> FilterError {
    FilterError { place: place.to_owned(), fault }
}

/// The place of a key. An unusual key is not repeated in the message: then the object's place must
/// suffice.
fn below(place: &str, key: &str) -> String {
    let is_plain = (1..=64).contains(&key.len())
        && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
    if is_plain { format!("{place}.{key}") } else { place.to_owned() }
}
