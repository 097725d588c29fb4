//! Tenants, keys, subscriptions and their destinations.

use async_trait::async_trait;
use postrider_domain::access::Scope as KeyScope;
use postrider_domain::ids::{DestinationId, SubscriptionId, SubscriptionUid, TenantId};
use postrider_domain::limits::PAGE_BYTES_MAX;
use postrider_domain::time::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::PostgresStore;
use super::error::corrupt;
use super::nodes::Kind;
use super::notify::CHANGES;
use super::paging::{cursor, limit, page, page_within, place, single, within};
use super::pool::{Scope, Transaction};
use super::rows::{self, get, json, ms, parse, shard, time, time_opt, to_json, uuid};
use super::unused_destinations;
use crate::contract::Configuration;
use crate::error::StoreError;
use crate::records::{
    Cursor, DestinationRecord, IdempotentAnswer, Key, Page, PageRequest, ShardLeases,
    SubscriptionPut, SubscriptionRecord, Tenant, TenantDetails,
};

/// An advisory lock, taken together with the tenant's number while a subscription is stored: it
/// prevents twins.
const TWINS_LOCK: i32 = 0x706f_7374;

#[async_trait]
impl Configuration for PostgresStore {
    async fn create_tenant(&self, tenant: &Tenant) -> Result<bool, StoreError> {
        let sql = "INSERT INTO postrider.tenants (id, name, created_at, details) \
                   VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING RETURNING 1";
        let Tenant { id, name, created_at, .. } = tenant;
        let (id, at, details) = (id.as_str(), created_at.as_unix_ms(), details_text(tenant)?);
        let params: [&(dyn ToSql + Sync); 4] = [&id, name, &at, &details];
        Ok(!self.core.pool.query(Scope::All, sql, &params).await?.is_empty())
    }

    async fn update_tenant(&self, tenant: &Tenant) -> Result<bool, StoreError> {
        let Tenant { id, name, .. } = tenant;
        let mut transaction = self.core.pool.begin(Scope::Tenant(id)).await?;
        let sql = "UPDATE postrider.tenants SET name = $2, details = $3 WHERE id = $1";
        let params: [&(dyn ToSql + Sync); 3] = [&id.as_str(), name, &details_text(tenant)?];
        let existed = transaction.execute(sql, &params).await? > 0;
        if existed {
            note(&mut transaction, Kind::Tenant, id, id.as_str()).await?;
        }
        transaction.commit().await?;
        Ok(existed)
    }

    async fn tenant(&self, id: &TenantId) -> Result<Option<Tenant>, StoreError> {
        let sql = "SELECT * FROM postrider.tenants WHERE id = $1";
        let row = self.core.pool.query_opt(Scope::Tenant(id), sql, &[&id.as_str()]).await?;
        row.as_ref().map(tenant).transpose()
    }

    async fn tenants(&self, request: &PageRequest) -> Result<Page<Tenant>, StoreError> {
        let after: Option<TenantId> = single(request)?;
        let after = after.as_ref().map_or("", TenantId::as_str);
        let sql = "SELECT * FROM postrider.tenants WHERE id > $1 ORDER BY id LIMIT $2";
        let rows = self.core.lists.query(Scope::All, sql, &[&after, &limit(request)]).await?;
        page(&rows, request, tenant, |tenant, _| Ok(Cursor(tenant.id.to_string())))
    }

    async fn delete_tenant(&self, id: &TenantId) -> Result<bool, StoreError> {
        let name = id.as_str();
        let mut transaction = self.core.pool.begin(Scope::Tenant(id)).await?;
        lock_twins(&mut transaction, id).await?;
        let sql = "SELECT 1 FROM postrider.subscriptions WHERE tenant = $1 LIMIT 1";
        if !transaction.query(sql, &[&name]).await?.is_empty() {
            transaction.rollback().await?;
            return Err(StoreError::Internal(format!("tenant {id} still has subscriptions")));
        }
        let sql = "DELETE FROM postrider.tenants WHERE id = $1";
        let existed = transaction.execute(sql, &[&name]).await? > 0;
        if existed {
            // Erasures stay: what they were told to erase is still there.
            for table in [
                "keys WHERE",
                "passes WHERE",
                "documents WHERE kind < 2 AND",
                "attempt_hours WHERE",
            ] {
                let sql = format!("DELETE FROM postrider.{table} tenant = $1");
                transaction.execute(&sql, &[&name]).await?;
            }
            note(&mut transaction, Kind::Tenant, id, name).await?;
        }
        transaction.commit().await?;
        Ok(existed)
    }

