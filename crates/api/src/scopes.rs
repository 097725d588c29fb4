//! Which scope each call needs, for those who document it. The handlers ask for the scopes themselves;
//! a test calls every route with a key of every scope and compares.

use postrider_domain::access::Scope;

use crate::document::openapi;

/// Calls that do not follow the rule that looking needs `read` and changing needs `manage`.
const EXCEPTIONS: [(&str, &str, Scope); 4] = [
    ("post", "/v1/events", Scope::Ingest),
    ("post", "/v1/events/batch", Scope::Ingest),
    ("post", "/v1/filters/test", Scope::Read),
    ("get", "/v1/audit", Scope::Manage),
];

/// The scope that a call needs, by its method in lowercase and its path as the document has it; none
/// where it needs no key.
pub fn scope_of(method: &str, path: &str) -> Option<Scope> {
    if !path.starts_with("/v1/") {
        return None;
    }
    let exception = EXCEPTIONS.iter().find(|(of, at, _)| (*of, *at) == (method, path));
    let scope = match exception {
        Some((.., scope)) => *scope,
        None if is_for_admins(path) => Scope::Admin,
        None if method == "get" => Scope::Read,
        None => Scope::Manage,
    };
    Some(scope)
}

/// Whether the call stands under administration.
fn is_for_admins(path: &str) -> bool {
    let document = openapi();
    let item = document.paths.paths.get(path);
    let operations = item.into_iter().flat_map(|item| [&item.get, &item.post, &item.delete]);
    let mut tags = operations.flatten().filter_map(|operation| operation.tags.as_ref()).flatten();
    tags.any(|tag| tag == "administration")
}
