//! Postrider's own events for a tenant and for the operator, traces, log lines, metrics.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value as Json, json};

use crate::support::receiver::Arrived;
use crate::support::server::Server;
use crate::support::{Receiver, Start, http, run, stderr, stdout, text};

/// The tenant, the type and, of a warning, the nearness to the threshold of each received event.
fn told(arrived: &[Arrived]) -> Vec<(String, String, String)> {
    let told = arrived.iter().map(|arrived| {
        let event: Json = serde_json::from_slice(&arrived.body).unwrap();
        let data = &event["data"];
        let near = data["warning"]["nearness"].as_str().unwrap_or_default().to_owned();
        (text(data, "tenant"), text(&event, "type"), near)
    });
    let mut told: Vec<_> = told.collect();
    told.sort();
    told
}

#[test]
fn events_about_a_failing_destination_go_to_its_tenant_and_to_the_operator() {
    let (failing, tenants, operators) =
        (Receiver::start(500), Receiver::start(200), Receiver::start(200));
    let server = Start::dev()
        .with(&["--set", "operator_tenant=ops", "--set", "circuit.disable_consecutive=20"])
        .with(&["--set", "circuit.freeze_over_consecutive=2000"])
        .fresh();
    let mut keys = Vec::new();
    for tenant in ["acme", "other", "ops"] {
        server.ask("POST", "/v1/tenants", Some(&json!({"id": tenant})), 201);
        let wanted = json!({"tenant": tenant, "scopes": ["ingest", "manage", "read"]});
        keys.push(text(&server.ask("POST", "/v1/keys", Some(&wanted), 201), "key"));
    }
    let ask = |key: &str, path: &str, body: &Json| {
        let asked = http::request(server.address, key, "POST", path, Some(body)).unwrap();
        assert!(asked.0 < 300, "{asked:?}");
    };
    let wish = |url: &str, types: &str| json!({"url": url, "types": [types]});
    for key in &keys[..2] {
        ask(key, "/v1/subscriptions", &wish(&failing.url(), "task.*"));
    }
    ask(&keys[0], "/v1/subscriptions", &wish(&tenants.url(), "postrider.*"));
    ask(&keys[2], "/v1/subscriptions", &wish(&operators.url(), "postrider.*"));
    for key in &keys[..2] {
        let event = json!({"type": "task.updated", "data": 1});
        ask(key, "/v1/events/batch", &json!(vec![event; 20]));
    }
    let row = |tenant: &str, kind: &str, near: &str| {
        (tenant.to_owned(), format!("postrider.destination.{kind}"), near.to_owned())
    };
    let of = |tenant: &str| {
        [
            row(tenant, "disabled", ""),
            row(tenant, "failing", "half"),
            row(tenant, "failing", "nine_tenths"),
        ]
    };
    assert_eq!(told(&tenants.wait_for(3)), of("acme"), "a tenant is told of its own");
    assert_eq!(told(&operators.wait_for(6)), [of("acme"), of("other")].concat());
}

#[test]
fn a_request_that_names_its_trace_is_continued_at_the_receiver() {
    let receiver = Receiver::start(200);
    let mut server = Start::dev().fresh();
    server.subscribe(&receiver.url());
    let body = "{\"type\":\"a.b\",\"data\":1}";
    let head = format!(
        "POST /v1/events HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\
         traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n\r\n{body}",
        server.key,
        body.len()
    );
    let answer = http::raw(server.address, head.as_bytes()).unwrap();
    assert!(answer.starts_with("HTTP/1.1 202"), "{answer}");
    let arrived = receiver.wait_for(1).remove(0).traceparent;
    assert!(arrived.starts_with("00-4bf92f3577b34da6a3ce929d0e0e4736-"), "{arrived}");
    assert!(arrived.ends_with("-01") && !arrived.contains("00f067aa0ba902b7"), "{arrived}");
    let line = server.wait_for_line(|line| line.contains("\"attempt\":1"));
    let line: Json = serde_json::from_str(&line).unwrap();
    assert_eq!(line["trace_id"], "4bf92f3577b34da6a3ce929d0e0e4736", "the log names that trace");
}

