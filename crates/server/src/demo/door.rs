//! The link to the dashboard: short enough for a narrow terminal, and fresh at each use.
//!
//! It leads to a sign-in link as `postrider serve` prints one, made at that moment. Whoever has the link gets in,
//! so its last part is random.

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use zeroize::Zeroizing;

use crate::serve::SignIn;

#[derive(Clone)]
struct Door {
    word: Zeroizing<String>,
    sign_in: SignIn,
}

/// The route of the link `/go/<word>`.
pub(super) fn router(word: &str, sign_in: SignIn) -> Router {
    let door = Door { word: Zeroizing::new(word.to_owned()), sign_in };
    Router::new().route("/go/{word}", get(go)).with_state(door)
}

async fn go(State(door): State<Door>, Path(word): Path<String>) -> Response {
    if word != *door.word {
        return StatusCode::NOT_FOUND.into_response();
    }
    let link = door.sign_in.link().await;
    match link.as_deref().map(|link| HeaderValue::from_str(link)) {
        Some(Ok(link)) => (StatusCode::SEE_OTHER, [(header::LOCATION, link)]).into_response(),
        Some(Err(_)) | None => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}
