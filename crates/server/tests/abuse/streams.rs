//! `GET /v1/stream`: expiring keys, all stream permits taken, clients that do not
//! read.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::kit::{ATTACKER, Verdict, connect, count, count_closed, request_head};
use crate::rules::{Civil, unix_in};
use crate::scene::Scene;
use crate::support::{Receiver, text};

/// Opens a stream; `None` if it is refused.
fn open(scene: &Scene, key: &str) -> Option<TcpStream> {
    let mut stream = connect(scene.address(), ATTACKER).ok()?;
    let head = format!("GET /v1/stream HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n\r\n");
    stream.write_all(head.as_bytes()).ok()?;
    let mut status = [0; 12];
    stream.read_exact(&mut status).ok()?;
    (&status[9..] == b"200").then_some(stream)
}

#[test]
fn streams_end_with_their_key() {
    let mut verdict = Verdict::of("streams of a revoked and of an expired key");
    let scene = Scene::start();
    let wish = json!({"tenant": "mallory", "scopes": ["read"]});
    let revoked = scene.server.ask("POST", "/v1/keys", Some(&wish), 201);
    // The server's clock is this machine's.
    let at = Civil::of(unix_in(Duration::from_secs(10))).rfc_3339();
    let wish = json!({"tenant": "mallory", "scopes": ["read"], "expires_at": at});
    let expiring = scene.server.ask("POST", "/v1/keys", Some(&wish), 201);
    let mut open: Vec<TcpStream> = [&revoked, &expiring]
        .iter()
        .flat_map(|key| (0..5).filter_map(|_| open(&scene, &text(key, "key"))).collect::<Vec<_>>())
        .collect();
    let opened = open.len();
    scene.server.ask("DELETE", &format!("/v1/keys/{}", text(&revoked, "id")), None, 204);
    let closed = count_closed(&mut open);
    verdict.figure(format!("{opened} opened, {closed} closed after the end of their key"));
    verdict.must(opened == 10, format!("only {opened} of 10 could be opened"));
    verdict.must(closed == opened, format!("{} outlive their key", opened - closed));
    verdict.end();
}

#[test]
fn one_tenant_cannot_take_every_stream() {
    let mut verdict = Verdict::of("all streams by one tenant");
    let scene = Scene::start();
    let mut streams = Vec::new();
    for _ in 0..1_010 {
        match open(&scene, &scene.mallory) {
            Some(stream) => streams.push(stream),
            None => break,
        }
    }
    let hers = open(&scene, &scene.alice).is_some();
    verdict.figure(format!("{} opened by one tenant, another's opened: {hers}", streams.len()));
    verdict.must(hers, "another tenant gets no stream");
    verdict.end();
}

#[test]
fn streams_that_nobody_reads_take_bounded_memory() {
    let mut verdict = Verdict::of("streams that nobody reads");
    let mut scene = Scene::start();
    let receiver = Receiver::start(200);
    scene.subscribe(&receiver.url(), "a.b");
    let quiet = scene.quiet();
    let before = scene.memory();
    let streams: Vec<_> =
        (0..count(50, 200)).filter_map(|_| open(&scene, &scene.mallory)).collect();
    let watch = scene.watch();
    let batch = json!(vec![json!({"type": "a.b", "data": 1}); 1000]);
    let mut client = scene.attacker();
    for _ in 0..count(3, 30) {
        while client.status("POST", "/v1/events/batch", &batch) != 202 {
            thread::park_timeout(Duration::from_millis(100));
        }
    }
    verdict.victim(&quiet, &watch.end());
    scene.server.wait("all to be delivered", |server| {
        let ledger = server.get("/v1/ledger?scope=all");
        (ledger["queued"] == 0 && ledger["in_flight"] == 0).then_some(())
    });
    let grown = scene.peak().saturating_sub(before);
    verdict.figure(format!("{} streams, memory +{grown} MiB", streams.len()));
    verdict.must(grown < 250, format!("memory grew by {grown} MiB"));
    verdict.end();
}

#[test]
fn backups_and_reloads_in_a_loop_lose_nothing() {
    let mut verdict = Verdict::of("SIGHUP storm and backups in a loop");
    let scene = Scene::start();
    let receiver = Receiver::start(200);
    let wish = json!({"url": receiver.url(), "types": ["good.*"]});
    assert_eq!(scene.victim().status("POST", "/v1/subscriptions", &wish), 201);
    let quiet = scene.quiet();
    let watch = scene.watch();
    let folder = tempfile::tempdir().unwrap();
    let mut admin = crate::kit::Client::new(scene.address(), &scene.server.key, ATTACKER);
    let (mut accepted, mut backups) = (0, 0);
    for n in 0..count(30, 300) {
        scene.server.try_signal("HUP");
        let to = folder.path().join(n.to_string());
        let status = admin.status("POST", "/v1/backup", &json!({"to": to.to_str().unwrap()}));
        backups += usize::from(status == 202);
        let event = json!({"type": "good.event", "data": n});
        accepted += usize::from(scene.victim().status("POST", "/v1/events", &event) == 202);
    }
    receiver.wait_until(accepted);
    verdict.victim(&quiet, &watch.end());
    verdict.figure(format!(
        "{} reloads, {backups} backups, {accepted} events arrived",
        count(30, 300)
    ));
    verdict.must(accepted == count(30, 300), format!("only {accepted} events were accepted"));
    verdict.must(scene.is_sound(), "the server is not sound afterwards");
    verdict.end();
}

#[test]
fn slow_reader_of_a_head_does_not_hold_a_stream_place() {
    let mut verdict = Verdict::of("streams asked for and abandoned");
    let scene = Scene::start();
    // Opened, never read, and dropped: the permits must be released.
    for _ in 0..count(1_200, 5_000) {
        if let Ok(mut stream) = connect(scene.address(), ATTACKER) {
            let head = request_head(&scene.mallory, "GET", "/v1/stream", "", 0);
            drop(stream.write_all(head.as_bytes()));
        }
    }
    let until = crate::kit::now() + Duration::from_secs(60);
    let mut again = None;
    while again.is_none() && crate::kit::now() < until {
        again = open(&scene, &scene.mallory);
        thread::park_timeout(Duration::from_millis(100));
    }
    verdict.figure(format!(
        "{} abandoned, a new one opened: {}",
        count(1_200, 5_000),
        again.is_some()
    ));
    verdict.must(again.is_some(), "places of abandoned streams do not come back");
    verdict.end();
}
