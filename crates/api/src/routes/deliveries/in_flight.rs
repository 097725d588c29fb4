//! Lists the deliveries in flight. Only the engine knows them: in the store they are queued or
//! waiting.

use postrider_domain::ids::DeliveryId;
use postrider_store::{Cursor, DeliveryFilter, Page};

use crate::auth::Caller;
use crate::paging::{List, ListRequest, bad_cursor};
use crate::problem::Problem;
use crate::state::ApiState;
use crate::wire::delivery::DeliveryView;

/// A page of deliveries in flight, newest first.
pub(super) async fn list(
    state: &ApiState,
    caller: &Caller,
    filter: DeliveryFilter,
    asked: &ListRequest,
) -> Result<List<DeliveryView>, Problem> {
    let page = &asked.request;
    let below = page.cursor.as_ref().map(|Cursor(text)| text.parse()).transpose();
    let below: Option<DeliveryId> = below.map_err(|_| bad_cursor())?;
    // One more than asked for, to learn whether there is a next page.
    let mut in_flight =
        state.engine().list_in_flight(&caller.tenant, filter, below, page.limit + 1).await?;
    let has_more = in_flight.len() > page.limit;
    in_flight.truncate(page.limit);
    let last = in_flight.last().filter(|_| has_more);
    let next = last.map(|delivery| Cursor(delivery.id.to_string()));
    Ok(List::of(asked, Page { items: in_flight, next }, |delivery| {
        DeliveryView::of(&delivery, true)
    }))
}
