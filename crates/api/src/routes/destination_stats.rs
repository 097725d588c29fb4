//! Statistics of destinations: attempts, outcomes and response times by the hour.

use axum::Json;
use axum::extract::State;
use postrider_domain::attempt_tally::{AttemptTally, hour_of, start_of};
use postrider_domain::ids::DestinationId;
use postrider_domain::time::Timestamp;
use serde::Deserialize;
use utoipa::IntoParams;

use super::PathId;
use super::destinations::find;
use crate::auth::{CanRead, CanReadAll};
use crate::paging::Query;
use crate::problem::Problem;
use crate::settings::STATS_DESTINATIONS_MAX;
use crate::state::ApiState;
use crate::wire::statistics::{
    AttemptCountsView, DestinationStatsView, FailureCountView, FiguresListView, FiguresView,
    HourView,
};

pub(crate) const HOURS_DEFAULT: i64 = 24;
/// The hours of seven days.
pub(crate) const HOURS_MAX: i64 = 7 * 24;

/// Selects the time.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct HoursQuery {
    /// How many hours, the current one included, 1 to 168; 24 by default.
    hours: Option<String>,
}

/// Selects destinations.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct IdsQuery {
    /// Identifiers of destinations, separated by commas, at most 100.
    ids: Option<String>,
}

/// Show a destination's statistics
///
/// Attempts, success rate and response times for each of the last hours, how attempts failed, and the last
/// attempts. Statistics are kept for eight days, whatever the retention of deliveries is.
#[utoipa::path(
    get, path = "/v1/destinations/{id}/stats", tag = "destinations",
    params(("id" = String, Path, description = "The destination"), HoursQuery),
    responses((status = 200, body = DestinationStatsView, description = "The statistics"))
)]
pub(crate) async fn of_one(
    State(state): State<ApiState>,
    CanRead(caller): CanRead,
    id: PathId,
    Query(query): Query<HoursQuery>,
) -> Result<Json<DestinationStatsView>, Problem> {
    let hours = match query.hours.as_deref() {
        None => HOURS_DEFAULT,
        Some(text) => text
            .parse()
            .ok()
            .filter(|hours| (1..=HOURS_MAX).contains(hours))
            .ok_or_else(|| Problem::field("hours", format!("a number from 1 to {HOURS_MAX}")))?,
    };
    let record = find(&state, &caller, &id).await?;
    let until = state.now();
    let (first, last) = (hour_of(until) - hours + 1, hour_of(until));
    let found = state.store().attempt_hours(&caller.tenant, record.id, start_of(first)).await?;
    let mut total = AttemptTally::default();
    found.iter().for_each(|(_, tally)| total.add(tally));
    let tally_at = |at: Timestamp| {
        let place = found.binary_search_by_key(&at, |(begin, _)| *begin).ok();
        place.map_or_else(AttemptTally::default, |place| found[place].1)
    };
    let hour = |number| {
        let at = start_of(number);
        HourView { at, counts: AttemptCountsView::of(&tally_at(at)) }
    };
    let ids = [record.id];
    let sums = state.store().attempt_sums(Some(&caller.tenant), &ids, windows(until)).await?;
    let sums = sums.into_iter().next().unwrap_or_default();
    Ok(Json(DestinationStatsView {
        since: start_of(first),
        until,
        hours: (first..=last).map(hour).collect(),
        total: AttemptCountsView::of(&total),
        failures: FailureCountView::all_of(&total),
        figures: FiguresView::of(record.id, &sums),
    }))
}

/// Show the figures of several destinations
///
/// Success rate and response times over 24 hours and 7 days, and the last attempts, as a list of destinations shows them.
/// An admin key that names the tenant `*` may name destinations of all tenants.
#[utoipa::path(
    get, path = "/v1/destinations/stats", tag = "destinations", params(IdsQuery),
    responses((status = 200, body = FiguresListView, description = "The figures"))
)]
pub(crate) async fn of_several(
    State(state): State<ApiState>,
    CanReadAll(caller): CanReadAll,
    Query(query): Query<IdsQuery>,
) -> Result<Json<FiguresListView>, Problem> {
    let wrong = |detail: String| Problem::field("ids", detail);
    let ids = query.ids.as_deref().unwrap_or("");
    let parse = |id: &str| {
        id.parse::<DestinationId>()
            .map_err(|_| wrong("identifiers of destinations, separated by commas".into()))
    };
    let named: Vec<&str> = ids.split(',').filter(|id| !id.is_empty()).collect();
    if named.is_empty() || named.len() > STATS_DESTINATIONS_MAX {
        return Err(wrong(format!("name 1 to {STATS_DESTINATIONS_MAX} destinations")));
    }
    let ids = named.into_iter().map(parse).collect::<Result<Vec<_>, _>>()?;
    let tenant = (!caller.sees_all()).then_some(&caller.tenant);
    let sums = state.store().attempt_sums(tenant, &ids, windows(state.now())).await?;
    let data = ids.iter().zip(&sums).map(|(id, sums)| FiguresView::of(*id, sums)).collect();
    Ok(Json(FiguresListView { data }))
}

/// The starts of the last 24 and of the last 168 hours, the current one included.
fn windows(now: Timestamp) -> [Timestamp; 2] {
    [HOURS_DEFAULT, HOURS_MAX].map(|hours| start_of(hour_of(now) - hours + 1))
}
