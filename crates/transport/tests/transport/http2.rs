//! Many requests on one HTTP/2 connection.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use h2::server::{Builder, Connection as ServerConnection, SendResponse};
use http::Response;
use postrider_domain::attempt::{BodyEnd, Connection, FailureClass, Phase};
use postrider_domain::payload::Body;
use postrider_transport::{HttpTransport, Request, Transport};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use crate::support::*;

type Server = ServerConnection<TlsStream<TcpStream>, Bytes>;
type Respond = SendResponse<Bytes>;

/// A receiver with HTTP/2 over TLS that runs `serve` on each connection.
async fn receiver<F, S>(authority: &Authority, streams_max: u32, serve: S) -> Receiver
where
    S: Fn(usize, Server) -> F + Send + Sync + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let acceptor = authority.http2_server(&["127.0.0.1"]);
    let serve = Arc::new(serve);
    Receiver::start(move |number, stream| {
        let (acceptor, serve) = (acceptor.clone(), Arc::clone(&serve));
        async move {
            let Some(stream) = accept_tls(&acceptor, stream).await else { return };
            let mut builder = Builder::new();
            builder.max_concurrent_streams(streams_max).max_send_buffer_size(1 << 20);
            if let Ok(connection) = builder.handshake(stream).await {
                serve(number, connection).await;
            }
        }
    })
    .await
}

fn transport_believing(authority: &Authority) -> HttpTransport {
    let mut options = dev_options();
    options.tls.extra_roots = vec![authority.root()];
    transport_with(options)
}

fn url(receiver: &Receiver) -> String {
    receiver.url("/in?x=1").replace("http:", "https:")
}

