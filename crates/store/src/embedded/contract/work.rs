//! The lanes of `main.db`, and settling.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use bytes::Bytes;
use postrider_domain::delivery::Delivery;
use postrider_domain::event::Event;
use postrider_domain::ids::{DestinationId, EventId, Shard, SubscriptionId, TenantId};
use postrider_domain::time::Timestamp;
use rusqlite::types::Value;
use rusqlite::{Connection, params, params_from_iter};

use super::history::{find_event, name_number};
use super::upkeep::EPOCH;
use crate::contract::Work;
use crate::embedded::EmbeddedStore;
use crate::embedded::apply::kind;
use crate::embedded::files::codec;
use crate::embedded::files::read_pool::ReadGuard;
use crate::embedded::files::row_numbers;
use crate::embedded::files::rows::{self, EVENT_COLUMNS, EVENT_JOINS, FRESH, Reading, WAITING};
use crate::embedded::files::{At, Day};
use crate::embedded::journal::{Meaning, Reserve};
use crate::error::StoreError;
use crate::records::{Commit, DueMark, ShardLeases, WaitingOrder};

#[async_trait]
impl Work for EmbeddedStore {
    async fn queued(
        &self,
        leases: &ShardLeases,
        after: Option<DueMark>,
        limit: usize,
    ) -> Result<Vec<Delivery>, StoreError> {
        let sql = "WHERE (created_at, id) > (?1, ?2) ORDER BY created_at, id";
        self.take(&FRESH, sql, mark(after), Some(leases.clone()), limit).await
    }

    async fn queued_of(
        &self,
        destination: DestinationId,
        after: Option<DueMark>,
        limit: usize,
    ) -> Result<Vec<Delivery>, StoreError> {
        let sql = "INDEXED BY fresh_of_destination
            WHERE destination = ?3 AND (created_at, id) > (?1, ?2) ORDER BY created_at, id";
        let mut values = mark(after);
        values.push(blob(destination.as_bytes()));
        self.take(&FRESH, sql, values, None, limit).await
    }

