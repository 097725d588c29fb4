//! Erased means gone: the payload's marker is in no file of the data directory, whatever happened on the way.

use std::path::Path;

use postrider_test_support::receiver::{answer_each, listen};
use serde_json::{Value as Json, json};

use crate::support::server::Server;
use crate::support::{Start, balances};

const MARKER: &str = "kanarienvogel";
const KEPT: &str = "zaunkoenig";

/// A receiver that answers with the body that it got, and fails the first attempts of some.
fn echo() -> String {
    let address = listen(move |stream| {
        answer_each(stream, |request| {
            let body = String::from_utf8_lossy(&request.body).into_owned();
            let status = if body.contains("\"fails\"") { "500 No" } else { "200 OK" };
            let length = body.len();
            format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{body}")
        });
    });
    format!("http://{address}/echo")
}

/// The files of a directory that have the text in them.
fn files_with(directory: &Path, text: &str, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files_with(&path, text, found);
        } else {
            // A file may be removed while the server runs.
            let Ok(bytes) = std::fs::read(&path) else { continue };
            if bytes.windows(text.len()).any(|window| window == text.as_bytes()) {
                found.push(path.display().to_string());
            }
        }
    }
}

fn with(server: &Server, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    files_with(&server.data_dir, text, &mut found);
    found
}

/// Sends events of two people: the marker is in those of one of them only.
fn fill(server: &Server, events: usize) {
    for chunk in 0..events / 50 {
        let batch: Vec<Json> = (0..50)
            .map(|n| {
                let (word, object) =
                    if n % 3 == 0 { (MARKER, "person-7") } else { (KEPT, "person-8") };
                let kind = if n % 5 == 0 { "fails" } else { "works" };
                // Rows of all sizes, so that pages are split and long rows overflow.
                let filler = "x".repeat((n * 997 + chunk * 131) % 20_000);
                json!({
                    "id": format!("order-{chunk}-{n}"), "type": "task.updated", "object": object,
                    "data": {"name": word, "kind": kind, "filler": filler}, "old": [word],
                })
            })
            .collect();
        server.ask("POST", "/v1/events/batch", Some(&Json::Array(batch)), 202);
    }
}

fn erase(server: &mut Server, body: &Json) -> String {
    let begun = server.ask("POST", "/v1/erasures", Some(body), 202);
    begun["id"].as_str().unwrap().to_owned()
}

fn finish(server: &mut Server, id: &str) -> Json {
    let path = format!("/v1/erasures/{id}");
    server.wait("the erasure to finish", |server| {
        let job = server.get(&path);
        (job["state"] == "finished").then_some(job)
    })
}

fn attempted(server: &mut Server, events: usize) {
    server.wait("every first attempt", |server| {
        let ledger = server.ledger();
        let tried = ledger["delivered"].as_u64()? + ledger["waiting"].as_u64()?;
        (tried == events as u64).then_some(())
    });
}

#[test]
fn erased_payload_is_in_no_file_of_the_data_directory() {
    let mut server = Start::dev().fresh();
    server.subscribe(&echo());
    fill(&server, 600);
    attempted(&mut server, 600);
    assert!(!with(&server, MARKER).is_empty(), "it is there before");
    let id = erase(&mut server, &json!({"object": "person-7"}));
    let job = finish(&mut server, &id);
    assert_eq!(job["erased"], 204);
    assert!(job["cancelled"].as_u64().unwrap() > 0, "{job}");
    assert_eq!(with(&server, MARKER), Vec::<String>::new(), "{job}");
    assert!(!with(&server, KEPT).is_empty(), "what was not erased is there");
    let kept = server.get("/v1/events/order-3-1");
    assert_eq!(kept["data"]["name"], KEPT);
    let erased = server.get("/v1/events/order-3-3");
    assert_eq!((&erased["data"], &erased["object"]), (&Json::Null, &json!("person-7")));
    let ledger = server.ledger();
    assert!(balances(&ledger), "{ledger}");
    // The store opens, verifies every row, and goes on.
    let mut server = server.restart(Start::dev());
    assert_eq!(server.get("/v1/events/order-3-1")["data"]["name"], KEPT);
    assert_eq!(with(&server, MARKER), Vec::<String>::new(), "after a restart");
    server.send(1);
    server.kill();
}

#[test]
fn erasure_goes_on_after_a_kill_and_completes() {
    let mut server = Start::dev().fresh();
    server.subscribe(&echo());
    fill(&server, 1_000);
    attempted(&mut server, 1_000);
    let id = erase(&mut server, &json!({"object": "person-7"}));
    let mut kills = 0;
    // Killed while it is under way, at a later step each time.
    for erased in [1, 60, 150] {
        let path = format!("/v1/erasures/{id}");
        let is_under_way = server.wait("some to be erased", |server| {
            let job = server.get(&path);
            let is_done = job["state"] == "finished";
            (is_done || job["erased"].as_u64()? >= erased).then_some(!is_done)
        });
        kills += usize::from(is_under_way);
        server.kill();
        server = server.succeeded_by(Start::dev());
    }
    let job = finish(&mut server, &id);
    let done = job["erased"].as_u64().unwrap() + job["already"].as_u64().unwrap();
    assert!(done >= 340, "each of the 340 events once or, after a kill, again: {job}");
    assert_eq!(with(&server, MARKER), Vec::<String>::new(), "{job}");
    let ledger = server.ledger();
    assert!(balances(&ledger), "{ledger}");
    let left = server.all("/v1/events");
    let erased = left.iter().filter(|event| event["erased_at"].is_string()).count();
    assert_eq!((erased, left.len()), (340, 1_000));
    println!("erasure: {kills} kills on the way, 340 of 1000 events erased, 0 markers left");
}
