//! Trying a filter on an event.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use utoipa::ToSchema;

/// A filter, and an event to try it on.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FilterTest {
    /// The filter.
    #[serde(default)]
    #[schema(value_type = Object, required = true)]
    pub(crate) filter: Option<Value>,
    /// An event, as `POST /v1/events` takes it.
    #[serde(default)]
    #[schema(value_type = super::event::EventBody, required = true)]
    pub(crate) event: Option<Box<RawValue>>,
}

/// Whether the event passes.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FilterVerdict {
    pub(crate) matches: bool,
}
