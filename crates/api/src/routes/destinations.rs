//! Destinations with their circuits: list, show, enable, freeze.

use axum::Json;
use axum::extract::State;
use postrider_domain::destination::DestinationState;
use postrider_domain::ids::{DestinationId, ReplayId};
use postrider_domain::limits::REASON_CHARS_MAX;
use postrider_engine::CommandError;
use postrider_store::{DestinationRecord, Page, PageRequest, Shown};
use serde::Deserialize;
use utoipa::IntoParams;

use super::PathId;
use super::subscriptions::PageQuery;
use crate::auth::{Caller, CanManage, CanRead, CanReadAll};
use crate::body::StrictOrNone;
use crate::draw::Draw;
use crate::paging::{List, ListOf, Query, page};
use crate::problem::Problem;
use crate::state::ApiState;
use crate::wire::check_text;
use crate::wire::destination::{DestinationView, EnableBody, ReasonBody, TransitionView};

/// Which destinations.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct DestinationQuery {
    /// `enabled`, `disabled`, `frozen`, or `failing`: disabled or frozen.
    state: Option<String>,
    /// A part of the URL, at most 200 characters; upper and lower case are the same.
    q: Option<String>,
    /// Entries on a page, 1 to 1000; 50 where it is left out.
    limit: Option<String>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
}

/// The most characters of `q`, the part of a URL to search for.
const PART_CHARS_MAX: usize = 200;
/// The most pages of the store that are read to fill one page with matching destinations.
const LOOKED_THROUGH_MAX: usize = 10;

/// The conditions of a list of destinations.
struct Wanted {
    /// Any of these states.
    states: &'static [DestinationState],
    part: Option<String>,
}

const FAILING: &[DestinationState] = &[DestinationState::Disabled, DestinationState::Frozen];

impl Wanted {
    fn of(query: &DestinationQuery) -> Result<Self, Problem> {
        let states: &[DestinationState] = match query.state.as_deref() {
            None => &DestinationState::ALL,
            Some("enabled") => &[DestinationState::Enabled],
            Some("disabled") => &[DestinationState::Disabled],
            Some("frozen") => &[DestinationState::Frozen],
            Some("failing") => FAILING,
            Some(_) => {
                return Err(Problem::field("state", "one of enabled, disabled, frozen, failing"));
            }
        };
        let part = check_text("q", query.q.clone(), PART_CHARS_MAX)?;
        Ok(Wanted { states, part: part.map(|part| part.to_lowercase()) })
    }

    fn is_everything(&self) -> bool {
        self.states == DestinationState::ALL && self.part.is_none()
    }

    /// Whether none that is enabled is wanted: those are in a list of their own.
    fn is_failing(&self) -> bool {
        !self.states.contains(&DestinationState::Enabled)
    }

    fn has(&self, record: &DestinationRecord) -> bool {
        let is_there = |part: &String| record.url.to_lowercase().contains(part.as_str());
        self.states.contains(&record.state()) && self.part.as_ref().is_none_or(is_there)
    }
}

/// The tenant's destinations, or those of all tenants, that match the conditions. Reads at most
/// [`LOOKED_THROUGH_MAX`] pages of the store, so the page may be short or empty although more pages follow.
async fn find_wanted(
    state: &ApiState,
    caller: &Caller,
    wanted: &Wanted,
    asked: &PageRequest,
) -> Result<Page<DestinationRecord>, Problem> {
    let mut items: Vec<DestinationRecord> = Vec::new();
    let mut next = asked.cursor.clone();
    for _ in 0..LOOKED_THROUGH_MAX {
        let request = PageRequest { limit: asked.limit - items.len(), cursor: next.take() };
        let page = match (caller.sees_all(), wanted.is_failing()) {
            (false, _) => state.store().destinations(&caller.tenant, &request).await?,
            (true, true) => state.store().destinations_of_all(Shown::Failing, &request).await?,
            (true, false) => state.store().destinations_of_all(Shown::All, &request).await?,
        };
        items.extend(page.items.into_iter().filter(|record| wanted.has(record)));
        next = page.next;
        if next.is_none() || wanted.is_everything() || items.len() >= asked.limit {
            break;
        }
    }
    Ok(Page { items, next })
}

/// List destinations
///
/// Newest first. With `state` or `q` a page may have fewer entries than asked for, or none, and yet a
/// `next_cursor`: a bounded number of destinations is looked through for each page. A destination without a
/// subscription and without unfinished deliveries is not in the list; it keeps its state for the retention time.
/// An admin key that names the tenant `*` gets those of all tenants, each with its `tenant`.
#[utoipa::path(
    get, path = "/v1/destinations", tag = "destinations", params(DestinationQuery),
    responses((status = 200, body = List<DestinationView>, description = "A page of destinations"))
)]
pub(crate) async fn list(
    State(state): State<ApiState>,
    CanReadAll(caller): CanReadAll,
    Query(query): Query<DestinationQuery>,
) -> Result<Json<List<DestinationView>>, Problem> {
    let wanted = Wanted::of(&query)?;
    let given = [query.state.as_deref(), query.q.as_deref()];
    let filters = if wanted.is_everything() { &[] } else { &given[..] };
    let tenant = (!caller.sees_all()).then_some(&caller.tenant);
    let list = ListOf { name: "destinations", tenant, filters };
    let asked = page(list, query.limit.as_deref(), query.cursor.as_deref())?;
    let records = find_wanted(&state, &caller, &wanted, &asked.request).await?;
    let ids: Vec<DestinationId> = records.items.iter().map(|record| record.id).collect();
    let waiting = match tenant {
        Some(tenant) => state.store().waiting_counts(tenant, &ids).await?,
        None => state.store().waiting_of_all(&ids).await?,
    };
    let (now, policy) = (state.now(), state.policy());
    let mut waiting = waiting.into_iter();
    Ok(Json(List::of(&asked, records, |record| {
        let shared = state.engine().destination_policy(&record.tenant, record.id);
        let waiting = waiting.next().unwrap_or(0);
        let mut view = DestinationView::of(&record, waiting, now, &policy.circuit, &shared);
        view.tenant = caller.sees_all().then(|| record.tenant.to_string());
        view
    })))
}

