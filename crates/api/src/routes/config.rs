//! The effective configuration, for admins.

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::auth::IsAdmin;
use crate::problem::Problem;
use crate::process::Setting;
use crate::state::ApiState;

/// Every setting of the node that answers.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Configuration)]
pub(crate) struct ConfigView {
    /// In the order of the documents.
    data: Vec<SettingView>,
}

/// One setting.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Setting)]
struct SettingView {
    /// The name of the setting, such as `retry.max`.
    #[schema(example = "retry.max")]
    key: &'static str,
    /// As it would be written in the file; null where it is not set, `***` where it is a secret.
    #[schema(value_type = Option<Value>)]
    value: Value,
    /// Where it comes from: `default`, `file`, `env` or `flag`.
    #[schema(example = "file")]
    origin: &'static str,
    /// The same, exactly: file and line, variable or flag.
    place: String,
    /// What it is.
    help: &'static str,
    /// Whether a running server takes a change of it (SIGHUP); else it needs a restart.
    live: bool,
}

impl SettingView {
    fn of(setting: Setting) -> Self {
        let Setting { key, value, origin, place, help, live } = setting;
        SettingView { key, value, origin, place, help, live }
    }
}

/// Show the configuration
///
/// Every setting of the node that answers, with the origin of its value, as `postrider config --json`
/// prints it. Secrets are masked.
#[utoipa::path(
    get, path = "/v1/config", tag = "administration",
    responses((status = 200, body = ConfigView, description = "The configuration"))
)]
pub(crate) async fn config(
    State(state): State<ApiState>,
    IsAdmin(_): IsAdmin,
) -> Result<Json<ConfigView>, Problem> {
    let data = state.process().settings().into_iter().map(SettingView::of).collect();
    Ok(Json(ConfigView { data }))
}
