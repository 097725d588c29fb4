//! Bulk replays.

use serde::{Deserialize, Serialize};

use super::{get, post, post_json};
use crate::call::{Call, path};
use crate::client::Client;
use crate::error::Error;
use crate::list::List;
use crate::types::{NewReplay, Replay};

/// Bulk replays.
#[derive(Clone, Copy)]
pub struct Replays<'a> {
    pub(crate) client: &'a Client,
}

#[derive(Serialize)]
struct DryRun<'a> {
    #[serde(flatten)]
    replay: &'a NewReplay,
    dry_run: bool,
}

#[derive(Deserialize)]
struct Counted {
    total: u64,
}

impl Replays<'_> {
    /// Begins a replay.
    ///
    /// # Errors
    /// As every call.
    pub async fn create(&self, replay: &NewReplay) -> Result<Replay, Error> {
        post_json(self.client, &["replays"], replay).await
    }

    /// How many deliveries such a replay would send. Nothing is sent.
    ///
    /// # Errors
    /// As every call.
    pub async fn count(&self, replay: &NewReplay) -> Result<u64, Error> {
        let body = DryRun { replay, dry_run: true };
        Ok(post_json::<Counted>(self.client, &["replays"], &body).await?.total)
    }

    /// One replay with its progress.
    ///
    /// # Errors
    /// As every call.
    pub async fn get(&self, id: &str) -> Result<Replay, Error> {
        get(self.client, &["replays", id]).await
    }

    /// Replays, newest first.
    pub fn list(&self) -> List<Replay> {
        List::new(self.client, path(&["replays"]).map(Call::get))
    }

    /// Pauses a replay.
    ///
    /// # Errors
    /// As every call.
    pub async fn pause(&self, id: &str) -> Result<Replay, Error> {
        post(self.client, &["replays", id, "pause"]).await
    }

    /// Resumes a paused replay.
    ///
    /// # Errors
    /// As every call.
    pub async fn resume(&self, id: &str) -> Result<Replay, Error> {
        post(self.client, &["replays", id, "resume"]).await
    }

    /// Ends a replay.
    ///
    /// # Errors
    /// As every call.
    pub async fn cancel(&self, id: &str) -> Result<Replay, Error> {
        post(self.client, &["replays", id, "cancel"]).await
    }
}
