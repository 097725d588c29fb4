//! Responses of receivers, and how they are classified.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use postrider_domain::attempt::{BodyEnd, FailureClass, Phase, RetryAfter, Verdict};
use postrider_domain::payload::Body;
use postrider_transport::{Request, Transport};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::*;

#[tokio::test]
async fn post_arrives_with_its_headers_and_body() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let receiver = Receiver::responding(move |request| {
        log.lock().unwrap().push(request.clone());
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok".to_vec()
    })
    .await;
    let body = Bytes::from(vec![b'x'; 1024 * 1024]);
    let url = receiver.url("/in/a%20b?c=d&e=%0D");
    let request = Request { body: body.clone().into(), ..request(&url) };
    let finished = transport().send(request).await;

    assert_eq!(answer(&finished).status, 200);
    assert_eq!(answer(&finished).body, "ok");
    assert_eq!(answer(&finished).body_end, BodyEnd::Whole);
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].line, "POST /in/a%20b?c=d&e=%0D HTTP/1.1");
    assert_eq!(seen[0].body, body);
    let mut headers: Vec<_> =
        seen[0].headers.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    headers.sort();
    let host = format!("host: {}", receiver.address);
    let agent = format!("user-agent: postrider/{}", env!("CARGO_PKG_VERSION"));
    assert_eq!(
        headers,
        [
            "accept-encoding: identity",
            "content-length: 1048576",
            &host,
            &agent,
            "webhook-id: dlv_1"
        ]
    );
}

#[tokio::test]
async fn every_status_is_itself_and_only_2xx_is_a_success() {
    let receiver = Receiver::responding(|request| {
        let status = &request.line["POST /".len()..][..3];
        format!("HTTP/1.1 {status} Whatever\r\ncontent-length: 0\r\n\r\n").into_bytes()
    })
    .await;
    let transport = transport();
    let (mut delivered, mut failed) = (0, 0);
    for status in 200..=599 {
        let finished = post(&transport, &receiver.url(&format!("/{status}"))).await;
        assert_eq!(answer(&finished).status, status);
        match finished.ending.verdict() {
            Verdict::Success => delivered += 1,
            Verdict::Failure | Verdict::Gone => failed += 1,
            Verdict::OwnFault => panic!("{status}"),
        }
    }
    assert_eq!((delivered, failed), (100, 300));
    assert_eq!(receiver.connections(), 1);
    println!("statuses: 400 answered from 200 to 599, {delivered} delivered, {failed} failed");
}

#[tokio::test]
async fn informational_answers_are_skipped_but_switching_protocols_is_a_failure() {
    let receiver = Receiver::responding(|request| {
        let status = &request.line["POST /".len()..][..3];
        let early = format!("HTTP/1.1 {status} Early\r\nlink: </a>\r\n\r\n");
        format!("{early}{early}HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").into_bytes()
    })
    .await;
    let transport = transport();
    for status in (100..=199).filter(|&status| status != 101) {
        let finished = post(&transport, &receiver.url(&format!("/{status}"))).await;
        assert_eq!(answer(&finished).status, 200, "{status}");
    }
    assert_eq!(receiver.connections(), 1);

    let finished = post(&transport, &receiver.url("/101")).await;
    assert_eq!(answer(&finished).status, 101);
    assert_eq!(finished.ending.verdict(), Verdict::Failure);
    assert_eq!(transport.pool_stats().open, 0);

    let only_early = Receiver::answering_once("HTTP/1.1 103 Early\r\n\r\n").await;
    assert_eq!(class(&post(&transport, &only_early.url("/")).await), FailureClass::Reset);
    let silent_after = Receiver::answering("HTTP/1.1 100 Continue\r\n\r\n").await;
    let finished = post_in_haste(&transport, &silent_after.url("/")).await;
    assert_eq!(class(&finished), FailureClass::Timeout(Phase::Response));
}

