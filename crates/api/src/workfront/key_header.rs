//! The key in Workfront's headers: `sessionID`, or the older `apiKey`.
//!
//! The key is moved to `Authorization`, so that it is checked in the one place where keys are
//! checked. A request with two keys is refused: a proxy in front might have used the other one.

use axum::extract::Request;
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use crate::problem::{Code, Problem};

pub(super) const SESSION_ID: HeaderName = HeaderName::from_static("sessionid");
pub(super) const API_KEY: HeaderName = HeaderName::from_static("apikey");

/// Moves the key to where `/v1` has it.
pub(super) async fn as_bearer(mut request: Request, next: Next) -> Response {
    match move_key(request.headers_mut()) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

fn move_key(headers: &mut HeaderMap) -> Result<(), Problem> {
    let given = |name: &HeaderName| headers.get_all(name).iter().count();
    if given(&SESSION_ID) + given(&API_KEY) + given(&AUTHORIZATION) > 1 {
        let detail = "the key is there more than once: send it once, in the header sessionID";
        return Err(Problem::new(Code::BadRequest, detail).at("sessionID"));
    }
    let key = headers.remove(&SESSION_ID).or_else(|| headers.remove(&API_KEY));
    let Some(key) = key else { return Ok(()) };
    // A header's value stays one behind `Bearer `.
    let bearer = [b"Bearer ", key.as_bytes()].concat();
    let mut bearer = HeaderValue::from_bytes(&bearer).map_err(|_| Problem::internal())?;
    bearer.set_sensitive(true);
    headers.insert(AUTHORIZATION, bearer);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved(given: &[(&'static str, &'static str)]) -> Result<Option<String>, Problem> {
        let mut headers = HeaderMap::new();
        for (name, value) in given {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        move_key(&mut headers)?;
        assert!(!headers.contains_key(&SESSION_ID) && !headers.contains_key(&API_KEY));
        let bearer = headers.get(AUTHORIZATION);
        Ok(bearer.map(|value| value.to_str().unwrap().to_owned()))
    }

    #[test]
    fn key_of_either_header_becomes_a_bearer_token() {
        for header in ["sessionid", "apikey"] {
            assert_eq!(moved(&[(header, "pr_1")]), Ok(Some("Bearer pr_1".to_owned())));
            assert_eq!(moved(&[(header, "")]), Ok(Some("Bearer ".to_owned())));
        }
        assert_eq!(moved(&[("authorization", "Bearer b")]), Ok(Some("Bearer b".to_owned())));
        assert_eq!(moved(&[]), Ok(None));
    }

    #[test]
    fn two_keys_are_refused() {
        for two in [
            [("sessionid", "a"), ("apikey", "a")],
            [("sessionid", "a"), ("sessionid", "b")],
            [("apikey", "a"), ("authorization", "Bearer b")],
        ] {
            assert_eq!(moved(&two).unwrap_err().code(), Code::BadRequest);
        }
    }
}
