//! The answer to a connection or a request over a limit.
//!
//! A connection that cannot be served is answered at once, before it has sent a request, and
//! closed. So its client learns the reason and when to retry, instead of waiting.

use std::time::Duration;

use postrider_api::problem::{Code, PROBLEM_JSON, Problem};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::connection_limits::LimitReached;

/// Seconds after which a refused client may try again.
const RETRY_AFTER_SECONDS: u64 = 5;
/// A refused connection is closed after this time, whatever its client does.
const TIME_MAX: Duration = Duration::from_secs(1);
/// Bytes that a refused client may have sent meanwhile; they are read and discarded.
const DISCARDED_BYTES_MAX: u64 = 64 * 1024;

/// The problem document for a limit.
pub(super) fn problem(full: LimitReached) -> Problem {
    let problem = match full {
        LimitReached::Total => {
            Problem::new(Code::Overloaded, "all connections of the server are in use")
        }
        LimitReached::Address => Problem::new(
            Code::TooManyAtOnce,
            "your address has too many connections or requests at the same time",
        ),
    };
    problem.retry_after(RETRY_AFTER_SECONDS)
}

/// Sends the answer and closes.
pub(super) async fn answer(mut stream: TcpStream, full: LimitReached) {
    let problem = problem(full);
    let body = serde_json::to_string(&problem.body()).unwrap_or_default();
    let status = problem.code().status();
    let text = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {PROBLEM_JSON}\r\ncontent-length: {}\r\n\
         retry-after: {RETRY_AFTER_SECONDS}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    let talk = async {
        stream.write_all(text.as_bytes()).await?;
        stream.shutdown().await?;
        let mut rest = stream.take(DISCARDED_BYTES_MAX);
        tokio::io::copy(&mut rest, &mut tokio::io::sink()).await
    };
    // A client that is gone or too slow is not waited for.
    drop(tokio::time::timeout(TIME_MAX, talk).await);
}
