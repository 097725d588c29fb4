//! The deliveries that are being attempted at this moment. The engine knows them; the store has them
//! as queued or as waiting, so both are gone through, and those that fly are kept.

use postrider_domain::delivery::StateName;
use postrider_store::{Cursor, DeliveryFilter, Page, PageRequest};

use crate::auth::Caller;
use crate::paging::{List, bad_cursor};
use crate::problem::Problem;
use crate::state::ApiState;
use crate::wire::delivery::DeliveryView;

/// Pages of the store that one request goes through before it answers with what it has.
const PAGES_MAX: usize = 20;

/// Where the walk stands: in which of the two lists, and where in it.
struct Walk {
    lane: StateName,
    cursor: Option<Cursor>,
}

/// A page of what is in flight. It may be empty and yet have a next one.
pub(super) async fn list(
    state: &ApiState,
    caller: &Caller,
    filter: DeliveryFilter,
    page: PageRequest,
) -> Result<List<DeliveryView>, Problem> {
    let mut walk = Some(Walk::read(page.cursor)?);
    let mut items = Vec::new();
    for _ in 0..PAGES_MAX {
        let Some(Walk { lane, cursor }) = walk else { break };
        let of_lane = DeliveryFilter { state: Some(lane), ..filter.clone() };
        let request = PageRequest { limit: page.limit, cursor };
        let found = state.store().list_deliveries(&caller.tenant, &of_lane, &request).await?;
        let views = DeliveryView::of_all(state, &found.items).await?;
        items.extend(views.into_iter().filter(|view| view.state() == StateName::InFlight));
        walk = match (found.next, lane) {
            (Some(next), lane) => Some(Walk { lane, cursor: Some(next) }),
            (None, StateName::Queued) => Some(Walk { lane: StateName::Waiting, cursor: None }),
            (None, _) => None,
        };
        if !items.is_empty() {
            break;
        }
    }
    let next = walk.map(|walk| walk.write());
    Ok(List::of(Page { items, next }, |view| view))
}

impl Walk {
    fn read(cursor: Option<Cursor>) -> Result<Walk, Problem> {
        let Some(Cursor(text)) = cursor else {
            return Ok(Walk { lane: StateName::Queued, cursor: None });
        };
        let at =
            |text: &str| Some(text).filter(|text| !text.is_empty()).map(|text| Cursor(text.into()));
        match text.split_at_checked(1) {
            Some(("q", rest)) => Ok(Walk { lane: StateName::Queued, cursor: at(rest) }),
            Some(("w", rest)) => Ok(Walk { lane: StateName::Waiting, cursor: at(rest) }),
            Some(_) | None => Err(bad_cursor()),
        }
    }

    fn write(self) -> Cursor {
        let lane = if self.lane == StateName::Queued { "q" } else { "w" };
        Cursor(format!("{lane}{}", self.cursor.map_or(String::new(), |cursor| cursor.0)))
    }
}
