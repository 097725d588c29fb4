//! The page of the calls of the API, each with the scopes that its key needs.

use postrider_api::{openapi, scopes_of};
use serde::Serialize as _;
use serde_json::Value as Json;

use super::{Document, code};
use crate::exit::Failure;

const INTRODUCTION: &str = "\
The base is the server's address, `http://127.0.0.1:8080` unless configured. Every call under `/v1` needs
`Authorization: Bearer <key>`, and the key needs the scopes that are named. `admin` includes all scopes; no other scope
includes another. An admin key acts for the tenant that the header `postrider-tenant` names, else for `default`.

Bodies are JSON; unknown fields are refused. Times are RFC 3339 in UTC with milliseconds. Lists are newest first and
paged: `limit` (at most 1000) and `cursor`, which is the `next_cursor` of the page before. A call that changes
something can carry an `Idempotency-Key`: its repeat gets the first answer and changes nothing. Refusals:
[error codes](errors.md). A running server has the same with all fields at `/docs`, and as OpenAPI 3.1 at
`/openapi.json`, which is also [a file](openapi.json).";

/// The OpenAPI document as a file: one space for each level.
pub(super) fn document() -> Result<String, Failure> {
    let mut bytes = Vec::new();
    let form = serde_json::ser::PrettyFormatter::with_indent(b" ");
    let written =
        openapi().serialize(&mut serde_json::Serializer::with_formatter(&mut bytes, form));
    written.map_err(|error| Failure::failed(error.to_string()))?;
    bytes.push(b'\n');
    String::from_utf8(bytes).map_err(|error| Failure::failed(error.to_string()))
}

pub(super) fn page() -> String {
    let document = openapi();
    let mut page = Document::new("API", INTRODUCTION);
    for tag in list(&document["tags"]) {
        let name = text(&tag["name"]);
        page.heading(&format!("{}: {}", name, text(&tag["description"])));
        let operations = operations(&document)
            .into_iter()
            .filter(|(.., operation)| list(&operation["tags"]).iter().any(|one| text(one) == name));
        let operations: Vec<_> = operations.collect();
        page.columns(&["call", "scope", "what it does", "query"]);
        for (path, method, operation) in &operations {
            page.row(&[
                call(method, path),
                needed(method, path),
                described(operation),
                query(operation),
            ]);
        }
        for (path, method, operation) in &operations {
            if let Some(schema) = body(&document, operation) {
                page.line(&format!("\nFields of the body of {}:\n", call(method, path)));
                fields(&mut page, schema);
            }
        }
    }
    page.0
}

/// The scopes that a key needs for a call.
fn needed(method: &str, path: &str) -> String {
    match scopes_of(method, path) {
        None => "no key".to_owned(),
        Some([]) => "any key".to_owned(),
        Some(scopes) => scopes.iter().map(|scope| scope.as_str()).collect::<Vec<_>>().join(" and "),
    }
}

/// `GET /v1/events`, as code.
fn call(method: &str, path: &str) -> String {
    code(&format!("{} {path}", method.to_uppercase()))
}

/// The schema of the JSON object that a call takes, where it takes one.
fn body<'a>(document: &'a Json, operation: &Json) -> Option<&'a Json> {
    let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
    let reference = schema["$ref"].as_str().or_else(|| {
        // A body that may be left out is its schema or null.
        let either = list(&schema["oneOf"]).iter();
        either.map(|one| &one["$ref"]).find_map(Json::as_str)
    })?;
    let found = document.pointer(reference.trim_start_matches('#'))?;
    found["properties"].is_object().then_some(found)
}

fn fields(page: &mut Document, schema: &Json) {
    page.columns(&["field", "needed", "meaning"]);
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let is_needed = list(&schema["required"]).iter().any(|one| text(one) == name);
        let needed = if is_needed { "yes" } else { "" };
        page.row(&[code(name), needed.to_owned(), text(&field["description"]).to_owned()]);
    }
}

/// Every path with its methods, in the order of the document.
fn operations(document: &Json) -> Vec<(&str, String, &Json)> {
    let paths = document["paths"].as_object().into_iter().flatten();
    let all = paths.flat_map(|(path, item)| {
        let methods = item.as_object().into_iter().flatten();
        methods.map(move |(method, operation)| (path.as_str(), method.clone(), operation))
    });
    all.collect()
}

fn described(operation: &Json) -> String {
    let summary = text(&operation["summary"]);
    match text(&operation["description"]) {
        "" => summary.to_owned(),
        description => format!("{summary}. {description}"),
    }
}

/// The names of the parameters in the query.
fn query(operation: &Json) -> String {
    let parameters = list(&operation["parameters"]);
    let names = parameters.iter().filter(|one| text(&one["in"]) == "query");
    let names: Vec<String> = names.map(|one| code(text(&one["name"]))).collect();
    names.join(", ")
}

fn text(value: &Json) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Json) -> &[Json] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}
