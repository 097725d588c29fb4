//! Alerts that leave the server: signed JSON, Slack's form, and e-mails through a real mail server.

use std::path::PathBuf;

use postrider_domain::signature::{SignedHeaders, TOLERANCE, VerifyKey, verify};
use postrider_domain::time::Timestamp;
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value as Json, json};

use crate::support::mail::MailServer;
use crate::support::receiver::Arrived;
use crate::support::server::Server;
use crate::support::{Receiver, Start, http, run, stderr, stdout};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const PASSWORD: &str = "the-password-of-the-mail-server";

/// Quick enough for a test, with these targets.
fn start(targets: &Json) -> Start {
    let start = Start::dev().variable("POSTRIDER_ALERTS__TARGETS", &targets.to_string());
    // The disk of the machine that runs the tests may be nearly full.
    let quick = ["group_window=3s", "interval_min=1s", "resolve_after=1s", "disk_free_min=0"];
    quick.iter().fold(start, |start, setting| start.with(&["--set", &format!("alerts.{setting}")]))
}

/// Destinations are disabled at once, and probed every second.
fn touchy(start: Start) -> Start {
    start
        .with(&["--set", "circuit.disable_consecutive=2"])
        .with(&["--set", "circuit.probe_interval=1s"])
}

/// The message of a webhook, if its signature is right.
fn signed(arrived: &Arrived) -> Json {
    let [timestamp, signature] = &arrived.signed;
    let headers = SignedHeaders {
        id: Some(&arrived.webhook_id),
        timestamp: Some(timestamp),
        signature: Some(signature),
    };
    let now = Timestamp::from_unix_ms(timestamp.parse::<i64>().unwrap() * 1000);
    let key: VerifyKey = SECRET.parse().unwrap();
    verify([&key], headers, &arrived.body, now, TOLERANCE).unwrap();
    serde_json::from_slice(&arrived.body).unwrap()
}

/// A certificate for 127.0.0.1, and its key, as files.
fn certificate(folder: &std::path::Path) -> [PathBuf; 2] {
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let key = KeyPair::generate().unwrap();
    let files = [folder.join("cert.pem"), folder.join("key.pem")];
    std::fs::write(&files[0], params.self_signed(&key).unwrap().pem()).unwrap();
    std::fs::write(&files[1], key.serialize_pem()).unwrap();
    files
}

/// Ten destinations with two events each.
fn ten_destinations(server: &Server, receiver: &Receiver) {
    for n in 0..10 {
        server.subscribe(&format!("{}/secret-path-{n}?token=secret-query", receiver.url()));
    }
    server.send(2);
}

/// Whether the metrics have both messages of each target, and the one that the mail server refused.
fn are_counted(metrics: &str) -> bool {
    let all = [
        "postrider_alerts_total{target=\"hook\",outcome=\"sent\"} 2",
        "postrider_alerts_total{target=\"chat\",outcome=\"sent\"} 2",
        "postrider_alerts_total{target=\"mail\",outcome=\"sent\"} 2",
        "postrider_alerts_total{target=\"mail\",outcome=\"failed\"} 1",
        "postrider_alerts_total{target=\"pager\",outcome=\"sent\"} 0",
    ];
    all.iter().all(|line| metrics.lines().any(|found| found == *line))
}

