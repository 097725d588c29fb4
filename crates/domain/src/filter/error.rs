//! The errors of a filter, with their place.

use super::compile::Op;
use crate::limits;

/// Why a filter was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {fault}")]
pub struct FilterError {
    /// The place of the error, such as `filter.all[2].any[0].op`.
    pub place: String,
    /// What is wrong there, and what is allowed.
    pub fault: FilterFault,
}

/// What is wrong at a place of a filter, and what is allowed there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilterFault {
    /// Neither a condition nor a group.
    #[error("must be an object: a condition with `field` and `op`, or a group with `all` or `any`")]
    NotAnObject,
    /// An unknown key.
    #[error(
        "unknown key; a condition has `field`, `op`, `value` and `as`, a group has `all` or `any`"
    )]
    UnknownKey,
    /// A group with other keys beside its list.
    #[error("a group has `all` or `any` and nothing else; put the rest into the list as an entry")]
    BesideGroup,
    /// A group that is not a list.
    #[error("must be a list of conditions and groups")]
    NotAList,
    /// An empty group.
    #[error("an empty group says nothing: give at least one condition, or leave the group out")]
    EmptyGroup,
    /// A group with too many entries.
    #[error("{count} entries, a group has at most {max}", max = limits::FILTER_CONDITIONS_MAX)]
    TooManyEntries {
        /// How many entries there are.
        count: usize,
    },
    /// More groups than allowed.
    #[error("a filter has at most {max} groups, nested ones included", max = limits::FILTER_GROUPS_MAX)]
    TooManyGroups,
    /// No `field`, or one that is not a text.
    #[error("must be the name of a field, such as data.status")]
    FieldMissing,
    /// A path that is too long.
    #[error("longer than {max} characters", max = limits::FILTER_FIELD_CHARS_MAX)]
    FieldTooLong,
    /// A path that does not begin with a known root.
    #[error("must begin with data or old (as data.status), or be object or type")]
    FieldRoot,
    /// Two dots in a row, or one at the end.
    #[error("has an empty name between dots or at its end")]
    FieldWord,
    /// A path that continues below a text.
    #[error("object and type are texts: they have no fields of their own")]
    FieldBelowText,
    /// No `op`, or an unknown one.
    #[error("must be one of {}", Op::list())]
    Op,
    /// A condition without the value to compare with.
    #[error("missing: `{op}` needs a value to compare with")]
    ValueMissing {
        /// The operator.
        op: &'static str,
    },
    /// A value for an operator that takes none.
    #[error("`changed` takes no value: leave it out")]
    ValueUnwanted,
    /// A value that the operator cannot work with.
    #[error("`{op}` needs {allowed}")]
    ValueKind {
        /// The operator.
        op: &'static str,
        /// The values that it takes.
        allowed: &'static str,
    },
    /// A value that is too large.
    #[error("larger than {max} bytes of JSON", max = limits::FILTER_VALUE_BYTES_MAX)]
    ValueTooLarge,
    /// A list of values that is too long.
    #[error("{count} values, at most {max} are allowed", max = limits::FILTER_SET_VALUES_MAX)]
    TooManyValues {
        /// How many values there are.
        count: usize,
    },
    /// An `as` that is unknown, or beside another operator.
    #[error("must be \"time\", beside gt, gte, lt or lte, or be left out")]
    As,
    /// A condition that reads times, with a value that is none.
    #[error("must be a time, such as 2026-11-15T09:30:00.000-0800")]
    NotATime,
    /// `changed` on a field that has no old state.
    #[error("`changed` compares old and data: name a field of data, such as data.status")]
    NotState,
}
