//! Failures of commands: a message, and an exit code for scripts.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | done |
//! | 1 | failed: the server refused it, or something went wrong |
//! | 2 | the command line or the configuration is wrong; nothing was done |
//! | 3 | the record does not exist |
//! | 4 | the key is missing, unknown, expired, or may not do this |
//! | 5 | the server cannot be reached |
//!
//! Where a command watches something (`subscriptions test`, `replay start --follow`, `deliveries watch`),
//! code 1 also means that a delivery failed.

use std::fmt;

use hyper::StatusCode;
use serde_json::{Value as Json, json};

use crate::output::escaped;

/// Why a command failed.
#[derive(Debug)]
pub struct Failure {
    /// The exit code of the process.
    pub code: u8,
    message: String,
    problem: Option<Json>,
}

impl Failure {
    /// Any other failure.
    pub fn failed(message: impl Into<String>) -> Failure {
        Failure { code: 1, message: message.into(), problem: None }
    }

    /// The command line is invalid.
    pub fn usage(message: impl Into<String>) -> Failure {
        Failure { code: 2, message: message.into(), problem: None }
    }

    /// The server does not answer.
    pub fn unreachable(server: &url::Url, cause: &str) -> Failure {
        let message =
            format!("cannot reach {server}: {cause}\nIs it running? Start it by: postrider serve");
        Failure { code: 5, message, problem: None }
    }

    /// The server answered with a problem document.
    pub fn answered(status: StatusCode, problem: &Json) -> Failure {
        let code = match status.as_u16() {
            404 => 3,
            401 | 403 => 4,
            _ => 1,
        };
        let part = |name: &str| problem.get(name).and_then(Json::as_str);
        let mut message = part("detail")
            .or(part("title"))
            .map_or_else(|| format!("the server answered {status}"), str::to_owned);
        if let Some(field) = part("field") {
            message = format!("{field}: {message}");
        }
        Failure { code, message, problem: Some(problem.clone()) }
    }

    /// Appends a line that says what to do.
    #[must_use]
    pub fn hint(mut self, what_to_do: &str) -> Failure {
        self.message = format!("{}\n{what_to_do}", self.message);
        self
    }

    /// Replaces the message. The exit code and the problem document stay.
    #[must_use]
    pub fn instead(mut self, message: impl Into<String>) -> Failure {
        self.message = message.into();
        self
    }

    /// The first line of the message: what failed, without what to do.
    pub fn first_line(&self) -> &str {
        self.message.lines().next().unwrap_or_default()
    }

    /// Whether the server knows no such key, as opposed to a key that may not do this.
    pub fn is_unauthenticated(&self) -> bool {
        let status = self.problem.as_ref().and_then(|problem| problem.get("status"));
        status.and_then(Json::as_u64) == Some(401)
    }

    /// As JSON, for scripts.
    pub fn json(&self) -> Json {
        json!({ "error": self.message, "exit_code": self.code, "problem": self.problem })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<_> = self.message.lines().map(escaped).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Failure::failed(format!("{error:#}"))
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Failure::failed(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_answer_has_its_code() {
        for (status, code) in [(404, 3), (401, 4), (403, 4), (422, 1), (409, 1), (500, 1), (503, 1)]
        {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(Failure::answered(status, &json!({})).code, code, "{status}");
        }
        let server = "http://127.0.0.1:1".parse().unwrap();
        assert_eq!(Failure::unreachable(&server, "refused").code, 5);
        assert_eq!(Failure::usage("no").code, 2);
    }

    #[test]
    fn problem_is_shown_with_its_field_and_without_control_bytes() {
        let problem = json!({"title": "t", "detail": "not a url\u{1b}[2J", "field": "url"});
        let failure = Failure::answered(StatusCode::UNPROCESSABLE_ENTITY, &problem);
        assert_eq!(failure.to_string(), "url: not a url\\u{1b}[2J");
        assert_eq!(failure.json()["problem"]["field"], "url");
    }
}
