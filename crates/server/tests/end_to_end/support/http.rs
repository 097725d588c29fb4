//! A minimal HTTP/1.1 client, so that it cannot hide what a server does.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use serde_json::Value as Json;

use super::PATIENCE;

/// Sends raw bytes, and reads until the server closes.
pub(crate) fn raw(server: SocketAddr, bytes: &[u8]) -> io::Result<String> {
    let mut stream = TcpStream::connect(server)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(bytes)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    String::from_utf8(answer).map_err(io::Error::other)
}

/// Sends one request on a new connection. `Err` if the server disconnected.
pub(crate) fn request(
    server: SocketAddr,
    key: &str,
    method: &str,
    path: &str,
    body: Option<&Json>,
) -> io::Result<(u16, String)> {
    request_with(server, key, method, path, "", body)
}

/// Sends one request with more header lines, each with its line end.
pub(crate) fn request_with(
    server: SocketAddr,
    key: &str,
    method: &str,
    path: &str,
    headers: &str,
    body: Option<&Json>,
) -> io::Result<(u16, String)> {
    let headers = format!("authorization: Bearer {key}\r\n{headers}");
    request_without_key(server, method, path, &headers, body)
}

/// Sends one request with these header lines, each with its line end, and no key of its own.
pub(crate) fn request_without_key(
    server: SocketAddr,
    method: &str,
    path: &str,
    headers: &str,
    body: Option<&Json>,
) -> io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(server)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let body = body.map(ToString::to_string).unwrap_or_default();
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: {server}\r\n{headers}\
         content-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
    );
    stream.write_all((head + &body).as_bytes())?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| io::Error::other(format!("no status line: {line:?}")))?;
    let mut length = None;
    loop {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let header = line.trim_end().to_ascii_lowercase();
        if header.is_empty() {
            break;
        }
        if let Some(value) = header.strip_prefix("content-length:") {
            length = value.trim().parse::<usize>().ok();
        }
    }
    let mut body = Vec::new();
    match length {
        Some(length) => {
            body.resize(length, 0);
            reader.read_exact(&mut body)?;
        }
        None => {
            reader.read_to_end(&mut body)?;
        }
    }
    Ok((status, String::from_utf8(body).map_err(io::Error::other)?))
}
