//! Subscriptions: create, show, change, delete, rotate the secret, test.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use postrider_domain::egress::vet_url;
use postrider_domain::event::RawJson;
use postrider_domain::ids::{DestinationId, SubscriptionId};
use postrider_domain::payload::Format;
use postrider_domain::policy::{Policy, SubscriptionPolicy};
use postrider_domain::signature::{SigningSecret, SigningSecrets};
use postrider_domain::subscription::{About, Subscription};
use postrider_engine::NewEvent;
use postrider_store::SubscriptionPut;
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::{IntoParams, ToSchema};

use super::{PathId, subscription_search, subscription_uid};
use crate::auth::{Caller, CanManage, CanRead, CanReadAll, one_tenant};
use crate::body::{Nothing, Patch, Strict, StrictOrNone};
use crate::credentials::{Credentials, HeaderForm, TlsCredentials};
use crate::draw::Draw;
use crate::paging::{List, ListOf, Query, page};
use crate::problem::{Code, Problem};
use crate::settings::{OVERLAP_SECONDS_DEFAULT, OVERLAP_SECONDS_MAX};
use crate::state::ApiState;
use crate::vault::VaultError;
use crate::wire::delivery::OutcomeView;
use crate::wire::subscription::{
    RotateBody, SubscriptionBody, SubscriptionView, SubscriptionWithSecret, apply_about, apply_tls,
    apply_workfront, check_filter, check_format, check_headers, check_rate_limit, check_secret,
    check_token, check_types,
};

/// The format level from which on nodes read what describes a subscription, its own policy and its
/// options of the format `workfront`.
const DETAILS_SINCE: u32 = 2;
/// The type of the test event.
const TEST_TYPE: &str = "postrider.test";

/// Create a subscription
///
/// The secret is shown only in this answer. A subscription with the same URL, types, object, filter
/// and format as an existing one is refused. With a `uid` that a subscription has already, and the same body,
/// the answer is that subscription, without its secret; with another body it is refused.
#[utoipa::path(
    post, path = "/v1/subscriptions", tag = "subscriptions",
    request_body = SubscriptionBody,
    responses(
        (status = 201, body = SubscriptionWithSecret, description = "Created"),
        (status = 200, body = SubscriptionView, description = "The one that has this uid already")
    )
)]
pub(crate) async fn create(
    State(state): State<ApiState>,
    CanManage(caller): CanManage,
    draw: Draw,
    Strict(body): Strict<SubscriptionBody>,
) -> Result<Response, Problem> {
    let now = draw.created_at(&state);
    let Patch::Value(url) = &body.url else { return Err(Problem::missing("url")) };
    let Patch::Value(types) = &body.types else { return Err(Problem::missing("types")) };
    let url = vet(&state, url)?;
    let mut subscription = Subscription {
        id: SubscriptionId::new(now, draw.bytes("subscription id")?),
        destination: DestinationId::of(&caller.tenant, &url),
        tenant: caller.tenant.clone(),
        url,
        types: check_types(types)?,
        object: None,
        filter: None,
        format: Format::default(),
        workfront: None,
        headers: Vec::new(),
        rate_limit: None,
        policy: SubscriptionPolicy::default(),
        about: About::default(),
        enabled: true,
        created_at: now,
        updated_at: now,
    };
    apply(&state.policy(), &mut subscription, &body)?;
    apply_workfront(&mut subscription, &body, now)?;
    let secret = match &body.secret {
        Patch::Absent | Patch::Null => {
            SigningSecret::generate_symmetric(*draw.secret_bytes::<32>("signing secret")?)
        }
        Patch::Value(given) => check_secret(given)?,
    };
    let token = match &body.auth_token {
        Patch::Absent | Patch::Null => None,
        Patch::Value(token) => Some(check_token(token)?),
    };
    let headers = match &body.headers {
        Patch::Absent | Patch::Null => Vec::new(),
        Patch::Value(headers) => check_headers(headers)?,
    };
    let mut tls = TlsCredentials::default();
    apply_tls(&mut tls, &body, &subscription.url, now)?;
    let credentials = Credentials { secrets: SigningSecrets::new(secret), token, headers, tls };
    // An earlier run of this request may have stored it, and others may have changed it since.
    let is_stored = draw.repeats().is_some()
        && state.store().subscription(&caller.tenant, subscription.id).await?.is_some();
    if !is_stored {
        let wish =
            subscription_uid::Wish { subscription: &subscription, credentials: &credentials };
        let is_secret_given = matches!(body.secret, Patch::Value(_));
        if let Some(existing) = wish.existing(&state, is_secret_given).await? {
            return Ok(Json(existing).into_response());
        }
        match put(&state, &subscription, &credentials).await {
            Ok(()) => {}
            // Another request was faster.
            Err(problem) if problem.code() == Code::UidTaken => {
                let existing = wish.existing(&state, is_secret_given).await?;
                return existing.map(|existing| Json(existing).into_response()).ok_or(problem);
            }
            Err(problem) => return Err(problem),
        }
    }
    let view = SubscriptionView::of(&subscription, &credentials, &state.policy(), now);
    let secret = credentials.secrets.current().expose().to_string();
    Ok((StatusCode::CREATED, Json(SubscriptionWithSecret { view, secret })).into_response())
}

