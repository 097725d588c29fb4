//! The request and answer types of the API, separate from the domain's types: every field here is a
//! public promise.

pub(crate) mod audit;
pub(crate) mod delivery;
pub(crate) mod destination;
pub(crate) mod erasure;
pub(crate) mod event;
pub(crate) mod event_type;
pub(crate) mod explanation;
pub(crate) mod filter;
pub(crate) mod key;
pub(crate) mod ledger;
pub(crate) mod live;
pub(crate) mod own_policy;
pub(crate) mod policy;
pub(crate) mod portal;
pub(crate) mod replay;
pub(crate) mod schedule;
pub(crate) mod session;
pub(crate) mod simulation;
pub(crate) mod statistics;
pub(crate) mod subscription;
pub(crate) mod summary;
pub(crate) mod tenant;

use crate::problem::Problem;
use crate::settings::NAME_CHARS_MAX;

/// A duration in whole milliseconds.
pub(crate) fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Checks a display name.
pub(crate) fn check_name(name: Option<String>) -> Result<Option<String>, Problem> {
    check_text("name", name, NAME_CHARS_MAX)
}

/// Checks a text from a person: no control characters.
pub(crate) fn check_text(
    field: &str,
    text: Option<String>,
    max: usize,
) -> Result<Option<String>, Problem> {
    match text {
        Some(text) if text.chars().any(char::is_control) || text.chars().count() > max => {
            Err(Problem::field(field, format!("at most {max} characters, none of them control")))
        }
        text => Ok(text.filter(|text| !text.is_empty())),
    }
}
