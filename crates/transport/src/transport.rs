//! The transport: one request, from the lookup of its name to the end of its response.
//!
//! One deadline covers everything. All state of a request is in its future, so that dropping the
//! future leaves nothing behind.

use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::RETRY_AFTER;
use hyper::body::{Frame, Incoming};
use postrider_domain::attempt::{
    Answer, BodyEnd, Connection, Ending, Finished, OwnFaultKind, Phase, RetryAfter, Timings,
};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout_at};

use crate::clock::{Clock, instant_now};
use crate::connect::Connector;
use crate::egress::Egress;
use crate::fault::Fault;
use crate::http1::{Http1, Unanswered};
use crate::http2::{Http2, Lease};
use crate::options::TransportOptions;
use crate::pool::{Acquired, Gauges, Kept, Pool, PoolStats};
use crate::request::{PoolKey, Request, Target, TargetHost};
use crate::resolve::{Resolver, ResolverSetupError};
use crate::stream::Flow;
use crate::tls::{Tls, TlsSetupError};

/// The longest deadline that is kept exactly.
const DEADLINE_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// How long a new connection without a response counts as being opened.
const PROVING_MAX: Duration = Duration::from_millis(100);

/// Makes HTTP requests. The simulation has its own implementation.
pub trait Transport: Send + Sync + 'static {
    /// Sends a request; resolves when it has ended, in whatever way. Dropping the future gives the
    /// request up: its connection is closed, and whether it arrived is unknown.
    fn send(&self, request: Request) -> impl Future<Output = Finished> + Send;
}

/// Why a transport cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// No usable resolver.
    #[error(transparent)]
    Resolver(#[from] ResolverSetupError),
    /// Certificates or keys that cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsSetupError),
}

/// Makes requests over the network.
pub struct HttpTransport {
    clock: Arc<dyn Clock>,
    resolver: Resolver,
    connector: Connector,
    pool: Arc<Pool>,
    gauges: Arc<Gauges>,
    http2: bool,
}

/// The progress of a request.
#[derive(Debug)]
pub(crate) struct Progress {
    phase: Phase,
    /// The data flow of the connection, if it is HTTP/1.1.
    flow: Option<Arc<Flow>>,
    /// Whether the request waits for our own proxy.
    pub(crate) at_proxy: bool,
    /// How long each phase took.
    pub(crate) timings: Timings,
}

/// A response's body, with its connection.
enum Source {
    Http1(Box<Http1>),
    Http2(Lease),
}

impl Source {
    fn poll_body(
        &mut self,
        body: &mut Incoming,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self {
            Source::Http1(connection) => connection.poll_body(body, cx),
            Source::Http2(lease) => lease.poll_body(body, cx),
        }
    }
}

impl Progress {
    fn new() -> Self {
        let timings = Timings::default();
        Progress { phase: Phase::Dns, flow: None, at_proxy: false, timings }
    }

    /// Enters a phase; returns the current instant, to measure the phase.
    pub(crate) fn enter(&mut self, phase: Phase) -> Instant {
        self.phase = phase;
        instant_now()
    }

    /// The fault if the deadline passes now.
    fn timed_out(&self) -> Fault {
        if self.at_proxy {
            let detail = "no connection before the deadline";
            return Fault::ours(OwnFaultKind::Proxy, detail);
        }
        let is_sending = self.flow.as_ref().is_some_and(|flow| flow.is_write_blocked());
        let is_sending = is_sending && self.phase == Phase::Response;
        Fault::timeout(if is_sending { Phase::Request } else { self.phase })
    }
}

impl HttpTransport {
    /// A transport with these settings.
    ///
    /// # Errors
    ///
    /// If there is no usable resolver, or a certificate or key cannot be used.
    pub fn new(options: TransportOptions, clock: Arc<dyn Clock>) -> Result<Self, SetupError> {
        let gauges = Arc::new(Gauges::default());
        let tls = Tls::new(&options.tls, options.http2)?;
        Ok(HttpTransport {
            clock,
            connector: Connector::new(&options, tls, Arc::clone(&gauges)),
            resolver: Resolver::new(options.dns)?,
            pool: Pool::new(options.pool),
            gauges,
            http2: options.http2,
        })
    }

