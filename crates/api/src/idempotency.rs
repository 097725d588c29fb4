//! `Idempotency-Key`: a repeated mutation gets the same answer and has no further effect.
//!
//! An idempotency key belongs to the API key that it came with: no other caller can get its answer.
//! Concurrent requests with the same key are executed one after the other, even on two nodes of a
//! cluster; the same key with another request is refused.
//!
//! **The effect and the stored answer always agree, even after a crash between them.** A request
//! runs in a task that its connection cannot cancel. Before it begins, a note with a seed is made
//! durable. If the process dies before the answer is stored, a repeat runs with the same seed: it
//! generates the same identifiers and secrets (`draw.rs`), finds the records that the first run has
//! stored, and gives the answer that the first run would have given.
//!
//! A stored entry recognises its request by a keyed digest: a digest that anybody can compute would
//! show whether a guess of an erased payload is right.
//!
//! Answers are stored for a day, sealed, because some contain a secret. Server errors and refusals
//! for lack of capacity are not stored: a repeat may succeed.

use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use postrider_domain::ids::TenantId;
use postrider_domain::limits::{BATCH_BODY_BYTES_MAX, EVENT_BODY_BYTES_MAX};
use postrider_store::IdempotentAnswer;
use postrider_transport::pause;
use sha2::{Digest as _, Sha256};

use crate::audit;
use crate::auth::Caller;
use crate::body;
use crate::draw::Draw;
use crate::problem::{Code, PROBLEM_JSON, Problem};
use crate::random;
use crate::running_mutations;
use crate::settings::IDEMPOTENCY_KEY_CHARS_MAX;
use crate::state::ApiState;
use crate::vault::{SealContext, Vault};

/// The header that makes a mutation repeatable.
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Set on a repeated answer.
pub const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// How long to wait for another node that works on the same key. Longer than any request may take,
/// so an older claim belongs to a dead node.
const ANSWERING_MAX: Duration = Duration::from_secs(60);
/// The pause between two checks whether the other node is done.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// The tenant, and the caller's API key with the idempotency key.
struct AnswerKey {
    tenant: TenantId,
    key: String,
}

/// Answers a repeat with the stored answer, and stores the answers of requests with a key. Every
/// mutation runs to its end.
pub(crate) async fn remember(state: &ApiState, request: Request, next: Next) -> Response {
    let is_mutation = audit::is_mutation(request.method());
    let caller = request.extensions().get::<Caller>().filter(|_| is_mutation).cloned();
    let Some(caller) = caller else { return next.run(request).await };
    match request.headers().get(&IDEMPOTENCY_KEY).cloned() {
        Some(given) => repeatable(state, &caller, &given, request, next)
            .await
            .unwrap_or_else(Problem::into_response),
        None if ends_by_itself(request.uri().path()) => next.run(request).await,
        None => {
            let (mine, tenant) = (state.clone(), caller.tenant.clone());
            let run = async move { audit::run(&mine, &caller, request, next).await };
            running_mutations::to_the_end(state, &tenant, run).await
        }
    }
}

/// Whether a disconnected client leaves nothing half done on this path anyway: the engine accepts
/// events in a task of its own, and what is only tried changes nothing.
fn ends_by_itself(path: &str) -> bool {
    [
        "/v1/events",
        "/v1/events/batch",
        "/v1/filters/test",
        "/v1/filters/test/events",
        "/v1/simulate",
    ]
    .contains(&path)
}

async fn repeatable(
    state: &ApiState,
    caller: &Caller,
    given: &HeaderValue,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let key = check_key(given)?;
    let (parts, body) = request.into_parts();
    let max = if parts.uri.path().ends_with("/events/batch") {
        BATCH_BODY_BYTES_MAX
    } else {
        EVENT_BODY_BYTES_MAX
    };
    let body = body::read(body, max, state).await?;
    let digest = RequestDigest::new(state.vault(), &parts, &body);
    let answer_key =
        AnswerKey { tenant: caller.tenant.clone(), key: format!("{}:{key}", caller.key_id) };
    // A client that disconnects while it waits here has changed nothing.
    let turn =
        state.locks().of_idempotency_key(&answer_key.tenant, &answer_key.key).lock_owned().await;
    let request = Request::from_parts(parts, Body::from(body));
    let (mine, caller) = (state.clone(), caller.clone());
    let tenant = caller.tenant.clone();
    let run = async move {
        let idempotent =
            IdempotentRequest { state: &mine, caller: &caller, answer_key: &answer_key, digest };
        let answer = idempotent.in_turn(request, next).await;
        drop(turn);
        answer.unwrap_or_else(Problem::into_response)
    };
    Ok(running_mutations::to_the_end(state, &tenant, run).await)
}

