//! Tenants, keys, subscriptions and their destinations.

use async_trait::async_trait;
use postrider_domain::ids::{DestinationId, SubscriptionId, SubscriptionUid, TenantId};
use postrider_domain::time::Timestamp;
use postrider_store::{
    Configuration, DestinationRecord, DocumentKind, IdempotentAnswer, Key, Page, PageRequest,
    ShardLeases, StoreError, SubscriptionPut, SubscriptionRecord, Tenant,
};

use super::MemoryStore;
use super::paging::{ascending, descending};
use super::state::State;

#[async_trait]
impl Configuration for MemoryStore {
    async fn create_tenant(&self, tenant: &Tenant) -> Result<bool, StoreError> {
        let tenant = tenant.clone();
        self.write(move |state| {
            let is_new = !state.tenants.contains_key(&tenant.id);
            if is_new {
                state.tenants.insert(tenant.id.clone(), tenant);
            }
            Ok(is_new)
        })
        .await
    }

    async fn tenant(&self, id: &TenantId) -> Result<Option<Tenant>, StoreError> {
        self.read(|state| Ok(state.tenants.get(id).cloned())).await
    }

    async fn tenants(&self, page: &PageRequest) -> Result<Page<Tenant>, StoreError> {
        self.read(|state| {
            let entries = state.tenants.values();
            ascending(entries.map(|tenant| (tenant.id.clone(), tenant.clone())), page)
        })
        .await
    }

    async fn update_tenant(&self, tenant: &Tenant) -> Result<bool, StoreError> {
        let tenant = tenant.clone();
        self.write(move |state| match state.tenants.get_mut(&tenant.id) {
            Some(stored) => {
                *stored = Tenant { created_at: stored.created_at, ..tenant };
                Ok(true)
            }
            None => Ok(false),
        })
        .await
    }

    async fn delete_tenant(&self, id: &TenantId) -> Result<bool, StoreError> {
        let id = id.clone();
        self.write(move |state| {
            if state.subscriptions.keys().any(|(tenant, _)| *tenant == id) {
                let why = format!("tenant {id} still has subscriptions");
                return Err(StoreError::Internal(why));
            }
            let existed = state.tenants.remove(&id).is_some();
            if existed {
                state.keys.retain(|_, key| key.tenant.as_ref() != Some(&id));
                state.passes.retain(|_, pass| pass.tenant.as_ref() != Some(&id));
                state.attempt_hours.retain(|_, (tenant, _)| *tenant != id);
                state.documents.retain(|(kind, tenant, _), _| {
                    *kind == DocumentKind::Erasure || tenant.as_ref() != Some(&id)
                });
            }
            Ok(existed)
        })
        .await
    }

    async fn create_key(&self, key: &Key) -> Result<bool, StoreError> {
        let key = key.clone();
        self.write(move |state| {
            let is_new = !state.keys.contains_key(&key.id);
            if is_new {
                state.keys.insert(key.id.clone(), key);
            }
            Ok(is_new)
        })
        .await
    }

    async fn key(&self, id: &str) -> Result<Option<Key>, StoreError> {
        self.read(|state| Ok(state.keys.get(id).cloned())).await
    }

    async fn keys(
        &self,
        tenant: Option<&TenantId>,
        page: &PageRequest,
    ) -> Result<Page<Key>, StoreError> {
        self.read(|state| {
            let keys = state.keys.values().filter(|key| key.tenant.as_ref() == tenant);
            newest_first(keys.map(|key| ((key.created_at, key.id.clone()), key.clone())), page)
        })
        .await
    }

    async fn delete_key(&self, tenant: Option<&TenantId>, id: &str) -> Result<bool, StoreError> {
        let (tenant, id) = (tenant.cloned(), id.to_owned());
        self.write(move |state| {
            let is_theirs = state.keys.get(&id).is_some_and(|key| key.tenant == tenant);
            Ok(is_theirs && state.keys.remove(&id).is_some())
        })
        .await
    }

