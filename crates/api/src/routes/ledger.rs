//! The ledger, and statistics over time.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use postrider_domain::ids::TenantId;
use postrider_domain::time::Timestamp;
use postrider_store::{Tally, TallyAt};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::auth::{Caller, CanRead};
use crate::paging::{Query, parameter};
use crate::problem::{Code, Problem};
use crate::settings::STATS_SPANS_MAX;
use crate::state::ApiState;
use crate::wire::ledger::{ArrivalsView, LedgerView, SpanView, Stats};

const MINUTE_MS: i64 = 60_000;
pub(crate) const STEP_MINUTES_DEFAULT: u32 = 5;
pub(crate) const STEP_MINUTES_MAX: u32 = 7 * 24 * 60;
const SINCE_DEFAULT: Duration = Duration::from_secs(24 * 60 * 60);

/// Selects the ledger.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct LedgerQuery {
    /// `all`: the ledger of all tenants together, for admin keys.
    scope: Option<String>,
}

/// Show the ledger
///
/// `accepted = queued + in_flight + waiting + delivered + dead + cancelled`, at any moment.
#[utoipa::path(
    get, path = "/v1/ledger", tag = "ledger", params(LedgerQuery),
    responses((status = 200, body = LedgerView, description = "The ledger"))
)]
pub(crate) async fn ledger(
    State(state): State<ApiState>,
    CanRead(caller): CanRead,
    Query(query): Query<LedgerQuery>,
) -> Result<Json<LedgerView>, Problem> {
    let whose = whose(&caller, query.scope.as_deref())?;
    Ok(Json(LedgerView::of(&state.engine().ledger(whose).await?)))
}

/// The requested tenant; `None` for all.
fn whose<'a>(caller: &'a Caller, scope: Option<&str>) -> Result<Option<&'a TenantId>, Problem> {
    match scope {
        None => Ok(Some(&caller.tenant)),
        Some("all") if caller.is_admin() => Ok(None),
        Some("all") => {
            Err(Problem::new(Code::MissingScope, "scope=all needs an admin key").at("scope"))
        }
        Some(_) => Err(Problem::field("scope", "`all`, or leave it out")),
    }
}

/// Selects the time.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct StatsQuery {
    /// The start, not after `until`; by default a day before that.
    since: Option<String>,
    /// The end; by default now.
    until: Option<String>,
    /// The length of a span, 1 to 10080; 5 by default.
    step_minutes: Option<String>,
    /// `all`: all tenants together, for admin keys.
    scope: Option<String>,
}

/// Show statistics over time
///
/// In spans of equal length, for charts; and how long deliveries took lately.
#[utoipa::path(
    get, path = "/v1/stats", tag = "ledger", params(StatsQuery),
    responses((status = 200, body = Stats, description = "A time series"))
)]
pub(crate) async fn stats(
    State(state): State<ApiState>,
    CanRead(caller): CanRead,
    Query(query): Query<StatsQuery>,
) -> Result<Json<Stats>, Problem> {
    let whose = whose(&caller, query.scope.as_deref())?;
    let until = parameter("until", query.until.as_deref())?.unwrap_or_else(|| state.now());
    let since = parameter("since", query.since.as_deref())?
        .unwrap_or_else(|| until.saturating_sub(SINCE_DEFAULT));
    if since > until {
        return Err(Problem::field("since", "later than until: give a time before it"));
    }
    let step_minutes = match query.step_minutes.as_deref() {
        None => STEP_MINUTES_DEFAULT,
        Some(text) => {
            text.parse().ok().filter(|step| (1..=STEP_MINUTES_MAX).contains(step)).ok_or_else(
                || Problem::field("step_minutes", format!("a number from 1 to {STEP_MINUTES_MAX}")),
            )?
        }
    };
    let starts = span_starts(since, until, step_minutes)?;
    let tallies = state.store().tallies(whose, since, until, step_minutes).await?;
    let data = starts.into_iter().map(|at| SpanView::of(&span_at(&tallies, at))).collect();
    let arrivals = state.process().arrivals(whose).map(|found| ArrivalsView::of(&found));
    Ok(Json(Stats { since, until, step_minutes, data, arrivals }))
}

/// The starts of the spans: multiples of the step since the epoch.
fn span_starts(
    since: Timestamp,
    until: Timestamp,
    step_minutes: u32,
) -> Result<Vec<Timestamp>, Problem> {
    let step_ms = i64::from(step_minutes) * MINUTE_MS;
    let span_ms = u64::from(step_minutes) * 60_000;
    let count = u64::try_from(until.since(since).as_millis()).unwrap_or(u64::MAX) / span_ms;
    if count > STATS_SPANS_MAX {
        let detail = format!("{count} spans, at most {STATS_SPANS_MAX}: choose a longer step");
        return Err(Problem::field("step_minutes", detail));
    }
    let first = since.as_unix_ms().div_euclid(step_ms).saturating_mul(step_ms);
    let starts = std::iter::successors(Some(first), |at| at.checked_add(step_ms));
    let starts = starts.take_while(|at| *at < until.as_unix_ms() && since < until);
    Ok(starts.map(Timestamp::from_unix_ms).collect())
}

fn span_at(tallies: &[TallyAt], at: Timestamp) -> TallyAt {
    let found = tallies.binary_search_by_key(&at, |tally| tally.at).ok();
    found.map_or(TallyAt { at, tally: Tally::default() }, |n| tallies[n])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minutes: i64) -> Timestamp {
        Timestamp::from_unix_ms(minutes * MINUTE_MS)
    }

    #[test]
    fn spans_cover_the_time_and_begin_at_multiples_of_their_step() {
        let starts = |since, until, step| span_starts(at(since), at(until), step).unwrap();
        assert_eq!(starts(0, 15, 5), [at(0), at(5), at(10)]);
        assert_eq!(starts(3, 11, 5), [at(0), at(5), at(10)]);
        assert_eq!(starts(-3, 1, 5), [at(-5), at(0)]);
        assert_eq!(starts(5, 5, 5), []);
        assert_eq!(starts(9, 5, 5), []);
        assert!(span_starts(at(0), at(5_001), 1).is_err());
        assert!(span_starts(Timestamp::from_unix_ms(i64::MIN), Timestamp::MAX, 1).is_err());
    }

    #[test]
    fn spans_in_which_nothing_happened_are_zero() {
        let tally = Tally { accepted: 7, ..Tally::default() };
        let tallies = [TallyAt { at: at(5), tally }];
        assert_eq!(span_at(&tallies, at(5)).tally.accepted, 7);
        assert_eq!(span_at(&tallies, at(10)), TallyAt { at: at(10), tally: Tally::default() });
    }
}