/// Show a destination
///
/// With its distance to each threshold.
#[utoipa::path(
    get, path = "/v1/destinations/{id}", tag = "destinations",
    params(("id" = String, Path, description = "The destination")),
    responses((status = 200, body = DestinationView, description = "The destination"))
)]
pub(crate) async fn show(
    State(state): State<ApiState>,
    CanRead(caller): CanRead,
    id: PathId,
) -> Result<Json<DestinationView>, Problem> {
    let record = find(&state, &caller, &id).await?;
    shown(&state, &caller, &record).await
}

pub(super) async fn find(
    state: &ApiState,
    caller: &Caller,
    id: &PathId,
) -> Result<DestinationRecord, Problem> {
    let record = state.store().destination(&caller.tenant, id.of("destination")?).await?;
    record.ok_or_else(|| id.unknown("destination"))
}

async fn shown(
    state: &ApiState,
    caller: &Caller,
    record: &DestinationRecord,
) -> Result<Json<DestinationView>, Problem> {
    let waiting = state.store().waiting_counts(&caller.tenant, &[record.id]).await?;
    let waiting = waiting.first().copied().unwrap_or(0);
    let shared = state.engine().destination_policy(&caller.tenant, record.id);
    let policy = state.policy();
    Ok(Json(DestinationView::of(record, waiting, state.now(), &policy.circuit, &shared)))
}

/// Enable a destination
///
/// Closes its circuit and resets its counters. The only way out of frozen. With `waiting` `drain` what
/// waits there is sent at once, also where it was enabled already; with `dead_since` what died there since
/// then is replayed, after what waits, and `replay` in the answer names the job: it pauses while the
/// destination drains or any of its deliveries is due.
#[utoipa::path(
    post, path = "/v1/destinations/{id}/enable", tag = "destinations",
    params(("id" = String, Path, description = "The destination")),
    request_body = EnableBody,
    responses((status = 200, body = DestinationView, description = "As it is now"))
)]
pub(crate) async fn enable(
    State(state): State<ApiState>,
    CanManage(caller): CanManage,
    draw: Draw,
    id: PathId,
    StrictOrNone(body): StrictOrNone<EnableBody>,
) -> Result<Json<DestinationView>, Problem> {
    let destination = id.of("destination")?;
    let mut wish = body.check()?;
    let mut replay = None;
    if wish.dead_since.is_some() {
        let random = draw.bytes("replay id")?;
        let job = ReplayId::run_by_owner(draw.created_at(&state), random, destination);
        // If an earlier request with the same idempotency key stored the job, do not start another
        // one.
        if draw.repeats().is_some() && state.store().replay(&caller.tenant, job).await?.is_some() {
            wish.dead_since = None;
        }
        wish.replay = Some(job);
        replay = Some(job.to_string());
    }
    let enabled = state.engine().enable_and_send(&caller.tenant, destination, wish).await;
    let enabled = enabled.map(|(record, _)| record);
    let Json(mut shown) = switched_to(&state, &caller, &id, enabled).await?;
    shown.replay = replay;
    Ok(Json(shown))
}

/// Freeze a destination
///
/// Nothing is sent to it until somebody enables it.
#[utoipa::path(
    post, path = "/v1/destinations/{id}/freeze", tag = "destinations",
    params(("id" = String, Path, description = "The destination")),
    request_body = ReasonBody,
    responses((status = 200, body = DestinationView, description = "As it is now"))
)]
pub(crate) async fn freeze(
    State(state): State<ApiState>,
    CanManage(caller): CanManage,
    id: PathId,
    StrictOrNone(body): StrictOrNone<ReasonBody>,
) -> Result<Json<DestinationView>, Problem> {
    let reason = check_text("reason", body.reason, REASON_CHARS_MAX)?;
    let switched = state.engine().freeze(&caller.tenant, id.of("destination")?, reason).await;
    switched_to(&state, &caller, &id, switched).await
}

async fn switched_to(
    state: &ApiState,
    caller: &Caller,
    id: &PathId,
    switched: Result<DestinationRecord, CommandError>,
) -> Result<Json<DestinationView>, Problem> {
    let record = switched.map_err(|error| id.refused("destination", error))?;
    shown(state, caller, &record).await
}

/// Show a destination's timeline
///
/// Every change of its state with its evidence, newest first.
#[utoipa::path(
    get, path = "/v1/destinations/{id}/timeline", tag = "destinations",
    params(("id" = String, Path, description = "The destination"), PageQuery),
    responses((status = 200, body = List<TransitionView>, description = "A page of transitions"))
)]
pub(crate) async fn timeline(
    State(state): State<ApiState>,
    CanRead(caller): CanRead,
    id: PathId,
    Query(query): Query<PageQuery>,
) -> Result<Json<List<TransitionView>>, Problem> {
    let filters = [Some(id.0.as_str())];
    let list = ListOf { name: "timeline", tenant: Some(&caller.tenant), filters: &filters };
    let asked = page(list, query.limit.as_deref(), query.cursor.as_deref())?;
    let record = find(&state, &caller, &id).await?;
    let transitions = state.store().transitions(&caller.tenant, record.id, &asked.request).await?;
    Ok(Json(List::of(&asked, transitions, |transition| TransitionView::of(&transition))))
}
