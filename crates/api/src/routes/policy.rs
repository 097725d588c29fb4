//! The policy that is in force on this server: retries, circuit, limits and retention.

use axum::Json;
use axum::extract::State;

use crate::auth::CanRead;
use crate::problem::Problem;
use crate::state::ApiState;
use crate::wire::policy::PolicyView;

/// Show the policy
///
/// The numbers that are in force on this server: the schedule of retries, the thresholds of the circuit,
/// the limits of an attempt, retention. An operator may change them while the server runs.
#[utoipa::path(
    get, path = "/v1/policy", tag = "server",
    responses((status = 200, body = PolicyView, description = "The policy"))
)]
pub(crate) async fn policy(
    State(state): State<ApiState>,
    CanRead(_): CanRead,
) -> Result<Json<PolicyView>, Problem> {
    Ok(Json(PolicyView::of(&state.policy())))
}