#[test]
fn outage_is_one_message_to_each_target_and_its_end_another() {
    let folder = tempfile::tempdir().unwrap();
    let [cert, key] = certificate(folder.path());
    let mut mails = MailServer::start(
        &json!({"cert": cert, "key": key, "user": "postrider", "password": PASSWORD, "refuse": 1}),
    );
    let (webhook, slack, bad) = (Receiver::start(200), Receiver::start(200), Receiver::start(500));
    let targets = json!([
        {"name": "hook", "url": webhook.url(), "secret": SECRET},
        {"name": "chat", "slack": format!("{}/services/T0/B0/secret-of-slack", slack.url())},
        {"name": "mail", "email": ["ops@example.com", "Boss@example.com"]},
        {"name": "pager", "url": webhook.url(), "secret": SECRET, "severity": "critical"},
    ]);
    let mut server = touchy(start(&targets))
        .with(&["--set", &format!("alerts.smtp_server=127.0.0.1:{}", mails.port)])
        .with(&["--set", "alerts.email_from=Postrider <postrider@example.com>"])
        .with(&["--set", "alerts.smtp_user=postrider"])
        .with(&["--set", &format!("tls.extra_roots={}", cert.display())])
        .variable("POSTRIDER_ALERTS__SMTP_PASSWORD", PASSWORD)
        .fresh();
    ten_destinations(&server, &bad);
    webhook.wait_until(1);
    slack.wait_until(1);
    let mail = mails.next();
    bad.answer(200);
    webhook.wait_until(2);
    slack.wait_until(2);
    let resolved = mails.next();
    server
        .wait("all messages to be counted", |server| are_counted(&server.metrics()).then_some(()));

    let told: Vec<Json> = webhook.arrived().iter().map(signed).collect();
    assert_eq!(told.len(), 2, "{told:?}");
    let (first, last) = (&told[0]["data"], &told[1]["data"]);
    assert_eq!(told[0]["type"], "postrider.alert");
    assert_eq!((&first["status"], &first["severity"]), (&json!("firing"), &json!("warning")));
    assert_eq!(first["alerts"][0]["kind"], "destination_disabled");
    assert_eq!(first["alerts"][0]["count"], 10);
    assert_eq!(first["alerts"][0]["worst"].as_array().unwrap().len(), 5);
    assert_eq!(last["status"], "resolved");

    let chat: Json = serde_json::from_slice(&slack.arrived()[0].body).unwrap();
    assert!(chat["text"].as_str().unwrap().contains("10 destinations disabled"), "{chat}");

    assert_eq!((&mail["tls"], &mail["authenticated"]), (&json!(true), &json!(true)));
    assert_eq!(mail["to"], json!(["ops@example.com", "Boss@example.com"]));
    let content = mail["content"].as_str().unwrap();
    assert!(
        content.contains("Subject: [Postrider] warning: 10 destinations disabled\r\n"),
        "{content}"
    );
    assert!(content.contains("Content-Type: text/plain; charset=utf-8\r\n"), "{content}");
    assert!(content.contains("Auto-Submitted: auto-generated\r\n"), "{content}");
    let content = resolved["content"].as_str().unwrap();
    assert!(
        content.contains("Subject: [Postrider] resolved: 10 destinations disabled"),
        "{content}"
    );

    // Paths and queries of customers' URLs are often passwords.
    let everything = format!("{told:?} {chat} {mail} {resolved}");
    assert!(!everything.contains("secret-path") && !everything.contains("secret-query"));
    // A message is counted in the metrics first, and shown when it is recorded.
    let shown = server.wait("the last message to be recorded", |server| {
        let shown = server.get("/v1/alerts");
        (shown["data"][2]["messages"] == 2).then_some(shown)
    });
    assert!(slack.url().starts_with(shown["data"][1]["to"].as_str().unwrap()), "{shown}");
    assert!(!shown.to_string().contains("secret-of-slack"), "{shown}");
}

#[test]
fn told_alert_is_not_repeated_after_a_restart_and_its_end_is_told() {
    let (webhook, bad) = (Receiver::start(200), Receiver::start(500));
    let targets = json!([{"name": "hook", "url": webhook.url(), "secret": SECRET}]);
    let server = touchy(start(&targets)).fresh();
    server.subscribe(&bad.url());
    server.send(2);
    webhook.wait_until(1);
    let mut server = server.restart(touchy(start(&targets)));
    server.wait("the target to be known as told", |server| {
        let shown = server.get("/v1/alerts");
        let firing = json!([{"kind": "destination_disabled", "count": 1}]);
        (shown["data"][0]["firing"] == firing).then_some(())
    });
    bad.answer(200);
    webhook.wait_until(2);
    let told: Vec<Json> = webhook.arrived().iter().map(signed).collect();
    assert_eq!(told[1]["data"]["status"], "resolved", "{told:?}");
}

#[test]
fn end_of_an_outage_is_told_although_the_server_saw_nothing_wrong_since_its_start() {
    let (webhook, bad) = (Receiver::start(200), Receiver::start(500));
    let targets = json!([{"name": "hook", "url": webhook.url(), "secret": SECRET}]);
    let server = touchy(start(&targets)).fresh();
    let made = server.subscribe(&bad.url());
    server.send(2);
    webhook.wait_until(1);
    // Without a subscription the destination is not counted any more.
    server.ask("DELETE", &format!("/v1/subscriptions/{}", made["id"].as_str().unwrap()), None, 204);
    let server = server.restart(touchy(start(&targets)));
    webhook.wait_until(2);
    let told: Vec<Json> = webhook.arrived().iter().map(signed).collect();
    assert_eq!(told[1]["data"]["status"], "resolved", "{told:?}");
    drop(server);
}

