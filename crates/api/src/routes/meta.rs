//! The server itself: liveness, readiness, metrics, documentation.

use std::sync::OnceLock;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use serde::Serialize;
use utoipa::ToSchema;

use crate::auth;
use crate::problem::{Code, Problem};
use crate::state::ApiState;

/// The state of the server.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Health {
    /// `ok` or `ready`.
    status: &'static str,
}

/// Liveness
///
/// The process answers.
#[utoipa::path(
    get, path = "/healthz", tag = "server", security(()),
    responses((status = 200, body = Health, description = "It answers"))
)]
pub(crate) async fn healthz() -> Json<Health> {
    Json(Health { status: "ok" })
}

/// Readiness
///
/// The server can accept events.
#[utoipa::path(
    get, path = "/readyz", tag = "server", security(()),
    responses(
        (status = 200, body = Health, description = "Ready"),
        (status = 503, body = crate::problem::ProblemBody, content_type = "application/problem+json", description = "Not now")
    )
)]
pub(crate) async fn readyz(State(state): State<ApiState>) -> Result<Json<Health>, Problem> {
    let not_ready = |what| Problem::new(Code::Unavailable, what);
    let gauges = state.engine().gauges().await;
    gauges.map_err(|_| not_ready("the engine has stopped"))?;
    let check = state.store().check().await;
    check.map_err(|_| not_ready("the store would not take an event now"))?;
    Ok(Json(Health { status: "ready" }))
}

/// Metrics
///
/// In the text format of Prometheus. If the operator has set `metrics.key`, the request needs that
/// key as a bearer token.
#[utoipa::path(
    get, path = "/metrics", tag = "server", security(()),
    responses(
        (status = 200, content_type = "text/plain", body = String, description = "Metrics"),
        (status = 401, body = crate::problem::ProblemBody, content_type = "application/problem+json", description = "The key of the metrics is needed"),
        (status = 404, body = crate::problem::ProblemBody, content_type = "application/problem+json", description = "Switched off")
    )
)]
pub(crate) async fn metrics(
    State(state): State<ApiState>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    if state.settings().metrics_elsewhere {
        let detail = "the metrics have an address of their own: the operator knows it";
        return Err(Problem::new(Code::UnknownPath, detail));
    }
    metrics_alone(State(state), headers).await
}

/// The metrics, on the API's or a separate listener.
pub(crate) async fn metrics_alone(
    State(state): State<ApiState>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    auth::check_metrics_key(&state, &headers)?;
    let render = state.metrics().ok_or_else(|| {
        Problem::new(
            Code::UnknownPath,
            "this server shows no metrics: the operator switched them off",
        )
    })?;
    let content_type = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    Ok((content_type, render()).into_response())
}

/// This document
///
/// OpenAPI 3.1, generated from the server's code.
#[utoipa::path(
    get, path = "/openapi.json", tag = "server", security(()),
    responses((status = 200, content_type = "application/json", body = Object, description = "The OpenAPI document"))
)]
pub(crate) async fn openapi_json() -> Response {
    static DOCUMENT: OnceLock<Bytes> = OnceLock::new();
    let document = DOCUMENT
        .get_or_init(|| serde_json::to_vec(&crate::openapi()).map(Bytes::from).unwrap_or_default());
    ([(header::CONTENT_TYPE, "application/json")], document.clone()).into_response()
}
