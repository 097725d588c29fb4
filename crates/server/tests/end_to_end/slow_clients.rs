//! Clients that connect and then stall are closed, and keep nobody out.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;

use crate::support::server::Server;
use crate::support::{Deadline, PATIENCE, Receiver, Start, http};

/// The beginning of an HTTP/2 connection: the preface and an empty SETTINGS frame.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// SETTINGS with an initial window of zero: the client accepts no byte of a body.
const NO_WINDOW: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\x06\x04\0\0\0\0\0\0\x04\0\0\0\0";
/// HEADERS of `GET /` on stream 1, with END_STREAM.
const GET_ROOT: &[u8] = b"\0\0\x06\x01\x05\0\0\0\x01\x82\x86\x84\x41\x01x";
/// A PING.
const PING: &[u8] = b"\0\0\x08\x06\0\0\0\0\0pingping";

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Waits until the server has closed the connection.
fn wait_for_the_end(stream: &mut TcpStream, what: &str) {
    let ended = stream.read_to_end(&mut Vec::new());
    let is_over = |error: io::Error| error.kind() == io::ErrorKind::ConnectionReset;
    assert!(ended.map_or_else(is_over, |_| true), "{what}: the connection stays open");
}

/// A stream of server-sent events whose head has arrived.
fn follow(server: &Server, headers: &str) -> TcpStream {
    let (stream, status) = ask_for_stream(server, headers);
    assert_eq!(status, "200");
    stream
}

/// Requests a stream of server-sent events; returns it with the status of the answer.
fn ask_for_stream(server: &Server, headers: &str) -> (TcpStream, String) {
    let mut stream = connect(server);
    let key = &server.key;
    let head = format!(
        "GET /v1/stream HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n{headers}\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut status = [0; 12];
    stream.read_exact(&mut status).unwrap();
    let status = str::from_utf8(&status).unwrap().strip_prefix("HTTP/1.1 ").unwrap();
    (stream, status.to_owned())
}

#[test]
fn connection_without_a_complete_request_is_closed_on_every_path() {
    let server = Start::dev().with(&["--set", "http.header_read_timeout=50ms"]).fresh();
    let beginnings: [&[u8]; 5] =
        [b"", b"PRI * HT", &PREFACE[..24], PREFACE, b"GET / HTTP/1.1\r\nho"];
    for beginning in beginnings {
        let mut stream = connect(&server);
        stream.write_all(beginning).unwrap();
        wait_for_the_end(&mut stream, &String::from_utf8_lossy(beginning));
    }
}

#[test]
fn idle_connection_is_closed_whatever_it_speaks() {
    let server = Start::dev().with(&["--set", "http.idle_timeout=50ms"]).fresh();
    for request in [&b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"[..], &[PREFACE, GET_ROOT].concat()]
    {
        let mut stream = connect(&server);
        stream.write_all(request).unwrap();
        wait_for_the_end(&mut stream, &String::from_utf8_lossy(request));
    }
}

#[test]
fn silent_connections_give_way_to_those_that_ask() {
    let server = Start::dev().with(&["--set", "http.connections_max=4"]).fresh();
    let silent: Vec<_> = (0..50).map(|_| connect(&server)).collect();
    server.get("/v1/ledger");
    let of_one_address = ["--set", "http.connections_per_address_max=4"];
    let other = Start::dev().with(&of_one_address).fresh();
    let more: Vec<_> = (0..50).map(|_| connect(&other)).collect();
    other.get("/v1/ledger");
    drop((silent, more));
}

#[test]
fn connection_beyond_a_limit_is_answered_at_once() {
    for (setting, status, code) in [
        ("http.connections_per_address_max=2", "429 Too Many Requests", "too_many_at_once"),
        ("http.connections_max=2", "503 Service Unavailable", "overloaded"),
    ] {
        let server = Start::dev().with(&["--set", setting]).fresh();
        let busy = [follow(&server, ""), follow(&server, "")];
        let answer =
            http::raw(server.address, b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{answer}");
        assert!(answer.contains("\r\nretry-after: ") && answer.contains(code), "{answer}");
        drop(busy);
    }
}

#[test]
fn requests_behind_a_trusted_proxy_are_limited_by_forwarded_address() {
    let settings = ["server.trusted_proxies=127.0.0.0/8", "http.connections_per_address_max=1"];
    let server = Start::dev().with(&["--set", settings[0], "--set", settings[1]]).fresh();
    let _busy = follow(&server, "x-forwarded-for: 198.51.100.7\r\n");
    let ask = |forwarded: &str| {
        let asked =
            http::request_with(server.address, &server.key, "GET", "/v1/ledger", forwarded, None);
        asked.unwrap().0
    };
    assert_eq!(ask("x-forwarded-for: 198.51.100.7\r\n"), 429);
    assert_eq!(ask("x-forwarded-for: 203.0.113.1, 198.51.100.7\r\n"), 429, "read from the right");
    assert_eq!(ask("x-forwarded-for: 198.51.100.8\r\n"), 200);
}

#[test]
fn client_that_does_not_read_its_answers_is_closed() {
    let server = Start::dev().with(&["--set", "http.write_timeout=100ms"]).fresh();
    let mut stream = connect(&server);
    // Writes until the server has closed; a server that waited for ever would block this test for
    // ever.
    let error = loop {
        if let Err(error) = stream.write_all(b"GET /openapi.json HTTP/1.1\r\nhost: x\r\n\r\n") {
            break error;
        }
    };
    assert_ne!(error.kind(), io::ErrorKind::WouldBlock, "the server waited for the client");
}

#[test]
fn stalled_reader_of_the_stream_is_closed_and_frees_its_place() {
    let receiver = Receiver::start(200);
    let settings = ["http.write_timeout=100ms", "limits.tenant_streams_max=1"];
    let settings = settings.map(|setting| ["--set", setting]).concat();
    let server = Start::dev().with(&settings).with(&["--set", "telemetry.attempts=false"]).fresh();
    for n in 0..8 {
        server.subscribe(&receiver.url_of(&format!("/{n}")));
    }
    let mut stalled = follow(&server, "");
    assert_eq!(ask_for_stream(&server, "").1, "429", "the tenant's only place is taken");
    // Eight attempts for each event are streamed until the buffers of the connection are full.
    let deadline = Deadline::new();
    while ask_for_stream(&server, "").1 != "200" {
        assert!(!deadline.has_passed(), "the stalled reader still has its place");
        server.send(200);
    }
    wait_for_the_end(&mut stalled, "a stalled reader");
}

#[test]
fn http_2_client_that_opens_no_window_is_closed() {
    let server = Start::dev().with(&["--set", "http.write_timeout=100ms"]).fresh();
    let mut stream = connect(&server);
    stream.write_all(&[NO_WINDOW, GET_ROOT].concat()).unwrap();
    wait_for_the_end(&mut stream, "no window");
}

#[test]
fn http_2_client_that_floods_with_pings_is_closed() {
    let server = Start::dev().with(&["--set", "http.header_read_timeout=1h"]).fresh();
    let mut stream = connect(&server);
    stream.write_all(PREFACE).unwrap();
    let mut answers = stream.try_clone().unwrap();
    let reading = std::thread::spawn(move || answers.read_to_end(&mut Vec::new()));
    let pings = PING.repeat(1000);
    let sent = (0..1000).take_while(|_| stream.write_all(&pings).is_ok()).count();
    assert!(sent < 1000, "a million pings were taken");
    drop(reading.join().unwrap());
    server.get("/v1/ledger");
}
