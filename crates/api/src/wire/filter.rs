//! Testing a filter on an event.

use postrider_domain::filter::ConditionVerdict;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use utoipa::ToSchema;

/// A filter, and an event to test it on.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FilterTest {
    /// The filter.
    #[serde(default)]
    #[schema(value_type = Object, required = true)]
    pub(crate) filter: Option<Value>,
    /// An event, as in `POST /v1/events`.
    #[serde(default)]
    #[schema(value_type = super::event::EventBody, required = true)]
    pub(crate) event: Option<Box<RawValue>>,
}

/// The result of the test.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FilterVerdict {
    /// Whether a subscription with this filter gets the event.
    pub(crate) matches: bool,
    /// Whether the filter exceeded its steps: then the event is delivered unfiltered.
    pub(crate) over_budget: bool,
    /// The steps that it took: one for each visited value, each word of a path, and each 64 bytes
    /// of compared text.
    pub(crate) steps: u64,
    /// The most steps that a filter may take on one event.
    pub(crate) steps_max: u64,
}

/// One condition of a filter.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Condition)]
pub(crate) struct ConditionView {
    /// Where it stands in the filter.
    #[schema(example = "filter.all[2]")]
    place: String,
    /// Whether it holds by itself.
    holds: bool,
}

impl ConditionView {
    pub(crate) fn of(verdict: ConditionVerdict) -> Self {
        ConditionView { place: verdict.place, holds: verdict.holds }
    }
}

impl FilterVerdict {
    pub(crate) fn of(matches: bool, steps: u64, steps_max: u64) -> Self {
        FilterVerdict { matches, over_budget: false, steps, steps_max }
    }

    pub(crate) fn over_budget(steps_max: u64) -> Self {
        FilterVerdict { over_budget: true, ..FilterVerdict::of(true, steps_max, steps_max) }
    }
}
