//! Every path of the API, one file per resource. A route that is not collected here is not served,
//! and one that is served is in the OpenAPI document, but for the files of the web page.

pub(crate) mod alerts;
pub(crate) mod audit;
pub(crate) mod backup;
pub(crate) mod catalogue;
pub(crate) mod config;
pub(crate) mod deliveries;
pub(crate) mod destination_stats;
pub(crate) mod destination_summary;
pub(crate) mod destinations;
pub(crate) mod docs;
pub(crate) mod erasures;
pub(crate) mod event_types;
pub(crate) mod events;
pub(crate) mod filter_trials;
pub(crate) mod filters;
pub(crate) mod keys;
pub(crate) mod ledger;
pub(crate) mod limits;
pub(crate) mod matches;
pub(crate) mod meta;
pub(crate) mod page;
pub(crate) mod policy;
pub(crate) mod portal_links;
pub(crate) mod replays;
pub(crate) mod server;
pub(crate) mod session;
pub(crate) mod simulate;
pub(crate) mod stream;
mod subscription_search;
pub(crate) mod subscription_uid;
pub(crate) mod subscriptions;
pub(crate) mod tenants;

use std::str::FromStr;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use postrider_engine::{Busy, CommandError};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::problem::{Code, Problem};
use crate::state::ApiState;

/// Paths that need a key.
pub(crate) fn guarded() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(events::accept, events::list))
        .routes(routes!(events::accept_batch))
        .routes(routes!(events::show))
        .routes(routes!(subscriptions::list, subscriptions::create))
        .routes(routes!(subscriptions::show, subscriptions::change, subscriptions::delete))
        .routes(routes!(subscriptions::rotate))
        .routes(routes!(subscriptions::test))
        .routes(routes!(destinations::list))
        .routes(routes!(destinations::show))
        .routes(routes!(destinations::enable))
        .routes(routes!(destinations::freeze))
        .routes(routes!(destinations::timeline))
        .routes(routes!(deliveries::list))
        .routes(routes!(deliveries::show))
        .routes(routes!(deliveries::attempts))
        .routes(routes!(deliveries::explain))
        .routes(routes!(deliveries::replay))
        .routes(routes!(deliveries::retry))
        .routes(routes!(deliveries::cancel))
        .routes(routes!(replays::list, replays::create))
        .routes(routes!(replays::show))
        .routes(routes!(replays::pause))
        .routes(routes!(replays::resume))
        .routes(routes!(replays::cancel))
        .routes(routes!(ledger::ledger))
        .routes(routes!(ledger::stats))
        .routes(routes!(limits::limits))
        .routes(routes!(filters::test))
        .routes(routes!(stream::stream))
        .routes(routes!(tenants::list, tenants::create))
        .routes(routes!(tenants::show, tenants::change, tenants::delete))
        .routes(routes!(keys::list, keys::create))
        .routes(routes!(keys::show, keys::delete))
        .routes(routes!(backup::show, backup::begin))
        .routes(routes!(alerts::list))
        .routes(routes!(alerts::test))
        .routes(routes!(audit::list))
        .routes(routes!(event_types::list, event_types::create))
        .routes(routes!(event_types::show, event_types::change, event_types::delete))
        .routes(routes!(catalogue::show, catalogue::change))
        .routes(routes!(erasures::list, erasures::create))
        .routes(routes!(erasures::show))
        .routes(routes!(session::show))
        .routes(routes!(portal_links::list, portal_links::create))
        .routes(routes!(portal_links::delete))
        .merge(reads())
}

/// What is only looked at.
fn reads() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(policy::policy))
        .routes(routes!(simulate::simulate))
        .routes(routes!(config::config))
        .routes(routes!(server::server))
        .routes(routes!(destination_summary::summary))
        .routes(routes!(destination_stats::of_several))
        .routes(routes!(destination_stats::of_one))
        .routes(routes!(matches::matches))
        .routes(routes!(filter_trials::test_events))
        .routes(routes!(deliveries::request::request))
        .routes(routes!(deliveries::summaries::due))
        .routes(routes!(deliveries::summaries::dead))
}

/// Paths that need no key.
pub(crate) fn open() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .merge(health())
        .routes(routes!(meta::openapi_json))
        .routes(routes!(docs::page))
        .route("/docs/style.css", axum::routing::get(docs::style))
        .route("/docs/search.js", axum::routing::get(docs::script))
        .routes(routes!(session::create, session::delete))
        .routes(routes!(portal_links::show_logo))
}

/// Health and metrics.
pub(crate) fn health() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(meta::metrics))
        .routes(routes!(meta::healthz))
        .routes(routes!(meta::readyz))
}

/// The id in a path, not yet parsed.
pub(crate) struct PathId(pub(crate) String);

impl PathId {
    /// Parses the id; a malformed one is answered with 404.
    pub(crate) fn of<T: FromStr>(&self, what: &str) -> Result<T, Problem> {
        self.0.parse().map_err(|_| self.unknown(what))
    }

    /// The problem for an error of the engine.
    pub(crate) fn refused(&self, what: &str, error: CommandError) -> Problem {
        match error {
            CommandError::NotFound => self.unknown(what),
            CommandError::WrongState(_)
            | CommandError::SubscriptionGone
            | CommandError::JobEnded
            | CommandError::NotReplayable
            | CommandError::Quota(_)
            | CommandError::Frozen { .. }
            | CommandError::Full { .. }
            | CommandError::Moved
            | CommandError::Stopping
            | CommandError::Store(_) => error.into(),
        }
    }

    /// The problem for an unknown record.
    pub(crate) fn unknown(&self, what: &str) -> Problem {
        Problem::not_found(what, &self.0)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for PathId {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = axum::extract::Path::<String>::from_request_parts(parts, state).await;
        path.map(|path| PathId(path.0)).map_err(|_| Problem::not_found("thing with the id", "?"))
    }
}

impl From<CommandError> for Problem {
    fn from(error: CommandError) -> Self {
        match error {
            CommandError::NotFound => Problem::new(Code::NotFound, error.to_string()),
            CommandError::WrongState(_)
            | CommandError::SubscriptionGone
            | CommandError::Frozen { .. }
            | CommandError::JobEnded => Problem::new(Code::WrongState, error.to_string()),
            CommandError::Full { retry_after, is_own, .. } => {
                let code = if is_own { Code::RateLimited } else { Code::Unavailable };
                let seconds = retry_after.as_secs() + u64::from(retry_after.subsec_nanos() > 0);
                Problem::new(code, error.to_string()).retry_after(seconds)
            }
            CommandError::NotReplayable => Problem::field("state", error),
            CommandError::Quota(reached) => reached.into(),
            CommandError::Moved => Problem::new(Code::Unavailable, error.to_string()),
            CommandError::Stopping => stopping(),
            CommandError::Store(error) => error.into(),
        }
    }
}

/// The problem if the threads for large work are busy.
pub(crate) fn busy(busy: Busy) -> Problem {
    let detail = format!("{busy}: repeat the request after a pause");
    let problem = match busy {
        Busy::Tenant => Problem::new(Code::RateLimited, detail),
        Busy::All => Problem::new(Code::Unavailable, detail),
    };
    problem.retry_after(busy.retry_after().as_secs())
}

/// The problem of a server that is shutting down.
pub(crate) fn stopping() -> Problem {
    Problem::new(Code::Unavailable, "the server is stopping: repeat the request in a moment")
}
