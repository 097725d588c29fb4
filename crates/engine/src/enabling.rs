//! Enabling a destination by hand, and what is sent to it then.

use postrider_domain::delivery::StateName;
use postrider_domain::destination::Destination;
use postrider_domain::ids::{DestinationId, ReplayId, TenantId};
use postrider_domain::policy::{DeadRecovery, RecoveryMode};
use postrider_domain::time::Timestamp;
use postrider_store::{DeliveryFilter, ReplayJob};

use crate::cluster::PeerRequest;
use crate::core::{Command, OnDestination, Reopening};
use crate::entropy::ten;
use crate::handle::{CommandError, EngineHandle};
use crate::new_replay::NewReplay;
use crate::quotas::StartedBy;

/// How somebody enables a destination, and what is to be sent to it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Enabling {
    /// The reason, which is shown in the destination's timeline.
    pub reason: Option<String>,
    /// Whether deliveries that wait for a retry follow their slots or drain; `None` for what the
    /// policy says.
    pub waiting: Option<RecoveryMode>,
    /// Replays deliveries of this destination that died at this time or later.
    pub dead_since: Option<Timestamp>,
    /// The identifier of that replay; `None` to generate one.
    pub replay: Option<ReplayId>,
}

impl EngineHandle {
    /// Enables a destination: closes its circuit and resets its counters. The only way out of
    /// frozen.
    pub async fn enable(
        &self,
        tenant: &TenantId,
        destination: DestinationId,
        reason: Option<String>,
    ) -> Result<Destination, CommandError> {
        let wish = Enabling { reason, ..Enabling::default() };
        Ok(self.enable_and_send(tenant, destination, wish).await?.0)
    }

    /// Enables a destination, and as requested drains its waiting deliveries, replays its dead
    /// ones, or both. Returns the replay job, if there is one.
    pub async fn enable_and_send(
        &self,
        tenant: &TenantId,
        destination: DestinationId,
        wish: Enabling,
    ) -> Result<(Destination, Option<ReplayJob>), CommandError> {
        let how = Reopening {
            drains: wish.waiting.map(|mode| mode == RecoveryMode::Drain),
            replays_dead: wish.dead_since.is_some(),
        };
        if how.replays_dead {
            // Check the quota first: a refused call must not enable the destination.
            self.admit_replay(tenant, StartedBy::Somebody, true).await?;
        }
        let (owner, reason) = (tenant.clone(), wish.reason.clone());
        let request = PeerRequest::Enable { tenant: owner, destination, reason, how };
        let here = || self.enable_here(tenant, destination, wish.reason.clone(), how);
        let enabled = self.at_owner(tenant, destination, request, here).await?;
        let Some(since) = wish.dead_since else { return Ok((enabled, None)) };
        let now = self.shared.clock.now();
        let filter = DeliveryFilter {
            state: Some(StateName::Dead),
            destination: Some(destination),
            ended_since: Some(since),
            ..DeliveryFilter::default()
        };
        let replay = NewReplay {
            id: Some(wish.replay.unwrap_or_else(|| {
                let random = ten(&*self.shared.entropy);
                ReplayId::run_by_owner(now, random, destination)
            })),
            filter,
            per_second: Some(self.pace_of_request(tenant, destination)),
        };
        let job = self.start_replay(tenant, replay).await?;
        Ok((enabled, Some(job)))
    }

    /// How many dead deliveries a second a replay that was requested with an enabling sends. If the
    /// policy replays the dead of an outage too, both jobs run at half the pace; each delivery is
    /// replayed by the first that comes to it.
    fn pace_of_request(&self, tenant: &TenantId, destination: DestinationId) -> u32 {
        let pace = self.policy().recovery.dead_per_second;
        match self.destination_policy(tenant, destination).dead_recovery() {
            DeadRecovery::Keep => pace,
            DeadRecovery::Replay => (pace / 2).max(1),
        }
    }

    pub(crate) async fn enable_here(
        &self,
        tenant: &TenantId,
        destination: DestinationId,
        reason: Option<String>,
        how: Reopening,
    ) -> Result<Destination, CommandError> {
        let tenant = tenant.clone();
        self.ask(|reply| {
            let enable = OnDestination::Enable { tenant, destination, reason, how, reply };
            Command::OnDestination(enable)
        })
        .await?
    }
}