    /// The egress policy, which can be changed while requests run.
    pub fn egress(&self) -> Egress {
        self.connector.egress().clone()
    }

    /// The current numbers of the connection pool.
    pub fn pool_stats(&self) -> PoolStats {
        self.pool.stats(&self.gauges)
    }

    /// Sends the request; returns the head of the response and the source of its body.
    async fn exchange(
        &self,
        request: &Request,
        progress: &mut Progress,
    ) -> Result<(http::Response<Incoming>, Source), Fault> {
        let target = &*request.target;
        self.connector.vet_target(target)?;
        let resolved;
        let literal;
        let addresses: &[IpAddr] = match &target.host {
            TargetHost::Name(name) => {
                let begun_at = progress.enter(Phase::Dns);
                resolved = self.resolver.resolve(name).await?;
                progress.timings.dns = Some(instant_now() - begun_at);
                &resolved
            }
            TargetHost::Address(address) => {
                literal = [*address];
                &literal
            }
        };
        self.connector.vet(addresses)?;
        let mut kept = self.pool.take(&target.key, addresses);
        loop {
            let (connection, is_reused, place) = match kept.take() {
                Some(kept) => (kept, true, None),
                None => Box::pin(self.open(target, addresses, progress)).await?,
            };
            let is_resent = progress.timings.connection == Connection::Resent;
            if is_reused && !is_resent {
                progress.timings.connection = Connection::Reused;
            }
            match prove(place, send_over(connection, request, progress)).await {
                Ok(answered) => return Ok(answered),
                Err(unanswered) if unanswered.died_silently && is_reused && !is_resent => {
                    progress.timings.connection = Connection::Resent;
                }
                Err(unanswered) => return Err(unanswered.fault),
            }
        }
    }

    /// Opens a connection, or takes one that became idle meanwhile. Returns the connection, its
    /// permit to be opened, and whether it was idle.
    async fn open(
        &self,
        target: &Target,
        addresses: &[IpAddr],
        progress: &mut Progress,
    ) -> Result<(Kept, bool, Option<OwnedSemaphorePermit>), Fault> {
        progress.enter(Phase::Connect);
        progress.flow = None;
        let key: &Arc<PoolKey> = &target.key;
        let may_share = self.http2 && key.https;
        let gate = if may_share { self.pool.gate(key) } else { None };
        let _held = match &gate {
            Some(gate) => Some(gate.lock().await),
            None => None,
        };
        if may_share && let Some(lease) = self.pool.share(key, addresses) {
            return Ok((Kept::Http2(lease), true, None));
        }
        // After an idle connection was found dead, do not use another idle one.
        let may_be_kept = progress.timings.connection != Connection::Resent;
        let place = match self.pool.place(key, addresses, may_be_kept).await {
            Acquired::Kept(kept) => return Ok((kept, true, None)),
            Acquired::Open(place) => place,
        };
        let (stream, peer) = self.connector.open(target, addresses, progress).await?;
        if stream.is_http2() {
            let connection = Http2::new(stream, peer).await?;
            let lease = connection.lease();
            self.pool.publish(key, &connection);
            Ok((Kept::Http2(lease), false, place))
        } else {
            if may_share {
                self.pool.note_http1(key);
            }
            Ok((Kept::Http1(Box::new(Http1::new(stream, peer).await?)), false, place))
        }
    }

    /// Reads the part of a body that is kept. Errors do not change the outcome.
    async fn read_body(
        &self,
        mut source: Source,
        body: Incoming,
        request: &Request,
        deadline: Instant,
    ) -> (Bytes, BodyEnd) {
        let mut kept = BytesMut::new();
        let read = collect(&mut kept, request.response_body_bytes_max, &mut source, body);
        let end = timeout_at(deadline, read).await.unwrap_or(BodyEnd::Late);
        match source {
            Source::Http1(connection) if end == BodyEnd::Whole => {
                self.pool.keep(&request.target.key, connection);
            }
            // With unread data of a body it cannot be reused.
            Source::Http1(unfinished) => drop(unfinished),
            Source::Http2(lease) => drop(lease),
        }
        (kept.freeze(), end)
    }
}

