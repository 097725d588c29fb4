//! Which requests share a connection, and what happens when it is closed.

use std::sync::Arc;
use std::time::Duration;

use postrider_domain::attempt::{Connection, FailureClass, Phase};
use postrider_transport::{HttpTransport, PoolOptions, Request, Transport};
use tokio::io::AsyncWriteExt;
use tokio::sync::{mpsc, watch};

use crate::support::*;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

#[tokio::test]
async fn a_connection_is_used_again() {
    let receiver = Receiver::answering(OK).await;
    let transport = transport();
    for n in 0..100 {
        let finished = post(&transport, &receiver.url("/")).await;
        let expected = if n == 0 { Connection::Fresh } else { Connection::Reused };
        assert_eq!(finished.timings.connection, expected);
        assert_eq!(finished.timings.connect.is_some(), n == 0);
    }
    assert_eq!(receiver.connections(), 1);
    let stats = transport.pool_stats();
    assert_eq!((stats.open, stats.idle, stats.in_flight), (1, 1, 0));
}

#[tokio::test]
async fn tenants_never_share_a_connection() {
    let receiver = Receiver::answering(OK).await;
    let transport = transport();
    for tenant in ["a", "b", "a", "b"] {
        transport.send(request_of(tenant, &receiver.url("/"), None)).await;
    }
    assert_eq!(receiver.connections(), 2);
}

/// Answers the first request of the first connection, and sends `last_words` on the second.
async fn dies_under_the_second_request(last_words: &'static [u8], forever: bool) -> Receiver {
    Receiver::start(move |number, mut stream| async move {
        if number == 1 || forever {
            if number == 1 {
                read_request(&mut stream).await.unwrap();
                stream.write_all(OK).await.unwrap();
            }
            read_request(&mut stream).await.unwrap();
            stream.write_all(last_words).await.unwrap();
            drop(stream.shutdown().await);
            drain(&mut stream).await;
            return;
        }
        while read_request(&mut stream).await.is_some() {
            stream.write_all(OK).await.unwrap();
        }
    })
    .await
}

#[tokio::test]
async fn a_request_on_a_reused_connection_that_died_is_sent_once_more() {
    let transport = transport();
    let receiver = dies_under_the_second_request(b"", false).await;
    assert_eq!(post(&transport, &receiver.url("/")).await.timings.connection, Connection::Fresh);
    let finished = post(&transport, &receiver.url("/")).await;
    assert_eq!(answer(&finished).status, 200);
    assert_eq!(finished.timings.connection, Connection::Resent);
    assert_eq!(receiver.connections(), 2);
    assert_eq!(post(&transport, &receiver.url("/")).await.timings.connection, Connection::Reused);
}

#[tokio::test]
async fn a_request_is_sent_once_more_and_not_twice_more() {
    let transport = transport();
    let receiver = dies_under_the_second_request(b"", true).await;
    post(&transport, &receiver.url("/")).await;
    let finished = post(&transport, &receiver.url("/")).await;
    assert_eq!(class(&finished), FailureClass::Reset);
    assert_eq!(finished.timings.connection, Connection::Resent);
    assert_eq!(receiver.connections(), 2);
}

#[tokio::test]
async fn a_request_is_not_sent_again_after_the_first_byte_of_an_answer() {
    let transport = transport();
    let receiver = dies_under_the_second_request(b"H", false).await;
    post(&transport, &receiver.url("/")).await;
    let finished = post(&transport, &receiver.url("/")).await;
    assert_eq!(class(&finished), FailureClass::Reset);
    assert_eq!(finished.timings.connection, Connection::Reused);
    assert_eq!(receiver.connections(), 1);
}

#[tokio::test]
async fn a_reused_connection_that_hangs_is_not_sent_again() {
    let transport = transport();
    let receiver = Receiver::start(|_, mut stream| async move {
        read_request(&mut stream).await.unwrap();
        stream.write_all(OK).await.unwrap();
        drain(&mut stream).await;
    })
    .await;
    post(&transport, &receiver.url("/")).await;
    let finished = post_in_haste(&transport, &receiver.url("/")).await;
    assert!(matches!(class(&finished), FailureClass::Timeout(_)));
    assert_eq!(receiver.connections(), 1);
    assert_eq!(transport.pool_stats().open, 0);
}

