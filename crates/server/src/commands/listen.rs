//! `postrider listen`: a local receiver that verifies and prints what arrives.
//!
//! It can misbehave on purpose: answer with another status, fail a share of the requests, or be
//! slow.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use postrider_domain::signature::{SignedHeaders, TOLERANCE, Unverified, VerifyKey, verify};
use postrider_transport::{Clock, SystemClock};
use serde_json::{Value as Json, json};
use tokio::net::TcpListener;
use tokio::sync::Notify;

use crate::config::parse_duration;
use crate::exit::Failure;
use crate::output::{Colour, Output, escaped, line, pretty};

/// How much of a body that is not JSON is printed.
const SHOWN_CHARS_MAX: usize = 4096;
const BODY_BYTES_MAX: usize = 16 * 1024 * 1024;

#[derive(Debug, Args)]
pub(crate) struct Listen {
    /// Port to listen on; 0 takes a free one.
    #[arg(long, default_value_t = 9000)]
    port: u16,
    /// Address to listen on.
    #[arg(long, default_value = "127.0.0.1")]
    host: IpAddr,
    /// Secret to verify signatures with (whsec_, whsk_ or whpk_); may be repeated.
    #[arg(long)]
    secret: Vec<String>,
    /// Status to answer.
    #[arg(long, default_value_t = 204)]
    status: u16,
    /// Share of the requests that are answered with 500, evenly spread.
    #[arg(long, default_value_t = 0.0, value_name = "SHARE")]
    fail_rate: f64,
    /// Time to wait before answering, such as 300ms.
    #[arg(long, default_value = "0ms", value_parser = duration, value_name = "DURATION")]
    delay: Duration,
    /// Stop after this many requests.
    #[arg(long, value_name = "N")]
    count: Option<u64>,
}

fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).ok_or_else(|| "a duration such as 300ms or 10s".to_owned())
}

struct Receiver {
    keys: Vec<VerifyKey>,
    status: StatusCode,
    fail_millionths: u64,
    delay: Duration,
    count: Option<u64>,
    seen: AtomicU64,
    enough: Notify,
    output: Output,
}

pub(crate) async fn run(listen: Listen, output: Output) -> Result<(), Failure> {
    let receiver = Arc::new(Receiver::new(&listen, output)?);
    let listener =
        TcpListener::bind(SocketAddr::new(listen.host, listen.port)).await.map_err(|error| {
            let address = SocketAddr::new(listen.host, listen.port);
            Failure::failed(format!(
                "cannot listen on {address}: {error}\nchoose another port by --port; 0 takes a free one"
            ))
        })?;
    let url = format!("http://{}/", listener.local_addr()?);
    let verifies = !receiver.keys.is_empty();
    output.value(&json!({ "listening": url, "verifies": verifies }), |_| {
        let hint = if verifies { "" } else { "\nSignatures are not verified: give --secret" };
        format!("listening on {url}{hint}")
    })?;
    let ended = tokio::signal::ctrl_c();
    tokio::pin!(ended);
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (stream, _) = accepted?;
                drop(tokio::spawn(connection(stream, Arc::clone(&receiver))));
            }
            () = receiver.enough.notified() => return Ok(()),
            _ = &mut ended => return Ok(()),
        }
    }
}

async fn connection(stream: tokio::net::TcpStream, receiver: Arc<Receiver>) {
    let service = service_fn(move |request| {
        let receiver = Arc::clone(&receiver);
        async move { Ok::<_, std::convert::Infallible>(receiver.receive(request).await) }
    });
    let mut server = auto::Builder::new(TokioExecutor::new());
    server.http1().timer(TokioTimer::new());
    // Errors of the connection are not reported.
    drop(server.serve_connection(TokioIo::new(stream), service).await);
}

