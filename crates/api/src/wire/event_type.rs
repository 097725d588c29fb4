//! Event types, and what is done with events that do not fit them.

use postrider_domain::catalogue::{Conduct, Conducts, Misfit, OwnConducts};
use postrider_domain::limits::{
    EVENT_TYPE_DESCRIPTION_CHARS_MAX, EXAMPLE_BYTES_MAX, SCHEMA_BYTES_MAX,
};
use postrider_domain::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::body::Patch;
use crate::catalogue::StoredType;
use crate::problem::Problem;

/// An event type to be added to the catalogue.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewEventType)]
pub(crate) struct EventTypeBody {
    /// The name: words joined by dots.
    #[schema(value_type = String, example = "task.updated", max_length = 128)]
    pub(crate) name: Option<String>,
    /// What it means, for people.
    #[schema(max_length = 2000)]
    description: Option<String>,
    /// The JSON Schema of `data`. References stay inside it.
    #[schema(value_type = serde_json::Value, required = false)]
    schema: Option<Box<RawValue>>,
    /// An example of `data`. It must fit the schema.
    #[schema(value_type = serde_json::Value, required = false)]
    example: Option<Box<RawValue>>,
    /// Whether applications should stop sending it.
    deprecated: Option<bool>,
    /// `tenant` (default), or `server`: a type for all tenants, for admin keys.
    pub(crate) scope: Option<String>,
}

impl EventTypeBody {
    /// The type as it is stored.
    pub(crate) fn check(self, now: Timestamp) -> Result<StoredType, Problem> {
        let stored = StoredType {
            description: check_description(self.description)?,
            schema: self.schema,
            example: self.example,
            deprecated: self.deprecated.unwrap_or(false),
            created_at: now,
            updated_at: now,
        };
        check_sizes(&stored)?;
        Ok(stored)
    }
}

/// A change of an event type. What is left out stays; null removes.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = EventTypeChange)]
pub(crate) struct EventTypeChange {
    /// What it means, for people.
    #[serde(default)]
    #[schema(value_type = Option<String>, max_length = 2000)]
    description: Patch<String>,
    /// The JSON Schema of `data`. Events that were accepted before are not judged again.
    #[serde(default)]
    #[schema(value_type = serde_json::Value, required = false)]
    schema: Patch<Box<RawValue>>,
    /// An example of `data`. It must fit the schema.
    #[serde(default)]
    #[schema(value_type = serde_json::Value, required = false)]
    example: Patch<Box<RawValue>>,
    /// Whether applications should stop sending it.
    deprecated: Option<bool>,
}

impl EventTypeChange {
    /// The type after the change.
    pub(crate) fn apply(self, before: StoredType, now: Timestamp) -> Result<StoredType, Problem> {
        let description = match self.description {
            Patch::Absent => before.description,
            Patch::Null => None,
            Patch::Value(text) => check_description(Some(text))?,
        };
        let after = StoredType {
            description,
            schema: changed(self.schema, before.schema),
            example: changed(self.example, before.example),
            deprecated: self.deprecated.unwrap_or(before.deprecated),
            created_at: before.created_at,
            updated_at: now,
        };
        check_sizes(&after)?;
        Ok(after)
    }
}

fn changed<T>(patch: Patch<T>, before: Option<T>) -> Option<T> {
    match patch {
        Patch::Absent => before,
        Patch::Null => None,
        Patch::Value(value) => Some(value),
    }
}

/// A description may have several lines.
fn check_description(text: Option<String>) -> Result<Option<String>, Problem> {
    let is_odd = |c: char| c.is_control() && c != '\n';
    match text {
        Some(text)
            if text.chars().any(is_odd)
                || text.chars().count() > EVENT_TYPE_DESCRIPTION_CHARS_MAX =>
        {
            let allowed = format!(
                "at most {EVENT_TYPE_DESCRIPTION_CHARS_MAX} characters, none of them control"
            );
            Err(Problem::field("description", allowed))
        }
        text => Ok(text.filter(|text| !text.is_empty())),
    }
}

fn check_sizes(stored: &StoredType) -> Result<(), Problem> {
    let parts = [
        ("schema", &stored.schema, SCHEMA_BYTES_MAX),
        ("example", &stored.example, EXAMPLE_BYTES_MAX),
    ];
    for (field, value, most) in parts {
        if value.as_ref().is_some_and(|value| value.get().len() > most) {
            return Err(Problem::field(field, format!("at most {most} bytes")));
        }
    }
    Ok(())
}

/// Whose an event type is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = EventTypeScope)]
pub(crate) enum ScopeWord {
    /// The tenant's own.
    Tenant,
    /// The server's, for all tenants.
    Server,
}

