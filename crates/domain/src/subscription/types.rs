//! Which event types a subscription wants.
//!
//! A [`TypeSet`] is never empty, has no duplicates and is sorted, so sets that were written in
//! different orders are equal.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::event::EventType;
use crate::limits;

/// One entry of a subscription's list of types.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TypePattern {
    /// `*`: every type of the application; not Postrider's own, which must be named.
    Any,
    /// `task.*`: every type below `task.`, at any depth; not `task` itself.
    Below(EventType),
    /// `task.updated`: this type alone.
    Exact(EventType),
}

/// Why a text is not a pattern of types.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "not a type or pattern: give a type such as task.updated, all below one as task.*, or * for \
     every type; at most {max} characters, words of letters, digits, `_` and `-`",
    max = limits::EVENT_TYPE_CHARS_MAX
)]
pub struct InvalidTypePattern;

impl TypePattern {
    /// Whether the pattern matches this type.
    pub fn matches(&self, kind: &EventType) -> bool {
        match self {
            TypePattern::Any => !kind.is_reserved(),
            TypePattern::Below(parent) => kind
                .as_str()
                .strip_prefix(parent.as_str())
                .is_some_and(|rest| rest.starts_with('.')),
            TypePattern::Exact(exact) => exact == kind,
        }
    }

    /// Every pattern that matches this type: the type itself, each of its prefixes as `prefix.*`, and
    /// `*` unless the type is reserved.
    pub fn all_matching(kind: &EventType) -> impl Iterator<Item = TypePattern> {
        let exact = std::iter::once(TypePattern::Exact(kind.clone()));
        let any = (!kind.is_reserved()).then_some(TypePattern::Any);
        let text = kind.as_str();
        let below = text
            .match_indices('.')
            .filter_map(|(dot, _)| text[..dot].parse().ok().map(TypePattern::Below));
        exact.chain(any).chain(below)
    }
}

impl FromStr for TypePattern {
    type Err = InvalidTypePattern;

    fn from_str(text: &str) -> Result<Self, InvalidTypePattern> {
        let pattern = match (text, text.strip_suffix(".*")) {
            ("*", _) => Ok(TypePattern::Any),
            (_, Some(parent)) => parent.parse().map(TypePattern::Below),
            (_, None) => text.parse().map(TypePattern::Exact),
        };
        pattern.map_err(|_| InvalidTypePattern)
    }
}

impl fmt::Display for TypePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TypePattern::Any => f.write_str("*"),
            TypePattern::Below(parent) => write!(f, "{parent}.*"),
            TypePattern::Exact(exact) => write!(f, "{exact}"),
        }
    }
}

impl Serialize for TypePattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TypePattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// The patterns of a subscription: at least one, none twice, sorted.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<TypePattern>", into = "Vec<TypePattern>")]
pub struct TypeSet(Vec<TypePattern>);

/// Why patterns do not make a set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTypeSet {
    /// No pattern at all.
    #[error("no type is named: name at least one, or * for every type")]
    Empty,
    /// More patterns than allowed.
    #[error(
        "{count} different types, at most {max} are allowed: use patterns such as task.*",
        max = limits::SUBSCRIPTION_TYPES_MAX
    )]
    TooMany {
        /// How many there are, without duplicates.
        count: usize,
    },
}

impl TypeSet {
    /// Makes a set of patterns; their order and duplicates do not matter.
    pub fn new(patterns: impl IntoIterator<Item = TypePattern>) -> Result<Self, InvalidTypeSet> {
        let mut patterns: Vec<TypePattern> = patterns.into_iter().collect();
        patterns.sort_unstable();
        patterns.dedup();
        match patterns.len() {
            0 => Err(InvalidTypeSet::Empty),
            1..=limits::SUBSCRIPTION_TYPES_MAX => Ok(TypeSet(patterns)),
            count => Err(InvalidTypeSet::TooMany { count }),
        }
    }

    /// Whether any of the patterns matches this type.
    pub fn matches(&self, kind: &EventType) -> bool {
        self.0.iter().any(|pattern| pattern.matches(kind))
    }

