//! A call is sent, and sent again where that can help.
//!
//! A change carries one `Idempotency-Key` through all its attempts, so a repeat never does the thing
//! twice, also where the first answer was lost. Redirects are never followed: the key goes to no
//! other server.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER,
    USER_AGENT,
};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use url::Url;

use crate::call::Call;
use crate::connect::Connector;
use crate::error::{Error, Problem};

/// A longer answer does not come from a Postrider server.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;
const TENANT: HeaderName = HeaderName::from_static("postrider-tenant");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const FIRST_WAIT: Duration = Duration::from_millis(200);
/// An idle connection is closed after this time: the server does the same later.
const IDLE_MAX: Duration = Duration::from_secs(15);

/// What a copy of a client may change for its calls.
#[derive(Clone)]
pub(crate) struct CallOptions {
    pub(crate) tenant: Option<HeaderValue>,
    pub(crate) timeout: Duration,
    pub(crate) retries: u32,
    pub(crate) retry_wait_max: Duration,
    pub(crate) idempotency_key: Option<HeaderValue>,
}

/// Sends calls to one server with one key.
pub(crate) struct Transport {
    pub(crate) server: Url,
    /// The server's URL without a slash at its end.
    base: String,
    key: Option<HeaderValue>,
    user_agent: HeaderValue,
    http: legacy::Client<Connector, Full<Bytes>>,
}

/// A failed attempt.
struct Failed {
    error: Error,
    /// Whether a repeat can help.
    again: bool,
    retry_after: Option<Duration>,
}

impl Failed {
    fn for_good(error: Error) -> Failed {
        Failed { error, again: false, retry_after: None }
    }
}