#[test]
fn every_attempt_has_its_one_line() {
    let receiver = Receiver::start(503);
    let mut server = Start::dev().fresh();
    server.subscribe(&receiver.url());
    server.send(1);
    let line = server.wait_for_line(|line| line.contains("\"attempt\":1"));
    let line: Json = serde_json::from_str(&line).unwrap();
    let delivery = server.delivery();
    assert_eq!(line["message"], "attempt");
    assert_eq!(line["delivery"], delivery["id"]);
    assert_eq!(line["destination"], delivery["destination_id"]);
    assert_eq!(line["next"], delivery["next_attempt_at"]);
    for (name, value) in [("tenant", "default"), ("outcome", "status_5xx"), ("state", "waiting")] {
        assert_eq!(line[name], value, "{line}");
    }
    assert_eq!((&line["status"], &line["host"]), (&json!(503), &json!("127.0.0.1")));
    assert!(line["ms"].is_u64() && line["turn"] == "first", "{line}");
    let sent = &receiver.arrived()[0].traceparent;
    assert_eq!(text(&line, "trace_id"), sent[3..35], "the trace that the receiver was sent");
}

#[test]
fn metrics_have_everything_that_was_promised() {
    let (good, bad) = (Receiver::start(200), Receiver::start(500));
    let mut server = Start::dev().fresh();
    server.subscribe(&good.url());
    server.subscribe(&bad.url());
    server.send(1);
    let (status, _) = http::request(server.address, "wrong", "GET", "/v1/keys", None).unwrap();
    assert_eq!(status, 401);
    let wanted = [
        "postrider_events_accepted_total",
        "postrider_deliveries_accepted_total",
        "postrider_attempts_total{",
        "postrider_lane_depth{lane=\"first\"}",
        "postrider_lane_depth{lane=\"retry\"}",
        "postrider_lane_age_seconds{lane=\"first\"}",
        "postrider_lane_age_seconds{lane=\"retry\"}",
        "postrider_circuits{state=",
        "postrider_settlement_seconds_bucket",
        "postrider_accept_sync_seconds_bucket",
        "postrider_delivery_seconds_count 1",
        "postrider_deliveries_dead_total{reason=\"exhausted\"} 0",
        "postrider_http_requests_total{method=\"POST\",route=\"/v1/subscriptions\",status=\"201\"} 2",
        "postrider_problems_total{code=\"unauthorized\"} 1",
        "postrider_build_info{version=",
        "postrider_disk_free_bytes ",
        "process_resident_memory_bytes ",
        "postrider_ledger{state=\"waiting\"} 1",
        "postrider_ledger{state=\"delivered\"} 1",
    ];
    server.wait("all metrics", |server| {
        let answer = http::request(server.address, &server.key, "GET", "/metrics", None).unwrap();
        wanted.iter().all(|name| answer.1.contains(name)).then_some(()).or_else(|| {
            let missing: Vec<_> = wanted.iter().filter(|name| !answer.1.contains(**name)).collect();
            eprintln!("missing: {missing:?}");
            None
        })
    });
}

#[test]
fn access_log_has_a_line_for_each_request_without_its_query() {
    let mut server = Start::dev().with(&["--set", "telemetry.access=true"]).fresh();
    server.get("/v1/destinations?limit=7&q=secret-in-a-query");
    let line = server.wait_for_line(|line| line.contains("postrider::access"));
    let line: Json = serde_json::from_str(&line).unwrap();
    assert_eq!((&line["method"], &line["path"]), (&json!("GET"), &json!("/v1/destinations")));
    assert_eq!((&line["status"], &line["address"]), (&json!(200), &json!("127.0.0.1")));
    assert!(line["ms"].is_u64() && !line.to_string().contains("secret-in-a-query"), "{line}");
}

#[test]
fn a_destination_is_not_counted_after_its_last_subscription_was_deleted() {
    let receiver = Receiver::start(200);
    let mut server = Start::dev().fresh();
    let made = server.subscribe(&receiver.url());
    let enabled = |server: &Server, count: u32| {
        let line = format!("postrider_circuits{{state=\"enabled\"}} {count}\n");
        server.metrics().contains(&line).then_some(())
    };
    server.wait("one enabled destination", |server| enabled(server, 1));
    let path = format!("/v1/subscriptions/{}", made["id"].as_str().unwrap());
    server.ask("DELETE", &path, None, 204);
    server.wait("no destination", |server| enabled(server, 0));
}

