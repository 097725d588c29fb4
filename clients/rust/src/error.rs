//! Errors of the client. None holds the API key, a signing secret or a request body.

use std::time::Duration;

use hyper::StatusCode;
use serde_json::Value;

/// Why a call failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server refused the request and said why.
    #[error(transparent)]
    Problem(Box<Problem>),
    /// No answer arrived within the time limit.
    #[error("{call}: no answer within {} s", limit.as_secs_f64())]
    Timeout {
        /// The method and the path.
        call: String,
        /// The time limit of one attempt.
        limit: Duration,
        /// How many times the request was sent.
        attempts: u32,
    },
    /// There was no connection, or it broke before the answer was complete.
    #[error("{call}: {cause}")]
    Connection {
        /// The method and the path.
        call: String,
        /// What happened to the connection.
        cause: String,
        /// How many times the request was sent.
        attempts: u32,
    },
    /// The answer is not what a Postrider server answers. Its text is not repeated here.
    #[error("{call}: {cause}")]
    Answer {
        /// The method and the path.
        call: String,
        /// What is wrong with it.
        cause: String,
    },
    /// The client was asked for something impossible; nothing was sent.
    #[error("{0}")]
    Usage(String),
}

impl Error {
    /// The problem document, if the server refused the request.
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Error::Problem(problem) => Some(problem),
            Error::Timeout { .. }
            | Error::Connection { .. }
            | Error::Answer { .. }
            | Error::Usage(_) => None,
        }
    }

    /// Whether the server refused the request with this code, such as `not_found`.
    pub fn has_code(&self, code: &str) -> bool {
        self.problem().is_some_and(|problem| problem.code == code)
    }
}

/// A refusal of the server (RFC 9457).
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{} {code}{}: {detail}", status.as_u16(), place(field.as_deref()))]
#[non_exhaustive]
pub struct Problem {
    /// The HTTP status.
    pub status: StatusCode,
    /// The stable name of the problem, such as `invalid_field`.
    pub code: String,
    /// What is wrong this time, and what to do.
    pub detail: String,
    /// The offending field, such as `filter.all[2].op`.
    pub field: Option<String>,
    /// The existing record that conflicts.
    pub existing_id: Option<String>,
    /// The place of the fault in a payload or schema, as a JSON pointer.
    pub pointer: Option<String>,
    /// What `Retry-After` says.
    pub retry_after: Option<Duration>,
    /// How many times the request was sent.
    pub attempts: u32,
    /// The whole document; a text if the answer is not JSON.
    pub document: Value,
}

fn place(field: Option<&str>) -> String {
    field.map(|field| format!(" ({field})")).unwrap_or_default()
}

impl Problem {
    pub(crate) fn new(
        status: StatusCode,
        body: &[u8],
        retry_after: Option<Duration>,
        attempts: u32,
    ) -> Problem {
        let document: Value = serde_json::from_slice(body)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(body).into_owned()));
        let part = |name: &str| document.get(name).and_then(Value::as_str).map(str::to_owned);
        const FOREIGN: &str = "the answer is not a problem document: \
            check the URL of the server and what is in front of it";
        Problem {
            status,
            code: part("code").unwrap_or_else(|| "unknown".to_owned()),
            detail: part("detail").unwrap_or_else(|| FOREIGN.to_owned()),
            field: part("field"),
            existing_id: part("existing_id"),
            pointer: part("pointer"),
            retry_after,
            attempts,
            document,
        }
    }
}
