//! The live stream of server-sent events.

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde_json::json;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Interval, MissedTickBehavior};

use crate::auth::{self, Caller, CanRead};
use crate::budget::Share;
use crate::live_feed::{Chunk, Following, encoded};
use crate::problem::Problem;
use crate::state::ApiState;

/// An open stream.
struct Follower {
    state: ApiState,
    caller: Caller,
    following: Following,
    checks: Interval,
    heartbeats: Interval,
    has_ended: bool,
    _place: Share,
}

/// Follow events live
///
/// Server-sent events of one tenant, from now on: `attempt`, `transition`, `dead`, `warning`.
/// Events that follow each other within 100 ms come together. Earlier events are in the lists;
/// `Last-Event-ID` is ignored. A client that reads too slowly gets the event `lagged` with the
/// number of missed events, and the stream ends: connect again. When its key is revoked or expires,
/// a stream gets the event `closed` and ends within seconds. A comment every few seconds shows that
/// the stream is alive.
#[utoipa::path(
    get, path = "/v1/stream", tag = "stream",
    responses((status = 200, content_type = "text/event-stream", body = String, description = "A stream without end"))
)]
pub(crate) async fn stream(
    State(state): State<ApiState>,
    CanRead(caller): CanRead,
) -> Result<impl IntoResponse, Problem> {
    let place = state.streams().take(&caller.tenant, 1)?;
    let checks = interval(state.settings().stream_check);
    let heartbeats = interval(state.settings().stream_heartbeat);
    let following = state.live_feed().follow(state.engine(), &caller.tenant);
    let follower =
        Follower { state, caller, following, checks, heartbeats, has_ended: false, _place: place };
    let chunks = stream::unfold(follower, |mut follower| async move {
        let chunk = follower.next().await?;
        Some((Ok::<_, std::convert::Infallible>(chunk), follower))
    });
    let mut response = Response::new(Body::from_stream(chunks));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Ok(response)
}

fn interval(every: std::time::Duration) -> Interval {
    let mut interval = tokio::time::interval(every);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first tick would be immediate.
    interval.reset();
    interval
}

impl Follower {
    /// The next events of this tenant; `None` after the last one, and when the engine has shut
    /// down.
    async fn next(&mut self) -> Option<Bytes> {
        while !self.has_ended {
            tokio::select! {
                // The key is checked first, so that a busy stream is checked as often as a quiet
                // one.
                biased;
                _ = self.checks.tick() => {
                    if !auth::is_still_valid(&self.state, &self.caller).await {
                        let reason = "the key was revoked or has expired";
                        return Some(self.last("closed", &json!({ "reason": reason })));
                    }
                }
                chunk = self.following.chunks.recv() => match chunk {
                    Ok(chunk) => return Some(self.take(chunk)),
                    // The next chunk says how many events were missed.
                    Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return None,
                },
                _ = self.heartbeats.tick() => return Some(Bytes::from_static(b": alive\n\n")),
            }
        }
        None
    }

    fn take(&mut self, chunk: Chunk) -> Bytes {
        let missed = chunk.before.saturating_sub(self.following.before);
        if missed > 0 {
            return self.last("lagged", &json!({ "missed": missed }));
        }
        self.following.before += chunk.events;
        self.heartbeats.reset();
        chunk.bytes
    }

    /// The last event of the stream.
    fn last(&mut self, name: &str, data: &serde_json::Value) -> Bytes {
        self.has_ended = true;
        encoded(name, data).into()
    }
}