    async fn create_key(&self, key: &Key) -> Result<bool, StoreError> {
        let sql = "INSERT INTO postrider.keys (id, tenant, name, scopes, hash, created_at, \
                   expires_at, last_used_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8) \
                   ON CONFLICT DO NOTHING RETURNING 1";
        let tenant = key.tenant.as_ref().map(TenantId::as_str);
        let scopes: Vec<&str> = key.scopes.iter().map(|scope| scope.as_str()).collect();
        let params: [&(dyn ToSql + Sync); 8] = [
            &key.id,
            &tenant,
            &key.name,
            &scopes,
            &&key.hash[..],
            &key.created_at.as_unix_ms(),
            &ms(key.expires_at),
            &ms(key.last_used_at),
        ];
        Ok(!self.core.pool.query(Scope::All, sql, &params).await?.is_empty())
    }

    async fn key(&self, id: &str) -> Result<Option<Key>, StoreError> {
        if id.contains('\0') {
            return Ok(None);
        }
        let sql = "SELECT * FROM postrider.keys WHERE id = $1";
        self.core.pool.query_opt(Scope::All, sql, &[&id]).await?.as_ref().map(key).transpose()
    }

    async fn keys(
        &self,
        tenant: Option<&TenantId>,
        request: &PageRequest,
    ) -> Result<Page<Key>, StoreError> {
        let before: Option<(i64, String)> = place(request)?;
        let (at, id) = before.map_or((None, None), |(at, id)| (Some(at), Some(id)));
        let sql = "SELECT * FROM postrider.keys WHERE tenant IS NOT DISTINCT FROM $1 \
                   AND ($2::bigint IS NULL OR (created_at, id) < ($2, $3)) \
                   ORDER BY created_at DESC, id DESC LIMIT $4";
        let whose = tenant.map(TenantId::as_str);
        let scope = tenant.map_or(Scope::All, Scope::Tenant);
        let rows = self.core.lists.query(scope, sql, &[&whose, &at, &id, &limit(request)]).await?;
        page(&rows, request, key, |key, _| Ok(cursor(key.created_at, &key.id)))
    }

    async fn delete_key(&self, tenant: Option<&TenantId>, id: &str) -> Result<bool, StoreError> {
        let sql = "WITH gone AS (DELETE FROM postrider.keys WHERE id = $1 \
                       AND tenant IS NOT DISTINCT FROM $2 RETURNING 1), \
                   n AS (UPDATE postrider.changed SET version = version + 1 \
                       WHERE EXISTS (SELECT 1 FROM gone) RETURNING version), \
                   noted AS (INSERT INTO postrider.changes (version, kind, tenant, id) \
                       SELECT version, 1, $2, $1 FROM n) \
                   SELECT pg_notify($3, '') FROM gone";
        let whose = tenant.map(TenantId::as_str);
        let scope = tenant.map_or(Scope::All, Scope::Tenant);
        Ok(!self.core.pool.query(scope, sql, &[&id, &whose, &CHANGES]).await?.is_empty())
    }

    async fn touch_keys(&self, used: &[(String, Timestamp)]) -> Result<(), StoreError> {
        let ids: Vec<&str> = used.iter().map(|(id, _)| id.as_str()).collect();
        let times: Vec<i64> = used.iter().map(|(_, at)| at.as_unix_ms()).collect();
        // Update in a fixed order, so that two nodes with the same keys do not deadlock.
        let sql = "WITH used AS (SELECT id, max(at) AS at \
                       FROM unnest($1::text[], $2::bigint[]) AS u (id, at) GROUP BY id), \
                   locked AS (SELECT k.id, used.at FROM postrider.keys AS k JOIN used USING (id) \
                       ORDER BY k.id FOR UPDATE OF k) \
                   UPDATE postrider.keys AS k SET last_used_at = greatest(k.last_used_at, l.at) \
                   FROM locked AS l WHERE k.id = l.id";
        self.core.pool.query(Scope::All, sql, &[&ids, &times]).await?;
        Ok(())
    }

