//! Workfront's calls: create, list, show, delete, change versions, and enable a URL.
//!
//! Only subscriptions that this API can express are shown by it: those of the format `workfront` with
//! one type such as `TASK.UPDATE`. To all other identifiers it answers 404.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use axum::Json;
use axum::extract::State;
use axum::http::header::{HeaderName, LOCATION};
use axum::http::{HeaderValue, StatusCode};
use futures_util::stream::{self, StreamExt as _};
use postrider_domain::ids::{DestinationId, SubscriptionId};
use postrider_domain::limits::{
    PAGE_BYTES_MAX, PAGE_MAX, REASON_CHARS_MAX, WORKFRONT_VERSION_IDS_MAX,
};
use postrider_domain::payload::Format;
use postrider_domain::policy::SubscriptionPolicy;
use postrider_domain::signature::{SigningSecret, SigningSecrets};
use postrider_domain::subscription::{About, Subscription, TypeSet};
use postrider_domain::workfront::{Subject, Version, WorkfrontOptions};
use postrider_store::{DestinationRecord, SubscriptionRecord};

use super::SUBSCRIPTIONS;
use super::wire::{
    AskedPage, DeprecatedView, MetaView, PageQuery, PageView, SubscriptionBody, SubscriptionView,
    VersionBody, VersionView, VersionsBody, VersionsView, check_version, location,
};
use crate::auth::{Caller, CanManage, CanRead};
use crate::body::{Strict, StrictOrNone};
use crate::credentials::{Credentials, TlsCredentials};
use crate::draw::Draw;
use crate::paging::Query;
use crate::problem::{Code, Problem};
use crate::routes::PathId;
use crate::routes::subscriptions::{put, put_new, vet};
use crate::session::origin::OwnOrigin;
use crate::state::ApiState;
use crate::wire::check_text;
use crate::wire::destination::ReasonBody;

/// Subscriptions on a page where the caller names no limit.
const LIMIT_DEFAULT: usize = 100;
/// Versions that are changed at the same time by one request.
const CHANGES_AT_ONCE: usize = 16;

/// Create a subscription
///
/// The header `Location` of the answer names it. A subscription that gets the same events at the same
/// URL as an existing one is refused with 409.
#[utoipa::path(
    post, path = "/attask/eventsubscription/api/v1/subscriptions", tag = "subscriptions",
    request_body = SubscriptionBody,
    responses((status = 201, body = VersionView, description = "Created"))
)]
pub(super) async fn create(
    State(state): State<ApiState>,
    CanManage(caller): CanManage,
    own: OwnOrigin,
    draw: Draw,
    Strict(body): Strict<SubscriptionBody>,
) -> Result<(StatusCode, [(HeaderName, HeaderValue); 1], Json<VersionView>), Problem> {
    let now = draw.created_at(&state);
    let Some(url) = &body.url else { return Err(Problem::missing("url")) };
    let wish = body.check()?;
    let url = vet(&state, url)?;
    let pattern = wish.subject.event_type().parse().map_err(|_| Problem::internal())?;
    let version = wish.options.version;
    let subscription = Subscription {
        id: SubscriptionId::new(now, draw.bytes("subscription id")?),
        destination: DestinationId::of(&caller.tenant, &url),
        tenant: caller.tenant.clone(),
        url,
        types: TypeSet::new([pattern]).map_err(|_| Problem::internal())?,
        object: wish.object,
        filter: wish.filter,
        format: Format::Workfront,
        workfront: Some(Box::new(wish.options)),
        headers: Vec::new(),
        rate_limit: None,
        policy: SubscriptionPolicy::default(),
        about: About::default(),
        enabled: true,
        created_at: now,
        updated_at: now,
    };
    // Workfront signs nothing. Ours does all the same; `/v1` rotates the secret for who wants it.
    let secret = SigningSecret::generate_symmetric(*draw.secret_bytes::<32>("signing secret")?);
    let credentials = Credentials {
        secrets: SigningSecrets::new(secret),
        token: Some(wish.token),
        headers: Vec::new(),
        tls: TlsCredentials::default(),
    };
    put_new(&state, &draw, &subscription, &credentials).await?;
    let id = subscription.id.to_string();
    let base = state.settings().public_url.as_ref().map_or(own.0.as_str(), |url| url.as_str());
    let location = location(base, SUBSCRIPTIONS, &id)?;
    let view = VersionView { id, version: version.as_str() };
    Ok((StatusCode::CREATED, [(LOCATION, location)], Json(view)))
}