    /// The patterns, sorted.
    pub fn patterns(&self) -> &[TypePattern] {
        &self.0
    }
}

impl TryFrom<Vec<TypePattern>> for TypeSet {
    type Error = InvalidTypeSet;

    fn try_from(patterns: Vec<TypePattern>) -> Result<Self, InvalidTypeSet> {
        TypeSet::new(patterns)
    }
}

impl From<TypeSet> for Vec<TypePattern> {
    fn from(set: TypeSet) -> Self {
        set.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, kind: &str, expected: bool) {
        let pattern: TypePattern = pattern.parse().unwrap();
        let kind: EventType = kind.parse().unwrap();
        assert_eq!(pattern.matches(&kind), expected, "{pattern} on {kind}");
        // The reverse direction, which the index uses, must agree.
        let listed = TypePattern::all_matching(&kind).any(|listed| listed == pattern);
        assert_eq!(listed, expected, "{pattern} among the patterns of {kind}");
    }

    #[test]
    fn patterns_match_a_type_all_below_one_or_everything() {
        check("task.updated", "task.updated", true);
        check("task.updated", "task.updated.late", false);
        check("task.updated", "task.update", false);
        check("task.updated", "Task.updated", false);
        check("task.*", "task.updated", true);
        check("task.*", "task.updated.late", true);
        check("task.*", "task", false);
        check("task.*", "tasks.updated", false);
        check("task.updated.*", "task.updated", false);
        check("task.updated.*", "task.updated.late", true);
        check("*", "task", true);
        check("*", "a.b.c", true);
    }

    #[test]
    fn postriders_own_events_come_only_to_those_who_name_them() {
        check("*", "postrider.delivery.dead", false);
        check("postrider.*", "postrider.delivery.dead", true);
        check("postrider.delivery.*", "postrider.delivery.dead", true);
        check("postrider.delivery.dead", "postrider.delivery.dead", true);
        check("*", "postriders.choice", true);
    }

    #[test]
    fn malformed_pattern_is_refused_with_the_expected_form() {
        let long = format!("{}.*", "x".repeat(129));
        for bad in ["", ".*", "**", "*.*", "*.task", "task*", "task.*.late", "a b.*", &long] {
            let error = bad.parse::<TypePattern>().unwrap_err();
            assert!(error.to_string().contains("such as task.updated"), "{bad}");
        }
    }

    #[test]
    fn a_set_has_no_order_and_no_repetitions() {
        let set = |json: &str| serde_json::from_str::<TypeSet>(json).unwrap();
        let once = set(r#"["task.*","*","note.added"]"#);
        assert_eq!(once, set(r#"["note.added","task.*","*","task.*"]"#));
        assert_ne!(once, set(r#"["task.*","*"]"#));
        assert_eq!(serde_json::to_string(&once).unwrap(), r#"["*","task.*","note.added"]"#);
        assert_eq!(once.patterns().len(), 3);
        assert!(set(r#"["note.added","task.*"]"#).matches(&"task.x".parse().unwrap()));
        assert!(!set(r#"["note.added","task.*"]"#).matches(&"note.x".parse().unwrap()));
    }

    #[test]
    fn a_set_has_at_least_one_and_not_too_many_patterns() {
        let numbered = |n: usize| (0..n).map(|i| format!("t.n{i}").parse().unwrap());
        assert_eq!(TypeSet::new([]), Err(InvalidTypeSet::Empty));
        assert!(TypeSet::new(numbered(100)).is_ok());
        assert!(TypeSet::new(numbered(100).chain(numbered(100))).is_ok());
        let error = TypeSet::new(numbered(101)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "101 different types, at most 100 are allowed: use patterns such as task.*"
        );
        let error = serde_json::from_str::<TypeSet>("[]").unwrap_err();
        assert!(error.to_string().contains("name at least one"));
        assert!(serde_json::from_str::<TypeSet>(r#"["a b"]"#).is_err());
    }
}
