//! What happens, live: server-sent events.

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use postrider_domain::ids::DestinationId;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Interval, MissedTickBehavior};
use utoipa::IntoParams;

use crate::auth::{self, Caller, CanRead};
use crate::budget::Share;
use crate::live_feed::{Bodies, Chunk, Following, Mark, encoded};
use crate::paging::{Query, parameter};
use crate::problem::Problem;
use crate::state::ApiState;

/// Which events.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct StreamQuery {
    /// `failed` or `delivered`: of the attempts only these. Other events stay.
    outcome: Option<String>,
    /// Of this destination only.
    destination: Option<String>,
    /// `no`: attempts without the body of the response.
    body: Option<String>,
}

/// What a stream wants.
#[derive(Debug, Clone, Copy)]
struct Wish {
    destination: Option<DestinationId>,
    is_delivered: Option<bool>,
}

impl Wish {
    fn wants(&self, mark: &Mark) -> bool {
        let is_there = self.destination.is_none() || self.destination == mark.destination;
        let wanted = self.is_delivered;
        let is_outcome = |is: bool| wanted.is_none_or(|wanted| wanted == is);
        is_there && mark.is_delivered.is_none_or(is_outcome)
    }

    /// Those of a chunk's events that it wants.
    fn pick(&self, chunk: &Chunk) -> Bytes {
        if chunk.marks.iter().all(|(_, mark)| self.wants(mark)) {
            return chunk.bytes.clone();
        }
        let (mut picked, mut begins) = (Vec::new(), 0);
        for (end, mark) in chunk.marks.iter() {
            if self.wants(mark) {
                picked.extend_from_slice(&chunk.bytes[begins..*end]);
            }
            begins = *end;
        }
        picked.into()
    }
}

impl StreamQuery {
    fn read(&self) -> Result<(Wish, Bodies), Problem> {
        let is_delivered = match self.outcome.as_deref() {
            None => None,
            Some("failed") => Some(false),
            Some("delivered") => Some(true),
            Some(_) => return Err(Problem::field("outcome", "one of failed, delivered")),
        };
        let bodies = match self.body.as_deref() {
            None | Some("yes") => Bodies::Shown,
            Some("no") => Bodies::LeftOut,
            Some(_) => return Err(Problem::field("body", "one of yes, no")),
        };
        let destination = parameter("destination", self.destination.as_deref())?;
        Ok((Wish { destination, is_delivered }, bodies))
    }
}

/// A stream that is open.
struct Follower {
    wish: Wish,
    state: ApiState,
    caller: Caller,
    following: Following,
    checks: Interval,
    heartbeats: Interval,
    has_ended: bool,
    _place: Share,
}

/// Follow what happens
///
/// Server-sent events of one tenant, from now on: `attempt`, `transition`, `dead`, `warning`. Events
/// that follow each other within 100 ms come together. What happened before is in the lists;
/// `Last-Event-ID` is ignored. Whoever reads too slowly gets the event `lagged` with how many were
/// missed, and the stream ends: connect again. When its key is revoked or expires, a stream gets the
/// event `closed` and ends within seconds. A comment every few seconds shows that the stream is alive.
#[utoipa::path(
    get, path = "/v1/stream", tag = "stream", params(StreamQuery),
    responses((status = 200, content_type = "text/event-stream", body = String, description = "A stream without end"))
)]
pub(crate) async fn stream(
    State(state): State<ApiState>,
    CanRead(caller): CanRead,
    Query(query): Query<StreamQuery>,
) -> Result<impl IntoResponse, Problem> {
    let (wish, bodies) = query.read()?;
    let place = state.streams().take(&caller.tenant, 1)?;
    let checks = interval(state.settings().stream_check);
    let heartbeats = interval(state.settings().stream_heartbeat);
    let following = state.live_feed().follow(state.engine(), &caller.tenant, bodies);
    let has_ended = false;
    let follower =
        Follower { wish, state, caller, following, checks, heartbeats, has_ended, _place: place };
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
    // The first tick is now.
    interval.reset();
    interval
}

impl Follower {
    /// The next events of this tenant; `None` after the last one, and when the engine has stopped.
    async fn next(&mut self) -> Option<Bytes> {
        while !self.has_ended {
            tokio::select! {
                // First, so that a busy stream is checked as often as a quiet one.
                biased;
                _ = self.checks.tick() => {
                    if !auth::is_still_valid(&self.state, &self.caller).await {
                        let reason = "the key was revoked or has expired";
                        return Some(self.last("closed", &json!({ "reason": reason })));
                    }
                }
                chunk = self.following.chunks.recv() => match chunk {
                    Ok(chunk) => {
                        let events = self.take(&chunk);
                        if !events.is_empty() {
                            return Some(events);
                        }
                    }
                    // The next chunk says how many events that were.
                    Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return None,
                },
                _ = self.heartbeats.tick() => return Some(Bytes::from_static(b": alive\n\n")),
            }
        }
        None
    }

    /// Those events of a chunk that are wanted; nothing where none is.
    fn take(&mut self, chunk: &Chunk) -> Bytes {
        let missed = chunk.before.saturating_sub(self.following.before);
        if missed > 0 {
            return self.last("lagged", &json!({ "missed": missed }));
        }
        self.following.before += chunk.events;
        let events = self.wish.pick(chunk);
        if !events.is_empty() {
            self.heartbeats.reset();
        }
        events
    }

    /// An event after which the stream ends.
    fn last(&mut self, name: &str, data: &serde_json::Value) -> Bytes {
        self.has_ended = true;
        encoded(name, data).into()
    }
}
