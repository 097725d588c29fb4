//! Counts a tenant's destinations by state.

use axum::Json;
use axum::extract::State;
use postrider_domain::destination::DestinationState;
use postrider_domain::limits::PAGE_MAX;
use postrider_store::PageRequest;
use serde::Serialize;
use utoipa::ToSchema;

use crate::auth::CanRead;
use crate::problem::Problem;
use crate::state::ApiState;

/// The most pages of destinations that are read from the store for one count.
const PAGES_MAX: usize = 20;

/// Destinations by state.
#[derive(Debug, Default, Serialize, ToSchema)]
#[schema(as = DestinationSummary)]
pub(crate) struct SummaryView {
    /// Destinations that are sent to as usual.
    enabled: u64,
    /// Destinations that failed too often and are only probed.
    disabled: u64,
    /// Destinations that are not attempted until somebody enables them.
    frozen: u64,
    /// Whether all were counted; false where the tenant has more than 20,000: then the newest were.
    complete: bool,
}

/// Count destinations by state
///
/// Of the tenant's newest 20,000 destinations.
#[utoipa::path(
    get, path = "/v1/destinations/summary", tag = "destinations",
    responses((status = 200, body = SummaryView, description = "The counts"))
)]
pub(crate) async fn summary(
    State(state): State<ApiState>,
    CanRead(caller): CanRead,
) -> Result<Json<SummaryView>, Problem> {
    let mut summary = SummaryView::default();
    let mut request = PageRequest { limit: PAGE_MAX, cursor: None };
    for _ in 0..PAGES_MAX {
        let page = state.store().destinations(&caller.tenant, &request).await?;
        for record in &page.items {
            *match record.state() {
                DestinationState::Enabled => &mut summary.enabled,
                DestinationState::Disabled => &mut summary.disabled,
                DestinationState::Frozen => &mut summary.frozen,
            } += 1;
        }
        request.cursor = page.next;
        if request.cursor.is_none() {
            summary.complete = true;
            break;
        }
    }
    Ok(Json(summary))
}
