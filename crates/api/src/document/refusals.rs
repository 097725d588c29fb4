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

/// Whether a call can be refused with this code.
pub(super) fn is_possible(code: Code, method: &str, path: &str) -> bool {
    let is_mutation = method != "GET";
    if let Some((_, calls)) = ONLY.iter().find(|(only, _)| *only == code) {
        let call = format!("{method} {path}");
        return calls.iter().any(|known| match known.strip_suffix('*') {
            Some(start) => call.starts_with(start),
            None => call == *known,
        });
    }
    match code {
        Code::UnknownPath | Code::MethodNotAllowed | Code::LinkGone => false,
        Code::NotFound => path.contains('{') || is_mutation,
        Code::InvalidJson
        | Code::UnsupportedMediaType
        | Code::TooLarge
        | Code::BodyTooSlow
        | Code::MissingField
        | Code::StorageFull
        | Code::QuotaReached
        | Code::ServerFull
        | Code::IdempotencyConflict => is_mutation,
        Code::BadRequest
        | Code::Unauthorized
        | Code::MissingScope
        | Code::CrossSite
        | Code::TlsNeeded
        | Code::UnknownTenant
        | Code::OneTenantNeeded
        | Code::InvalidField
        | Code::UnknownField
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
        | Code::WrongState => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// The conflicts (409) and the faults of content (422) that a call is documented with.
    fn documented(document: &Value, call: &str) -> Vec<String> {
        let (method, path) = call.split_once(' ').unwrap();
        let answers = &document["paths"][path][method.to_lowercase()]["responses"];
        let said = ["409", "422"].map(|status| answers[status]["description"].as_str().unwrap());
        let said = said.join(" ");
        said.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    }

    #[test]
    fn calls_are_documented_with_the_refusals_that_they_can_give() {
        let document = crate::openapi();
        let everywhere = ["invalid_field", "unknown_field", "missing_field", "one_tenant_needed"];
        for (call, own) in [
            ("POST /v1/destinations/{id}/enable", ["wrong_state"].as_slice()),
            ("POST /v1/keys", &[]),
            (
                "POST /v1/events",
                &["event_id_conflict", "unknown_event_type", "payload_misfit", "reserved_type"],
            ),
            ("POST /v1/subscriptions", &["twin_subscription", "uid_taken", "url_refused"]),
            ("POST /v1/subscriptions/{id}/test", &["wrong_state"]),
            ("POST /v1/deliveries/{id}/replay", &["event_erased", "wrong_state"]),
            ("DELETE /v1/tenants/{id}", &["tenant_in_use"]),
            ("POST /v1/simulate", &["too_much_work"]),
        ] {
            let mut found = documented(&document, call);
            let mut expected: Vec<_> =
                everywhere.iter().chain(own).map(ToString::to_string).collect();
            expected.push("idempotency_conflict".to_owned());
            found.sort();
            expected.sort();
            assert_eq!(found, expected, "{call}");
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
