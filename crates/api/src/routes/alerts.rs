//! The targets of alerts, for admins: how they do, and whether a message arrives.

use axum::Json;
use axum::extract::State;
use postrider_domain::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::auth::IsAdmin;
use crate::body::StrictOrNone;
use crate::problem::{Code, Problem};
use crate::process::{AlertTargetState, AlertTrial};
use crate::state::ApiState;
use crate::wire::millis;

/// The targets of alerts.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AlertTargetList)]
pub(crate) struct TargetList {
    /// In the order of the settings.
    data: Vec<TargetView>,
}

/// A target of alerts.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AlertTarget)]
struct TargetView {
    /// Its name in the settings.
    #[schema(example = "ops")]
    name: String,
    /// `webhook`, `slack` or `email`.
    #[schema(example = "email")]
    kind: &'static str,
    /// Where it is: the origin of a URL, or addresses. Secrets are left out.
    #[schema(example = "ops@example.com")]
    to: String,
    /// Messages that were sent.
    messages: u64,
    /// When the last one was sent.
    #[schema(value_type = Option<String>, format = DateTime)]
    last_message_at: Option<Timestamp>,
    /// Consecutive failures.
    failures: u32,
    /// When the next try is made, after a failure.
    #[schema(value_type = Option<String>, format = DateTime)]
    next_try_at: Option<Timestamp>,
    /// The conditions that the target was told of and that are not resolved.
    firing: Vec<FiringView>,
}

/// A condition that lasts.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = FiringAlert)]
struct FiringView {
    /// The kind of the alert.
    #[schema(example = "destination_disabled")]
    kind: &'static str,
    /// How many things were affected when the target was told last.
    count: u64,
}

impl TargetView {
    fn of(state: AlertTargetState) -> Self {
        let firing = state.firing.iter().map(|(kind, count)| FiringView { kind, count: *count });
        TargetView {
            firing: firing.collect(),
            name: state.name,
            kind: state.kind,
            to: state.to,
            messages: state.messages,
            last_message_at: state.last_message_at,
            failures: state.failures,
            next_try_at: state.next_try_at,
        }
    }
}

/// Which target is tried.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = AlertTest)]
pub(crate) struct TestBody {
    /// The name of a target; all of them if it is left out.
    #[serde(default)]
    #[schema(example = "ops")]
    target: Option<String>,
}

/// The outcomes of test messages.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AlertTestResults)]
pub(crate) struct TrialList {
    /// In the order of the settings.
    data: Vec<TrialView>,
}

/// The outcome of a test message.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AlertTestResult)]
struct TrialView {
    /// The target's name in the settings.
    #[schema(example = "ops")]
    target: String,
    /// `webhook`, `slack` or `email`.
    #[schema(example = "slack")]
    kind: &'static str,
    /// Where it is. Secrets are left out.
    to: String,
    /// `sent` where the target accepted the message, else `failed`.
    #[schema(example = "sent")]
    outcome: &'static str,
    /// How long it took.
    duration_ms: u64,
    /// Why it failed.
    error: Option<String>,
}

impl TrialView {
    fn of(trial: AlertTrial) -> Self {
        TrialView {
            outcome: if trial.error.is_none() { "sent" } else { "failed" },
            duration_ms: millis(trial.took),
            target: trial.target,
            kind: trial.kind,
            to: trial.to,
            error: trial.error,
        }
    }
}

/// List the targets of alerts
///
/// Who is told when something is wrong (the setting `alerts.targets`), as the node that answers knows it.
#[utoipa::path(
    get, path = "/v1/alerts", tag = "administration",
    responses((status = 200, body = TargetList, description = "The targets"))
)]
pub(crate) async fn list(
    State(state): State<ApiState>,
    IsAdmin(_): IsAdmin,
) -> Result<Json<TargetList>, Problem> {
    let targets = state.process().alerts().map(|desk| desk.targets()).unwrap_or_default();
    Ok(Json(TargetList { data: targets.into_iter().map(TargetView::of).collect() }))
}

/// Test the targets of alerts
///
/// Sends a test message to every target, or to one, and answers with the outcomes. It waits for at most half
/// a minute.
#[utoipa::path(
    post, path = "/v1/alerts/test", tag = "administration", request_body = TestBody,
    responses((status = 200, body = TrialList, description = "The outcomes"))
)]
pub(crate) async fn test(
    State(state): State<ApiState>,
    IsAdmin(_): IsAdmin,
    StrictOrNone(body): StrictOrNone<TestBody>,
) -> Result<Json<TrialList>, Problem> {
    let none = || {
        let detail = "there is no target of alerts: set alerts.targets and start the server again";
        Problem::new(Code::WrongState, detail)
    };
    let desk = state.process().alerts().ok_or_else(none)?;
    let only = body.target.as_deref();
    if let Some(name) = only.filter(|name| desk.targets().iter().all(|one| one.name != **name)) {
        return Err(Problem::field(
            "target",
            format!("there is no target of alerts named {name:?}"),
        ));
    }
    let data = desk.test(only).await.into_iter().map(TrialView::of).collect();
    Ok(Json(TrialList { data }))
}