#[tokio::test]
async fn redirects_are_never_followed() {
    let sink = Receiver::answering("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    let locations = [
        sink.url("/"),
        format!("//{}/", sink.address),
        sink.url("/").replace("http:", "HTTP:"),
        format!("http://user:pw@{}/", sink.address),
        "/relative".to_owned(),
        "?query".to_owned(),
        "https://169.254.169.254/latest/meta-data/".to_owned(),
        "file:///etc/passwd".to_owned(),
        "gopher://127.0.0.1:70/".to_owned(),
        "javascript:alert(1)".to_owned(),
        String::new(),
        "\u{e4}".to_owned(),
        "x".repeat(8000),
    ];
    let transport = transport();
    let mut answers = 0;
    for location in &locations {
        let head = format!(
            "Location: {location}\r\nRefresh: 0;url={location}\r\nAlt-Svc: h2=\"{}\"",
            sink.address
        );
        let receiver = Receiver::responding(move |request| {
            let status = &request.line["POST /".len()..][..3];
            format!("HTTP/1.1 {status} Found\r\n{head}\r\ncontent-length: 0\r\n\r\n").into_bytes()
        })
        .await;
        for status in [200, 201, 300, 301, 302, 303, 304, 305, 306, 307, 308] {
            let finished = post(&transport, &receiver.url(&format!("/{status}"))).await;
            assert_eq!(answer(&finished).status, status, "{location}");
            let is_success = finished.ending.verdict() == Verdict::Success;
            assert_eq!(is_success, status < 300, "{location}");
            answers += 1;
        }
        assert_eq!(receiver.connections(), 1, "{location}");
    }
    assert_eq!(sink.connections(), 0);
    println!("redirects: {answers} answers with a target, 0 followed");
}

#[tokio::test]
async fn a_body_is_kept_up_to_the_limit_and_never_changes_the_verdict() {
    let with_length = |bytes: usize| {
        let mut answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {bytes}\r\n\r\n").into_bytes();
        answer.resize(answer.len() + bytes, b'b');
        answer
    };
    let text = |text: &str| text.as_bytes().to_vec();
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    // The response, the kept part, how the body ends, whether the connection is kept.
    let cases = [
        (with_length(0), 0, BodyEnd::Whole, true),
        (with_length(1), 1, BodyEnd::Whole, true),
        (with_length(BODY_BYTES_MAX), BODY_BYTES_MAX, BodyEnd::Whole, true),
        (with_length(BODY_BYTES_MAX + 1), BODY_BYTES_MAX, BodyEnd::Cut, false),
        (with_length(4 * BODY_BYTES_MAX), BODY_BYTES_MAX, BodyEnd::Cut, false),
        (text("HTTP/1.1 204 No Content\r\n\r\n"), 0, BodyEnd::Whole, true),
        (text("HTTP/1.1 304 Not Modified\r\n\r\n"), 0, BodyEnd::Whole, true),
        (text(&format!("{chunked}3\r\nabc\r\n0\r\n\r\n")), 3, BodyEnd::Whole, true),
        (text(&format!("{chunked}3\r\nabc\r\n0\r\nx-trailer: 1\r\n\r\n")), 3, BodyEnd::Whole, true),
        (text(&format!("{chunked}3\r\nabc\r\nzzz\r\n")), 3, BodyEnd::Broken, false),
        (text(&format!("{chunked}fffffffffffffffff\r\n")), 0, BodyEnd::Broken, false),
        (text("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc"), 3, BodyEnd::Late, false),
        (text(&format!("{chunked}5\r\nabc")), 3, BodyEnd::Late, false),
        (text("HTTP/1.1 200 OK\r\n\r\nabc"), 3, BodyEnd::Late, false),
        (text("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nabc"), 1, BodyEnd::Whole, false),
        (
            text("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 1\r\n\r\na"),
            1,
            BodyEnd::Whole,
            false,
        ),
        (text("HTTP/1.0 200 OK\r\ncontent-length: 1\r\n\r\na"), 1, BodyEnd::Whole, false),
    ];
    for (bytes, kept, end, is_kept) in cases {
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(80)]).into_owned();
        let receiver = Receiver::answering(bytes).await;
        let transport = transport();
        let deadline = if end == BodyEnd::Late { SHORT } else { PATIENT };
        let request = Request { deadline, ..request(&receiver.url("/")) };
        let finished = transport.send(request).await;
        let answer = answer(&finished);
        assert_eq!((answer.body.len(), answer.body_end), (kept, end), "{shown:?}");
        let is_success = finished.ending.verdict() == Verdict::Success;
        assert_eq!(is_success, answer.status != 304, "{shown:?}");
        let stats = transport.pool_stats();
        assert_eq!(
            (stats.open, stats.idle),
            (usize::from(is_kept), usize::from(is_kept)),
            "{shown:?}"
        );
    }
}

