//! The ceiling: how many POSTs per second a bare pooled client makes to the same receiver, on the
//! same processors, with the bytes of a delivery.
//!
//! It stores nothing, decides nothing and signs nothing: its only signature is computed in advance.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::header::HeaderMap;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use postrider_domain::signature::{self, SigningSecret};
use serde::{Deserialize, Serialize};

use super::{message, process, system};
use postrider_cli::exit::Failure;
use postrider_cli::output::line;

const DELIVERY: &str = "dlv_019a86d99e3877078707070707070707";

/// The task of the bare client.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Post {
    /// The receiver's address.
    pub(crate) receiver: String,
    pub(crate) payload_bytes: u64,
    pub(crate) connections: u64,
    pub(crate) seconds: f64,
}

/// The result of the bare client.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Posted {
    pub(crate) posts: u64,
    pub(crate) seconds: f64,
    /// Processor time of this process, in microseconds.
    pub(crate) cpu_us: u64,
}

/// Reads the task from the standard input, posts, and prints the result.
pub(crate) fn run() -> Result<(), Failure> {
    let post: Post = process::read_task()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut posted = runtime.block_on(measure(&post))?;
    posted.cpu_us = system::cpu_us(std::process::id()).unwrap_or(0);
    line(&serde_json::json!(posted).to_string())?;
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "a measurement reads the machine's clock")]
async fn measure(post: &Post) -> Result<Posted, Failure> {
    let client: Client<HttpConnector, Full<Bytes>> =
        Client::builder(TokioExecutor::new()).build_http();
    let body = body(post.payload_bytes);
    let headers = headers(&body).ok_or_else(|| Failure::failed("no headers"))?;
    let uri: hyper::Uri = format!("http://{}/0", post.receiver)
        .parse()
        .map_err(|_| Failure::usage("the receiver's address is invalid"))?;
    let posts = Arc::new(AtomicU64::new(0));
    let begin = Instant::now();
    let until = begin + Duration::from_secs_f64(post.seconds);
    let tasks: Vec<_> = (0..post.connections.max(1))
        .map(|_| {
            let (client, posts) = (client.clone(), Arc::clone(&posts));
            let (uri, headers, body) = (uri.clone(), headers.clone(), body.clone());
            tokio::spawn(async move {
                while Instant::now() < until {
                    let mut request = Request::post(uri.clone()).body(Full::new(body.clone()))?;
                    *request.headers_mut() = headers.clone();
                    client.request(request).await?.into_body().collect().await?;
                    posts.fetch_add(1, Ordering::Relaxed);
                }
                anyhow::Ok(())
            })
        })
        .collect();
    for task in tasks {
        task.await.map_err(anyhow::Error::from)??;
    }
    let posts = posts.load(Ordering::Relaxed);
    Ok(Posted { posts, seconds: begin.elapsed().as_secs_f64(), cpu_us: 0 })
}

/// The body of a delivery of such an event.
fn body(payload_bytes: u64) -> Bytes {
    let mut body = b"{\"type\":\"bench.k0\",\"timestamp\":\"2025-11-15T09:30:00.120Z\",\
        \"id\":\"evt_019a86d99e3877078707070707070707\","
        .to_vec();
    message::put_data(&mut body, 0, message::now_us(), payload_bytes);
    body.push(b'}');
    Bytes::from(body)
}

/// The headers of a delivery.
fn headers(body: &[u8]) -> Option<HeaderMap> {
    let seconds = i64::try_from(message::now_us() / 1_000_000).ok()?;
    let secret = SigningSecret::generate_symmetric([7; 32]);
    let signed = signature::sign([&secret], DELIVERY, seconds, body);
    let mut headers = HeaderMap::new();
    headers.insert("user-agent", concat!("postrider/", env!("CARGO_PKG_VERSION")).parse().ok()?);
    headers.insert("content-type", "application/json".parse().ok()?);
    headers.insert("accept-encoding", "identity".parse().ok()?);
    headers.insert(signature::ID_HEADER, DELIVERY.parse().ok()?);
    headers.insert(signature::TIMESTAMP_HEADER, seconds.to_string().parse().ok()?);
    headers.insert(signature::SIGNATURE_HEADER, signed.parse().ok()?);
    Some(headers)
}
