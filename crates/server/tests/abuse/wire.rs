//! HTTP/2 at the level of frames, to send what no library would.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use crate::kit::{connect, is_timeout};

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

/// `SETTINGS_INITIAL_WINDOW_SIZE`.
pub(crate) const INITIAL_WINDOW: u16 = 4;

/// One connection.
pub(crate) struct Http2(pub(crate) TcpStream);

impl Http2 {
    /// Sends the preface and these settings.
    pub(crate) fn open(
        server: SocketAddr,
        source: Ipv4Addr,
        settings: &[(u16, u32)],
    ) -> io::Result<Http2> {
        let stream = connect(server, source)?;
        // If the server stops reading, that is a result; do not wait for it.
        stream.set_write_timeout(Some(Duration::from_secs(3)))?;
        let mut http2 = Http2(stream);
        http2.0.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")?;
        let mut payload = Vec::new();
        for (name, value) in settings {
            payload.extend_from_slice(&name.to_be_bytes());
            payload.extend_from_slice(&value.to_be_bytes());
        }
        http2.send(&frame(SETTINGS, 0, 0, &payload))?;
        Ok(http2)
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    /// Reads and drops the available data within this time; returns its size, and whether the
    /// server closed.
    pub(crate) fn drain(&mut self, within: Duration) -> (usize, bool) {
        let mut buffer = vec![0; 64 * 1024];
        let mut bytes = 0;
        self.0.set_read_timeout(Some(within)).unwrap();
        loop {
            match self.0.read(&mut buffer) {
                Ok(0) => return (bytes, true),
                Ok(read) => bytes += read,
                Err(error) if is_timeout(&error) => return (bytes, false),
                Err(_) => return (bytes, true),
            }
        }
    }
}

/// One frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// The header block of a request, with literal fields.
pub(crate) fn request(method: &str, path: &str, key: &str) -> Vec<u8> {
    let bearer = format!("Bearer {key}");
    let mut block = Vec::new();
    for (name, value) in [
        (":method", method),
        (":scheme", "http"),
        (":authority", "localhost"),
        (":path", path),
        ("authorization", &bearer),
        ("content-type", "application/json"),
    ] {
        literal(&mut block, 0x00, name.as_bytes(), value.as_bytes());
    }
    block
}

/// A literal field: 0x00 does not add it to the dynamic table, 0x40 does.
pub(crate) fn literal(block: &mut Vec<u8>, how: u8, name: &[u8], value: &[u8]) {
    block.push(how);
    for text in [name, value] {
        integer(block, text.len());
        block.extend_from_slice(text);
    }
}

/// Encodes a length with a seven-bit prefix.
fn integer(block: &mut Vec<u8>, value: usize) {
    if value < 127 {
        block.push(u8::try_from(value).unwrap());
        return;
    }
    block.push(127);
    let mut rest = value - 127;
    while rest >= 128 {
        block.push(u8::try_from(rest % 128).unwrap() | 0x80);
        rest /= 128;
    }
    block.push(u8::try_from(rest).unwrap());
}
