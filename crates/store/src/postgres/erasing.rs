//! Erasing payloads: one transaction for each event.
//!
//! The event is locked by its identifier, so that two nodes that erase it follow each other. PostgreSQL keeps the old
//! versions of rows until its vacuum removes them, and its write-ahead log keeps them longer: that is its operator's.

use async_trait::async_trait;
use postrider_domain::ids::{EventId, TenantId};
use postrider_domain::time::Timestamp;

use super::PostgresStore;
use super::pool::Scope;
use super::rows::{event, get, to_json};
use crate::erasing::{Erasing, EventErasure};
use crate::error::StoreError;

#[async_trait]
impl Erasing for PostgresStore {
    async fn erase_event(
        &self,
        tenant: &TenantId,
        id: &EventId,
        now: Timestamp,
    ) -> Result<EventErasure, StoreError> {
        let mut transaction = self.core.pool.begin(Scope::Tenant(tenant)).await?;
        let (tenant, id) = (tenant.as_str(), id.as_str());
        let sql = "SELECT accepted_at FROM postrider.event_ids WHERE tenant = $1 AND id = $2 \
                   FOR UPDATE";
        let found = transaction.query(sql, &[&tenant, &id]).await?;
        let Some(row) = found.first() else {
            transaction.rollback().await?;
            return Ok(EventErasure::NotFound);
        };
        let accepted_at: i64 = get(row, "accepted_at")?;
        // The deliveries of an event have its time, so they are found by time.
        let sql = "SELECT 1 FROM postrider.deliveries_open WHERE tenant = $1 AND created_at = $2 \
                   AND event = $3 LIMIT 1";
        if !transaction.query(sql, &[&tenant, &accepted_at, &id]).await?.is_empty() {
            transaction.rollback().await?;
            return Ok(EventErasure::Unfinished);
        }
        let sql = "SELECT * FROM postrider.events WHERE tenant = $1 AND accepted_at = $2 \
                   AND id = $3";
        let found = transaction.query(sql, &[&tenant, &accepted_at, &id]).await?;
        let Some(row) = found.first() else {
            transaction.rollback().await?;
            return Ok(EventErasure::NotFound);
        };
        let record = event(row)?;
        let sql = "UPDATE postrider.attempts AS a SET body = ''::bytea \
                   FROM postrider.deliveries_done AS d WHERE d.tenant = $1 AND d.created_at = $2 \
                   AND d.event = $3 AND a.delivery = d.id AND a.created_at = d.created_at \
                   AND octet_length(a.body) > 0";
        let attempts = transaction.execute(sql, &[&tenant, &accepted_at, &id]).await?;
        let was_erased = record.event.is_erased();
        if !was_erased {
            let mark = to_json(&record.mark.erased(now))?;
            let sql = "UPDATE postrider.events SET data = ''::bytea, old = NULL, mark = $4 \
                       WHERE tenant = $1 AND accepted_at = $2 AND id = $3";
            transaction.execute(sql, &[&tenant, &accepted_at, &id, &mark]).await?;
            let sql = "UPDATE postrider.event_ids SET fingerprint = decode(repeat('00', 32), 'hex') \
                       WHERE tenant = $1 AND id = $2";
            transaction.execute(sql, &[&tenant, &id]).await?;
        }
        transaction.commit().await?;
        Ok(match was_erased {
            true => EventErasure::Already { attempts },
            false => EventErasure::Erased { attempts },
        })
    }

    async fn scrub_erased(&self) -> Result<(), StoreError> {
        Ok(())
    }
}