    async fn touch_keys(&self, used: &[(String, Timestamp)]) -> Result<(), StoreError> {
        let used = used.to_vec();
        self.write(move |state| {
            for (id, at) in used {
                if let Some(key) = state.keys.get_mut(&id) {
                    key.last_used_at = key.last_used_at.max(Some(at));
                }
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
        let (record, destination) = (record.clone(), destination.clone());
        self.write(move |state| Ok(state.put_subscription(record, destination))).await
    }

    async fn reseal_subscription(
        &self,
        before: &SubscriptionRecord,
        after: &SubscriptionRecord,
    ) -> Result<bool, StoreError> {
        let (before, after) = (before.clone(), after.clone());
        let key = (before.subscription.tenant.clone(), before.subscription.id);
        self.write(move |state| {
            let is_same = state.subscriptions.get(&key) == Some(&before);
            if is_same {
                state.subscriptions.insert(key, after);
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
        self.read(|state| {
            let found = state.subscriptions.get(&(tenant.clone(), id));
            Ok(found.filter(|record| record.deleted_at.is_none()).cloned())
        })
        .await
    }

    async fn subscription_by_uid(
        &self,
        tenant: &TenantId,
        uid: &SubscriptionUid,
    ) -> Result<Option<SubscriptionRecord>, StoreError> {
        self.read(|state| Ok(state.by_uid(tenant, uid).cloned())).await
    }

    async fn subscriptions(
        &self,
        tenant: &TenantId,
        page: &PageRequest,
    ) -> Result<Page<SubscriptionRecord>, StoreError> {
        self.read(|state| {
            let theirs = state.subscriptions.values().filter(|record| {
                record.subscription.tenant == *tenant && record.deleted_at.is_none()
            });
            let place = |r: &SubscriptionRecord| (r.subscription.created_at, r.subscription.id);
            newest_first(theirs.map(|record| (place(record), record.clone())), page)
        })
        .await
    }

    async fn all_subscriptions(&self) -> Result<Vec<SubscriptionRecord>, StoreError> {
        self.read(|state| Ok(state.subscriptions.values().cloned().collect())).await
    }

    async fn mark_subscription_deleted(
        &self,
        tenant: &TenantId,
        id: SubscriptionId,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let key = (tenant.clone(), id);
        self.write(move |state| match state.subscriptions.get_mut(&key) {
            Some(record) if record.deleted_at.is_none() => {
                record.deleted_at = Some(now);
                Ok(true)
            }
            Some(_) | None => Ok(false),
        })
        .await
    }

    async fn remove_subscription(
        &self,
        tenant: &TenantId,
        id: SubscriptionId,
    ) -> Result<(), StoreError> {
        let key = (tenant.clone(), id);
        self.write(move |state| {
            let is_marked =
                state.subscriptions.get(&key).is_some_and(|record| record.deleted_at.is_some());
            if is_marked && state.unfinished_of.count(&id) == 0 {
                let gone = state.subscriptions.remove(&key);
                if let Some(SubscriptionRecord { subscription, deleted_at: Some(since), .. }) = gone
                {
                    state.mark_unused(&key.0, subscription.destination, since);
                }
            }
            Ok(())
        })
        .await
    }

    async fn destination(
        &self,
        tenant: &TenantId,
        id: DestinationId,
    ) -> Result<Option<DestinationRecord>, StoreError> {
        self.read(|state| Ok(state.destinations.get(&(tenant.clone(), id)).cloned())).await
    }

    async fn destinations(
        &self,
        tenant: &TenantId,
        page: &PageRequest,
    ) -> Result<Page<DestinationRecord>, StoreError> {
        self.read(|state| {
            let is_used = |key: &(TenantId, DestinationId)| !state.unused_since.contains_key(key);
            let theirs = state.destinations.iter();
            let theirs = theirs.filter(|(key, _)| key.0 == *tenant && is_used(key));
            let theirs = theirs.map(|(_, record)| record);
            let place = |record: &DestinationRecord| (record.created_at, record.id);
            newest_first(theirs.map(|record| (place(record), record.clone())), page)
        })
        .await
    }

    async fn unused_destinations(
        &self,
        now: Timestamp,
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<(TenantId, DestinationId)>, StoreError> {
        self.write(move |state| {
            let all: Vec<(TenantId, DestinationId)> = state.destinations.keys().cloned().collect();
            for (tenant, id) in all {
                if state.is_used(&tenant, id) {
                    state.unused_since.remove(&(tenant, id));
                } else {
                    state.mark_unused(&tenant, id, now);
                }
            }
            let old = state.unused_since.iter().filter(|(_, since)| **since < before);
            Ok(old.map(|(key, _)| key.clone()).take(limit).collect())
        })
        .await
    }

    async fn remove_destination(
        &self,
        tenant: &TenantId,
        id: DestinationId,
        before: Timestamp,
    ) -> Result<bool, StoreError> {
        let key = (tenant.clone(), id);
        self.write(move |state| {
            let is_old = state.unused_since.get(&key).is_some_and(|since| *since < before);
            if !is_old || state.is_used(&key.0, id) {
                return Ok(false);
            }
            state.unused_since.remove(&key);
            state.transitions.remove(&key);
            state.attempt_hours.retain(|(to, _), _| *to != id);
            Ok(state.destinations.remove(&key).is_some())
        })
        .await
    }

    async fn held_destinations(
        &self,
        leases: &ShardLeases,
    ) -> Result<Vec<DestinationRecord>, StoreError> {
        self.read(|state| {
            let held = state.destinations.values().filter(|record| leases.has(record.id.shard()));
            Ok(held.cloned().collect())
        })
        .await
    }

    async fn idempotent_answer(
        &self,
        tenant: &TenantId,
        key: &str,
    ) -> Result<Option<IdempotentAnswer>, StoreError> {
        self.read(|state| Ok(state.answers.get(&(tenant.clone(), key.to_owned())).cloned())).await
    }

    async fn keep_idempotent_answer(
        &self,
        tenant: &TenantId,
        key: &str,
        answer: &IdempotentAnswer,
        since: Timestamp,
    ) -> Result<IdempotentAnswer, StoreError> {
        let (key, answer) = ((tenant.clone(), key.to_owned()), answer.clone());
        self.write(move |state| {
            let kept = state.answers.entry(key).or_insert_with(|| answer.clone());
            if kept.gives_way(&answer, since) {
                *kept = answer;
            }
            Ok(kept.clone())
        })
        .await
    }

    async fn forget_answers(
        &self,
        before: Timestamp,
        most: u64,
        bytes_most: u64,
    ) -> Result<u64, StoreError> {
        self.write(move |state| Ok(state.forget_answers(before, most, bytes_most))).await
    }
}

impl State {
    fn forget_answers(&mut self, before: Timestamp, most: u64, bytes_most: u64) -> u64 {
        let all = self.answers.len();
        self.answers.retain(|_, answer| answer.created_at >= before);
        let mut newest: Vec<_> = self.answers.iter().collect();
        newest.sort_by_key(|((tenant, key), answer)| {
            (tenant, std::cmp::Reverse((answer.created_at, key)))
        });
        let (mut whose, mut count, mut bytes, mut gone) = (None, 0, 0, Vec::new());
        for (place, answer) in newest {
            if whose != Some(&place.0) {
                (whose, count, bytes) = (Some(&place.0), 0, 0);
            }
            count += 1;
            bytes += u64::try_from(answer.body.len()).unwrap_or(u64::MAX);
            if count > most || bytes > bytes_most {
                gone.push(place.clone());
            }
        }
        gone.iter().for_each(|place| drop(self.answers.remove(place)));
        u64::try_from(all - self.answers.len()).unwrap_or(u64::MAX)
    }

    fn put_subscription(
        &mut self,
        record: SubscriptionRecord,
        destination: DestinationRecord,
    ) -> SubscriptionPut {
        let wanted = &record.subscription;
        let uid = wanted.about.uid.as_ref().and_then(|uid| self.by_uid(&wanted.tenant, uid));
        if let Some(other) = uid.filter(|other| other.subscription.id != wanted.id) {
            return SubscriptionPut::UidTaken(other.subscription.id);
        }
        let twin = self.subscriptions.values().find(|other| {
            other.deleted_at.is_none()
                && other.subscription.id != wanted.id
                && other.subscription.is_twin_of(wanted)
        });
        if let Some(twin) = twin {
            return SubscriptionPut::Twin(twin.subscription.id);
        }
        self.destinations
            .entry((destination.tenant.clone(), destination.id))
            .or_insert(destination);
        let (tenant, to, since) = (wanted.tenant.clone(), wanted.destination, wanted.updated_at);
        let before = self.subscriptions.insert((tenant.clone(), wanted.id), record);
        self.unused_since.remove(&(tenant.clone(), to));
        if let Some(before) = before.filter(|before| before.subscription.destination != to) {
            self.mark_unused(&tenant, before.subscription.destination, since);
        }
        SubscriptionPut::Stored
    }

    fn by_uid(&self, tenant: &TenantId, uid: &SubscriptionUid) -> Option<&SubscriptionRecord> {
        self.subscriptions.values().find(|record| {
            record.deleted_at.is_none()
                && record.subscription.tenant == *tenant
                && record.subscription.about.uid.as_ref() == Some(uid)
        })
    }

    /// Whether a subscription or an unfinished delivery uses a destination.
    fn is_used(&self, tenant: &TenantId, id: DestinationId) -> bool {
        self.queued_of.count(&id) + self.waiting_of.count(&id) > 0
            || self.subscriptions.values().any(|record| {
                record.subscription.tenant == *tenant && record.subscription.destination == id
            })
    }

    fn mark_unused(&mut self, tenant: &TenantId, id: DestinationId, since: Timestamp) {
        let key = (tenant.clone(), id);
        if self.destinations.contains_key(&key) && !self.is_used(tenant, id) {
            self.unused_since.entry(key).or_insert(since);
        }
    }
}

/// A page of entries, sorted newest first.
pub(super) fn newest_first<I, T>(
    entries: impl Iterator<Item = ((Timestamp, I), T)>,
    page: &PageRequest,
) -> Result<Page<T>, StoreError>
where
    I: Ord + std::str::FromStr + ToString,
{
    let mut entries: Vec<_> = entries.collect();
    entries.sort_by(|(one, _), (other, _)| other.cmp(one));
    descending(entries.into_iter(), page)
}