#[tokio::test]
async fn a_body_may_end_with_its_connection() {
    let transport = transport();
    for (bytes, body, end) in [
        ("HTTP/1.0 200 OK\r\n\r\nold", "old", BodyEnd::Whole),
        ("HTTP/1.1 200 OK\r\n\r\nuntil the end", "until the end", BodyEnd::Whole),
        ("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nshort", "short", BodyEnd::Broken),
        ("HTTP/1.1 500 No\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab", "ab", BodyEnd::Broken),
    ] {
        let receiver = Receiver::answering_once(bytes).await;
        let finished = post(&transport, &receiver.url("/")).await;
        assert_eq!(answer(&finished).body, body);
        assert_eq!(answer(&finished).body_end, end, "{bytes:?}");
    }
    assert_eq!(transport.pool_stats().open, 0);
}

#[tokio::test]
async fn compressed_bodies_are_not_inflated() {
    // Ten bytes that claim to inflate to a gigabyte are ten bytes.
    let head = "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 10\r\n\r\n";
    let receiver =
        Receiver::answering([head.as_bytes(), b"\x1f\x8b\x08\0\0\0\0\0\0\x03"].concat()).await;
    let finished = post(&transport(), &receiver.url("/")).await;
    assert_eq!(&answer(&finished).body[..], b"\x1f\x8b\x08\0\0\0\0\0\0\x03");
}

#[tokio::test]
async fn a_body_in_two_parts_arrives_as_one() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let receiver = Receiver::responding(move |request| {
        log.lock().unwrap().push(request.clone());
        b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_vec()
    })
    .await;
    let large = Bytes::from(vec![b'x'; 300_000]);
    let transport = transport();
    for (own, shared) in [(Bytes::from_static(b"{\"a\":"), large.clone()), (large, Bytes::new())] {
        let body = Body::new(own.clone(), shared.clone());
        let url = receiver.url("/");
        let finished = transport.send(Request { body, ..request(&url) }).await;
        assert_eq!(answer(&finished).status, 200);
        let received = seen.lock().unwrap().pop().unwrap();
        assert_eq!(received.body, [own, shared].concat());
        let length = received.body.len().to_string();
        let framed = received.headers.iter().find(|(name, _)| *name == "content-length");
        assert_eq!(framed.map(|(_, value)| value), Some(&length));
        assert!(!received.headers.iter().any(|(name, _)| name == "transfer-encoding"));
    }
    assert_eq!(transport.pool_stats().idle, 1, "the connection was used again");
}

#[tokio::test]
async fn an_answer_may_come_before_the_body_was_read() {
    let receiver = Receiver::start(|_, mut stream| async move {
        let mut first = [0; 16];
        stream.read_exact(&mut first).await.unwrap();
        stream.write_all(b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        // The connection stays open and unread until the sender closes it.
        let mut peeked = [0; 1];
        while stream.peek(&mut peeked).await.is_ok_and(|bytes| bytes > 0) {
            if drain(&mut stream).await == 0 {
                break;
            }
        }
    })
    .await;
    let transport = transport();
    let body = Bytes::from(vec![b'x'; 32 * 1024 * 1024]).into();
    let finished = transport.send(Request { body, ..request(&receiver.url("/")) }).await;
    assert_eq!(answer(&finished).status, 413);
    assert_eq!(transport.pool_stats().idle, 0);
}

#[tokio::test]
async fn retry_after_is_read() {
    let cases = [
        ("retry-after: 120", Some(RetryAfter::Delay(Duration::from_secs(120)))),
        ("Retry-After: soon", None),
        ("x-other: 1", None),
    ];
    let transport = transport();
    for (header, expected) in cases {
        let receiver = Receiver::answering(format!(
            "HTTP/1.1 503 No\r\n{header}\r\ncontent-length: 0\r\n\r\n"
        ))
        .await;
        let finished = post(&transport, &receiver.url("/")).await;
        assert_eq!(answer(&finished).retry_after, expected, "{header}");
    }
}
