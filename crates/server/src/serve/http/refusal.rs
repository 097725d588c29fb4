//! The answer to a connection or a request that there is no place for.
//!
//! A connection that cannot be served is answered at once, before it has asked anything, and closed. So
//! its client learns why and when to come back, instead of waiting.

use std::time::Duration;

use postrider_api::problem::{Code, PROBLEM_JSON, Problem};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::connection_limits::LimitReached;

/// Seconds after which a refused client may try again.
const RETRY_AFTER_SECONDS: u64 = 5;
/// A refused connection is closed after this time, whatever its client does.
const TIME_MAX: Duration = Duration::from_secs(1);
/// Bytes that a refused client may have sent meanwhile, which are read and discarded.
const DISCARDED_BYTES_MAX: u64 = 64 * 1024;

/// What is wrong.
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

/// Answers and closes.
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
    // A client that is gone, or too slow for this, is not waited for.
    drop(tokio::time::timeout(TIME_MAX, talk).await);
}
