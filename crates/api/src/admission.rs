//! Checks between authentication and the handler: the scope that the call needs, a permit of the
//! tenant's requests in progress, and the budgets for bytes of bodies and answers.
//!
//! **No byte of a body is read before its caller may make the call.** The bytes of a body and of an
//! answer count against their budgets as long as they are in memory.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use axum::body::{Body, HttpBody};
use axum::extract::{MatchedPath, Request};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use postrider_domain::access::Scope;
use postrider_domain::ids::TenantId;
use tracing::Instrument as _;

use crate::audit;
use crate::auth::{Caller, one_tenant};
use crate::budget::{Budget, Share};
use crate::gate::Permit;
use crate::idempotency;
use crate::layers;
use crate::peek::peek;
use crate::problem::Problem;
use crate::state::ApiState;

/// The permits of a request, held until it is answered. Work that outlives its request keeps a
/// clone from the request's extensions.
#[derive(Debug, Clone)]
pub(crate) struct RequestPermit(
    #[expect(dead_code, reason = "held, not read")] Arc<(Permit, SharedShare)>,
);

type SharedShare = Arc<Mutex<Share>>;

/// Admits a request and answers it.
pub(crate) async fn admit(
    state: &ApiState,
    caller: Caller,
    mut request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let path = request.extensions().get::<MatchedPath>().cloned();
    let path = path.as_ref().map_or("", MatchedPath::as_str);
    if let Err(problem) = may(&caller, request.method(), path) {
        if audit::is_mutation(request.method()) {
            audit::refused(state, audit::begin(&caller, &request), &problem).await;
        }
        return Err(problem);
    }
    let tenant = caller.tenant.clone();
    let permit = state.gate().enter(&tenant).await?;
    let share = Arc::new(Mutex::new(state.request_bytes().share(&tenant)));
    let held = RequestPermit(Arc::new((permit, Arc::clone(&share))));
    request.extensions_mut().insert(caller);
    request.extensions_mut().insert(held.clone());
    let is_get = matches!(*request.method(), Method::GET | Method::HEAD);
    let has_unknown_size = layers::has_unknown_size(&request);
    let request = request.map(|body| Body::new(CountedBody { body, share }));
    let response = if has_unknown_size {
        // Boxed, because a rare case must not make every request's future larger.
        Box::pin(remember_by_size(state, request, next)).await
    } else {
        idempotency::remember(state, request, next).await
    };
    drop(held);
    hold_answer(state.answer_bytes(), &tenant, response, is_get)
}

/// Answers a request with a body of unknown length; if it is large, in the background.
async fn remember_by_size(state: &ApiState, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let (body, is_large) = peek(body).await;
    let request = Request::from_parts(parts, body);
    if !is_large {
        return idempotency::remember(state, request, next).await;
    }
    let mine = state.clone();
    let answering = async move { idempotency::remember(&mine, request, next).await };
    state.engine().background().run(answering.in_current_span()).await
}

/// Whether the caller may make the call, as far as its path tells.
fn may(caller: &Caller, method: &Method, path: &str) -> Result<(), Problem> {
    if let Some(session) = &caller.session {
        session.permits(method, path)?;
    }
    let scopes = needed(method, path);
    if caller.sees_all() && !scopes.is_empty() {
        return Err(one_tenant("all tenants together can be looked at, and not be changed"));
    }
    scopes.iter().try_for_each(|scope| caller.permits(*scope))
}

/// The scopes without which the body of a mutation is not read; none for a read. The handler checks its
/// scopes again; a test compares the two.
fn needed(method: &Method, path: &str) -> &'static [Scope] {
    if matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS) {
        return &[];
    }
    let resource = path.strip_prefix("/v1/").unwrap_or(path).split('/').next().unwrap_or_default();
    match resource {
        "events" => &[Scope::Ingest],
        "filters" | "simulate" => &[Scope::Read],
        "tenants" | "keys" | "backup" | "alerts" => &[Scope::Admin],
        "portal-links" if *method == Method::POST => &[Scope::Manage, Scope::Read],
        _ => &[Scope::Manage],
    }
}

/// A request's body, whose bytes are counted as they arrive.
struct CountedBody {
    body: Body,
    share: SharedShare,
}

impl HttpBody for CountedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            let grown = self.share.lock().unwrap_or_else(PoisonError::into_inner).grow(data.len());
            if let Err(exhausted) = grown {
                return Poll::Ready(Some(Err(axum::Error::new(exhausted))));
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Counts an answer as long as it is in memory. Only reads can be refused here: a change has been
/// carried out, and its answer is small.
fn hold_answer(
    budget: &Arc<Budget>,
    tenant: &TenantId,
    response: Response,
    is_get: bool,
) -> Result<Response, Problem> {
    let Some(bytes) = response.body().size_hint().exact() else { return Ok(response) };
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    let share = if is_get && response.status().is_success() {
        budget.take(tenant, bytes)?
    } else {
        budget.overdraw(tenant, bytes)
    };
    let share = Arc::new(share);
    Ok(response.map(|body| Body::new(CountedAnswer { body, share })))
}

/// An answer's body; its bytes are counted until the last piece is written.
struct CountedAnswer {
    body: Body,
    share: Arc<Share>,
}

impl HttpBody for CountedAnswer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        Poll::Ready(frame.map(|frame| {
            let share = Arc::clone(&self.share);
            frame.map(|frame| {
                frame.map_data(|bytes| Bytes::from_owner(Piece { bytes, _share: share }))
            })
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A piece of an answer.
struct Piece {
    bytes: Bytes,
    _share: Arc<Share>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}
