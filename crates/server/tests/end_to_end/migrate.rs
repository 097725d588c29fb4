//! The data of a real server are moved to PostgreSQL and back by `postrider migrate`, and a server
//! continues with them.

#[path = "../../../store/tests/postgres/server.rs"]
#[expect(dead_code, reason = "the tests of the store use more of it")]
pub(crate) mod postgres;

use std::path::Path;
use std::process::Output;

use serde_json::Value as Json;

use crate::support::server::Server;
use crate::support::{Receiver, Start, balances, run, stderr, stdout};

fn migrate(from: &str, to: &str) -> Output {
    run(&["migrate", "--from", from, "--to", to, "--json"])
}

/// The summary of a successful move: its last line.
fn moved(output: &Output) -> Json {
    assert!(output.status.success(), "{}", stderr(output));
    let said = stdout(output);
    let lines: Vec<Json> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (summary, progress) = lines.split_last().unwrap();
    assert!(progress.iter().any(|line| line["phase"] == "copying"), "{said}");
    assert!(progress.iter().any(|line| line["phase"] == "verifying"), "{said}");
    assert_eq!(summary["verified"], true, "{said}");
    summary.clone()
}

/// Everything that the API shows, in its own order.
fn everything(server: &Server) -> Vec<Json> {
    let mut all = vec![server.ledger()];
    for list in ["subscriptions", "destinations", "events", "deliveries", "keys"] {
        all.extend(server.all(&format!("/v1/{list}")));
    }
    for delivery in server.all("/v1/deliveries") {
        all.push(server.get(&format!("/v1/deliveries/{}", delivery["id"].as_str().unwrap())));
    }
    for shown in &mut all {
        // When a key was last used, and the time since a success, change with every read.
        if let Some(object) = shown.as_object_mut() {
            object.remove("last_used_at");
        }
        if let Some(by_time) =
            shown.pointer_mut("/thresholds/frozen_by_time/seconds_without_success")
        {
            *by_time = Json::Null;
        }
    }
    all
}

/// Copies the files that are not part of a store.
fn bring_along(from: &Path, to: &Path) {
    for name in ["keyring", "admin.key"] {
        std::fs::copy(from.join(name), to.join(name)).unwrap();
    }
}

#[test]
fn server_continues_with_data_that_were_moved_to_postgresql_and_back() {
    let (good, bad) = (Receiver::start(200), Receiver::start(500));
    let mut server = Start::dev().fresh();
    server.subscribe(&good.url());
    server.subscribe(&bad.url());
    server.send(12);
    server.wait("all to have been attempted", |server| {
        let ledger = server.ledger();
        (ledger["delivered"] == 12 && ledger["waiting"] == 12).then_some(())
    });
    let before = everything(&server);
    let old = server.data_dir.clone();
    let database = postgres::Server::start();
    let url = database.database("moved");

    let refused = migrate(old.to_str().unwrap(), &url);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("in use by another postrider process"), "while it runs");

    server.signal("TERM");
    let (status, log) = server.ended();
    assert!(status.success(), "{log}");
    let there = moved(&migrate(old.to_str().unwrap(), &url));
    assert_eq!(there["kinds"]["deliveries"]["count"], 24);
    assert_eq!(there["kinds"]["attempts"]["count"], 24);
    let new = old.with_file_name("new");
    let back = moved(&migrate(&url, new.to_str().unwrap()));
    assert_eq!(back["kinds"], there["kinds"], "the same counts and checksums");
    assert!(back["next"].to_string().contains("is missing"), "the key ring: {}", back["next"]);

    // Without the key ring the server does not start; with it everything is as before.
    std::fs::copy(old.join("admin.key"), new.join("admin.key")).unwrap();
    let Err((_, log)) = Start::dev().try_at(&new) else { panic!("it starts without its key ring") };
    assert!(log.contains("key ring"), "{log}");
    bring_along(&old, &new);
    let mut server = Start::dev().at(&new);
    assert_eq!(everything(&server), before);
    good.answer(200);
    server.send(1);
    server.wait("the next one to arrive", |server| {
        (server.ledger()["delivered"] == 13).then_some(())
    });
    assert!(balances(&server.ledger()));
}

#[test]
fn a_move_that_cannot_be_says_why_and_shows_no_password() {
    let folder = tempfile::tempdir().unwrap();
    let nothing = folder.path().join("nothing");
    let nowhere = "postgres://me:hunter2@127.0.0.1:1/hooks";
    for (from, to, why) in [
        (nothing.to_str().unwrap(), nowhere, "there is no such directory"),
        (nowhere, nothing.to_str().unwrap(), "cannot be reached"),
    ] {
        let refused = migrate(from, to);
        assert_eq!(refused.status.code(), Some(1));
        let said = stderr(&refused);
        assert!(said.contains(why), "{said}");
        assert!(!said.contains("hunter2"), "{said}");
    }
    let refused = run(&["migrate", "--from", "somewhere"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("--to is missing"));
}
