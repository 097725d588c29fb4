//! Backups by a running server, for admins.
//!
//! The server writes the copy to a directory on its own machine. One backup runs at a time; its
//! progress can be queried, and the last one is shown until the server ends.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use postrider_domain::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::auth::IsAdmin;
use crate::body::Strict;
use crate::problem::{Code, Problem};
use crate::state::ApiState;

/// The target of a backup.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewBackup)]
pub(crate) struct BackupBody {
    /// A directory of the server's machine, as an absolute path; new or empty.
    #[serde(default)]
    #[schema(value_type = String, required = true, example = "/var/backups/postrider/monday")]
    to: Option<String>,
}

/// The state of a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = BackupState)]
pub(crate) enum BackupState {
    /// The backup is being written.
    Running,
    /// The backup is complete and on stable storage.
    Done,
    /// The backup failed; `error` says why.
    Failed,
}

/// A backup.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = Backup)]
pub(crate) struct BackupView {
    /// The directory.
    to: String,
    state: BackupState,
    /// Bytes written so far.
    bytes: u64,
    #[schema(value_type = String, format = DateTime)]
    started_at: Timestamp,
    #[schema(value_type = Option<String>, format = DateTime)]
    finished_at: Option<Timestamp>,
    /// Why it failed.
    error: Option<String>,
}

/// The running backup, or the last one.
#[derive(Debug, Clone, Default)]
pub(crate) struct BackupStatus(Arc<Mutex<Option<BackupView>>>);

impl BackupStatus {
    fn lock(&self) -> MutexGuard<'_, Option<BackupView>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Back everything up
///
/// Writes a consistent copy of the embedded store to a directory of the server's machine, while the
/// server continues to work. The key ring is not part of it: keep it elsewhere, because whoever has
/// both can read every secret. Back up a server on PostgreSQL with PostgreSQL's own tools.
#[utoipa::path(
    post, path = "/v1/backup", tag = "administration",
    request_body = BackupBody,
    responses((status = 202, body = BackupView, description = "Begun"))
)]
pub(crate) async fn begin(
    State(state): State<ApiState>,
    IsAdmin(_): IsAdmin,
    Strict(body): Strict<BackupBody>,
) -> Result<(StatusCode, Json<BackupView>), Problem> {
    let to = PathBuf::from(body.to.ok_or_else(|| Problem::missing("to"))?);
    if !to.is_absolute() {
        return Err(Problem::field("to", "not an absolute path of the server's machine"));
    }
    let view = BackupView {
        to: to.display().to_string(),
        state: BackupState::Running,
        bytes: 0,
        started_at: state.now(),
        finished_at: None,
        error: None,
    };
    {
        let mut current = state.backups().lock();
        if let Some(other) = current.as_ref().filter(|view| view.state == BackupState::Running) {
            let detail = format!("a backup to {} is being made; wait for it", other.to);
            return Err(Problem::new(Code::WrongState, detail));
        }
        *current = Some(view.clone());
    }
    // A task of its own: the backup continues if the client disconnects.
    drop(tokio::spawn(make(state, to)));
    Ok((StatusCode::ACCEPTED, Json(view)))
}

async fn make(state: ApiState, to: PathBuf) {
    let outcome = state.store().backup(&to).await;
    let bytes = bytes_in(&to).await;
    let mut current = state.backups().lock();
    let Some(view) = current.as_mut() else { return };
    view.bytes = bytes;
    view.finished_at = Some(state.now());
    match outcome {
        Ok(()) => {
            tracing::info!(to = %to.display(), bytes, "backed up");
            view.state = BackupState::Done;
        }
        Err(error) => {
            tracing::error!(to = %to.display(), %error, "a backup failed");
            view.state = BackupState::Failed;
            view.error = Some(error.to_string());
        }
    }
}

/// Show the backup
///
/// The running backup, or the last one since the server started.
#[utoipa::path(
    get, path = "/v1/backup", tag = "administration",
    responses((status = 200, body = BackupView, description = "How far it is"))
)]
pub(crate) async fn show(
    State(state): State<ApiState>,
    IsAdmin(_): IsAdmin,
) -> Result<Json<BackupView>, Problem> {
    let view = state.backups().lock().clone();
    let none = || Problem::new(Code::NotFound, "no backup was made since the server started");
    let mut view = view.ok_or_else(none)?;
    if view.state == BackupState::Running {
        view.bytes = bytes_in(Path::new(&view.to)).await;
    }
    Ok(Json(view))
}

/// The total length of the files written so far.
async fn bytes_in(directory: &Path) -> u64 {
    let directory = directory.to_owned();
    let counted = tokio::task::spawn_blocking(move || {
        let of = |path: &Path| -> u64 {
            let Ok(entries) = std::fs::read_dir(path) else { return 0 };
            let files = entries.flatten().filter_map(|entry| entry.metadata().ok());
            files.filter(std::fs::Metadata::is_file).map(|found| found.len()).sum()
        };
        of(&directory) + of(&directory.join("history"))
    });
    counted.await.unwrap_or(0)
}