/// A request with an idempotency key, when no other request with the key runs.
struct IdempotentRequest<'a> {
    state: &'a ApiState,
    caller: &'a Caller,
    answer_key: &'a AnswerKey,
    digest: RequestDigest,
}

impl IdempotentRequest<'_> {
    /// Runs a request, or repeats its stored answer, when no other node works on its key.
    async fn in_turn(&self, request: Request, next: Next) -> Result<Response, Problem> {
        let IdempotentRequest { state, answer_key, .. } = *self;
        let wait = async {
            while !state
                .store()
                .begin_answer(&answer_key.tenant, &answer_key.key, ANSWERING_MAX)
                .await?
            {
                pause(LOOK_AGAIN).await;
            }
            Ok::<_, Problem>(())
        };
        // The request deadline ends the wait too.
        tokio::time::timeout(state.settings().request_deadline, wait).await.map_err(|_| {
            let detail =
                "another node works on a request with this Idempotency-Key: repeat it later";
            Problem::new(Code::Unavailable, detail)
        })??;
        let answer = self.carry_out(request, next).await;
        if let Err(error) = state.store().end_answer(&answer_key.tenant, &answer_key.key).await {
            tracing::warn!(%error, "other nodes wait for this idempotency key until its turn expires");
        }
        answer
    }

    /// Stores the note that the request begins, runs it and stores its answer; or returns the
    /// stored answer.
    async fn carry_out(&self, mut request: Request, next: Next) -> Result<Response, Problem> {
        let IdempotentRequest { state, caller, answer_key, digest } = *self;
        let fresh = IdempotentAnswer {
            request: digest.keyed,
            status: IdempotentAnswer::BEGUN,
            body: random::bytes::<32>()?.to_vec(),
            created_at: state.now(),
        };
        let known = keep(state, answer_key, &fresh).await?;
        if !digest.is_of(&known) {
            let detail = "this Idempotency-Key came with another request before: use a new one";
            return Err(
                Problem::new(Code::IdempotencyConflict, detail).at(IDEMPOTENCY_KEY.as_str())
            );
        }
        if known.is_answer() {
            return answer_again(state, answer_key, &known);
        }
        // Keyed with the key ring: the stored seed alone does not reveal the secrets derived from
        // it.
        let purpose: &[u8] = b"seed of an idempotent request";
        let parts = [
            purpose,
            answer_key.tenant.as_str().as_bytes(),
            answer_key.key.as_bytes(),
            &known.request,
            &known.body,
        ];
        let seed = state.vault().keyed_hash(&parts);
        let is_repeated = known != fresh;
        request.extensions_mut().insert(Draw::seeded(seed, known.created_at, is_repeated));
        let response = audit::run(state, caller, request, next).await;
        keep_answer(state, answer_key, digest.keyed, response).await
    }
}

/// Stores an answer or a note; returns the entry that is stored for this key and not too old.
async fn keep(
    state: &ApiState,
    answer_key: &AnswerKey,
    answer: &IdempotentAnswer,
) -> Result<IdempotentAnswer, Problem> {
    let memory = state.settings().idempotency_memory;
    let end = answer.created_at.saturating_sub(memory);
    let since = end.saturating_add(Duration::from_millis(1));
    let kept = state
        .store()
        .keep_idempotent_answer(&answer_key.tenant, &answer_key.key, answer, since)
        .await;
    Ok(kept?)
}

