//! What the commands say when something is wrong: what, on which thing, and what to do; with exit codes.

use std::path::Path;

use serde_json::{Value as Json, json};

use crate::support::server::Server;
use crate::support::{Receiver, Start, postrider, run, stderr, stdout, text};

/// Runs a command; returns its exit code and what it says to people.
fn said(arguments: &[&str]) -> (Option<i32>, String) {
    let output = run(arguments);
    (output.status.code(), stdout(&output) + &stderr(&output))
}

#[track_caller]
fn check(arguments: &[&str], code: i32, expected: &[&str]) {
    let (found, words) = said(arguments);
    assert_eq!(found, Some(code), "{arguments:?}: {words}");
    for expected in expected {
        assert!(words.contains(expected), "{arguments:?}: {expected} is not in: {words}");
    }
}

fn url(server: &Server) -> String {
    format!("http://{}", server.address)
}

#[test]
fn usage_errors_are_json_where_json_is_wanted() {
    for arguments in [
        &["--json", "subscriptions", "frobnicate"][..],
        &["replay", "start", "--json", "--per-second", "many"],
        &["--json"],
        &["deliveries", "list", "--json", "--colour", "red"],
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let told: Json = serde_json::from_str(&stderr(&output)).unwrap();
        assert_eq!(told["exit_code"], 2, "{told}");
        assert!(!text(&told, "error").contains("Usage:"), "{told}");
    }
    check(&["subscriptions", "frobnicate"], 2, &["unrecognized subcommand", "Usage:"]);
    check(&["--help"], 0, &["Run a server:", "Look and act:", "Exit codes"]);
}

#[test]
fn refused_key_is_reported_with_its_source() {
    let server = Start::dev().fresh();
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("admin.key"), "pr_0123_4567\n").unwrap();
    let (url, place) = (url(&server), directory.path().to_str().unwrap());
    let list = ["tenants", "list", "--server", &url, "--data-dir"];
    check(
        &[&list[..], &[place]].concat(),
        4,
        &[&format!("comes from {place}/admin.key"), "--data-dir"],
    );
    check(
        &[&list[..], &["/nonexistent"]].concat(),
        4,
        &["there is no file /nonexistent/admin.key"],
    );
    let unknown = format!("{url}/ does not know this key");
    check(&[&list[..], &[place, "--key", "pr_1_2"]].concat(), 4, &[&unknown, "given by --key"]);
    let output = postrider(&list).arg(place).env("POSTRIDER_KEY", "pr_1_2").output().unwrap();
    assert!(stderr(&output).contains("the variable POSTRIDER_KEY"), "{}", stderr(&output));
}

#[test]
fn https_url_of_a_server_without_tls_is_recognised() {
    let server = Start::dev().fresh();
    let address = server.address.to_string();
    let url = format!("https://{address}");
    check(&["tenants", "list", "--server", &url], 5, &["plain http", &format!("http://{address}")]);
}

#[test]
fn damaged_key_ring_is_reported_with_what_to_do() {
    let mut server = Start::dev().fresh();
    server.signal("TERM");
    assert!(server.ended().0.success());
    std::fs::write(server.data_dir.join("keyring"), "{\"version\": 1").unwrap();
    let output = Start::dev().command(&server.data_dir).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let words = stderr(&output);
    assert!(words.contains("keyring is damaged") && words.contains("POSTRIDER_KEYRING"), "{words}");
    let place = server.data_dir.to_str().unwrap();
    check(
        &["doctor", "--dev", "--data-dir", place, "--server", "http://127.0.0.1:1"],
        1,
        &["FAIL key ring", "is damaged", "2 checks failed"],
    );
    std::fs::write(server.data_dir.join("keyring"), [0xff, 0xfe, 0]).unwrap();
    let words = stderr(&Start::dev().command(&server.data_dir).output().unwrap());
    assert!(words.contains("it is not text") && words.contains("POSTRIDER_KEYRING"), "{words}");
}

