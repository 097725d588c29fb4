//! A lost admin key of a cluster is replaced on the database.

use std::path::Path;

use crate::server::Server as Postgres;
use crate::support::{Start, http, postrider, stderr, stdout};

fn reset(url: &str, data_dir: &Path) -> (Option<i32>, String) {
    let data_dir = data_dir.to_str().unwrap();
    let command = ["keys", "reset-admin", "--store", url, "--data-dir", data_dir];
    let output = postrider(&command).output().unwrap();
    (output.status.code(), stdout(&output) + &stderr(&output))
}

fn admin_key(data_dir: &Path) -> String {
    std::fs::read_to_string(data_dir.join("admin.key")).unwrap().trim().to_owned()
}

#[test]
fn lost_admin_key_of_a_database_is_replaced_while_no_node_runs() {
    let (postgres, folder) = (Postgres::start(), tempfile::tempdir().unwrap());
    let url = postgres.database("keys");
    let data_dir = folder.path().join("node");
    let start = || Start::dev().with(&["--store", &url]);
    let mut server = start().at(&data_dir);
    let old = server.key.clone();
    let node = std::fs::read_to_string(data_dir.join("node")).unwrap();
    let (code, words) = reset(&url, &data_dir);
    assert_eq!(code, Some(1), "{words}");
    assert!(words.contains(&format!("stop {}", node.trim())), "{words}");
    assert_eq!(admin_key(&data_dir), old, "nothing is changed while a node runs");
    server.signal("TERM");
    assert!(server.ended().0.success());

    std::fs::remove_file(data_dir.join("admin.key")).unwrap();
    let (code, words) = reset(&url, &data_dir);
    assert_eq!(code, Some(0), "{words}");
    let new = admin_key(&data_dir);
    assert!(words.contains("admin.key") && !words.contains(&new), "{words}");
    assert_eq!(
        postgres.sql("keys", "SELECT count(*) FROM postrider.nodes WHERE name = 'reset-admin'"),
        "0"
    );
    let server = start().at(&data_dir);
    assert_eq!(server.key, new);
    server.get("/v1/ledger");
    let (status, _) = http::request(server.address, &old, "GET", "/v1/ledger", None).unwrap();
    assert_eq!(status, 401, "the lost key does not work any more");
    let entries = server.get("/v1/audit")["data"].to_string();
    for action in ["\"key.create\"", "\"key.delete\""] {
        assert!(entries.contains(action), "{action} in {entries}");
    }
    drop(server);

    let (code, words) = reset(&url, &folder.path().join("other"));
    assert_eq!(code, Some(1), "{words}");
    let empty = postgres.database("empty");
    assert_eq!(reset(&empty, &data_dir).0, Some(2), "a database without a store");
    let nowhere = "postgres://postgres:hidden@127.0.0.1:1/keys";
    let (code, words) = reset(nowhere, &data_dir);
    assert_eq!(code, Some(1), "{words}");
    assert!(words.contains("cannot be reached") && !words.contains("hidden"), "{words}");
}
