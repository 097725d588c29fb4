//! Every table and every record as it reads at 80 columns.

use serde_json::{Value as Json, json};
use unicode_width::UnicodeWidthStr as _;

use super::{
    access, alert, delivery, destination, erasure, event, event_type, replay, subscription,
};
use crate::output::Output;
use crate::show::Show;

const NOW: &str = "2026-11-18T02:14:57.000Z";
/// What a tenant may put where a text is shown.
const HOSTILE: &str = "a\u{1b}[2J\u{202e}b";

fn show(width: usize) -> Show {
    Show { output: Output::plain(width), now: NOW.parse().unwrap() }
}

fn list(data: &Json) -> Json {
    json!({ "data": data, "next_cursor": null })
}

/// At 80 columns it is the snapshot; at no width is it wider, or shows a control character.
fn check(name: &str, words: impl Fn(&Show) -> String) {
    for width in [80, 100, 120, 160, 200] {
        let text = words(&show(width));
        for line in text.lines() {
            let is_hint = ["postrider ", "more: "].iter().any(|hint| line.contains(hint));
            assert!(is_hint || line.width() <= width, "{name} at {width}: {line:?}");
        }
        let is_safe = |c: char| c == '\n' || !c.is_control() && c != '\u{202e}';
        assert!(text.chars().all(is_safe), "{name}: {text:?}");
    }
    insta::assert_snapshot!(name, words(&show(80)));
}

fn id(prefix: &str, n: u8) -> String {
    format!("{prefix}_019a86d99e38770787070707070707{n:02x}")
}

fn deliveries() -> Json {
    let one = |n: u8, state: &str, kind: &str, attempts: u32, next: Json, finished: Json| {
        json!({
            "id": id("dlv", n), "event_id": id("evt", n), "subscription_id": id("sub", 1),
            "destination_id": id("dst", 1), "type": kind, "state": state, "reason": null,
            "attempts": attempts, "next_attempt_at": next, "created_at": "2026-11-18T02:12:30.000Z",
            "finished_at": finished,
        })
    };
    json!([
        one(5, "queued", "task.updated", 0, json!(null), json!(null)),
        one(4, "waiting", "task.updated", 2, json!("2026-11-18T02:16:21.800Z"), json!(null)),
        one(3, "in_flight", "invoice.payment_failed.final_notice", 1, json!(null), json!(null)),
        one(2, "delivered", "task.updated", 1, json!(null), json!(NOW)),
        one(1, "dead", HOSTILE, 12, json!(null), json!("2026-11-17T02:12:30.000Z")),
    ])
}

fn detail() -> Json {
    let mut one = deliveries()[1].clone();
    one["attempt_log"] = json!([
        {
            "number": 1, "turn": "first", "started_at": "2026-11-18T02:12:30.100Z", "duration_ms": 31,
            "outcome": "failed", "status": 500, "error": "status 500",
            "response_body": format!("upstream said no {HOSTILE}"), "timings": {},
        },
        {
            "number": 2, "turn": "retry", "retry": 1, "started_at": "2026-11-18T02:13:54.900Z",
            "duration_ms": 5000, "outcome": "failed", "status": null, "error": "timeout (response)",
            "response_body": null, "detail": "connected to 203.0.113.7:443", "timings": {},
        },
    ]);
    one
}

#[test]
fn deliveries_at_80_columns() {
    check("deliveries_list", |show| delivery::list(show, &list(&deliveries()), false));
    check("deliveries_list_empty", |show| delivery::list(show, &list(&json!([])), false));
    check("deliveries_list_no_match", |show| delivery::list(show, &list(&json!([])), true));
    check("deliveries_get", |show| delivery::one(show, &detail()));
    check("deliveries_explain", |show| {
        let explanation = json!({
            "summary": "waiting for retry 2 of 11",
            "because": ["attempt 2 failed: timeout (response)"],
            "next": {"at": "2026-11-18T02:16:21.800Z", "what": "it is attempted at its slot"},
            "unblock": [{"action": "fix_receiver", "what": "make the receiver answer"}],
        });
        delivery::explained(show, &explanation)
    });
}

