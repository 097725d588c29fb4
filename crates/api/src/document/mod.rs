//! The OpenAPI document: collected from the routes and completed with what they share.

mod examples;
mod finish;
mod parameters;
mod refusals;
pub(crate) mod webhooks;

use utoipa::OpenApi;
use utoipa::openapi::path::{Operation, Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::security::{
    ApiKey, ApiKeyValue, Http, HttpAuthScheme, SecurityRequirement, SecurityScheme,
};
use utoipa::openapi::{
    ContentBuilder, ObjectBuilder, Ref, RefOr, Required, Response, ResponseBuilder, Schema, Type,
};

use self::refusals::{Call, is_possible};
use crate::auth::TENANT_HEADER;
use crate::idempotency::IDEMPOTENCY_KEY;
use crate::problem::{Code, PROBLEM_JSON, ProblemBody};
use crate::routes;
use crate::session::cookie;

const KEY: &str = "key";
const SESSION: &str = "session";

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Postrider",
        description = "Delivers events to subscribers' URLs over HTTP, and does not give up lightly. \
            Every call under `/v1` needs `Authorization: Bearer <key>`, or in a browser the cookie of a session. Times are RFC 3339 in UTC with milliseconds. Lists are paged by `limit` and `cursor`. \
            Unknown fields are refused. Errors are problem documents (RFC 9457) with a stable `code`.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    components(schemas(ProblemBody)),
    tags(
        (name = "events", description = "Things that happened"),
        (name = "event types", description = "The catalogue of event types"),
        (name = "erasures", description = "Erasing payloads"),
        (name = "subscriptions", description = "Who wants to know, and where"),
        (name = "destinations", description = "URLs with their circuits"),
        (name = "deliveries", description = "One event owed to one subscription"),
        (name = "replays", description = "Sending many deliveries again"),
        (name = "ledger", description = "Is anything lost, and what happened when"),
        (name = "filters", description = "Trying a filter"),
        (name = "stream", description = "What happens, live"),
        (name = "audit", description = "Who changed what"),
        (name = "administration", description = "Tenants, keys and backups, for admin keys"),
        (name = "session", description = "Signing in and out, for browsers"),
        (name = "portal", description = "Links to the portal of a tenant"),
        (name = "server", description = "About the server itself")
    )
)]
struct Base;

/// Schemas of bodies that come in: what is optional in them may be left out.
const REQUESTS: &[&str] = &[
    "AlertTest",
    "CatalogueChange",
    "Enable",
    "EventTypeChange",
    "FilterTest",
    "FilterTrial",
    "NewErasure",
    "NewEvent",
    "NewEventType",
    "NewKey",
    "NewPortalLink",
    "NewReplay",
    "NewSubscription",
    "NewSubscriptionAttemptPolicy",
    "NewSubscriptionPolicy",
    "NewSubscriptionRecoveryPolicy",
    "NewSubscriptionRetryPolicy",
    "NewTenant",
    "NewTheme",
    "NewWorkfrontOptions",
    "Reason",
    "Rotation",
    "SignIn",
    "Simulation",
    "SubscriptionChange",
    "TenantChange",
    "TriedCircuit",
    "TriedPolicy",
    "TriedRecovery",
    "TriedRetry",
];
/// Fields of answers that are left out where they say nothing.
const LEFT_OUT: [&str; 5] = ["detail", "duplicate", "existing_id", "pointer", "retry"];
/// Answers that have a `tenant` only in lists of all tenants.
const WITHOUT_TENANT: [&str; 5] =
    ["DeadGroup", "Delivery", "Destination", "EventSummary", "Subscription"];

/// The OpenAPI 3.1 document of all routes.
pub fn openapi() -> serde_json::Value {
    // A document of plain data can always be written.
    let mut document = serde_json::to_value(collected()).unwrap_or_default();
    finish::finish(&mut document);
    document
}

/// The document as the routes give it.
pub(crate) fn collected() -> utoipa::openapi::OpenApi {
    let mut document = Base::openapi();
    document.merge(routes::open().into_openapi());
    let mut guarded = routes::guarded().into_openapi();
    for (path, item) in &mut guarded.paths.paths {
        for (method, operation) in [
            ("GET", &mut item.get),
            ("POST", &mut item.post),
            ("PATCH", &mut item.patch),
            ("DELETE", &mut item.delete),
        ] {
            if let Some(operation) = operation {
                complete(operation, method, path);
            }
        }
    }
    document.merge(guarded);
    describe_change(&mut document);
    require_fields(&mut document);
    let scheme = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
    let components = document.components.get_or_insert_default();
    components.add_security_scheme(KEY, scheme);
    let cookie = SecurityScheme::ApiKey(ApiKey::Cookie(ApiKeyValue::new(cookie::NAME)));
    components.add_security_scheme(SESSION, cookie);
    document.info.version = env!("CARGO_PKG_VERSION").to_owned();
    document
}

