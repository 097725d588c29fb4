//! Event types, and what is done with events that do not fit them; erasures of payloads.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::change::Fields;

/// Whose an event type is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EventTypeScope {
    /// The tenant's own.
    Tenant,
    /// For all tenants.
    Server,
    /// A word that this version of the client does not know.
    #[serde(other)]
    Unknown,
}

/// An event type of the catalogue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EventType {
    /// When it was added.
    pub created_at: Timestamp,
    /// Whether applications should stop sending it.
    pub deprecated: bool,
    /// What it means, for people.
    pub description: Option<String>,
    /// An example of `data`.
    pub example: Value,
    /// Its name, which is also its identifier.
    pub id: String,
    /// Its name.
    pub name: String,
    /// The JSON Schema of `data`, as it was given; JSON's null where any JSON fits.
    pub schema: Value,
    /// Whose it is.
    pub scope: EventTypeScope,
    /// When it was last changed.
    pub updated_at: Timestamp,
}

/// An event type to be added to the catalogue.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct NewEventType {
    /// Whether applications should stop sending it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deprecated: Option<bool>,
    /// What it means, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// An example of `data`. It must fit the schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub example: Option<Value>,
    /// The name: words joined by dots.
    pub name: String,
    /// The JSON Schema of `data`. References stay inside it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// The tenant's by default; the server's are for all tenants, with an admin key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<EventTypeScope>,
}

impl NewEventType {
    /// An event type with this name and this JSON Schema of its data.
    pub fn new(name: impl Into<String>, schema: Value) -> NewEventType {
        NewEventType { name: name.into(), schema: Some(schema), ..NewEventType::default() }
    }
}

/// Fields of an event type to be changed. What is not named stays as it is; `None` removes.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct EventTypeChange {
    fields: Fields,
}

impl EventTypeChange {
    /// A change of nothing.
    pub fn new() -> EventTypeChange {
        EventTypeChange::default()
    }

    fn set(self, name: &'static str, value: impl Into<Value>) -> EventTypeChange {
        EventTypeChange { fields: self.fields.with(name, value) }
    }

    /// Changes whether applications should stop sending it.
    #[must_use]
    pub fn deprecated(self, deprecated: bool) -> EventTypeChange {
        self.set("deprecated", deprecated)
    }

    /// Changes what it means, for people.
    #[must_use]
    pub fn description(self, description: Option<&str>) -> EventTypeChange {
        self.set("description", description)
    }

    /// Changes the example.
    #[must_use]
    pub fn example(self, example: Option<Value>) -> EventTypeChange {
        self.set("example", example)
    }

    /// Changes the schema. Events that were accepted before are not judged again.
    #[must_use]
    pub fn schema(self, schema: Option<Value>) -> EventTypeChange {
        self.set("schema", schema)
    }
}

/// What is done with an event that does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Conduct {
    /// It is accepted.
    Accept,
    /// It is accepted, and shown with what does not fit.
    Flag,
    /// It is refused.
    Refuse,
    /// A word that this version of the client does not know.
    #[serde(other)]
    Unknown,
}

/// A tenant's own choices.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OwnCatalogue {
    /// With misfits.
    pub misfits: Option<Conduct>,
    /// With unknown types.
    pub unknown_types: Option<Conduct>,
}

/// What is done with events that do not fit the catalogue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Catalogue {
    /// With an event whose `data` does not fit the schema of its type.
    pub misfits: Conduct,
    /// The tenant's own choices; where one is absent, the server's holds.
    pub own: OwnCatalogue,
    /// With an event whose type is not in the catalogue.
    pub unknown_types: Conduct,
}

/// A change of what is done with events that do not fit. `None` takes the server's choice.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct CatalogueChange {
    fields: Fields,
}

impl CatalogueChange {
    /// A change of nothing.
    pub fn new() -> CatalogueChange {
        CatalogueChange::default()
    }

    /// Changes what is done with events whose data does not fit the schema of their type.
    #[must_use]
    pub fn misfits(self, conduct: Option<Conduct>) -> CatalogueChange {
        CatalogueChange { fields: self.fields.with("misfits", json!(conduct)) }
    }

    /// Changes what is done with events whose type is not in the catalogue.
    #[must_use]
    pub fn unknown_types(self, conduct: Option<Conduct>) -> CatalogueChange {
        CatalogueChange { fields: self.fields.with("unknown_types", json!(conduct)) }
    }
}

/// How far an erasure is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ErasureState {
    /// Payloads are being removed.
    Erasing,
    /// They cannot be read any more; what is left in the files is being overwritten.
    Scrubbing,
    /// It has ended.
    Finished,
    /// A word that this version of the client does not know.
    #[serde(other)]
    Unknown,
}

/// An erasure of payloads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Erasure {
    /// Events that had been erased before.
    pub already: u64,
    /// Attempts whose response body was erased.
    pub attempts: u64,
    /// Unfinished deliveries that were cancelled for it.
    pub cancelled: u64,
    /// When it was asked for.
    pub created_at: Timestamp,
    /// Events whose payload was erased.
    pub erased: u64,
    /// The event whose payload is erased; absent where it is an object's.
    pub event: Option<String>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// Its identifier.
    pub id: String,
    /// The object whose events are erased; absent where it is one event.
    pub object: Option<String>,
    /// `erasing`: payloads are being removed. `scrubbing`: they cannot be read any more, and
    /// what is left of them in the store's files is being overwritten. `finished`.
    pub state: ErasureState,
}

/// What is to be erased.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NewErasure {
    /// The payload of this event.
    Event(String),
    /// The payloads of all events of this object that were accepted before the request.
    Object(String),
}
