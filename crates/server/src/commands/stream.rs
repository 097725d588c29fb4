//! The live stream of the API (`GET /v1/stream`): attempts and what else happens, as it happens.

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::Value as Json;

use super::Context;
use crate::exit::Failure;

/// A longer line does not come from a Postrider server.
const LINE_BYTES_MAX: usize = 1024 * 1024;

/// One event of the stream.
pub(super) struct Happening {
    /// `attempt`, `transition`, `dead`, `warning`, `lagged`, `closed`, …
    pub(super) name: String,
    pub(super) data: Json,
}

/// An open stream.
pub(super) struct Stream<'a> {
    context: &'a Context,
    body: Incoming,
    events: Events,
    ready: std::collections::VecDeque<Happening>,
}

impl<'a> Stream<'a> {
    /// Opens a stream. What happens from now on comes in it.
    pub(super) async fn open(
        context: &'a Context,
        query: &[(&str, String)],
    ) -> Result<Stream<'a>, Failure> {
        let body = context.follow("/v1/stream", query).await?;
        Ok(Stream { context, body, events: Events::default(), ready: [].into() })
    }

    /// Waits for the next event; may be dropped and called again without losing any.
    pub(super) async fn next(&mut self) -> Result<Happening, Failure> {
        loop {
            if let Some(ready) = self.ready.pop_front() {
                return Ok(ready);
            }
            let lost = |why: &str| Failure::unreachable(self.context.client.server(), why);
            let frame =
                self.body.frame().await.ok_or_else(|| lost("the server ended the stream"))?;
            let frame = frame.map_err(|error| lost(&error.to_string()))?;
            let Some(bytes) = frame.data_ref() else { continue };
            for (name, data) in self.events.take(bytes)? {
                let data = serde_json::from_str(&data).unwrap_or(Json::String(data));
                self.ready.push_back(Happening { name, data });
            }
        }
    }
}

/// Parses server-sent events that arrive in pieces.
#[derive(Default)]
pub(crate) struct Events {
    pending: Vec<u8>,
    name: String,
    data: String,
}

impl Events {
    /// Adds bytes and returns the events that they complete.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<Vec<(String, String)>, Failure> {
        let mut complete = Vec::new();
        self.pending.extend_from_slice(bytes);
        while let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.pending.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            let line = line.trim_end_matches(['\n', '\r']);
            if line.is_empty() {
                let (name, data) = (std::mem::take(&mut self.name), std::mem::take(&mut self.data));
                if !data.is_empty() {
                    complete.push((name, data));
                }
                continue;
            }
            let (field, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "event" => value.clone_into(&mut self.name),
                "data" if self.data.is_empty() => value.clone_into(&mut self.data),
                "data" => {
                    self.data.push('\n');
                    self.data.push_str(value);
                }
                _ => {}
            }
        }
        if self.pending.len() + self.data.len() > LINE_BYTES_MAX {
            return Err(Failure::failed("the server sent a line that is too long"));
        }
        Ok(complete)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_parsed_however_they_are_split() {
        let text = ": hello\n\nevent: attempt\ndata: {\"a\":\r\ndata: 1}\n\ndata:x\n\n";
        let expected =
            [("attempt".to_owned(), "{\"a\":\n1}".to_owned()), (String::new(), "x".to_owned())];
        for size in 1..=text.len() {
            let mut events = Events::default();
            let found: Vec<_> = (text.as_bytes().chunks(size))
                .flat_map(|piece| events.take(piece).unwrap())
                .collect();
            assert_eq!(found, expected, "in pieces of {size}");
        }
    }

    #[test]
    fn an_endless_line_is_refused() {
        let mut events = Events::default();
        assert!(events.take(&vec![b'x'; LINE_BYTES_MAX]).is_ok());
        assert!(events.take(b"x").is_err());
    }
}
