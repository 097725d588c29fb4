//! The path of a field in an event, such as `data.items.0.name`.

use serde_json::Value;

use super::error::FilterFault;
use super::view::EventView;
use crate::limits;

/// The part of an event where a path begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Root {
    /// `data`: the new state.
    Data,
    /// `old`: the state before.
    Old,
    /// `object`: the object that it happened to.
    Object,
    /// `type`: the event's type.
    Type,
}

/// A field of an event.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Field {
    root: Root,
    path: Box<[Step]>,
}

/// One segment of a path: a key of an object or, if it is a number, an index of an array.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Step {
    key: Box<str>,
    index: Option<usize>,
}

impl Field {
    /// The object that an event happened to.
    pub(crate) fn object() -> Self {
        Field { root: Root::Object, path: Box::default() }
    }

    pub(super) fn parse(text: &str) -> Result<Self, FilterFault> {
        if text.chars().count() > limits::FILTER_FIELD_CHARS_MAX {
            return Err(FilterFault::FieldTooLong);
        }
        let mut words = text.split('.');
        let root = match words.next() {
            Some("data") => Root::Data,
            Some("old") => Root::Old,
            Some("object") => Root::Object,
            Some("type") => Root::Type,
            _ => return Err(FilterFault::FieldRoot),
        };
        let path: Box<[Step]> = words.map(Step::of).collect();
        if path.iter().any(|step| step.key.is_empty()) {
            return Err(FilterFault::FieldWord);
        }
        if matches!(root, Root::Object | Root::Type) && !path.is_empty() {
            return Err(FilterFault::FieldBelowText);
        }
        Ok(Field { root, path })
    }

    /// Whether it is a field of `data` or `old`.
    pub(super) const fn is_state(&self) -> bool {
        matches!(self.root, Root::Data | Root::Old)
    }

    /// The cost of following the path.
    pub(crate) const fn steps(&self) -> u64 {
        // A path has at most as many segments as characters.
        1 + self.path.len() as u64
    }

    /// The value in this event; `None` if the event has no such field. A `null` is a value.
    pub(crate) fn find<'v>(&self, event: &'v EventView<'_>) -> Option<&'v Value> {
        self.find_below(event.root(self.root)?)
    }

    /// The value of the same path below another root.
    pub(super) fn find_below<'v>(&self, root: &'v Value) -> Option<&'v Value> {
        self.path.iter().try_fold(root, |value, step| step.down(value))
    }
}

impl Step {
    fn of(word: &str) -> Self {
        // `01` and `+1` are keys, not indexes.
        let is_index = word == "0"
            || (!word.starts_with('0') && word.bytes().all(|byte| byte.is_ascii_digit()));
        Step { key: word.into(), index: if is_index { word.parse().ok() } else { None } }
    }

    fn down<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        match value {
            Value::Object(object) => object.get(&*self.key),
            Value::Array(array) => array.get(self.index?),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        }
    }
}
