//! Destinations that nothing uses: no subscription and no unfinished delivery.
//!
//! They are marked with the time since when, left out of lists, and removed later. **A destination that is
//! used again before that still has its circuit.**

use postrider_domain::ids::{DestinationId, TenantId};
use postrider_domain::time::Timestamp;
use uuid::Uuid;

use super::StoreState;
use super::pool::{Scope, Transaction};
use super::rows::{self, count, parse, uuid};
use crate::error::StoreError;

/// Whether nothing uses the destination `d`. A subscription that is marked as deleted uses it until it is
/// removed.
const IS_UNUSED: &str = "NOT EXISTS (SELECT 1 FROM postrider.subscriptions AS s \
         WHERE s.tenant = d.tenant AND s.destination = d.id) \
     AND NOT EXISTS (SELECT 1 FROM postrider.deliveries_open AS o \
         WHERE o.destination = d.id AND o.tenant = d.tenant)";

/// Marks a destination as unused since a time, if nothing uses it.
pub(super) async fn mark(
    transaction: &mut Transaction<'_>,
    tenant: &str,
    id: Uuid,
    since: i64,
) -> Result<(), StoreError> {
    let sql = format!(
        "UPDATE postrider.destinations AS d SET unused_since = $3 \
         WHERE id = $2 AND tenant = $1 AND unused_since IS NULL AND {IS_UNUSED}"
    );
    transaction.execute(&sql, &[&tenant, &id, &since]).await?;
    Ok(())
}

/// Takes the mark from a destination that a subscription uses.
pub(super) async fn use_again(
    transaction: &mut Transaction<'_>,
    tenant: &str,
    id: Uuid,
) -> Result<(), StoreError> {
    let sql = "UPDATE postrider.destinations SET unused_since = NULL \
               WHERE id = $2 AND tenant = $1 AND unused_since IS NOT NULL";
    transaction.execute(sql, &[&tenant, &id]).await?;
    Ok(())
}

impl StoreState {
    /// Brings marks up to date, at most `limit` at a time, and returns destinations that are unused since before
    /// `before`.
    pub(super) async fn unused_destinations(
        &self,
        now: Timestamp,
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<(TenantId, DestinationId)>, StoreError> {
        let (now, before, most) = (now.as_unix_ms(), before.as_unix_ms(), count(limit));
        let clear = format!(
            "UPDATE postrider.destinations AS d SET unused_since = NULL \
             WHERE unused_since IS NOT NULL AND NOT ({IS_UNUSED}) RETURNING 1"
        );
        self.vital.query(Scope::All, &clear, &[]).await?;
        let set = format!(
            "UPDATE postrider.destinations AS u SET unused_since = $1 \
             FROM (SELECT tenant, id FROM postrider.destinations AS d \
                   WHERE unused_since IS NULL AND {IS_UNUSED} ORDER BY id LIMIT $2) AS found \
             WHERE u.tenant = found.tenant AND u.id = found.id RETURNING 1"
        );
        self.vital.query(Scope::All, &set, &[&now, &most]).await?;
        let sql = "SELECT tenant, id FROM postrider.destinations \
                   WHERE unused_since IS NOT NULL AND unused_since < $1 \
                   ORDER BY unused_since LIMIT $2";
        let rows = self.vital.query(Scope::All, sql, &[&before, &most]).await?;
        let read =
            |row| Ok((parse(row, "tenant")?, DestinationId::from_bytes(rows::id(row, "id")?)));
        rows.iter().map(read).collect()
    }

    /// Removes a destination with its timeline and statistics, if it is unused since before `before`.
    pub(super) async fn remove_destination(
        &self,
        tenant: &TenantId,
        id: DestinationId,
        before: Timestamp,
    ) -> Result<bool, StoreError> {
        let (whose, to, before) = (tenant.as_str(), uuid(id.as_bytes()), before.as_unix_ms());
        let mut transaction = self.vital.begin(Scope::Tenant(tenant)).await?;
        // Nobody creates a subscription to it meanwhile.
        super::configuration::lock_twins(&mut transaction, tenant).await?;
        let sql = format!(
            "DELETE FROM postrider.destinations AS d \
             WHERE id = $2 AND tenant = $1 AND unused_since < $3 AND {IS_UNUSED}"
        );
        let is_gone = transaction.execute(&sql, &[&whose, &to, &before]).await? > 0;
        if is_gone {
            for table in ["transitions", "attempt_hours"] {
                let sql =
                    format!("DELETE FROM postrider.{table} WHERE tenant = $1 AND destination = $2");
                transaction.execute(&sql, &[&whose, &to]).await?;
            }
        }
        transaction.commit().await?;
        Ok(is_gone)
    }
}