    async fn put_subscription(
        &self,
        record: &SubscriptionRecord,
        destination: &DestinationRecord,
    ) -> Result<SubscriptionPut, StoreError> {
        let wanted = &record.subscription;
        let mut transaction = self.core.pool.begin(Scope::Tenant(&wanted.tenant)).await?;
        lock_twins(&mut transaction, &wanted.tenant).await?;
        let uid = wanted.about.uid.as_ref().map(SubscriptionUid::as_str);
        let tenant = wanted.tenant.as_str();
        let sql = "SELECT id FROM postrider.subscriptions \
                   WHERE tenant = $1 AND uid = $2 AND id <> $3 AND deleted_at IS NULL";
        let own = uuid(wanted.id.as_bytes());
        if let Some(row) = transaction.query(sql, &[&tenant, &uid, &own]).await?.first() {
            let taken = SubscriptionId::from_bytes(rows::id(row, "id")?);
            transaction.rollback().await?;
            return Ok(SubscriptionPut::UidTaken(taken));
        }
        let sql = "SELECT record FROM postrider.subscriptions \
                   WHERE tenant = $1 AND destination = $2 AND id <> $3 AND deleted_at IS NULL";
        let (id, to) = (uuid(wanted.id.as_bytes()), uuid(wanted.destination.as_bytes()));
        for row in &transaction.query(sql, &[&tenant, &to, &id]).await? {
            let other: postrider_domain::subscription::Subscription = json(row, "record")?;
            if other.is_twin_of(wanted) {
                transaction.rollback().await?;
                return Ok(SubscriptionPut::Twin(other.id));
            }
        }
        put_destination(&mut transaction, destination).await?;
        let sql = "SELECT destination FROM postrider.subscriptions \
                   WHERE tenant = $1 AND id = $2 AND destination <> $3";
        let left = transaction.query(sql, &[&tenant, &id, &to]).await?;
        let sql = "INSERT INTO postrider.subscriptions \
                   (tenant, id, destination, created_at, deleted_at, record, credentials, uid) \
                   VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (tenant, id) DO UPDATE SET \
                   destination = excluded.destination, created_at = excluded.created_at, \
                   deleted_at = excluded.deleted_at, record = excluded.record, \
                   credentials = excluded.credentials, uid = excluded.uid";
        let (created, deleted) = (wanted.created_at.as_unix_ms(), ms(record.deleted_at));
        let text = to_json(wanted)?;
        let params: [&(dyn ToSql + Sync); 8] =
            [&tenant, &id, &to, &created, &deleted, &text, &record.credentials, &uid];
        transaction.execute(sql, &params).await?;
        unused_destinations::use_again(&mut transaction, tenant, to).await?;
        for row in &left {
            let since = wanted.updated_at.as_unix_ms();
            unused_destinations::mark(&mut transaction, tenant, get(row, "destination")?, since)
                .await?;
        }
        let name = wanted.id.to_string();
        note(&mut transaction, Kind::Subscription, &wanted.tenant, &name).await?;
        transaction.commit().await?;
        Ok(SubscriptionPut::Stored)
    }

    async fn reseal_subscription(
        &self,
        before: &SubscriptionRecord,
        after: &SubscriptionRecord,
    ) -> Result<bool, StoreError> {
        let wanted = &before.subscription;
        let (tenant, id) = (wanted.tenant.as_str(), uuid(wanted.id.as_bytes()));
        let mut transaction = self.core.pool.begin(Scope::Tenant(&wanted.tenant)).await?;
        let sql = "SELECT * FROM postrider.subscriptions WHERE tenant = $1 AND id = $2 FOR UPDATE";
        let rows = transaction.query(sql, &[&tenant, &id]).await?;
        let found = rows.first().map(subscription).transpose()?;
        if found.as_ref() != Some(before) {
            transaction.rollback().await?;
            return Ok(false);
        }
        let sql = "UPDATE postrider.subscriptions SET record = $3, credentials = $4 \
                   WHERE tenant = $1 AND id = $2";
        let text = to_json(&after.subscription)?;
        transaction.execute(sql, &[&tenant, &id, &text, &after.credentials]).await?;
        transaction.commit().await?;
        Ok(true)
    }

