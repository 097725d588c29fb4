//! Configurations that a server refuses to start with, and the messages.

use crate::support::{Start, run, stderr};

/// Exit code and output of a server that must not start.
fn refused(start: &Start, data_dir: &std::path::Path) -> (Option<i32>, String) {
    let output = start.command(data_dir).output().unwrap();
    (output.status.code(), stderr(&output))
}

#[test]
fn a_bad_setting_is_refused_with_its_place() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("postrider.toml");
    std::fs::write(&file, "[retry]\nmax = 3\nunits = \"1s\"\n").unwrap();
    let file = file.to_str().unwrap();
    let cases = [
        (Start::dev().with(&["--config", file]), "postrider.toml:3: unknown setting `retry.units`"),
        (
            Start::dev().variable("POSTRIDER_RETRY__MAX", "lots"),
            "environment variable POSTRIDER_RETRY__MAX: `retry.max` must be a whole number",
        ),
        (
            Start::dev().with(&["--store", "mysql://x"]),
            "flag --store: `store` must be \"embedded\"",
        ),
        (Start::dev().with(&["--time-scale", "0"]), "flag --time-scale: `time_scale` must be"),
        (
            Start::dev().variable("POSTRIDER_ADMIN_KEY", "canary"),
            "environment variable POSTRIDER_ADMIN_KEY: `admin_key` must have 24 to 256",
        ),
    ];
    for (start, expected) in cases {
        let (code, words) = refused(&start, &directory.path().join("data"));
        assert_eq!(code, Some(2), "{words}");
        assert!(words.contains(expected), "{words}");
        assert!(!words.contains("canary"), "{words}");
    }
    assert!(!directory.path().join("data").exists(), "nothing was created");
}

#[test]
fn unreachable_database_is_reported_without_its_password() {
    let directory = tempfile::tempdir().unwrap();
    // Nothing listens on port 1.
    let start = Start::dev().with(&["--store", "postgres://u:canary@127.0.0.1:1/d"]);
    let (code, words) = refused(&start, &directory.path().join("data"));
    assert_eq!(code, Some(1), "{words}");
    assert!(words.contains("cannot use the database: the store cannot be reached"), "{words}");
    assert!(!words.contains("canary"), "{words}");
}

#[test]
fn a_faster_clock_needs_dev() {
    let output = run(&["serve", "--time-scale", "100"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("needs --dev"), "{}", stderr(&output));
}

#[test]
fn a_data_directory_has_one_process() {
    let server = Start::dev().fresh();
    let (code, words) = refused(&Start::dev(), &server.data_dir);
    assert_eq!(code, Some(1), "{words}");
    assert!(words.contains("in use by another postrider process"), "{words}");
    server.get("/v1/ledger");
}

#[test]
fn a_server_without_its_key_ring_refuses_and_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let data_dir = directory.path().join("data");
    let mut server = Start::dev().at(&data_dir);
    server.subscribe("http://127.0.0.1:9/");
    server.signal("TERM");
    assert!(server.ended().0.success());
    let ring = data_dir.join("keyring");
    std::fs::rename(&ring, directory.path().join("elsewhere")).unwrap();

    let (code, words) = refused(&Start::dev(), &data_dir);
    assert_eq!(code, Some(1), "{words}");
    assert!(words.contains("key ring") && words.contains("keyring"), "{words}");
    assert!(!ring.exists(), "no other one was made");

    let elsewhere = directory.path().join("elsewhere");
    let start = Start::dev().variable("POSTRIDER_KEYRING", elsewhere.to_str().unwrap());
    start.at(&data_dir).get("/v1/ledger");
}

#[test]
fn busy_port_is_reported() {
    let server = Start::dev().fresh();
    let directory = tempfile::tempdir().unwrap();
    let address = server.address.to_string();
    let data_dir = directory.path().join("data");
    let output = run(&["serve", "--listen", &address, "--data-dir", data_dir.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let expected = format!("cannot listen on {address}");
    assert!(stderr(&output).contains(&expected), "{}", stderr(&output));
    assert!(stderr(&output).contains("such as --listen 127.0.0.1:"), "{}", stderr(&output));
}