/// An event type of the catalogue.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = EventType)]
pub(crate) struct EventTypeView {
    /// Its name, which is also its identifier.
    id: String,
    /// The name, which events have as their `type`.
    name: String,
    /// Whose it is: the tenant's, or the server's, which all tenants have.
    scope: ScopeWord,
    /// What it means.
    description: Option<String>,
    /// The JSON Schema of `data`, as it was given; null where any JSON fits.
    #[schema(value_type = serde_json::Value)]
    schema: Option<Box<RawValue>>,
    /// An example of `data`.
    #[schema(value_type = serde_json::Value)]
    example: Option<Box<RawValue>>,
    /// Whether applications should stop sending it.
    deprecated: bool,
    /// When it was added.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// When it was last changed.
    #[schema(value_type = String, format = DateTime)]
    updated_at: Timestamp,
}

impl EventTypeView {
    pub(crate) fn of(name: String, scope: ScopeWord, stored: StoredType) -> Self {
        EventTypeView {
            id: name.clone(),
            name,
            scope,
            description: stored.description,
            schema: stored.schema,
            example: stored.example,
            deprecated: stored.deprecated,
            created_at: stored.created_at,
            updated_at: stored.updated_at,
        }
    }
}

/// What is done with an event that does not fit.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = Conduct)]
pub(crate) enum ConductWord {
    /// It is accepted, and nothing is checked.
    Accept,
    /// It is accepted, and flagged with the fault.
    Flag,
    /// It is refused with the place of the fault.
    Refuse,
}

impl ConductWord {
    fn of(conduct: Conduct) -> Self {
        match conduct {
            Conduct::Accept => ConductWord::Accept,
            Conduct::Flag => ConductWord::Flag,
            Conduct::Refuse => ConductWord::Refuse,
        }
    }

    fn conduct(self) -> Conduct {
        match self {
            ConductWord::Accept => Conduct::Accept,
            ConductWord::Flag => Conduct::Flag,
            ConductWord::Refuse => Conduct::Refuse,
        }
    }
}

/// What is done with events that do not fit the catalogue.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Catalogue)]
pub(crate) struct CatalogueView {
    /// With an event whose type is not in the catalogue.
    unknown_types: ConductWord,
    /// With an event whose `data` does not fit the schema of its type.
    misfits: ConductWord,
    /// The tenant's own choices; where one is null, the server's holds.
    own: OwnCatalogueView,
}

/// A tenant's own choices.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = OwnCatalogue)]
struct OwnCatalogueView {
    /// What the tenant chose for events of a type that is not in the catalogue; null where it chose nothing.
    unknown_types: Option<ConductWord>,
    /// What the tenant chose for events whose `data` does not fit their schema; null where it chose nothing.
    misfits: Option<ConductWord>,
}

impl CatalogueView {
    pub(crate) fn of(own: OwnConducts, conducts: Conducts) -> Self {
        CatalogueView {
            unknown_types: ConductWord::of(conducts.unknown_types),
            misfits: ConductWord::of(conducts.misfits),
            own: OwnCatalogueView {
                unknown_types: own.unknown_types.map(ConductWord::of),
                misfits: own.misfits.map(ConductWord::of),
            },
        }
    }
}

/// A change of what is done with events that do not fit. What is left out stays; null takes the server's choice.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = CatalogueChange)]
pub(crate) struct CatalogueChange {
    /// With an event whose type is not in the catalogue.
    #[serde(default)]
    #[schema(value_type = Option<ConductWord>)]
    unknown_types: Patch<ConductWord>,
    /// With an event whose `data` does not fit the schema of its type.
    #[serde(default)]
    #[schema(value_type = Option<ConductWord>)]
    misfits: Patch<ConductWord>,
}

impl CatalogueChange {
    pub(crate) fn apply(self, before: OwnConducts) -> OwnConducts {
        let after = |patch: Patch<ConductWord>, before: Option<Conduct>| match patch {
            Patch::Absent => before,
            Patch::Null => None,
            Patch::Value(word) => Some(word.conduct()),
        };
        OwnConducts {
            unknown_types: after(self.unknown_types, before.unknown_types),
            misfits: after(self.misfits, before.misfits),
        }
    }
}

/// Why an event does not fit the catalogue.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Misfit)]
pub(crate) struct MisfitView {
    /// `unknown_type`, `payload` or `too_much_work`.
    #[schema(example = "payload")]
    reason: &'static str,
    /// Where in `data`, as a JSON pointer; null where the fault has no place.
    pointer: Option<String>,
    /// What was expected; empty once the payload is erased.
    detail: String,
}

impl MisfitView {
    pub(crate) fn of(misfit: &Misfit) -> Self {
        let Misfit { reason, pointer, detail } = misfit;
        let (pointer, detail) = (pointer.clone(), detail.clone());
        MisfitView { reason: reason.as_str(), pointer, detail }
    }
}
