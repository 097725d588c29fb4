//! What happens to a request between the connection and the router: who asks is found out, what is
//! left of its body is discarded, and its answer is watched on its way.

use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::header::{CONNECTION, EXPECT};
use axum::http::{HeaderValue, Request, Response, Version};
use axum::response::IntoResponse as _;
use hyper::body::Incoming;
use postrider_api::{ClientAddress, OverTls};
use tower::ServiceExt as _;

use super::bodies::{DiscardLimits, RequestBody, ResponseBody};
use super::connection::Connection;
use super::connection_limits::ConnectionTable;
use super::refusal;

/// Answers the requests of one connection.
#[derive(Clone)]
pub(super) struct Service {
    pub(super) router: Router,
    pub(super) peer: IpAddr,
    /// Whether the connection is encrypted.
    pub(super) has_tls: bool,
    pub(super) table: Arc<ConnectionTable>,
    pub(super) connection: Arc<Connection>,
    pub(super) discard: Arc<DiscardLimits>,
}

impl Service {
    async fn answer(self, request: Request<Incoming>) -> Response<ResponseBody> {
        let in_flight = self.connection.begin();
        let is_http_2 = request.version() == Version::HTTP_2;
        let expects = request.headers().contains_key(EXPECT);
        let (mut parts, body) = request.into_parts();
        let asked = RequestBody::new(body, Arc::clone(&in_flight));
        let (mut response, place) = match self.table.request(self.peer, &parts.headers) {
            Ok((client, place)) => {
                let over_tls =
                    self.has_tls || self.table.is_forwarded_tls(self.peer, &parts.headers);
                parts.extensions.insert(ClientAddress(client));
                parts.extensions.insert(OverTls(over_tls));
                let request = Request::from_parts(parts, Body::new(asked.clone()));
                let answered = self.router.oneshot(request).await;
                (answered.unwrap_or_else(|never| match never {}), place)
            }
            Err(full) => (refusal::problem(full).into_response(), None),
        };
        if !asked.discard(&self.discard, expects).await {
            self.connection.leave_body_unread();
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if is_http_2 {
            // There is no such header in HTTP/2: a stream ends without its connection.
            response.headers_mut().remove(CONNECTION);
        }
        response.map(|body| ResponseBody::new(body, in_flight, place))
    }
}

impl hyper::service::Service<Request<Incoming>> for Service {
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move { Ok(service.answer(request).await) })
    }
}
