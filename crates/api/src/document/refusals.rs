//! Which problem each call can be refused with.
//!
//! The tests of the API hold every refusal that they see against this list.

use crate::problem::Code;

/// Codes that only some calls give, with the calls that give them. A path that ends with `*` stands for all that begin
/// with it.
const ONLY: &[(Code, &[&str])] = &[
    (Code::Twin, &["POST /v1/subscriptions", "PATCH /v1/subscriptions/{id}"]),
    (Code::UidTaken, &["POST /v1/subscriptions", "PATCH /v1/subscriptions/{id}"]),
    (Code::UrlRefused, &["POST /v1/subscriptions", "PATCH /v1/subscriptions/{id}"]),
    (Code::EventConflict, &["POST /v1/events", "POST /v1/events/batch"]),
    (
        Code::ReservedType,
        &[
            "POST /v1/events",
            "POST /v1/events/batch",
            "POST /v1/event-types",
            "POST /v1/filters/test",
        ],
    ),
    (Code::UnknownEventType, &["POST /v1/events", "POST /v1/events/batch"]),
    (Code::PayloadMisfit, &["POST /v1/events", "POST /v1/events/batch"]),
    (Code::AlreadyExists, &["POST /v1/event-types", "POST /v1/tenants"]),
    (Code::EventErased, &["POST /v1/deliveries/{id}/replay"]),
    (Code::TenantInUse, &["DELETE /v1/tenants/{id}"]),
    (Code::KeyInUse, &["DELETE /v1/keys/{id}"]),
    (Code::TooManySecrets, &["POST /v1/subscriptions/{id}/secret/rotate"]),
    (Code::TooMuchWork, &["POST /v1/simulate"]),
    (
        Code::MissingField,
        &[
            "POST /v1/backup",
            "POST /v1/erasures",
            "POST /v1/event-types",
            "POST /v1/events",
            "POST /v1/events/batch",
            "POST /v1/filters/test",
            "POST /v1/filters/test/events",
            "POST /v1/keys",
            "POST /v1/portal-links",
            "POST /v1/simulate",
            "POST /v1/subscriptions",
            "POST /v1/tenants",
        ],
    ),
    (
        Code::QuotaReached,
        &[
            "POST /v1/destinations/{id}/enable",
            "POST /v1/erasures",
            "POST /v1/event-types",
            "PATCH /v1/event-types/{id}",
            "POST /v1/events",
            "POST /v1/events/batch",
            "POST /v1/keys",
            "POST /v1/replays",
            "POST /v1/replays/{id}/resume",
            "POST /v1/subscriptions",
            "PATCH /v1/subscriptions/{id}",
        ],
    ),
    (
        Code::ServerFull,
        &[
            "POST /v1/destinations/{id}/enable",
            "POST /v1/erasures",
            "POST /v1/event-types",
            "PATCH /v1/event-types/{id}",
            "POST /v1/events",
            "POST /v1/events/batch",
            "POST /v1/portal-links",
            "POST /v1/replays",
            "POST /v1/replays/{id}/resume",
            "POST /v1/subscriptions",
            "PATCH /v1/subscriptions/{id}",
            "POST /v1/tenants",
        ],
    ),
    (
        Code::WrongState,
        &[
            "POST /v1/alerts/test",
            "POST /v1/backup",
            "PATCH /v1/catalogue",
            "POST /v1/deliveries/*",
            "POST /v1/destinations/*",
            "PATCH /v1/event-types/{id}",
            "POST /v1/replays*",
            "POST /v1/subscriptions/{id}/test",
        ],
    ),
];

/// Calls without an identifier in their path that look for a record all the same.
const LOOKING: [&str; 2] = ["GET /v1/backup", "POST /v1/erasures"];

/// Lists that show the records of all tenants with any of their filters.
const OF_ALL_TENANTS: [&str; 4] = [
    "GET /v1/deliveries/dead",
    "GET /v1/deliveries/due",
    "GET /v1/destinations",
    "GET /v1/destinations/stats",
];

