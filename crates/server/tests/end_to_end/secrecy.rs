//! Every secret contains a marker; after a run with failures of all kinds the marker is nowhere.

use std::path::Path;
use std::sync::OnceLock;

use serde_json::json;

use crate::support::{Receiver, Start, http};

const MARKER: &str = "kanarienvogel";

/// A key cannot contain the marker; this is the middle part of the key that is used.
static CLIENT_KEY: OnceLock<String> = OnceLock::new();

/// The marker as text and as hex, and its middle part in the three alignments of base64.
fn shapes() -> Vec<String> {
    let hex = postrider_domain::hex::encode(MARKER.as_bytes());
    let base64 = ["a2FuYXJpZW52b2dlb", "thbmFyaWVudm9nZW", "rYW5hcmllbnZvZ2Vs"];
    let mut shapes = vec![MARKER.to_owned(), hex];
    shapes.extend(base64.iter().map(|text| (*text).to_owned()));
    shapes
}

fn assert_clean(what: &str, bytes: &[u8]) {
    // Preallocated files end in zeros, which are skipped.
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let client_key = CLIENT_KEY.get().cloned();
    for shape in shapes().into_iter().chain(client_key) {
        let found = bytes[..end].windows(shape.len()).any(|window| window == shape.as_bytes());
        assert!(!found, "{shape} stands in {what}");
    }
}

fn assert_directory_clean(directory: &Path) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            assert_directory_clean(&path);
        } else {
            assert_clean(&path.display().to_string(), &std::fs::read(&path).unwrap());
        }
    }
}

#[test]
fn no_secret_is_logged_listed_or_written_down() {
    let key = format!("{MARKER}-{MARKER}-{MARKER}");
    let token = format!("token-{MARKER}-of-a-receiver");
    // whsec_ and 26 bytes: the marker, twice.
    let secret = "whsec_a2FuYXJpZW52b2dlbGthbmFyaWVudm9nZWw=";
    let receiver = Receiver::start(500);
    let start = || {
        let start = Start::dev().with(&["--set", "telemetry.log=trace"]);
        let targets = json!([
            {"name": "hook", "url": "http://127.0.0.1:1/", "secret": secret},
            {"name": "chat", "slack": format!("http://127.0.0.1:1/services/{MARKER}")},
            {"name": "mail", "email": "ops@example.com"},
        ]);
        start
            .with(&["--set", "alerts.smtp_server=127.0.0.1:1", "--set", "alerts.smtp_user=x"])
            .with(&["--set", "alerts.email_from=x@example.com"])
            .variable("POSTRIDER_ALERTS__TARGETS", &targets.to_string())
            .variable("POSTRIDER_ALERTS__SMTP_PASSWORD", &format!("password-{MARKER}"))
            .variable("POSTRIDER_ADMIN_KEY", &key)
    };
    let mut server = start().fresh();
    for url in [receiver.url(), "http://127.0.0.1:1/nobody".to_owned()] {
        let body = json!({
            "url": url, "types": ["*"], "auth_token": token, "secret": secret,
            "headers": {"x-api-key": format!("key-{MARKER}"), "x-team": "blue"},
        });
        let created = server.ask("POST", "/v1/subscriptions", Some(&body), 201);
        assert_eq!(created["secret"], secret, "it is shown once");
    }
    let key_pair = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["client.example".to_owned()]).unwrap();
    let body = json!({
        "url": "https://127.0.0.1:1/nobody", "types": ["*"],
        "client_certificate": params.self_signed(&key_pair).unwrap().pem(),
        "client_key": key_pair.serialize_pem(),
    });
    server.ask("POST", "/v1/subscriptions", Some(&body), 201);
    let lines = key_pair.serialize_pem();
    let line = lines.lines().nth(1).unwrap();
    CLIENT_KEY.set(line[line.len() / 2..line.len() - 4].to_owned()).unwrap();
    server.send(3);
    server.wait("every attempt to fail", |server| (server.ledger()["waiting"] == 9).then_some(()));
    let delivery = server.get("/v1/deliveries")["data"][0]["id"].as_str().unwrap().to_owned();
    let request = format!("/v1/deliveries/{delivery}/attempts/1/request");
    for path in [
        "/v1/subscriptions",
        "/v1/deliveries",
        "/v1/destinations",
        "/metrics",
        "/v1/keys",
        "/v1/config",
        "/v1/server",
        "/v1/alerts",
        &request,
    ] {
        let (status, answer) = http::request(server.address, &key, "GET", path, None).unwrap();
        assert_eq!(status, 200, "{path}: {answer}");
        assert_clean(path, answer.as_bytes());
    }
    let tried = server.ask("POST", "/v1/alerts/test", None, 200);
    assert_clean("the outcome of test messages", tried.to_string().as_bytes());
    let wrong = format!("{key}-wrong");
    let (status, answer) = http::request(server.address, &wrong, "GET", "/v1/keys", None).unwrap();
    assert_eq!(status, 401);
    assert_clean("a refusal", answer.as_bytes());

    let data_dir = server.data_dir.clone();
    server.signal("TERM");
    let (status, log) = server.ended();
    assert!(status.success());
    assert!(log.contains("\"attempt\""), "{log}");
    assert_clean("the log", log.as_bytes());
    assert_directory_clean(&data_dir);
}