    async fn subscription(
        &self,
        tenant: &TenantId,
        id: SubscriptionId,
    ) -> Result<Option<SubscriptionRecord>, StoreError> {
        let sql = "SELECT * FROM postrider.subscriptions \
                   WHERE tenant = $1 AND id = $2 AND deleted_at IS NULL";
        let params: [&(dyn ToSql + Sync); 2] = [&tenant.as_str(), &uuid(id.as_bytes())];
        let row = self.core.pool.query_opt(Scope::Tenant(tenant), sql, &params).await?;
        row.as_ref().map(subscription).transpose()
    }

    async fn subscription_by_uid(
        &self,
        tenant: &TenantId,
        uid: &SubscriptionUid,
    ) -> Result<Option<SubscriptionRecord>, StoreError> {
        let sql = "SELECT * FROM postrider.subscriptions \
                   WHERE tenant = $1 AND uid = $2 AND deleted_at IS NULL";
        let params: [&(dyn ToSql + Sync); 2] = [&tenant.as_str(), &uid.as_str()];
        let row = self.core.pool.query_opt(Scope::Tenant(tenant), sql, &params).await?;
        row.as_ref().map(subscription).transpose()
    }

    async fn subscriptions(
        &self,
        tenant: &TenantId,
        request: &PageRequest,
    ) -> Result<Page<SubscriptionRecord>, StoreError> {
        let (at, id) = before(place::<SubscriptionId>(request)?, |id| uuid(id.as_bytes()));
        let listed = "SELECT * FROM postrider.subscriptions \
                      WHERE tenant = $1 AND deleted_at IS NULL \
                      AND ($2::bigint IS NULL OR (created_at, id) < ($2, $3)) \
                      ORDER BY created_at DESC, id DESC LIMIT $4";
        let order = "ORDER BY created_at DESC, id DESC";
        let sql = within(listed, order, "octet_length(record)", PAGE_BYTES_MAX);
        let params: [&(dyn ToSql + Sync); 4] = [&tenant.as_str(), &at, &id, &limit(request)];
        let rows = self.core.lists.query(Scope::Tenant(tenant), &sql, &params).await?;
        page_within(&rows, request, subscription, |record, _| {
            Ok(cursor(record.subscription.created_at, record.subscription.id))
        })
    }

    async fn all_subscriptions(&self) -> Result<Vec<SubscriptionRecord>, StoreError> {
        let sql = "SELECT * FROM postrider.subscriptions";
        self.core.pool.query(Scope::All, sql, &[]).await?.iter().map(subscription).collect()
    }

    async fn mark_subscription_deleted(
        &self,
        tenant: &TenantId,
        id: SubscriptionId,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let sql = "UPDATE postrider.subscriptions SET deleted_at = $3 \
                   WHERE tenant = $1 AND id = $2 AND deleted_at IS NULL";
        let params: [&(dyn ToSql + Sync); 3] =
            [&tenant.as_str(), &uuid(id.as_bytes()), &now.as_unix_ms()];
        let mut transaction = self.core.pool.begin(Scope::Tenant(tenant)).await?;
        let is_marked = transaction.execute(sql, &params).await? > 0;
        if is_marked {
            note(&mut transaction, Kind::Subscription, tenant, &id.to_string()).await?;
        }
        transaction.commit().await?;
        Ok(is_marked)
    }

    async fn remove_subscription(
        &self,
        tenant: &TenantId,
        id: SubscriptionId,
    ) -> Result<(), StoreError> {
        let sql = "DELETE FROM postrider.subscriptions AS s \
                   WHERE tenant = $1 AND id = $2 AND deleted_at IS NOT NULL \
                   AND NOT EXISTS (SELECT 1 FROM postrider.deliveries_open AS o \
                                   WHERE o.subscription = s.id AND o.tenant = s.tenant) \
                   RETURNING destination, deleted_at";
        let params: [&(dyn ToSql + Sync); 2] = [&tenant.as_str(), &uuid(id.as_bytes())];
        let mut transaction = self.core.pool.begin(Scope::Tenant(tenant)).await?;
        // Nobody creates a subscription to its destination meanwhile.
        lock_twins(&mut transaction, tenant).await?;
        for row in &transaction.query(sql, &params).await? {
            let (destination, since) = (get(row, "destination")?, get(row, "deleted_at")?);
            unused_destinations::mark(&mut transaction, tenant.as_str(), destination, since)
                .await?;
        }
        transaction.commit().await
    }

