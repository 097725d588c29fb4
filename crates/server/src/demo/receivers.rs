//! One receiver with several behaviours, each at its own path.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;

/// The paths, and the behaviour of each.
pub(super) const MOODS: [(&str, &str); 6] = [
    ("healthy", "answers at once"),
    ("slow", "answers after 300 ms"),
    ("flaky", "fails every third time"),
    ("broken", "always fails: it is disabled, and tried now and then"),
    ("hangs", "never answers: it holds its own slots and nobody else's"),
    ("comes", "fails, is disabled, then recovers and is enabled by a probe"),
];

/// How many requests the recovering one fails before it succeeds.
const RECOVERS_AFTER: u64 = 106;
const SLOW: Duration = Duration::from_millis(300);

/// The routes of all behaviours.
pub(super) fn router() -> Router {
    let (flaky, comes) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let counted = |count: Arc<AtomicU64>, is_good: fn(u64) -> bool| {
        post(move || async move {
            let n = count.fetch_add(1, Ordering::Relaxed);
            if is_good(n) { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
        })
    };
    Router::new()
        .route("/healthy", post(|| async { StatusCode::OK }))
        .route(
            "/slow",
            post(|| async {
                // Sleeps: the future never resolves, so the timeout passes.
                drop(tokio::time::timeout(SLOW, std::future::pending::<()>()).await);
                StatusCode::OK
            }),
        )
        .route("/flaky", counted(flaky, |n| !n.is_multiple_of(3)))
        .route("/broken", post(|| async { StatusCode::INTERNAL_SERVER_ERROR }))
        .route("/hangs", post(std::future::pending::<StatusCode>))
        .route("/comes", counted(comes, |n| n >= RECOVERS_AFTER))
}
