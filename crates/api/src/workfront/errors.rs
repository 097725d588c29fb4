//! Errors in Workfront's shape: an object `error` with a `message`.
//!
//! Every layer makes problem documents; the outermost one turns them into this shape, so that it
//! also holds for unknown paths, refused keys and timeouts. `code` and `field` are those of the
//! problem document.

use axum::body::Body;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use http_body_util::BodyExt as _;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::problem::{Code, PROBLEM_JSON};

/// An error.
#[derive(Debug, Default, Serialize, ToSchema)]
#[schema(as = Error)]
pub(crate) struct ErrorBody {
    error: ErrorDetail,
}

/// What is wrong.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = ErrorDetail)]
struct ErrorDetail {
    /// What is wrong this time, and what to do.
    #[serde(alias = "detail")]
    message: String,
    /// The error in a few words.
    title: String,
    /// The stable name of the error, for programs; the same as in `/v1`.
    code: String,
    /// The offending field.
    field: Option<String>,
}

/// Turns a problem document into Workfront's shape. Other answers stay as they are.
pub(crate) async fn reshape(response: Response) -> Response {
    let kind = response.headers().get(CONTENT_TYPE);
    if kind.is_none_or(|kind| kind != PROBLEM_JSON) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    // A problem document is in memory; reading it cannot fail.
    let bytes = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let mut error: ErrorDetail = serde_json::from_slice(&bytes).unwrap_or_default();
    if error.code == Code::Unauthorized.as_str() {
        error.message = "no valid key: send one in the header sessionID or apiKey".to_owned();
    }
    let shaped = serde_json::to_vec(&ErrorBody { error }).unwrap_or_default();
    if parts.status == StatusCode::UNPROCESSABLE_ENTITY {
        parts.status = StatusCode::BAD_REQUEST;
    }
    parts.headers.remove(CONTENT_LENGTH);
    parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Response::from_parts(parts, Body::from(shaped))
}
