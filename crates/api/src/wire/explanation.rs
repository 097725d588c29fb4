//! The answer to "where does it stand, and why?".

use postrider_domain::explain::Explanation;
use postrider_domain::time::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

use super::delivery::DeliveryView;

/// A delivery, explained in words and data.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Explanation)]
pub(crate) struct ExplanationView {
    delivery: DeliveryView,
    /// Where it stands, in a sentence.
    summary: String,
    /// Why, one sentence each.
    because: Vec<String>,
    /// What happens next; null where nothing does by itself.
    next: Option<NextView>,
    /// What somebody can do about it; empty where nothing is needed.
    unblock: Vec<UnblockView>,
}

/// What happens next.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = NextStep)]
struct NextView {
    /// When; null where it depends on something else than time.
    #[schema(value_type = Option<String>, format = DateTime)]
    at: Option<Timestamp>,
    what: String,
}

/// Something that would help.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Unblock)]
struct UnblockView {
    /// `fix_receiver`, `enable_destination`, `replay` or `resubscribe`.
    action: &'static str,
    what: String,
}

impl ExplanationView {
    pub(crate) fn of(delivery: DeliveryView, explanation: Explanation) -> Self {
        let Explanation { state: _, summary, because, next, unblock } = explanation;
        ExplanationView {
            delivery,
            summary,
            because,
            next: next.map(|next| NextView { at: next.at, what: next.what }),
            unblock: unblock
                .into_iter()
                .map(|hint| UnblockView { action: hint.action.as_str(), what: hint.what })
                .collect(),
        }
    }
}