#[test]
fn attempt_is_two_lines_at_80_columns_and_one_on_a_wide_terminal() {
    let one = detail();
    let url = "https://hooks.example.com/services/T024BE7LH/incoming/task-updates";
    let line = |show: &Show| delivery::attempt_line(show, &one, &one["attempt_log"][1], url);
    check("tail", line);
    assert_eq!(line(&show(400)).lines().count(), 1);
}

fn statistics() -> Json {
    let counts = |attempts: u64, delivered: u64, rate: Json| {
        json!({
            "attempts": attempts, "delivered": delivered, "failed": attempts - delivered,
            "own_faults": 0, "success_rate": rate, "p50_ms": 42, "p99_ms": 1810,
        })
    };
    let hour = |at: &str, attempts, delivered, rate| {
        let mut hour = counts(attempts, delivered, rate);
        hour["at"] = json!(at);
        hour
    };
    let recent = |class: &str| {
        json!({
            "started_at": "2026-11-18T02:12:30.100Z", "duration_ms": 31, "class": class,
            "status": null,
        })
    };
    json!({
        "hours": [
            hour("2026-11-18T00:00:00.000Z", 100, 39, json!(0.39)),
            hour("2026-11-18T01:00:00.000Z", 0, 0, json!(null)),
            hour("2026-11-18T02:00:00.000Z", 40, 0, json!(0.0)),
        ],
        "total": counts(140, 39, json!(0.2785)),
        "failures": [{"class": "status_5xx", "count": 90}, {"class": "timeout_response", "count": 11}],
        "figures": {
            "last_24_hours": counts(140, 39, json!(0.2785)),
            "last_7_days": counts(99_140, 99_039, json!(0.9989)),
            "recent": [recent("delivered"), recent("delivered"), recent("status_5xx")],
        },
    })
}

#[test]
fn destinations_at_80_columns() {
    let one = |n: u8, state: &str, url: &str, reason: Json| {
        json!({
            "id": id("dst", n), "url": url, "state": state, "reason": reason, "attempts": 140,
            "successes": 39, "failures": 101, "consecutive_failures": 88, "waiting": 412,
            "last_success_at": "2026-11-17T20:00:00.000Z",
            "disabled_at": "2026-11-18T01:00:00.000Z", "frozen_at": null,
            "next_probe_at": "2026-11-18T02:20:00.000Z", "created_at": "2026-11-01T00:00:00.000Z",
            "thresholds": {
                "disabled_by_failure_share":
                    {"failures": 101, "attempts": 140, "share": 0.7214, "grace": 100, "limit": 0.7},
                "disabled_by_consecutive_failures": {"now": 88, "limit": 2000},
                "frozen_by_consecutive_failures": {"now": 88, "limit": 50000},
                "frozen_by_time": {
                    "consecutive_failures": {"now": 88, "limit": 2000},
                    "seconds_without_success": {"now": 22497, "limit": 259_200},
                },
            },
        })
    };
    let reason = "101 of 140 attempts failed, which is more than 70 %";
    let disabled = one(1, "disabled", "https://hooks.example.com/services/T024/in", json!(reason));
    let all = json!([disabled, one(2, "enabled", "https://a.example/", json!(null))]);
    check("destinations_list", |show| destination::list(show, &list(&all), false));
    check("destinations_list_empty", |show| destination::list(show, &list(&json!([])), false));
    check("destinations_get", |show| destination::one(show, &disabled, &statistics()));
    check("destinations_stats", |show| destination::stats(show, &statistics()));
    check("destinations_stats_empty", |show| destination::stats(show, &json!({"hours": []})));
    let transition = |at: &str, from: &str, to: &str, reason: &str| {
        json!({
            "at": at, "from": from, "to": to, "reason": reason,
            "counters": {"attempts": 140, "successes": 39, "failures": 101, "consecutive_failures": 88},
        })
    };
    let timeline = json!([
        transition(
            "2026-11-18T02:10:00.000Z",
            "disabled",
            "disabled",
            "the probe failed: status 503"
        ),
        transition("2026-11-18T01:00:00.000Z", "enabled", "disabled", reason),
        transition("2026-11-16T00:00:00.000Z", "frozen", "enabled", &format!("by hand: {HOSTILE}")),
    ]);
    check("destinations_timeline", |show| destination::timeline(show, &list(&timeline)));
    check("destinations_timeline_empty", |show| destination::timeline(show, &list(&json!([]))));
}