#[test]
fn missing_sources_and_unknown_scenarios_are_reported_with_what_to_do() {
    check(
        &["migrate", "--from", "/nonexistent/data", "--to", "/nonexistent/new"],
        1,
        &["--from /nonexistent/data: there is no such directory", "postgres://"],
    );
    let empty = tempfile::tempdir().unwrap();
    let place = empty.path().to_str().unwrap();
    check(&["migrate", "--from", place, "--to", "/nonexistent/new"], 1, &["no data directory"]);
    check(&["restore", "--from", place, "--data-dir", "/nonexistent/x"], 2, &["no backup"]);
    check(
        &["restore", "--from", "/nonexistent/b", "--data-dir", "/nonexistent/x"],
        2,
        &["there is no such directory"],
    );
    check(&["bench", "--only", "nothing-like-it"], 2, &["no scenario has", "there are: "]);
}

#[test]
fn damaged_backup_is_not_restored_and_says_to_use_another_one() {
    let receiver = Receiver::start(204);
    let mut server = Start::dev().fresh();
    server.subscribe(&receiver.url());
    server.send(200);
    server.wait("all to arrive", |server| (server.ledger()["delivered"] == 200).then_some(()));
    server.signal("TERM");
    assert!(server.ended().0.success());
    let directory = tempfile::tempdir().unwrap();
    let (backup, restored) = (directory.path().join("backup"), directory.path().join("restored"));
    let (data, to) = (server.data_dir.to_str().unwrap(), backup.to_str().unwrap());
    check(&["backup", "--data-dir", data, "--to", to], 0, &["backed up to"]);
    let day = std::fs::read_dir(backup.join("history")).unwrap().next().unwrap().unwrap().path();
    let bytes = std::fs::read(&day).unwrap();
    std::fs::write(&day, &bytes[..bytes.len() / 2]).unwrap();
    let new = restored.to_str().unwrap();
    check(
        &["restore", "--from", to, "--data-dir", new],
        1,
        &["the backup", "is damaged", "use another backup", "nothing was left behind"],
    );
    assert!(!restored.exists());
}

#[test]
fn lost_admin_key_is_replaced_on_the_data_directory_of_a_stopped_server() {
    let mut server = Start::dev().fresh();
    let data = server.data_dir.to_str().unwrap().to_owned();
    let old = server.key.clone();
    let reset = ["keys", "reset-admin", "--data-dir", &data];
    check(&reset, 1, &["a server is running on", "stop it"]);
    assert_eq!(std::fs::read_to_string(server.data_dir.join("admin.key")).unwrap().trim(), old);
    server.signal("TERM");
    assert!(server.ended().0.success());
    std::fs::remove_file(server.data_dir.join("admin.key")).unwrap();
    let (code, words) = said(&reset);
    assert_eq!(code, Some(0), "{words}");
    let new = std::fs::read_to_string(server.data_dir.join("admin.key")).unwrap();
    assert!(words.contains("admin.key") && !words.contains(new.trim()), "{words}");
    let server = server.succeeded_by(Start::dev());
    assert_eq!(server.key, new.trim());
    server.get("/v1/ledger");
    let url = url(&server);
    check(&["tenants", "list", "--server", &url, "--key", &old], 4, &["given by --key"]);
    check(&["keys", "reset-admin", "--data-dir", "/nonexistent"], 2, &["there is no store in"]);
    let output = postrider(&reset).env("POSTRIDER_ADMIN_KEY", "k".repeat(24)).output().unwrap();
    assert!(stderr(&output).contains("POSTRIDER_ADMIN_KEY"), "{}", stderr(&output));
}

#[test]
fn colours_are_used_where_they_are_wanted() {
    let server = Start::dev().fresh();
    server.subscribe("http://127.0.0.1:9/");
    let url = url(&server);
    let listed = |color: &str, variable: &str| {
        let mut command = postrider(&["destinations", "list", "--server", &url, "--color", color]);
        let command = command.env("POSTRIDER_KEY", &server.key).env(variable, "dumb");
        stdout(&command.output().unwrap())
    };
    assert!(listed("always", "NO_COLOR").contains("\u{1b}[32menabled"));
    for color in ["auto", "never"] {
        assert!(!listed(color, "X").contains('\u{1b}'), "{color}");
    }
    check(&["destinations", "list", "--color", "loud"], 2, &["auto, always, never"]);
}