#[tokio::test]
async fn a_connection_with_an_answer_that_nobody_asked_for_is_not_used() {
    let (wrote, mut has_written) = mpsc::channel(1);
    let receiver = Receiver::start(move |number, mut stream| {
        let wrote = wrote.clone();
        async move {
            read_request(&mut stream).await.unwrap();
            stream.write_all(OK).await.unwrap();
            if number == 1 {
                // Data that the next request would take for its response.
                stream
                    .write_all(b"HTTP/1.1 418 Smuggled\r\ncontent-length: 0\r\n\r\n")
                    .await
                    .unwrap();
            }
            wrote.send(()).await.unwrap();
            drain(&mut stream).await;
        }
    })
    .await;
    let transport = transport();
    post(&transport, &receiver.url("/")).await;
    has_written.recv().await.unwrap();
    let finished = post(&transport, &receiver.url("/")).await;
    assert_eq!(answer(&finished).status, 200);
    assert_eq!(receiver.connections(), 2);
}

#[tokio::test]
async fn idle_connections_are_closed() {
    let (ended, mut has_ended) = mpsc::channel(1);
    let receiver = Receiver::start(move |_, mut stream| {
        let ended = ended.clone();
        async move {
            read_request(&mut stream).await.unwrap();
            stream.write_all(OK).await.unwrap();
            ended.send(drain(&mut stream).await).await.unwrap();
        }
    })
    .await;
    let mut options = dev_options();
    options.pool.idle_timeout = Duration::from_millis(50);
    let transport = transport_with(options);
    post(&transport, &receiver.url("/")).await;
    assert_eq!(has_ended.recv().await, Some(0));
    until(|| transport.pool_stats().open == 0).await;
    assert_eq!(transport.pool_stats().idle, 0);
    assert_eq!(PoolOptions::default().idle_timeout, Duration::from_secs(4));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connections_are_limited_and_none_leaks() {
    let receiver = Receiver::answering(OK).await;
    let mut options = dev_options();
    options.pool.idle_per_host_max = 3;
    options.pool.idle_max = 5;
    let transport = Arc::new(transport_with(options));
    let mut sent = 0;
    for tenant in ["a", "b", "c"] {
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..50 {
            let request = request_of(tenant, &receiver.url("/"), None);
            let transport = Arc::clone(&transport);
            tasks.spawn(async move { transport.send(request).await });
        }
        while let Some(finished) = tasks.join_next().await {
            assert_eq!(answer(&finished.unwrap()).status, 200);
            sent += 1;
        }
        assert!(transport.pool_stats().idle <= 5);
    }
    let stats = transport.pool_stats();
    assert_eq!((stats.in_flight, stats.open), (0, stats.idle));
    println!("leaks: {sent} requests, {} connections left open, all idle", stats.open);
}

/// At most two connections are opened at the same time, over TLS without HTTP/2.
fn two_at_a_time(authority: &Authority) -> Arc<HttpTransport> {
    let mut options = dev_options();
    options.tls.extra_roots = vec![authority.root()];
    options.http2 = false;
    options.pool.opening_per_host_max = 2;
    Arc::new(transport_with(options))
}

#[tokio::test]
async fn connections_to_a_host_are_opened_a_few_at_a_time() {
    // Handshakes never end.
    let receiver = Receiver::start(|_, mut stream| async move {
        drain(&mut stream).await;
    })
    .await;
    let transport = two_at_a_time(&Authority::new());
    let url = receiver.url("/").replace("http:", "https:");
    let send = |deadline| {
        let (transport, request) = (Arc::clone(&transport), Request { deadline, ..request(&url) });
        tokio::spawn(async move { transport.send(request).await })
    };
    let opening = [send(PATIENT), send(PATIENT)];
    until(|| receiver.connections() == 2).await;
    for finished in [send(SHORT), send(SHORT), send(SHORT)] {
        let finished = finished.await.unwrap();
        assert_eq!(class(&finished), FailureClass::Timeout(Phase::Connect));
    }
    assert_eq!(receiver.connections(), 2);
    // Another tenant has its own limit.
    let other = request_of("other", &url, None);
    let other = transport.send(Request { deadline: SHORT, ..other }).await;
    assert_eq!(class(&other), FailureClass::Timeout(Phase::Tls));
    assert_eq!(receiver.connections(), 3);
    for request in opening {
        request.abort();
        assert!(request.await.unwrap_err().is_cancelled());
    }
    assert_eq!(class(&send(SHORT).await.unwrap()), FailureClass::Timeout(Phase::Tls));
    assert_eq!(receiver.connections(), 4, "whoever goes away makes room");
}

#[tokio::test]
async fn a_connection_is_being_opened_until_the_receiver_has_answered_over_it() {
    let (go, gone) = watch::channel(false);
    let receiver = Receiver::start(move |_, mut stream| {
        let mut gone = gone.clone();
        async move {
            while read_request(&mut stream).await.is_some() {
                gone.wait_for(|go| *go).await.unwrap();
                stream.write_all(OK).await.unwrap();
            }
        }
    })
    .await;
    let mut options = dev_options();
    options.pool.opening_per_host_max = 2;
    let transport = Arc::new(transport_with(options));
    let send = |deadline| {
        let (transport, url) = (Arc::clone(&transport), receiver.url("/"));
        let request = Request { deadline, ..request(&url) };
        tokio::spawn(async move { transport.send(request).await })
    };
    let mut patient = vec![send(PATIENT), send(PATIENT)];
    until(|| receiver.connections() == 2).await;
    // Both connections exist, but got no response: a request with a short deadline waits in vain.
    let hasty = send(Duration::from_millis(20)).await.unwrap();
    assert_eq!(class(&hasty), FailureClass::Timeout(Phase::Connect));
    assert_eq!(receiver.connections(), 2);
    // A hanging receiver delays others, but not for ever.
    patient.extend([send(PATIENT), send(PATIENT)]);
    until(|| receiver.connections() == 4).await;
    go.send_replace(true);
    for finished in patient {
        assert_eq!(answer(&finished.await.unwrap()).status, 200);
    }
}

#[tokio::test]
async fn request_that_waits_to_open_a_connection_takes_one_that_becomes_idle() {
    let authority = Authority::new();
    let acceptor = authority.server(&["127.0.0.1"]);
    let (go, gone) = watch::channel(false);
    let receiver = Receiver::start(move |number, mut stream| {
        let (acceptor, mut gone) = (acceptor.clone(), gone.clone());
        async move {
            if number > 1 {
                drain(&mut stream).await;
                return;
            }
            let mut stream = accept_tls(&acceptor, stream).await.unwrap();
            while read_request(&mut stream).await.is_some() {
                gone.wait_for(|go| *go).await.unwrap();
                stream.write_all(OK).await.unwrap();
            }
        }
    })
    .await;
    let transport = two_at_a_time(&authority);
    let url = receiver.url("/").replace("http:", "https:");
    let send = || {
        let (transport, request) = (Arc::clone(&transport), request(&url));
        tokio::spawn(async move { transport.send(request).await })
    };
    let first = send();
    until(|| receiver.connections() == 1 && transport.pool_stats().open == 1).await;
    let opening = [send(), send()];
    until(|| receiver.connections() == 3).await;
    let waiting = [send(), send(), send()];
    until(|| transport.pool_stats().in_flight == 6).await;
    go.send_replace(true);
    assert_eq!(answer(&first.await.unwrap()).status, 200);
    for finished in waiting {
        let finished = finished.await.unwrap();
        assert_eq!(answer(&finished).status, 200);
        assert_eq!(finished.timings.connection, Connection::Reused);
    }
    assert_eq!(receiver.connections(), 3);
    opening.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn a_thousand_broken_requests_leave_nothing_open() {
    let receiver = Receiver::start(|number, mut stream| async move {
        match number % 4 {
            0 => drop(stream),
            1 => {
                read_request(&mut stream).await;
                drop(stream.write_all(b"garbage").await);
            }
            2 => {
                read_request(&mut stream).await;
                drop(stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\nabc").await);
            }
            _ => drop(drain(&mut stream).await),
        }
    })
    .await;
    let transport = Arc::new(transport());
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..1000 {
        let request = Request { deadline: SHORT, ..request(&receiver.url("/")) };
        let transport = Arc::clone(&transport);
        tasks.spawn(async move { transport.send(request).await });
    }
    assert_eq!(tasks.join_all().await.len(), 1000);
    let stats = transport.pool_stats();
    assert_eq!((stats.open, stats.idle, stats.in_flight), (0, 0, 0));
    println!("leaks: 1000 broken requests, {} connections left open", stats.open);
}
