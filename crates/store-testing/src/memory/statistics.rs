//! Statistics of destinations.

use async_trait::async_trait;
use postrider_domain::attempt::Attempt;
use postrider_domain::attempt_tally::{AttemptHour, AttemptTally, first_hour, hour_of, start_of};
use postrider_domain::delivery::Delivery;
use postrider_domain::ids::{DestinationId, TenantId};
use postrider_domain::time::Timestamp;
use postrider_store::{AttemptSums, Statistics, StoreError, SummingUp};

use super::MemoryStore;
use super::state::State;

#[async_trait]
impl Statistics for MemoryStore {
    async fn attempt_sums(
        &self,
        tenant: Option<&TenantId>,
        destinations: &[DestinationId],
        since: [Timestamp; 2],
    ) -> Result<Vec<AttemptSums>, StoreError> {
        self.read(|state| {
            let sum = |id: &DestinationId| {
                let mut sums = SummingUp::new(since);
                let all = state.attempt_hours.range((*id, i64::MIN)..=(*id, i64::MAX));
                for ((_, hour), (whose, attempts)) in all.rev() {
                    if tenant.is_none_or(|tenant| tenant == whose) {
                        let mut attempts = attempts.clone();
                        attempts.trim();
                        sums.add(*hour, &attempts);
                    }
                }
                sums.done()
            };
            Ok(destinations.iter().map(sum).collect())
        })
        .await
    }

    async fn attempt_hours(
        &self,
        tenant: &TenantId,
        destination: DestinationId,
        since: Timestamp,
    ) -> Result<Vec<(Timestamp, AttemptTally)>, StoreError> {
        self.read(|state| {
            let since = (destination, first_hour(since));
            let all = state.attempt_hours.range(since..=(destination, i64::MAX));
            let theirs = all.filter(|(_, (whose, _))| whose == tenant);
            Ok(theirs.map(|((_, hour), (_, one))| (start_of(*hour), one.tally)).collect())
        })
        .await
    }

    async fn forget_attempt_hours(&self, before: Timestamp) -> Result<u64, StoreError> {
        self.write(move |state| {
            let had = state.attempt_hours.len();
            state.attempt_hours.retain(|(_, hour), _| *hour >= first_hour(before));
            Ok(u64::try_from(had - state.attempt_hours.len()).unwrap_or(u64::MAX))
        })
        .await
    }
}

impl State {
    /// Counts an attempt, if its destination exists.
    pub(super) fn count_attempt(&mut self, delivery: &Delivery, attempt: &Attempt) {
        let (tenant, destination) = (&delivery.tenant, delivery.destination);
        if self.destinations.contains_key(&(tenant.clone(), destination)) {
            let hour = self.attempt_hours.entry((destination, hour_of(attempt.started_at)));
            let (_, hour) = hour.or_insert_with(|| (tenant.clone(), AttemptHour::default()));
            hour.count(attempt);
        }
    }
}
