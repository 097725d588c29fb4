//! The OpenAPI document of Workfront's API, made from its routes and kept apart from ours.

use utoipa::OpenApi;
use utoipa::openapi::path::Operation;
use utoipa::openapi::security::{ApiKey, ApiKeyValue, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{ContentBuilder, HttpMethod, Ref, RefOr, ResponseBuilder, Schema};

use super::errors::ErrorBody;
use super::schemas;
use crate::auth::TENANT_HEADER;
use crate::document::header;
use crate::idempotency::IDEMPOTENCY_KEY;

const SESSION_ID: &str = "sessionID";
const API_KEY: &str = "apiKey";

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Event subscriptions",
        description = "The event subscription API of Adobe Workfront, as Postrider speaks it. \
            Every call needs a key of Postrider in the header `sessionID` or `apiKey`.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    components(schemas(ErrorBody)),
    tags(
        (name = "subscriptions", description = "Which events go where"),
        (name = "versions", description = "What their events look like")
    )
)]
struct Base;

/// Schemas of bodies that come in: what is optional in them may be left out.
const REQUESTS: [&str; 4] = ["NewSubscription", "Reason", "VersionChange", "VersionsChange"];

/// The OpenAPI 3.1 document of Workfront's API.
pub fn openapi() -> serde_json::Value {
    // A document of plain data can always be written.
    let mut document = serde_json::to_value(collected()).unwrap_or_default();
    schemas::describe(&mut document);
    document
}

/// The document as the routes give it, with what every call has.
fn collected() -> utoipa::openapi::OpenApi {
    let mut document = Base::openapi();
    document.merge(super::paths().into_openapi());
    for item in document.paths.paths.values_mut() {
        for (method, operation) in [
            (HttpMethod::Get, &mut item.get),
            (HttpMethod::Post, &mut item.post),
            (HttpMethod::Put, &mut item.put),
            (HttpMethod::Delete, &mut item.delete),
        ] {
            if let Some(operation) = operation {
                complete(operation, &method);
            }
        }
    }
    let components = document.components.get_or_insert_default();
    for (name, schema) in &mut components.schemas {
        if let RefOr::T(Schema::Object(object)) = schema
            && !REQUESTS.contains(&name.as_str())
        {
            object.required = object.properties.keys().cloned().collect();
        }
    }
    for name in [SESSION_ID, API_KEY] {
        let scheme = SecurityScheme::ApiKey(ApiKey::Header(ApiKeyValue::new(name)));
        components.add_security_scheme(name, scheme);
    }
    document.info.version = env!("CARGO_PKG_VERSION").to_owned();
    document
}

/// Adds what every call has: its headers and its refusals.
fn complete(operation: &mut Operation, method: &HttpMethod) {
    let is_mutation = *method != HttpMethod::Get;
    let parameters = operation.parameters.get_or_insert_default();
    parameters
        .push(header(TENANT_HEADER.as_str(), "The tenant, for admin keys; default otherwise"));
    if is_mutation {
        let repeat = "Makes a repeat of this request safe: the same answer, done once";
        parameters.push(header(IDEMPOTENCY_KEY.as_str(), repeat));
    }
    operation.security = Some(vec![
        SecurityRequirement::new::<_, _, String>(SESSION_ID, []),
        SecurityRequirement::new::<_, _, String>(API_KEY, []),
    ]);
    let mut refusals = vec![400, 401, 403, 404, 429, 500, 503];
    if is_mutation {
        refusals.extend([408, 409, 413, 415]);
    }
    for status in refusals {
        let schema = RefOr::Ref(Ref::from_schema_name("Error"));
        let content = ContentBuilder::new().schema(Some(schema)).build();
        let response = ResponseBuilder::new()
            .description("An error")
            .content("application/json", content)
            .build();
        let known = &mut operation.responses.responses;
        known.entry(u16::to_string(&status)).or_insert(RefOr::T(response));
    }
}