impl Transport {
    pub(crate) fn new(
        server: Url,
        key: Option<HeaderValue>,
        user_agent: HeaderValue,
    ) -> Result<Transport, Error> {
        let http = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_MAX)
            .build(Connector::new(server.scheme())?);
        let base = server.as_str().trim_end_matches('/').to_owned();
        Ok(Transport { server, base, key, user_agent, http })
    }

    /// The body of the answer, after as many attempts as it takes and is allowed.
    pub(crate) async fn send(&self, call: &Call, options: &CallOptions) -> Result<Bytes, Error> {
        let mut key = options.idempotency_key.clone();
        if key.is_none() && call.method != Method::GET && options.retries > 0 {
            key = Some(random_key()?);
        }
        let mut attempt = 1;
        loop {
            let limited = self.attempt(call, options, key.as_ref(), attempt);
            let failed = match tokio::time::timeout(options.timeout, limited).await {
                Ok(Ok(body)) => return Ok(body),
                Ok(Err(failed)) => failed,
                Err(_) => {
                    Failed { error: late(call, options, attempt), again: true, retry_after: None }
                }
            };
            let pause = wait(attempt, failed.retry_after, options.retry_wait_max);
            match pause.filter(|_| failed.again && attempt <= options.retries) {
                Some(pause) => rest(pause).await,
                None => return Err(failed.error),
            }
            attempt += 1;
        }
    }

    /// One attempt: status and body, whatever the status is.
    pub(crate) async fn fetch(
        &self,
        call: &Call,
        options: &CallOptions,
    ) -> Result<(StatusCode, Bytes), Error> {
        let exchange = async {
            let response =
                self.exchange(call, options, options.idempotency_key.as_ref(), 1).await?;
            let status = response.status();
            Ok((status, collect(call, response, 1).await?))
        };
        match tokio::time::timeout(options.timeout, exchange).await {
            Ok(ended) => ended.map_err(|failed: Failed| failed.error),
            Err(_) => Err(late(call, options, 1)),
        }
    }

    /// One attempt whose answer is read by the caller. The time limit holds for its head.
    pub(crate) async fn open(&self, call: &Call, options: &CallOptions) -> Result<Incoming, Error> {
        let exchange = async {
            let response =
                self.exchange(call, options, options.idempotency_key.as_ref(), 1).await?;
            match response.status().is_success() {
                true => Ok(response.into_body()),
                false => Err(refused(call, response, 1).await),
            }
        };
        match tokio::time::timeout(options.timeout, exchange).await {
            Ok(ended) => ended.map_err(|failed: Failed| failed.error),
            Err(_) => Err(late(call, options, 1)),
        }
    }

    async fn attempt(
        &self,
        call: &Call,
        options: &CallOptions,
        key: Option<&HeaderValue>,
        attempt: u32,
    ) -> Result<Bytes, Failed> {
        let response = self.exchange(call, options, key, attempt).await?;
        match response.status().is_success() {
            true => collect(call, response, attempt).await,
            false => Err(refused(call, response, attempt).await),
        }
    }

    async fn exchange(
        &self,
        call: &Call,
        options: &CallOptions,
        key: Option<&HeaderValue>,
        attempt: u32,
    ) -> Result<Response<Incoming>, Failed> {
        let request = self.request(call, options, key).map_err(Failed::for_good)?;
        self.http.request(request).await.map_err(|error| lost(call, &error, attempt))
    }

    fn request(
        &self,
        call: &Call,
        options: &CallOptions,
        key: Option<&HeaderValue>,
    ) -> Result<Request<Full<Bytes>>, Error> {
        let mut target = format!("{}{}", self.base, call.path);
        if !call.query.is_empty() {
            let query = url::form_urlencoded::Serializer::new(String::new())
                .extend_pairs(&call.query)
                .finish();
            target.push('?');
            target.push_str(&query);
        }
        let body = Full::new(call.body.clone());
        let mut request = Request::builder()
            .method(call.method.clone())
            .uri(target)
            .body(body)
            .map_err(|_| Error::Usage(format!("{} is not a path of a URL", call.path)))?;
        let headers = request.headers_mut();
        headers.insert(USER_AGENT, self.user_agent.clone());
        headers
            .insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream, */*"));
        if !call.body.is_empty() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(call.content_type));
        }
        put(headers, AUTHORIZATION, self.key.as_ref());
        put(headers, TENANT, options.tenant.as_ref());
        put(headers, IDEMPOTENCY_KEY, key);
        Ok(request)
    }
}

fn put(headers: &mut HeaderMap, name: HeaderName, value: Option<&HeaderValue>) {
    if let Some(value) = value {
        headers.insert(name, value.clone());
    }
}

/// The header of a key. The error does not repeat the key.
pub(crate) fn bearer(key: &str) -> Result<HeaderValue, Error> {
    let key = key.trim();
    let is_plain = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic());
    let value = is_plain.then(|| HeaderValue::from_str(&format!("Bearer {key}")).ok()).flatten();
    let mut value = value.ok_or_else(|| {
        Error::Usage("the key must be visible ASCII characters without spaces".to_owned())
    })?;
    value.set_sensitive(true);
    Ok(value)
}

async fn collect(call: &Call, response: Response<Incoming>, attempt: u32) -> Result<Bytes, Failed> {
    match Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) => Err(lost(call, error.as_ref(), attempt)),
    }
}

async fn refused(call: &Call, response: Response<Incoming>, attempt: u32) -> Failed {
    let status = response.status();
    let retry_after = retry_after(response.headers());
    let body = match collect(call, response, attempt).await {
        Ok(body) => body,
        Err(failed) => return failed,
    };
    let problem = Problem::new(status, &body, retry_after, attempt);
    let again = matches!(status.as_u16(), 408 | 429 | 500..);
    Failed { error: Error::Problem(Box::new(problem)), again, retry_after }
}

fn late(call: &Call, options: &CallOptions, attempts: u32) -> Error {
    Error::Timeout { call: call.name(), limit: options.timeout, attempts }
}

fn lost(call: &Call, error: &(dyn std::error::Error + 'static), attempts: u32) -> Failed {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    let cause = innermost.to_string();
    let error = Error::Connection { call: call.name(), cause, attempts };
    Failed { error, again: true, retry_after: None }
}

/// `Retry-After` as seconds or as a date.
#[expect(clippy::disallowed_methods, reason = "a date is compared with the machine's clock")]
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?;
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let at = jiff::fmt::rfc2822::parse(text).ok()?.timestamp().as_second();
    let now =
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    Some(Duration::from_secs(u64::try_from(at).unwrap_or(0).saturating_sub(now)))
}

/// How long to wait before the next attempt; `None` where the server asks for more patience than is
/// allowed.
fn wait(attempt: u32, retry_after: Option<Duration>, max: Duration) -> Option<Duration> {
    let doubled = FIRST_WAIT.saturating_mul(2_u32.saturating_pow(attempt.saturating_sub(1)));
    let jittered = doubled.min(max).mul_f64(0.5 + random_share() / 2.0);
    match retry_after {
        None => Some(jittered),
        // Later by the jitter and never earlier: the server has said when.
        Some(asked) => (asked <= max).then(|| asked + jittered),
    }
}

#[expect(clippy::disallowed_methods, reason = "a repeat comes after a pause; nothing wakes it")]
pub(crate) async fn rest(pause: Duration) {
    tokio::time::sleep(pause).await;
}

#[expect(clippy::disallowed_methods, reason = "a library for others has no source handed in")]
fn random<const N: usize>() -> Option<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).ok()?;
    Some(bytes)
}

/// A number from 0 to 1.
fn random_share() -> f64 {
    random().map_or(0.5, |bytes| f64::from(u16::from_le_bytes(bytes)) / f64::from(u16::MAX))
}

fn random_key() -> Result<HeaderValue, Error> {
    let bytes: [u8; 16] = random()
        .ok_or_else(|| Error::Usage("the system has no random bytes for a key".to_owned()))?;
    let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    HeaderValue::from_str(&text).map_err(|error| Error::Usage(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_with_jitter_and_obey_retry_after_within_the_limit() {
        let max = Duration::from_secs(30);
        for (attempt, low, high) in
            [(1, 100, 200), (2, 200, 400), (3, 400, 800), (40, 15_000, 30_000)]
        {
            let pause = wait(attempt, None, max).unwrap().as_millis();
            assert!((low..=high).contains(&pause), "{attempt}: {pause}");
        }
        let asked = Duration::from_secs(2);
        assert!(wait(1, Some(asked), max).unwrap() >= asked);
        assert_eq!(wait(1, Some(Duration::from_secs(31)), max), None);
    }

    #[test]
    fn key_with_control_characters_is_refused_without_being_repeated() {
        for key in ["", " ", "two words", "line\nbreak", "ключ"] {
            let error = bearer(key).unwrap_err().to_string();
            assert!(key.trim().is_empty() || !error.contains(key), "{error}");
        }
        let value = bearer(" pr_1_x\n").unwrap();
        assert_eq!(value.to_str().unwrap(), "Bearer pr_1_x");
        assert!(!format!("{value:?}").contains("pr_1_x"));
    }
}
