//! The audit log of the real binary: listed and exported, also after a restart.

use std::path::Path;

use serde_json::Value as Json;

use crate::support::server::Server;
use crate::support::{Start, postrider, run, stderr, stdout, text};

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

/// The operator's actions at the machine, newest first: action and target.
fn by_operator(server: &Server) -> Vec<(String, String)> {
    let entries = server.get("/v1/audit?key=operator");
    let entries = entries["data"].as_array().unwrap();
    for entry in entries {
        assert_eq!(text(entry, "actor"), "server");
        assert_eq!(text(entry, "key_name"), "operator at the machine");
    }
    entries.iter().map(|entry| (text(entry, "action"), text(entry, "target"))).collect()
}

#[test]
fn reloads_and_offline_commands_of_the_operator_are_in_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let [config, copy, restored] =
        ["postrider.toml", "copy", "restored"].map(|name| folder.path().join(name));
    std::fs::write(&config, "").unwrap();
    let start = || Start::dev().with(&["--config", config.to_str().unwrap()]);
    let mut server = start().fresh();
    let rotate = |data_dir: &Path| -> String {
        let output =
            run(&["keyring", "rotate", "--json", "--data-dir", data_dir.to_str().unwrap()]);
        assert!(output.status.success(), "{}", stderr(&output));
        text(&serde_json::from_str(&stdout(&output)).unwrap(), "newest")
    };

    std::fs::write(&config, "retry.max = 7\nhttp.headers_max = 50\n").unwrap();
    server.signal("HUP");
    let settings = ("settings.reload".to_owned(), "retry.max".to_owned());
    server.wait("the entry of the reload", |server| {
        (by_operator(server) == [settings.clone()]).then_some(())
    });
    let first = rotate(&server.data_dir);
    server.signal("HUP");
    let reloaded = ("keyring.reload".to_owned(), first);
    server.wait("the entry of the new key", |server| {
        (by_operator(server) == [reloaded.clone(), settings.clone()]).then_some(())
    });

    server.signal("TERM");
    assert!(server.ended().0.success());
    let rotated = ("keyring.rotate".to_owned(), rotate(&server.data_dir));
    let paths =
        [server.data_dir.to_str().unwrap(), copy.to_str().unwrap(), restored.to_str().unwrap()];
    for arguments in [
        ["backup", "--data-dir", paths[0], "--to", paths[1]],
        ["restore", "--from", paths[1], "--data-dir", paths[2]],
    ] {
        let output = run(&arguments);
        assert!(output.status.success(), "{}", stderr(&output));
    }
    for name in ["keyring", "admin.key"] {
        std::fs::copy(server.data_dir.join(name), restored.join(name)).unwrap();
    }
    let restore = ("store.restore".to_owned(), paths[1].to_owned());
    let server = start().at(&restored);
    assert_eq!(by_operator(&server), [restore, rotated, reloaded, settings]);
}
