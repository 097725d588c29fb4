//! PostgreSQL as the source and as the target of a transfer.

mod read;
mod write;

use std::time::Duration;

use async_trait::async_trait;
use tokio_postgres::Row;
use uuid::Uuid;

use super::PostgresStore;
use super::error::corrupt;
use super::pool::Scope;
use super::rows::{get, unsigned};
use crate::error::StoreError;
use crate::transfer::{Batch, Item, Progress, Source, Target, Totals, TransferPosition};

/// How long counting everything may take.
const LONGEST: Duration = Duration::from_secs(3_600);

/// Counts everything in one snapshot. The query reads most of the tables, so no index makes it
/// faster.
const COUNT: &str = "SELECT \
     (SELECT count(*) FROM postrider.tenants) + (SELECT count(*) FROM postrider.keys) \
     + (SELECT count(*) FROM postrider.subscriptions) \
     + (SELECT count(*) FROM postrider.destinations) \
     + (SELECT count(*) FROM postrider.transitions) + (SELECT count(*) FROM postrider.answers) \
     + (SELECT count(*) FROM postrider.audit) \
     + (SELECT count(*) FROM postrider.documents) \
     + (SELECT count(*) FROM postrider.replays) \
     + (SELECT count(*) FROM postrider.attempt_hours AS h WHERE EXISTS ( \
        SELECT 1 FROM postrider.destinations AS d \
        WHERE d.id = h.destination AND d.tenant = h.tenant)) \
     + (SELECT count(DISTINCT tenant) FROM (SELECT tenant FROM postrider.ledgers UNION ALL \
        SELECT tenant FROM postrider.ledger_deltas) AS l) \
     + (SELECT count(DISTINCT (tenant, minute)) FROM (SELECT tenant, minute \
        FROM postrider.tallies UNION ALL SELECT tenant, minute FROM postrider.tally_deltas) AS t) \
     AS others, \
     (SELECT count(*) FROM postrider.events) AS events, \
     (SELECT count(*) FROM postrider.deliveries_open) \
     + (SELECT count(*) FROM postrider.deliveries_done) AS deliveries, \
     (SELECT count(*) FROM postrider.attempts) AS attempts";

impl PostgresStore {
    /// Refuses to run on a database into which a transfer is unfinished.
    pub(super) async fn refuse_unfinished(&self) -> Result<(), StoreError> {
        let sql = "SELECT progress FROM postrider.transfer";
        match progress(self.core.pool.query_opt(Scope::All, sql, &[]).await?.as_ref())? {
            Some(progress) if !progress.finished => Err(StoreError::NotWritable {
                place: "the database".into(),
                cause: "a move into it is not finished; run the same `postrider migrate` again"
                    .into(),
            }),
            Some(_) | None => Ok(()),
        }
    }
}

/// The progress of a transfer into the database; `None` if none has begun.
pub(super) fn progress(row: Option<&Row>) -> Result<Option<Progress>, StoreError> {
    row.map(|row| super::rows::json(row, "progress")).transpose()
}

#[async_trait]
impl Source for PostgresStore {
    async fn identity(&self) -> Result<String, StoreError> {
        let sql = "SELECT id FROM postrider.identity";
        let row = self.core.pool.query_opt(Scope::All, sql, &[]).await?;
        let row = row.ok_or_else(|| corrupt("identity", "it is empty"))?;
        Ok(get::<Uuid>(&row, "id")?.simple().to_string())
    }

    async fn running(&self) -> Result<Vec<String>, StoreError> {
        let sql = "SELECT name FROM postrider.nodes WHERE expires_at > clock_timestamp() \
                   ORDER BY name";
        let rows = self.core.pool.query(Scope::All, sql, &[]).await?;
        rows.iter().map(|row| get(row, "name")).collect()
    }

    async fn totals(&self) -> Result<Totals, StoreError> {
        let mut transaction = self.core.pool.begin(Scope::All).await?;
        transaction.take_time(LONGEST).await?;
        let plan = "SET LOCAL enable_seqscan = on; SET LOCAL enable_sort = on";
        transaction.batch(plan).await?;
        let rows = transaction.query(COUNT, &[]).await?;
        transaction.commit().await?;
        let Some(row) = rows.first() else { return Ok(Totals::default()) };
        let n = |column| get(row, column).map(unsigned);
        let (events, deliveries, attempts) = (n("events")?, n("deliveries")?, n("attempts")?);
        let records = n("others")? + events + deliveries + attempts;
        Ok(Totals { records, events, deliveries, attempts })
    }

    async fn read(
        &self,
        place: &TransferPosition,
        records_max: usize,
    ) -> Result<Batch, StoreError> {
        self.read_part(place.part, place.mark.as_deref(), records_max).await
    }
}

#[async_trait]
impl Target for PostgresStore {
    async fn take_over(&self) -> Result<Option<Progress>, StoreError> {
        let run = self.core.leases.instance();
        let row = self.core.pool.query_opt(Scope::All, write::TAKE_OVER, &[&run]).await?;
        progress(row.as_ref())
    }

    async fn write(&self, items: Vec<Item>, progress: &Progress) -> Result<(), StoreError> {
        self.write_items(&items, progress).await
    }
}