fn subscription_record(n: u8, url: &str) -> Json {
    json!({
        "id": id("sub", n), "url": url, "destination_id": id("dst", n),
        "types": ["task.*", "note.created"], "object": null,
        "filter": {"field": "data.status", "op": "eq", "value": "CUR"}, "format": "standard",
        "auth_token": "****7f3a", "client_certificate": {
            "subject": "CN=client.example.com", "expires_at": "2027-01-01T00:00:00.000Z",
            "fingerprint": "00",
        },
        "ca_certificates": [], "headers": {"x-team": "****lue"}, "rate_limit": 2.5,
        "enabled": n != 2, "public_key": null, "retiring_secrets": 1,
        "secret_overlap_ends_at": "2026-11-19T02:14:57.000Z",
        "created_at": "2026-11-10T02:14:57.000Z", "updated_at": "2026-11-18T02:14:00.000Z",
    })
}

#[test]
fn subscriptions_at_80_columns() {
    let url = "https://hooks.example.com/services/T024BE7LH/incoming/task-updates";
    let all = json!([subscription_record(1, url), subscription_record(2, "https://a.example/")]);
    check("subscriptions_list", |show| subscription::list(show, &list(&all)));
    let mut named = all.clone();
    named[0]["uid"] = json!("orders-eu");
    check("subscriptions_list_uid", |show| subscription::list(show, &list(&named)));
    named[1]["name"] = json!(format!("Invoices {HOSTILE}"));
    let both = |width: usize| subscription::list(&show(width), &list(&named));
    assert!(both(160).contains("UID") && both(160).contains("NAME"), "{}", both(160));
    assert!(!both(80).contains("NAME"), "there is room for one of them: {}", both(80));
    named[0]["uid"] = json!(null);
    check("subscriptions_list_name", |show| subscription::list(show, &list(&named)));
    check("subscriptions_list_empty", |show| subscription::list(show, &list(&json!([]))));
    check("subscriptions_get", |show| subscription::one(show, &subscription_record(1, url)));
    let mut rotated = subscription_record(1, url);
    rotated["secret"] = json!("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD");
    check("subscriptions_rotate", |show| subscription::rotated(show, &rotated));
    let tested = json!({
        "subscription_id": id("sub", 1), "started_at": NOW, "duration_ms": 31, "outcome": "failed",
        "status": 503, "error": "status 503", "response_body": format!("<h1>{HOSTILE}</h1>"),
        "timings": {"dns_ms": 1, "connect_ms": 2, "tls_ms": 10, "response_ms": 18},
    });
    check("subscriptions_test_failed", |show| subscription::tested(show, &tested));
    let refused = json!({
        "duration_ms": 1, "outcome": "failed", "status": null, "error": "refused", "timings": {},
        "detail": "connection refused by 203.0.113.7:443",
    });
    check("subscriptions_test_refused", |show| subscription::tested(show, &refused));
    let delivered = json!({"duration_ms": 3, "outcome": "delivered", "status": 204, "timings": {}});
    check("subscriptions_test", |show| subscription::tested(show, &delivered));
}

