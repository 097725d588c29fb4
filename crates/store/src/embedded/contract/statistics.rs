//! Statistics of destinations: sums of their hours, and pruning.

use async_trait::async_trait;
use postrider_domain::attempt_tally::{AttemptTally, first_hour, start_of};
use postrider_domain::ids::{DestinationId, TenantId};
use postrider_domain::time::Timestamp;
use rusqlite::params;

use super::history::unsigned;
use crate::embedded::EmbeddedStore;
use crate::embedded::apply::Needs;
use crate::embedded::files::At;
use crate::embedded::files::read_pool::ReadGuard;
use crate::embedded::files::rows;
use crate::error::StoreError;
use crate::statistics::{AttemptSums, Statistics, SummingUp};

/// How many hours are removed in one transaction: the applier does nothing else meanwhile.
const CHUNK: i64 = 20_000;

/// SQL: whether the destination is the tenant's, or any tenant's where that is null.
const IS_THEIRS: &str = "(?2 IS NULL
    OR EXISTS (SELECT 1 FROM destinations AS d WHERE d.id = ?1 AND d.tenant = ?2))";

#[async_trait]
impl Statistics for EmbeddedStore {
    async fn attempt_sums(
        &self,
        tenant: Option<&TenantId>,
        destinations: &[DestinationId],
        since: [Timestamp; 2],
    ) -> Result<Vec<AttemptSums>, StoreError> {
        let (whose, destinations) = (tenant.cloned(), destinations.to_vec());
        let needs = Needs::AttemptsAt(destinations.clone());
        let read = move |guard: &ReadGuard<'_>| {
            guard.main(|connection, path| {
                let find = format!(
                    "{} WHERE destination = ?1 AND {IS_THEIRS} ORDER BY hour DESC",
                    rows::ATTEMPT_HOURS
                );
                let whose = whose.as_ref().map(TenantId::as_str);
                let sum = |id: &DestinationId| {
                    let values = params![id.as_bytes().as_slice(), whose];
                    let make = rows::attempt_hour_of;
                    let hours = rows::all(connection, path, "attempt_hours", &find, values, make)?;
                    let mut sums = SummingUp::new(since);
                    hours.iter().for_each(|(hour, attempts)| sums.add(*hour, attempts));
                    Ok(sums.done())
                };
                destinations.iter().map(sum).collect()
            })
        };
        match tenant {
            Some(tenant) => self.read_list(tenant, needs, read).await,
            None => self.read_list_of_all(read).await,
        }
    }

    async fn attempt_hours(
        &self,
        tenant: &TenantId,
        destination: DestinationId,
        since: Timestamp,
    ) -> Result<Vec<(Timestamp, AttemptTally)>, StoreError> {
        let (whose, needs) = (tenant.clone(), Needs::AttemptsAt(vec![destination]));
        self.read_list(tenant, needs, move |guard| {
            guard.main(|connection, path| {
                let find = format!(
                    "{} WHERE destination = ?1 AND hour >= ?3 AND {IS_THEIRS} ORDER BY hour",
                    rows::ATTEMPT_HOURS
                );
                let id = destination.as_bytes().as_slice();
                let values = params![id, whose.as_str(), first_hour(since)];
                rows::all(connection, path, "attempt_hours", &find, values, |reading| {
                    let (hour, attempts) = rows::attempt_hour_of(reading)?;
                    Ok((start_of(hour), attempts.tally))
                })
            })
        })
        .await
    }

    async fn forget_attempt_hours(&self, before: Timestamp) -> Result<u64, StoreError> {
        let mut forgotten = 0;
        loop {
            let gone = self.change(move |transaction, path| {
                let delete = "DELETE FROM attempt_hours WHERE (destination, hour) IN
                    (SELECT destination, hour FROM attempt_hours WHERE hour < ?1 LIMIT ?2)";
                let gone = transaction.execute(delete, [first_hour(before), CHUNK]).at(path)?;
                Ok(i64::try_from(gone).unwrap_or(i64::MAX))
            });
            let gone = gone.await?;
            forgotten += unsigned(gone);
            if gone < CHUNK {
                return Ok(forgotten);
            }
        }
    }
}
