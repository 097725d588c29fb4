//! The catalogue of event types: what a type is said to carry, and what becomes of an event that does not fit.
//!
//! A type has a name, and may have a JSON Schema and an example. [`Conduct`] says what is done with an event
//! whose type is unknown or whose payload does not fit: it is accepted, flagged or refused. **A schema is
//! judged before it is used**: [`bounds`] says how much work it can cause, without running it.

pub mod bounds;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// What is done with an event that does not fit the catalogue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Conduct {
    /// It is accepted, and nothing is checked.
    #[default]
    Accept,
    /// It is accepted, and flagged with the fault.
    Flag,
    /// It is refused with the place of the fault.
    Refuse,
}

impl Conduct {
    /// All of them, the mildest first.
    pub const ALL: [Conduct; 3] = [Conduct::Accept, Conduct::Flag, Conduct::Refuse];

    /// The word in settings and in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Conduct::Accept => "accept",
            Conduct::Flag => "flag",
            Conduct::Refuse => "refuse",
        }
    }
}

impl fmt::Display for Conduct {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text is not a conduct.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("one of accept, flag, refuse")]
pub struct UnknownConduct;

impl FromStr for Conduct {
    type Err = UnknownConduct;

    fn from_str(text: &str) -> Result<Self, UnknownConduct> {
        Conduct::ALL.into_iter().find(|one| one.as_str() == text).ok_or(UnknownConduct)
    }
}

/// What a tenant, or the server, does with events that do not fit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Conducts {
    /// With an event whose type is not in the catalogue.
    pub unknown_types: Conduct,
    /// With an event whose payload does not fit the schema of its type.
    pub misfits: Conduct,
}

impl Conducts {
    /// Whether no event needs to be looked at.
    pub fn accept_all(self) -> bool {
        self == Conducts::default()
    }
}

/// A tenant's own choices; the server's hold where it has made none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnConducts {
    /// With an event whose type is not in the catalogue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown_types: Option<Conduct>,
    /// With an event whose payload does not fit the schema of its type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub misfits: Option<Conduct>,
}

impl OwnConducts {
    /// What holds for the tenant.
    pub fn over(self, server: Conducts) -> Conducts {
        Conducts {
            unknown_types: self.unknown_types.unwrap_or(server.unknown_types),
            misfits: self.misfits.unwrap_or(server.misfits),
        }
    }
}

/// Why an event does not fit the catalogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MisfitReason {
    /// Its type is not in the catalogue.
    UnknownType,
    /// Its `data` does not fit the schema of its type.
    Payload,
    /// To check its `data` would take too much work.
    TooMuchWork,
}

impl MisfitReason {
    /// The word in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            MisfitReason::UnknownType => "unknown_type",
            MisfitReason::Payload => "payload",
            MisfitReason::TooMuchWork => "too_much_work",
        }
    }
}

/// The fault of an event that does not fit. **It holds no value of the payload**: the place is a JSON pointer,
/// and the detail names the rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Misfit {
    /// Why.
    pub reason: MisfitReason,
    /// Where in `data`, as a JSON pointer; empty for all of it. `None` where the fault has no place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pointer: Option<String>,
    /// What was expected.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

impl Misfit {
    /// What is left of it when the payload is erased: a pointer names keys of the payload.
    #[must_use]
    pub fn erased(&self) -> Misfit {
        Misfit { reason: self.reason, pointer: None, detail: String::new() }
    }
}

/// What is noted about an event beside what the application sent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventMark {
    /// Why it did not fit the catalogue when it was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flagged: Option<Misfit>,
    /// When its payload was erased.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub erased_at: Option<Timestamp>,
}

impl EventMark {
    /// Whether nothing is noted.
    pub fn is_empty(&self) -> bool {
        *self == EventMark::default()
    }

    /// The mark of the event once its payload is erased. The first erasure counts.
    #[must_use]
    pub fn erased(&self, now: Timestamp) -> EventMark {
        EventMark {
            flagged: self.flagged.as_ref().map(Misfit::erased),
            erased_at: self.erased_at.or(Some(now)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conducts_have_the_words_of_the_settings() {
        for conduct in Conduct::ALL {
            assert_eq!(conduct.to_string().parse(), Ok(conduct));
        }
        assert_eq!("ignore".parse::<Conduct>(), Err(UnknownConduct));
    }

    #[test]
    fn tenants_choice_holds_over_the_servers() {
        let server = Conducts { unknown_types: Conduct::Flag, misfits: Conduct::Refuse };
        let own = OwnConducts { unknown_types: Some(Conduct::Accept), misfits: None };
        let both = own.over(server);
        assert_eq!((both.unknown_types, both.misfits), (Conduct::Accept, Conduct::Refuse));
        assert!(OwnConducts::default().over(Conducts::default()).accept_all());
    }

    #[test]
    fn erased_mark_names_no_key_of_the_payload() {
        let misfit = Misfit {
            reason: MisfitReason::Payload,
            pointer: Some("/secret".to_owned()),
            detail: "value is not a number".to_owned(),
        };
        let mark = EventMark { flagged: Some(misfit), erased_at: None };
        let (one, two) = (Timestamp::from_unix_ms(1), Timestamp::from_unix_ms(2));
        let erased = mark.erased(one);
        assert!(!serde_json::to_string(&erased).unwrap().contains("secret"));
        assert_eq!(erased.erased(two).erased_at, Some(one), "the first erasure counts");
        assert_eq!(erased.flagged.unwrap().reason, MisfitReason::Payload);
        assert!(EventMark::default().is_empty());
    }
}