#[test]
fn events_at_80_columns() {
    let one = |id: &str, object: Json, count: u32| {
        json!({
            "id": id, "type": "task.updated", "object": object, "time": "2026-11-18T02:00:00.000Z",
            "accepted_at": "2026-11-18T02:12:30.000Z", "delivery_count": count,
        })
    };
    let all = json!([one(&id("evt", 1), json!("T-1044"), 2), one("task-1044-v7", json!(null), 0)]);
    check("events_list", |show| event::list(show, &list(&all), false));
    check("events_list_empty", |show| event::list(show, &list(&json!([])), false));
    let mut shown = all[0].clone();
    shown["data"] = json!({"status": "CUR", "note": HOSTILE});
    shown["old"] = json!({"status": "NEW"});
    shown["deliveries"] = json!([deliveries()[3], deliveries()[4]]);
    check("events_get", |show| event::one(show, &shown));
}

#[test]
fn replays_at_80_columns() {
    let one = |n: u8, state: &str, done: u64| {
        json!({
            "id": id("rpl", n), "state": state, "per_second": 50, "total": 500, "done": done,
            "skipped": if state == "finished" { json!(500 - done) } else { json!(null) },
            "outcomes": {
                "pending": 1, "failed": 3, "delivered": done - 6, "dead": 2, "withdrawn": 0,
            },
            "filter": {
                "state": "dead", "destination": id("dst", 1), "subscription": null, "type": null,
                "since": "2026-11-17T00:00:00.000Z", "until": null, "ended_since": null,
            },
            "created_at": "2026-11-18T02:10:00.000Z", "finished_at": null,
        })
    };
    let all = json!([one(1, "running", 120), one(2, "finished", 498)]);
    check("replay_list", |show| replay::list(show, &list(&all)));
    check("replay_list_empty", |show| replay::list(show, &list(&json!([]))));
    check("replay_get", |show| replay::one(show, &all[1]));
    check("replay_start", |show| replay::started(show, &all[0]));
    check("replay_dry_run", |show| replay::one(show, &json!({"dry_run": true, "total": 7})));
}

#[test]
fn tenants_keys_and_audit_log_at_80_columns() {
    let tenants = json!([
        {"id": "acme", "name": format!("Acme {HOSTILE}"), "created_at": "2026-11-10T02:14:57.000Z"},
        {"id": "default", "name": null, "created_at": "2026-11-01T02:14:57.000Z"},
    ]);
    check("tenants_list", |show| access::tenants(show, &list(&tenants)));
    check("tenants_get", |show| access::tenant(show, &tenants[0]));
    let own = json!({
        "id": "acme", "name": "Acme", "description": format!("First {HOSTILE}"),
        "metadata": {"plan": "gold", "region": HOSTILE}, "quotas": {"subscriptions": 50},
        "requests_per_second": 200, "events_per_second": null, "created_at": NOW,
    });
    check("tenants_get_own_limits", |show| access::tenant(show, &own));
    let keys = json!([
        {
            "id": "0a1b2c3d4e5f6071", "tenant": "acme", "name": "acme's own key for billing",
            "scopes": ["ingest", "manage", "read"], "created_at": NOW,
            "expires_at": "2026-12-18T02:14:57.000Z", "last_used_at": "2026-11-18T02:14:00.000Z",
        },
        {
            "id": "1a1b2c3d4e5f6071", "tenant": null, "name": "first admin key", "scopes": ["admin"],
            "created_at": NOW, "expires_at": null, "last_used_at": null,
        },
    ]);
    check("keys_list", |show| access::keys(show, &list(&keys)));
    check("keys_list_empty", |show| access::keys(show, &list(&json!([]))));
    let mut created = keys[0].clone();
    created["key"] = json!(format!("pr_0a1b2c3d4e5f6071_{}", "e".repeat(30)));
    check("keys_create", |show| access::created_key(show, &created));
    let audit = json!([
        {
            "at": "2026-11-18T02:14:00.000Z", "tenant": "acme", "actor": "key",
            "key": "0a1b2c3d4e5f6071", "key_name": "acme's own key for billing",
            "action": "subscription.create", "target": id("sub", 1), "address": "192.0.2.7",
            "status": 201, "problem": null,
        },
        {
            "at": "2026-11-17T02:14:00.000Z", "tenant": null, "actor": "server", "key": "operator",
            "key_name": null, "action": "keyring.rotate", "target": "k2", "address": null,
            "status": null, "problem": null,
        },
        {
            "at": "2026-11-17T02:14:00.000Z", "tenant": "acme", "actor": "key",
            "key": "0a1b2c3d4e5f6071", "key_name": null, "action": "subscription.create",
            "target": null, "address": "192.0.2.7", "status": 422, "problem": "invalid_field",
        },
    ]);
    check("audit_list", |show| access::audit(show, &list(&audit)));
    check("audit_list_empty", |show| access::audit(show, &list(&json!([]))));
}

