//! Events: what happened.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use futures_util::{Stream, StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{get, post_json};
use crate::call::{Call, path};
use crate::client::Client;
use crate::error::Error;
use crate::list::List;
use crate::types::{EventAccepted, EventDetail, EventSummary, Match, NewEvent};

const BATCH_EVENTS_MAX: usize = 1000;
/// Below the server's 16 MiB, so that a batch is never refused for its size alone.
const BATCH_BYTES_MAX: usize = 15 * 1024 * 1024;

/// Events: what happened.
#[derive(Clone, Copy)]
pub struct Events<'a> {
    pub(crate) client: &'a Client,
}

/// Which events.
#[derive(Debug, Clone, Default, Serialize)]
pub struct EventQuery {
    /// Of this type.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// Of this object.
    pub object: Option<String>,
    /// Accepted at this time or later.
    pub since: Option<Timestamp>,
    /// Accepted before this time.
    pub until: Option<Timestamp>,
}

#[derive(Deserialize)]
struct Accepted {
    results: Vec<EventAccepted>,
}

impl Events<'_> {
    /// Sends an event. It returns when the event and all its deliveries are on stable storage.
    ///
    /// # Errors
    /// As every call.
    pub async fn send(&self, event: &NewEvent) -> Result<EventAccepted, Error> {
        post_json(self.client, &["events"], event).await
    }

    /// Sends at most 1000 events in one request, which is accepted whole or refused whole.
    ///
    /// # Errors
    /// As every call.
    pub async fn send_batch(&self, events: &[NewEvent]) -> Result<Vec<EventAccepted>, Error> {
        let mut lines = Vec::new();
        for event in events {
            lines.extend(line(event)?);
        }
        send_lines(self.client, lines.into()).await
    }

    /// Sends any number of events, in as many batches as are needed, each with an idempotency key
    /// of its own. There is one result for each event, in order; where a batch is refused, all
    /// results before it are there. Nothing is sent before the first result is asked for.
    pub fn send_all<'a>(
        &self,
        events: impl IntoIterator<Item = NewEvent, IntoIter: Send + 'a>,
    ) -> SendAll<'a> {
        self.send_stream(stream::iter(events))
    }

    /// The same for events that come one after the other.
    pub fn send_stream<'a>(&self, events: impl Stream<Item = NewEvent> + Send + 'a) -> SendAll<'a> {
        let batches = Batches { events: events.boxed(), lines: Vec::new(), count: 0 };
        let client = self.client.unkeyed();
        let results = stream::try_unfold(batches, move |mut batches| {
            let client = client.clone();
            async move {
                let Some(lines) = batches.next().await? else { return Ok(None) };
                let results = send_lines(&client, lines).await?;
                Ok(Some((stream::iter(results.into_iter().map(Ok)), batches)))
            }
        });
        SendAll { results: results.try_flatten().boxed() }
    }

    /// One event with its payload and its deliveries.
    ///
    /// # Errors
    /// As every call.
    pub async fn get(&self, id: &str) -> Result<EventDetail, Error> {
        get(self.client, &["events", id]).await
    }

    /// Events, newest first.
    pub fn list(&self, query: &EventQuery) -> List<EventSummary> {
        List::new(self.client, path(&["events"]).map(|path| Call::get(path).fields(query)))
    }

    /// Which subscriptions want this event, and why not the others.
    pub fn matches(&self, id: &str) -> List<Match> {
        List::new(self.client, path(&["events", id, "matches"]).map(Call::get))
    }
}

fn line(event: &NewEvent) -> Result<Vec<u8>, Error> {
    let mut line = serde_json::to_vec(event)
        .map_err(|error| Error::Usage(format!("the event is not JSON: {error}")))?;
    line.push(b'\n');
    Ok(line)
}

async fn send_lines(client: &Client, lines: Bytes) -> Result<Vec<EventAccepted>, Error> {
    let call = Call::post(path(&["events", "batch"])?).lines(lines);
    Ok(client.call::<Accepted>(&call).await?.results)
}

/// Events that are divided into batches. `lines` has those of the batch that is being filled.
struct Batches<'a> {
    events: BoxStream<'a, NewEvent>,
    lines: Vec<u8>,
    count: usize,
}

impl Batches<'_> {
    async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        while let Some(event) = self.events.next().await {
            let line = line(&event)?;
            let is_full = self.count == BATCH_EVENTS_MAX
                || (self.count > 0 && self.lines.len() + line.len() > BATCH_BYTES_MAX);
            if is_full {
                self.count = 1;
                return Ok(Some(std::mem::replace(&mut self.lines, line).into()));
            }
            self.count += 1;
            self.lines.extend(line);
        }
        self.count = 0;
        let rest = std::mem::take(&mut self.lines);
        Ok((!rest.is_empty()).then(|| rest.into()))
    }
}

/// One result for each event that is sent, as a stream.
pub struct SendAll<'a> {
    results: BoxStream<'a, Result<EventAccepted, Error>>,
}

impl SendAll<'_> {
    /// The next result; `None` after the last one.
    pub async fn next(&mut self) -> Option<Result<EventAccepted, Error>> {
        self.results.next().await
    }

    /// Sends all of them.
    ///
    /// # Errors
    /// As every call. The batches before the one that failed were accepted.
    pub async fn all(self) -> Result<Vec<EventAccepted>, Error> {
        self.results.try_collect().await
    }
}

impl Stream for SendAll<'_> {
    type Item = Result<EventAccepted, Error>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().results.poll_next_unpin(context)
    }
}