/// Applies the optional fields.
fn apply(
    policy: &Policy,
    subscription: &mut Subscription,
    body: &SubscriptionBody,
) -> Result<(), Problem> {
    match &body.object {
        Patch::Absent => {}
        Patch::Null => subscription.object = None,
        Patch::Value(text) => {
            let object = text.parse().map_err(|error| Problem::field("object", error))?;
            subscription.object = Some(object);
        }
    }
    match &body.filter {
        Patch::Absent => {}
        Patch::Null => subscription.filter = None,
        // A filter that was made by Workfront's API may have more groups than a new one here.
        Patch::Value(filter)
            if subscription.filter.as_ref().is_some_and(|f| f.source() == filter) => {}
        Patch::Value(filter) => subscription.filter = Some(check_filter(filter)?),
    }
    match &body.format {
        Patch::Absent => {}
        Patch::Null => subscription.format = Format::default(),
        Patch::Value(format) => subscription.format = check_format(format)?,
    }
    match body.rate_limit {
        Patch::Absent => {}
        Patch::Null => subscription.rate_limit = None,
        Patch::Value(limit) => {
            let limit = check_rate_limit(limit)?;
            let checked = policy.check_rate_limit(limit);
            checked.map_err(|error| Problem::field(error.field, error.problem))?;
            subscription.rate_limit = Some(limit);
        }
    }
    body.policy.apply(&mut subscription.policy, policy)?;
    match body.enabled {
        Patch::Absent => {}
        Patch::Null => return Err(Problem::field("enabled", "true or false, not null")),
        Patch::Value(enabled) => subscription.enabled = enabled,
    }
    apply_about(&mut subscription.about, body)
}

/// Vets a URL; returns its normal form.
pub(crate) fn vet(state: &ApiState, url: &str) -> Result<String, Problem> {
    let vetted = vet_url(url, &state.egress());
    vetted
        .map(|url| url.as_str().to_owned())
        .map_err(|refusal| Problem::new(Code::UrlRefused, refusal.to_string()).at("url"))
}

/// Stores a new subscription. An earlier run of the request may have stored it, and others may have
/// changed it since.
pub(crate) async fn put_new(
    state: &ApiState,
    draw: &Draw,
    subscription: &Subscription,
    credentials: &Credentials,
) -> Result<(), Problem> {
    let is_stored = draw.repeats().is_some()
        && state.store().subscription(&subscription.tenant, subscription.id).await?.is_some();
    if is_stored { Ok(()) } else { put(state, subscription, credentials).await }
}

pub(crate) async fn put(
    state: &ApiState,
    subscription: &Subscription,
    credentials: &Credentials,
) -> Result<(), Problem> {
    let form = HeaderForm::of(&**state.store()).await?;
    let has_details = !subscription.about.is_empty()
        || !subscription.policy.is_empty()
        || subscription.format == Format::Workfront;
    if has_details && state.store().format().await? < DETAILS_SINCE {
        let detail = "name, description, metadata, uid, policy and the format workfront can be stored when all \
                      nodes of the cluster run this version: upgrade the others, or leave these out";
        return Err(Problem::new(Code::Unavailable, detail));
    }
    let record = credentials.record(state.vault(), subscription, form)?;
    match state.engine().put_subscription(record).await? {
        SubscriptionPut::Stored => Ok(()),
        SubscriptionPut::Twin(id) => {
            let detail = format!(
                "{id} has the same url, types, object, filter and format: change or delete it"
            );
            Err(Problem::new(Code::Twin, detail).existing(id))
        }
        SubscriptionPut::UidTaken(id) => {
            let detail = format!("{id} has this uid: choose another one, or change that one");
            Err(Problem::new(Code::UidTaken, detail).at("uid").existing(id))
        }
    }
}

