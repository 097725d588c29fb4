//! The audit log of the real binary: listed and exported, after a restart too.

use serde_json::Value as Json;

use crate::support::server::Server;
use crate::support::{Start, postrider, stderr, stdout, text};

fn audit(server: &Server, arguments: &[&str]) -> String {
    let url = format!("http://{}", server.address);
    let output = postrider(&[&["audit"], arguments, &["--server", &url]].concat())
        .env("POSTRIDER_KEY", &server.key)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    stdout(&output)
}

#[test]
fn changes_are_exported_with_who_made_them_and_from_where() {
    let server = Start::dev().fresh();
    let created = server.subscribe("http://127.0.0.1:9/");
    let (id, secret) = (text(&created, "id"), text(&created, "secret"));
    let server = server.restart(Start::dev());
    let lines = audit(&server, &["export", "--format", "ndjson"]);
    let entries: Vec<Json> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [creation, first_key] = &entries[..] else { panic!("{lines}") };
    assert_eq!(text(creation, "action"), "subscription.create");
    assert_eq!(
        (text(creation, "target"), text(creation, "address")),
        (id.clone(), "127.0.0.1".into())
    );
    assert_eq!(creation["status"], 201);
    assert_eq!(text(creation, "key"), server.key.split('_').nth(1).unwrap());
    assert_eq!(
        (text(first_key, "actor"), text(first_key, "action")),
        ("server".into(), "key.create".into())
    );
    let csv = audit(&server, &["export", "--format", "csv", "--target", &id]);
    assert_eq!(csv.lines().count(), 2, "a head and one entry: {csv}");
    let list = audit(&server, &["list", "--action", "subscription.create"]);
    assert!(list.contains(&id), "{list}");
    assert!(!(lines + &csv + &list).contains(&secret));
}
