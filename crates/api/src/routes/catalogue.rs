//! What a tenant does with events that do not fit its catalogue.

use axum::Json;
use axum::extract::State;
use postrider_store::{Document, DocumentKind, Expected};

use crate::auth::{CanManage, CanRead};
use crate::body::Strict;
use crate::catalogue::{CONDUCTS, own_conducts};
use crate::problem::{Code, Problem};
use crate::state::ApiState;
use crate::wire::event_type::{CatalogueChange, CatalogueView};

/// Show what is done with events that do not fit
///
/// Those of an unknown type, and those whose `data` does not fit the schema of their type.
#[utoipa::path(
    get, path = "/v1/catalogue", tag = "event types",
    responses((status = 200, body = CatalogueView, description = "What holds for the tenant"))
)]
pub(crate) async fn show(
    State(state): State<ApiState>,
    CanRead(caller): CanRead,
) -> Result<Json<CatalogueView>, Problem> {
    let own = own_conducts(&state, &caller.tenant).await?;
    Ok(Json(CatalogueView::of(own, own.over(state.settings().conducts))))
}

/// Change what is done with events that do not fit
///
/// It holds at once on the server that is asked, and within a few seconds on the other nodes of a cluster.
#[utoipa::path(
    patch, path = "/v1/catalogue", tag = "event types",
    request_body = CatalogueChange,
    responses((status = 200, body = CatalogueView, description = "What holds for the tenant now"))
)]
pub(crate) async fn change(
    State(state): State<ApiState>,
    CanManage(caller): CanManage,
    Strict(body): Strict<CatalogueChange>,
) -> Result<Json<CatalogueView>, Problem> {
    let kind = DocumentKind::EventConducts;
    let there = state.store().document(kind, Some(&caller.tenant), CONDUCTS).await?;
    let own = body.apply(own_conducts(&state, &caller.tenant).await?);
    let document = Document {
        kind,
        tenant: Some(caller.tenant.clone()),
        name: CONDUCTS.to_owned(),
        is_open: false,
        body: serde_json::to_string(&own).map_err(|_| Problem::internal())?,
    };
    let expected = there.map_or(Expected::Nothing, |there| Expected::Body(there.body));
    if !state.store().put_document(&document, &expected).await? {
        let detail = "somebody else changed it at the same moment: look at it and try again";
        return Err(Problem::new(Code::WrongState, detail));
    }
    state.catalogue().forget(Some(&caller.tenant));
    Ok(Json(CatalogueView::of(own, own.over(state.settings().conducts))))
}