/// A subscription as it is now.
fn shown(
    state: &ApiState,
    subscription: &Subscription,
    credentials: &Credentials,
) -> SubscriptionView {
    SubscriptionView::of(subscription, credentials, &state.policy(), state.now())
}

async fn find(
    state: &ApiState,
    caller: &Caller,
    id: &PathId,
) -> Result<(Subscription, Credentials), Problem> {
    let record = subscription_uid::find(state, &caller.tenant, &id.0).await?;
    let record = record.ok_or_else(|| id.unknown("subscription"))?;
    let credentials = Credentials::open(state.vault(), &record)?;
    Ok((record.subscription, credentials))
}

impl From<VaultError> for Problem {
    fn from(error: VaultError) -> Self {
        tracing::error!(%error, "a request failed, because a secret cannot be sealed or opened");
        Problem::internal()
    }
}

/// Selects a page.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct PageQuery {
    /// Entries per page, 1 to 1000; 50 by default.
    pub(crate) limit: Option<String>,
    /// The `next_cursor` of the previous page.
    pub(crate) cursor: Option<String>,
}

/// Which subscriptions.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct SubscriptionQuery {
    /// To this destination. A page has at most 100 entries then.
    pub(super) destination: Option<String>,
    /// The one with this identifier of the application.
    pub(super) uid: Option<String>,
    /// A part of the name, the description, the `uid`, the URL or a value of the metadata, at most 200 characters;
    /// upper and lower case are the same. A page has at most 100 entries then.
    pub(super) q: Option<String>,
    /// With this pair in the metadata, as `key:value`. A page has at most 100 entries then.
    pub(super) metadata: Option<String>,
    /// Entries on a page, 1 to 1000; 50 where it is left out.
    limit: Option<String>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
}

/// List subscriptions
///
/// Newest first. An admin key that names the tenant `*` gets those of all tenants, each with its `tenant`, and no
/// other filter.
#[utoipa::path(
    get, path = "/v1/subscriptions", tag = "subscriptions", params(SubscriptionQuery),
    responses((status = 200, body = List<SubscriptionView>, description = "A page of subscriptions"))
)]
pub(crate) async fn list(
    State(state): State<ApiState>,
    CanReadAll(caller): CanReadAll,
    Query(query): Query<SubscriptionQuery>,
) -> Result<Json<List<SubscriptionView>>, Problem> {
    let given =
        [&query.destination, &query.uid, &query.q, &query.metadata].map(|one| one.as_deref());
    // Without new filters the list has the name that cursors of earlier versions are good for.
    let filters = match given {
        [None, None, None, None] => &[],
        [_, None, None, None] => &given[..1],
        [..] => &given[..],
    };
    let tenant = (!caller.sees_all()).then_some(&caller.tenant);
    let list = ListOf { name: "subscriptions", tenant, filters };
    let asked = page(list, query.limit.as_deref(), query.cursor.as_deref())?;
    let records = match (tenant, filters) {
        (None, []) => state.store().subscriptions_of_all(&asked.request).await?,
        (None, _) => {
            return Err(one_tenant("subscriptions of all tenants are listed without filters"));
        }
        (Some(tenant), []) => state.store().subscriptions(tenant, &asked.request).await?,
        (Some(tenant), _) => {
            subscription_search::find(&state, tenant, &query, &asked.request).await?
        }
    };
    let (now, policy) = (state.now(), state.policy());
    let list = List::try_of(&asked, records, |record| {
        let credentials = Credentials::open(state.vault(), &record)?;
        let mut view = SubscriptionView::of(&record.subscription, &credentials, &policy, now);
        view.tenant = caller.sees_all().then(|| record.subscription.tenant.to_string());
        Ok(view)
    });
    list.map(Json)
}

