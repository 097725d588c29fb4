//! The commands beside `serve`, as scripts use them.

use serde_json::{Value as Json, json};

use crate::support::server::Server;
use crate::support::{Receiver, Start, postrider, run, stderr, stdout, text};

#[test]
fn the_version_says_what_was_built() {
    let output = run(&["--version"]);
    assert!(output.status.success());
    assert!(stdout(&output).contains(env!("CARGO_PKG_VERSION")), "{}", stdout(&output));
    let json: Json = serde_json::from_str(&stdout(&run(&["version", "--json"]))).unwrap();
    assert_eq!(json["version"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn the_configuration_is_printed_with_the_origin_of_each_value() {
    let output = postrider(&["config", "--json", "--listen", "127.0.0.1:9"])
        .env("POSTRIDER_RETRY__MAX", "3")
        .env("POSTRIDER_ADMIN_KEY", "canary-canary-canary-canary")
        .output()
        .unwrap();
    assert!(output.status.success());
    let config: Json = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(
        config["listen"],
        json!({"value": "127.0.0.1:9", "origin": "flag", "place": "flag --listen"})
    );
    assert_eq!(config["retry.max"]["value"], 3);
    assert_eq!(config["retry.max"]["origin"], "env");
    assert_eq!(
        config["retry.unit"],
        json!({"value": "84800ms", "origin": "default", "place": "default"})
    );
    assert!(!stdout(&output).contains("canary"));
}

#[test]
fn printed_configuration_is_a_valid_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("postrider.toml");
    std::fs::write(&path, stdout(&run(&["config", "--set", "retry.max=7"]))).unwrap();
    let output = run(&["config", "--json", "--config", path.to_str().unwrap()]);
    assert!(output.status.success(), "{}", stderr(&output));
    let config: Json = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(config["retry.max"]["value"], 7);
    assert_eq!(config["retry.max"]["origin"], "file");
}

#[test]
fn every_way_to_fail_has_its_exit_code() {
    let server = Start::dev().fresh();
    let url = format!("http://{}", server.address);
    let missing = "sub_019a86d99e3877078707070707070707";
    let cases: [(&[&str], &str, i32); 5] = [
        (&["subscriptions", "list"], &server.key, 0),
        (&["subscriptions", "create", "not a url", "*"], &server.key, 1),
        (&["subscriptions", "get", missing], &server.key, 3),
        (&["subscriptions", "list"], "pr_wrong_key", 4),
        (&["subscriptions", "list"], "", 4),
    ];
    for (arguments, key, code) in cases {
        let output = postrider(arguments)
            .args(["--server", &url, "--data-dir", "/nonexistent"])
            .env("POSTRIDER_KEY", key)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", stderr(&output));
    }
    assert_eq!(run(&["subscriptions", "frobnicate"]).status.code(), Some(2));
    let nobody = run(&["subscriptions", "list", "--server", "http://127.0.0.1:1", "--json"]);
    assert_eq!(nobody.status.code(), Some(5));
    let told: Json = serde_json::from_str(&stderr(&nobody)).unwrap();
    assert_eq!(told["exit_code"], 5);
}

#[test]
fn keys_are_created_used_and_deleted() {
    let server = Start::dev().fresh();
    let url = format!("http://{}", server.address);
    let with = |key: &str, arguments: &[&str]| {
        let mut command = postrider(arguments);
        command.args(["--json", "--server", &url]).env("POSTRIDER_KEY", key);
        command.output().unwrap()
    };
    let created = with(&server.key, &["keys", "create", "--scopes", "read", "--tenant", "default"]);
    assert!(created.status.success(), "{}", stderr(&created));
    let created: Json = serde_json::from_str(&stdout(&created)).unwrap();
    let (key, id) = (created["key"].as_str().unwrap(), created["id"].as_str().unwrap());
    assert!(with(key, &["deliveries", "list"]).status.success());
    assert_eq!(with(key, &["send", "a.b"]).status.code(), Some(4), "it may only look");
    let listed = stdout(&with(&server.key, &["keys", "list"]));
    assert!(!listed.contains(key), "a key is shown once");
    assert!(with(&server.key, &["keys", "delete", id]).status.success());
    assert_eq!(with(&server.key, &["keys", "delete", id]).status.code(), Some(3));
}

#[test]
fn the_doctor_finds_a_healthy_server_healthy() {
    let server = Start::dev().fresh();
    let url = format!("http://{}", server.address);
    let data_dir = server.data_dir.to_str().unwrap();
    let output = run(&["doctor", "--dev", "--json", "--data-dir", data_dir, "--server", &url]);
    assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));
    let checks: Json = serde_json::from_str(&stdout(&output)).unwrap();
    assert!(checks.as_array().unwrap().iter().all(|check| check["ok"] == true), "{checks}");
    let mut by_variable = postrider(&["doctor", "--dev", "--data-dir", data_dir]);
    let by_variable = by_variable.env("POSTRIDER_SERVER", &url).output().unwrap();
    assert!(by_variable.status.success(), "{}", stdout(&by_variable));
    let alone = run(&["doctor", "--data-dir", data_dir, "--server", "http://127.0.0.1:1"]);
    assert_eq!(alone.status.code(), Some(1));
    assert!(stdout(&alone).contains("FAIL server"), "{}", stdout(&alone));
}

