//! Invalid requests of every kind, with the real binary: the status, the code, the place.

use serde_json::{Value as Json, json};

use crate::support::server::Server;
use crate::support::{Start, http, text};

const HOSTILE: &str = include_str!("../../../domain/tests/hostile_urls.tsv");
const MORE: &str = include_str!("../../../domain/tests/hostile_urls_more.tsv");

/// Sends a request, and expects a problem document.
fn refused(
    server: &Server,
    key: &str,
    (method, path, body): (&str, &str, Option<&Json>),
    (status, code, field): (u16, &str, Option<&str>),
) {
    let (found, answer) = http::request(server.address, key, method, path, body).unwrap();
    assert_eq!(found, status, "{method} {path}: {answer}");
    let problem: Json = serde_json::from_str(&answer).unwrap();
    assert_eq!(problem["code"], code, "{problem}");
    assert_eq!(problem["field"].as_str(), field, "{problem}");
    assert_eq!(problem["status"], status);
    assert!(!text(&problem, "title").is_empty() && !text(&problem, "detail").is_empty());
}

#[test]
fn each_wrong_request_is_answered_with_what_is_wrong() {
    let server = Start::plain().fresh();
    let key = server.key.as_str();
    let (events, subscriptions) = ("/v1/events", "/v1/subscriptions");
    let url = "https://hooks.example.com/in";
    let wish = json!({"url": url, "types": ["*"]});
    let created = server.ask("POST", subscriptions, Some(&wish), 201);

    refused(
        &server,
        "pr_nobody_nothing",
        ("GET", subscriptions, None),
        (401, "unauthorized", None),
    );
    refused(&server, "", ("GET", subscriptions, None), (401, "unauthorized", None));
    server.ask("POST", "/v1/tenants", Some(&json!({"id": "other"})), 201);
    let wanted = json!({"tenant": "other", "scopes": ["read", "ingest"]});
    let other = text(&server.ask("POST", "/v1/keys", Some(&wanted), 201), "key");
    let foreign = format!("{subscriptions}/{}", text(&created, "id"));
    refused(&server, &other, ("GET", &foreign, None), (404, "not_found", None));
    refused(&server, &other, ("POST", subscriptions, Some(&wish)), (403, "missing_scope", None));

    let event = json!({"type": "a.b", "data": 1, "colour": "red"});
    refused(&server, key, ("POST", events, Some(&event)), (422, "unknown_field", Some("colour")));
    let event = json!({"type": "a.b", "data": "x".repeat(1 << 20)});
    refused(&server, key, ("POST", events, Some(&event)), (413, "body_too_large", None));
    let filter = json!({"all": [{"field": "data.a", "op": "like", "value": 1}]});
    let bad = json!({"url": url, "types": ["*"], "filter": filter});
    let place = Some("filter.all[0].op");
    refused(&server, key, ("POST", subscriptions, Some(&bad)), (422, "invalid_field", place));
    refused(&server, key, ("POST", subscriptions, Some(&wish)), (409, "twin_subscription", None));
    let bad = json!({"url": "not a url", "types": ["*"]});
    refused(&server, key, ("POST", subscriptions, Some(&bad)), (422, "url_refused", Some("url")));
    refused(&server, key, ("GET", "/v1/nothing", None), (404, "unknown_path", None));
    refused(&server, key, ("PUT", events, None), (405, "method_not_allowed", None));

    let broken = format!(
        "POST {events} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n\
         content-type: application/json\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{{]"
    );
    let answer = http::raw(server.address, broken.as_bytes()).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("application/problem+json"));
}

/// `\t`, `\n`, `\r` and `\u{…}` stand for the character; any other backslash for itself.
fn unescape(text: &str) -> String {
    let mut text = text.replace("\\t", "\t").replace("\\n", "\n").replace("\\r", "\r");
    while let Some((before, rest)) = text.split_once("\\u{") {
        let (digits, after) = rest.split_once('}').unwrap();
        let code = u32::from_str_radix(digits, 16).unwrap();
        text = format!("{before}{}{after}", char::from_u32(code).unwrap());
    }
    text
}

#[test]
fn every_hostile_url_is_judged_as_the_tables_say() {
    let by_default = Start::plain().fresh();
    let with_http = Start::plain().variable("POSTRIDER_EGRESS__ALLOW_HTTP", "true").fresh();
    let (mut tried, mut taken) = (0, 0);
    for line in HOSTILE.lines().skip(1).chain(MORE.lines().skip(1)) {
        let columns: Vec<&str> = line.split('\t').collect();
        let url = unescape(columns[0]);
        for (server, verdict) in [(&by_default, columns[1]), (&with_http, columns[2])] {
            // Each has its own type, so that no two are twins.
            tried += 1;
            let body = json!({"url": url, "types": [format!("t{tried}")]});
            let asked = ("POST", "/v1/subscriptions", Some(&body));
            if verdict == "refuse" {
                refused(server, &server.key, asked, (422, "url_refused", Some("url")));
            } else {
                assert_eq!(verdict, "accept", "{line}");
                server.ask("POST", "/v1/subscriptions", Some(&body), 201);
                taken += 1;
            }
        }
    }
    println!("hostile URLs: {tried} tried at the real binary, {taken} harmless ones taken");
    assert!(tried >= 2 * 123 && taken > 0);
}

#[test]
fn rate_limits_of_key_and_tenant_apply_and_answers_have_retry_after() {
    for setting in ["limits.key_requests_per_second=2", "limits.tenant_requests_per_second=2"] {
        let server = Start::dev().with(&["--set", setting]).fresh();
        let head = format!(
            "GET /v1/ledger HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\
             connection: close\r\n\r\n",
            server.key
        );
        // The bucket refills while requests are sent, so only many concurrent ones certainly exceed
        // it.
        let answers: Vec<String> =
            (0..50).map(|_| http::raw(server.address, head.as_bytes()).unwrap()).collect();
        assert!(answers[0].starts_with("HTTP/1.1 200"), "{setting}: {}", answers[0]);
        let held = answers.iter().find(|answer| answer.starts_with("HTTP/1.1 429"));
        let held = held.unwrap_or_else(|| panic!("{setting}: none of 50 was held"));
        assert!(held.contains("retry-after: 1"), "{held}");
        assert!(held.contains("\"code\":\"rate_limited\""), "{held}");
    }
}

#[test]
fn a_body_that_does_not_come_is_cut() {
    let server = Start::dev().fresh();
    let head = format!(
        "POST /v1/events HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\ncontent-length: 100\r\n\r\n{{\"type\":",
        server.key
    );
    // After ten seconds; the connection is closed with the answer.
    let answer = http::raw(server.address, head.as_bytes()).unwrap();
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    server.get("/v1/ledger");
}
