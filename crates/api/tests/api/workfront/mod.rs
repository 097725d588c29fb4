//! Adobe Workfront's event subscription API: what its public documentation shows, and what Postrider
//! promises besides.

mod delivered;
mod documented;
mod promises;

use axum::body::Body;
use axum::http::{HeaderMap, Request};
use http_body_util::BodyExt as _;
use postrider_api::ApiSettings;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::support::Api;

pub(crate) const SUBSCRIPTIONS: &str = "/attask/eventsubscription/api/v1/subscriptions";

/// A server with Workfront's API.
pub(crate) async fn workfront() -> Api {
    Api::with(ApiSettings { workfront: true, ..ApiSettings::default() }).await
}

/// The answer to a call.
pub(crate) struct Answered {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

/// Makes a call with these headers; checks that the answer is one that the document describes.
pub(crate) async fn call(
    api: &Api,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: Option<&Value>,
) -> Answered {
    let mut request = Request::builder().method(method).uri(path).header("host", "wf.example.com");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let given = body;
    let body = match body {
        None => Body::empty(),
        Some(body) => {
            request = request.header("content-type", "application/json");
            Body::from(body.to_string())
        }
    };
    let response = api.router.clone().oneshot(request.body(body).unwrap()).await.unwrap();
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
    let answered = Answered { status: parts.status.as_u16(), headers: parts.headers, body };
    check_documented(method, path, given, &answered);
    answered
}

/// Makes a call with the admin key in the header `sessionID`, and expects this status.
pub(crate) async fn ask(
    api: &Api,
    method: &str,
    path: &str,
    body: Option<&Value>,
    status: u16,
) -> Value {
    let answered = call(api, method, path, &[("sessionID", &api.admin)], body).await;
    assert_eq!(answered.status, status, "{method} {path}: {}", answered.body);
    answered.body
}

/// Subscribes `https://hooks.example.com/<path>` to updates of projects; returns the identifier.
pub(crate) async fn subscribe(api: &Api, path: &str, more: Value) -> String {
    let mut body = json!({
        "objCode": "PROJ",
        "eventType": "UPDATE",
        "url": format!("https://hooks.example.com/{path}"),
        "authToken": "EauthTokenWorkfrontRocks1234_",
    });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let created = ask(api, "POST", SUBSCRIPTIONS, Some(&body), 201).await;
    created["id"].as_str().unwrap().to_owned()
}

/// Whether a value fits the schema of a JSON body; everything does where no schema is documented.
pub(crate) fn fits(document: &Value, body: &Value, value: &Value) -> Result<(), String> {
    let Some(schema) = body["content"]["application/json"].get("schema") else { return Ok(()) };
    let root = json!({"allOf": [schema], "components": document["components"]});
    let validator = jsonschema::validator_for(&root).map_err(|error| error.to_string())?;
    validator.validate(value).map_err(|error| format!("{error} at {}", error.instance_path()))
}

/// Fails if a status is not documented, an accepted body or an answer does not fit its schema, or an
/// error has another shape.
fn check_documented(method: &str, path: &str, given: Option<&Value>, answered: &Answered) {
    let document = postrider_api::workfront_openapi();
    let path = path.split('?').next().unwrap_or_default();
    let below = path.strip_prefix(SUBSCRIPTIONS).unwrap_or("?");
    let template = match below.split('/').collect::<Vec<_>>().as_slice() {
        [""] => SUBSCRIPTIONS.to_owned(),
        ["", word @ ("list" | "version")] => format!("{SUBSCRIPTIONS}/{word}"),
        ["", _] => format!("{SUBSCRIPTIONS}/{{id}}"),
        ["", _, word] => format!("{SUBSCRIPTIONS}/{{id}}/{word}"),
        _ => String::new(),
    };
    let operation = &document["paths"][&template][method.to_lowercase()];
    let status = answered.status.to_string();
    if operation.is_object() {
        assert!(operation["responses"].get(&status).is_some(), "{method} {path} {status}");
        fits(&document, &operation["responses"][&status], &answered.body).unwrap();
        if let (Some(given), true) = (given, answered.status < 300) {
            fits(&document, &operation["requestBody"], given).unwrap();
        }
    }
    if answered.status >= 400 {
        assert_eq!(answered.headers["content-type"], "application/json");
        let error = answered.body["error"].as_object().unwrap();
        let fields: Vec<&str> = error.keys().map(String::as_str).collect();
        assert_eq!(fields, ["code", "field", "message", "title"], "{}", answered.body);
        assert!(!error["message"].as_str().unwrap().is_empty());
    }
}
