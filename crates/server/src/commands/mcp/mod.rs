//! `postrider mcp`: a Model Context Protocol server on standard input and output, for assistants.
//!
//! It is a client of the public API with the key that it was started with, and can do no more than
//! that key. Tools that change something are there only with `--allow-writes`. Nothing but messages
//! of the protocol is written to standard output.

mod answer;
mod protocol;
mod tools;

use clap::Args;
use serde_json::Value as Json;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};

use super::Context;
use crate::exit::Failure;
use crate::output::line;

/// A longer message does not come from an assistant.
const MESSAGE_BYTES_MAX: u64 = 1024 * 1024;

#[derive(Debug, Args)]
pub(crate) struct Mcp {
    /// Also offer tools that change something: enable, retry and replay. Needs a key with `manage`.
    #[arg(long)]
    allow_writes: bool,
}

pub(crate) async fn run(context: &Context, mcp: Mcp) -> Result<(), Failure> {
    if mcp.allow_writes {
        require_manage(context).await?;
    }
    // A read or a change that fails in passing is repeated, a change with one idempotency key.
    let api = context.client.api().with_retries(2);
    let session = protocol::Session::new(api, mcp.allow_writes);
    let mut input = BufReader::new(tokio::io::stdin());
    loop {
        let mut message = Vec::new();
        let read = (&mut input).take(MESSAGE_BYTES_MAX).read_until(b'\n', &mut message).await?;
        if read == 0 {
            return Ok(());
        }
        if !message.ends_with(b"\n") && u64::try_from(read).is_ok_and(|n| n == MESSAGE_BYTES_MAX) {
            return Err(Failure::failed("a message of the assistant is longer than 1 MiB"));
        }
        if let Some(answer) = session.answer(&message).await {
            line(&answer.to_string())?;
        }
    }
}

/// Refuses to offer changes that the server would refuse anyway.
async fn require_manage(context: &Context) -> Result<(), Failure> {
    let session = context.get("/v1/session", &[]).await?;
    let scopes = session["scopes"].as_array().map(Vec::as_slice).unwrap_or_default();
    if scopes.iter().filter_map(Json::as_str).any(|scope| matches!(scope, "manage" | "admin")) {
        return Ok(());
    }
    Err(Failure::usage("--allow-writes needs a key with the scope manage; this one has it not"))
}