#[test]
fn dead_deliveries_are_counted_and_no_payload_is_told() {
    let (webhook, bad) = (Receiver::start(200), Receiver::start(500));
    let targets = json!([
        {"name": "other", "url": webhook.url(), "secret": SECRET, "tenants": ["other"]},
        {"name": "hook", "url": webhook.url(), "secret": SECRET, "kinds": ["delivery_dead"]},
    ]);
    let server = start(&targets).with(&["--set", "retry.max=0"]).fresh();
    server.subscribe(&bad.url());
    let event = json!({"type": "task.updated", "data": "payload-of-a-customer"});
    server.ask("POST", "/v1/events/batch", Some(&json!(vec![event; 40])), 202);
    let told = webhook.wait_for(1);
    let told = signed(&told[0]);
    let line = &told["data"]["alerts"][0];
    assert_eq!((&line["kind"], &line["count"]), (&json!("delivery_dead"), &json!(40)), "{told}");
    assert_eq!(line["worst"][0]["name"], "task.updated");
    assert!(!told.to_string().contains("payload-of-a-customer"), "{told}");
}

/// The first message about this kind: its status and its line.
fn told_of(webhook: &Receiver, kind: &str) -> (Json, Json) {
    for count in 1.. {
        let arrived = webhook.wait_for(count);
        let data = signed(&arrived[count - 1])["data"].clone();
        let lines = data["alerts"].as_array().unwrap();
        if let Some(line) = lines.iter().find(|line| line["kind"] == kind) {
            return (data["status"].clone(), line.clone());
        }
    }
    unreachable!("waiting for a message ends or panics")
}

#[test]
fn frozen_destinations_are_told_whether_the_receiver_is_gone_or_somebody_froze_them() {
    let (webhook, gone, good) = (Receiver::start(200), Receiver::start(410), Receiver::start(200));
    let targets = json!([{"name": "hook", "url": webhook.url(), "secret": SECRET}]);
    let server = start(&targets).fresh();
    server.subscribe(&gone.url());
    server.send(1);
    let (status, line) = told_of(&webhook, "destination_frozen");
    assert_eq!((status, &line["count"]), (json!("firing"), &json!(1)), "{line}");
    assert_eq!(line["severity"], "error", "{line}");
    let frozen = server.destination();
    assert_eq!(frozen["state"], "frozen");
    let path = format!("/v1/destinations/{}", frozen["id"].as_str().unwrap());
    gone.answer(200);
    server.ask("POST", &format!("{path}/enable"), None, 200);
    webhook.wait_until(2);
    let told = signed(&webhook.arrived()[1]);
    assert_eq!(told["data"]["status"], "resolved", "{told}");

    let made = server.subscribe(&good.url());
    let path = format!("/v1/destinations/{}", made["destination_id"].as_str().unwrap());
    server.ask("POST", &format!("{path}/freeze"), Some(&json!({"reason": "maintenance"})), 200);
    let told = signed(&webhook.wait_for(3)[2]);
    let line = &told["data"]["alerts"][0];
    assert_eq!(
        (&line["kind"], &line["count"]),
        (&json!("destination_frozen"), &json!(1)),
        "{told}"
    );
}

#[test]
fn failure_of_most_destinations_is_told_as_suspended_transitions() {
    let (webhook, bad) = (Receiver::start(200), Receiver::start(500));
    let targets = json!([{"name": "hook", "url": webhook.url(), "secret": SECRET}]);
    let server = start(&targets).with(&["--set", "mass_failure.destinations_min=3"]).fresh();
    for n in 0..4 {
        server.subscribe(&bad.url_of(&format!("one-of-many-{n}")));
    }
    server.send(2);
    let (status, line) = told_of(&webhook, "transitions_suspended");
    assert_eq!((status, &line["severity"]), (json!("firing"), &json!("critical")), "{line}");
    let shown = server.get("/v1/destinations");
    let states: Vec<&Json> =
        shown["data"].as_array().unwrap().iter().map(|d| &d["state"]).collect();
    assert!(states.iter().all(|state| **state == "enabled"), "{shown}");
}

#[test]
fn disk_with_less_free_space_than_wanted_is_told() {
    let webhook = Receiver::start(200);
    let targets = json!([
        {"name": "hook", "url": webhook.url(), "secret": SECRET, "kinds": ["disk"]},
    ]);
    // No disk is entirely free.
    let server = start(&targets).with(&["--set", "alerts.disk_free_min=100%"]).fresh();
    let (status, line) = told_of(&webhook, "disk");
    assert_eq!((status, &line["severity"]), (json!("firing"), &json!("critical")), "{line}");
    drop(server);
}

