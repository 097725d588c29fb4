//! A server with a damaged history does not start until the operator accepts the loss.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{Start, balances, run, stderr, stdout};

/// The only file with this extension in the history.
fn file(data: &Path, ending: &str) -> PathBuf {
    let entries = fs::read_dir(data.join("history")).unwrap().map(|entry| entry.unwrap().path());
    let mut found = entries.filter(|path| path.to_str().unwrap().ends_with(ending));
    found.next().unwrap_or_else(|| panic!("no file ends in {ending}"))
}

#[test]
fn server_without_the_log_of_a_day_is_refused_until_the_loss_is_accepted() {
    let server = Start::dev().fresh();
    // No receiver listens there, so all deliveries wait.
    server.subscribe("http://127.0.0.1:1/");
    server.send(30);
    let mut server = server.restart(Start::dev());
    server.send(20);
    server.wait("everything to wait", |server| (server.ledger()["waiting"] == 50).then_some(()));
    server.kill();
    let data = server.data_dir.clone();
    fs::remove_file(file(&data, ".db-wal")).unwrap();

    let output = Start::dev().command(&data).output().unwrap();
    let words = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{words}");
    let day = file(&data, ".db");
    let name = format!("history/{}", day.file_name().unwrap().to_str().unwrap());
    assert!(words.contains(&format!("{} is damaged", day.display())), "{words}");
    assert!(words.contains(&format!("postrider doctor --accept-loss {name}")), "{words}");

    let place = data.to_str().unwrap();
    let told = run(&["doctor", "--data-dir", place, "--accept-loss", &name, "--verify"]);
    assert!(told.status.success(), "{}{}", stdout(&told), stderr(&told));
    let words = stdout(&told);
    assert!(words.contains("unfinished deliveries are cancelled"), "{words}");
    assert!(words.contains("every row is as it was written"), "{words}");
    let again = run(&["doctor", "--data-dir", place, "--accept-loss", "history/2001-01-01.db"]);
    assert_eq!(again.status.code(), Some(1), "{}", stdout(&again));

    let server = server.succeeded_by(Start::dev());
    let audit = server.get("/v1/audit?action=store.accept_loss");
    let noted: Vec<_> = audit["data"].as_array().unwrap().iter().collect();
    assert_eq!(noted.len(), 1, "one loss was accepted, one was refused: {audit}");
    assert_eq!(noted[0]["target"], name.as_str(), "{audit}");
    assert_eq!(noted[0]["actor"], "server", "{audit}");
    let ledger = server.ledger();
    assert!(balances(&ledger) && ledger["accepted"] == 50, "{ledger}");
    let lost = ledger["cancelled"].as_u64().unwrap();
    assert!(lost > 0 && lost <= 20, "{ledger}");
    server.send(1);
    assert_eq!(server.ledger()["accepted"], 51);
}