fn respond(mut respond: Respond, status: u16) {
    let response = Response::builder().status(status).body(()).unwrap();
    // The client may have disconnected.
    drop(respond.send_response(response, true));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_at_the_same_time_share_one_connection() {
    let authority = Authority::new();
    let (most, now) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (most_seen, streams) = (Arc::clone(&most), Arc::clone(&now));
    let receiver = receiver(&authority, 8, move |_, mut connection| {
        let (most, now) = (Arc::clone(&most), Arc::clone(&now));
        async move {
            while let Some(Ok((request, reply))) = connection.accept().await {
                assert_eq!(request.uri().path_and_query().unwrap(), "/in?x=1");
                assert_eq!(request.headers()["accept-encoding"], "identity");
                most.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
                let now = Arc::clone(&now);
                tokio::spawn(async move {
                    let mut body = request.into_body();
                    while let Some(data) = body.data().await {
                        let bytes = data.unwrap().len();
                        body.flow_control().release_capacity(bytes).unwrap();
                    }
                    tokio::task::yield_now().await;
                    now.fetch_sub(1, SeqCst);
                    respond(reply, 202);
                });
            }
        }
    })
    .await;
    let transport = Arc::new(transport_believing(&authority));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..200 {
        let (transport, request) = (Arc::clone(&transport), request(&url(&receiver)));
        tasks.spawn(async move { transport.send(request).await });
    }
    let mut fresh = 0;
    while let Some(finished) = tasks.join_next().await {
        let finished = finished.unwrap();
        assert_eq!(answer(&finished).status, 202);
        assert_eq!(answer(&finished).body_end, BodyEnd::Whole);
        fresh += usize::from(finished.timings.tls.is_some());
    }
    assert_eq!((receiver.connections(), fresh), (1, 1));
    assert_eq!(streams.load(SeqCst), 0);
    assert!(most_seen.load(SeqCst) <= 8, "{most_seen:?}");
    assert_eq!(transport.pool_stats().open, 1);
    println!("http/2: 200 requests over 1 connection, at most {most_seen:?} of 8 streams at once");
    drop(transport);
}

#[tokio::test]
async fn a_receiver_that_goes_away_gets_a_fresh_connection() {
    let authority = Authority::new();
    let receiver = receiver(&authority, 100, |number, mut connection| async move {
        let mut requests = 0;
        while let Some(Ok((_, reply))) = connection.accept().await {
            requests += 1;
            if number == 1 && requests == 2 {
                // Closed before the response.
                connection.abrupt_shutdown(h2::Reason::NO_ERROR);
                continue;
            }
            respond(reply, 200);
            if number == 2 {
                connection.graceful_shutdown();
            }
        }
    })
    .await;
    let transport = transport_believing(&authority);
    let url = url(&receiver);
    let first = post(&transport, &url).await;
    assert_eq!(first.timings.connection, Connection::Fresh);
    let second = post(&transport, &url).await;
    assert_eq!((answer(&second).status, second.timings.connection), (200, Connection::Resent));
    assert_eq!(receiver.connections(), 2);
    // The second connection was closed in order: it is not reused, or the request is sent again.
    let third = post(&transport, &url).await;
    assert_eq!(answer(&third).status, 200);
    assert_eq!(receiver.connections(), 3);
}

#[tokio::test]
async fn a_stream_that_is_reset_is_a_failure_and_the_connection_stays() {
    let authority = Authority::new();
    let receiver = receiver(&authority, 100, |_, mut connection| async move {
        let mut requests = 0;
        while let Some(Ok((_, mut reply))) = connection.accept().await {
            requests += 1;
            match requests {
                1 | 3 => respond(reply, 200),
                _ => reply.send_reset(h2::Reason::INTERNAL_ERROR),
            }
        }
    })
    .await;
    let transport = transport_believing(&authority);
    let url = url(&receiver);
    assert_eq!(answer(&post(&transport, &url).await).status, 200);
    let finished = post(&transport, &url).await;
    assert_eq!(class(&finished), FailureClass::Reset);
    assert_eq!(finished.timings.connection, Connection::Reused);
    assert_eq!(answer(&post(&transport, &url).await).status, 200);
    assert_eq!(receiver.connections(), 1);
}

#[tokio::test]
async fn bodies_and_heads_are_limited() {
    let authority = Authority::new();
    let receiver = receiver(&authority, 100, |_, mut connection| async move {
        let mut requests = 0;
        while let Some(Ok((_, mut reply))) = connection.accept().await {
            requests += 1;
            let mut response = Response::new(());
            if requests == 1 {
                let mut body = reply.send_response(response, false).unwrap();
                body.send_data(Bytes::from(vec![b'x'; 4 * BODY_BYTES_MAX]), true).unwrap();
                continue;
            }
            for n in 0..20_000 {
                let name = http::HeaderName::try_from(format!("x-{n}")).unwrap();
                response.headers_mut().insert(name, http::HeaderValue::from_static("1"));
            }
            drop(reply.send_response(response, true));
        }
    })
    .await;
    let transport = transport_believing(&authority);
    let finished = post(&transport, &url(&receiver)).await;
    assert_eq!(answer(&finished).body.len(), BODY_BYTES_MAX);
    assert_eq!(answer(&finished).body_end, BodyEnd::Cut);
    let finished = post(&transport, &url(&receiver)).await;
    assert_eq!(class(&finished), FailureClass::Protocol);
}

#[tokio::test]
async fn a_body_in_two_parts_arrives_as_one() {
    let authority = Authority::new();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let receiver = receiver(&authority, 100, move |_, mut connection| {
        let log = Arc::clone(&log);
        async move {
            while let Some(Ok((request, reply))) = connection.accept().await {
                let (log, (parts, mut body)) = (Arc::clone(&log), request.into_parts());
                tokio::spawn(async move {
                    let mut bytes = Vec::new();
                    while let Some(Ok(piece)) = body.data().await {
                        body.flow_control().release_capacity(piece.len()).unwrap();
                        bytes.extend(piece);
                    }
                    log.lock().unwrap().push((parts.headers["content-length"].clone(), bytes));
                    respond(reply, 200);
                });
            }
        }
    })
    .await;
    let transport = transport_believing(&authority);
    let (own, shared) = (Bytes::from_static(b"{\"a\":"), Bytes::from(vec![b'x'; 300_000]));
    let body = Body::new(own.clone(), shared.clone());
    let finished = transport.send(Request { body, ..request(&url(&receiver)) }).await;
    assert_eq!(answer(&finished).status, 200);
    let (length, bytes) = seen.lock().unwrap().pop().unwrap();
    assert_eq!((length.to_str().unwrap(), bytes), ("300005", [own, shared].concat()));
}

#[tokio::test]
async fn early_hints_are_skipped_but_not_for_ever() {
    let authority = Authority::new();
    let receiver = receiver(&authority, 100, |number, mut connection| async move {
        let mut requests = 0;
        while let Some(Ok((_, mut reply))) = connection.accept().await {
            requests += 1;
            if number == 1 && requests == 1 {
                let early = Response::builder().status(103).body(()).unwrap();
                reply.send_informational(early).unwrap();
                respond(reply, 200);
                continue;
            }
            // Hints of some size, as long as the connection lasts.
            tokio::spawn(async move {
                let link = http::HeaderValue::try_from("x".repeat(4000)).unwrap();
                loop {
                    let early = Response::builder().status(103).header("link", &link).body(());
                    if reply.send_informational(early.unwrap()).is_err() {
                        break;
                    }
                    tokio::task::yield_now().await;
                }
            });
        }
    })
    .await;
    let transport = transport_believing(&authority);
    assert_eq!(answer(&post(&transport, &url(&receiver)).await).status, 200);
    let finished = post(&transport, &url(&receiver)).await;
    assert_eq!(class(&finished), FailureClass::Protocol);
    assert_eq!(detail(&finished), "no answer in more than 4194304 bytes");
    until(|| transport.pool_stats().open == 0).await;
}

#[tokio::test]
async fn a_receiver_that_refuses_us_after_the_handshake_is_a_tls_failure() {
    let authority = Authority::new();
    let acceptor = authority.strict_http2_server(&["127.0.0.1"]);
    let receiver = Receiver::start(move |_, stream| {
        let acceptor = acceptor.clone();
        async move { drop(accept_tls(&acceptor, stream).await) }
    })
    .await;
    let finished = post(&transport_believing(&authority), &url(&receiver)).await;
    assert_eq!(class(&finished), FailureClass::Tls);
    assert_eq!(detail(&finished), "the receiver refused: alert CertificateRequired");
}

#[tokio::test]
async fn a_connection_on_which_a_request_timed_out_takes_no_more() {
    let authority = Authority::new();
    let receiver = receiver(&authority, 100, |number, mut connection| async move {
        let mut held = Vec::new();
        while let Some(Ok((_, reply))) = connection.accept().await {
            if number == 1 {
                held.push(reply);
            } else {
                respond(reply, 200);
            }
        }
    })
    .await;
    let transport = transport_believing(&authority);
    let finished = post_in_haste(&transport, &url(&receiver)).await;
    assert_eq!(class(&finished), FailureClass::Timeout(Phase::Response));
    assert_eq!(answer(&post(&transport, &url(&receiver)).await).status, 200);
    assert_eq!(receiver.connections(), 2);
    until(|| transport.pool_stats().open == 1).await;
}

#[tokio::test]
async fn a_body_that_never_ends_is_late_and_its_stream_is_given_up() {
    let authority = Authority::new();
    let receiver = receiver(&authority, 100, |_, mut connection| async move {
        let mut bodies = Vec::new();
        while let Some(Ok((_, mut reply))) = connection.accept().await {
            let mut body = reply.send_response(Response::new(()), false).unwrap();
            body.send_data(Bytes::from_static(b"abc"), false).unwrap();
            bodies.push(body);
        }
    })
    .await;
    let transport = transport_believing(&authority);
    let request = Request { deadline: SHORT, ..request(&url(&receiver)) };
    let finished = transport.send(request).await;
    assert_eq!(answer(&finished).status, 200);
    assert_eq!(
        (&answer(&finished).body[..], answer(&finished).body_end),
        (&b"abc"[..], BodyEnd::Late)
    );
    assert_eq!(transport.pool_stats().in_flight, 0);
}

#[tokio::test]
async fn http2_is_not_offered_where_it_is_switched_off() {
    let authority = Authority::new();
    let acceptor = authority.http2_server(&["127.0.0.1"]);
    let receiver = Receiver::start(move |_, stream| {
        let acceptor = acceptor.clone();
        async move {
            let mut stream = accept_tls(&acceptor, stream).await.unwrap();
            assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
            read_request(&mut stream).await.unwrap();
            let ok = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
            tokio::io::AsyncWriteExt::write_all(&mut stream, ok).await.unwrap();
            drain(&mut stream).await;
        }
    })
    .await;
    let mut options = dev_options();
    options.http2 = false;
    options.tls.extra_roots = vec![authority.root()];
    let finished = post(&transport_with(options), &url(&receiver)).await;
    assert_eq!(answer(&finished).status, 200);
}
