//! The schedule of one delivery.

use postrider_domain::attempt::Attempt;
use postrider_domain::delivery::Delivery;
use postrider_domain::limits::PAGE_MAX;
use postrider_domain::schedule;
use postrider_store::{Page, PageRequest};

use crate::problem::Problem;
use crate::state::ApiState;
use crate::wire::schedule::ScheduleView;

/// The most pages of attempts that are read for one schedule; a page has at most 1 MiB.
const PAGES_MAX: usize = 8;

/// The schedule of a delivery. The caller has already read the first page of its attempts.
pub(super) async fn of(
    state: &ApiState,
    delivery: &Delivery,
    in_flight: bool,
    first: Page<Attempt>,
) -> Result<ScheduleView, Problem> {
    let Page { items: mut log, mut next } = first;
    for _ in 1..PAGES_MAX {
        let Some(cursor) = next.take() else { break };
        let request = PageRequest { limit: PAGE_MAX, cursor: Some(cursor) };
        let page = state.store().attempt_page(&delivery.tenant, delivery.id, &request).await?;
        log.extend(page.items);
        next = page.next;
    }
    let policy = state.engine().policy_of(delivery.subscription);
    let is_own = policy.retry != state.policy().retry;
    let schedule = schedule::schedule(delivery, in_flight, &log, next.is_none(), &policy.retry);
    Ok(ScheduleView::of(&schedule, is_own))
}