#[test]
fn failing_target_is_retried_and_delays_nothing() {
    let (broken, bad, good) = (Receiver::start(503), Receiver::start(500), Receiver::start(200));
    let targets = json!([{"name": "hook", "url": broken.url(), "secret": SECRET}]);
    let mut server = touchy(start(&targets)).fresh();
    server.subscribe_to(&bad.url(), "bad.*");
    server.subscribe_to(&good.url(), "task.*");
    let event = json!({"type": "bad.thing", "data": 1});
    server.ask("POST", "/v1/events/batch", Some(&json!(vec![event; 2])), 202);
    let line = server.wait_for_line(|line| line.contains("an alert was not sent"));
    assert!(line.contains("it answered 503") && line.contains("\"again_in_seconds\":10"), "{line}");
    server.send(50);
    good.wait_until(50);
    broken.answer(200);
    broken.wait_until(2);
    server.wait_for_line(|line| line.contains("alert sent"));
}

#[test]
fn test_message_shows_the_outcome_of_each_target() {
    let (webhook, folder) = (Receiver::start(204), tempfile::tempdir().unwrap());
    let [cert, key] = certificate(folder.path());
    let mut mails = MailServer::start(&json!({}));
    let strict = MailServer::start(
        &json!({"cert": cert, "key": key, "user": "postrider", "password": "another"}),
    );
    let targets = json!([
        {"name": "hook", "url": webhook.url(), "secret": SECRET},
        {"name": "nobody", "slack": "http://127.0.0.1:1/services/secret-of-slack"},
        {"name": "mail", "email": "ops@example.com"},
    ]);
    let sender = ["--set", "alerts.email_from=postrider@example.com"];
    let plain = start(&targets)
        .with(&sender)
        .with(&["--set", &format!("alerts.smtp_server=127.0.0.1:{}", mails.port)])
        .with(&["--set", "alerts.smtp_tls=off"]);
    let server = plain.fresh();
    let url = format!("http://{}", server.address);
    let alerts = |arguments: &[&str]| {
        let all = [&["alerts"], arguments, &["--server", &url, "--key", &server.key]].concat();
        run(&all)
    };
    let output = alerts(&["test"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let text = stdout(&output);
    // The table may break the line within the message.
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("cannot connect to 127.0.0.1"), "{text}");
    assert!(!text.contains("secret-of-slack"), "{text}");
    assert_eq!(text.matches(" sent ").count(), 2, "{text}");
    let message = signed(&webhook.wait_for(1)[0]);
    assert_eq!(message["data"]["status"], "test");
    let mail = mails.next();
    let content = mail["content"].as_str().unwrap();
    assert!(content.contains("Subject: [Postrider] test: alerts arrive here"), "{content}");
    let output = alerts(&["test", "--target", "hook"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&alerts(&["list"])).contains("NAME"));
    let body = json!({"target": "unknown"});
    assert_eq!(server.ask("POST", "/v1/alerts/test", Some(&body), 422)["field"], "target");

    // A mail server that wants TLS, refuses the password and repeats it.
    let server = server.restart(
        start(&targets)
            .with(&sender)
            .with(&["--set", &format!("alerts.smtp_server=127.0.0.1:{}", strict.port)])
            .with(&["--set", "alerts.smtp_user=postrider"])
            .with(&["--set", &format!("tls.extra_roots={}", cert.display())])
            .variable("POSTRIDER_ALERTS__SMTP_PASSWORD", PASSWORD),
    );
    let answer = server.ask("POST", "/v1/alerts/test", Some(&json!({"target": "mail"})), 200);
    let error = answer["data"][0]["error"].as_str().unwrap();
    assert!(error.contains("535") && error.contains("***"), "{error}");
    assert!(!error.contains(PASSWORD), "{error}");
}

#[test]
fn server_without_targets_says_so() {
    let server = Start::dev().fresh();
    assert_eq!(server.get("/v1/alerts")["data"], json!([]));
    let problem = server.ask("POST", "/v1/alerts/test", None, 409);
    assert!(problem["detail"].as_str().unwrap().contains("alerts.targets"), "{problem}");
    let wanted = json!({"tenant": "default", "scopes": ["manage", "read"]});
    let key = server.ask("POST", "/v1/keys", Some(&wanted), 201);
    let key = key["key"].as_str().unwrap();
    for (method, path) in [("GET", "/v1/alerts"), ("POST", "/v1/alerts/test")] {
        let (status, answer) = http::request(server.address, key, method, path, None).unwrap();
        assert_eq!(status, 403, "{answer}");
    }
}
