//! A refusal reaches its client, even while the client is still sending the body.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

use crate::support::server::Server;
use crate::support::{PATIENCE, Start};

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Sends a whole request before reading, as most clients do; then reads the answer to its end.
/// Returns the status and whether the connection stays open.
fn exchange(stream: &mut BufReader<TcpStream>, headers: &str, body: &[u8]) -> (u16, bool) {
    let head = format!("POST /v1/events HTTP/1.1\r\nhost: x\r\n{headers}\r\n");
    stream.get_mut().write_all(head.as_bytes()).unwrap();
    stream.get_mut().write_all(body).expect("the server reads what it does not want");
    let mut line = String::new();
    let (mut status, mut length, mut stays) = (0, 0, true);
    loop {
        line.clear();
        assert!(stream.read_line(&mut line).unwrap() > 0, "the answer was cut");
        let header = line.trim_end().to_ascii_lowercase();
        if let Some(rest) = header.strip_prefix("http/1.1 ") {
            status = rest[..3].parse().unwrap();
        } else if let Some(value) = header.strip_prefix("content-length: ") {
            length = value.parse().unwrap();
        } else if header == "connection: close" {
            stays = false;
        } else if header.is_empty() {
            break;
        }
    }
    let mut problem = vec![0; length];
    stream.read_exact(&mut problem).unwrap();
    assert!(problem.starts_with(b"{\"type\":"), "{}", String::from_utf8_lossy(&problem));
    (status, stays)
}

#[test]
fn refusal_of_a_large_body_is_read_by_a_client_that_sends_all_of_it_first() {
    let server = Start::dev().fresh();
    let body = vec![b' '; 5 * 1024 * 1024];
    let key = format!("authorization: Bearer {}\r\n", server.key);
    for _ in 0..20 {
        let mut stream = BufReader::new(connect(&server));
        let length = format!("{key}content-length: {}\r\n", body.len());
        assert_eq!(exchange(&mut stream, &length, &body), (413, true));
        assert_eq!(exchange(&mut stream, "content-length: 0\r\n", b""), (401, true));
    }
    // Longer than what the server discards: answered and closed, and the answer is complete.
    let settings = ["--set", "http.discard_bytes_max=1000000"];
    let server = Start::dev().with(&settings).fresh();
    let key = format!("authorization: Bearer {}\r\n", server.key);
    let length = format!("{key}content-length: {}\r\n", 1_500_000);
    for _ in 0..20 {
        let mut stream = BufReader::new(connect(&server));
        assert_eq!(exchange(&mut stream, &length, &body[..1_500_000]).0, 413);
    }
}

#[test]
fn refusals_on_one_connection_that_is_kept_alive_are_all_read() {
    let server = Start::dev().fresh();
    let key = format!("authorization: Bearer {}\r\n", server.key);
    let body = vec![b'x'; 300_000];
    let mut stream = BufReader::new(connect(&server));
    for _ in 0..20 {
        let length = format!("content-length: {}\r\n", body.len());
        assert_eq!(exchange(&mut stream, &length, &body), (401, true));
        let wrong = format!("{key}{length}content-type: text/csv\r\n");
        assert_eq!(exchange(&mut stream, &wrong, &body), (415, true));
    }
}

#[test]
fn client_that_asks_before_it_sends_is_refused_without_sending() {
    let server = Start::dev().fresh();
    let mut stream = BufReader::new(connect(&server));
    let headers = "expect: 100-continue\r\ncontent-length: 5000000\r\n";
    assert_eq!(exchange(&mut stream, headers, b""), (401, false));
    assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap(), 0, "and closed");
}