/// A call, as far as it matters for its refusals.
pub(super) struct Call<'c> {
    pub(super) method: &'c str,
    pub(super) path: &'c str,
    /// Whether it has parameters in its query.
    pub(super) has_query: bool,
    /// Whether only an admin key may make it.
    pub(super) is_for_admins: bool,
}

impl Call<'_> {
    /// `POST /v1/events`.
    fn name(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    fn is_mutation(&self) -> bool {
        self.method != "GET"
    }

    /// Whether a body is read. A POST that is documented without one refuses a body with fields.
    fn reads_body(&self) -> bool {
        ["POST", "PATCH"].contains(&self.method)
    }

    /// Whether an admin key that names `*` is told to name one tenant.
    fn is_about_one_tenant(&self) -> bool {
        let is_exempt = self.path == "/v1/session" || OF_ALL_TENANTS.contains(&&*self.name());
        !is_exempt && (self.is_mutation() || !self.is_for_admins)
    }
}

/// Whether a call can be refused with this code.
pub(super) fn is_possible(code: Code, call: &Call<'_>) -> bool {
    let name = call.name();
    if let Some((_, calls)) = ONLY.iter().find(|(only, _)| *only == code) {
        return calls.iter().any(|known| match known.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == *known,
        });
    }
    match code {
        Code::UnknownPath | Code::MethodNotAllowed | Code::LinkGone | Code::TlsNeeded => false,
        Code::NotFound => call.path.contains('{') || LOOKING.contains(&&*name),
        Code::InvalidJson | Code::UnsupportedMediaType => call.reads_body(),
        // With an idempotency key the body of every change is read.
        Code::TooLarge | Code::BodyTooSlow => call.is_mutation(),
        Code::UnknownField => call.reads_body() || call.has_query,
        // A change can have an idempotency key, which is checked.
        Code::InvalidField => call.is_mutation() || call.has_query,
        // The answer for an idempotency key is stored.
        Code::StorageFull | Code::IdempotencyConflict => call.is_mutation(),
        Code::OneTenantNeeded => call.is_about_one_tenant(),
        Code::BadRequest
        | Code::Unauthorized
        | Code::MissingScope
        | Code::CrossSite
        | Code::UnknownTenant
        | Code::RateLimited
        | Code::TooManyAtOnce
        | Code::Internal
        | Code::Unavailable
        | Code::Overloaded
        | Code::TimedOut => true,
        Code::Twin
        | Code::UidTaken
        | Code::UrlRefused
        | Code::EventConflict
        | Code::ReservedType
        | Code::UnknownEventType
        | Code::PayloadMisfit
        | Code::AlreadyExists
        | Code::EventErased
        | Code::TenantInUse
        | Code::KeyInUse
        | Code::TooManySecrets
        | Code::TooMuchWork
        | Code::MissingField
        | Code::QuotaReached
        | Code::ServerFull
        | Code::WrongState => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// The codes that a call is documented with, of these statuses.
    fn documented(document: &Value, call: &str, statuses: &[&str]) -> Vec<String> {
        let (method, path) = call.split_once(' ').unwrap();
        let answers = &document["paths"][path][method.to_lowercase()]["responses"];
        let said = statuses.iter().filter_map(|status| answers[status]["description"].as_str());
        let said = said.collect::<Vec<_>>().join(" ");
        said.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    }

    #[test]
    fn calls_are_documented_with_the_refusals_that_they_can_give() {
        let document = crate::openapi();
        let of_bodies = ["invalid_field", "unknown_field", "one_tenant_needed"];
        for (call, own) in [
            ("POST /v1/destinations/{id}/enable", ["wrong_state"].as_slice()),
            ("POST /v1/keys", &["missing_field"]),
            (
                "POST /v1/events",
                &[
                    "event_id_conflict",
                    "unknown_event_type",
                    "payload_misfit",
                    "reserved_type",
                    "missing_field",
                ],
            ),
            (
                "POST /v1/subscriptions",
                &["twin_subscription", "uid_taken", "url_refused", "missing_field"],
            ),
            ("PATCH /v1/subscriptions/{id}", &["twin_subscription", "uid_taken", "url_refused"]),
            ("POST /v1/subscriptions/{id}/test", &["wrong_state"]),
            ("POST /v1/deliveries/{id}/replay", &["event_erased", "wrong_state"]),
            ("POST /v1/simulate", &["too_much_work", "missing_field"]),
        ] {
            let mut found = documented(&document, call, &["409", "422"]);
            let mut expected: Vec<_> =
                of_bodies.iter().chain(own).map(ToString::to_string).collect();
            expected.push("idempotency_conflict".to_owned());
            found.sort();
            expected.sort();
            assert_eq!(found, expected, "{call}");
        }
    }

    #[test]
    fn calls_without_body_query_or_limit_have_none_of_their_refusals() {
        let document = crate::openapi();
        let all = ["400", "404", "408", "409", "413", "415", "422", "429", "503"];
        for (call, absent) in [
            (
                "DELETE /v1/subscriptions/{id}",
                ["invalid_json", "unknown_field", "missing_field", "unsupported_media_type"]
                    .as_slice(),
            ),
            ("POST /v1/deliveries/{id}/cancel", &["missing_field", "quota_reached"]),
            ("POST /v1/destinations/{id}/freeze", &["missing_field", "quota_reached"]),
            ("POST /v1/filters/test", &["not_found", "quota_reached", "server_limit_reached"]),
            ("POST /v1/events", &["not_found", "tls_needed"]),
            ("GET /v1/config", &["invalid_field", "unknown_field", "one_tenant_needed"]),
            ("GET /v1/deliveries/{id}", &["invalid_field", "unknown_field"]),
            ("GET /v1/destinations", &["one_tenant_needed", "not_found"]),
        ] {
            let found = documented(&document, call, &all);
            assert!(found.contains(&"unknown_tenant".to_owned()), "{call}: {found:?}");
            for code in absent {
                assert!(!found.iter().any(|known| known == code), "{call} cannot give {code}");
            }
        }
        // A status without a code is left out.
        assert_eq!(document["paths"]["/v1/config"]["get"]["responses"].get("422"), None);
        let found = documented(&document, "GET /v1/backup", &["404"]);
        assert!(found.contains(&"not_found".to_owned()), "before the first backup: {found:?}");
    }

    #[test]
    fn calls_that_miss_a_field_are_those_whose_body_needs_one() {
        let document = crate::openapi();
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                let call = format!("{} {path}", method.to_uppercase());
                let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
                let schema = if schema["type"] == "array" { &schema["items"] } else { schema };
                let Some(target) = schema["$ref"].as_str() else { continue };
                let body = document.pointer(target.trim_start_matches('#')).unwrap();
                let needs = body["required"].as_array().is_some_and(|names| !names.is_empty());
                let said = documented(&document, &call, &["422"]);
                // Of these, one field of several must be there.
                let is_choice = ["POST /v1/erasures", "POST /v1/session"].contains(&&*call);
                let expected = needs || is_choice;
                assert_eq!(said.contains(&"missing_field".to_owned()), expected, "{call}");
            }
        }
    }

    #[test]
    fn every_call_that_is_named_exists() {
        let document = crate::openapi();
        for (code, calls) in ONLY {
            for call in *calls {
                let (method, path) = call.split_once(' ').unwrap();
                let method = method.to_lowercase();
                let mut paths = document["paths"].as_object().unwrap().iter();
                let is_there = paths.any(|(known, item)| match path.strip_suffix('*') {
                    Some(start) => known.starts_with(start) && item.get(&method).is_some(),
                    None => known == path && item.get(&method).is_some(),
                });
                assert!(is_there, "{code:?}: {call}");
            }
        }
    }
}