impl Receiver {
    fn new(listen: &Listen, output: Output) -> Result<Receiver, Failure> {
        let keys = listen.secret.iter().map(|secret| {
            secret.parse().map_err(|error| Failure::usage(format!("--secret: {error}")))
        });
        let status = StatusCode::from_u16(listen.status)
            .ok()
            .filter(|status| status.as_u16() >= 200)
            .ok_or_else(|| Failure::usage("--status must be 200 to 999"))?;
        if !(0.0..=1.0).contains(&listen.fail_rate) {
            return Err(Failure::usage("--fail-rate must be between 0 and 1, such as 0.3"));
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 0 and 10^6, as was just checked"
        )]
        let fail_millionths = (listen.fail_rate * 1e6).round() as u64;
        Ok(Receiver {
            keys: keys.collect::<Result<_, _>>()?,
            status,
            fail_millionths,
            delay: listen.delay,
            count: listen.count,
            seen: AtomicU64::new(0),
            enough: Notify::new(),
            output,
        })
    }

    async fn receive(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (head, body) = request.into_parts();
        let Ok(body) = Limited::new(body, BODY_BYTES_MAX).collect().await else {
            return answer(StatusCode::PAYLOAD_TOO_LARGE);
        };
        let body = body.to_bytes();
        let number = self.seen.fetch_add(1, Ordering::Relaxed) + 1;
        let verified = self.verify(&head.headers, &body);
        let status = if matches!(verified, Some(Err(_))) {
            StatusCode::UNAUTHORIZED
        } else if fails(number, self.fail_millionths) {
            StatusCode::INTERNAL_SERVER_ERROR
        } else {
            self.status
        };
        self.wait().await;
        let received = Received { number, head: &head, body: &body, verified, status };
        // The output was closed.
        if received.print(self.output).is_err() || self.count == Some(number) {
            self.enough.notify_one();
        }
        answer(status)
    }

    #[expect(clippy::disallowed_methods, reason = "being slow on purpose is what was asked for")]
    async fn wait(&self) {
        if !self.delay.is_zero() {
            tokio::time::sleep(self.delay).await;
        }
    }

    /// Verifies the signature; `None` if there is no secret to verify with.
    fn verify(&self, headers: &HeaderMap, body: &[u8]) -> Option<Result<(), Unverified>> {
        let signed = SignedHeaders {
            id: text(headers, "webhook-id"),
            timestamp: text(headers, "webhook-timestamp"),
            signature: text(headers, "webhook-signature"),
        };
        let verdict = || verify(&self.keys, signed, body, SystemClock.now(), TOLERANCE);
        (!self.keys.is_empty()).then(verdict)
    }
}

/// Whether request `number` is one of those that fail; they are spread evenly.
fn fails(number: u64, millionths: u64) -> bool {
    let failed_by = |number: u64| number.saturating_mul(millionths) / 1_000_000;
    failed_by(number) > failed_by(number - 1)
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

fn answer(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::new()));
    *response.status_mut() = status;
    response
}

/// One request, as it is printed.
struct Received<'a> {
    number: u64,
    head: &'a hyper::http::request::Parts,
    body: &'a [u8],
    verified: Option<Result<(), Unverified>>,
    status: StatusCode,
}

impl Received<'_> {
    fn print(&self, output: Output) -> std::io::Result<()> {
        let body: Json = serde_json::from_slice(self.body).unwrap_or(Json::Null);
        if output.json {
            return line(&self.json(&body).to_string());
        }
        let id = text(&self.head.headers, "webhook-id").unwrap_or("no webhook-id");
        let signature = match self.verified {
            None => output.paint(Colour::Dim, "signature not verified"),
            Some(Ok(())) => output.paint(Colour::Green, "signature good"),
            Some(Err(error)) => output.paint(Colour::Red, &format!("SIGNATURE BAD: {error}")),
        };
        let colour = if self.status.is_success() { Colour::Green } else { Colour::Red };
        let head = format!(
            "#{} {} {} {}  {signature}  answered {}",
            self.number,
            self.head.method,
            escaped(self.head.uri.path()),
            output.paint(Colour::Bold, &escaped(id)),
            output.paint(colour, self.status.as_str()),
        );
        let body = match body {
            Json::Null => {
                let text: String =
                    String::from_utf8_lossy(self.body).chars().take(SHOWN_CHARS_MAX).collect();
                escaped(&text)
            }
            body @ (Json::Bool(_)
            | Json::Number(_)
            | Json::String(_)
            | Json::Array(_)
            | Json::Object(_)) => pretty(&body),
        };
        line(&format!("{head}\n{body}"))
    }

    fn json(&self, body: &Json) -> Json {
        let headers: serde_json::Map<_, _> = (self.head.headers.iter())
            .map(|(name, value)| {
                // Do not print the token.
                let value = if name == hyper::header::AUTHORIZATION {
                    "***".into()
                } else {
                    String::from_utf8_lossy(value.as_bytes()).into_owned()
                };
                (name.to_string(), Json::String(value))
            })
            .collect();
        json!({
            "number": self.number,
            "method": self.head.method.as_str(),
            "path": self.head.uri.path(),
            "webhook_id": text(&self.head.headers, "webhook-id"),
            "verified": self.verified.map(|verdict| verdict.is_ok()),
            "unverified": self.verified.and_then(Result::err).map(|error| error.to_string()),
            "answered": self.status.as_u16(),
            "headers": headers,
            "body": if body.is_null() { json!(String::from_utf8_lossy(self.body)) } else { body.clone() },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_spread_evenly_and_add_up_to_their_share() {
        for (millionths, failed) in [(0, 0), (300_000, 300), (500_000, 500), (1_000_000, 1000)] {
            let total = (1..=1000).filter(|number| fails(*number, millionths)).count();
            assert_eq!(total, failed);
        }
        let first: Vec<_> = (1..=6).map(|number| fails(number, 500_000)).collect();
        assert_eq!(first, [false, true, false, true, false, true]);
    }
}