#[test]
fn quick_check_needs_no_key_and_fails_once_the_server_has_stopped() {
    let mut server = Start::dev().fresh();
    let url = format!("http://{}", server.address);
    let quick = || run(&["doctor", "--quick", "--data-dir", "/nonexistent", "--server", &url]);
    let healthy = quick();
    assert!(healthy.status.success(), "{}{}", stdout(&healthy), stderr(&healthy));
    assert!(stdout(&healthy).contains("is ready"), "{}", stdout(&healthy));
    server.kill();
    let dead = quick();
    assert_eq!(dead.status.code(), Some(1));
    assert!(stdout(&dead).contains("FAIL server"), "{}", stdout(&dead));
}

#[test]
fn completions_name_the_commands_in_each_shell() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let output = run(&["completions", shell]);
        assert!(output.status.success(), "{shell}: {}", stderr(&output));
        for word in ["subscriptions", "time-scale"] {
            assert!(stdout(&output).contains(word), "{shell}: {word}");
        }
    }
    assert_eq!(run(&["completions", "cmd"]).status.code(), Some(2));
}

/// Runs a command against a server and takes its answer as JSON.
fn ask(server: &Server, arguments: &[&str]) -> Json {
    let url = format!("http://{}", server.address);
    let output = postrider(arguments)
        .args(["--json", "--server", &url])
        .env("POSTRIDER_KEY", &server.key)
        .output()
        .unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
    match stdout(&output).trim() {
        "" => Json::Null,
        answer => serde_json::from_str(answer).unwrap(),
    }
}

/// Runs a command against a server and returns its text output.
fn say(server: &Server, arguments: &[&str]) -> String {
    let url = format!("http://{}", server.address);
    let output = postrider(arguments)
        .args(["--server", &url])
        .env("POSTRIDER_KEY", &server.key)
        .output()
        .unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
    stdout(&output)
}

