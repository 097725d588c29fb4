//! How people end an outage: they have what waits sent now, in bulk, and enable a destination with all
//! that it owes.

use std::time::Duration;

use postrider_domain::delivery::StateName;
use postrider_domain::ids::{DestinationId, ReplayId};
use postrider_domain::policy::RecoveryMode;
use postrider_domain::time::Timestamp;
use postrider_engine::{CommandError, Enabling, NewReplay};
use postrider_store::DeliveryFilter;

use super::{Crashed, World};
use crate::coverage::Cover;
use crate::random::Random;

/// How long anybody waits for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

impl World {
    /// Somebody has everything that waits attempted now: at one destination, or of a whole tenant.
    pub fn retry_many(&mut self, id: DestinationId, chance: &mut Random) -> Result<(), Crashed> {
        let Some(tenant) = self.tenant_of(id) else { return Ok(()) };
        let at = chance.chance(600).then_some(id);
        let per_second = chance.chance(500).then_some(5);
        let pauses = chance.chance(300);
        let wish = self.wish_for_waiting(id, at, per_second);
        let done = self.inside(|engine| async move {
            let job = engine.start_replay(&tenant, wish).await?;
            if pauses {
                crate::clock::pause(300).await;
                engine.pause_replay(&tenant, job.id).await?;
                crate::clock::pause(60_000).await;
                engine.resume_replay(&tenant, job.id).await?;
            }
            Ok::<(), CommandError>(())
        })?;
        if matches!(done, Err(CommandError::Frozen { .. })) {
            self.oracle().coverage.hit(Cover::RetryBulkRefused);
        }
        Ok(())
    }

    /// The same for one destination, at a rate, and without pauses.
    pub fn retry_all(&mut self, id: DestinationId, per_second: u32) -> Result<(), Crashed> {
        let Some(tenant) = self.tenant_of(id) else { return Ok(()) };
        let wish = self.wish_for_waiting(id, Some(id), Some(per_second));
        let done = self.inside(|engine| async move { engine.start_replay(&tenant, wish).await })?;
        if let Err(error) = done {
            let what = format!("a bulk retry was refused: {error}");
            self.oracle().violate(what, None, Some(id));
        }
        Ok(())
    }

    fn wish_for_waiting(
        &mut self,
        asked_at: DestinationId,
        only: Option<DestinationId>,
        per_second: Option<u32>,
    ) -> NewReplay {
        let mut oracle = self.oracle();
        oracle.bulk_replay = true;
        oracle.note("bulk retry", None, Some(asked_at), 0);
        let filter = DeliveryFilter {
            state: Some(StateName::Waiting),
            destination: only,
            ..DeliveryFilter::default()
        };
        drop(oracle);
        NewReplay { filter, per_second, id: Some(self.asked_job(asked_at)) }
    }

    /// The identifier of a job that somebody starts.
    pub(super) fn asked_job(&mut self, at: DestinationId) -> ReplayId {
        let mut random = [0; 10];
        random[..8].copy_from_slice(&self.number().to_be_bytes());
        let id = ReplayId::run_by_owner(Timestamp::from_unix_ms(self.now), random, at);
        self.oracle().job_is_asked_for(id);
        id
    }

    /// Somebody enables a destination and has what waits drained, what died replayed, or both.
    pub fn enable_and_send(
        &mut self,
        id: DestinationId,
        drains: bool,
        replays: bool,
    ) -> Result<(), Crashed> {
        let Some(tenant) = self.tenant_of(id) else { return Ok(()) };
        self.ask_by_hand(id, true);
        {
            let mut oracle = self.oracle();
            oracle.bulk_replay |= replays;
            if let Some(dest) = oracle.destinations.get_mut(&id) {
                dest.drain_asked |= drains;
            }
        }
        let replay = replays.then(|| self.asked_job(id));
        let wish = Enabling {
            replay,
            waiting: drains.then_some(RecoveryMode::Drain),
            dead_since: replays.then_some(Timestamp::EPOCH),
            ..Enabling::default()
        };
        let done = self.inside(|engine| async move {
            tokio::time::timeout(PATIENCE, engine.enable_and_send(&tenant, id, wish)).await
        })?;
        let mut oracle = self.oracle();
        if matches!(done, Ok(Ok(_))) {
            if let Some(dest) = oracle.destinations.get_mut(&id) {
                dest.enable_asked = false;
            }
            if drains {
                oracle.coverage.hit(Cover::DrainedByHand);
            }
            if replays {
                oracle.coverage.hit(Cover::EnabledWithDead);
            }
        }
        Ok(())
    }
}
