//! Backup and restore, from outside: under load, of a closed directory, and refusals.

use std::fs;
use std::path::Path;
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use serde_json::{Value as Json, json};

use crate::support::server::Server;
use crate::support::{Receiver, Start, balances, http, run, stderr, stdout};

/// Sends events, one at a time, until told to stop. Returns the acknowledged identifiers.
fn keep_sending(server: &Server, name: &'static str, stop: &Arc<AtomicBool>) -> JoinHandle<usize> {
    let (address, key, stop) = (server.address, server.key.clone(), Arc::clone(stop));
    thread::spawn(move || {
        let mut sent = 0;
        while !stop.load(Ordering::Relaxed) {
            let event =
                json!({"id": format!("{name}-{sent}"), "type": "task.updated", "data": sent});
            let answer = http::request(address, &key, "POST", "/v1/events", Some(&event));
            assert_eq!(answer.unwrap().0, 202);
            sent += 1;
        }
        sent
    })
}

fn backup(server: &Server, to: &Path) -> Output {
    let url = format!("http://{}", server.address);
    run(&["backup", "--server", &url, "--key", &server.key, "--json", "--to", to.to_str().unwrap()])
}

fn restore(from: &Path, data_dir: &Path) -> Output {
    let (from, data_dir) = (from.to_str().unwrap(), data_dir.to_str().unwrap());
    run(&["restore", "--json", "--from", from, "--data-dir", data_dir])
}

fn done(output: &Output) -> Json {
    assert!(output.status.success(), "{}", stderr(output));
    serde_json::from_str(&stdout(output)).unwrap()
}

#[test]
fn a_copy_that_is_taken_under_load_has_everything_that_was_acknowledged_before() {
    let directory = tempfile::tempdir().unwrap();
    let (copy, restored) = (directory.path().join("copy"), directory.path().join("restored"));
    let receiver = Receiver::start(200);
    let server = Start::dev().fresh();
    server.subscribe(&receiver.url());
    let before = 300;
    for n in 0..before {
        let event = json!({"id": format!("before-{n}"), "type": "task.updated", "data": {"n": n}});
        server.ask("POST", "/v1/events", Some(&event), 202);
    }
    let stop = Arc::new(AtomicBool::new(false));
    let senders = ["a", "b", "c"].map(|name| keep_sending(&server, name, &stop));
    receiver.wait_for(before + 20);
    let told = done(&backup(&server, &copy));
    stop.store(true, Ordering::Relaxed);
    let meanwhile: usize = senders.into_iter().map(|sender| sender.join().unwrap()).sum();
    assert_eq!(told["excluded"], json!(["keyring", "admin.key"]));
    assert!(told["bytes"].as_u64().unwrap() > 0);
    assert!(!copy.join("keyring").exists() && !copy.join("admin.key").exists());
    assert_eq!(server.get("/v1/backup")["state"], "done");

    // An existing copy is not overwritten, and the error says so.
    let again = backup(&server, &copy);
    assert_eq!(again.status.code(), Some(1), "{}", stderr(&again));
    assert!(stderr(&again).contains("not empty"), "{}", stderr(&again));

    let told = done(&restore(&copy, &restored));
    assert_eq!(told["verified"], true);
    let accepted = told["ledger"]["accepted"].as_u64().unwrap();
    fs::copy(server.data_dir.join("keyring"), restored.join("keyring")).unwrap();
    let second = Start::dev().variable("POSTRIDER_ADMIN_KEY", &server.key).at(&restored);
    for n in 0..before {
        second.get(&format!("/v1/events/before-{n}"));
    }
    let ledger = second.ledger();
    assert!(balances(&ledger), "{ledger}");
    let all = u64::try_from(before + meanwhile).unwrap();
    assert!((u64::try_from(before).unwrap()..=all).contains(&accepted), "{accepted} of {all}");
    println!(
        "backup: taken while {meanwhile} events came in, {accepted} of {all} in it, all {before} \
         from before it"
    );
}

#[test]
fn a_closed_directory_is_copied_without_a_server_and_refusals_say_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let receiver = Receiver::start(200);
    let mut server = Start::dev().at(&at("data"));
    server.subscribe(&receiver.url());
    server.send(50);
    receiver.wait_for(50);
    let ledger = server.wait("everything to be settled", |server| {
        let ledger = server.ledger();
        (ledger["delivered"] == 50).then_some(ledger)
    });
    // A server has the directory open, but not at the address that this command uses.
    let key = &server.key;
    let (data, copy) = (at("data"), at("copy"));
    let (data, copy) = (data.to_str().unwrap(), copy.to_str().unwrap());
    let unreachable = ["backup", "--server", "http://127.0.0.1:1", "--key", key, "--to", copy];
    assert_eq!(run(&unreachable).status.code(), Some(5));
    let relative = server.ask("POST", "/v1/backup", Some(&json!({"to": "copy"})), 422);
    assert_eq!(relative["field"], "to");
    server.signal("TERM");
    assert!(server.ended().0.success());

    let told = done(&run(&["backup", "--data-dir", data, "--json", "--to", copy]));
    assert!(told["bytes"].as_u64().unwrap() > 0);
    let told = done(&restore(&at("copy"), &at("restored")));
    assert_eq!(told["ledger"]["delivered"], ledger["delivered"]);

    let full = restore(&at("copy"), &at("restored"));
    assert_eq!(full.status.code(), Some(2));
    assert!(stderr(&full).contains("not empty"), "{}", stderr(&full));
    let none = restore(&at("nothing"), &at("other"));
    assert_eq!(none.status.code(), Some(2));
    assert!(stderr(&none).contains("no such directory"), "{}", stderr(&none));
    let none = run(&["backup", "--data-dir", at("nothing").to_str().unwrap(), "--to", copy]);
    assert_eq!(none.status.code(), Some(2));
    assert!(stderr(&none).contains("--data-dir"), "{}", stderr(&none));

    // A damaged copy is not restored, and the damage is named.
    let main = at("copy").join("main.db");
    let mut bytes = fs::read(&main).unwrap();
    bytes.truncate(bytes.len() / 2);
    fs::write(&main, bytes).unwrap();
    let damaged = restore(&at("copy"), &at("damaged"));
    assert_eq!(damaged.status.code(), Some(1), "{}", stderr(&damaged));
    assert!(stderr(&damaged).contains("is damaged"), "{}", stderr(&damaged));
    assert!(!at("damaged").exists());
}
