//! `postrider tail`: follows attempts live.

use clap::Args;
use http_body_util::BodyExt as _;
use serde_json::Value as Json;

use super::{Context, query};
use crate::exit::Failure;
use crate::output::{Colour, Output, escaped, line, part};

/// A longer line does not come from a Postrider server.
const LINE_BYTES_MAX: usize = 1024 * 1024;

#[derive(Debug, Args)]
pub(crate) struct Tail {
    /// Stop after this many attempts.
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Of the attempts only those that failed, or were delivered.
    #[arg(long, value_name = "failed|delivered")]
    outcome: Option<String>,
    /// Of this destination only.
    #[arg(long, value_name = "ID")]
    destination: Option<String>,
}

pub(crate) async fn run(context: &Context, tail: Tail) -> Result<(), Failure> {
    let (outcome, destination) = (tail.outcome, tail.destination);
    let query = query(vec![("outcome", outcome), ("destination", destination)]);
    let mut body = context.client.follow("/v1/stream", &query).await?;
    let mut events = Events::default();
    let mut seen = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame
            .map_err(|error| Failure::unreachable(context.client.server(), &error.to_string()))?;
        let Some(bytes) = frame.data_ref() else { continue };
        for (name, data) in events.take(bytes)? {
            print(context, &name, &data)?;
            seen += 1;
            if tail.count == Some(seen) {
                return Ok(());
            }
        }
    }
    Err(Failure::unreachable(context.client.server(), "the server ended the stream"))
}

fn print(context: &Context, name: &str, data: &str) -> Result<(), Failure> {
    let output = context.output;
    let value: Json = serde_json::from_str(data).unwrap_or_else(|_| Json::String(data.to_owned()));
    if output.json {
        return Ok(line(&serde_json::json!({ "event": name, "data": value }).to_string())?);
    }
    let text = match name {
        "attempt" => attempt(output, &value),
        _ => escaped(data),
    };
    Ok(line(&format!("{}  {text}", output.paint(Colour::Dim, &escaped(name))))?)
}

/// One attempt in one line.
fn attempt(output: Output, value: &Json) -> String {
    let (delivery, attempt) = (&value["delivery"], &value["attempt"]);
    let outcome = attempt["outcome"].as_str().unwrap_or("-");
    let how = if attempt["status"].is_null() { "error" } else { "status" };
    let next = if delivery["next_attempt_at"].is_null() {
        String::new()
    } else {
        format!(", next {}", part(delivery, "next_attempt_at"))
    };
    format!(
        "{}  {}  {}  #{} {} {} in {} ms; {}{next}",
        part(attempt, "started_at"),
        part(delivery, "id"),
        part(delivery, "type"),
        part(attempt, "number"),
        output.state(outcome),
        part(attempt, how),
        part(attempt, "duration_ms"),
        output.state(delivery["state"].as_str().unwrap_or("-")),
    )
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
    use serde_json::json;

    use super::*;

    #[test]
    fn an_attempt_is_one_line() {
        let value = json!({
            "delivery": {"id": "dlv_1", "type": "a.b", "state": "waiting", "next_attempt_at": "T2"},
            "attempt": {
                "started_at": "T1", "number": 2, "outcome": "failed", "status": null,
                "error": "refused\u{1b}", "duration_ms": 7,
            },
        });
        let output = Output::new(true, true);
        assert_eq!(
            attempt(output, &value),
            "T1  dlv_1  a.b  #2 failed refused\\u{1b} in 7 ms; waiting, next T2"
        );
    }

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
