//! Measures how many POSTs per second the transport makes, compared with a bare pooled hyper
//! client.
//!
//! Both post the same 500 bytes with the same headers from 64 tasks to the same receiver, in turns.
//! The receiver runs on a thread of this process. Run it with
//! `cargo run --release -p postrider-transport --example post_speed`.
#![expect(clippy::print_stdout, reason = "it prints figures")]
#![expect(clippy::disallowed_methods, reason = "it measures time")]
#![expect(clippy::unwrap_used, reason = "whatever fails ends the measurement")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use postrider_domain::egress::{DestinationUrl, EgressPolicy};
use postrider_domain::ids::{DestinationId, TenantId};
use postrider_transport::{
    HttpTransport, Request, SystemClock, Target, Transport, TransportOptions,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const TASKS: usize = 64;
const ROUNDS: u32 = 5;
const ROUND: Duration = Duration::from_secs(2);
const BODY: &[u8] = &[b'x'; 500];
const HEADERS: [(HeaderName, HeaderValue); 4] = [
    (http::header::CONTENT_TYPE, HeaderValue::from_static("application/json")),
    (
        HeaderName::from_static("webhook-id"),
        HeaderValue::from_static("dlv_019a86d99e3877078707070707070707"),
    ),
    (HeaderName::from_static("webhook-timestamp"), HeaderValue::from_static("1763199000")),
    (
        HeaderName::from_static("webhook-signature"),
        HeaderValue::from_static("v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4="),
    ),
];

/// The client that is measured.
#[derive(Clone)]
enum Poster {
    Bare(Box<Client<HttpConnector, Full<Bytes>>>, http::Uri),
    Ours(Arc<HttpTransport>, Arc<Target>),
}

impl Poster {
    async fn post(&self) {
        match self {
            Poster::Bare(client, uri) => {
                let mut request = http::Request::post(uri.clone())
                    .body(Full::new(Bytes::from_static(BODY)))
                    .unwrap();
                request.headers_mut().extend(HEADERS);
                let response = client.request(request).await.unwrap();
                assert_eq!(response.status(), 200);
                response.into_body().collect().await.unwrap();
            }
            Poster::Ours(transport, target) => {
                let request = Request {
                    target: Arc::clone(target),
                    headers: HEADERS.to_vec(),
                    body: Bytes::from_static(BODY).into(),
                    deadline: Duration::from_secs(5),
                    response_body_bytes_max: 16 * 1024,
                };
                assert_eq!(transport.send(request).await.ending.status(), Some(200));
            }
        }
    }
}

fn main() {
    let address = start_receiver();
    let uri: http::Uri = format!("http://{address}/in").parse().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let client = Client::builder(TokioExecutor::new()).build_http();
    let bare = Poster::Bare(Box::new(client), uri.clone());
    let ours = Poster::Ours(Arc::new(transport()), Arc::new(target(&uri.to_string())));
    let (mut bare_sum, mut ours_sum) = (0.0, 0.0);
    for round in 1..=ROUNDS {
        let bare_rate = runtime.block_on(measure(&bare));
        let ours_rate = runtime.block_on(measure(&ours));
        println!("round {round}: bare {bare_rate:.0}/s, transport {ours_rate:.0}/s");
        bare_sum += bare_rate;
        ours_sum += ours_rate;
    }
    println!(
        "post speed: bare pooled hyper client {:.0}/s, transport {:.0}/s, {:.0} % of it",
        bare_sum / f64::from(ROUNDS),
        ours_sum / f64::from(ROUNDS),
        100.0 * ours_sum / bare_sum,
    );
}

/// POSTs per second.
async fn measure(poster: &Poster) -> f64 {
    let (posts, stop) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
    let mut tasks = tokio::task::JoinSet::new();
    let begun = Instant::now();
    for _ in 0..TASKS {
        let (poster, posts, stop) = (poster.clone(), Arc::clone(&posts), Arc::clone(&stop));
        tasks.spawn(async move {
            while !stop.load(Relaxed) {
                poster.post().await;
                posts.fetch_add(1, Relaxed);
            }
        });
    }
    tokio::time::sleep(ROUND).await;
    stop.store(true, Relaxed);
    tasks.join_all().await;
    f64::from(posts.load(Relaxed)) / begun.elapsed().as_secs_f64()
}

fn transport() -> HttpTransport {
    let egress = EgressPolicy { dev: true, ..EgressPolicy::default() };
    let options = TransportOptions { egress, ..TransportOptions::default() };
    HttpTransport::new(options, Arc::new(SystemClock)).unwrap()
}

fn target(url: &str) -> Target {
    let tenant = TenantId::default_tenant();
    let url = DestinationUrl::from_trusted(url).unwrap();
    let destination = DestinationId::of(&tenant, url.as_str());
    Target::new(tenant, destination, url, None).unwrap()
}

/// A minimal receiver on a thread of its own.
fn start_receiver() -> SocketAddr {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            sender.send(listener.local_addr().unwrap()).unwrap();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(stream));
            }
        });
    });
    receiver.recv().unwrap()
}

/// Answers as soon as a head and its body have arrived.
async fn serve(mut stream: TcpStream) {
    drop(stream.set_nodelay(true));
    let mut buffer = Vec::with_capacity(4096);
    while let Ok(1..) = stream.read_buf(&mut buffer).await {
        let head = buffer.windows(4).position(|window| window == b"\r\n\r\n");
        if head.is_some_and(|end| buffer.len() >= end + 4 + BODY.len()) {
            buffer.clear();
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
            if stream.write_all(answer).await.is_err() {
                break;
            }
        }
    }
}