#[test]
fn failed_test_of_a_subscription_fails_the_command() {
    let receiver = Receiver::start(503);
    let server = Start::dev().fresh();
    let id = text(&server.subscribe(&receiver.url()), "id");
    let (url, key) = (url(&server), server.key.as_str());
    let test = ["subscriptions", "test", &id, "--server", &url, "--key", key];
    check(&test, 1, &["failed: the receiver answered 503", "the test failed"]);
    receiver.answer(204);
    check(&test, 0, &["delivered: the receiver answered 204"]);
    let rotate = ["subscriptions", "rotate", &id, "--server", &url, "--key", key];
    check(&rotate, 0, &["secret: whsec_", "signs along until"]);
}

#[test]
fn deliveries_are_watched_and_replays_followed() {
    let receiver = Receiver::start(204);
    let mut server = Start::dev().fresh();
    server.subscribe(&receiver.url());
    server.send(5);
    server.wait("all to arrive", |server| (server.ledger()["delivered"] == 5).then_some(()));
    let (url, key) = (url(&server), server.key.clone());
    let check = |arguments: &[&str], code, expected: &[&str]| {
        check(&[arguments, &["--server", &url, "--key", &key]].concat(), code, expected);
    };
    let id = text(&server.get("/v1/deliveries")["data"][0], "id");
    check(&["deliveries", "watch", &id], 0, &["delivered", &receiver.url(), &id]);
    check(&["deliveries", "watch", "--count", "5"], 0, &["delivered", &id]);
    let follow = ["replay", "start", "--state", "delivered", "--follow"];
    check(&follow, 0, &["sent      5 of 5", "delivered 5, failed 0"]);
    receiver.answer(500);
    check(&follow, 1, &["delivered 0, failed 5", "5 failed: they are retried"]);
    let waiting = text(&server.get("/v1/deliveries?state=waiting")["data"][0], "id");
    server.ask("POST", &format!("/v1/deliveries/{waiting}/cancel"), None, 200);
    check(&["deliveries", "watch", &waiting], 1, &["cancelled"]);
    check(&["events", "list"], 0, &["task.updated", "DELIVERIES"]);
    check(&["tenants", "create", "acme", "--name", "Acme"], 0, &["--as acme"]);
    check(&["tenants", "list"], 0, &["acme", "default"]);
    let update = ["tenants", "update", "acme"];
    let update = |options: &[&str], code, expected: &[&str]| {
        check(&[&update, options].concat(), code, expected);
    };
    let limits =
        ["--quota", "subscriptions=50", "--quota", "unfinished=7", "--events-per-second", "9"];
    let shown = ["subscriptions: 50, unfinished: 7", "at most 9 per second"];
    update(&limits, 0, &shown);
    let about = ["--name", "", "--description", "From Oslo", "--metadata", "plan=gold"];
    update(&about, 0, &[shown[0], "From Oslo", "plan: gold"]);
    update(&["--quota", "", "--events-per-second", "default"], 0, &["From Oslo"]);
    let acme = server.get("/v1/tenants/acme");
    assert_eq!((&acme["name"], &acme["quotas"]), (&json!(null), &json!({})), "{acme}");
    assert_eq!(acme["events_per_second"], json!(null), "{acme}");
    assert_eq!(acme["metadata"], json!({"plan": "gold"}), "{acme}");
    update(&[], 2, &["nothing to change"]);
    update(&["--quota", "subscriptions"], 2, &["--quota subscriptions: give a name and a value"]);
    update(&["--quota", "subscriptions=many"], 2, &["as NAME=NUMBER"]);
    update(&["--quota", "unknown=1"], 1, &["quotas"]);
    let globex = ["tenants", "create", "globex", "--requests-per-second", "3"];
    check(&globex, 0, &["--as globex"]);
    assert_eq!(server.get("/v1/tenants/globex")["requests_per_second"], 3);
}

fn damage(path: &Path) {
    let bytes = std::fs::read(path).unwrap();
    std::fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
}

