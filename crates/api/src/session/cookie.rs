//! The cookie of a session.
//!
//! The prefix `__Host-` makes the browser accept the cookie only over TLS (or from loopback) and
//! for exactly this host, so another host of the same domain can neither set nor read it. Scripts
//! cannot read it (`HttpOnly`), and it is not sent with a request that another site makes
//! (`SameSite=Strict`).

use axum::http::header::COOKIE;
use axum::http::{HeaderMap, HeaderValue};
use zeroize::Zeroizing;

use crate::problem::Problem;

/// The name of the cookie.
pub(crate) const NAME: &str = "__Host-postrider";
const ATTRIBUTES: &str = "Path=/; HttpOnly; Secure; SameSite=Strict";

/// The value of `Set-Cookie` for a new session.
pub(crate) fn set(token: &str, seconds: u64) -> Result<HeaderValue, Problem> {
    let text = Zeroizing::new(format!("{NAME}={token}; Max-Age={seconds}; {ATTRIBUTES}"));
    let mut value = HeaderValue::from_str(&text).map_err(|_| Problem::internal())?;
    value.set_sensitive(true);
    Ok(value)
}

/// The value of `Set-Cookie` that removes the cookie.
pub(crate) fn clear() -> HeaderValue {
    const CLEAR: &str = "__Host-postrider=; Max-Age=0; Path=/; HttpOnly; Secure; SameSite=Strict";
    HeaderValue::from_static(CLEAR)
}

/// The session's token in the cookie. A request with two different tokens counts as having none,
/// because one of them may have been planted by somebody else.
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