/// Adds what every authenticated call has: its headers and its refusals.
fn complete(operation: &mut Operation, method: &str, path: &str) {
    let is_mutation = method != "GET";
    let parameters = operation.parameters.get_or_insert_default();
    let whose = "The tenant, for admin keys; default otherwise. Some lists take `*`: all tenants";
    parameters.push(header(TENANT_HEADER.as_str(), whose));
    if is_mutation {
        let repeat = "Makes a repeat of this request safe: the same answer, done once";
        parameters.push(header(IDEMPOTENCY_KEY.as_str(), repeat));
    }
    operation.security = Some(vec![
        SecurityRequirement::new::<_, _, String>(KEY, []),
        SecurityRequirement::new::<_, _, String>(SESSION, []),
    ]);
    let mut parameters = operation.parameters.iter().flatten();
    let is_in_query = |one: &RefOr<Parameter>| matches!(one, RefOr::T(one) if one.parameter_in == ParameterIn::Query);
    let call = Call {
        method,
        path,
        has_query: parameters.any(is_in_query),
        is_for_admins: operation.tags.iter().flatten().any(|tag| tag == "administration"),
    };
    for status in [400, 401, 403, 404, 408, 409, 413, 415, 422, 429, 500, 503] {
        refuse(operation, status, &call);
    }
}

pub(crate) fn header(name: &str, description: &str) -> RefOr<Parameter> {
    let parameter = ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some(description))
        .schema(Some(RefOr::T(Schema::Object(
            ObjectBuilder::new().schema_type(Type::String).build(),
        ))))
        .build();
    RefOr::T(parameter)
}

/// Adds the answer with this status, if the call can be refused with one of its codes.
fn refuse(operation: &mut Operation, status: u16, call: &Call<'_>) {
    let codes = Code::ALL.iter().filter(|code| code.status().as_u16() == status);
    let codes = codes.filter(|code| is_possible(**code, call));
    let codes: Vec<String> = codes.map(|code| format!("`{}`", code.as_str())).collect();
    if codes.is_empty() {
        return;
    }
    let response = problem(&format!("A problem: {}", codes.join(", ")));
    operation.responses.responses.entry(status.to_string()).or_insert(RefOr::T(response));
}

fn problem(description: &str) -> Response {
    let schema = RefOr::Ref(Ref::from_schema_name("Problem"));
    let content = ContentBuilder::new().schema(Some(schema)).build();
    ResponseBuilder::new().description(description).content(PROBLEM_JSON, content).build()
}

/// The body of a change has the fields of a new subscription, all optional.
fn describe_change(document: &mut utoipa::openapi::OpenApi) {
    let schemas = &mut document.components.get_or_insert_default().schemas;
    let Some(RefOr::T(Schema::Object(new))) = schemas.get("NewSubscription") else { return };
    let mut change = new.clone();
    change.required.clear();
    schemas.insert("SubscriptionChange".to_owned(), RefOr::T(Schema::Object(change)));
    let body = document
        .paths
        .paths
        .get_mut("/v1/subscriptions/{id}")
        .and_then(|item| item.patch.as_mut())
        .and_then(|operation| operation.request_body.as_mut());
    if let Some(RefOr::T(body)) = body {
        for content in body.content.values_mut() {
            if let RefOr::T(content) = content {
                content.schema = Some(RefOr::Ref(Ref::from_schema_name("SubscriptionChange")));
            }
        }
    }
}

/// Marks every field of an answer as required, even if it may be null, except a few.
fn require_fields(document: &mut utoipa::openapi::OpenApi) {
    let schemas = &mut document.components.get_or_insert_default().schemas;
    for (name, schema) in schemas.iter_mut() {
        if !REQUESTS.contains(&name.as_str()) {
            require_all(name, schema);
        }
    }
}

fn require_all(name: &str, schema: &mut RefOr<Schema>) {
    match schema {
        RefOr::T(Schema::Object(object)) => {
            // A problem always has its detail, a policy its schedule, and a misfit all of its fields.
            let is_there = |field: &&String| match field.as_str() {
                "tenant" => !WITHOUT_TENANT.contains(&name),
                "detail" if name == "Problem" => true,
                _ if name == "Misfit" => true,
                "retry" if name.ends_with("Policy") => true,
                field => !LEFT_OUT.contains(&field),
            };
            object.required = object.properties.keys().filter(is_there).cloned().collect();
        }
        RefOr::T(Schema::AllOf(all)) => {
            all.items.iter_mut().for_each(|part| require_all(name, part));
        }
        RefOr::T(_) | RefOr::Ref(_) => {}
    }
}