/// The spans that a collector received.
fn spans(collector: &Receiver) -> Vec<Json> {
    let requests = collector.arrived().into_iter();
    let requests = requests.map(|arrived| serde_json::from_slice(&arrived.body).unwrap());
    let spans = requests.flat_map(|request: Json| {
        let spans = &request["resourceSpans"][0]["scopeSpans"][0]["spans"];
        spans.as_array().unwrap().clone()
    });
    spans.collect()
}

/// An attribute of a span.
fn attribute<'a>(span: &'a Json, name: &str) -> &'a Json {
    let all = span["attributes"].as_array().unwrap();
    let found = all.iter().find(|attribute| attribute["key"] == name);
    let value = &found.unwrap_or_else(|| panic!("no {name} in {span}"))["value"];
    value.as_object().unwrap().values().next().unwrap()
}

#[test]
fn traces_go_to_the_collector_as_the_receiver_sees_them() {
    let (collector, receiver) = (Receiver::start(200), Receiver::start(503));
    let mut server = Start::dev()
        .variable("POSTRIDER_TELEMETRY__OTLP_ENDPOINT", &collector.url())
        .variable("POSTRIDER_TELEMETRY__OTLP_TOKEN", "a-token-of-the-collector")
        .fresh();
    server.subscribe(&receiver.url());
    server.send(1);
    receiver.wait_for(1);
    // The shutdown sends the last ones.
    server.signal("TERM");
    let (status, log) = server.ended();
    assert!(status.success(), "{log}");
    let spans = spans(&collector);
    let find = |name: &str| {
        let found: Vec<_> = spans.iter().filter(|span| span["name"] == name).collect();
        assert_eq!(found.len(), 1, "{spans:?}");
        found[0].clone()
    };
    let (accepted, attempt) = (find("accept event"), find("attempt delivery"));
    assert_eq!(accepted["parentSpanId"], "");
    assert_eq!(attempt["traceId"], accepted["traceId"]);
    assert_eq!(attempt["parentSpanId"], accepted["spanId"]);
    let seen = &receiver.arrived()[0].traceparent;
    let sent = format!("00-{}-{}-01", text(&attempt, "traceId"), text(&attempt, "spanId"));
    assert_eq!(*seen, sent, "the receiver continues this very span");
    assert_eq!(attribute(&attempt, "http.response.status_code"), "503");
    assert_eq!(attribute(&attempt, "postrider.delivery.id"), &receiver.arrived()[0].webhook_id);
    assert_eq!(attribute(&attempt, "server.address"), "127.0.0.1");
    let request: Json = serde_json::from_slice(&collector.arrived()[0].body).unwrap();
    let resource = &request["resourceSpans"][0]["resource"];
    assert_eq!(attribute(resource, "service.instance.id").as_str().unwrap().len(), 32);
    assert_eq!(attempt["status"]["code"], 2);
    assert_eq!(accepted["status"]["code"], 1);
    let time = |name: &str| text(&attempt, name).parse::<u64>().unwrap();
    assert!(time("startTimeUnixNano") <= time("endTimeUnixNano"));
}

#[test]
fn metrics_go_to_the_collector_as_the_page_has_them() {
    let (collector, receiver) = (Receiver::start(200), Receiver::start(200));
    let mut server = Start::dev()
        .variable("POSTRIDER_TELEMETRY__OTLP_ENDPOINT", collector.url().trim_end_matches("/hook"))
        .with(&["--set", "telemetry.otlp_metrics=true", "--set", "telemetry.otlp_sample=0"])
        .with(&["--set", "telemetry.otlp_metrics_interval=1s"])
        .fresh();
    server.subscribe(&receiver.url());
    server.send(3);
    receiver.wait_for(3);
    let at_interval = collector.wait_for(1).remove(0);
    assert_eq!(at_interval.path, "/v1/metrics");
    server.signal("TERM");
    let (status, log) = server.ended();
    assert!(status.success(), "{log}");
    // The shutdown sends the last values.
    let last: Json = serde_json::from_slice(&collector.arrived().pop().unwrap().body).unwrap();
    let told = &last["resourceMetrics"][0];
    assert_eq!(attribute(&told["resource"], "service.name"), "postrider");
    let all = told["scopeMetrics"][0]["metrics"].as_array().unwrap();
    let metric = |name: &str| all.iter().find(|one| one["name"] == name).unwrap();
    let sum = &metric("postrider_events_accepted_total")["sum"];
    assert_eq!(sum["dataPoints"][0]["asInt"], "3");
    assert_eq!(sum["isMonotonic"], true);
    let attempts = &metric("postrider_attempts_total")["sum"]["dataPoints"][0];
    assert_eq!(attribute(attempts, "outcome"), "delivered");
    let seconds = &metric("postrider_delivery_seconds")["histogram"]["dataPoints"][0];
    assert_eq!(seconds["count"], "3");
    let buckets = seconds["bucketCounts"].as_array().unwrap();
    assert_eq!(buckets.len(), seconds["explicitBounds"].as_array().unwrap().len() + 1);
    let in_buckets = buckets.iter().map(|count| count.as_str().unwrap().parse::<u64>().unwrap());
    assert_eq!(in_buckets.sum::<u64>(), 3);
    assert!(metric("postrider_ledger")["gauge"]["dataPoints"].as_array().unwrap().len() >= 6);
}

