//! Test sends take in-flight capacity like every attempt: of the destination, of the tenant and of
//! the server.

use std::time::Duration;

use postrider_domain::ids::TenantId;

use super::destinations::DestIx;
use super::messages::{Reply, Trial};
use super::state::Core;
use crate::handle::CommandError;

/// The `Retry-After` if the limits are reached: an attempt ends within seconds.
const RETRY_AFTER: Duration = Duration::from_secs(1);

impl Core {
    /// Reserves in-flight capacity for a test send, or answers why that is not possible.
    pub(super) fn begin_trial(&mut self, ix: DestIx, tenant: &TenantId, reply: Reply<Trial>) {
        let admitted = self.admit_trial(ix, tenant).map(|()| {
            self.count_trial(ix, true);
            Trial(ix)
        });
        if let Err(Ok(trial)) = reply.send(admitted) {
            // The caller has gone away.
            self.end_trial(&trial);
        }
    }

    /// Releases the capacity of a test send that has ended.
    pub(super) fn end_trial(&mut self, trial: &Trial) {
        self.count_trial(trial.0, false);
        self.rings.freed = true;
        self.activate(trial.0);
    }

    fn count_trial(&mut self, ix: DestIx, begins: bool) {
        let dest = &mut self.table.dests[ix.get()];
        dest.used_at = self.now;
        let tenant = &mut self.table.tenants[dest.tenant];
        if begins {
            dest.in_flight += 1;
            tenant.in_flight += 1;
            self.table.in_flight.first += 1;
        } else {
            dest.in_flight -= 1;
            tenant.in_flight -= 1;
            self.table.in_flight.first -= 1;
        }
    }

    fn admit_trial(&mut self, ix: DestIx, tenant: &TenantId) -> Result<(), CommandError> {
        if self.shutdown.is_begun() {
            return Err(CommandError::Stopping);
        }
        if self.table.dests[ix.get()].record.tenant != *tenant {
            return Err(CommandError::NotFound);
        }
        self.refuse_frozen(ix)?;
        let dest = &self.table.dests[ix.get()];
        let full =
            |what: String, is_own| CommandError::Full { what, retry_after: RETRY_AFTER, is_own };
        let (in_flight, max) = (self.table.in_flight.total(), self.options.in_flight_max);
        let limit = dest.limit.get(in_flight * 2 >= max);
        if dest.in_flight >= limit {
            let what = format!("the destination has {limit} attempts in flight, as many as it may");
            return Err(full(what, true));
        }
        if self.tenant_block(dest.tenant, 0).is_some() && in_flight < max {
            let what = "the tenant has as many attempts in flight as it may";
            return Err(full(what.to_owned(), true));
        }
        if in_flight >= max {
            return Err(full("as many attempts are in flight as may be".to_owned(), false));
        }
        let now = self.now;
        let bucket = self.table.dests[ix.get()].bucket.as_mut();
        match bucket.map(|bucket| bucket.take(1, now)) {
            Some(Err(at)) => {
                let what = "the rate limit of the destination is used up".to_owned();
                Err(CommandError::Full { what, retry_after: at.since(now), is_own: true })
            }
            Some(Ok(())) | None => Ok(()),
        }
    }
}
