//! Problem documents (RFC 9457), the errors of the API.
//!
//! Every refusal of this API is one of the [`Code`]s below, each with its status, its title and
//! what to do. A problem never contains a secret, a stack trace, or data of another tenant.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use postrider_store::StoreError;
use serde::Serialize;
use utoipa::ToSchema;

/// The media type of a problem document.
pub const PROBLEM_JSON: &str = "application/problem+json";
/// The default `Retry-After`.
const RETRY_AFTER_SECONDS: u64 = 5;

/// A refusal, to be sent as an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    code: Code,
    detail: String,
    field: Option<String>,
    existing_id: Option<String>,
    retry_after_seconds: Option<u64>,
    pointer: Option<String>,
}

/// A problem document, as it is sent.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Problem)]
pub struct ProblemBody {
    /// Where the problem is described.
    #[serde(rename = "type")]
    #[schema(example = "/docs#problem-invalid_field")]
    kind: String,
    /// The problem in a few words; the same for every occurrence.
    title: &'static str,
    /// The HTTP status.
    #[schema(example = 422)]
    status: u16,
    /// The stable name of the problem, for programs.
    #[schema(example = "invalid_field")]
    code: &'static str,
    /// What is wrong this time, and what to do.
    detail: String,
    /// The offending field of the body, the query or the headers, such as `filter.all[2].op`.
    field: Option<String>,
    /// The identifier of the existing record that conflicts.
    #[serde(skip_serializing_if = "Option::is_none")]
    existing_id: Option<String>,
    /// The place of the fault in the payload, the schema or the example, as a JSON pointer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pointer: Option<String>,
}

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $status:ident, $title:literal, $remedy:literal;)*) => {
        /// The stable codes of all problems.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Code {
            $($(#[$doc])* $variant,)*
        }

        impl Code {
            /// All codes, by status.
            pub const ALL: &[Code] = &[$(Code::$variant,)*];

            /// The name, for programs.
            pub const fn as_str(self) -> &'static str {
                match self { $(Code::$variant => $name,)* }
            }

            /// The HTTP status that it is answered with.
            pub const fn status(self) -> StatusCode {
                match self { $(Code::$variant => StatusCode::$status,)* }
            }

            /// The problem in a few words.
            pub const fn title(self) -> &'static str {
                match self { $(Code::$variant => $title,)* }
            }

            /// What to do about it.
            pub const fn remedy(self) -> &'static str {
                match self { $(Code::$variant => $remedy,)* }
            }
        }
    };
}

