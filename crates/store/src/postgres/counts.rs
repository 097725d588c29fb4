//! The rows that a transaction adds to the ledger and to the charts.
//!
//! A transaction appends rows and updates no counter, so no two transactions wait for each other.
//! [`fold`] moves the rows into the sums; a read adds up both.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use postrider_domain::attempt::Attempt;
use postrider_domain::delivery::{Delivery, StateName};
use postrider_domain::ledger::{LedgerDelta, Movement, movement};
use postrider_domain::time::Timestamp;
use tokio_postgres::types::ToSql;

use super::pool::{Pool, Scope};
use super::rows::count;
use crate::error::StoreError;

/// Milliseconds of a minute.
pub(super) const MINUTE_MS: i64 = 60_000;

/// An advisory lock, held while rows are folded.
const FOLD_LOCK: i64 = 0x706f_7374_0003;

#[derive(Default)]
struct Tally {
    accepted: i64,
    delivered: i64,
    failed: i64,
    dead: i64,
}

/// All counts that a transaction adds.
#[derive(Default)]
pub(super) struct Counts<'a> {
    accounts: BTreeMap<&'a str, LedgerDelta>,
    tallies: BTreeMap<(&'a str, i64), Tally>,
}

impl<'a> Counts<'a> {
    pub(super) fn accepted(&mut self, tenant: &'a str, at: Timestamp, deliveries: usize) {
        if deliveries > 0 {
            let n = count(deliveries);
            self.accounts.entry(tenant).or_default().accept(n);
            self.tally(tenant, at).accepted += n;
        }
    }

    /// Counts a delivery's change of state, and the attempt that caused it, if any.
    pub(super) fn moved(
        &mut self,
        before: StateName,
        delivery: &'a Delivery,
        attempt: Option<&Attempt>,
    ) {
        let tenant = delivery.tenant.as_str();
        let Movement { step, delivered_at, dead_at, failed_at, waiting: _ } =
            movement(before, delivery, attempt);
        if let Some(step) = step {
            self.accounts.entry(tenant).or_default().apply(step);
        }
        if let Some(at) = delivered_at {
            self.tally(tenant, at).delivered += 1;
        }
        if let Some(at) = dead_at {
            self.tally(tenant, at).dead += 1;
        }
        if let Some(at) = failed_at {
            self.tally(tenant, at).failed += 1;
        }
    }

    fn tally(&mut self, tenant: &'a str, at: Timestamp) -> &mut Tally {
        self.tallies.entry((tenant, at.as_unix_ms().div_euclid(MINUTE_MS))).or_default()
    }

    pub(super) fn columns(self) -> (LedgerColumns<'a>, TallyColumns<'a>) {
        let (mut ledger, mut tallies) = (LedgerColumns::default(), TallyColumns::default());
        for (tenant, delta) in self.accounts {
            ledger.0.push(tenant);
            ledger.1.iter_mut().zip(delta.columns()).for_each(|(column, n)| column.push(n));
        }
        for ((tenant, minute), t) in self.tallies {
            tallies.0.push(tenant);
            let numbers = [minute, t.accepted, t.delivered, t.failed, t.dead];
            tallies.1.iter_mut().zip(numbers).for_each(|(column, n)| column.push(n));
        }
        (ledger, tallies)
    }
}

/// Rows of `ledger_deltas`.
#[derive(Default)]
pub(super) struct LedgerColumns<'a>(Vec<&'a str>, [Vec<i64>; 6]);

/// Rows of `tally_deltas`.
#[derive(Default)]
pub(super) struct TallyColumns<'a>(Vec<&'a str>, [Vec<i64>; 5]);

impl LedgerColumns<'_> {
    pub(super) const SQL: &'static str = "INSERT INTO postrider.ledger_deltas SELECT * FROM \
         unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], \
         $7::bigint[])";

    pub(super) fn all(&self) -> Vec<&(dyn ToSql + Sync)> {
        let columns = self.1.iter().map(|column| column as &(dyn ToSql + Sync));
        std::iter::once(&self.0 as &(dyn ToSql + Sync)).chain(columns).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl TallyColumns<'_> {
    pub(super) const SQL: &'static str = "INSERT INTO postrider.tally_deltas SELECT * FROM \
         unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[])";

    pub(super) fn all(&self) -> Vec<&(dyn ToSql + Sync)> {
        let columns = self.1.iter().map(|column| column as &(dyn ToSql + Sync));
        std::iter::once(&self.0 as &(dyn ToSql + Sync)).chain(columns).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

const FOLD_LEDGER: &str = "\
    WITH gone AS (DELETE FROM postrider.ledger_deltas RETURNING *) \
    INSERT INTO postrider.ledgers AS l \
    SELECT tenant, sum(accepted), sum(queued), sum(waiting), sum(delivered), sum(dead), \
           sum(cancelled) FROM gone GROUP BY tenant \
    ON CONFLICT (tenant) DO UPDATE SET accepted = l.accepted + excluded.accepted, \
        queued = l.queued + excluded.queued, waiting = l.waiting + excluded.waiting, \
        delivered = l.delivered + excluded.delivered, dead = l.dead + excluded.dead, \
        cancelled = l.cancelled + excluded.cancelled";

const FOLD_TALLIES: &str = "\
    WITH gone AS (DELETE FROM postrider.tally_deltas RETURNING *) \
    INSERT INTO postrider.tallies AS t \
    SELECT tenant, minute, sum(accepted), sum(delivered), sum(failed), sum(dead) \
    FROM gone GROUP BY tenant, minute \
    ON CONFLICT (tenant, minute) DO UPDATE SET accepted = t.accepted + excluded.accepted, \
        delivered = t.delivered + excluded.delivered, failed = t.failed + excluded.failed, \
        dead = t.dead + excluded.dead";

/// Counts this node's transactions that appended rows, to decide when to fold.
#[derive(Default)]
pub(super) struct Folding(AtomicU64);

impl Folding {
    const DUE: u64 = 100;

    /// Records that a transaction appended rows.
    pub(super) fn appended(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) async fn fold_if_due(&self, pool: &Pool) -> Result<(), StoreError> {
        if self.0.load(Ordering::Relaxed) < Self::DUE {
            return Ok(());
        }
        self.0.store(0, Ordering::Relaxed);
        fold(pool).await
    }
}

/// Moves the appended rows into the sums, unless another node is doing it.
pub(super) async fn fold(pool: &Pool) -> Result<(), StoreError> {
    let mut transaction = pool.begin(Scope::All).await?;
    let locked = transaction.query("SELECT pg_try_advisory_xact_lock($1)", &[&FOLD_LOCK]).await?;
    if locked.first().is_some_and(|row| row.get(0)) {
        transaction.execute(FOLD_LEDGER, &[]).await?;
        transaction.execute(FOLD_TALLIES, &[]).await?;
    }
    transaction.commit().await
}
