//! Files of the data directory: damage that must be noticed, modes and links.

use std::collections::BTreeSet;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::kit::{Client, VICTIM, Verdict, count};
use crate::scene::Scene;
use crate::support::server::Server;
use crate::support::{Receiver, Start, text};

fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() { all.extend(files_below(&path)) } else { all.push(path) }
    }
    all.sort();
    all
}

fn copy_all(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    std::fs::set_permissions(to, std::fs::Permissions::from_mode(0o700)).unwrap();
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_all(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// How a file is damaged.
#[derive(Debug, Clone, Copy)]
enum Damage {
    /// No damage: the control.
    Nothing,
    Deleted,
    Emptied,
    Halved,
    Zeroed,
    Flipped(usize),
}

impl Damage {
    fn happen(self, path: &Path) {
        let mut bytes = std::fs::read(path).unwrap();
        let length = bytes.len();
        match self {
            Damage::Nothing => {}
            Damage::Deleted => return std::fs::remove_file(path).unwrap(),
            Damage::Emptied => bytes.clear(),
            Damage::Halved => bytes.truncate(length / 2),
            Damage::Zeroed => {
                let middle = length / 2;
                let end = (middle + 4096).min(length);
                bytes[middle..end].fill(0);
            }
            Damage::Flipped(part) => {
                if let Some(byte) = bytes.get_mut(length * part / 10) {
                    *byte ^= 0x40;
                }
            }
        }
        std::fs::write(path, bytes).unwrap();
    }
}

#[test]
fn damaged_history_is_named_or_harmless() {
    let mut verdict = Verdict::of("damage to the history of a killed store");
    let receiver = Receiver::start(200);
    let mut server = Start::dev().with(&["--set", "telemetry.attempts=false"]).fresh();
    server.subscribe(&receiver.url());
    for n in 0..20 {
        let events: Vec<_> = (0..100)
            .map(|m| json!({"id": format!("e-{n}-{m}"), "type": "a.b", "data": {"n": n, "m": m}}))
            .collect();
        server.ask("POST", "/v1/events/batch", Some(&json!(events)), 202);
    }
    server.wait("all to be delivered", |server| {
        (server.ledger()["delivered"] == 2_000).then_some(())
    });
    server.kill();
    let history: Vec<_> = files_below(&server.data_dir.join("history"))
        .into_iter()
        .filter(|path| !path.to_string_lossy().ends_with("-shm"))
        .map(|path| path.strip_prefix(&server.data_dir).unwrap().to_owned())
        .collect();
    let mut damages =
        vec![Damage::Nothing, Damage::Deleted, Damage::Halved, Damage::Zeroed, Damage::Flipped(5)];
    if count(0, 1) == 1 {
        damages.extend([Damage::Emptied]);
        damages.extend([1, 2, 3, 4, 6, 7, 8, 9].map(Damage::Flipped));
    }
    let (mut refused, mut noticed, mut harmless, mut unnoticed) = (0, 0, 0, Vec::new());
    for file in &history {
        for damage in &damages {
            let is_control = matches!(damage, Damage::Nothing);
            let copy = tempfile::tempdir().unwrap();
            let data_dir = copy.path().join("data");
            copy_all(&server.data_dir, &data_dir);
            damage.happen(&data_dir.join(file));
            match Start::dev().with(&["--set", "telemetry.attempts=false"]).try_at(&data_dir) {
                Err((status, log)) => {
                    verdict.must(!is_control, format!("an undamaged copy: {status} {log}"));
                    let name = file.file_name().unwrap().to_string_lossy().into_owned();
                    let stem = name.split('.').next().unwrap_or_default().to_owned();
                    refused += 1;
                    verdict.must(log.contains(&stem), format!("{name} {damage:?} is not named"));
                }
                Ok(started) => match missing(&started) {
                    None => noticed += 1,
                    Some(0) if is_control => {}
                    Some(0) => harmless += 1,
                    Some(gone) => {
                        unnoticed.push(format!("{} {damage:?}: {gone} gone", file.display()));
                    }
                },
            }
        }
    }
    verdict.figure(format!(
        "{} files, {} damages: {refused} refused and named, {noticed} noticed when read, \
         {harmless} harmless, {} unnoticed",
        history.len(),
        history.len() * (damages.len() - 1),
        unnoticed.len()
    ));
    verdict.must(!history.is_empty(), "there is no history to damage");
    verdict.must(unnoticed.is_empty(), unnoticed.join(", "));
    verdict.end();
}

/// How many acknowledged events are missing or differ; `None` if the server reports that it cannot
/// read them.
fn missing(server: &Server) -> Option<usize> {
    let mut client = Client::new(server.address, &server.key, VICTIM);
    let (mut found, mut cursor) = (BTreeSet::new(), String::new());
    loop {
        let page = client.get(&format!("/v1/events?limit=1000{cursor}")).unwrap();
        if page.status != 200 {
            return None;
        }
        let page = page.json();
        found.extend(page["data"].as_array().unwrap().iter().map(|event| text(event, "id")));
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    let mut gone = 0;
    for (n, m) in (0..20).flat_map(|n| (0..100).map(move |m| (n, m))) {
        let id = format!("e-{n}-{m}");
        let is_there = found.contains(&id);
        // Lists have no payloads: every tenth event is read completely.
        if m % 10 == 0 && is_there {
            let event = client.get(&format!("/v1/events/{id}")).unwrap();
            if event.status >= 500 {
                return None;
            }
            gone += usize::from(event.json()["data"] != json!({"n": n, "m": m}));
        } else {
            gone += usize::from(!is_there);
        }
    }
    Some(gone)
}

#[test]
fn files_are_private_whatever_the_umask_and_the_directory() {
    let mut verdict = Verdict::of("modes of files in an open directory");
    let folder = tempfile::tempdir().unwrap();
    let data_dir = folder.path().join("data");
    std::fs::create_dir(&data_dir).unwrap();
    std::fs::set_permissions(&data_dir, std::fs::Permissions::from_mode(0o755)).unwrap();
    let start = Start::dev().under(&["sh", "-c", "umask 0; exec \"$@\"", "sh"]);
    let started = start.try_at(&data_dir);
    match started {
        Err((_, log)) => {
            verdict.figure("an open data directory is refused");
            verdict.must(log.contains("data"), "the refusal does not name the directory");
        }
        Ok(mut server) => {
            let copy = folder.path().join("backup");
            server.send(10);
            server.ask("POST", "/v1/backup", Some(&json!({"to": copy.to_str().unwrap()})), 202);
            server.wait("the backup", |server| {
                (server.get("/v1/backup")["state"] == "done").then_some(())
            });
            let mut open = Vec::new();
            let mut total = 0;
            for path in files_below(&data_dir).into_iter().chain(files_below(&copy)) {
                total += 1;
                let mode = std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
                if mode & 0o077 != 0 {
                    open.push(format!(
                        "{} {mode:o}",
                        path.strip_prefix(folder.path()).unwrap().display()
                    ));
                }
            }
            verdict.figure(format!("{total} files, {} readable by others", open.len()));
            verdict.must(open.is_empty(), open.join(", "));
        }
    }
    verdict.end();
}

#[test]
fn admin_key_is_not_written_through_a_link() {
    let mut verdict = Verdict::of("links in the place of admin.key");
    let folder = tempfile::tempdir().unwrap();
    let mut followed = Vec::new();
    for name in ["admin.key", "admin.key.new"] {
        let data_dir = folder.path().join(format!("data-{name}"));
        std::fs::create_dir(&data_dir).unwrap();
        std::fs::set_permissions(&data_dir, std::fs::Permissions::from_mode(0o700)).unwrap();
        let target = folder.path().join(format!("target-{name}"));
        std::fs::write(&target, "precious").unwrap();
        symlink(&target, data_dir.join(name)).unwrap();
        drop(Start::dev().variable("X", "y").try_at(&data_dir));
        if std::fs::read_to_string(&target).unwrap() != "precious" {
            followed.push(name);
        }
    }
    verdict.figure(format!("2 links, {} followed", followed.len()));
    verdict.must(followed.is_empty(), format!("followed: {}", followed.join(", ")));
    verdict.end();
}

#[test]
fn tenant_that_fills_the_disk_with_large_events_is_stopped() {
    let mut verdict = Verdict::of("1 MB events to a receiver that hangs");
    let scene = Scene::with(&["limits.tenant_unfinished_bytes=50000000"]);
    let hole = crate::receivers::hanging();
    scene.subscribe(&format!("http://{hole}/"), "a.b");
    let quiet = scene.quiet();
    let watch = scene.watch();
    let event = json!({"type": "a.b", "data": "x".repeat(1_000_000)}).to_string();
    let mut client = scene.attacker();
    let (mut accepted, mut refused) = (0, 0);
    for _ in 0..count(100, 300) {
        match client.send("POST", "/v1/events", "", event.as_bytes()).map_or(0, |a| a.status) {
            202 => accepted += 1,
            429 | 503 => refused += 1,
            status => verdict.must(false, format!("an event was answered {status}")),
        }
        if refused > 20 {
            break;
        }
    }
    verdict.victim(&quiet, &watch.end());
    let peak = scene.peak();
    verdict.figure(format!("{accepted} MB accepted, {refused} refused, memory {peak} MiB"));
    verdict.must(peak < 400, format!("memory reached {peak} MiB"));
    verdict.must(refused > 0, "no limit on the bytes of unfinished deliveries");
    verdict.end();
}
