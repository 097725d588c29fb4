//! The limits of a tenant, and their current use.

use axum::Json;
use axum::extract::State;
use postrider_engine::{QuotaReached, QuotaUse, Whose};
use serde::Serialize;
use utoipa::ToSchema;

use crate::auth::CanRead;
use crate::problem::{Code, Problem};
use crate::state::ApiState;

/// The limits of the tenant.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Limits)]
pub(crate) struct LimitsView {
    /// One entry for each limit.
    data: Vec<LimitView>,
    /// What the tenant may do in a second.
    rates: Vec<RateView>,
}

/// A rate.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RateLimit)]
pub(crate) struct RateView {
    /// `requests_per_second` or `events_per_second`.
    name: &'static str,
    /// The limit; null if there is none.
    limit: Option<u32>,
    /// Whether it is the tenant's own limit, and not the server's.
    own: bool,
    /// The operator's setting for all tenants.
    #[schema(example = "limits.tenant_requests_per_second")]
    setting: &'static str,
}

/// A limit and its current use.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Limit)]
pub(crate) struct LimitView {
    /// The name of the limit.
    #[schema(example = "subscriptions")]
    name: &'static str,
    /// The current use. `unfinished_bytes` is an estimate.
    used: u64,
    /// The limit; null if there is none.
    limit: Option<u64>,
    /// Whether it is the tenant's own limit, and not the server's.
    own: bool,
    /// The operator's setting for all tenants.
    #[schema(example = "limits.tenant_subscriptions")]
    setting: &'static str,
}

impl LimitView {
    fn of(one: &QuotaUse) -> Self {
        let QuotaUse { quota, used, limit, is_own } = *one;
        LimitView { name: quota.name(), used, limit, own: is_own, setting: quota.setting() }
    }
}

/// Show the limits of the tenant
///
/// Each with its current use.
#[utoipa::path(
    get, path = "/v1/limits", tag = "ledger",
    responses((status = 200, body = LimitsView, description = "The limits"))
)]
pub(crate) async fn limits(
    State(state): State<ApiState>,
    CanRead(caller): CanRead,
) -> Result<Json<LimitsView>, Problem> {
    let all = state.engine().quota_use(&caller.tenant).await?;
    let own = state.engine().limits_of(&caller.tenant);
    let rate = |name, setting, own: Option<u32>, limit: Option<u32>| RateView {
        name,
        limit: own.or(limit),
        own: own.is_some(),
        setting,
    };
    let requests = state.settings().tenant_rate.map(|rate| rate.per_second);
    let events = state.engine().events_per_second();
    let rates = vec![
        rate(
            "requests_per_second",
            "limits.tenant_requests_per_second",
            own.requests_per_second,
            requests,
        ),
        rate("events_per_second", "limits.tenant_events_per_second", own.events_per_second, events),
    ];
    Ok(Json(LimitsView { data: all.iter().map(LimitView::of).collect(), rates }))
}

impl From<QuotaReached> for Problem {
    fn from(reached: QuotaReached) -> Self {
        let code = match reached.quota.whose() {
            Whose::Tenant => Code::QuotaReached,
            Whose::Server => Code::ServerFull,
        };
        let seconds = reached.retry_after.as_secs().max(1);
        Problem::new(code, reached.to_string()).retry_after(seconds)
    }
}
