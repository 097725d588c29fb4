//! `GET /v1/stream`: server-sent events, read as they arrive.

use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::call::Call;
use crate::client::Client;
use crate::error::Error;
use crate::types::{Attempt, AttemptOutcome, Delivery, Transition};

/// The server sends a sign of life every 15 s.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// A longer event does not come from a Postrider server.
const EVENT_BYTES_MAX: usize = 16 * 1024 * 1024;
const NAME: &str = "GET /v1/stream";

/// What the stream tells.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Happening {
    /// An attempt was made.
    Attempt {
        /// The delivery, after it.
        delivery: Box<Delivery>,
        /// How it went.
        attempt: Box<Attempt>,
    },
    /// A destination changed its state.
    Transition {
        /// The destination.
        destination_id: String,
        /// Its URL.
        url: String,
        /// The change.
        transition: Box<Transition>,
    },
    /// A delivery died.
    Dead {
        /// The delivery.
        delivery: Box<Delivery>,
    },
    /// The reader was too slow: so many events were missed, and the stream ends.
    Lagged {
        /// How many.
        missed: u64,
    },
    /// The key was revoked or has expired, and the stream ends.
    Closed {
        /// Why.
        reason: String,
    },
    /// Something else, with all its fields.
    #[serde(skip)]
    Other(Value),
}

/// What a stream tells.
#[derive(Debug, Clone, Default, Serialize)]
pub struct StreamQuery {
    /// Of the attempts only those that failed, or were delivered.
    pub outcome: Option<AttemptOutcome>,
    /// Of this destination only.
    pub destination: Option<String>,
    /// `no`: attempts without the body of the receiver's answer.
    pub body: Option<String>,
}

/// What happens from now on, live.
pub struct Stream {
    body: Incoming,
    buffer: BytesMut,
}

impl Client {
    /// Follows what happens from now on. It ends when the server ends it; connect again then.
    ///
    /// # Errors
    /// Where no answer arrives, or a refusal.
    pub async fn stream(&self) -> Result<Stream, Error> {
        self.stream_of(&StreamQuery::default()).await
    }

    /// The same with a choice of what it tells.
    ///
    /// # Errors
    /// Where no answer arrives, or a refusal.
    pub async fn stream_of(&self, query: &StreamQuery) -> Result<Stream, Error> {
        let body = self.open(&Call::get("/v1/stream").fields(query)).await?;
        Ok(Stream { body, buffer: BytesMut::new() })
    }
}

impl Stream {
    /// The next event; `None` when the server has ended the stream.
    pub async fn next(&mut self) -> Option<Result<Happening, Error>> {
        loop {
            while let Some(block) = self.block() {
                if let Some(happening) = parse(&block) {
                    return Some(Ok(happening));
                }
            }
            if self.buffer.len() > EVENT_BYTES_MAX {
                return Some(Err(broken("an event is longer than 16 MiB")));
            }
            let frame = match tokio::time::timeout(SILENCE_MAX, self.body.frame()).await {
                Ok(Some(Ok(frame))) => frame,
                Ok(Some(Err(error))) => return Some(Err(broken(&error.to_string()))),
                Ok(None) => return None,
                Err(_) => return Some(Err(broken("the server was silent for a minute"))),
            };
            if let Some(data) = frame.data_ref() {
                self.buffer.extend_from_slice(data);
            }
        }
    }

    /// A whole event: it ends with an empty line. The server ends its lines with `\n` alone.
    fn block(&mut self) -> Option<BytesMut> {
        let end = self.buffer.windows(2).position(|pair| pair == b"\n\n")?;
        let block = self.buffer.split_to(end);
        self.buffer.advance(2);
        Some(block)
    }
}

fn broken(cause: &str) -> Error {
    Error::Connection { call: NAME.to_owned(), cause: cause.to_owned(), attempts: 1 }
}

/// One event; `None` for a comment.
fn parse(block: &[u8]) -> Option<Happening> {
    let text = std::str::from_utf8(block).ok()?;
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let mut value: Value = serde_json::from_str(field("data:")?).ok()?;
    value.as_object_mut()?.insert("event".to_owned(), field("event:")?.into());
    Some(Happening::deserialize(&value).unwrap_or(Happening::Other(value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_events_are_typed_and_others_keep_their_fields() {
        let lagged = parse(b"event: lagged\ndata: {\"missed\":3}").unwrap();
        assert!(matches!(lagged, Happening::Lagged { missed: 3 }));
        let other = parse(b"event: novel\ndata: {\"a\":1}").unwrap();
        assert!(matches!(other, Happening::Other(value) if value["event"] == "novel"));
        assert!(parse(b": a comment").is_none());
    }
}
