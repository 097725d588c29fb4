//! A receiver: axum middleware that lets only signed webhooks through.

#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "an example reads its environment and prints"
)]

use std::sync::Arc;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::{Router, routing::post};
use postrider_client::Verifier;

/// Answers 401 unless one of the secrets has signed the raw body.
async fn postrider(State(secrets): State<Arc<Verifier>>, request: Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    let Ok(body) = to_bytes(body, 2 << 20).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    match secrets.verify(&body, &head.headers) {
        Ok(_) => next.run(Request::from_parts(head, Body::from(body))).await,
        Err(error) => (StatusCode::UNAUTHORIZED, error.code()).into_response(),
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let secrets = Arc::new(Verifier::new([std::env::var("WEBHOOK_SECRET")?])?);
    let hook = async |body: Bytes| println!("verified {}", String::from_utf8_lossy(&body));
    let app =
        Router::new().route("/hook", post(hook)).layer(from_fn_with_state(secrets, postrider));
    let port: u16 = std::env::var("PORT")?.parse()?;
    axum::serve(tokio::net::TcpListener::bind(("127.0.0.1", port)).await?, app).await?;
    Ok(())
}