    async fn due(
        &self,
        leases: &ShardLeases,
        after: Option<DueMark>,
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<Delivery>, StoreError> {
        let sql = "INDEXED BY waiting_due
            WHERE (due_at, id) > (?1, ?2) AND due_at <= ?3 ORDER BY due_at, id";
        let mut values = mark(after);
        values.push(Value::Integer(until.as_unix_ms()));
        self.take(&WAITING, sql, values, Some(leases.clone()), limit).await
    }

    async fn waiting_of(
        &self,
        destination: DestinationId,
        order: WaitingOrder,
        limit: usize,
    ) -> Result<Vec<Delivery>, StoreError> {
        // A delivery that was never attempted has NULL here, which sorts first.
        let sql = match order {
            WaitingOrder::ProbeRank => {
                "INDEXED BY waiting_probe WHERE destination = ?1
                ORDER BY last_attempt_at, id"
            }
            WaitingOrder::Oldest => {
                "INDEXED BY waiting_oldest WHERE destination = ?1
                ORDER BY created_at, id"
            }
            WaitingOrder::Due => {
                "INDEXED BY waiting_due_of WHERE destination = ?1 ORDER BY due_at, id"
            }
        };
        self.take(&WAITING, sql, vec![blob(destination.as_bytes())], None, limit).await
    }

    async fn unfinished_of(
        &self,
        subscription: SubscriptionId,
        limit: usize,
    ) -> Result<Vec<Delivery>, StoreError> {
        let values = vec![blob(subscription.as_bytes())];
        let sql = "INDEXED BY waiting_of_subscription WHERE subscription = ?1 ORDER BY id";
        let mut found = self.take(&WAITING, sql, values.clone(), None, limit).await?;
        // Needed only when a subscription is deleted, so the first lane has no index for it and is
        // scanned.
        let left = limit.saturating_sub(found.len());
        if left > 0 {
            let sql = "WHERE subscription = ?1";
            let scanned = self.scan(first_of(&FRESH, sql, values, |_| true, left)).await?;
            found.extend(scanned);
        }
        Ok(found)
    }

    async fn events(
        &self,
        ids: &[(TenantId, EventId)],
    ) -> Result<Vec<Option<Arc<Event>>>, StoreError> {
        // An event never changes, so one that SQLite has already can be returned without a barrier.
        let wanted: Arc<[(TenantId, EventId)]> = ids.into();
        let first = Arc::clone(&wanted);
        let found = self.read_now(move |guard| find_events(guard, &first)).await?;
        if found.iter().all(Option::is_some) {
            return Ok(found);
        }
        self.read(move |guard| find_missing(guard, &wanted, found)).await
    }

    async fn settle(&self, leases: &ShardLeases, commit: Commit) -> Result<(), StoreError> {
        let of_deliveries = commit.deliveries.iter().map(|change| change.delivery.destination);
        let of_destinations = commit.destinations.iter().map(|change| change.id);
        for shard in of_deliveries.chain(of_destinations).map(|id| id.shard()) {
            if !is_held(leases, shard) {
                return Err(StoreError::Fenced { shard });
            }
        }
        let record = Bytes::from(codec::put_commit(&commit));
        let meaning = Meaning::new(Arc::new(commit));
        let reserve = Reserve::MayUseReserve;
        let appended = self.journal.append_meaning(kind::SETTLE, record, meaning, reserve).await;
        appended.map(drop).map_err(|error| self.refused(&error))
    }
}

fn is_held(leases: &ShardLeases, shard: Shard) -> bool {
    let place = leases.shards.binary_search_by_key(&shard, |(held, _)| *held);
    place.is_ok_and(|place| leases.shards.get(place).is_some_and(|(_, epoch)| *epoch == EPOCH))
}

/// A mark as parameters of a query; without a mark, values that sort before every row.
fn mark(after: Option<DueMark>) -> Vec<Value> {
    match after {
        Some(mark) => {
            vec![Value::Integer(mark.at.as_unix_ms()), blob(mark.delivery.as_bytes())]
        }
        None => vec![Value::Integer(i64::MIN), Value::Blob(Vec::new())],
    }
}

fn blob(bytes: &[u8]) -> Value {
    Value::Blob(bytes.to_vec())
}

/// Finds events, in the order of `ids`.
fn find_events(
    guard: &ReadGuard<'_>,
    ids: &[(TenantId, EventId)],
) -> Result<Vec<Option<Arc<Event>>>, StoreError> {
    find_missing(guard, ids, vec![None; ids.len()])
}

/// Finds the events that are missing in `found`. Those whose identifiers Postrider made are read
/// together by the numbers of their rows, the others one by one.
fn find_missing(
    guard: &ReadGuard<'_>,
    ids: &[(TenantId, EventId)],
    mut found: Vec<Option<Arc<Event>>>,
) -> Result<Vec<Option<Arc<Event>>>, StoreError> {
    let days = guard.days();
    let mut by_day: BTreeMap<Day, Vec<Derived>> = BTreeMap::new();
    for (place, ((_, id), _)) in
        ids.iter().zip(&found).enumerate().filter(|(_, (_, f))| f.is_none())
    {
        let Some(made) = row_numbers::made(id.as_str()) else { continue };
        let day = Day::of(row_numbers::made_at(&made));
        if days.contains(&day) {
            by_day.entry(day).or_default().push(Derived { place, made });
        }
    }
    for (day, derived) in by_day {
        guard.day(day, |connection, path| {
            let rows = (connection, path);
            read_derived(guard, rows, day, (ids, &derived), &mut found)
        })?;
    }
    for (found, (tenant, id)) in found.iter_mut().zip(ids) {
        if found.is_none() {
            *found = find_event(guard, tenant, id)?.map(|(_, stored)| stored.record.event);
        }
    }
    Ok(found)
}

/// An identifier that Postrider made, and its place among all that are wanted.
struct Derived {
    place: usize,
    made: [u8; 16],
}

/// Reads the derived rows of a day into their places, in one transaction and in the order of their
/// numbers. An event without a derived row is left out: it may have an indexed one.
fn read_derived(
    guard: &ReadGuard<'_>,
    (connection, path): (&Connection, &Path),
    day: Day,
    (ids, wanted): (&[(TenantId, EventId)], &[Derived]),
    found: &mut [Option<Arc<Event>>],
) -> Result<(), StoreError> {
    static FIND: LazyLock<String> = LazyLock::new(|| {
        format!(
            "SELECT {EVENT_COLUMNS} FROM events AS e {EVENT_JOINS}
            WHERE e.n = ?1 AND e.tenant = ?2 AND e.id = ?3 AND e.odd IS NULL"
        )
    });
    let transaction = connection.unchecked_transaction().at(path)?;
    let mut tenants: HashMap<&TenantId, Option<i64>> = HashMap::new();
    let mut numbers = Vec::with_capacity(wanted.len());
    for Derived { place, made } in wanted {
        let tenant = &ids[*place].0;
        let of_tenant = match tenants.get(tenant) {
            Some(number) => *number,
            None => {
                let number = name_number(&transaction, path, tenant.as_str())?;
                tenants.insert(tenant, number);
                number
            }
        };
        let n =
            of_tenant.and_then(|tenant| Some((row_numbers::derived(tenant, day, made)?, tenant)));
        numbers.extend(n.map(|(n, tenant)| (n, tenant, made, *place)));
    }
    numbers.sort_unstable();
    let mut statement = transaction.prepare_cached(&FIND).at(path)?;
    for (n, tenant, made, place) in numbers {
        guard.check()?;
        let mut rows = statement.query(params![n, tenant, made.as_slice()]).at(path)?;
        let Some(row) = rows.next().at(path)? else { continue };
        let reading = Reading { row, path, table: "events" };
        let event = rows::event(&reading)?.record.event;
        let (tenant, id) = &ids[place];
        // The columns of the condition are damaged if the decoded row is another one.
        if event.id != *id || event.tenant != *tenant {
            return Err(reading.damaged("an index leads to another event"));
        }
        found[place] = Some(event);
    }
    Ok(())
}

impl EmbeddedStore {
    /// Reads the first rows of a lane by one of its indexes, only of the shards of `leases`.
    async fn take(
        &self,
        lane: &'static str,
        sql: &'static str,
        values: Vec<Value>,
        leases: Option<ShardLeases>,
        limit: usize,
    ) -> Result<Vec<Delivery>, StoreError> {
        let is_wanted = move |delivery: &Delivery| {
            leases.as_ref().is_none_or(|leases| leases.has(delivery.destination.shard()))
        };
        self.read(first_of(lane, sql, values, is_wanted, limit)).await
    }
}

/// Makes a read of the first deliveries of a lane that `is_wanted` accepts.
fn first_of(
    lane: &'static str,
    sql: &'static str,
    values: Vec<Value>,
    is_wanted: impl Fn(&Delivery) -> bool + Send + 'static,
    limit: usize,
) -> impl FnOnce(&ReadGuard<'_>) -> Result<Vec<Delivery>, StoreError> + Send + 'static {
    move |guard| {
        guard.main(|connection, path| {
            let sql = format!("{lane} {sql}");
            let mut statement = connection.prepare_cached(&sql).at(path)?;
            let mut rows = statement.query(params_from_iter(values)).at(path)?;
            let mut found = Vec::new();
            while found.len() < limit
                && let Some(row) = rows.next().at(path)?
            {
                let delivery = rows::delivery(&Reading { row, path, table: "queue" })?;
                if is_wanted(&delivery) {
                    found.push(delivery);
                }
            }
            Ok(found)
        })
    }
}