#[test]
fn failing_collector_affects_nothing_else() {
    let (broken, receiver) = (Receiver::start(500), Receiver::start(200));
    for endpoint in [broken.url(), "http://127.0.0.1:1".to_owned()] {
        let start = Start::dev().variable("POSTRIDER_TELEMETRY__OTLP_ENDPOINT", &endpoint);
        let mut server = start.fresh();
        server.subscribe(&receiver.url());
        server.send(5);
        server.wait("all to be delivered", |server| {
            (server.ledger()["delivered"] == 5).then_some(())
        });
        let line = server.wait_for_line(|line| line.contains("trace collector did not accept"));
        assert!(line.contains("WARN"), "{line}");
        let metrics = http::request(server.address, &server.key, "GET", "/metrics", None).unwrap();
        let lost =
            metrics.1.lines().find_map(|line| line.strip_prefix("postrider_spans_lost_total "));
        assert!(lost.unwrap().parse::<u64>().unwrap() > 0);
    }
}

#[test]
fn the_key_ring_gets_a_new_key_and_everything_is_sealed_with_it() {
    let receiver = Receiver::start(200);
    let mut server = Start::dev().fresh();
    let old = server.subscribe(&receiver.url());
    let data_dir = server.data_dir.clone();
    let keyring = |what: &str| -> Json {
        let arguments = ["keyring", what, "--json", "--data-dir", data_dir.to_str().unwrap()];
        let output = run(&arguments);
        assert!(output.status.success(), "{}", stderr(&output));
        serde_json::from_str(&stdout(&output)).unwrap()
    };
    let first = keyring("show");
    assert_eq!(first["keys"].as_array().unwrap().len(), 1);
    let second = keyring("rotate");
    assert_eq!(second["keys"][0], first["newest"]);
    assert_ne!(second["newest"], first["newest"]);
    server.signal("HUP");
    let line = server.wait_for_line(|line| line.contains("has a new key"));
    assert!(line.contains(second["newest"].as_str().unwrap()), "{line}");
    let path = format!("/v1/subscriptions/{}/test", text(&old, "id"));
    assert_eq!(server.ask("POST", &path, None, 200)["outcome"], "delivered");

    let mut server = server.restart(Start::dev());
    server.wait_for_line(|line| line.contains("sealed again") && line.contains("\"stale\":1"));
    assert_eq!(server.ask("POST", &path, None, 200)["outcome"], "delivered");
    // A ring without a key that is in use is not loaded.
    std::fs::write(data_dir.join("keyring"), "{}").unwrap();
    server.signal("HUP");
    server.wait_for_line(|line| line.contains("key ring stays as it was"));
    assert_eq!(server.ask("POST", &path, None, 200)["outcome"], "delivered");
}

#[test]
fn key_ring_made_before_the_first_start_is_the_one_that_the_server_uses() {
    let folder = tempfile::tempdir().unwrap();
    let ring = folder.path().join("ring");
    let setting = format!("keyring={}", ring.display());
    let create = || -> Json {
        let output = run(&["keyring", "create", "--json", "--set", &setting]);
        assert!(output.status.success(), "{}", stderr(&output));
        serde_json::from_str(&stdout(&output)).unwrap()
    };
    let made = create();
    let mode = std::fs::metadata(&ring).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let server = Start::dev().with(&["--set", &setting]).fresh();
    assert_eq!(server.ledger()["accepted"], 0);
    assert!(!server.data_dir.join("keyring").exists(), "it needs no other ring");
    assert_eq!(create(), made, "a ring that is there stays as it is");
}