#[test]
fn doctor_finds_a_damaged_store_and_files_that_others_can_read() {
    use std::os::unix::fs::PermissionsExt as _;

    let receiver = Receiver::start(204);
    let mut server = Start::dev().fresh();
    server.subscribe(&receiver.url());
    server.send(200);
    server.wait("all to arrive", |server| (server.ledger()["delivered"] == 200).then_some(()));
    server.signal("TERM");
    assert!(server.ended().0.success());
    let data = server.data_dir.to_str().unwrap();
    let doctor = ["doctor", "--dev", "--data-dir", data, "--server", "http://127.0.0.1:1"];
    check(&doctor, 1, &["ok   store", "ok   schema", "ok   clock", "FAIL server"]);
    let main = server.data_dir.join("main.db");
    std::fs::set_permissions(&main, std::fs::Permissions::from_mode(0o644)).unwrap();
    check(&doctor, 1, &["FAIL data directory", "chmod -R go="]);
    std::fs::set_permissions(&main, std::fs::Permissions::from_mode(0o600)).unwrap();
    let day = std::fs::read_dir(server.data_dir.join("history")).unwrap();
    let day = day
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|e| e == "db"));
    damage(&day.unwrap());
    check(&doctor, 1, &["FAIL store", "is damaged", "postrider restore"]);
    let json = run(&[&doctor[..], &["--json"]].concat());
    let found: Json = serde_json::from_str(&stdout(&json)).unwrap();
    let store = found.as_array().unwrap().iter().find(|one| one["check"] == "store").unwrap();
    assert_eq!(store["level"], "fault", "{store}");
    assert!(text(store, "advice").contains("restore"), "{store}");
}

#[test]
fn doctor_finds_what_is_wrong_with_schema_clock_resolver_database_and_limits() {
    let mut server = Start::dev().fresh();
    server.signal("TERM");
    assert!(server.ended().0.success());
    let data = server.data_dir.to_str().unwrap().to_owned();
    let doctor = ["doctor", "--data-dir", &data, "--server", "http://127.0.0.1:1"];
    let with = |more: &[&'static str]| [&doctor[..], more].concat();
    let no_resolver = with(&["--set", "dns.nameservers=127.0.0.1:1"]);
    check(&no_resolver, 1, &["FAIL resolver", "does not answer", "dns.nameservers"]);
    let no_database = with(&["--dev", "--store", "postgres://u:hidden@127.0.0.1:1/p"]);
    check(&no_database, 1, &["FAIL database", "cannot be reached", "is it running"]);
    assert!(!said(&no_database).1.contains("hidden"));

    let limited = |files: &str| {
        let mut shell = std::process::Command::new("/bin/sh");
        let limit = format!("ulimit -n {files} && exec \"$0\" \"$@\"");
        shell.args(["-c", &limit, &crate::support::program()]).args(with(&["--dev"]));
        stdout(&shell.env_clear().output().unwrap())
    };
    let few = limited("500");
    assert!(few.contains("FAIL open files      only 500 files may be open"), "{few}");
    assert!(limited("4000").contains("note open files"), "enough to run");

    let clock = server.data_dir.join("clock");
    let saved = std::fs::read_to_string(&clock).unwrap();
    let mut ahead: Json = serde_json::from_str(&saved).unwrap();
    ahead["at"] = "2099-01-01T00:00:00.000Z".into();
    std::fs::write(&clock, ahead.to_string()).unwrap();
    check(&with(&["--dev"]), 1, &["FAIL clock", "ahead of", "NTP"]);
    std::fs::write(&clock, saved).unwrap();

    // The version of the schema is in the head of the file.
    let main = server.data_dir.join("main.db");
    let bytes = std::fs::read(&main).unwrap();
    let known = u32::from_be_bytes(bytes[60..64].try_into().unwrap());
    for (version, found) in [(known - 1, "note schema"), (known + 1, "FAIL schema")] {
        let mut other = bytes.clone();
        other[60..64].copy_from_slice(&version.to_be_bytes());
        std::fs::write(&main, &other).unwrap();
        check(&with(&["--dev"]), 1, &[found, &format!("version {version}")]);
        assert_eq!(std::fs::read(&main).unwrap(), other, "it is not opened, nor migrated");
    }
}
