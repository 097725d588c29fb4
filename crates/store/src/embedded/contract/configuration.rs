//! Tenants, keys, subscriptions and their destinations.

use std::path::Path;

use async_trait::async_trait;
use postrider_domain::circuit::StateName as CircuitName;
use postrider_domain::ids::{DestinationId, SubscriptionId, SubscriptionUid, TenantId};
use postrider_domain::limits::PAGE_BYTES_MAX;
use postrider_domain::subscription::Subscription;
use postrider_domain::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, Transaction, params};

use super::answers;
use super::cursor;
use super::tenants::{insert_tenant, update_tenant};
use super::unused_destinations;
use crate::contract::Configuration;
use crate::embedded::EmbeddedStore;
use crate::embedded::apply::{Circuits, Unapplied};
use crate::embedded::files::At;
use crate::embedded::files::rows::{self, AFTER_ALL};
use crate::error::StoreError;
use crate::records::{
    DestinationRecord, IdempotentAnswer, Key, Page, PageRequest, ShardLeases, SubscriptionPut,
    SubscriptionRecord, Tenant,
};

pub(in crate::embedded) const TENANT: &str =
    "SELECT id, name, created_at, crc, details FROM tenants";
pub(in crate::embedded) const KEY: &str =
    "SELECT id, tenant, name, scopes, hash, created_at, expires_at, last_used_at, crc
    FROM keys";
pub(in crate::embedded) const SUBSCRIPTION: &str =
    "SELECT id, body, credentials, deleted_at, crc FROM subscriptions";
pub(in crate::embedded) const DESTINATION: &str =
    "SELECT id, tenant, url, created_at, circuit, crc, circuit_crc
    FROM destinations";

#[async_trait]
impl Configuration for EmbeddedStore {
    async fn create_tenant(&self, tenant: &Tenant) -> Result<bool, StoreError> {
        let tenant = tenant.clone();
        self.change_first(move |transaction, path| insert_tenant(transaction, path, &tenant)).await
    }

    async fn tenant(&self, id: &TenantId) -> Result<Option<Tenant>, StoreError> {
        let id = id.clone();
        // A change of a tenant is written to `main.db` before it is answered, so a read needs no
        // barrier.
        self.read_now(move |guard| {
            guard.main(|connection, path| {
                let sql = format!("{TENANT} WHERE id = ?1");
                rows::one(connection, path, "tenants", &sql, [id.as_str()], rows::tenant_of)
            })
        })
        .await
    }

    async fn tenants(&self, page: &PageRequest) -> Result<Page<Tenant>, StoreError> {
        let page = page.clone();
        let after: Option<TenantId> = cursor::single(&page)?;
        self.list_configured(None, move |guard| {
            let found = guard.main(|connection, path| {
                let sql = format!("{TENANT} WHERE id > ?1 ORDER BY id LIMIT ?2");
                let values =
                    params![after.as_ref().map_or("", TenantId::as_str), cursor::limit(&page)];
                rows::all(connection, path, "tenants", &sql, values, rows::tenant_of)
            })?;
            Ok(cursor::page(found, &page, |last| cursor::of(&last.id)))
        })
        .await
    }

    async fn update_tenant(&self, tenant: &Tenant) -> Result<bool, StoreError> {
        let tenant = tenant.clone();
        self.change(move |transaction, path| update_tenant(transaction, path, &tenant)).await
    }

    async fn delete_tenant(&self, id: &TenantId) -> Result<bool, StoreError> {
        let id = id.clone();
        self.change(move |transaction, path| {
            let any = "SELECT 1 FROM subscriptions WHERE tenant = ?1 LIMIT 1";
            let any = transaction.query_row(any, [id.as_str()], |_| Ok(()));
            if any.optional().at(path)?.is_some() {
                return Err(StoreError::Internal(format!("tenant {id} still has subscriptions")));
            }
            let delete = "DELETE FROM tenants WHERE id = ?1";
            let existed = transaction.execute(delete, [id.as_str()]).at(path)? > 0;
            if existed {
                // Erasures stay: what they were told to erase is still there.
                for table in ["keys WHERE", "passes WHERE", "documents WHERE kind < 2 AND"] {
                    let delete = format!("DELETE FROM {table} tenant = ?1");
                    transaction.execute(&delete, [id.as_str()]).at(path)?;
                }
                let delete = "DELETE FROM attempt_hours WHERE destination IN
                    (SELECT id FROM destinations WHERE tenant = ?1)";
                transaction.execute(delete, [id.as_str()]).at(path)?;
            }
            Ok(existed)
        })
        .await
    }