/// List subscriptions
///
/// Oldest first.
#[utoipa::path(
    get, path = "/attask/eventsubscription/api/v1/subscriptions", tag = "subscriptions",
    params(PageQuery),
    responses((status = 200, body = PageView, description = "A page of subscriptions"))
)]
pub(super) async fn list(
    State(state): State<ApiState>,
    CanRead(caller): CanRead,
    Query(query): Query<PageQuery>,
) -> Result<Json<PageView>, Problem> {
    page(&state, &caller, query.check(LIMIT_DEFAULT)?).await.map(Json)
}

/// List subscriptions in the deprecated shape
///
/// Oldest first, at most 1000 of them.
#[utoipa::path(
    get, path = "/attask/eventsubscription/api/v1/subscriptions/list", tag = "subscriptions",
    params(PageQuery),
    responses((status = 200, body = Vec<DeprecatedView>, description = "The subscriptions"))
)]
pub(super) async fn list_deprecated(
    State(state): State<ApiState>,
    CanRead(caller): CanRead,
    Query(query): Query<PageQuery>,
) -> Result<Json<Vec<DeprecatedView>>, Problem> {
    let page = page(&state, &caller, query.check(PAGE_MAX)?).await?;
    Ok(Json(page.subscriptions.into_iter().map(DeprecatedView::of).collect()))
}

async fn page(state: &ApiState, caller: &Caller, asked: AskedPage) -> Result<PageView, Problem> {
    let ids = expressible(state, caller);
    let (total_count, AskedPage { page, limit }) = (ids.len(), asked);
    let mut destinations = BTreeMap::new();
    let (mut subscriptions, mut bytes) = (Vec::new(), 0_usize);
    for id in ids.into_iter().skip((page - 1).saturating_mul(limit)).take(limit) {
        // One that was deleted since is left out.
        let Some(record) = state.store().subscription(&caller.tenant, id).await? else { continue };
        let filters = WorkfrontOptions::of(&record.subscription).filters.as_ref();
        bytes += filters.map_or(0, |filters| filters.to_string().len());
        if bytes > PAGE_BYTES_MAX {
            let why = format!("the filters on this page are larger than {PAGE_BYTES_MAX} bytes");
            let detail = format!("{why}: ask for fewer, by `limit`");
            return Err(Problem::new(Code::TooMuchWork, detail).at("limit"));
        }
        let to = record.subscription.destination;
        let destination = match destinations.entry(to) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                place.insert(state.store().destination(&caller.tenant, to).await?)
            }
        };
        let destination = destination.as_ref();
        subscriptions.extend(view(state, &record, destination)?);
    }
    let meta = MetaView { page, page_count: total_count.div_ceil(limit), limit, total_count };
    Ok(PageView { subscriptions, meta })
}

/// The subscriptions that this API can express, oldest first.
fn expressible(state: &ApiState, caller: &Caller) -> Vec<SubscriptionId> {
    let index = state.engine().subscriptions_of(&caller.tenant);
    let all = index.iter().flat_map(|index| index.newest_first(None));
    let mut ids: Vec<SubscriptionId> =
        all.filter(|one| Subject::of(one).is_some()).map(|one| one.id).collect();
    ids.reverse();
    ids
}

/// Show a subscription
#[utoipa::path(
    get, path = "/attask/eventsubscription/api/v1/subscriptions/{id}", tag = "subscriptions",
    params(("id" = String, Path, description = "The subscription")),
    responses((status = 200, body = SubscriptionView, description = "The subscription"))
)]
pub(super) async fn show(
    State(state): State<ApiState>,
    CanRead(caller): CanRead,
    id: PathId,
) -> Result<Json<SubscriptionView>, Problem> {
    let record = find(&state, &caller, &id).await?;
    shown(&state, &caller, &id, &record).await
}

