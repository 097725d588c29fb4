//! Shows the HTTP request of an attempt, rendered again from its event.

use axum::Json;
use axum::extract::{Path, State};
use postrider_engine::RebuiltRequest;
use postrider_store::{Cursor, PageRequest};
use serde::Serialize;
use utoipa::ToSchema;

use super::find;
use crate::auth::CanRead;
use crate::problem::Problem;
use crate::routes::PathId;
use crate::state::ApiState;

/// A request to a receiver. Its secrets are masked.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SentRequest)]
pub(crate) struct RequestView {
    /// Always `POST`.
    method: &'static str,
    /// Where the request was sent.
    url: String,
    /// In the order in which they are sent over HTTP/1.1. Tokens, signatures and the values of a
    /// subscription's own headers are masked.
    headers: Vec<HeaderView>,
    /// The body as text; what is not UTF-8 is replaced.
    body: String,
    /// The length of the whole body.
    body_bytes: usize,
    /// Always true: requests are not kept. This one is rendered again from the event, by the code that
    /// sends.
    rebuilt: bool,
    /// Whether the subscription was changed after the attempt: what was sent may have had other headers
    /// or another format.
    changed_since: bool,
}

/// One header.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SentHeader)]
struct HeaderView {
    /// The name of the header, in lower case.
    name: String,
    /// Its value; a secret one is masked.
    value: String,
}

impl RequestView {
    fn of(request: RebuiltRequest) -> Self {
        let RebuiltRequest { url, headers, body, is_changed_since } = request;
        let headers = headers.into_iter().map(|(name, value)| HeaderView { name, value });
        RequestView {
            method: "POST",
            url,
            headers: headers.collect(),
            body_bytes: body.len(),
            body: String::from_utf8_lossy(&body).into_owned(),
            rebuilt: true,
            changed_since: is_changed_since,
        }
    }
}

/// Show the request of an attempt
///
/// As it was sent: headers and body, secrets masked. Requests are not kept: it is rendered again from the
/// event and the subscription as they are now; `changed_since` says where that may differ. Where the
/// subscription was deleted or the payload erased, it cannot be rendered (409).
#[utoipa::path(
    get, path = "/v1/deliveries/{id}/attempts/{number}/request", tag = "deliveries",
    params(
        ("id" = String, Path, description = "The delivery"),
        ("number" = String, Path, description = "The attempt's number, from 1")
    ),
    responses(
        (status = 200, body = RequestView, description = "The request"),
        (status = 409, description = "A problem: `wrong_state`, `event_erased`", body = crate::problem::ProblemBody,
            content_type = "application/problem+json")
    )
)]
pub(crate) async fn request(
    State(state): State<ApiState>,
    CanRead(caller): CanRead,
    Path((id, number)): Path<(String, String)>,
) -> Result<Json<RequestView>, Problem> {
    let id = PathId(id);
    let delivery = find(&state, &caller, &id).await?;
    let unknown = || Problem::not_found("attempt", &number);
    let wanted: u32 = number.parse().ok().filter(|number| *number > 0).ok_or_else(unknown)?;
    let before = Some(wanted - 1).filter(|before| *before > 0);
    let page = PageRequest { limit: 1, cursor: before.map(|n| Cursor(n.to_string())) };
    let found = state.store().attempt_page(&caller.tenant, delivery.id, &page).await?;
    let found = found.items.into_iter().find(|attempt| attempt.number == wanted);
    let attempt = found.ok_or_else(unknown)?;
    super::refuse_erased(&state, &delivery).await?;
    let rebuilt = state.engine().rebuild_request(&delivery, wanted, attempt.started_at).await;
    Ok(Json(RequestView::of(rebuilt.map_err(|error| id.refused("delivery", error))?)))
}