    async fn destination(
        &self,
        tenant: &TenantId,
        id: DestinationId,
    ) -> Result<Option<DestinationRecord>, StoreError> {
        let sql = "SELECT * FROM postrider.destinations WHERE tenant = $1 AND id = $2";
        let params: [&(dyn ToSql + Sync); 2] = [&tenant.as_str(), &uuid(id.as_bytes())];
        let row = self.core.pool.query_opt(Scope::Tenant(tenant), sql, &params).await?;
        row.as_ref().map(destination).transpose()
    }

    async fn destinations(
        &self,
        tenant: &TenantId,
        request: &PageRequest,
    ) -> Result<Page<DestinationRecord>, StoreError> {
        let (at, id) = before(place::<DestinationId>(request)?, |id| uuid(id.as_bytes()));
        let sql = "SELECT * FROM postrider.destinations WHERE tenant = $1 \
                   AND unused_since IS NULL AND ($2::bigint IS NULL OR (created_at, id) < ($2, $3)) \
                   ORDER BY created_at DESC, id DESC LIMIT $4";
        let params: [&(dyn ToSql + Sync); 4] = [&tenant.as_str(), &at, &id, &limit(request)];
        let rows = self.core.lists.query(Scope::Tenant(tenant), sql, &params).await?;
        page(&rows, request, destination, |record, _| Ok(cursor(record.created_at, record.id)))
    }