async fn shown(
    state: &ApiState,
    caller: &Caller,
    id: &PathId,
    record: &SubscriptionRecord,
) -> Result<Json<SubscriptionView>, Problem> {
    let to = record.subscription.destination;
    let destination = state.store().destination(&caller.tenant, to).await?;
    let view = view(state, record, destination.as_ref())?;
    view.map(Json).ok_or_else(|| id.unknown("subscription"))
}

/// The record of a subscription that this API can express.
async fn find(
    state: &ApiState,
    caller: &Caller,
    id: &PathId,
) -> Result<SubscriptionRecord, Problem> {
    let record = lookup(state, caller, id).await?;
    record.ok_or_else(|| id.unknown("subscription"))
}

async fn lookup(
    state: &ApiState,
    caller: &Caller,
    id: &PathId,
) -> Result<Option<SubscriptionRecord>, Problem> {
    let record = state.store().subscription(&caller.tenant, id.of("subscription")?).await?;
    Ok(record.filter(|record| Subject::of(&record.subscription).is_some()))
}

fn view(
    state: &ApiState,
    record: &SubscriptionRecord,
    destination: Option<&DestinationRecord>,
) -> Result<Option<SubscriptionView>, Problem> {
    let Some(subject) = Subject::of(&record.subscription) else { return Ok(None) };
    let credentials = Credentials::open(state.vault(), record)?;
    Ok(Some(SubscriptionView::of(&record.subscription, subject, &credentials, destination)))
}

/// Delete a subscription
///
/// Its unfinished deliveries are cancelled.
#[utoipa::path(
    delete, path = "/attask/eventsubscription/api/v1/subscriptions/{id}", tag = "subscriptions",
    params(("id" = String, Path, description = "The subscription")),
    responses((status = 200, description = "Deleted"))
)]
pub(super) async fn delete(
    State(state): State<ApiState>,
    CanManage(caller): CanManage,
    draw: Draw,
    id: PathId,
) -> Result<StatusCode, Problem> {
    let lock = state.locks().of_subscription(&caller.tenant, &id.0);
    let _turn = lock.lock().await;
    let subscription = match find(&state, &caller, &id).await {
        Ok(record) => record.subscription.id,
        // An earlier run of this request may have deleted it.
        Err(_) if draw.repeats().is_some() => return Ok(StatusCode::OK),
        Err(problem) => return Err(problem),
    };
    state.engine().delete_subscription(&caller.tenant, subscription).await?;
    Ok(StatusCode::OK)
}

/// Change the version of a subscription
///
/// For five minutes every event is sent in both versions.
#[utoipa::path(
    put, path = "/attask/eventsubscription/api/v1/subscriptions/{id}/version",
    tag = "versions", params(("id" = String, Path, description = "The subscription")),
    request_body = VersionBody,
    responses((status = 200, body = VersionView, description = "Its version now"))
)]
pub(super) async fn change_version(
    State(state): State<ApiState>,
    CanManage(caller): CanManage,
    id: PathId,
    Strict(body): Strict<VersionBody>,
) -> Result<Json<VersionView>, Problem> {
    let version = check_version(&body.version.ok_or_else(|| Problem::missing("version"))?)?;
    if !set_version(&state, &caller, &id, version).await? {
        return Err(id.unknown("subscription"));
    }
    Ok(Json(VersionView { id: id.0, version: version.as_str() }))
}