    async fn create_key(&self, key: &Key) -> Result<bool, StoreError> {
        let key = key.clone();
        self.change_first(move |transaction, path| insert_key(transaction, path, &key)).await
    }

    async fn key(&self, id: &str) -> Result<Option<Key>, StoreError> {
        let id = id.to_owned();
        // The same holds for keys: authentication never waits for the applier or for a list.
        self.read_now(move |guard| {
            guard.main(|connection, path| {
                let sql = format!("{KEY} WHERE id = ?1");
                rows::one(connection, path, "keys", &sql, [id], rows::key_of)
            })
        })
        .await
    }

    async fn keys(
        &self,
        tenant: Option<&TenantId>,
        page: &PageRequest,
    ) -> Result<Page<Key>, StoreError> {
        let (tenant, page) = (tenant.cloned(), page.clone());
        let place: Option<(Timestamp, String)> = cursor::place(&page)?;
        self.list_configured(tenant.clone(), move |guard| {
            let found = guard.main(|connection, path| {
                let sql = format!(
                    "{KEY} WHERE tenant IS ?1 AND (?2 IS NULL OR (created_at, id) < (?2, ?3))
                    ORDER BY created_at DESC, id DESC LIMIT ?4"
                );
                let (at, id) = place.map_or((None, None), |(at, id)| (Some(at), Some(id)));
                let tenant = tenant.as_ref().map(TenantId::as_str);
                let values =
                    params![tenant, at.map(|at| at.as_unix_ms()), id, cursor::limit(&page)];
                rows::all(connection, path, "keys", &sql, values, rows::key_of)
            })?;
            Ok(cursor::page(found, &page, |last| cursor::at(last.created_at, &last.id)))
        })
        .await
    }

    async fn delete_key(&self, tenant: Option<&TenantId>, id: &str) -> Result<bool, StoreError> {
        let (tenant, id) = (tenant.cloned(), id.to_owned());
        self.change(move |transaction, path| {
            let delete = "DELETE FROM keys WHERE id = ?1 AND tenant IS ?2";
            let values = params![id, tenant.as_ref().map(TenantId::as_str)];
            Ok(transaction.execute(delete, values).at(path)? > 0)
        })
        .await
    }

    async fn touch_keys(&self, used: &[(String, Timestamp)]) -> Result<(), StoreError> {
        let used = used.to_vec();
        self.change(move |transaction, path| {
            let update = "UPDATE keys SET last_used_at = max(coalesce(last_used_at, ?2), ?2)
                WHERE id = ?1";
            let mut statement = transaction.prepare_cached(update).at(path)?;
            for (id, at) in used {
                statement.execute(params![id, at.as_unix_ms()]).at(path)?;
            }
            Ok(())
        })
        .await
    }

    async fn put_subscription(
        &self,
        record: &SubscriptionRecord,
        destination: &DestinationRecord,
    ) -> Result<SubscriptionPut, StoreError> {
        let (new, place) = (record.clone(), destination.clone());
        let created = self.change_first(move |transaction, path| {
            let sql = "SELECT 1 FROM subscriptions WHERE id = ?1";
            let id = new.subscription.id;
            let mut find = transaction.prepare_cached(sql).at(path)?;
            if find.exists([id.as_bytes().as_slice()]).at(path)? {
                return Ok(None);
            }
            put_subscription(transaction, path, &new, &place).map(Some)
        });
        if let Some(put) = created.await? {
            return Ok(put);
        }
        // A change of the URL may leave a destination that nothing uses, which records decide.
        let (record, destination) = (record.clone(), destination.clone());
        self.change(move |transaction, path| {
            put_subscription(transaction, path, &record, &destination)
        })
        .await
    }

    async fn reseal_subscription(
        &self,
        before: &SubscriptionRecord,
        after: &SubscriptionRecord,
    ) -> Result<bool, StoreError> {
        let (before, after) = (before.clone(), after.clone());
        self.change(move |transaction, path| {
            let Subscription { id, tenant, .. } = &before.subscription;
            let sql = format!("{SUBSCRIPTION} WHERE id = ?1 AND tenant = ?2");
            let values = params![id.as_bytes().as_slice(), tenant.as_str()];
            let make = rows::subscription_of;
            let found = rows::one(transaction, path, "subscriptions", &sql, values, make)?;
            let is_same = found.as_ref() == Some(&before);
            if is_same {
                write_subscription(transaction, path, &after)?;
            }
            Ok(is_same)
        })
        .await
    }