    async fn unused_destinations(
        &self,
        now: Timestamp,
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<(TenantId, DestinationId)>, StoreError> {
        self.core.unused_destinations(now, before, limit).await
    }

    async fn remove_destination(
        &self,
        tenant: &TenantId,
        id: DestinationId,
        before: Timestamp,
    ) -> Result<bool, StoreError> {
        self.core.remove_destination(tenant, id, before).await
    }

    async fn held_destinations(
        &self,
        leases: &ShardLeases,
    ) -> Result<Vec<DestinationRecord>, StoreError> {
        let sql = "SELECT * FROM postrider.destinations WHERE shard = ANY($1::smallint[])";
        let held: Vec<i16> = leases.shards.iter().map(|(shard, _)| i16::from(shard.0)).collect();
        self.core.pool.query(Scope::All, sql, &[&held]).await?.iter().map(destination).collect()
    }

    async fn idempotent_answer(
        &self,
        tenant: &TenantId,
        key: &str,
    ) -> Result<Option<IdempotentAnswer>, StoreError> {
        let sql = "SELECT * FROM postrider.answers WHERE tenant = $1 AND key = $2";
        let params: [&(dyn ToSql + Sync); 2] = [&tenant.as_str(), &key];
        let row = self.core.pool.query_opt(Scope::Tenant(tenant), sql, &params).await?;
        row.as_ref().map(answer).transpose()
    }

    async fn keep_idempotent_answer(
        &self,
        tenant: &TenantId,
        key: &str,
        kept: &IdempotentAnswer,
        since: Timestamp,
    ) -> Result<IdempotentAnswer, StoreError> {
        self.core.keep_answer(tenant, key, kept, since).await
    }

    async fn forget_answers(
        &self,
        before: Timestamp,
        most: u64,
        bytes_most: u64,
    ) -> Result<u64, StoreError> {
        self.core.forget_answers(before, most, bytes_most).await
    }
}

/// A position as two parameters, both NULL on the first page.
pub(super) fn before<I>(
    place: Option<(i64, I)>,
    id: impl Fn(&I) -> Uuid,
) -> (Option<i64>, Option<Uuid>) {
    place.map_or((None, None), |(at, mark)| (Some(at), Some(id(&mark))))
}

/// Locks the subscriptions of a tenant until the transaction ends.
pub(super) async fn lock_twins(
    transaction: &mut Transaction<'_>,
    tenant: &TenantId,
) -> Result<(), StoreError> {
    let sql = "SELECT pg_advisory_xact_lock($1, hashtext($2))";
    transaction.query(sql, &[&TWINS_LOCK, &tenant.as_str()]).await?;
    Ok(())
}

/// Announces a change to the other nodes when the transaction is committed.
async fn note(
    transaction: &mut Transaction<'_>,
    kind: Kind,
    tenant: &TenantId,
    id: &str,
) -> Result<(), StoreError> {
    let sql = "WITH n AS (UPDATE postrider.changed SET version = version + 1 RETURNING version), \
               noted AS (INSERT INTO postrider.changes (version, kind, tenant, id) \
                   SELECT version, $1, $2, $3 FROM n) \
               SELECT pg_notify($4, '')";
    let params: [&(dyn ToSql + Sync); 4] = [&kind.number(), &tenant.as_str(), &id, &CHANGES];
    transaction.query(sql, &params).await?;
    Ok(())
}

/// Writes a destination; an existing one is kept as it is, with its circuit.
async fn put_destination(
    transaction: &mut Transaction<'_>,
    record: &DestinationRecord,
) -> Result<(), StoreError> {
    let sql = "INSERT INTO postrider.destinations (tenant, id, shard, url, created_at, circuit) \
               VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING";
    let (tenant, id) = (record.tenant.as_str(), uuid(record.id.as_bytes()));
    let (created_at, circuit) = (record.created_at.as_unix_ms(), to_json(&record.circuit)?);
    let params: [&(dyn ToSql + Sync); 6] =
        [&tenant, &id, &shard(&record.id), &record.url, &created_at, &circuit];
    transaction.execute(sql, &params).await?;
    Ok(())
}

/// The details of a tenant as they are stored; `None` where there are none.
pub(super) fn details_text(tenant: &Tenant) -> Result<Option<String>, StoreError> {
    if tenant.details.is_empty() { Ok(None) } else { to_json(&tenant.details).map(Some) }
}

/// Reads a tenant.
pub(super) fn tenant(row: &Row) -> Result<Tenant, StoreError> {
    let details = match get::<Option<&str>>(row, "details")? {
        Some(_) => json(row, "details")?,
        None => TenantDetails::default(),
    };
    Ok(Tenant {
        id: parse(row, "id")?,
        name: get(row, "name")?,
        created_at: time(row, "created_at")?,
        details,
    })
}

/// Reads a key.
pub(super) fn key(row: &Row) -> Result<Key, StoreError> {
    let tenant = match get::<Option<&str>>(row, "tenant")? {
        Some(_) => Some(parse(row, "tenant")?),
        None => None,
    };
    let scopes: Vec<&str> = get(row, "scopes")?;
    let scopes: Result<Vec<KeyScope>, _> = scopes.into_iter().map(str::parse).collect();
    Ok(Key {
        id: get(row, "id")?,
        tenant,
        name: get(row, "name")?,
        scopes: scopes.map_err(|e| corrupt("keys", e))?,
        hash: get::<&[u8]>(row, "hash")?.try_into().map_err(|e| corrupt("keys", e))?,
        created_at: time(row, "created_at")?,
        expires_at: time_opt(row, "expires_at")?,
        last_used_at: time_opt(row, "last_used_at")?,
    })
}

/// Reads a subscription.
pub(super) fn subscription(row: &Row) -> Result<SubscriptionRecord, StoreError> {
    Ok(SubscriptionRecord {
        subscription: json(row, "record")?,
        credentials: get(row, "credentials")?,
        deleted_at: time_opt(row, "deleted_at")?,
    })
}

/// Reads a destination.
pub(super) fn destination(row: &Row) -> Result<DestinationRecord, StoreError> {
    Ok(DestinationRecord {
        id: DestinationId::from_bytes(rows::id(row, "id")?),
        tenant: parse(row, "tenant")?,
        url: get(row, "url")?,
        created_at: time(row, "created_at")?,
        circuit: json(row, "circuit")?,
    })
}

/// Reads an answer.
pub(super) fn answer(row: &Row) -> Result<IdempotentAnswer, StoreError> {
    let status: i32 = get(row, "status")?;
    Ok(IdempotentAnswer {
        request: get::<&[u8]>(row, "request")?.try_into().map_err(|e| corrupt("answers", e))?,
        status: u16::try_from(status).map_err(|e| corrupt("answers", e))?,
        body: get(row, "body")?,
        created_at: time(row, "created_at")?,
    })
}
