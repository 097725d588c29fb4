//! What happens, live: server-sent events.

use std::convert::Infallible;

use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::stream::{self, Stream};
use postrider_engine::EngineEvent;
use serde_json::json;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use crate::auth::{Caller, CanRead};
use crate::problem::{Code, Problem};
use crate::state::ApiState;
use crate::wire::live;

/// Where a stream stands.
enum Stage {
    Open(Receiver<EngineEvent>),
    Ended,
}

/// Follow what happens
///
/// Server-sent events of one tenant, from now on: `attempt`, `transition`, `dead`, `warning`. What
/// happened before is in the lists; `Last-Event-ID` is ignored. Whoever reads too slowly gets the
/// event `lagged` with how many were missed, and the stream ends: connect again. A comment every
/// few seconds shows that the stream is alive.
#[utoipa::path(
    get, path = "/v1/stream", tag = "stream",
    responses((status = 200, content_type = "text/event-stream", body = String, description = "A stream without end"))
)]
pub(crate) async fn stream(
    State(state): State<ApiState>,
    CanRead(caller): CanRead,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Problem> {
    let place = state.place_for_stream().ok_or_else(|| {
        let detail = "too many streams are open: close one, or try again later";
        Problem::new(Code::Unavailable, detail)
    })?;
    let heartbeat = state.settings().stream_heartbeat;
    let start = (Stage::Open(state.engine().subscribe()), caller, place);
    let events = stream::unfold(start, |(stage, caller, place)| async move {
        let Stage::Open(mut events) = stage else { return None };
        let (event, is_last) = next(&mut events, &caller).await?;
        let stage = if is_last { Stage::Ended } else { Stage::Open(events) };
        Some((Ok(event), (stage, caller, place)))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(heartbeat).text("alive")))
}

/// The next event of this tenant, and whether it is the last; `None` when the engine has stopped.
async fn next(events: &mut Receiver<EngineEvent>, caller: &Caller) -> Option<(Event, bool)> {
    loop {
        match events.recv().await {
            Ok(event) => {
                if let Some((name, data)) = live::told(&caller.tenant, &event) {
                    return Some((Event::default().event(name).data(data.to_string()), false));
                }
            }
            Err(RecvError::Lagged(missed)) => {
                let data = json!({ "missed": missed }).to_string();
                return Some((Event::default().event("lagged").data(data), true));
            }
            Err(RecvError::Closed) => return None,
        }
    }
}