impl HttpTransport {
    /// When the receiver asks to be retried. A date refers to the receiver's clock, so it is
    /// converted to a delay from the time of day.
    fn retry_after(&self, value: &str) -> Option<RetryAfter> {
        let (now, wall) = (self.clock.now(), self.clock.wall());
        Some(match RetryAfter::parse(value, wall)? {
            RetryAfter::At(date) => RetryAfter::At(date.moved_ms(now.ms_from(wall))),
            delay @ RetryAfter::Delay(_) => delay,
        })
    }
}

impl Transport for HttpTransport {
    async fn send(&self, request: Request) -> Finished {
        let _counted = self.gauges.request();
        let started_at = self.clock.now();
        let begun_at = instant_now();
        let deadline = begun_at + request.deadline.min(DEADLINE_MAX);
        let mut progress = Progress::new();
        let exchanged = match timeout_at(deadline, self.exchange(&request, &mut progress)).await {
            Ok(exchanged) => exchanged,
            Err(_) => Err(progress.timed_out()),
        };
        let ending = match exchanged {
            Err(fault) => fault.into(),
            Ok((response, source)) => {
                let (head, body) = response.into_parts();
                let (body, body_end) = self.read_body(source, body, &request, deadline).await;
                let retry_after = head.headers.get(RETRY_AFTER);
                let retry_after = retry_after.and_then(|value| value.to_str().ok());
                Ending::Answered(Answer {
                    status: head.status.as_u16(),
                    retry_after: retry_after.and_then(|value| self.retry_after(value)),
                    body,
                    body_end,
                })
            }
        };
        let mut timings = progress.timings;
        timings.total = instant_now() - begun_at;
        Finished { started_at, timings, ending }
    }
}

/// Waits for the first response on a new connection. The connection exists as soon as the
/// receiver's kernel accepts it, long before the receiver does, so it counts as being opened until
/// something was answered. But only for a short time, so that a slow receiver does not block others
/// on its host.
async fn prove<T>(place: Option<OwnedSemaphorePermit>, answer: impl Future<Output = T>) -> T {
    let mut answer = pin!(answer);
    if place.is_some()
        && let Ok(answered) = timeout_at(instant_now() + PROVING_MAX, &mut answer).await
    {
        return answered;
    }
    drop(place);
    answer.await
}

/// Sends a request over an open connection.
async fn send_over(
    connection: Kept,
    request: &Request,
    progress: &mut Progress,
) -> Result<(http::Response<Incoming>, Source), Unanswered> {
    let begun_at = progress.enter(Phase::Response);
    let (response, source) = match connection {
        Kept::Http1(mut connection) => {
            progress.flow = Some(Arc::clone(connection.flow()));
            let response = connection.send(request.to_http1()).await?;
            (response, Source::Http1(connection))
        }
        Kept::Http2(lease) => {
            let response =
                RetireUnlessDone::new(&lease).watch(lease.send(request.to_http2())).await?;
            (response, Source::Http2(lease))
        }
    };
    progress.timings.response = Some(instant_now() - begun_at);
    Ok((response, source))
}

/// Retires an HTTP/2 connection on which a request was abandoned: it may be dead.
struct RetireUnlessDone<'a> {
    lease: &'a Lease,
    done: bool,
}

impl<'a> RetireUnlessDone<'a> {
    fn new(lease: &'a Lease) -> Self {
        RetireUnlessDone { lease, done: false }
    }

    async fn watch<T>(mut self, answer: impl Future<Output = T>) -> T {
        let answer = answer.await;
        self.done = true;
        answer
    }
}

impl Drop for RetireUnlessDone<'_> {
    fn drop(&mut self) {
        if !self.done {
            self.lease.connection().retire();
        }
    }
}

/// Collects the data of a body up to a limit.
async fn collect(
    kept: &mut BytesMut,
    bytes_max: usize,
    source: &mut Source,
    mut body: Incoming,
) -> BodyEnd {
    loop {
        match poll_fn(|cx| source.poll_body(&mut body, cx)).await {
            None => return BodyEnd::Whole,
            Some(Err(_)) => return BodyEnd::Broken,
            Some(Ok(frame)) => {
                // Trailers are ignored.
                let data = frame.into_data().unwrap_or_default();
                let room = bytes_max - kept.len();
                kept.extend_from_slice(&data[..data.len().min(room)]);
                if data.len() > room {
                    return BodyEnd::Cut;
                }
            }
        }
    }
}