codes! {
    /// The body is not valid JSON.
    InvalidJson = "invalid_json", BAD_REQUEST, "The body is not JSON",
        "Send a body that is well-formed JSON in UTF-8.";
    /// The request violates HTTP.
    BadRequest = "bad_request", BAD_REQUEST, "The request cannot be read",
        "Send a well-formed HTTP request.";
    /// There is no valid key.
    Unauthorized = "unauthorized", UNAUTHORIZED, "A valid key is needed",
        "Send a valid key as `Authorization: Bearer pr_…`; ask your administrator for one.";
    /// The key lacks the scope.
    MissingScope = "missing_scope", FORBIDDEN, "The key may not do this",
        "Use a key that has the scope that is named, or have one created.";
    /// A request with a session that another site made.
    CrossSite = "cross_site", FORBIDDEN, "The request comes from another site",
        "Make it from a page of this server, or send a key as `Authorization: Bearer pr_…`.";
    /// A session over plain http.
    TlsNeeded = "tls_needed", FORBIDDEN, "Signing in needs TLS",
        "Reach the server over https, or over http on the machine itself.";
    /// No such thing, or not yours.
    NotFound = "not_found", NOT_FOUND, "There is no such thing",
        "Check the identifier, and that the key belongs to the right tenant.";
    /// The tenant does not exist.
    UnknownTenant = "unknown_tenant", NOT_FOUND, "There is no such tenant",
        "Create the tenant first, or correct the header postrider-tenant.";
    /// The path does not exist.
    UnknownPath = "unknown_path", NOT_FOUND, "There is no such path",
        "See /docs for the paths that there are.";
    /// The path does not support the method.
    MethodNotAllowed = "method_not_allowed", METHOD_NOT_ALLOWED, "The path does not take this method",
        "Use one of the methods that the header allow names.";
    /// The body did not arrive in time.
    BodyTooSlow = "body_too_slow", REQUEST_TIMEOUT, "The body did not arrive in time",
        "Send the whole body within ten seconds.";
    /// An identical subscription exists.
    Twin = "twin_subscription", CONFLICT, "An identical subscription exists",
        "Use or change the existing subscription, which existing_id names.";
    /// The `uid` belongs to a different subscription.
    UidTaken = "uid_taken", CONFLICT, "The uid belongs to another subscription",
        "Change the existing subscription, which existing_id names, repeat its body, or choose another uid.";
    /// The event identifier belongs to a different event.
    EventConflict = "event_id_conflict", CONFLICT, "The event id was used for another event",
        "Give a new event another id; repeat an event with exactly the same content.";
    /// The identifier exists already.
    AlreadyExists = "already_exists", CONFLICT, "It exists already",
        "Choose another identifier, or use what exists.";
    /// The payload of the event was erased.
    EventErased = "event_erased", CONFLICT, "The payload of the event was erased",
        "There is nothing left to send. Send the event again with a new id, if it may be sent.";
    /// The state of the record does not allow this.
    WrongState = "wrong_state", CONFLICT, "Its state does not permit this",
        "Look at its state first; detail says what would be possible.";
    /// The tenant still has subscriptions.
    TenantInUse = "tenant_in_use", CONFLICT, "The tenant cannot be deleted",
        "Delete the tenant's subscriptions first; the tenant default stays.";
    /// A key cannot delete itself, and the key of `POSTRIDER_ADMIN_KEY` is not deleted here.
    KeyInUse = "key_in_use", CONFLICT, "The key cannot be deleted",
        "Delete the key with another admin key.";
    /// The idempotency key was used for another request.
    IdempotencyConflict = "idempotency_conflict", CONFLICT, "The idempotency key was used for another request",
        "Use a new Idempotency-Key for a new request; repeat a request with exactly the same body.";
    /// A link that was used, has expired or was revoked.
    LinkGone = "link_gone", GONE, "The link cannot be used any more",
        "Ask whoever gave it to you for a new one; each works once and for a short time.";
    /// The body is too large.
    TooLarge = "body_too_large", PAYLOAD_TOO_LARGE, "The body is too large",
        "Keep an event within 1 MiB and a batch within 1000 events and 16 MiB.";
    /// The content type is not JSON.
    UnsupportedMediaType = "unsupported_media_type", UNSUPPORTED_MEDIA_TYPE, "The content type is not supported",
        "Send application/json, or application/x-ndjson to the batch path.";
    /// A field has an invalid value.
    InvalidField = "invalid_field", UNPROCESSABLE_ENTITY, "A field is not acceptable",
        "Correct the field that is named; detail says what is allowed.";
    /// A field is unknown.
    UnknownField = "unknown_field", UNPROCESSABLE_ENTITY, "A field is unknown",
        "Remove or correct the field that is named; unknown fields are never ignored.";
    /// A required field is missing.
    MissingField = "missing_field", UNPROCESSABLE_ENTITY, "A field is missing",
        "Add the field that is named.";
    /// A call for all tenants that is about one.
    OneTenantNeeded = "one_tenant_needed", UNPROCESSABLE_ENTITY, "The call is about one tenant",
        "Name the tenant in the header postrider-tenant; `*` is for lists that detail allows.";
    /// A question whose answer takes too long to compute.
    TooMuchWork = "too_much_work", UNPROCESSABLE_ENTITY, "The question is too large",
        "Ask for less, as detail says.";
    /// A URL that may not be contacted.
    UrlRefused = "url_refused", UNPROCESSABLE_ENTITY, "The URL may not be a destination",
        "Give a URL as detail asks for; what is not public must be allowed by the operator.";
    /// The type is not in the catalogue.
    UnknownEventType = "unknown_event_type", UNPROCESSABLE_ENTITY, "The event type is not in the catalogue",
        "Correct the type, or add it to the catalogue by POST /v1/event-types.";
    /// The payload does not fit the schema of its type.
    PayloadMisfit = "payload_misfit", UNPROCESSABLE_ENTITY, "The payload does not fit the schema of its type",
        "Correct what pointer names, or change the schema; GET /v1/event-types/{name} shows it.";
    /// The type is reserved for Postrider's own events.
    ReservedType = "reserved_type", UNPROCESSABLE_ENTITY, "The event type is reserved",
        "Event types that begin with postrider. are made by Postrider alone; choose another name.";
    /// Too many requests.
    RateLimited = "rate_limited", TOO_MANY_REQUESTS, "Too many requests",
        "Wait for as long as the header retry-after says.";
    /// Too many concurrent requests, bytes or streams.
    TooManyAtOnce = "too_many_at_once", TOO_MANY_REQUESTS, "Too much at the same time",
        "Let some of what is under way end first, or wait for as long as the header retry-after says.";
    /// So many secrets overlap that a rotation would end an overlap early.
    TooManySecrets = "too_many_secrets", TOO_MANY_REQUESTS, "Too many secrets overlap",
        "Wait until the next of the replaced secrets expires; the header retry-after says when.";
    /// A quota of the tenant is reached.
    QuotaReached = "quota_reached", TOO_MANY_REQUESTS, "A limit of the tenant is reached",
        "Do as detail says: it names the limit and its value. GET /v1/limits shows all of them.";
    /// An internal error.
    Internal = "internal", INTERNAL_SERVER_ERROR, "Something of ours failed",
        "Repeat the request; if that does not help, tell the operator when it happened.";
    /// The disk is full.
    StorageFull = "storage_full", SERVICE_UNAVAILABLE, "There is no room to store this",
        "Nothing was accepted. Repeat later; the operator must make room.";
    /// A quota of the server is reached.
    ServerFull = "server_limit_reached", SERVICE_UNAVAILABLE, "A limit of the server is reached",
        "Nothing was accepted. Repeat later, as retry-after says; detail names the limit.";
    /// The store cannot be reached.
    Unavailable = "unavailable", SERVICE_UNAVAILABLE, "The server cannot do this now",
        "Repeat later, with the same event id or Idempotency-Key: a repeat is safe.";
    /// The server has reached its capacity.
    Overloaded = "overloaded", SERVICE_UNAVAILABLE, "The server has too much to do",
        "Repeat it after as long as the header retry-after says; a repeat is safe.";
    /// The request took too long.
    TimedOut = "timed_out", SERVICE_UNAVAILABLE, "The request took too long",
        "Repeat it, with the same event id or Idempotency-Key: it may have happened.";
}

