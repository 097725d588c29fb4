//! A full disk: the server's data are on a small file system, in a mount namespace.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value as Json, json};

use crate::crash::{count, figure};
use crate::support::server::Server;
use crate::support::{Deadline, Receiver, Start, balances, http};

const KEY: &str = "the-admin-key-of-this-test-0001";

/// Whether this user may mount a file system in a private namespace.
fn may_mount() -> bool {
    let script = "mount -t tmpfs none /mnt";
    Command::new("unshare")
        .args(["-m", "sh", "-c", script])
        .output()
        .is_ok_and(|output| output.status.success())
}

/// A server whose data are on a file system of this size.
fn start_on(place: &Path, mebibytes: usize, alerts: &Receiver) -> Server {
    let script = format!(
        "mount -t tmpfs -o size={mebibytes}m none {} && exec \"$0\" \"$@\"",
        place.display()
    );
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let targets = json!([{"name": "x", "url": alerts.url(), "secret": secret, "kinds": ["disk"]}]);
    let mut start = Start::dev().variable("POSTRIDER_ALERTS__TARGETS", &targets.to_string());
    for quick in ["group_window=1s", "interval_min=1s", "resolve_after=1s", "disk_free_min=0"] {
        start = start.with(&["--set", &format!("alerts.{quick}")]);
    }
    start
        .with(&["--time-scale", "1000"])
        .variable("POSTRIDER_ADMIN_KEY", KEY)
        .under(&["unshare", "-m", "sh", "-c", &script])
        .at(&place.join("data"))
}

/// Fills the disk with a file, so that the server gets no space.
fn fill(server: &Server, place: &Path) -> PathBuf {
    let path = PathBuf::from(format!("/proc/{}/root{}/else", server.pid(), place.display()));
    let mut file = File::create(&path).unwrap();
    let chunk = vec![0xa5; 1 << 20];
    while file.write_all(&chunk).is_ok() {}
    for byte in chunk {
        if file.write_all(&[byte]).is_err() {
            break;
        }
    }
    path
}

fn send(server: &Server, id: &str, bytes: usize) -> (u16, Json) {
    let event = json!({"id": id, "type": "task.updated", "data": "z".repeat(bytes)});
    let answer = http::request(server.address, KEY, "POST", "/v1/events", Some(&event));
    let (status, body) = answer.expect("the server is there");
    (status, serde_json::from_str(&body).unwrap())
}

/// Fills the disk, checks that events are refused and deliveries continue, and frees the space.
/// Returns how many events were acknowledged.
fn fill_and_free(
    server: &mut Server,
    (receiver, alerts): (&Receiver, &Receiver),
    place: &Path,
    round: usize,
) -> usize {
    receiver.answer(500);
    let mut accepted = 0;
    for n in 0..50 {
        let (status, answer) = send(server, &format!("early-{round}-{n}"), 1_000);
        assert_eq!(status, 202, "{answer}");
        accepted += 1;
    }
    let else_file = fill(server, place);
    let deadline = Deadline::new();
    let refusal = loop {
        let (status, answer) = send(server, &format!("late-{round}-{accepted}"), 500_000);
        if status != 202 {
            assert_eq!(status, 503, "{answer}");
            break answer;
        }
        accepted += 1;
        assert!(!deadline.has_passed(), "the disk is never full");
    };
    assert_eq!(refusal["code"], "storage_full", "{refusal}");
    assert!(refusal["detail"].as_str().unwrap().contains("no room"), "{refusal}");

    // On the full disk all accepted deliveries are finished, and can be shown.
    receiver.answer(200);
    server.wait("everything to be delivered on a full disk", |server| {
        let ledger = server.ledger();
        (ledger["delivered"] == ledger["accepted"]).then_some(())
    });
    let (status, answer) = send(server, "still-full", 500_000);
    assert_eq!(status, 503, "{answer}");

    // What is over before it could be told is not told.
    alerts.wait_until(2 * round + 1);
    fs::remove_file(else_file).unwrap();
    server.wait("events to be taken again", |server| {
        let (status, answer) = send(server, &format!("room-{round}"), 10_000);
        assert!(status == 202 || answer["code"] == "storage_full", "{answer}");
        (status == 202).then_some(())
    });
    accepted + 1
}

#[test]
fn on_a_full_disk_events_are_refused_and_deliveries_go_on() {
    if !may_mount() {
        return figure("disk full: skipped, this user may not mount");
    }
    let rounds = count("CRASH_DISKS", 1);
    let place = tempfile::tempdir().unwrap();
    let (receiver, alerts) = (Receiver::start(200), Receiver::start(200));
    let mut server = start_on(place.path(), 420, &alerts);
    server.subscribe(&receiver.url());
    let mut accepted = 0;
    for round in 0..rounds {
        accepted += fill_and_free(&mut server, (&receiver, &alerts), place.path(), round);
        let told = alerts.wait_for(2 * round + 2);
        let status = |n: usize| {
            let told: Json = serde_json::from_slice(&told[n].body).unwrap();
            (told["data"]["status"].clone(), told["data"]["subject"].to_string())
        };
        let (status, subject) = [status(2 * round), status(2 * round + 1)].into();
        assert_eq!((&status.0, &subject.0), (&json!("firing"), &json!("resolved")));
        assert!(status.1.contains("the disk is full"), "{}", status.1);
    }
    server.wait("everything to be delivered", |server| {
        (server.ledger()["delivered"] == accepted).then_some(())
    });
    let ledger = server.ledger();
    assert!(balances(&ledger) && ledger["accepted"] == accepted, "{ledger}");
    figure(&format!(
        "disk full: {rounds} times full, events refused each time, {accepted} acknowledged and \
         delivered, 0 lost, resumed without a restart"
    ));
}
