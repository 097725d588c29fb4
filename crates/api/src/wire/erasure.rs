//! Erasures of payloads.

use postrider_domain::erasure::{ErasureCounts, ErasureJob, ErasureState, ErasureTarget};
use postrider_domain::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::paging::parameter;
use crate::problem::Problem;

/// What is to be erased: one event, or all events of an object.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = NewErasure)]
pub(crate) struct ErasureBody {
    /// The payload of this event.
    event: Option<String>,
    /// The payloads of all events of this object that were accepted before this request.
    object: Option<String>,
}

impl ErasureBody {
    pub(crate) fn check(self) -> Result<ErasureTarget, Problem> {
        match (self.event, self.object) {
            (Some(event), None) => {
                let event = parameter("event", Some(&event))?;
                event.map(ErasureTarget::Event).ok_or_else(|| Problem::missing("event"))
            }
            (None, Some(object)) => {
                let object = parameter("object", Some(&object))?;
                object.map(ErasureTarget::Object).ok_or_else(|| Problem::missing("object"))
            }
            (None, None) => Err(Problem::missing("event")),
            (Some(_), Some(_)) => Err(Problem::field("object", "give event or object, not both")),
        }
    }
}

/// An erasure of payloads.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Erasure)]
pub(crate) struct ErasureView {
    /// The identifier of the erasure.
    id: String,
    /// `erasing`: payloads are being removed. `scrubbing`: they cannot be read any more, and what is left of them in
    /// the store's files is being overwritten. `finished`.
    state: ErasureStateWord,
    /// The event whose payload is erased; null where it is an object's.
    event: Option<String>,
    /// The object whose events are erased; null where it is one event.
    object: Option<String>,
    /// Events whose payload was erased.
    erased: u64,
    /// Events that had been erased before.
    already: u64,
    /// Unfinished deliveries that were cancelled for it.
    cancelled: u64,
    /// Attempts whose response body was erased.
    attempts: u64,
    /// When it was asked for.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// When it was done; null before that.
    #[schema(value_type = Option<String>, format = DateTime)]
    finished_at: Option<Timestamp>,
}

/// How far an erasure is.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = ErasureState)]
enum ErasureStateWord {
    Erasing,
    Scrubbing,
    Finished,
}

impl ErasureView {
    pub(crate) fn of(job: &ErasureJob) -> Self {
        let (event, object) = match &job.target {
            ErasureTarget::Event(id) => (Some(id.to_string()), None),
            ErasureTarget::Object(id) => (None, Some(id.to_string())),
        };
        let ErasureCounts { erased, already, cancelled, attempts } = job.counts;
        ErasureView {
            id: job.id.to_string(),
            state: match job.state {
                ErasureState::Erasing => ErasureStateWord::Erasing,
                ErasureState::Scrubbing => ErasureStateWord::Scrubbing,
                ErasureState::Finished => ErasureStateWord::Finished,
            },
            event,
            object,
            erased,
            already,
            cancelled,
            attempts,
            created_at: job.created_at,
            finished_at: job.finished_at,
        }
    }
}