/// Change the version of several subscriptions
///
/// Of those that are named, or of all of the customer. Nothing is changed if one of those that are
/// named does not exist. The answer leaves out one that is deleted meanwhile. Repeating the request is
/// safe.
#[utoipa::path(
    put, path = "/attask/eventsubscription/api/v1/subscriptions/version", tag = "versions",
    request_body = VersionsBody,
    responses((status = 200, body = VersionsView, description = "Their version now"))
)]
pub(super) async fn change_versions(
    State(state): State<ApiState>,
    CanManage(caller): CanManage,
    Strict(body): Strict<VersionsBody>,
) -> Result<Json<VersionsView>, Problem> {
    let version = check_version(&body.version.ok_or_else(|| Problem::missing("version"))?)?;
    let ids = match (body.subscription_ids, body.all_customer_subscriptions) {
        (Some(ids), None | Some(false)) => named(&state, &caller, ids).await?,
        (None, Some(true)) => {
            expressible(&state, &caller).iter().map(|id| PathId(id.to_string())).collect()
        }
        (Some(_), Some(true)) | (None, None | Some(false)) => {
            let why = "give subscriptionIds, or allCustomerSubscriptions as true";
            return Err(Problem::field("subscriptionIds", why));
        }
    };
    let changes = ids.into_iter().map(|id| {
        let (state, caller) = (state.clone(), caller.clone());
        async move {
            let is_there = set_version(&state, &caller, &id, version).await?;
            Ok(is_there.then_some(id.0))
        }
    });
    let changed: Vec<Result<Option<String>, Problem>> =
        stream::iter(changes).buffered(CHANGES_AT_ONCE).collect().await;
    let changed = changed.into_iter().collect::<Result<Vec<_>, Problem>>()?;
    let subscription_ids = changed.into_iter().flatten().collect();
    Ok(Json(VersionsView { subscription_ids, version: version.as_str() }))
}

/// Checks that all of these exist, so that an unknown one leaves the others unchanged.
async fn named(
    state: &ApiState,
    caller: &Caller,
    ids: Vec<String>,
) -> Result<Vec<PathId>, Problem> {
    if ids.is_empty() || ids.len() > WORKFRONT_VERSION_IDS_MAX {
        let why = format!("1 to {WORKFRONT_VERSION_IDS_MAX} identifiers");
        return Err(Problem::field("subscriptionIds", why));
    }
    let mut known = Vec::with_capacity(ids.len());
    for (n, id) in ids.into_iter().enumerate() {
        let id = PathId(id);
        // Workfront's answer here is 400, not 404.
        if let Err(problem) = find(state, caller, &id).await {
            let is_unknown = problem == id.unknown("subscription");
            let why = "there is no such subscription";
            let unknown = || Problem::field(format!("subscriptionIds[{n}]"), why);
            return Err(if is_unknown { unknown() } else { problem });
        }
        known.push(id);
    }
    Ok(known)
}

/// Sets the version; returns false if the subscription does not exist.
async fn set_version(
    state: &ApiState,
    caller: &Caller,
    id: &PathId,
    version: Version,
) -> Result<bool, Problem> {
    let lock = state.locks().of_subscription(&caller.tenant, &id.0);
    let _turn = lock.lock().await;
    let Some(record) = lookup(state, caller, id).await? else { return Ok(false) };
    let credentials = Credentials::open(state.vault(), &record)?;
    let (mut subscription, now) = (record.subscription, state.now());
    let mut options = WorkfrontOptions::of(&subscription).clone();
    if !options.change_version(version, now) {
        return Ok(true);
    }
    subscription.workfront = Some(Box::new(options));
    subscription.updated_at = now;
    put(state, &subscription, &credentials).await?;
    Ok(true)
}

/// Enable the URL of a subscription
///
/// Workfront does this by request to its support. The same as `POST /v1/destinations/{id}/enable`: the
/// only way out of frozen, for all subscriptions with this URL.
#[utoipa::path(
    post, path = "/attask/eventsubscription/api/v1/subscriptions/{id}/enable",
    tag = "subscriptions", params(("id" = String, Path, description = "The subscription")),
    request_body = ReasonBody,
    responses((status = 200, body = SubscriptionView, description = "As it is now"))
)]
pub(super) async fn enable(
    State(state): State<ApiState>,
    CanManage(caller): CanManage,
    id: PathId,
    StrictOrNone(body): StrictOrNone<ReasonBody>,
) -> Result<Json<SubscriptionView>, Problem> {
    let reason = check_text("reason", body.reason, REASON_CHARS_MAX)?;
    let record = find(&state, &caller, &id).await?;
    let to = record.subscription.destination;
    let enabled = state.engine().enable(&caller.tenant, to, reason).await;
    let destination = enabled.map_err(|error| id.refused("subscription", error))?;
    let view = view(&state, &record, Some(&destination))?;
    view.map(Json).ok_or_else(|| id.unknown("subscription"))
}
