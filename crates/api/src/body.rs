//! Reads and parses request bodies, with limits of size and time.
//!
//! Unparsable JSON is 400, an unknown or unacceptable field is 422 with its name, too large is 413.
//! No message repeats the value of a secret field.

use std::fmt;

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, header};
use bytes::Bytes;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use postrider_domain::event::{InvalidJson, RawJson};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

use crate::budget::Exhausted;
use crate::problem::{Code, Problem};
use crate::settings::BODY_BYTES_MAX;
use crate::state::ApiState;

/// Fields whose values are secrets: no error repeats them.
const SECRET_FIELDS: [&str; 6] = ["secret", "auth_token", "authToken", "headers", "key", "token"];

/// A JSON body without unknown fields.
#[derive(Debug)]
pub(crate) struct Strict<T>(pub(crate) T);

/// A JSON body without unknown fields, which may be left out.
#[derive(Debug)]
pub(crate) struct StrictOrNone<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<ApiState> for Strict<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &ApiState) -> Result<Self, Problem> {
        require_json(request.headers())?;
        let body = read(request.into_body(), BODY_BYTES_MAX, state).await?;
        parse(&body).map(Strict)
    }
}

impl<T: DeserializeOwned + Default> FromRequest<ApiState> for StrictOrNone<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &ApiState) -> Result<Self, Problem> {
        let has_type = request.headers().contains_key(header::CONTENT_TYPE);
        let json = require_json(request.headers());
        let body = read(request.into_body(), BODY_BYTES_MAX, state).await?;
        if body.is_empty() {
            return Ok(StrictOrNone(T::default()));
        }
        if has_type {
            json?;
        }
        parse(&body).map(StrictOrNone)
    }
}

/// Reads the whole body, within the limits of size and time.
pub(crate) async fn read(body: Body, max: usize, state: &ApiState) -> Result<Bytes, Problem> {
    let too_large =
        || Problem::new(Code::TooLarge, format!("the body is larger than {max} bytes: send less"));
    if axum::body::HttpBody::size_hint(&body).lower() > max as u64 {
        return Err(too_large());
    }
    let deadline = state.settings().body_deadline;
    match tokio::time::timeout(deadline, Limited::new(body, max).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(error)) => Err(exhausted(&*error).unwrap_or_else(|| {
            Problem::new(Code::BadRequest, "the body broke off: send it again")
        })),
        Err(_) => {
            let detail = format!("the body was not there after {} s", deadline.as_secs());
            Err(Problem::new(Code::BodyTooSlow, detail))
        }
    }
}

/// The problem, if the body could not be read because a byte budget is exhausted.
fn exhausted(error: &(dyn std::error::Error + 'static)) -> Option<Problem> {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.filter_map(|cause| cause.downcast_ref::<Exhausted>()).next().map(|why| (*why).into())
}

/// Refuses a body with a content type other than JSON.
pub(crate) fn require_json(headers: &HeaderMap) -> Result<(), Problem> {
    match media_type(headers) {
        None => Ok(()),
        Some(kind) if is_json(&kind) => Ok(()),
        Some(_) => Err(Problem::new(
            Code::UnsupportedMediaType,
            "the body must be JSON: send the header content-type: application/json",
        )
        .at("content-type")),
    }
}

/// The media type without its parameters, in lower case.
pub(crate) fn media_type(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(header::CONTENT_TYPE)?;
    let text = value.to_str().unwrap_or("?");
    Some(text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase())
}

fn is_json(kind: &str) -> bool {
    // curl sends the form type by default.
    ["application/json", "application/x-www-form-urlencoded"].contains(&kind)
        || (kind.starts_with("application/") && kind.ends_with("+json"))
}

/// Parses JSON, without unknown fields.
pub(crate) fn parse<'de, T: Deserialize<'de>>(body: &'de Bytes) -> Result<T, Problem> {
    // Check that it is well-formed and not too deep before anything is built from it.
    RawJson::parse(body.clone()).map_err(json_problem)?;
    parse_fields(body)
}

/// Parses the fields of a body without checking its depth.
pub(crate) fn parse_fields<'de, T: Deserialize<'de>>(body: &'de [u8]) -> Result<T, Problem> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    let value: T = serde_path_to_error::deserialize(&mut reader).map_err(fault)?;
    reader.end().map_err(|error| json_problem(InvalidJson::Malformed(error.to_string())))?;
    Ok(value)
}

/// The problem of malformed JSON.
pub(crate) fn json_problem(fault: InvalidJson) -> Problem {
    match fault {
        InvalidJson::Malformed(_) => Problem::new(Code::InvalidJson, fault.to_string()),
        InvalidJson::TooDeep => Problem::new(Code::InvalidField, fault.to_string()),
    }
}

/// The problem of a body that cannot be deserialized, with its field.
fn fault(error: serde_path_to_error::Error<serde_json::Error>) -> Problem {
    let mut path = error.path().to_string();
    let error = error.into_inner();
    if !error.is_data() {
        return Problem::new(Code::InvalidJson, format!("not JSON: {error}"));
    }
    let root = path.split(['.', '[']).next().unwrap_or_default().to_owned();
    let text = error.to_string();
    if let Some(name) = repeated_field(&text) {
        path = if path == "." { name.to_owned() } else { format!("{path}.{name}") };
    }
    let (code, detail) = if text.starts_with("unknown field") {
        (
            Code::UnknownField,
            format!("`{path}` is not a field here: remove it, or correct its name"),
        )
    } else if SECRET_FIELDS.contains(&root.as_str()) {
        (Code::InvalidField, "not of the right kind: see /docs for what it must be".to_owned())
    } else {
        (Code::InvalidField, text)
    };
    let problem = Problem::new(code, detail);
    if path == "." { problem } else { problem.at(path) }
}

/// The name of a repeated field: serde has it only in its message.
fn repeated_field(text: &str) -> Option<&str> {
    text.strip_prefix("duplicate field `")?.split('`').next()
}

/// The body of a call that takes none: empty, or an object without fields.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nothing {}

/// A field of a change: absent (unchanged), null (removed) or given.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Patch<T> {
    /// The field is absent.
    #[default]
    Absent,
    /// The field is null.
    Null,
    /// The field has a value.
    Value(T),
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Patch<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match Option::deserialize(deserializer)? {
            None => Patch::Null,
            Some(value) => Patch::Value(value),
        })
    }
}

