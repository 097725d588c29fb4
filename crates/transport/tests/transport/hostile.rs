//! Receivers that refuse, stall or send garbage.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use postrider_domain::attempt::{BodyEnd, FailureClass, Phase, Verdict};
use postrider_transport::{Request, Transport};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::support::*;

#[tokio::test]
async fn a_port_without_a_listener_refuses() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let finished = post(&transport(), &format!("http://{address}/")).await;
    assert_eq!(class(&finished), FailureClass::Refused);
}

#[tokio::test]
async fn a_connection_that_ends_before_the_headers_is_a_reset() {
    let transport = transport();
    let closes_at_once = Receiver::start(|_, stream| async move { drop(stream) }).await;
    let resets_at_once = Receiver::start(|_, stream| async move {
        stream.set_zero_linger().unwrap();
    })
    .await;
    let resets_after_the_request = Receiver::start(|_, mut stream| async move {
        read_request(&mut stream).await.unwrap();
        stream.set_zero_linger().unwrap();
    })
    .await;
    let half_closes = Receiver::start(|_, mut stream| async move {
        stream.shutdown().await.unwrap();
        drain(&mut stream).await;
    })
    .await;
    let resets_within_the_head = Receiver::start(|_, mut stream| async move {
        read_request(&mut stream).await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\ncont").await.unwrap();
        stream.set_zero_linger().unwrap();
    })
    .await;
    let closes_within_the_head = Receiver::answering_once("HTTP/1.1 200 OK\r\ncontent-le").await;
    let closes_after_the_request = Receiver::answering_once("").await;
    for receiver in [
        &closes_at_once,
        &resets_at_once,
        &resets_after_the_request,
        &half_closes,
        &resets_within_the_head,
        &closes_within_the_head,
        &closes_after_the_request,
    ] {
        let finished = post(&transport, &receiver.url("/")).await;
        assert_eq!(class(&finished), FailureClass::Reset, "{finished:?}");
        // A request on a new connection is never repeated.
        assert_eq!(receiver.connections(), 1);
    }
    assert_eq!(transport.pool_stats().open, 0);
}

#[tokio::test]
async fn response_that_is_not_http_is_a_protocol_failure() {
    let transport = transport();
    let many_headers = |count: usize| {
        let mut answer = b"HTTP/1.1 200 OK\r\n".to_vec();
        for n in 0..count {
            answer.extend(format!("x-{n}: {n}\r\n").bytes());
        }
        answer.extend(b"content-length: 0\r\n\r\n");
        answer
    };
    let long_line = |bytes: usize| {
        let mut answer = b"HTTP/1.1 200 OK\r\nx: ".to_vec();
        answer.resize(answer.len() + bytes, b'x');
        answer.extend(b"\r\ncontent-length: 0\r\n\r\n");
        answer
    };
    let answers: [Vec<u8>; 15] = [
        b"garbage\r\n\r\n".to_vec(),
        b"SSH-2.0-OpenSSH_9.6\r\n".to_vec(),
        b"220 mail.example.com ESMTP\r\n".to_vec(),
        b"-ERR unknown command 'POST'\r\n".to_vec(),
        b"\0\0\x12\x04\0\0\0\0\0\0\x03\0\0\0\x64\0\x04\0\0\xff\xff".to_vec(),
        b"HTTP/2.0 200 OK\r\n\r\n".to_vec(),
        b"HTTP/1.1 2000 OK\r\n\r\n".to_vec(),
        b"HTTP/1.1 20 OK\r\n\r\n".to_vec(),
        b"HTTP/1.1 OK\r\n\r\n".to_vec(),
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n".to_vec(),
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n".to_vec(),
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n".to_vec(),
        b"HTTP/1.1 200 OK\r\na\0b: c\r\n\r\n".to_vec(),
        many_headers(100_000),
        long_line(10_000_000),
    ];
    for bytes in answers {
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).into_owned();
        let receiver = Receiver::answering(bytes).await;
        let finished = post(&transport, &receiver.url("/")).await;
        assert_eq!(class(&finished), FailureClass::Protocol, "{shown:?}");
    }
    assert_eq!(transport.pool_stats().open, 0);
    let receiver = Receiver::answering(many_headers(90)).await;
    assert_eq!(answer(&post(&transport, &receiver.url("/")).await).status, 200);
    let receiver = Receiver::answering(long_line(40_000)).await;
    assert_eq!(answer(&post(&transport, &receiver.url("/")).await).status, 200);
}

