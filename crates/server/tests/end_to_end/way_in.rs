//! The API's listener: limits, versions of HTTP, streams.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;

use serde_json::Value as Json;

use crate::support::{PATIENCE, Receiver, Start, postrider};

fn connect(server: &crate::support::server::Server) -> TcpStream {
    let stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

#[test]
fn a_head_that_does_not_come_ends_its_connection() {
    let server = Start::dev().with(&["--set", "http.header_read_timeout=50ms"]).fresh();
    let mut stream = connect(&server);
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n").unwrap();
    let mut answer = Vec::new();
    // The server may answer, for example with 408, but it must close.
    stream.read_to_end(&mut answer).unwrap();
    assert!(!answer.starts_with(b"HTTP/1.1 200"));
    server.get("/v1/ledger");
}

#[test]
fn a_head_with_too_much_in_it_is_refused() {
    let server = Start::dev().fresh();
    let many = "x-a: 1\r\n".repeat(101);
    let long = format!("x-a: {}\r\n", "a".repeat(64 * 1024));
    for headers in [many, long] {
        let mut stream = connect(&server);
        let head = format!("GET /healthz HTTP/1.1\r\nhost: x\r\n{headers}\r\n");
        // The server may refuse before it has read everything.
        stream.write_all(head.as_bytes()).unwrap_or_default();
        let mut line = String::new();
        if BufReader::new(stream).read_line(&mut line).is_ok() {
            assert!(line.is_empty() || line.starts_with("HTTP/1.1 431"), "{line}");
        }
    }
    server.get("/v1/ledger");
}

#[test]
fn http_2_is_spoken_without_being_asked_for() {
    let server = Start::dev().fresh();
    let mut stream = connect(&server);
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
    let mut frame = [0; 9];
    stream.read_exact(&mut frame).unwrap();
    assert_eq!(frame[3], 4, "the first frame of a server is SETTINGS: {frame:?}");
}

#[test]
fn attempts_can_be_followed_and_followers_do_not_hold_up_the_end() {
    let receiver = Receiver::start(204);
    let mut server = Start::dev().fresh();
    server.subscribe(&receiver.url());
    let url = format!("http://{}", server.address);
    let mut tail = postrider(&["tail", "--json", "--server", &url])
        .env("POSTRIDER_KEY", &server.key)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(tail.stdout.take().unwrap()).lines();
    // Attempts before the stream is open are not in it, so events are sent until one is.
    let (found, told) = std::sync::mpsc::channel();
    let reading = std::thread::spawn(move || {
        let attempt = lines.find_map(|line| {
            let line: Json = serde_json::from_str(&line.unwrap()).unwrap();
            (line["event"] == "attempt").then_some(line)
        });
        found.send(attempt.unwrap()).unwrap();
        lines
    });
    let attempt = server.wait("an attempt to be told", |server| {
        server.send(1);
        told.try_recv().ok()
    });
    assert!(attempt["data"].to_string().contains("dlv_"), "{attempt}");

    server.signal("TERM");
    let (status, log) = server.ended();
    assert!(status.success(), "{log}");
    // The stream is cut, and `tail` reports that by its exit code.
    assert!(reading.join().unwrap().all(|line| line.is_ok()));
    assert_eq!(tail.wait().unwrap().code(), Some(5));
}