fn check_key(given: &HeaderValue) -> Result<String, Problem> {
    let text = given.to_str().unwrap_or_default();
    let is_key = (1..=IDEMPOTENCY_KEY_CHARS_MAX).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_graphic());
    is_key.then(|| text.to_owned()).ok_or_else(|| {
        let allowed =
            format!("1 to {IDEMPOTENCY_KEY_CHARS_MAX} visible ASCII characters without spaces");
        Problem::field(IDEMPOTENCY_KEY.as_str(), allowed)
    })
}

/// What two requests are recognised by as the same.
#[derive(Debug, Clone, Copy)]
struct RequestDigest {
    /// What is stored. The key is that of the key ring: the same on every node, and after a restart.
    keyed: [u8; 32],
    /// What version 0.1.0 stored. It is never written.
    plain: [u8; 32],
}

impl RequestDigest {
    fn new(vault: &Vault, parts: &axum::http::request::Parts, body: &Bytes) -> RequestDigest {
        let plain = plain_digest(parts, body);
        let keyed = vault.keyed_hash(&[b"digest of an idempotent request", &plain]);
        RequestDigest { keyed, plain }
    }

    /// Whether the entry is that of this request.
    fn is_of(&self, known: &IdempotentAnswer) -> bool {
        known.request == self.keyed || known.request == self.plain
    }
}

fn plain_digest(parts: &axum::http::request::Parts, body: &Bytes) -> [u8; 32] {
    let mut hash = Sha256::new();
    let content_type = parts.headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    let target = parts.uri.path_and_query().map_or("", |target| target.as_str());
    for part in [
        parts.method.as_str().as_bytes(),
        target.as_bytes(),
        content_type.unwrap_or_default(),
        body.as_ref(),
    ] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

fn answer_again(
    state: &ApiState,
    answer_key: &AnswerKey,
    known: &IdempotentAnswer,
) -> Result<Response, Problem> {
    let body =
        state.vault().open(context(answer_key), &known.body).map_err(|_| Problem::internal())?;
    let status = StatusCode::from_u16(known.status).map_err(|_| Problem::internal())?;
    let mut response = (status, body.to_vec()).into_response();
    let headers = response.headers_mut();
    headers.insert(REPLAYED, HeaderValue::from_static("true"));
    let kind = if status.is_success() { "application/json" } else { PROBLEM_JSON };
    if status == StatusCode::NO_CONTENT {
        headers.remove(header::CONTENT_TYPE);
    } else {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    }
    Ok(response)
}

/// Stores a response. If that fails, it is still sent: the change has been made, and a repeat gives
/// the same result.
async fn keep_answer(
    state: &ApiState,
    answer_key: &AnswerKey,
    digest: [u8; 32],
    response: Response,
) -> Result<Response, Problem> {
    let (parts, body) = response.into_parts();
    let body = body.collect().await.map_err(|_| Problem::internal())?.to_bytes();
    let status = parts.status;
    let is_final = !status.is_server_error()
        && status != StatusCode::TOO_MANY_REQUESTS
        && status != StatusCode::REQUEST_TIMEOUT;
    if is_final && let Ok(sealed) = state.vault().seal(context(answer_key), &body) {
        let answer = IdempotentAnswer {
            request: digest,
            status: status.as_u16(),
            body: sealed,
            created_at: state.now(),
        };
        match keep(state, answer_key, &answer).await {
            // Another node was first: its answer counts.
            Ok(kept) if kept != answer && kept.is_answer() => {
                return answer_again(state, answer_key, &kept);
            }
            Ok(_) => {}
            Err(problem) => tracing::warn!(
                code = problem.code().as_str(),
                "cannot store the answer for an idempotency key"
            ),
        }
    }
    Ok(Response::from_parts(parts, Body::from(body)))
}

fn context(answer_key: &AnswerKey) -> SealContext<'_> {
    SealContext { tenant: &answer_key.tenant, owner: &answer_key.key, field: "idempotent answer" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_visible_and_not_too_long() {
        let ok = |text: &str| check_key(&HeaderValue::from_str(text).unwrap()).is_ok();
        assert!(ok("a") && ok(&"k".repeat(255)) && ok("8e03978e-40d5-43e8-bc93-6894a57f9324"));
        assert!(!ok("") && !ok(&"k".repeat(256)) && !ok("a b"));
    }
}