/// Writes this repeatedly until the sender disconnects.
async fn repeat(stream: &mut tokio::net::TcpStream, bytes: &[u8]) {
    while stream.write_all(bytes).await.is_ok() {}
}

#[tokio::test]
async fn endless_responses_are_cut_and_memory_stays_bounded() {
    let head = b"HTTP/1.1 200 OK\r\n";
    let endless = |begin: &'static [u8], again: &'static [u8]| {
        Receiver::start(move |_, mut stream| async move {
            read_request(&mut stream).await.unwrap();
            stream.write_all(begin).await.unwrap();
            repeat(&mut stream, again).await;
        })
    };
    let cases = [
        (endless(head, b"x: y\r\n").await, None),
        (endless(head, b"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx").await, None),
        (endless(b"", b"HTTP/1.1 103 Early\r\nlink: </a>\r\n\r\n").await, None),
        (endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n").await, None),
        (endless(b"HTTP/1.1 200 OK\r\n\r\n", &[b'x'; 65536]).await, Some(BodyEnd::Cut)),
        (
            endless(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"5\r\nabcde\r\n")
                .await,
            Some(BodyEnd::Cut),
        ),
    ];
    let transport = transport();
    let before = peak_memory_kib();
    let mut ended = 0;
    for _ in 0..20 {
        for (receiver, expected) in &cases {
            let finished = post(&transport, &receiver.url("/")).await;
            match expected {
                None => assert_eq!(class(&finished), FailureClass::Protocol),
                Some(end) => {
                    assert_eq!(answer(&finished).body_end, *end);
                    assert_eq!(answer(&finished).body.len(), BODY_BYTES_MAX);
                    assert_eq!(finished.ending.verdict(), Verdict::Success);
                }
            }
            ended += 1;
        }
    }
    let grown = peak_memory_kib() - before;
    assert!(grown < 32 * 1024, "{grown} KiB");
    assert_eq!(transport.pool_stats().open, 0);
    println!("endless answers: {ended} cut, peak memory grew by {grown} KiB");
}

/// The most memory that this process has ever had.
fn peak_memory_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn the_deadline_ends_every_phase_and_says_which() {
    let transport = transport();
    // Accepts and never answers.
    let silent = Receiver::start(|_, mut stream| async move {
        drain(&mut stream).await;
    })
    .await;
    let finished = post_in_haste(&transport, &silent.url("/")).await;
    assert_eq!(class(&finished), FailureClass::Timeout(Phase::Response));
    assert!(finished.timings.total >= SHORT);

    // Sends a head byte by byte, for as long as the connection lasts.
    let dribbles = Receiver::start(|_, mut stream| async move {
        read_request(&mut stream).await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nx: ").await.unwrap();
        let mut tick = tokio::time::interval(Duration::from_millis(10));
        while stream.write_all(b"x").await.is_ok() {
            tick.tick().await;
        }
    })
    .await;
    let finished = post_in_haste(&transport, &dribbles.url("/")).await;
    assert_eq!(class(&finished), FailureClass::Timeout(Phase::Response));

    // Never reads.
    let deaf = Receiver::start(|_, stream| async move {
        std::future::pending::<()>().await;
        drop(stream);
    })
    .await;
    let body = Bytes::from(vec![b'x'; 64 * 1024 * 1024]).into();
    let request_to_deaf = Request { body, deadline: SHORT, ..request(&deaf.url("/")) };
    let finished = transport.send(request_to_deaf).await;
    assert_eq!(class(&finished), FailureClass::Timeout(Phase::Request));

    // Sends a body byte by byte: the response counts, but the connection is not reused.
    let dribbles_body = Receiver::start(|_, mut stream| async move {
        read_request(&mut stream).await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        let mut tick = tokio::time::interval(Duration::from_millis(10));
        while stream.write_all(b"x").await.is_ok() {
            tick.tick().await;
        }
    })
    .await;
    let finished = post_in_haste(&transport, &dribbles_body.url("/")).await;
    assert_eq!(answer(&finished).body_end, BodyEnd::Late);
    assert_eq!(finished.ending.verdict(), Verdict::Success);
    let stats = transport.pool_stats();
    assert_eq!((stats.open, stats.idle, stats.in_flight), (0, 0, 0));
}

/// A listener that accepts no more connections: new ones wait.
async fn full_listener(ip: &str, port: u16) -> (TcpListener, Vec<TcpStream>) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(ip.parse().unwrap(), port)).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut waiting = Vec::new();
    while let Ok(stream) = timeout(SHORT, TcpStream::connect(address)).await {
        waiting.push(stream.unwrap());
        assert!(waiting.len() < 100, "this machine takes every connection");
    }
    (listener, waiting)
}

