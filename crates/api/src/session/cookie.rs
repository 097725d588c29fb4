//! The cookie of a session.
//!
//! `__Host-`: a browser takes it only over TLS (or from loopback), for this host and the whole of it, so no
//! neighbour under the same domain can set or read it. Scripts cannot read it, and it is not sent with what
//! another site asks for.

use axum::http::header::COOKIE;
use axum::http::{HeaderMap, HeaderValue};
use zeroize::Zeroizing;

use crate::problem::Problem;

/// Its name.
pub(crate) const NAME: &str = "__Host-postrider";
const ATTRIBUTES: &str = "Path=/; HttpOnly; Secure; SameSite=Strict";

/// The value of `Set-Cookie` for a new session.
pub(crate) fn set(token: &str, seconds: u64) -> Result<HeaderValue, Problem> {
    let text = Zeroizing::new(format!("{NAME}={token}; Max-Age={seconds}; {ATTRIBUTES}"));
    let mut value = HeaderValue::from_str(&text).map_err(|_| Problem::internal())?;
    value.set_sensitive(true);
    Ok(value)
}

/// The value of `Set-Cookie` that removes it.
pub(crate) fn clear() -> HeaderValue {
    const CLEAR: &str = "__Host-postrider=; Max-Age=0; Path=/; HttpOnly; Secure; SameSite=Strict";
    HeaderValue::from_static(CLEAR)
}

/// The token in the cookie. Two different ones are none: one of them is somebody else's.
pub(crate) fn read(headers: &HeaderMap) -> Option<&str> {
    let texts = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut found = texts
        .flat_map(|text| text.split(';'))
        .filter_map(|pair| pair.trim().strip_prefix(NAME)?.strip_prefix('='));
    let first = found.next()?;
    (!first.is_empty() && found.all(|other| other == first)).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookie_is_found_among_others_and_two_are_none() {
        for (values, expected) in [
            (vec![], None),
            (vec!["__Host-postrider=a"], Some("a")),
            (vec!["x=1; __Host-postrider=a; y=2"], Some("a")),
            (vec!["x=1", "__Host-postrider=a"], Some("a")),
            (vec!["__Host-postrider=a; __Host-postrider=a"], Some("a")),
            (vec!["__Host-postrider=a; __Host-postrider=b"], None),
            (vec!["__Host-postrider=a", "__Host-postrider=b"], None),
            (vec!["__Host-postrider="], None),
            (vec!["__Host-postrider-x=a"], None),
            (vec!["postrider=a"], None),
        ] {
            let mut headers = HeaderMap::new();
            for value in &values {
                headers.append(COOKIE, HeaderValue::from_static(value));
            }
            assert_eq!(read(&headers), expected, "{values:?}");
        }
    }

    #[test]
    fn cookie_has_every_attribute_and_is_not_shown() {
        let value = set("ps_secret", 60).unwrap();
        let text = value.to_str().unwrap();
        assert_eq!(
            text,
            "__Host-postrider=ps_secret; Max-Age=60; Path=/; HttpOnly; Secure; SameSite=Strict"
        );
        assert!(!format!("{value:?}").contains("secret"));
        assert!(clear().to_str().unwrap().contains("Max-Age=0"));
    }
}
