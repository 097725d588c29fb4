//! Summaries: when waiting deliveries fall due, and what died, in groups.

use axum::Json;
use axum::extract::State;
use postrider_domain::limits::{PAGE_DEFAULT, PAGE_MAX};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::auth::CanReadAll;
use crate::paging::Query;
use crate::problem::Problem;
use crate::settings::{DEAD_READ_MAX, DUE_COUNT_MAX};
use crate::state::ApiState;
use crate::wire::summary::{DeadGroupView, DeadLettersView, RetriesDueView};

/// Show retries due
///
/// How many waiting deliveries fall due in each of the next 48 hours, before now, and later. At most 20,000 are counted
/// for each: a count that is not `complete` is the least that there are. An admin key that names the tenant `*` gets the
/// counts of all tenants together.
#[utoipa::path(
    get, path = "/v1/deliveries/due", tag = "deliveries",
    responses((status = 200, body = RetriesDueView, description = "The counts"))
)]
pub(crate) async fn due(
    State(state): State<ApiState>,
    CanReadAll(caller): CanReadAll,
) -> Result<Json<RetriesDueView>, Problem> {
    let tenant = (!caller.sees_all()).then_some(&caller.tenant);
    let now = state.now();
    let counts = state.store().due_counts(tenant, now, DUE_COUNT_MAX).await?;
    Ok(Json(RetriesDueView::of(now, &counts)))
}

/// Selects groups of dead deliveries.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct DeadQuery {
    /// The most groups, 1 to 1000; 50 by default.
    limit: Option<String>,
}

/// Show dead letters
///
/// Dead deliveries by destination and reason, the largest group first. The newest 50,000 are counted. An admin key that
/// names the tenant `*` gets the groups of all tenants, each with its `tenant`.
#[utoipa::path(
    get, path = "/v1/deliveries/dead", tag = "deliveries", params(DeadQuery),
    responses((status = 200, body = DeadLettersView, description = "The groups"))
)]
pub(crate) async fn dead(
    State(state): State<ApiState>,
    CanReadAll(caller): CanReadAll,
    Query(query): Query<DeadQuery>,
) -> Result<Json<DeadLettersView>, Problem> {
    let limit = match query.limit.as_deref() {
        None => PAGE_DEFAULT,
        Some(text) => text
            .parse()
            .ok()
            .filter(|limit| (1..=PAGE_MAX).contains(limit))
            .ok_or_else(|| Problem::field("limit", format!("a number from 1 to {PAGE_MAX}")))?,
    };
    let tenant = (!caller.sees_all()).then_some(&caller.tenant);
    let found = state.store().dead_letters(tenant, DEAD_READ_MAX).await?;
    let shown = found.groups.iter().take(limit);
    Ok(Json(DeadLettersView {
        data: shown.map(|group| DeadGroupView::of(group, caller.sees_all())).collect(),
        groups: found.groups.len(),
        counted: found.groups.iter().map(|group| group.count).sum(),
        complete: found.is_whole,
    }))
}
