//! The HTTP API. **No SQL, no scheduling**: reads go to the store, and changes go through the
//! engine.
//!
//! | question | module |
//! |---|---|
//! | who is asking, and may they? | [`auth`], and without a key [`session`] |
//! | what is a caller told when something is wrong? | [`problem`] |
//! | how are secrets kept? | [`vault`], [`credentials`] |
//! | what goes in and out? | `wire`, one file per resource |
//! | what happens on a path? | `routes`, one file per resource |
//! | how much may one tenant have at the same time? | `admission`, `gate`, `budget` |
//! | what if a request comes twice? | [`idempotency`] |
//! | what if its caller goes away? | `running_mutations` |
//! | who did what? | `audit` |
//! | what does it look like to a client of Workfront? | `workfront` |
//! | what is it made of? | [`state`], [`settings`] |
//! | what does only the process know? | [`process`] |

mod admission;
mod audit;
pub mod auth;
mod body;
mod budget;
mod catalogue;
pub mod credentials;
mod document;
mod draw;
mod erasing;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod gate;
pub mod idempotency;
mod layers;
mod live_feed;
mod locks;
mod paging;
mod peek;
pub mod problem;
pub mod process;
mod random;
mod rates;
mod routes;
mod running_mutations;
mod scopes;
pub mod session;
pub mod settings;
pub mod state;
pub mod vault;
mod web_origin;
mod wire;
mod workfront;

use axum::Router;
use axum::middleware::from_fn_with_state;
use tower_http::catch_panic::CatchPanicLayer;

pub use audit::{AuditError, note_operator, note_server};
pub use auth::{Bootstrap, BootstrapError, GivenAdmin, bootstrap_admin, reset_admin};
pub use budget::Quota;
pub use document::openapi;
pub use layers::ClientAddress;
pub use routes::page::has_page;
pub use scopes::{Needs, scopes_of};
pub use session::link::{SIGN_IN_LINK_LIFETIME, SignInLinkError, sign_in_token};
pub use session::origin::OverTls;
pub use settings::{ApiSettings, InvalidOrigin, Origin, Origins, Rate};
pub use state::{ApiParts, ApiState, RenderMetrics};
pub use vault::{KeyRing, Vault};
pub use workfront::openapi as workfront_openapi;

/// The router of all paths.
pub fn router(state: ApiState) -> Router {
    let guarded =
        routes::guarded().route_layer(from_fn_with_state(state.clone(), auth::authenticate));
    let (router, _) = guarded.merge(routes::open()).split_for_parts();
    let mut router = router.merge(routes::page::routes());
    if state.settings().workfront {
        router = router.merge(workfront::router(state.clone()));
    }
    around(router, state)
}

/// Health and metrics alone, for a listener of their own.
pub fn health_router(state: ApiState) -> Router {
    around(routes::health().split_for_parts().0, state)
}

/// Metrics alone, for a listener of their own.
pub fn metrics_router(state: ApiState) -> Router {
    let alone = axum::routing::get(routes::meta::metrics_alone);
    around(Router::new().route("/metrics", alone), state)
}

fn around(router: Router<ApiState>, state: ApiState) -> Router {
    router
        .method_not_allowed_fallback(layers::wrong_method)
        .fallback(layers::unknown_path)
        .layer(CatchPanicLayer::custom(layers::panicked))
        .layer(from_fn_with_state(state.clone(), layers::around))
        .with_state(state)
}