/// Show a subscription
#[utoipa::path(
    get, path = "/v1/subscriptions/{id}", tag = "subscriptions",
    params(("id" = String, Path, description = "The subscription, by its id or its uid")),
    responses((status = 200, body = SubscriptionView, description = "The subscription"))
)]
pub(crate) async fn show(
    State(state): State<ApiState>,
    CanRead(caller): CanRead,
    id: PathId,
) -> Result<Json<SubscriptionView>, Problem> {
    let (subscription, credentials) = find(&state, &caller, &id).await?;
    Ok(Json(shown(&state, &subscription, &credentials)))
}

/// Change a subscription
///
/// Absent fields stay unchanged, null removes a value. A new URL removes the token, the headers and
/// the certificates unless they are given again.
#[utoipa::path(
    patch, path = "/v1/subscriptions/{id}", tag = "subscriptions",
    params(("id" = String, Path, description = "The subscription, by its id or its uid")),
    request_body = SubscriptionBody,
    responses((status = 200, body = SubscriptionView, description = "As it is now"))
)]
pub(crate) async fn change(
    State(state): State<ApiState>,
    CanManage(caller): CanManage,
    id: PathId,
    Strict(body): Strict<SubscriptionBody>,
) -> Result<Json<SubscriptionView>, Problem> {
    let id = subscription_uid::canonical(&state, &caller.tenant, id).await?;
    let lock = state.locks().of_subscription(&caller.tenant, &id.0);
    let _turn = lock.lock().await;
    let (mut subscription, mut credentials) = find(&state, &caller, &id).await?;
    if !matches!(body.secret, Patch::Absent) {
        let how = "not changed here: use POST …/secret/rotate, so that receivers have an overlap";
        return Err(Problem::field("secret", how));
    }
    match &body.url {
        Patch::Absent => {}
        Patch::Null => return Err(Problem::field("url", "cannot be removed: give another one")),
        Patch::Value(url) => {
            let url = vet(&state, url)?;
            if url != subscription.url {
                // A caller who may change the URL must not learn the token or the headers that way,
                // nor use our client certificate.
                credentials.token = None;
                credentials.headers = Vec::new();
                credentials.tls = TlsCredentials::default();
                subscription.destination = DestinationId::of(&caller.tenant, &url);
                subscription.url = url;
            }
        }
    }
    match &body.types {
        Patch::Absent => {}
        Patch::Null => return Err(Problem::field("types", "cannot be removed: give others")),
        Patch::Value(types) => subscription.types = check_types(types)?,
    }
    match &body.auth_token {
        Patch::Absent => {}
        Patch::Null => credentials.token = None,
        Patch::Value(token) => credentials.token = Some(check_token(token)?),
    }
    match &body.headers {
        Patch::Absent => {}
        Patch::Null => credentials.headers = Vec::new(),
        Patch::Value(headers) => credentials.headers = check_headers(headers)?,
    }
    apply_tls(&mut credentials.tls, &body, &subscription.url, state.now())?;
    apply(&state.policy(), &mut subscription, &body)?;
    apply_workfront(&mut subscription, &body, state.now())?;
    subscription.updated_at = state.now();
    put(&state, &subscription, &credentials).await?;
    Ok(Json(shown(&state, &subscription, &credentials)))
}

/// Delete a subscription
///
/// Its unfinished deliveries are cancelled.
#[utoipa::path(
    delete, path = "/v1/subscriptions/{id}", tag = "subscriptions",
    params(("id" = String, Path, description = "The subscription, by its id or its uid")),
    responses((status = 204, description = "Deleted"))
)]
pub(crate) async fn delete(
    State(state): State<ApiState>,
    CanManage(caller): CanManage,
    draw: Draw,
    id: PathId,
) -> Result<StatusCode, Problem> {
    let id = match subscription_uid::canonical(&state, &caller.tenant, id).await {
        // An earlier run of this request has deleted it, and its uid is free.
        Err(_) if draw.repeats().is_some() => return Ok(StatusCode::NO_CONTENT),
        found => found?,
    };
    let lock = state.locks().of_subscription(&caller.tenant, &id.0);
    let _turn = lock.lock().await;
    let deleted =
        state.engine().delete_subscription(&caller.tenant, id.of("subscription")?).await?;
    // An earlier run of this request may have deleted it.
    let is_gone = deleted || draw.repeats().is_some();
    if is_gone { Ok(StatusCode::NO_CONTENT) } else { Err(id.unknown("subscription")) }
}