    async fn subscription(
        &self,
        tenant: &TenantId,
        id: SubscriptionId,
    ) -> Result<Option<SubscriptionRecord>, StoreError> {
        let tenant = tenant.clone();
        self.read_configured(tenant.clone(), move |guard| {
            guard.main(|connection, path| {
                let sql =
                    format!("{SUBSCRIPTION} WHERE id = ?1 AND tenant = ?2 AND deleted_at IS NULL");
                let values = params![id.as_bytes().as_slice(), tenant.as_str()];
                let make = rows::subscription_of;
                rows::one(connection, path, "subscriptions", &sql, values, make)
            })
        })
        .await
    }

    async fn subscription_by_uid(
        &self,
        tenant: &TenantId,
        uid: &SubscriptionUid,
    ) -> Result<Option<SubscriptionRecord>, StoreError> {
        let (tenant, uid) = (tenant.clone(), uid.clone());
        self.read_configured(tenant.clone(), move |guard| {
            guard.main(|connection, path| by_uid(connection, path, &tenant, &uid))
        })
        .await
    }

    async fn subscriptions(
        &self,
        tenant: &TenantId,
        page: &PageRequest,
    ) -> Result<Page<SubscriptionRecord>, StoreError> {
        let (tenant, page) = (tenant.clone(), page.clone());
        let (at, id) = cursor::before::<SubscriptionId>(&page)?;
        self.list_configured(Some(tenant.clone()), move |guard| {
            let found = guard.main(|connection, path| {
                let sql = format!(
                    "{SUBSCRIPTION} WHERE tenant = ?1 AND (created_at, id) < (?2, ?3)
                        AND deleted_at IS NULL ORDER BY created_at DESC, id DESC LIMIT ?4"
                );
                let id = id.map_or(AFTER_ALL.to_vec(), |id| id.as_bytes().to_vec());
                let values = params![tenant.as_str(), at, id, cursor::limit(&page)];
                let make = rows::subscription_of;
                let asked = (sql.as_str(), values);
                let size = (1, PAGE_BYTES_MAX);
                rows::within((connection, path), "subscriptions", asked, size, make)
            })?;
            Ok(cursor::page_within(found, &page, PAGE_BYTES_MAX, |last| {
                cursor::at(last.subscription.created_at, last.subscription.id)
            }))
        })
        .await
    }

    async fn all_subscriptions(&self) -> Result<Vec<SubscriptionRecord>, StoreError> {
        self.read(|guard| {
            guard.main(|connection, path| {
                let make = rows::subscription_of;
                rows::all(connection, path, "subscriptions", SUBSCRIPTION, [], make)
            })
        })
        .await
    }

    async fn mark_subscription_deleted(
        &self,
        tenant: &TenantId,
        id: SubscriptionId,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let tenant = tenant.clone();
        self.change_first(move |transaction, path| {
            let sql =
                format!("{SUBSCRIPTION} WHERE id = ?1 AND tenant = ?2 AND deleted_at IS NULL");
            let values = params![id.as_bytes().as_slice(), tenant.as_str()];
            let make = rows::subscription_of;
            let found = rows::one(transaction, path, "subscriptions", &sql, values, make)?;
            let Some(record) = found else { return Ok(false) };
            let record = SubscriptionRecord { deleted_at: Some(now), ..record };
            write_subscription(transaction, path, &record)?;
            Ok(true)
        })
        .await
    }

    async fn remove_subscription(
        &self,
        tenant: &TenantId,
        id: SubscriptionId,
    ) -> Result<(), StoreError> {
        let tenant = tenant.clone();
        self.change(move |transaction, path| {
            let delete = "DELETE FROM subscriptions
                WHERE id = ?1 AND tenant = ?2 AND deleted_at IS NOT NULL
                    AND NOT EXISTS (SELECT 1 FROM waiting WHERE subscription = ?1)
                    AND NOT EXISTS (SELECT 1 FROM fresh WHERE subscription = ?1)
                RETURNING destination, deleted_at";
            let values = params![id.as_bytes().as_slice(), tenant.as_str()];
            let gone: Option<([u8; 16], i64)> = transaction
                .query_row(delete, values, |row| Ok((row.get(0)?, row.get(1)?)))
                .optional()
                .at(path)?;
            match gone {
                Some((destination, since)) => {
                    unused_destinations::mark(transaction, path, &destination, since)
                }
                None => Ok(()),
            }
        })
        .await
    }

    async fn destination(
        &self,
        tenant: &TenantId,
        id: DestinationId,
    ) -> Result<Option<DestinationRecord>, StoreError> {
        let whose = tenant.clone();
        self.read_one_now(tenant, Unapplied::circuits, move |guard, circuits: &Circuits| {
            guard.main(|connection, path| {
                let sql = format!("{DESTINATION} WHERE id = ?1 AND tenant = ?2");
                let values = params![id.as_bytes().as_slice(), whose.as_str()];
                let make = rows::destination_of;
                let found = rows::one(connection, path, "destinations", &sql, values, make)?;
                Ok(found.map(|record| with_circuit(record, circuits)))
            })
        })
        .await
    }

