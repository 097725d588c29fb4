//! Secrets that must not be shown, sent elsewhere or left on disk.

use std::path::Path;
use std::time::Duration;

use serde_json::json;

use crate::flows::capturing;
use crate::kit::{ATTACKER, Client, Verdict};
use crate::scene::Scene;
use crate::support::{Start, run, stderr, stdout, text};

const OK: &str = "HTTP/1.1 200 x\r\ncontent-length: 0\r\n\r\n";
const FAILS: &str = "HTTP/1.1 500 x\r\ncontent-length: 0\r\n\r\n";

/// How many files below this directory contain the text.
fn files_with(directory: &Path, text: &str) -> usize {
    let mut found = 0;
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found += files_with(&path, text);
        } else if let Ok(bytes) = std::fs::read(&path) {
            found += usize::from(bytes.windows(text.len()).any(|part| part == text.as_bytes()));
        }
    }
    found
}

#[test]
fn custom_headers_are_protected_like_the_token() {
    const OLD: &str = "old-canary-7f3a9c1d";
    const NEW: &str = "new-canary-5b2e8f04";
    let mut verdict = Verdict::of("custom headers as secrets");
    let mut scene = Scene::of(&mut Scene::options(&[]).with(&["--time-scale", "200"]));
    let (first, at_first) = capturing(FAILS, Duration::ZERO);
    let (second, at_second) = capturing(OK, Duration::ZERO);
    let mut client = scene.attacker();
    let wish = json!({"url": format!("http://{first}/"), "types": ["a.b"],
        "headers": {"x-secret": OLD}});
    let made = client.post("/v1/subscriptions", &wish).unwrap().json();
    let path = format!("/v1/subscriptions/{}", text(&made, "id"));
    client.post("/v1/events", &json!({"type": "a.b", "data": 1})).unwrap();
    scene
        .server
        .wait("a first attempt", |_| (!at_first.heads.lock().unwrap().is_empty()).then_some(()));
    let mut reader = Client::new(scene.address(), &scene.reader, ATTACKER);
    let shown = String::from_utf8(reader.get(&path).unwrap().body).unwrap();
    verdict.must(!shown.contains(OLD), "shown to a read-only key");
    // The URL changes and no headers are given.
    client.status("PATCH", &path, &json!({"url": format!("http://{second}/")}));
    client.post("/v1/events", &json!({"type": "a.b", "data": 2})).unwrap();
    scene.server.wait("the new URL to be called", |_| {
        (!at_second.heads.lock().unwrap().is_empty()).then_some(())
    });
    let sent = at_second.heads.lock().unwrap().concat();
    verdict.must(!sent.contains(OLD), "the old value was sent to the new URL");
    // New headers; deliveries that wait for the old URL must not get them.
    client.status("PATCH", &path, &json!({"headers": {"x-secret": NEW}}));
    let before = at_first.heads.lock().unwrap().len();
    scene.server.wait("another attempt at the old URL", |_| {
        (at_first.heads.lock().unwrap().len() > before).then_some(())
    });
    let sent = at_first.heads.lock().unwrap()[before..].concat();
    verdict.must(!sent.contains(NEW), "the new value was sent to the old URL");
    scene.server.signal("TERM");
    scene.server.ended();
    let on_disk = [OLD, NEW].map(|canary| files_with(&scene.server.data_dir, canary));
    verdict.figure(format!("{on_disk:?} files with the old and the new value in clear"));
    verdict.must(on_disk == [0, 0], format!("in clear in {on_disk:?} files"));
    verdict.end();
}

#[test]
fn passwords_of_the_database_are_never_printed() {
    const PASSWORD: &str = "canary-password-91c7";
    let mut verdict = Verdict::of("database passwords in output");
    let folder = tempfile::tempdir().unwrap();
    let data_dir = folder.path().join("data");
    let mut shown = Vec::new();
    let addresses = [
        format!("postgres://u:{PASSWORD}@127.0.0.1:1/db"),
        format!("postgres://u@127.0.0.1:1/db?password={PASSWORD}"),
        format!("postgres://u@127.0.0.1:1/db?sslmode=disable&password={PASSWORD}"),
        format!("postgress://u:{PASSWORD}@127.0.0.1:1/db"),
        format!("postgres:/u:{PASSWORD}@127.0.0.1:1/db"),
        format!("postgres://u:{PASSWORD}@[::1/db"),
        format!("host=127.0.0.1 password={PASSWORD} dbname=x"),
    ];
    for address in &addresses {
        for words in [
            ["config", "--json"],
            ["config", "--store"],
            ["doctor", "--store"],
            ["serve", "--store"],
        ] {
            let mut arguments = vec![words[0]];
            if words[1] == "--json" {
                arguments.push("--json");
            }
            let data = data_dir.to_str().unwrap();
            arguments.extend(["--store", address, "--data-dir", data]);
            let output = run(&arguments);
            if (stdout(&output) + &stderr(&output)).contains(PASSWORD) {
                shown.push(format!("{} {}", words[0], address.replace(PASSWORD, "…")));
            }
        }
    }
    verdict.figure(format!(
        "{} addresses, 4 commands each, {} show it",
        addresses.len(),
        shown.len()
    ));
    verdict.must(shown.is_empty(), shown.join(", "));
    verdict.end();
}

#[test]
fn key_ring_of_another_store_is_refused_where_nothing_is_sealed() {
    let mut verdict = Verdict::of("key ring of another store");
    let (one, other) = (Start::dev().fresh(), Start::dev().fresh());
    for server in [&one, &other] {
        server.signal("TERM");
    }
    let (mut one, mut other) = (one, other);
    one.ended();
    other.ended();
    std::fs::copy(other.data_dir.join("keyring"), one.data_dir.join("keyring")).unwrap();
    let refused = Start::dev().try_at(&one.data_dir).is_err();
    verdict.figure(format!("refused: {refused}"));
    verdict.must(refused, "the server started with another store's key ring");
    verdict.end();
}