#[tokio::test]
async fn the_deadline_may_come_while_connecting() {
    let (listener, _waiting) = full_listener("127.0.0.1", 0).await;
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let transport = transport();
    let finished = post_in_haste(&transport, &url).await;
    assert_eq!(class(&finished), FailureClass::Timeout(Phase::Connect));
    assert_eq!(transport.pool_stats().open, 0);
}

#[tokio::test]
async fn an_address_that_takes_long_does_not_hold_up_the_next_one() {
    let receiver = Receiver::answering("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    let port = receiver.address.port();
    let (_listener, _waiting) = full_listener("127.0.0.2", port).await;
    let nameserver = Nameserver::start(|_, _| Reply::addresses(&["127.0.0.2", "127.0.0.1"])).await;
    let mut options = dev_options();
    options.dns = nameserver.options();
    options.connect_stagger = Duration::from_millis(10);
    let transport = transport_with(options);
    let finished = post(&transport, &format!("http://hooks.example.com:{port}/")).await;
    assert_eq!(answer(&finished).status, 200);
    assert_eq!(transport.pool_stats().open, 1);
}

#[tokio::test]
async fn a_request_that_is_dropped_leaves_nothing_behind() {
    let (seen, mut was_seen) = tokio::sync::mpsc::channel(1);
    let (ended, mut has_ended) = tokio::sync::mpsc::channel(1);
    let receiver = Receiver::start(move |_, mut stream| {
        let (seen, ended) = (seen.clone(), ended.clone());
        async move {
            read_request(&mut stream).await.unwrap();
            seen.send(()).await.unwrap();
            ended.send(stream.read(&mut [0; 1]).await.unwrap_or(0)).await.unwrap();
        }
    })
    .await;
    let transport = std::sync::Arc::new(transport());
    let sending = {
        let (transport, url) = (std::sync::Arc::clone(&transport), receiver.url("/"));
        tokio::spawn(async move { post(&transport, &url).await })
    };
    was_seen.recv().await.unwrap();
    assert_eq!(transport.pool_stats().in_flight, 1);
    sending.abort();
    assert_eq!(has_ended.recv().await, Some(0));
    until(|| transport.pool_stats().open == 0).await;
    assert_eq!(transport.pool_stats().in_flight, 0);
}

/// Any bytes as a response: the attempt ends in some class, and only a 2xx is a success.
#[tokio::test]
async fn mutated_responses_always_end_in_a_class() {
    let seeds: [&[u8]; 5] = [
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.1 503 Busy\r\nretry-after: 120\r\nconnection: close\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n",
        b"HTTP/1.1 103 Early\r\nlink: </a>\r\n\r\nHTTP/1.1 204 No\r\n\r\n",
        b"HTTP/1.0 301 x\r\nlocation: http://127.0.0.1/\r\n\r\n",
    ];
    let transport = transport();
    let (mut runs, mut successes) = (0, 0);
    for number in 0..400 {
        let bytes = postrider_domain::fuzzing::stir(&seeds, number);
        let head = String::from_utf8_lossy(&bytes).into_owned();
        let receiver = Receiver::start(move |_, mut stream| {
            let bytes = bytes.clone();
            async move {
                read_request(&mut stream).await.unwrap();
                // The sender may disconnect before the end.
                drop(stream.write_all(&bytes).await);
            }
        })
        .await;
        let finished = post(&transport, &receiver.url("/")).await;
        if finished.ending.verdict() == Verdict::Success {
            assert!(head.contains(" 2"), "{head:?}");
            successes += 1;
        }
        runs += 1;
    }
    assert!(successes > 10, "{successes}");
    println!("fuzz: answers, {runs} answers, {successes} successes, 0 failures");
}
