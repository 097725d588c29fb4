//! `postrider demo` shows all behaviours, and leaves nothing behind.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use serde_json::Value as Json;

use crate::support::{postrider, stdout};

#[test]
fn a_demonstration_shows_every_mood_and_ends_by_itself() {
    let scratch = tempfile::tempdir().unwrap();
    let output = postrider(&["demo", "--for", "8s", "--json"])
        .env("TMPDIR", scratch.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", crate::support::stderr(&output));
    let lines: Vec<Json> =
        stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines[0]["server"].as_str().unwrap().starts_with("http://127.0.0.1:"));
    let end = &lines.last().unwrap()["end"];
    let destinations = end["destinations"].as_array().unwrap();
    assert_eq!(destinations.len(), 6);
    let find = |path: &str| {
        let is_it = |one: &&Json| one["url"].as_str().unwrap().ends_with(path);
        destinations.iter().find(is_it).unwrap()
    };
    assert_eq!(find("/healthy")["failures"], 0);
    assert!(find("/healthy")["attempts"].as_u64().unwrap() > 0);
    assert!(find("/flaky")["failures"].as_u64().unwrap() > 0);
    assert!(find("/broken")["failures"].as_u64().unwrap() > 0);
    assert!(crate::support::balances(&end["ledger"]), "{end}");
    assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn ctrl_c_ends_a_demonstration_cleanly() {
    let scratch = tempfile::tempdir().unwrap();
    let mut demo =
        postrider(&["demo"]).env("TMPDIR", scratch.path()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(demo.stdout.take().unwrap()).lines().map_while(Result::ok);
    let told: Vec<String> =
        lines.by_ref().take_while(|line| !line.contains("  accepted ")).collect();
    let told = told.join("\n");
    for words in ["postrider tail --server", "/hangs", "Ctrl-C"] {
        assert!(told.contains(words), "{told}");
    }
    let pid = demo.id().to_string();
    let killed = std::process::Command::new("kill").args(["-s", "INT", &pid]).status().unwrap();
    assert!(killed.success());
    let rest: Vec<String> = lines.collect();
    assert!(demo.wait().unwrap().success(), "{rest:?}");
    assert!(rest.iter().any(|line| line.starts_with("RECEIVER")), "{rest:?}");
    assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0);
}