#[test]
fn alerts_at_80_columns() {
    let target = |name: &str, kind: &str, to: &str, firing: Json| {
        json!({
            "name": name, "kind": kind, "to": to, "messages": 12, "failures": 0, "next_try_at": null,
            "last_message_at": "2026-11-18T02:12:30.000Z", "firing": firing,
        })
    };
    let firing =
        json!([{"kind": "destination_disabled", "count": 16}, {"kind": "disk_low", "count": 1}]);
    let mail = "ops@example.com, night-shift-of-the-operators@example.com";
    let targets = json!([
        target("ops", "webhook", "https://alerts.example.com", json!([])),
        target("operators-at-night", "email", mail, firing),
    ]);
    check("alerts_list", |show| alert::list(show, &json!({ "data": targets })));
    check("alerts_list_empty", |show| alert::list(show, &json!({"data": []})));
    let trials = json!({"data": [
        {"target": "ops", "kind": "webhook", "to": "https://alerts.example.com", "outcome": "sent",
         "duration_ms": 32, "error": null},
        {"target": "operators-at-night", "kind": "email", "to": mail, "outcome": "failed",
         "duration_ms": 10_000, "error": format!("the mail server refused the sender {HOSTILE}")},
    ]});
    check("alerts_test", |show| alert::tested(show, &trials));
}

#[test]
fn event_types_at_80_columns() {
    let one = |name: &str, scope: &str, description: Json, deprecated: bool, schema: Json| {
        json!({
            "id": name, "name": name, "scope": scope, "description": description, "schema": schema,
            "example": {"status": "CUR", "note": HOSTILE}, "deprecated": deprecated,
            "created_at": "2026-11-18T02:00:00.000Z", "updated_at": "2026-11-18T02:12:30.000Z",
        })
    };
    let text = "A task has a new status, another assignee, or a due date that somebody moved.";
    let schema = json!({"type": "object", "required": ["status"]});
    let types = json!([
        one("task.updated", "tenant", json!(text), false, schema),
        one("invoice.payment_failed.final_notice", "server", json!(HOSTILE), true, json!(null)),
    ]);
    check("event_types_list", |show| event_type::list(show, &list(&types)));
    check("event_types_list_empty", |show| event_type::list(show, &list(&json!([]))));
    check("event_types_get", |show| event_type::one(show, &types[0]));
    let mut bare = types[1].clone();
    bare["example"] = Json::Null;
    check("event_types_get_bare", |show| event_type::one(show, &bare));
}

#[test]
fn erasures_at_80_columns() {
    let one = |n: u8, state: &str, event: Json, object: Json, erased: u64| {
        json!({
            "id": id("ers", n), "state": state, "event": event, "object": object, "erased": erased,
            "already": 0, "cancelled": erased, "attempts": erased * 2,
            "created_at": "2026-11-18T02:12:30.000Z", "finished_at": null,
        })
    };
    let erasures = json!([
        one(2, "scrubbing", json!(null), json!("customer-10447-with-a-long-name"), 1_204),
        one(1, "finished", json!(id("evt", 1)), json!(null), 1),
    ]);
    check("erase_list", |show| erasure::list(show, &list(&erasures)));
    check("erase_list_empty", |show| erasure::list(show, &list(&json!([]))));
    check("erase_many", |show| erasure::one(show, &erasures[0]));
    check("erase_one", |show| erasure::one(show, &erasures[1]));
}
