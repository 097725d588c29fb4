//! A forecast of what a policy does in an outage. **Nothing is stored and nothing is sent.**

use axum::Json;
use axum::extract::State;
use postrider_domain::forecast::{self, ForecastError};
use postrider_domain::ids::SubscriptionId;
use postrider_domain::policy::Policy;
use postrider_engine::Options;

use super::busy;
use crate::auth::{Caller, CanRead};
use crate::body::Strict;
use crate::paging::parameter;
use crate::problem::{Code, Problem};
use crate::state::ApiState;
use crate::wire::simulation::{Plan, PlanView, SimulationBody, SimulationView};

/// Simulate an outage
///
/// What a policy would do while one URL is down: the same figures as `postrider simulate --json`, from
/// the same decisions as the server's. Nothing is stored and nothing is sent. A question that takes too
/// long to compute is refused with 422 `too_much_work`.
#[utoipa::path(
    post, path = "/v1/simulate", tag = "server",
    request_body = SimulationBody,
    responses((status = 200, body = SimulationView, description = "What comes of it"))
)]
pub(crate) async fn simulate(
    State(state): State<ApiState>,
    CanRead(caller): CanRead,
    Strict(body): Strict<SimulationBody>,
) -> Result<Json<SimulationView>, Problem> {
    let scenario = body.scenario(Options::default().destination_in_flight_max)?;
    let subscription = subscription_policy(&state, &caller, body.subscription.as_deref()).await?;
    let plans = body.plans(&state.policy(), subscription)?;
    let limits = state.settings().simulation_work;
    let mut answers = Vec::with_capacity(plans.len());
    for plan in plans {
        // One job for each plan, so that work of other tenants runs between two plans.
        let asked = scenario.clone();
        let work = move || match &plan {
            Plan::Policy(name, policy) => forecast::forecast_within(&asked, policy, limits)
                .map(|forecast| PlanView::of(name, &forecast)),
            Plan::Preset(preset) => {
                preset.forecast(&asked, limits).map(|forecast| PlanView::of(plan.name(), &forecast))
            }
        };
        let answer = state.engine().compute(&caller.tenant, work).await.map_err(busy)?;
        answers.push(answer.map_err(refused)?);
    }
    Ok(Json(SimulationView {
        outage_seconds: scenario.outage.as_secs_f64(),
        deliveries: scenario.traffic.deliveries,
        per_seconds: scenario.traffic.per.as_secs_f64(),
        healthy_before_seconds: scenario.healthy_before.as_secs_f64(),
        enabled_after_seconds: scenario.enabled_after.map(|after| after.as_secs_f64()),
        plans: answers,
    }))
}

/// The policy of a subscription of the caller's tenant. Its recovery mode is its destination's.
async fn subscription_policy(
    state: &ApiState,
    caller: &Caller,
    id: Option<&str>,
) -> Result<Option<Policy>, Problem> {
    let Some(id) = parameter::<SubscriptionId>("subscription", id)? else { return Ok(None) };
    let record = state.store().subscription(&caller.tenant, id).await?;
    let unknown = || Problem::field("subscription", "there is no such subscription");
    let subscription = record.ok_or_else(unknown)?.subscription;
    let mut policy = state.policy().for_subscription(&subscription.policy);
    let shared = state.engine().destination_policy(&caller.tenant, subscription.destination);
    policy.recovery.mode = shared.recovery_mode.0;
    Ok(Some(policy))
}

fn refused(error: ForecastError) -> Problem {
    match error {
        ForecastError::Rate => Problem::field("deliveries", error),
        ForecastError::Outage => Problem::field("outage_seconds", error),
        ForecastError::TooManyWithJitter(_) => Problem::field("policy.retry.jitter", error),
        ForecastError::TooMuchWork => Problem::new(Code::TooMuchWork, error.to_string()),
    }
}
