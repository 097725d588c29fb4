//! Asks a proxy for a connection to a vetted address.
//!
//! The proxy gets an address, never a name, so that it cannot resolve the name to another address.
//! If the proxy says that the destination failed (502, 504; SOCKS host unreachable, refused), that
//! is a failure of the destination. If it says that the destination must not be contacted (403;
//! SOCKS not allowed by ruleset), the destination is blocked. Everything else is our own fault.

use std::net::{IpAddr, SocketAddr};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use postrider_domain::attempt::{FailureClass, OwnFaultKind, Phase};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::fault::Fault;
use crate::options::{ProxyCredentials, ProxyKind, ProxyOptions};

/// The longest answer to `CONNECT`.
const ANSWER_BYTES_MAX: usize = 8 * 1024;

/// Turns a connection to a proxy into a tunnel to this address.
pub(crate) async fn tunnel(
    options: &ProxyOptions,
    proxy: &mut TcpStream,
    address: SocketAddr,
) -> Result<(), Fault> {
    let credentials = options.credentials.as_ref();
    match options.kind {
        ProxyKind::HttpConnect => connect(proxy, address, credentials).await,
        ProxyKind::Socks5 => socks5(proxy, address, credentials).await,
    }
}

fn own(detail: impl Into<String>) -> Fault {
    Fault::ours(OwnFaultKind::Proxy, detail)
}

async fn send(proxy: &mut TcpStream, bytes: &[u8]) -> Result<(), Fault> {
    proxy.write_all(bytes).await.map_err(|error| own(format!("the connection broke: {error}")))
}

async fn receive<const N: usize>(proxy: &mut TcpStream) -> Result<[u8; N], Fault> {
    let mut bytes = [0; N];
    match proxy.read_exact(&mut bytes).await {
        Ok(_) => Ok(bytes),
        Err(error) => Err(own(format!("the connection broke: {error}"))),
    }
}

async fn connect(
    proxy: &mut TcpStream,
    address: SocketAddr,
    credentials: Option<&ProxyCredentials>,
) -> Result<(), Fault> {
    let mut request = format!("CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n");
    if let Some(ProxyCredentials { user, password }) = credentials {
        let pair = STANDARD.encode(format!("{user}:{password}"));
        request.push_str(&format!("Proxy-Authorization: Basic {pair}\r\n"));
    }
    request.push_str("\r\n");
    send(proxy, request.as_bytes()).await?;

    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        if answer.len() >= ANSWER_BYTES_MAX {
            return Err(own("the answer to CONNECT is too long"));
        }
        // Read byte by byte: whatever follows the head belongs to the tunnel.
        let [byte] = receive(proxy).await?;
        answer.push(byte);
    }
    judge_connect(status_of(&answer))
}

/// The status in the first line of an answer.
fn status_of(answer: &[u8]) -> Option<u16> {
    let line = answer.split(|&byte| byte == b'\r').next()?;
    let mut words = std::str::from_utf8(line).ok()?.split(' ');
    words.next().filter(|version| version.starts_with("HTTP/1."))?;
    words.next()?.parse().ok()
}

fn judge_connect(status: Option<u16>) -> Result<(), Fault> {
    match status {
        Some(200..=299) => Ok(()),
        Some(403) => Err(Fault::theirs(FailureClass::Blocked, "the proxy forbids it (403)")),
        Some(502) => {
            Err(Fault::theirs(FailureClass::Refused, "the proxy cannot connect to it (502)"))
        }
        Some(504) => Err(Fault::theirs(
            FailureClass::Timeout(Phase::Connect),
            "the proxy had no connection in time (504)",
        )),
        Some(status) => Err(own(format!("it answered CONNECT with status {status}"))),
        None => Err(own("its answer to CONNECT is not HTTP")),
    }
}

async fn socks5(
    proxy: &mut TcpStream,
    address: SocketAddr,
    credentials: Option<&ProxyCredentials>,
) -> Result<(), Fault> {
    const VERSION: u8 = 5;
    const NO_AUTHENTICATION: u8 = 0;
    const PASSWORD: u8 = 2;
    let method = if credentials.is_some() { PASSWORD } else { NO_AUTHENTICATION };
    send(proxy, &[VERSION, 1, method]).await?;
    match (receive::<2>(proxy).await?, credentials) {
        ([VERSION, NO_AUTHENTICATION], None) => {}
        ([VERSION, PASSWORD], Some(credentials)) => log_in(proxy, credentials).await?,
        ([VERSION, _], _) => return Err(own("it does not accept our way of logging in")),
        _ => return Err(own("it does not speak SOCKS 5")),
    }
    let mut request = vec![VERSION, 1, 0];
    match address.ip() {
        IpAddr::V4(ip) => {
            request.push(1);
            request.extend(ip.octets());
        }
        IpAddr::V6(ip) => {
            request.push(4);
            request.extend(ip.octets());
        }
    }
    request.extend(address.port().to_be_bytes());
    send(proxy, &request).await?;
    let [version, reply, _, kind] = receive::<4>(proxy).await?;
    if version != VERSION {
        return Err(own("it does not speak SOCKS 5"));
    }
    judge_socks5(reply)?;
    // Skip the address from which the proxy connects.
    match kind {
        1 => drop(receive::<6>(proxy).await?),
        4 => drop(receive::<18>(proxy).await?),
        3 => {
            let [length] = receive::<1>(proxy).await?;
            let mut rest = vec![0; usize::from(length) + 2];
            let read = proxy.read_exact(&mut rest).await;
            read.map_err(|error| own(format!("the connection broke: {error}")))?;
        }
        _ => return Err(own("it answered with an unknown kind of address")),
    }
    Ok(())
}

async fn log_in(proxy: &mut TcpStream, credentials: &ProxyCredentials) -> Result<(), Fault> {
    let mut request = vec![1];
    for text in [&credentials.user, &credentials.password] {
        let length =
            u8::try_from(text.len()).map_err(|_| own("user or password is over 255 bytes"))?;
        request.push(length);
        request.extend(text.as_bytes());
    }
    send(proxy, &request).await?;
    match receive::<2>(proxy).await? {
        [_, 0] => Ok(()),
        _ => Err(own("it refuses our user or password")),
    }
}

fn judge_socks5(reply: u8) -> Result<(), Fault> {
    let theirs = |class, detail| Err(Fault::theirs(class, detail));
    match reply {
        0 => Ok(()),
        2 => theirs(FailureClass::Blocked, "the proxy forbids it"),
        3 => theirs(FailureClass::Refused, "the proxy cannot reach its network"),
        4 => theirs(FailureClass::Refused, "the proxy cannot reach its host"),
        5 => theirs(FailureClass::Refused, "the proxy's connection was refused"),
        6 => theirs(FailureClass::Timeout(Phase::Connect), "the proxy had no connection in time"),
        other => Err(own(format!("it answered with SOCKS reply {other}"))),
    }
}
