//! Adobe Workfront's event subscription API, in front of the same engine: a local double of it.
//!
//! **Routes and wire types only.** What a subscription of Workfront is, what its filters mean and
//! which body is sent is decided in [`postrider_domain::workfront`]; keys, scopes, limits, audit log
//! and idempotency are those of `/v1`, by the same layers. Two things differ: the key may be in the
//! header `sessionID` or `apiKey` ([`key_header`]), and errors have Workfront's shape ([`errors`]).
//!
//! Served only with `workfront.enabled`.

mod document;
pub(crate) mod errors;
mod key_header;
mod schemas;
mod subscriptions;
mod wire;

use axum::Json;
use axum::Router;
use axum::http::StatusCode;
use axum::middleware::{from_fn, from_fn_with_state, map_response};
use axum::response::Response;
use axum::routing::get;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub use self::document::openapi;

use crate::auth;
use crate::state::ApiState;

/// Where all paths of this API begin.
pub(crate) const PREFIX: &str = "/attask/";
/// The path of the subscriptions.
const SUBSCRIPTIONS: &str = "/attask/eventsubscription/api/v1/subscriptions";
/// The path of the OpenAPI document.
const DOCUMENT: &str = "/attask/eventsubscription/openapi.json";

/// All paths, with the layers of `/v1`.
pub(crate) fn router(state: ApiState) -> Router<ApiState> {
    let guarded = paths()
        .route_layer(map_response(as_bad_request))
        .route_layer(from_fn_with_state(state, auth::authenticate))
        .route_layer(from_fn(key_header::as_bearer));
    let (router, _) = guarded.split_for_parts();
    router.route(DOCUMENT, get(async || Json(openapi())))
}

fn paths() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(subscriptions::list, subscriptions::create))
        .routes(routes!(subscriptions::list_deprecated))
        .routes(routes!(subscriptions::change_versions))
        .routes(routes!(subscriptions::show, subscriptions::delete))
        .routes(routes!(subscriptions::change_version))
        .routes(routes!(subscriptions::enable))
}

/// Workfront answers 400 for every body that it does not accept.
async fn as_bad_request(mut response: Response) -> Response {
    if response.status() == StatusCode::UNPROCESSABLE_ENTITY {
        *response.status_mut() = StatusCode::BAD_REQUEST;
    }
    response
}
