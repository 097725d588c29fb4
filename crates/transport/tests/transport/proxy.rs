//! Requests through a proxy, and how its refusals are classified.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use postrider_domain::attempt::{Ending, FailureClass, OwnFaultKind, Phase};
use postrider_transport::{
    HttpTransport, ProxyCredentials, ProxyKind, ProxyOptions, TransportOptions,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

use crate::support::*;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

fn through(
    kind: ProxyKind,
    address: SocketAddr,
    credentials: Option<(&str, &str)>,
    nameserver: &Nameserver,
) -> TransportOptions {
    let credentials = credentials.map(|(user, password)| ProxyCredentials {
        user: user.to_owned(),
        password: password.to_owned(),
    });
    let (host, port) = (address.ip().to_string(), address.port());
    let proxy = Some(ProxyOptions { kind, host, port, credentials });
    TransportOptions { proxy, dns: nameserver.options(), ..dev_options() }
}

async fn nameserver() -> Nameserver {
    Nameserver::start(|_, _| Reply::addresses(&["127.0.0.1"])).await
}

/// The requests that a proxy got.
type Told = Arc<Mutex<Vec<String>>>;

/// A `CONNECT` proxy: answers with this status, and opens a tunnel if it is 200.
async fn connect_proxy(status: &'static str) -> (Receiver, Told) {
    let told = Told::default();
    let log = Arc::clone(&told);
    let proxy = Receiver::start(move |_, mut stream| {
        let log = Arc::clone(&log);
        async move {
            let Some(request) = read_request(&mut stream).await else { return };
            let authorization = request.headers.get("Proxy-Authorization");
            let said = format!("{} {:?}", request.line, authorization);
            log.lock().unwrap().push(said);
            let answer = format!("HTTP/1.1 {status}\r\nx-proxy: yes\r\n\r\n");
            stream.write_all(answer.as_bytes()).await.unwrap();
            if status.starts_with("200") {
                let target = request.line.split(' ').nth(1).unwrap();
                let mut target = TcpStream::connect(target).await.unwrap();
                drop(copy_bidirectional(&mut stream, &mut target).await);
            }
        }
    })
    .await;
    (proxy, told)
}

/// A SOCKS 5 proxy: requires this login, answers with this reply.
async fn socks_proxy(login: Option<(&'static str, &'static str)>, reply: u8) -> (Receiver, Told) {
    let told = Told::default();
    let log = Arc::clone(&told);
    let proxy = Receiver::start(move |_, stream| {
        let log = Arc::clone(&log);
        async move {
            drop(serve_socks(stream, login, reply, log).await);
        }
    })
    .await;
    (proxy, told)
}

async fn serve_socks(
    mut stream: TcpStream,
    login: Option<(&str, &str)>,
    reply: u8,
    log: Told,
) -> std::io::Result<()> {
    let mut greeting = [0; 3];
    stream.read_exact(&mut greeting).await?;
    let wanted = if login.is_some() { 2 } else { 0 };
    if greeting != [5, 1, wanted] {
        return stream.write_all(&[5, 255]).await;
    }
    stream.write_all(&[5, wanted]).await?;
    if let Some((user, password)) = login {
        let mut expected = vec![1, u8::try_from(user.len()).unwrap()];
        expected.extend(user.bytes());
        expected.push(u8::try_from(password.len()).unwrap());
        expected.extend(password.bytes());
        let mut given = vec![0; expected.len()];
        stream.read_exact(&mut given).await?;
        stream.write_all(&[1, u8::from(given != expected)]).await?;
    }
    let mut request = [0; 10];
    stream.read_exact(&mut request).await?;
    let [5, 1, 0, 1, a, b, c, d, high, low] = request else { panic!("{request:?}") };
    let target = SocketAddr::from(([a, b, c, d], u16::from_be_bytes([high, low])));
    log.lock().unwrap().push(target.to_string());
    // With a name as the bound address, to test that this form is read completely.
    stream.write_all(&[5, reply, 0, 3, 4, b'h', b'o', b's', b't', 1, 2]).await?;
    if reply == 0 {
        let mut target = TcpStream::connect(target).await?;
        copy_bidirectional(&mut stream, &mut target).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_request_goes_through_connect_with_the_vetted_address() {
    let receiver = Receiver::answering(OK).await;
    let nameserver = nameserver().await;
    let (proxy, told) = connect_proxy("200 Connection established").await;
    let options =
        through(ProxyKind::HttpConnect, proxy.address, Some(("me", "se:cret")), &nameserver);
    let transport = transport_with(options);
    let url = format!("http://hooks.example.com:{}/", receiver.address.port());
    for _ in 0..2 {
        assert_eq!(answer(&post(&transport, &url).await).status, 200);
    }
    assert_eq!((proxy.connections(), receiver.connections()), (1, 1));
    let line = format!("CONNECT {} HTTP/1.1", receiver.address);
    assert_eq!(*told.lock().unwrap(), [format!("{line} Some(\"Basic bWU6c2U6Y3JldA==\")")]);
}

#[tokio::test]
async fn tls_goes_through_a_proxy_end_to_end() {
    let authority = Authority::new();
    let acceptor = authority.server(&["hooks.example.com"]);
    let receiver = Receiver::start(move |_, stream| {
        let acceptor = acceptor.clone();
        async move {
            let mut stream = accept_tls(&acceptor, stream).await.unwrap();
            while read_request(&mut stream).await.is_some() {
                stream.write_all(OK).await.unwrap();
            }
        }
    })
    .await;
    let nameserver = nameserver().await;
    let (connect, _) = connect_proxy("200 OK").await;
    let (socks, _) = socks_proxy(None, 0).await;
    for (kind, proxy) in [(ProxyKind::HttpConnect, &connect), (ProxyKind::Socks5, &socks)] {
        let mut options = through(kind, proxy.address, None, &nameserver);
        options.tls.extra_roots = vec![authority.root()];
        let url = format!("https://hooks.example.com:{}/", receiver.address.port());
        assert_eq!(answer(&post(&transport_with(options), &url).await).status, 200);
        assert_eq!(proxy.connections(), 1);
    }
}

#[tokio::test]
async fn a_request_goes_through_socks_with_the_vetted_address() {
    let receiver = Receiver::answering(OK).await;
    let nameserver = nameserver().await;
    for login in [None, Some(("me", "secret"))] {
        let (proxy, told) = socks_proxy(login, 0).await;
        let options = through(ProxyKind::Socks5, proxy.address, login, &nameserver);
        let url = format!("http://hooks.example.com:{}/", receiver.address.port());
        assert_eq!(answer(&post(&transport_with(options), &url).await).status, 200);
        assert_eq!(*told.lock().unwrap(), [receiver.address.to_string()]);
    }
}

#[tokio::test]
async fn a_proxy_is_never_asked_for_a_forbidden_address() {
    // The second one is forbidden even with `--dev`, and the proxy is on loopback.
    let mixed = &["127.0.0.1", "::ffff:127.0.0.1"];
    let bad = Nameserver::start(|_, _| Reply::addresses(mixed)).await;
    for kind in [ProxyKind::HttpConnect, ProxyKind::Socks5] {
        let (proxy, _) = connect_proxy("200 OK").await;
        let transport = transport_with(through(kind, proxy.address, None, &bad));
        for url in ["http://hooks.example.com/", "http://0.0.0.0/", "https://[::]/"] {
            assert_eq!(class(&post(&transport, url).await), FailureClass::Blocked, "{url}");
        }
        assert_eq!(proxy.connections(), 0);
    }
}

/// The outcome of a request through this proxy: the failure class, or our own fault.
async fn ending(transport: HttpTransport) -> Result<FailureClass, OwnFaultKind> {
    let finished = post(&transport, "https://hooks.example.com/").await;
    assert!(!detail(&finished).contains("secret"), "{finished:?}");
    assert_eq!(transport.pool_stats().open, 0);
    match &finished.ending {
        Ending::OwnFault(fault) => Err(fault.kind),
        Ending::Answered(_) | Ending::Failed(_) => Ok(class(&finished)),
    }
}

#[tokio::test]
async fn a_proxys_refusal_is_the_destinations_or_ours() {
    let nameserver = nameserver().await;
    let refused = Ok(FailureClass::Refused);
    let timeout = Ok(FailureClass::Timeout(Phase::Connect));
    let (blocked, ours) = (Ok(FailureClass::Blocked), Err(OwnFaultKind::Proxy));
    let cases = [
        ("403 Forbidden", blocked),
        ("407 Proxy Authentication Required", ours),
        ("400 Bad Request", ours),
        ("429 Slow Down", ours),
        ("500 Oops", ours),
        ("502 Bad Gateway", refused),
        ("503 Unavailable", ours),
        ("504 Gateway Timeout", timeout),
        ("301 Elsewhere", ours),
        ("what?", ours),
    ];
    for (status, expected) in cases {
        let (proxy, _) = connect_proxy(status).await;
        let options =
            through(ProxyKind::HttpConnect, proxy.address, Some(("me", "secret")), &nameserver);
        assert_eq!(ending(transport_with(options)).await, expected, "{status}");
    }
    let replies = [ours, blocked, refused, refused, refused, timeout, ours, ours, ours];
    for (reply, expected) in (1..).zip(replies) {
        let (proxy, _) = socks_proxy(None, reply).await;
        let options = through(ProxyKind::Socks5, proxy.address, None, &nameserver);
        assert_eq!(ending(transport_with(options)).await, expected, "reply {reply}");
    }
}

#[tokio::test]
async fn a_proxy_that_fails_is_our_own_fault() {
    let nameserver = nameserver().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nobody = listener.local_addr().unwrap();
    drop(listener);
    let closing = Receiver::start(|_, stream| async move { drop(stream) }).await;
    let garbage = Receiver::start(|_, mut stream| async move {
        drop(stream.write_all(b"garbage\r\n\r\n").await);
        drain(&mut stream).await;
    })
    .await;
    let endless = Receiver::start(|_, mut stream| async move {
        while stream.write_all(b"HTTP/1.1 200 OK\r\nx: y\r\n").await.is_ok() {}
    })
    .await;
    let (wrong_login, _) = socks_proxy(Some(("me", "other!")), 0).await;
    for kind in [ProxyKind::HttpConnect, ProxyKind::Socks5] {
        for address in [nobody, closing.address, garbage.address, endless.address] {
            let options = through(kind, address, None, &nameserver);
            let ended = ending(transport_with(options)).await;
            assert_eq!(ended, Err(OwnFaultKind::Proxy), "{kind:?} {address}");
        }
    }
    for login in [Some(("me", "secret")), None] {
        let options = through(ProxyKind::Socks5, wrong_login.address, login, &nameserver);
        assert_eq!(ending(transport_with(options)).await, Err(OwnFaultKind::Proxy));
    }
    let shown =
        format!("{:?}", through(ProxyKind::Socks5, nobody, Some(("me", "secret")), &nameserver));
    assert!(shown.contains("me") && !shown.contains("secret"));
}

#[tokio::test]
async fn the_deadline_holds_through_a_proxy() {
    let nameserver = nameserver().await;
    // It accepts the request and then takes too long to connect.
    let silent = Receiver::start(|_, mut stream| async move {
        drain(&mut stream).await;
    })
    .await;
    for kind in [ProxyKind::HttpConnect, ProxyKind::Socks5] {
        let transport = transport_with(through(kind, silent.address, None, &nameserver));
        let finished = post_in_haste(&transport, "https://hooks.example.com/").await;
        assert_eq!(class(&finished), FailureClass::Timeout(Phase::Connect));
        assert_eq!(transport.pool_stats().open, 0);
    }
}