/// Rotate the secret
///
/// The new secret is shown only in this answer. The replaced one keeps signing for the overlap; a
/// later rotation never shortens that. At most ten secrets sign at the same time: a further
/// rotation is refused with 429 until an overlap has ended.
#[utoipa::path(
    post, path = "/v1/subscriptions/{id}/secret/rotate", tag = "subscriptions",
    params(("id" = String, Path, description = "The subscription, by its id or its uid")),
    request_body = RotateBody,
    responses((status = 200, body = SubscriptionWithSecret, description = "With its new secret"))
)]
pub(crate) async fn rotate(
    State(state): State<ApiState>,
    CanManage(caller): CanManage,
    draw: Draw,
    id: PathId,
    StrictOrNone(body): StrictOrNone<RotateBody>,
) -> Result<Json<SubscriptionWithSecret>, Problem> {
    let overlap = body.overlap_seconds.unwrap_or(OVERLAP_SECONDS_DEFAULT);
    if overlap > OVERLAP_SECONDS_MAX {
        let allowed = format!("a number of seconds from 0 to {OVERLAP_SECONDS_MAX}");
        return Err(Problem::field("overlap_seconds", allowed));
    }
    let id = subscription_uid::canonical(&state, &caller.tenant, id).await?;
    let lock = state.locks().of_subscription(&caller.tenant, &id.0);
    let _turn = lock.lock().await;
    let (mut subscription, mut credentials) = find(&state, &caller, &id).await?;
    let random = *draw.secret_bytes::<32>("signing secret")?;
    // The new secret is of the same kind, so that the receiver verifies as before.
    let secret = match credentials.secrets.current().public_key() {
        None => SigningSecret::generate_symmetric(random),
        Some(_) => SigningSecret::generate_asymmetric(random),
    };
    let shown = secret.expose().to_string();
    // An earlier run of this request may have rotated, and others may have done so since.
    let is_known = |(known, _): (&SigningSecret, _)| *known.expose() == *shown;
    if draw.repeats().is_none() || !credentials.secrets.all().any(is_known) {
        let now = state.now();
        credentials.secrets.rotate(secret, Duration::from_secs(overlap), now).map_err(|error| {
            let seconds = error.until.since(now).as_secs() + 1;
            Problem::new(Code::TooManySecrets, error.to_string()).retry_after(seconds)
        })?;
        subscription.updated_at = now;
        put(&state, &subscription, &credentials).await?;
    }
    let (view, secret) = (self::shown(&state, &subscription, &credentials), shown);
    Ok(Json(SubscriptionWithSecret { view, secret }))
}

/// The outcome of a test.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TestOutcome {
    /// The subscription that was tested.
    subscription_id: String,
    #[serde(flatten)]
    outcome: OutcomeView,
}

/// Send a test event
///
/// Sends a signed event of the type `postrider.test` now and shows the outcome. It is not retried,
/// and the destination's counters do not count it. It counts against the limits of the destination
/// and the tenant like every attempt: 429 if a limit is reached, 409 while the destination is
/// frozen.
#[utoipa::path(
    post, path = "/v1/subscriptions/{id}/test", tag = "subscriptions",
    params(("id" = String, Path, description = "The subscription, by its id or its uid")),
    responses((status = 200, body = TestOutcome, description = "What became of it"))
)]
pub(crate) async fn test(
    State(state): State<ApiState>,
    CanManage(caller): CanManage,
    id: PathId,
    StrictOrNone(Nothing {}): StrictOrNone<Nothing>,
) -> Result<Json<TestOutcome>, Problem> {
    let id = subscription_uid::canonical(&state, &caller.tenant, id).await?;
    let subscription = id.of("subscription")?;
    let finished = state.engine().test_send(&caller.tenant, subscription, test_event()?).await;
    let finished = finished.map_err(|error| id.refused("subscription", error))?;
    let outcome = OutcomeView::of(&finished, caller.is_admin());
    Ok(Json(TestOutcome { subscription_id: id.0, outcome }))
}

/// The test event.
fn test_event() -> Result<NewEvent, Problem> {
    let data = json!({"message": "A test event from Postrider."}).to_string();
    Ok(NewEvent {
        id: None,
        kind: TEST_TYPE.parse().map_err(|_| Problem::internal())?,
        object: None,
        data: RawJson::parse(data.into()).map_err(|_| Problem::internal())?,
        old: None,
        time: None,
        trace: None,
        flagged: None,
    })
}
