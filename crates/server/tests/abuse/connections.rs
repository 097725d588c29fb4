//! Connections that send nothing, little or too much, and refusals that must be read.

use std::io::Write as _;
use std::net::{Ipv4Addr, TcpStream};
use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::kit::{
    ATTACKER, Client, End, Verdict, connect, count, count_closed, is_long, now, request_head,
    wait_for_end,
};
use crate::scene::Scene;

/// What a connection sends before it falls silent.
const SILENCES: [&[u8]; 3] = [b"", b"P", b"PRI * HTTP/2.0\r\n"];

/// Opens this many connections from twenty addresses, and lets each fall silent.
fn silent(scene: &Scene, connections: usize) -> Vec<TcpStream> {
    let mut open = Vec::new();
    let mut failed = 0;
    for n in 0..connections {
        let last = u8::try_from(2 + n % 20).unwrap();
        match connect(scene.address(), Ipv4Addr::new(127, 0, 0, last)) {
            Ok(mut stream) => {
                // The server may have closed it already.
                drop(stream.write_all(SILENCES[n % SILENCES.len()]));
                open.push(stream);
            }
            Err(_) => failed += 1,
        }
        if failed == 3 {
            break;
        }
    }
    open
}

#[test]
fn silent_connections_are_closed_and_health_answers_meanwhile() {
    let mut verdict = Verdict::of("silent connections");
    let scene = Scene::start();
    let quiet = scene.quiet();
    let begun = now();
    let mut open = silent(&scene, count(1_000, 10_100));
    verdict.figure(format!("{} opened", open.len()));
    let watch = scene.watch();
    let closed = count_closed(&mut open);
    let took = begun.elapsed();
    let seen = watch.end();
    verdict.victim(&quiet, &seen);
    verdict.figure(format!("{closed} closed after {:.1} s", took.as_secs_f64()));
    verdict.must(closed == open.len(), format!("{} never closed", open.len() - closed));
    verdict.end();
}

#[test]
fn full_table_of_silent_connections_leaves_room_for_others() {
    let mut verdict = Verdict::of("silent connections up to the total");
    let scene = Scene::with(&["http.connections_max=200"]);
    let quiet = scene.quiet();
    let open = silent(&scene, 400);
    let watch = scene.watch();
    thread::park_timeout(Duration::from_secs(2));
    let seen = watch.end();
    verdict.figure(format!("{} opened of 200 in total", open.len()));
    verdict.victim(&quiet, &seen);
    verdict.end();
}

#[test]
fn head_that_comes_byte_by_byte_is_cut() {
    let mut verdict = Verdict::of("heads of a byte a second");
    let scene = Scene::start();
    let quiet = scene.quiet();
    let mut open: Vec<_> =
        (0..count(50, 500)).filter_map(|_| connect(scene.address(), ATTACKER).ok()).collect();
    let watch = scene.watch();
    let head = format!("GET /healthz HTTP/1.1\r\nhost: x\r\nx-slow: {}", "y".repeat(100));
    let total = open.len();
    let begun = now();
    for byte in head.as_bytes() {
        open.retain_mut(|stream| stream.write_all(&[*byte]).is_ok());
        if open.is_empty() {
            break;
        }
        thread::park_timeout(Duration::from_millis(500));
    }
    let took = begun.elapsed();
    verdict.victim(&quiet, &watch.end());
    verdict.figure(format!(
        "{} of {total} cut after {:.1} s",
        total - open.len(),
        took.as_secs_f64()
    ));
    verdict.must(open.is_empty(), format!("{} still open after {took:?}", open.len()));
    verdict.end();
}

#[test]
fn pipelined_requests_whose_answers_nobody_reads_take_bounded_memory() {
    let mut verdict = Verdict::of("pipelined requests, answers unread");
    let scene = Scene::start();
    let quiet = scene.quiet();
    let before = scene.memory();
    let watch = scene.watch();
    let one = "GET /openapi.json HTTP/1.1\r\nhost: x\r\n\r\n".repeat(100);
    let mut sent = 0;
    let mut open = Vec::new();
    for _ in 0..count(20, 200) {
        let Ok(mut stream) = connect(scene.address(), ATTACKER) else { continue };
        stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
        for _ in 0..100 {
            if stream.write_all(one.as_bytes()).is_err() {
                break;
            }
            sent += 100;
        }
        open.push(stream);
    }
    let grown = scene.memory().saturating_sub(before);
    verdict.victim(&quiet, &watch.end());
    verdict.figure(format!("{sent} requests on {} connections, memory +{grown} MiB", open.len()));
    verdict.must(grown < 200, format!("memory grew by {grown} MiB"));
    if is_long() {
        let until = now() + Duration::from_secs(90);
        let all = open.len();
        // Nothing is read: only a connection that the server has closed refuses what is written. One that it
        // still holds, without reading, makes a write time out.
        let is_closed = |stream: &mut std::net::TcpStream| loop {
            match stream.write_all(b"x") {
                Err(error) if !crate::kit::is_timeout(&error) => return true,
                Ok(()) | Err(_) if now() >= until => return false,
                Ok(()) | Err(_) => thread::park_timeout(Duration::from_millis(500)),
            }
        };
        let closed = open.iter_mut().map(is_closed).filter(|is_closed| *is_closed).count();
        verdict.figure(format!("{closed} of {all} closed because nothing is read"));
        verdict.must(closed == all, format!("{} never closed", all - closed));
    }
    verdict.end();
}

