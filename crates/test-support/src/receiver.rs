//! Parts of a receiver on loopback: it listens, reads requests and answers them, with one thread
//! for each connection.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

/// The stack of a connection's thread: a test may have thousands of them.
const STACK_BYTES: usize = 256 * 1024;

/// A received request.
#[derive(Debug, Clone)]
pub struct Request {
    /// The path with its query.
    pub path: String,
    /// Name, in lower case, and value of each header.
    pub headers: Vec<(String, String)>,
    /// The whole body.
    pub body: Vec<u8>,
    /// When it was received completely.
    pub at: Instant,
}

impl Request {
    /// Reads the next request of a connection; `None` at its end.
    #[expect(clippy::disallowed_methods, reason = "when a request arrived is what tests measure")]
    pub fn read(reader: &mut impl BufRead) -> io::Result<Option<Request>> {
        let (mut line, mut headers, mut length) = (String::new(), Vec::new(), 0);
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
        loop {
            line.clear();
            if reader.read_line(&mut line)? == 0 {
                return Ok(None);
            }
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            let (name, value) = (name.to_ascii_lowercase(), value.trim().to_owned());
            if name == "content-length" {
                length = value.parse().map_err(io::Error::other)?;
            }
            headers.push((name, value));
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        Ok(Some(Request { path, headers, body, at: Instant::now() }))
    }

    /// The value of a header, named in lower case; empty when there is none.
    pub fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(header, _)| header == name);
        found.map_or("", |(_, value)| value)
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Listens on a free loopback port, and runs `serve` for each connection, on a thread of its own.
pub fn listen(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    listen_on(TcpListener::bind("127.0.0.1:0").unwrap(), serve)
}

/// Runs `serve` for each connection, on a thread of its own.
pub fn listen_on(
    listener: TcpListener,
    serve: impl Fn(TcpStream) + Send + Sync + 'static,
) -> SocketAddr {
    let address = listener.local_addr().unwrap();
    let serve = Arc::new(serve);
    drop(thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let serve = Arc::clone(&serve);
            // A connection without a thread is closed, which the sender notices.
            let thread = thread::Builder::new().stack_size(STACK_BYTES);
            drop(thread.spawn(move || serve(stream)));
        }
    }));
    address
}

/// Answers every request of a connection with the result of `respond`, until the connection ends or
/// breaks.
pub fn answer_each(stream: impl Read + Write, mut respond: impl FnMut(Request) -> String) {
    let mut reader = BufReader::new(stream);
    while let Ok(Some(request)) = Request::read(&mut reader) {
        if reader.get_mut().write_all(respond(request).as_bytes()).is_err() {
            return;
        }
    }
}

/// A response with this status and a short body.
pub fn answer(status: u16) -> String {
    format!("HTTP/1.1 {status} x\r\ncontent-length: 6\r\n\r\nanswer")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_one_connection_are_read_and_answered_in_turn() {
        let address = listen(|stream| {
            answer_each(stream, |request| {
                assert_eq!(request.header("webhook-id"), "a");
                assert_eq!(request.header("missing"), "");
                answer(if request.path == "/bad" { 500 } else { 200 }) + &request.text()
            });
        });
        let mut stream = TcpStream::connect(address).unwrap();
        for path in ["/good", "/bad"] {
            let text =
                format!("POST {path} HTTP/1.1\r\nWebhook-Id: a\r\nContent-Length: 2\r\n\r\nhi");
            stream.write_all(text.as_bytes()).unwrap();
        }
        let expected = answer(200) + "hi" + &answer(500) + "hi";
        let mut answers = vec![0; expected.len()];
        stream.read_exact(&mut answers).unwrap();
        assert_eq!(String::from_utf8(answers).unwrap(), expected);
    }
}
