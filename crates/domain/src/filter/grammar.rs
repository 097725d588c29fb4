//! The grammar of filters, for those who document it: every operator and every root of a field.

use super::compile::Op;

/// One operator as it is documented.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operator {
    /// As it is written.
    pub name: &'static str,
    /// What its value may be.
    pub value: &'static str,
    /// When it holds.
    pub meaning: &'static str,
}

/// Where the path of a field may begin, and what is there.
pub const FIELDS: &[(&str, &str)] = &[
    ("data", "the new state, and what is in it: `data.status`, `data.items.0.name`"),
    ("old", "the state before, where the event has one: `old.status`"),
    ("object", "the identifier of what it happened to; a text"),
    ("type", "the event's type; a text"),
];

/// The keys that a condition may have.
pub const CONDITION_KEYS: [&str; 4] = ["field", "op", "value", "as"];

/// All operators, in the order in which they are documented.
pub fn operators() -> impl Iterator<Item = Operator> {
    Op::ALL.into_iter().map(|op| {
        let (value, meaning) = describe(op);
        Operator { name: op.as_str(), value, meaning }
    })
}

const ORDERED: &str = "a number, a time or another text";
const ANY: &str = "any JSON";

const fn describe(op: Op) -> (&'static str, &'static str) {
    match op {
        Op::Eq => (ANY, "the field equals the value"),
        Op::Ne => (ANY, "the field does not equal the value, or is not there"),
        Op::Gt => (ORDERED, "the field is greater"),
        Op::Gte => (ORDERED, "the field is greater or equal"),
        Op::Lt => (ORDERED, "the field is less"),
        Op::Lte => (ORDERED, "the field is less or equal"),
        Op::Contains => {
            (ANY, "the field is a text that has the value in it, or a list that has it as an entry")
        }
        Op::NotContains => (ANY, "`contains` does not hold"),
        Op::ContainsOnly => (
            "a list, or a single value",
            "the field's entries and the value's are the same set, whatever their order and repetitions",
        ),
        Op::Changed => (
            "none",
            "the field differs between `old` and `data`, or is in one of them only; an event without `old` has changed nothing",
        ),
        Op::Exists => {
            ("`true`, `false` or none, which means `true`", "the field is there, or is not")
        }
    }
}