#[test]
fn refusals_reach_clients_that_send_the_whole_body_first() {
    let mut verdict = Verdict::of("refusals read after the whole body is sent");
    let scene = Scene::start();
    let large = vec![b'x'; 5 * 1024 * 1024];
    let middling = vec![b'x'; 200 * 1024];
    let repeats = count(10, 200);
    let mut cut = Vec::new();
    let mut asked = 0;
    let mut check = |name: &str, status: u16, key: &str, path: &str, kind: &str, body: &[u8]| {
        // The connection is reused as long as the server keeps it, as ordinary clients do.
        let mut client = Client::new(scene.address(), key, ATTACKER);
        let headers = format!("content-type: {kind}\r\n");
        for _ in 0..repeats {
            asked += 1;
            match client.send("POST", path, &headers, body) {
                Ok(answer) if answer.status == status => {}
                Ok(answer) => cut.push(format!("{name}: {} instead", answer.status)),
                Err(error) => cut.push(format!("{name}: {error}")),
            }
        }
    };
    let json = "application/json";
    check("413", 413, &scene.mallory, "/v1/events", json, &large);
    check("401", 401, "pr_0000000000000000_wrong", "/v1/events", json, &middling);
    check("415", 415, &scene.mallory, "/v1/events", "text/xml", &middling);
    check("403", 403, &scene.reader, "/v1/events", json, &middling);
    verdict.figure(format!("{asked} refusals, {} cut", cut.len()));
    if let Some(first) = cut.first() {
        verdict.must(false, format!("{} of {asked} cut, the first {first}", cut.len()));
    }
    verdict.end();
}

#[test]
fn bodies_that_never_come_are_given_up() {
    let mut verdict = Verdict::of("bodies that never come");
    let scene = Scene::start();
    let quiet = scene.quiet();
    let mut open = Vec::new();
    for n in 0..count(200, 2_000) {
        let Ok(mut stream) = connect(scene.address(), ATTACKER) else { continue };
        let expect = if n % 2 == 0 { "expect: 100-continue\r\n" } else { "" };
        let head = request_head(&scene.mallory, "POST", "/v1/events", expect, 1_000);
        drop(stream.write_all(head.as_bytes()));
        open.push(stream);
    }
    let watch = scene.watch();
    let closed = count_closed(&mut open);
    verdict.victim(&quiet, &watch.end());
    verdict.figure(format!("{closed} of {} closed", open.len()));
    verdict.must(closed == open.len(), format!("{} never closed", open.len() - closed));
    verdict.end();
}

#[test]
fn half_closed_client_is_answered_or_closed_and_never_hangs() {
    let mut verdict = Verdict::of("half-closed clients");
    let scene = Scene::start();
    let (mut answered, mut closed, mut hung) = (0, 0, 0);
    for _ in 0..20 {
        let mut stream = connect(scene.address(), ATTACKER).unwrap();
        let body = json!({"type": "a.b", "data": 1}).to_string();
        let head = request_head(&scene.mallory, "POST", "/v1/events", "", body.len());
        stream.write_all((head + &body).as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = std::io::BufReader::new(stream);
        match crate::kit::read_answer(&mut answer) {
            Ok(answer) if answer.status == 202 => answered += 1,
            Ok(_) => hung += 1,
            // The end of a client's half looks like a client that has gone away, whose request is given up.
            Err(error) if !crate::kit::is_timeout(&error) => closed += 1,
            Err(_) => hung += 1,
        }
    }
    verdict.figure(format!("{answered} of 20 answered, {closed} closed"));
    verdict.must(hung == 0, format!("{hung} of 20 neither answered 202 nor closed"));
    verdict.must(scene.is_sound(), "the server is not sound afterwards");
    verdict.end();
}

#[test]
fn slow_tls_handshakes_at_the_api_are_cut() {
    let mut verdict = Verdict::of("slow TLS handshakes at the API");
    if !crate::scene::knows("server.tls_cert") {
        verdict.figure("the binary has no TLS at the API");
        verdict.end();
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let (certificate, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let start = Scene::options(&[]);
    let start = start.with(&["--tls-cert", certificate.to_str().unwrap()]);
    let server = start.with(&["--tls-key", key.to_str().unwrap()]).fresh();
    let mut open = Vec::new();
    for n in 0..count(300, 3_000) {
        let Ok(mut stream) = connect(server.address, ATTACKER) else { continue };
        // Send nothing, or the head of a record that announces 16 KiB, or plain HTTP.
        let said: &[u8] = match n % 3 {
            0 => b"",
            1 => b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc\x03\x03",
            _ => b"GET / HTTP/1.1\r\n\r\n",
        };
        drop(stream.write_all(said));
        open.push(stream);
    }
    let closed = count_closed(&mut open);
    verdict.figure(format!("{closed} of {} closed", open.len()));
    verdict.must(closed == open.len(), format!("{} never closed", open.len() - closed));
    let mut fresh = connect(server.address, ATTACKER).unwrap();
    drop(fresh.write_all(b"\x15\x03\x01\x00\x02\x02\x28"));
    let ended = wait_for_end(&mut fresh, now() + Duration::from_secs(30));
    verdict.must(ended == End::Closed, "an alert instead of a handshake does not end it");
    verdict.end();
}
