//! What a new user does in the first ten minutes.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

use serde_json::{Value as Json, json};

use crate::support::{Receiver, Start, balances, http, postrider, stderr, stdout, text};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo=";

/// A process that is killed on drop.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[test]
fn an_event_that_is_sent_arrives_signed_and_verified() {
    let server = Start::dev().fresh();
    let api = format!("http://{}", server.address);
    let command = |arguments: &[&str]| {
        let data_dir = server.data_dir.to_str().unwrap();
        let output = postrider(arguments)
            .args(["--json", "--server", &api, "--data-dir", data_dir])
            .output()
            .unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
        serde_json::from_str::<Json>(&stdout(&output)).unwrap()
    };

    let mut listen =
        postrider(&["listen", "--port", "0", "--json", "--count", "1", "--secret", SECRET]);
    let mut listen = Running(listen.stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(listen.0.stdout.take().unwrap()).lines();
    let mut next = || -> Json { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    let url = text(&next(), "listening");

    let created = command(&["subscriptions", "create", &url, "task.*", "--secret", SECRET]);
    assert!(text(&created, "id").starts_with("sub_"));
    let sent = command(&["send", "task.updated", "{\"status\": \"CUR\"}", "--id", "order-17"]);
    assert_eq!(sent, json!({"id": "order-17", "deliveries": 1}));

    let received = next();
    assert_eq!(received["verified"], true, "{received}");
    assert_eq!(received["body"]["type"], "task.updated");
    assert_eq!(received["body"]["data"], json!({"status": "CUR"}));
    assert!(text(&received, "webhook_id").starts_with("dlv_"));
    assert!(listen.0.wait().unwrap().success(), "it stops after --count");

    let again = command(&["send", "task.updated", "{\"status\": \"CUR\"}", "--id", "order-17"]);
    assert_eq!(again["duplicate"], true);
}

#[test]
fn event_sent_from_a_pipe_arrives_byte_for_byte() {
    use std::io::Write as _;

    let server = Start::dev().fresh();
    let mut listen = postrider(&["listen", "--port", "0", "--count", "1"]);
    let mut listen = Running(listen.stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(listen.0.stdout.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    let body = json!({
        "url": first.strip_prefix("listening on ").unwrap(), "types": ["*"], "format": "raw",
    });
    server.ask("POST", "/v1/subscriptions", Some(&body), 201);
    // Keys in this order, a number that no float can represent, and an unnecessary escape.
    let data = r#"{"z": 12345678901234567890.10, "a": "\u0041"}"#;
    let api = format!("http://{}", server.address);
    let mut send = postrider(&["send", "task.updated", "-", "--server", &api])
        .env("POSTRIDER_KEY", &server.key)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    send.stdin.take().unwrap().write_all(data.as_bytes()).unwrap();
    assert!(send.wait().unwrap().success());
    let event = server.get("/v1/events");
    let path = format!("/v1/events/{}", text(&event["data"][0], "id"));
    let (_, event) = http::request(server.address, &server.key, "GET", &path, None).unwrap();
    assert!(event.contains(data), "{event}");
    assert!(lines.map_while(Result::ok).any(|line| line.starts_with("#1 POST /")));
}

#[test]
fn a_receiver_without_the_secret_says_that_the_signature_is_bad() {
    let server = Start::dev().fresh();
    let other = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    let mut listen = postrider(&["listen", "--port", "0", "--count", "1", "--secret", other]);
    let mut listen = Running(listen.stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(listen.0.stdout.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    server.subscribe(first.strip_prefix("listening on ").unwrap());
    server.send(1);
    let line = lines.next().unwrap().unwrap();
    assert!(line.contains("SIGNATURE BAD: no signature matches"), "{line}");
    assert!(line.contains("answered 401"), "{line}");
    assert!(!line.contains('\u{1b}'), "no colour where there is no terminal");
}

#[test]
fn a_failure_is_retried_and_explained() {
    let receiver = Receiver::start(500);
    let mut server = Start::dev().fresh();
    server.subscribe(&receiver.url());
    server.send(1);
    let delivery = server.wait("the first failure to be settled", |server| {
        let delivery = server.delivery();
        (delivery["attempts"] == 1).then_some(delivery)
    });
    assert_eq!(delivery["state"], "waiting");
    assert!(delivery["next_attempt_at"].is_string(), "{delivery}");
    let attempt = &delivery["attempt_log"][0];
    assert_eq!(attempt["number"], 1);
    assert_eq!(attempt["status"], 500);
    assert_eq!(attempt["outcome"], "failed");
    assert_eq!(attempt["response_body"], "answer");

    let path = format!("/v1/deliveries/{}/explain", text(&delivery, "id"));
    let explained = server.get(&path).to_string();
    assert!(explained.contains("500"), "{explained}");

    let line = server.wait_for_line(|line| line.contains("\"attempt\":1"));
    let line: Json = serde_json::from_str(&line).unwrap();
    assert_eq!(line["delivery"], delivery["id"]);
    assert_eq!(line["destination"], delivery["destination_id"]);
    assert_eq!(line["tenant"], "default");
    assert_eq!(line["outcome"], "status_5xx");
    assert_eq!(line["status"], 500);
    assert_eq!(line["state"], "waiting");
    assert_eq!(line["next"], delivery["next_attempt_at"]);
}

#[test]
fn the_admin_key_is_kept_for_its_owner_alone_and_not_printed_without_a_terminal() {
    use std::os::unix::fs::PermissionsExt as _;

    let server = Start::dev().fresh();
    for name in ["admin.key", "keyring"] {
        let mode = std::fs::metadata(server.data_dir.join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    let key = server.key.clone();
    assert!(key.starts_with("pr_"));
    let server = server.restart(Start::dev());
    assert_eq!(server.key, key, "the second start makes no other");
    server.get("/v1/ledger");

    let directory = tempfile::tempdir().unwrap();
    let data_dir = directory.path().join("data");
    let mut server = Start::dev().at(&data_dir);
    let printed = server.printed("admin key: ");
    assert!(printed.starts_with("written to "), "{printed}");
    let key = std::fs::read_to_string(data_dir.join("admin.key")).unwrap();
    assert!(!printed.contains(key.trim()), "{printed}");
}

#[test]
fn an_admin_key_of_the_operators_choice_is_used_and_not_written() {
    let key = "chosen by an operator, 2026";
    let server = Start::dev().variable("POSTRIDER_ADMIN_KEY", key).fresh();
    assert!(!server.data_dir.join("admin.key").exists());
    server.get("/v1/ledger");
    let (status, _) = http::request(server.address, "another", "GET", "/v1/ledger", None).unwrap();
    assert_eq!(status, 401);
}

#[test]
fn metrics_tell_of_what_became_durable() {
    let (good, bad) = (Receiver::start(204), Receiver::start(503));
    let mut server = Start::dev().fresh();
    server.subscribe(&good.url());
    server.subscribe(&bad.url());
    server.send(3);
    let page = server.wait("the metrics of six attempts", |server| {
        let page = server.metrics();
        let expected = [
            "postrider_events_accepted_total 3",
            "postrider_deliveries_accepted_total 6",
            "postrider_attempts_total{turn=\"first\",outcome=\"delivered\"} 3",
            "postrider_attempts_total{turn=\"first\",outcome=\"status_5xx\"} 3",
            "postrider_circuits{state=\"enabled\"} 2",
            "postrider_ledger{state=\"delivered\"} 3",
            "postrider_ledger{state=\"waiting\"} 3",
            "postrider_ledger_balanced 1",
        ];
        expected.iter().all(|line| page.lines().any(|found| found == *line)).then_some(page)
    });
    assert!(page.contains("postrider_accept_sync_seconds_count 1"), "{page}");
    assert!(balances(&server.ledger()));
}
