//! What happens, live: server-sent events.

use std::convert::Infallible;

use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::stream::{self, Stream};
use postrider_engine::EngineEvent;
use serde_json::json;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Interval, MissedTickBehavior};

use crate::auth::{self, Caller, CanRead};
use crate::budget::Share;
use crate::problem::Problem;
use crate::state::ApiState;
use crate::wire::live;

/// A stream that is open.
struct Follower {
    state: ApiState,
    caller: Caller,
    events: Receiver<EngineEvent>,
    checks: Interval,
    has_ended: bool,
    _place: Share,
}

/// Follow what happens
///
/// Server-sent events of one tenant, from now on: `attempt`, `transition`, `dead`, `warning`. What
/// happened before is in the lists; `Last-Event-ID` is ignored. Whoever reads too slowly gets the
/// event `lagged` with how many were missed, and the stream ends: connect again. When its key is
/// revoked or expires, a stream gets the event `closed` and ends within seconds. A comment every few
/// seconds shows that the stream is alive.
#[utoipa::path(
    get, path = "/v1/stream", tag = "stream",
    responses((status = 200, content_type = "text/event-stream", body = String, description = "A stream without end"))
)]
pub(crate) async fn stream(
    State(state): State<ApiState>,
    CanRead(caller): CanRead,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Problem> {
    let place = state.streams().take(&caller.tenant, 1)?;
    let heartbeat = state.settings().stream_heartbeat;
    let mut checks = tokio::time::interval(state.settings().stream_check);
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let events = state.engine().subscribe();
    let follower = Follower { state, caller, events, checks, has_ended: false, _place: place };
    let events = stream::unfold(follower, |mut follower| async move {
        let event = follower.next().await?;
        Some((Ok(event), follower))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(heartbeat).text("alive")))
}

impl Follower {
    /// The next event of this tenant; `None` after the last one, and when the engine has stopped.
    async fn next(&mut self) -> Option<Event> {
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
                event = self.events.recv() => match event {
                    Ok(event) => {
                        if let Some((name, data)) = live::told(&self.caller.tenant, &event) {
                            return Some(Event::default().event(name).data(data.to_string()));
                        }
                    }
                    Err(RecvError::Lagged(missed)) => {
                        return Some(self.last("lagged", &json!({ "missed": missed })));
                    }
                    Err(RecvError::Closed) => return None,
                },
            }
        }
        None
    }

    /// An event after which the stream ends.
    fn last(&mut self, name: &str, data: &serde_json::Value) -> Event {
        self.has_ended = true;
        Event::default().event(name).data(data.to_string())
    }
}