    async fn destinations(
        &self,
        tenant: &TenantId,
        page: &PageRequest,
    ) -> Result<Page<DestinationRecord>, StoreError> {
        let (whose, page) = (tenant.clone(), page.clone());
        let (at, id) = cursor::before::<DestinationId>(&page)?;
        self.read_list_now(tenant, Unapplied::circuits, move |guard, circuits: &Circuits| {
            let found = guard.main(|connection, path| {
                let sql = format!(
                    "{DESTINATION} WHERE tenant = ?1 AND (created_at, id) < (?2, ?3)
                        AND unused_since IS NULL ORDER BY created_at DESC, id DESC LIMIT ?4"
                );
                let id = id.map_or(AFTER_ALL.to_vec(), |id| id.as_bytes().to_vec());
                let values = params![whose.as_str(), at, id, cursor::limit(&page)];
                let make = rows::destination_of;
                rows::all(connection, path, "destinations", &sql, values, make)
            })?;
            let found = found.into_iter().map(|record| with_circuit(record, circuits)).collect();
            Ok(cursor::page(found, &page, |last| cursor::at(last.created_at, last.id)))
        })
        .await
    }

    async fn unused_destinations(
        &self,
        now: Timestamp,
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<(TenantId, DestinationId)>, StoreError> {
        let wrong = self.scan(move |guard| {
            guard.main(|connection, path| unused_destinations::wrong_marks(connection, path, limit))
        });
        let wrong = wrong.await?;
        self.change(move |transaction, path| {
            unused_destinations::sweep(transaction, path, &wrong, (now, before), limit)
        })
        .await
    }

    async fn remove_destination(
        &self,
        tenant: &TenantId,
        id: DestinationId,
        before: Timestamp,
    ) -> Result<bool, StoreError> {
        let tenant = tenant.clone();
        self.change(move |transaction, path| {
            unused_destinations::remove(transaction, path, &tenant, id, before)
        })
        .await
    }

    async fn held_destinations(
        &self,
        leases: &ShardLeases,
    ) -> Result<Vec<DestinationRecord>, StoreError> {
        let leases = leases.clone();
        self.read(move |guard| {
            let mut found = guard.main(|connection, path| {
                let make = rows::destination_of;
                rows::all(connection, path, "destinations", DESTINATION, [], make)
            })?;
            found.retain(|destination| leases.has(destination.id.shard()));
            Ok(found)
        })
        .await
    }

    async fn idempotent_answer(
        &self,
        tenant: &TenantId,
        key: &str,
    ) -> Result<Option<IdempotentAnswer>, StoreError> {
        let (tenant, key) = (tenant.clone(), key.to_owned());
        // An answer is stored by a task that is answered after it is in SQLite.
        self.read_now(move |guard| {
            guard.main(|connection, path| answers::find(connection, path, &tenant, &key))
        })
        .await
    }

    async fn keep_idempotent_answer(
        &self,
        tenant: &TenantId,
        key: &str,
        kept: &IdempotentAnswer,
        since: Timestamp,
    ) -> Result<IdempotentAnswer, StoreError> {
        self.keep_answer(tenant, key, kept, since).await
    }

    async fn forget_answers(
        &self,
        before: Timestamp,
        most: u64,
        bytes_most: u64,
    ) -> Result<u64, StoreError> {
        self.forget_old_answers(before, most, bytes_most).await
    }
}

/// A destination as it is after the changes that are not applied.
fn with_circuit(record: DestinationRecord, circuits: &Circuits) -> DestinationRecord {
    match circuits.get(&record.id) {
        Some(circuit) => DestinationRecord { circuit: circuit.clone(), ..record },
        None => record,
    }
}

fn put_subscription(
    transaction: &Transaction<'_>,
    path: &Path,
    record: &SubscriptionRecord,
    destination: &DestinationRecord,
) -> Result<SubscriptionPut, StoreError> {
    let wanted = &record.subscription;
    if let Some(uid) = &wanted.about.uid
        && let Some(other) = by_uid(transaction, path, &wanted.tenant, uid)?
        && other.subscription.id != wanted.id
    {
        return Ok(SubscriptionPut::UidTaken(other.subscription.id));
    }
    // A twin has the same URL, and so the same destination.
    let sql = format!("{SUBSCRIPTION} WHERE destination = ?1 AND deleted_at IS NULL");
    let values = [wanted.destination.as_bytes().as_slice()];
    let make = rows::subscription_of;
    let others = rows::all(transaction, path, "subscriptions", &sql, values, make)?;
    let others = others.into_iter().map(|other| other.subscription);
    let twin = others.filter(|other| other.id != wanted.id).find(|other| other.is_twin_of(wanted));
    if let Some(twin) = twin {
        return Ok(SubscriptionPut::Twin(twin.id));
    }
    let sql = "SELECT destination FROM subscriptions WHERE id = ?1 AND tenant = ?2";
    let values = params![wanted.id.as_bytes().as_slice(), wanted.tenant.as_str()];
    let before: Option<[u8; 16]> =
        transaction.query_row(sql, values, |row| row.get(0)).optional().at(path)?;
    insert_destination(transaction, path, destination)?;
    write_subscription(transaction, path, record)?;
    unused_destinations::use_again(transaction, path, wanted.destination)?;
    if let Some(before) = before.filter(|before| before != wanted.destination.as_bytes()) {
        let since = wanted.updated_at.as_unix_ms();
        unused_destinations::mark(transaction, path, &before, since)?;
    }
    Ok(SubscriptionPut::Stored)
}

/// The subscription with this identifier of the application.
fn by_uid(
    connection: &Connection,
    path: &Path,
    tenant: &TenantId,
    uid: &SubscriptionUid,
) -> Result<Option<SubscriptionRecord>, StoreError> {
    let sql = format!("{SUBSCRIPTION} WHERE tenant = ?1 AND uid = ?2 AND deleted_at IS NULL");
    let (values, make) = (params![tenant.as_str(), uid.as_str()], rows::subscription_of);
    rows::one(connection, path, "subscriptions", &sql, values, make)
}

/// Writes a key, unless there is one with that id. Returns whether it did.
pub(in crate::embedded) fn insert_key(
    transaction: &Transaction<'_>,
    path: &Path,
    key: &Key,
) -> Result<bool, StoreError> {
    let insert = "INSERT INTO keys VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
        ON CONFLICT DO NOTHING";
    let values = params![
        key.id,
        key.tenant.as_ref().map(TenantId::as_str),
        key.name,
        rows::scopes_text(&key.scopes),
        key.hash.as_slice(),
        key.created_at.as_unix_ms(),
        key.expires_at.map(|at| at.as_unix_ms()),
        key.last_used_at.map(|at| at.as_unix_ms()),
        rows::key_sum(key),
    ];
    Ok(transaction.execute(insert, values).at(path)? > 0)
}

/// Writes a destination, unless it exists.
pub(in crate::embedded) fn insert_destination(
    transaction: &Transaction<'_>,
    path: &Path,
    destination: &DestinationRecord,
) -> Result<(), StoreError> {
    let circuit = rows::to_json(&destination.circuit).at(path)?;
    let insert = "INSERT INTO destinations
            (id, tenant, url, created_at, circuit, crc, circuit_crc, failing)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT (id) DO NOTHING";
    let values = params![
        destination.id.as_bytes().as_slice(),
        destination.tenant.as_str(),
        destination.url,
        destination.created_at.as_unix_ms(),
        circuit,
        rows::destination_sum(destination),
        crc32fast::hash(circuit.as_bytes()),
        destination.circuit.state_name() != CircuitName::Closed,
    ];
    transaction.execute(insert, values).at(path).map(drop)
}

/// Creates or replaces a subscription.
pub(in crate::embedded) fn write_subscription(
    transaction: &Transaction<'_>,
    path: &Path,
    record: &SubscriptionRecord,
) -> Result<(), StoreError> {
    let subscription = &record.subscription;
    let body = rows::to_json(subscription).at(path)?;
    let deleted_at = record.deleted_at.map(|at| at.as_unix_ms());
    let upsert = "INSERT INTO subscriptions
            (id, tenant, destination, created_at, deleted_at, body, credentials, crc, uid)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
        ON CONFLICT (id) DO UPDATE SET destination = ?3, created_at = ?4, deleted_at = ?5,
            body = ?6, credentials = ?7, crc = ?8, uid = ?9 WHERE tenant = ?2";
    let values = params![
        subscription.id.as_bytes().as_slice(),
        subscription.tenant.as_str(),
        subscription.destination.as_bytes().as_slice(),
        subscription.created_at.as_unix_ms(),
        deleted_at,
        body,
        record.credentials,
        rows::subscription_sum(subscription.id, &body, &record.credentials, deleted_at),
        subscription.about.uid.as_ref().map(SubscriptionUid::as_str),
    ];
    transaction.execute(upsert, values).at(path).map(drop)
}
