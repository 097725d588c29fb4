//! The scopes that each call needs, for the reference documentation. The handlers check the scopes
//! themselves; a test calls every route with a key of every scope and compares.

use std::collections::HashSet;
use std::sync::OnceLock;

use postrider_domain::access::Scope;
use utoipa::openapi::PathItem;

use crate::document::collected;

/// Calls to which the general rule does not apply. The rule: reading needs `read`, changing needs
/// `manage`.
const EXCEPTIONS: [(&str, &str, Needs); 11] = [
    ("post", "/v1/events", Some(&[Scope::Ingest])),
    ("post", "/v1/events/batch", Some(&[Scope::Ingest])),
    ("post", "/v1/filters/test", Some(&[Scope::Read])),
    ("post", "/v1/filters/test/events", Some(&[Scope::Read])),
    ("post", "/v1/simulate", Some(&[Scope::Read])),
    ("get", "/v1/audit", Some(&[Scope::Manage])),
    ("get", "/v1/portal-links", Some(&[Scope::Manage])),
    ("post", "/v1/portal-links", Some(&[Scope::Read, Scope::Manage])),
    ("get", "/v1/session", Some(&[])),
    ("post", "/v1/session", None),
    ("delete", "/v1/session", None),
];

/// The scopes that a key needs, all of them; `None` if the call needs no key.
pub type Needs = Option<&'static [Scope]>;

/// The scopes that a call needs, by its method in lowercase and its path as the OpenAPI document
/// has it.
pub fn scopes_of(method: &str, path: &str) -> Needs {
    if !path.starts_with("/v1/") {
        return None;
    }
    let exception = EXCEPTIONS.iter().find(|(of, at, _)| (*of, *at) == (method, path));
    match exception {
        Some((.., needs)) => *needs,
        None if is_for_admins(path) => Some(&[Scope::Admin]),
        None if method == "get" => Some(&[Scope::Read]),
        None => Some(&[Scope::Manage]),
    }
}

/// Whether the call has the tag `administration` in the OpenAPI document.
fn is_for_admins(path: &str) -> bool {
    static PATHS: OnceLock<HashSet<String>> = OnceLock::new();
    let paths = PATHS.get_or_init(|| {
        let items = collected().paths.paths.into_iter();
        let is_theirs = |item: &PathItem| {
            let operations = [&item.get, &item.post, &item.delete].into_iter().flatten();
            let mut tags = operations.filter_map(|operation| operation.tags.as_ref()).flatten();
            tags.any(|tag| tag == "administration")
        };
        items.filter(|(_, item)| is_theirs(item)).map(|(path, _)| path).collect()
    });
    paths.contains(path)
}
