//! The commands beside `serve`, as scripts use them.

use serde_json::{Value as Json, json};

use crate::support::{Start, postrider, run, stderr, stdout};

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
fn what_is_printed_is_a_configuration_file() {
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
    let output = run(&["doctor", "--json", "--data-dir", data_dir, "--server", &url]);
    assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));
    let checks: Json = serde_json::from_str(&stdout(&output)).unwrap();
    assert!(checks.as_array().unwrap().iter().all(|check| check["ok"] == true), "{checks}");
    let alone = run(&["doctor", "--data-dir", data_dir, "--server", "http://127.0.0.1:1"]);
    assert_eq!(alone.status.code(), Some(1));
    assert!(stdout(&alone).contains("FAIL server"), "{}", stdout(&alone));
}