/// A text that is overwritten when dropped, and never printed.
#[derive(Clone)]
pub(crate) struct SecretText(pub(crate) zeroize::Zeroizing<String>);

impl<'de> Deserialize<'de> for SecretText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| SecretText(zeroize::Zeroizing::new(text)))
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretText(****)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Sample {
        #[serde(default)]
        #[expect(dead_code, reason = "only its kind matters")]
        enabled: Option<bool>,
        #[serde(default)]
        #[expect(dead_code, reason = "only its kind matters")]
        types: Vec<String>,
        #[serde(default)]
        auth_token: Patch<String>,
    }

    fn check(body: &str, code: Code, field: Option<&str>) -> String {
        let problem = parse::<Sample>(&Bytes::from(body.to_owned())).unwrap_err();
        let json = serde_json::to_value(problem.body()).unwrap();
        assert_eq!(problem.code(), code, "{body}: {json}");
        assert_eq!(json["field"].as_str(), field, "{body}: {json}");
        json["detail"].as_str().unwrap().to_owned()
    }

    #[test]
    fn faults_of_a_body_have_their_code_and_field() {
        for body in ["", "{", "nonsense", "{} {}", "{\"enabled\": tru}", "{\"types\": [\"a\",]}"] {
            check(body, Code::InvalidJson, None);
        }
        check("[1]", Code::InvalidField, Some("[0]"));
        check("7", Code::InvalidField, None);
        check("{\"surprise\": 1}", Code::UnknownField, Some("surprise"));
        check("{\"enabled\": \"yes\"}", Code::InvalidField, Some("enabled"));
        check("{\"types\": [\"a\", 7]}", Code::InvalidField, Some("types[1]"));
        check("{\"enabled\": true, \"enabled\": true}", Code::InvalidField, Some("enabled"));
        let deep = format!("{{\"types\": {}{}}}", "[".repeat(64), "]".repeat(64));
        check(&deep, Code::InvalidField, None);
    }

    #[test]
    fn the_value_of_a_secret_field_is_never_repeated() {
        let detail = check("{\"auth_token\": 12345678}", Code::InvalidField, Some("auth_token"));
        assert!(!detail.contains("12345678"));
    }

    #[test]
    fn patch_field_tells_absent_null_and_given_apart() {
        let read = |body: &str| parse::<Sample>(&Bytes::from(body.to_owned())).unwrap().auth_token;
        assert_eq!(read("{}"), Patch::Absent);
        assert_eq!(read("{\"auth_token\": null}"), Patch::Null);
        assert_eq!(read("{\"auth_token\": \"a\"}"), Patch::Value("a".to_owned()));
    }
}