#[test]
fn a_subscription_is_created_tested_rotated_and_deleted() {
    let receiver = Receiver::start(204);
    let server = Start::dev().fresh();
    let url = receiver.url();
    let filter = r#"{"field": "data.status", "op": "eq", "value": "CUR"}"#;
    let created = ask(
        &server,
        &["subscriptions", "create", &url, "task.*", "note.created", "--filter", filter],
    );
    let id = text(&created, "id");
    assert!(text(&created, "secret").starts_with("whsec_"));
    assert!(say(&server, &["subscriptions", "list"]).contains(&id));
    let shown = ask(&server, &["subscriptions", "get", &id]);
    assert_eq!(shown["types"], json!(["task.*", "note.created"]));
    assert!(shown["secret"].is_null(), "it was shown once: {shown}");
    let tested = ask(&server, &["subscriptions", "test", &id]);
    assert!(tested.to_string().contains("204"), "{tested}");
    assert_eq!(receiver.arrived().len(), 1);
    let rotated = ask(&server, &["subscriptions", "rotate", &id, "--overlap-seconds", "60"]);
    assert_ne!(rotated["secret"], created["secret"], "{rotated}");
    assert_eq!(ask(&server, &["send", "task.updated", r#"{"status": "NEW"}"#])["deliveries"], 0);
    assert_eq!(ask(&server, &["send", "task.updated", r#"{"status": "CUR"}"#])["deliveries"], 1);
    let changed = ask(&server, &["subscriptions", "update", &id, "--enabled", "false"]);
    assert_eq!(changed["enabled"], false, "{changed}");
    assert_eq!(ask(&server, &["send", "task.updated", r#"{"status": "CUR"}"#])["deliveries"], 0);
    ask(&server, &["subscriptions", "delete", &id]);
    assert_eq!(ask(&server, &["subscriptions", "list"])["data"], json!([]));
}

#[test]
fn destinations_and_deliveries_are_shown_and_changed() {
    let receiver = Receiver::start(500);
    let mut server = Start::dev().fresh();
    server.subscribe(&receiver.url());
    server.send(2);
    server.wait("both to fail once", |server| (server.ledger()["waiting"] == 2).then_some(()));

    let destination = text(&server.destination(), "id");
    assert!(say(&server, &["destinations", "list"]).contains("enabled"));
    let frozen = ask(&server, &["destinations", "freeze", &destination, "--reason", "moving"]);
    assert_eq!(frozen["state"], "frozen");
    let enabled = say(&server, &["destinations", "enable", &destination]);
    assert_eq!(enabled.trim(), format!("{destination} is enabled"));
    assert_eq!(ask(&server, &["destinations", "get", &destination])["state"], "enabled");
    let timeline = ask(&server, &["destinations", "timeline", &destination]).to_string();
    assert!(timeline.contains("moving"), "{timeline}");

    let list = ask(&server, &["deliveries", "list", "--state", "waiting", "--limit", "1"]);
    assert_eq!(list["data"].as_array().unwrap().len(), 1);
    let more = say(&server, &["deliveries", "list", "--limit", "1"]);
    assert!(more.contains("more: --cursor "), "{more}");
    let next = text(&list, "next_cursor");
    let rest = ask(&server, &["deliveries", "list", "--state", "waiting", "--cursor", &next]);
    let (first, second) = (text(&list["data"][0], "id"), text(&rest["data"][0], "id"));
    assert_ne!(first, second);
    assert!(say(&server, &["deliveries", "explain", &first]).contains("500"));
    ask(&server, &["deliveries", "cancel", &first]);
    assert_eq!(ask(&server, &["deliveries", "get", &first])["state"], "cancelled");
    receiver.answer(204);
    ask(&server, &["deliveries", "replay", &first]);
    server.wait("the replayed one to arrive", |server| {
        (server.ledger()["delivered"] == 1).then_some(())
    });
}

#[test]
fn a_bulk_replay_is_counted_started_and_followed() {
    let receiver = Receiver::start(204);
    let mut server = Start::dev().fresh();
    server.subscribe(&receiver.url());
    server.send(5);
    server.wait("all to arrive", |server| (server.ledger()["delivered"] == 5).then_some(()));
    let counted = ask(&server, &["replay", "start", "--state", "delivered", "--dry-run"]);
    assert!(counted.to_string().contains('5'), "{counted}");
    assert_eq!(receiver.arrived().len(), 5);
    let started = ask(&server, &["replay", "start", "--state", "delivered"]);
    let id = text(&started, "id");
    receiver.wait_for(10);
    let job = server.wait("the job to be finished", |server| {
        let job = ask(server, &["replay", "get", &id]);
        (job["state"] == "finished").then_some(job)
    });
    assert_eq!(job["done"], 5, "{job}");
    assert!(say(&server, &["replay", "list"]).contains(&id));
    let ended = postrider(&["replay", "pause", &id])
        .args(["--server", &format!("http://{}", server.address)])
        .env("POSTRIDER_KEY", &server.key)
        .output()
        .unwrap();
    assert_eq!(ended.status.code(), Some(1), "{}", stderr(&ended));
}

#[test]
fn what_waits_is_sent_by_a_job_and_by_enabling() {
    let receiver = Receiver::start(500);
    let mut server = Start::dev().fresh();
    server.subscribe(&receiver.url());
    server.send(3);
    server.wait("all to fail once", |server| (server.ledger()["waiting"] == 3).then_some(()));
    let counted = ask(&server, &["replay", "start", "--state", "waiting", "--dry-run"]);
    assert_eq!(counted["total"], 3, "{counted}");
    ask(&server, &["replay", "start", "--state", "waiting", "--per-second", "100"]);
    receiver.wait_for(6);
    server.wait("all to fail twice", |server| (server.ledger()["waiting"] == 3).then_some(()));
    receiver.answer(204);
    let destination = text(&server.destination(), "id");
    let since = "2020-01-01T00:00:00Z";
    let enable = ["destinations", "enable", &destination, "--waiting", "drain"];
    let enabled = say(&server, &[&enable[..], &["--dead-since", since]].concat());
    assert!(enabled.contains("is enabled; rpl_"), "{enabled}");
    server.wait("all to arrive", |server| (server.ledger()["delivered"] == 3).then_some(()));
    assert_eq!(receiver.arrived().len(), 9);
}

#[test]
fn an_admin_acts_for_the_tenant_that_it_names() {
    let server = Start::dev().fresh();
    server.ask("POST", "/v1/tenants", Some(&json!({"id": "acme"})), 201);
    let created =
        ask(&server, &["subscriptions", "create", "http://127.0.0.1:9/", "*", "--as", "acme"]);
    let id = text(&created, "id");
    assert!(say(&server, &["subscriptions", "list", "--as", "acme"]).contains(&id));
    assert!(!say(&server, &["subscriptions", "list"]).contains(&id));
}

#[test]
fn received_text_cannot_control_the_terminal() {
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    use std::process::Stdio;

    let mut listen = postrider(&["listen", "--port", "0", "--count", "1", "--status", "503"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(listen.stdout.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    let address = first.strip_prefix("listening on http://").unwrap().trim_end_matches('/');
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let body = "\u{1b}[2Jgone\u{7}\n";
    let head = format!("POST /x HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n", body.len());
    stream.write_all(format!("{head}connection: close\r\n\r\n{body}").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    let printed: Vec<_> = lines.map(Result::unwrap).collect();
    assert!(listen.wait().unwrap().success());
    let printed = printed.join("\n");
    assert!(printed.contains("\\u{1b}[2Jgone\\u{7}"), "{printed}");
    assert!(!printed.contains('\u{1b}') && !printed.contains('\u{7}'));
}