impl Problem {
    /// A problem with a specific detail.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        let retry_after_seconds =
            (code.status() == StatusCode::SERVICE_UNAVAILABLE).then_some(RETRY_AFTER_SECONDS);
        Problem {
            code,
            detail: detail.into(),
            field: None,
            existing_id: None,
            retry_after_seconds,
            pointer: None,
        }
    }

    /// The problem of an invalid field.
    pub fn field(field: impl Into<String>, why: impl ToString) -> Self {
        Problem::new(Code::InvalidField, why.to_string()).at(field)
    }

    /// The problem of a missing field.
    pub fn missing(field: &str) -> Self {
        Problem::new(Code::MissingField, format!("`{field}` is missing: give it")).at(field)
    }

    /// The record does not exist or belongs to another tenant: the answer is the same.
    pub fn not_found(what: &str, id: &str) -> Self {
        // Limit the length of text from the caller.
        let shown: String = id.chars().filter(|c| !c.is_control()).take(300).collect();
        Problem::new(Code::NotFound, format!("there is no {what} {shown}"))
    }

    /// Sets the field.
    #[must_use]
    pub fn at(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self
    }

    /// Puts a place before the field: `[17]` and `type` make `[17].type`.
    #[must_use]
    pub fn below(mut self, place: &str) -> Self {
        self.field = Some(match self.field.take() {
            None => place.to_owned(),
            Some(field) if field.starts_with('[') => format!("{place}{field}"),
            Some(field) => format!("{place}.{field}"),
        });
        self
    }

    /// Sets the identifier of the existing record.
    #[must_use]
    pub fn existing(mut self, id: impl ToString) -> Self {
        self.existing_id = Some(id.to_string());
        self
    }

    /// Sets the place of the fault, as a JSON pointer.
    #[must_use]
    pub fn pointer(mut self, pointer: impl Into<String>) -> Self {
        self.pointer = Some(pointer.into());
        self
    }

    /// Sets the `Retry-After`.
    #[must_use]
    pub fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after_seconds = Some(seconds.max(1));
        self
    }

    /// The code.
    pub const fn code(&self) -> Code {
        self.code
    }

    /// The document for the answer.
    pub fn body(&self) -> ProblemBody {
        ProblemBody {
            kind: format!("/docs#problem-{}", self.code.as_str()),
            title: self.code.title(),
            status: self.code.status().as_u16(),
            code: self.code.as_str(),
            detail: self.detail.clone(),
            field: self.field.clone(),
            existing_id: self.existing_id.clone(),
            pointer: self.pointer.clone(),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = serde_json::to_vec(&self.body()).unwrap_or_default();
        let mut response = (self.code.status(), body).into_response();
        // For the audit log.
        response.extensions_mut().insert(self.code);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        if let Some(seconds) = self.retry_after_seconds {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.code == Code::Unauthorized {
            let challenge = HeaderValue::from_static("Bearer realm=\"postrider\"");
            headers.insert(header::WWW_AUTHENTICATE, challenge);
        }
        if self.code == Code::BodyTooSlow {
            // The unread rest of the body could be taken for the next request, so the connection is
            // closed.
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

impl From<StoreError> for Problem {
    /// The caller is told what to do; the cause is logged for the operator.
    fn from(error: StoreError) -> Self {
        match &error {
            StoreError::UnknownCursor | StoreError::Busy | StoreError::TooSlow(_) => {}
            StoreError::Unavailable(_)
            | StoreError::Fenced { .. }
            | StoreError::DiskFull { .. }
            | StoreError::NotWritable { .. }
            | StoreError::Stopped(_)
            | StoreError::Locked { .. }
            | StoreError::NewerVersion { .. }
            | StoreError::Corrupt { .. }
            | StoreError::Internal(_) => {
                tracing::error!(%error, "a request failed, because the store did");
            }
        }
        match error {
            StoreError::DiskFull { .. } => Problem::new(
                Code::StorageFull,
                "the server has no room left: nothing was stored; repeat the request later",
            ),
            StoreError::Unavailable(_) | StoreError::Fenced { .. } => Problem::new(
                Code::Unavailable,
                "the store cannot be reached now; repeat the request, which is safe",
            ),
            StoreError::NotWritable { .. } | StoreError::Stopped(_) => Problem::new(
                Code::Unavailable,
                "the store takes no writes now; repeat the request later",
            ),
            StoreError::UnknownCursor => crate::paging::bad_cursor(),
            StoreError::Busy => Problem::new(
                Code::TooManyAtOnce,
                "too many requests of this tenant are being answered: wait for their answers",
            )
            .retry_after(RETRY_AFTER_SECONDS),
            StoreError::TooSlow(after) => Problem::new(
                Code::TimedOut,
                format!(
                    "no answer after {} s: ask for less, by a filter or a time",
                    after.as_secs()
                ),
            ),
            StoreError::Locked { .. }
            | StoreError::NewerVersion { .. }
            | StoreError::Corrupt { .. }
            | StoreError::Internal(_) => Problem::internal(),
        }
    }
}

impl Problem {
    /// The HTTP status of the answer.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn status(&self) -> StatusCode {
        self.code.status()
    }

    /// An internal error. Its cause is logged and not shown.
    pub fn internal() -> Self {
        Problem::new(Code::Internal, "an internal error; the operator's log has the cause")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problem_codes_are_unique_and_say_what_to_do() {
        for (n, code) in Code::ALL.iter().enumerate() {
            assert!(Code::ALL[..n].iter().all(|other| other.as_str() != code.as_str()));
            assert!(code.remedy().ends_with('.'), "{code:?}");
            assert!(code.status().is_client_error() || code.status().is_server_error());
        }
    }

    #[test]
    fn a_place_is_put_before_a_field() {
        let at = |problem: Problem| problem.body().field.unwrap();
        assert_eq!(at(Problem::field("type", "no").below("[17]")), "[17].type");
        assert_eq!(at(Problem::field("[1]", "no").below("types")), "types[1]");
        assert_eq!(at(Problem::new(Code::InvalidJson, "no").below("[3]")), "[3]");
    }

    #[test]
    fn a_problem_has_its_headers() {
        let header = |problem: Problem, name: &str| {
            let response = problem.into_response();
            response.headers().get(name).map(|value| value.to_str().unwrap().to_owned())
        };
        let plain = Problem::field("a", "b");
        assert_eq!(header(plain.clone(), "content-type").unwrap(), PROBLEM_JSON);
        assert_eq!(header(plain, "retry-after"), None);
        let limited = Problem::new(Code::RateLimited, "").retry_after(0);
        assert_eq!(header(limited, "retry-after").unwrap(), "1");
        let key = Problem::new(Code::Unauthorized, "");
        assert!(header(key, "www-authenticate").unwrap().starts_with("Bearer"));
    }

    #[test]
    fn details_for_the_operator_are_not_shown_to_the_caller() {
        let place = "/var/lib/canary".to_owned();
        for (error, code) in [
            (StoreError::DiskFull { place: place.clone() }, Code::StorageFull),
            (StoreError::Unavailable(place.clone()), Code::Unavailable),
            (StoreError::Stopped(place.clone()), Code::Unavailable),
            (StoreError::Locked { place: place.clone() }, Code::Internal),
            (StoreError::Internal(place.clone()), Code::Internal),
            (StoreError::Corrupt { place, what: "x".to_owned() }, Code::Internal),
        ] {
            let problem = Problem::from(error);
            assert_eq!(problem.code(), code);
            let text = serde_json::to_string(&problem.body()).unwrap();
            assert!(!text.contains("canary"), "{text}");
            let waits = code.status() == StatusCode::SERVICE_UNAVAILABLE;
            assert_eq!(problem.retry_after_seconds.is_some(), waits);
        }
    }
}
