//! Helpers for the tests: a transport, a way to post, and receivers made of raw sockets.

mod addresses;
mod dns;
mod receiver;
mod tls;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use postrider_domain::attempt::{Answer, Ending, FailureClass, Finished, OwnFaultKind};
use postrider_domain::egress::{DestinationUrl, EgressPolicy};
use postrider_domain::ids::{DestinationId, TenantId};
use postrider_transport::{
    ClientIdentity, HttpTransport, InvalidTarget, Request, SystemClock, Target, Transport,
    TransportOptions,
};

pub(crate) use addresses::{forbidden, literal_url};
pub(crate) use dns::{Nameserver, Reply};
pub(crate) use receiver::{Receiver, drain, read_request};
pub(crate) use tls::{Authority, accept_tls};

/// A deadline that never passes in a test that is not about it.
pub(crate) const PATIENT: Duration = Duration::from_secs(60);
/// For tests that wait for the deadline.
pub(crate) const SHORT: Duration = Duration::from_millis(200);
/// How much of a body is kept.
pub(crate) const BODY_BYTES_MAX: usize = 16 * 1024;

/// Options that permit loopback and plain http, as `--dev` does.
pub(crate) fn dev_options() -> TransportOptions {
    TransportOptions {
        egress: EgressPolicy { dev: true, ..EgressPolicy::default() },
        ..TransportOptions::default()
    }
}

/// A transport with these options.
pub(crate) fn transport_with(options: TransportOptions) -> HttpTransport {
    HttpTransport::new(options, Arc::new(SystemClock)).unwrap()
}

/// A transport that may contact loopback.
pub(crate) fn transport() -> HttpTransport {
    transport_with(dev_options())
}

/// A POST to a URL that was not vetted.
pub(crate) fn request(url: &str) -> Request {
    request_of("default", url, None)
}

/// A POST of a tenant, with a TLS identity.
pub(crate) fn request_of(
    tenant: &str,
    url: &str,
    identity: Option<Arc<ClientIdentity>>,
) -> Request {
    try_request_of(tenant, url, identity).unwrap()
}

/// A POST to a URL that may not be usable in a request.
pub(crate) fn try_request_of(
    tenant: &str,
    url: &str,
    identity: Option<Arc<ClientIdentity>>,
) -> Result<Request, InvalidTarget> {
    let tenant: TenantId = tenant.parse().unwrap();
    let url = DestinationUrl::from_trusted(url).unwrap();
    let destination = DestinationId::of(&tenant, url.as_str());
    Ok(Request {
        target: Arc::new(Target::new(tenant, destination, url, identity)?),
        headers: vec![(
            http::HeaderName::from_static("webhook-id"),
            http::HeaderValue::from_static("dlv_1"),
        )],
        body: Bytes::from_static(b"{\"type\":\"test\"}").into(),
        deadline: PATIENT,
        response_body_bytes_max: BODY_BYTES_MAX,
    })
}

/// POSTs to a URL and returns the outcome.
pub(crate) async fn post(transport: &HttpTransport, url: &str) -> Finished {
    transport.send(request(url)).await
}

/// POSTs with a short deadline.
pub(crate) async fn post_in_haste(transport: &HttpTransport, url: &str) -> Finished {
    transport.send(Request { deadline: SHORT, ..request(url) }).await
}

/// The response.
#[track_caller]
pub(crate) fn answer(finished: &Finished) -> &Answer {
    match &finished.ending {
        Ending::Answered(answer) => answer,
        other @ (Ending::Failed(_) | Ending::OwnFault(_)) => panic!("no answer: {other:?}"),
    }
}

/// The class of a failure.
#[track_caller]
pub(crate) fn class(finished: &Finished) -> FailureClass {
    match &finished.ending {
        Ending::Failed(failure) => failure.class,
        other @ (Ending::Answered(_) | Ending::OwnFault(_)) => {
            panic!("not the destination's failure: {other:?}")
        }
    }
}

/// The detail of a failure or fault.
#[track_caller]
pub(crate) fn detail(finished: &Finished) -> &str {
    match &finished.ending {
        Ending::Failed(failure) => &failure.detail,
        Ending::OwnFault(fault) => &fault.detail,
        Ending::Answered(answer) => panic!("an answer: {answer:?}"),
    }
}

/// The kind of a fault of our own.
#[track_caller]
pub(crate) fn own_fault(finished: &Finished) -> OwnFaultKind {
    match &finished.ending {
        Ending::OwnFault(fault) => fault.kind,
        other @ (Ending::Answered(_) | Ending::Failed(_)) => panic!("not our fault: {other:?}"),
    }
}

/// Waits until a condition holds that other tasks make true.
pub(crate) async fn until(mut is_true: impl FnMut() -> bool) {
    let mut tick = tokio::time::interval(Duration::from_millis(2));
    while !is_true() {
        tick.tick().await;
    }
}
