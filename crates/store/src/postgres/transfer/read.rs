//! Reads batches of a transfer, each in the order of an index.

use std::collections::HashMap;

use postrider_domain::attempt::Attempt;
use postrider_domain::delivery::Delivery;
use postrider_domain::ids::{DeliveryId, DestinationId, EventId, TenantId};
use tokio_postgres::Row;
use uuid::Uuid;

use super::super::PostgresStore;
use super::super::configuration::{answer, destination, key, subscription, tenant};
use super::super::days::DAY_MS;
use super::super::delivery_columns::{DONE, OPEN, deliveries};
use super::super::error::corrupt;
use super::super::pool::{Params, Scope};
use super::super::replays::{SELECT as SELECT_JOBS, job};
use super::super::rows::{self, ATTEMPT, count, get, json, parse, unsigned, uuid};
use super::super::statistics::attempt_hour;
use crate::error::StoreError;
use crate::records::{EventRecord, Tally};
use crate::transfer::{BYTES_MAX, Batch, Item, Part, WholeEvent};

/// How many events are read at once.
const EVENTS_MAX: i64 = 500;

/// The next events of a day, up to a limit in bytes of payload. The size of a payload is known
/// without reading it.
const EVENTS: &str = "SELECT e.*, (SELECT fingerprint FROM postrider.event_ids AS i \
         WHERE i.tenant = e.tenant AND i.id = e.id) AS fingerprint \
     FROM (SELECT k.*, sum(bytes) OVER (ORDER BY tenant, accepted_at, id) - bytes AS before FROM ( \
         SELECT tenant, accepted_at, id, \
                octet_length(data) + coalesce(octet_length(old), 0) AS bytes \
         FROM postrider.events WHERE accepted_at >= $1 AND accepted_at < $2 \
         AND (tenant, accepted_at, id) > ($3, $4, $5) \
         ORDER BY tenant, accepted_at, id LIMIT $6) AS k) AS wanted \
     CROSS JOIN LATERAL (SELECT * FROM postrider.events AS e \
         WHERE e.tenant = wanted.tenant AND e.accepted_at = wanted.accepted_at \
         AND e.id = wanted.id LIMIT 1) AS e \
     WHERE wanted.before < $7 ORDER BY e.tenant, e.accepted_at, e.id";

/// Makes a batch. If it is full there may be more, so it gets the mark of its last entry.
fn page(
    found: &[Row],
    most: i64,
    make: impl Fn(&Row) -> Result<(String, Item), StoreError>,
) -> Result<Batch, StoreError> {
    let items: Vec<(String, Item)> = found.iter().map(make).collect::<Result<_, _>>()?;
    let is_full = count(items.len()) >= most;
    let next = items.last().filter(|_| is_full).map(|(mark, _)| mark.clone());
    Ok(Batch { items: items.into_iter().map(|(_, item)| item).collect(), next })
}

fn no_place() -> StoreError {
    corrupt("transfer", "the position of a transfer cannot be parsed")
}

/// Splits a mark into `N` parts at spaces; the last part may contain spaces.
fn parts<const N: usize>(mark: &str) -> Result<[&str; N], StoreError> {
    let parts: Vec<&str> = mark.splitn(N, ' ').collect();
    parts.try_into().map_err(|_| no_place())
}

fn number(text: &str) -> Result<i64, StoreError> {
    text.parse().map_err(|_| no_place())
}

/// Parses a mark of a tenant and an identifier; without a mark, values that sort before everything.
fn owned_id(mark: Option<&str>) -> Result<(String, Uuid), StoreError> {
    let Some(mark) = mark else { return Ok((String::new(), Uuid::nil())) };
    let [tenant, id] = parts(mark)?;
    Ok((tenant.to_owned(), id.parse().map_err(|_| no_place())?))
}

impl PostgresStore {
    async fn rows(&self, sql: &str, params: Params<'_>) -> Result<Vec<Row>, StoreError> {
        self.core.pool.query(Scope::All, sql, params).await
    }

    /// The next batch of a part of the store.
    pub(super) async fn read_part(
        &self,
        part: Part,
        mark: Option<&str>,
        records_max: usize,
    ) -> Result<Batch, StoreError> {
        let most = count(records_max);
        match part {
            Part::Tenants | Part::Keys => self.named(part, mark.unwrap_or(""), most).await,
            Part::Subscriptions | Part::Destinations | Part::Replays => {
                self.identified(part, mark, most).await
            }
            Part::Transitions => self.timelines(mark, most).await,
            Part::Answers => self.answers(mark, most).await,
            Part::Audit => self.audit_log(mark, most).await,
            Part::Documents => self.small_records(mark, most).await,
            Part::Events => self.whole_events(mark, records_max).await,
            Part::Ledgers => self.ledgers(mark.unwrap_or(""), most).await,
            Part::Tallies => self.minutes(mark, most).await,
            Part::AttemptHours => self.hours(mark, most).await,
        }
    }

    /// Reads records that are identified by a name: tenants and keys.
    async fn named(&self, part: Part, after: &str, most: i64) -> Result<Batch, StoreError> {
        let table = if part == Part::Tenants { "tenants" } else { "keys" };
        let sql = format!("SELECT * FROM postrider.{table} WHERE id > $1 ORDER BY id LIMIT $2");
        let found = self.rows(&sql, &[&after, &most]).await?;
        page(&found, most, |row| {
            let item = if part == Part::Tenants {
                Item::Tenant(tenant(row)?)
            } else {
                Item::Key(key(row)?)
            };
            Ok((get(row, "id")?, item))
        })
    }

    /// Reads records that are identified by a tenant and an identifier.
    async fn identified(
        &self,
        part: Part,
        mark: Option<&str>,
        most: i64,
    ) -> Result<Batch, StoreError> {
        let (whose, id) = owned_id(mark)?;
        let sql = format!(
            "SELECT * FROM postrider.{} WHERE (tenant, id) > ($1, $2) ORDER BY tenant, id LIMIT $3",
            part.as_str()
        );
        let found = if part == Part::Replays {
            let sql = format!(
                "{SELECT_JOBS} WHERE (r.tenant, r.id) > ($1, $2) ORDER BY r.tenant, r.id LIMIT $3"
            );
            self.rows(&sql, &[&whose, &id, &most]).await?
        } else if part == Part::Destinations {
            let sql = "SELECT * FROM postrider.destinations WHERE (id, tenant) > ($2, $1) \
                       ORDER BY id, tenant LIMIT $3";
            self.rows(sql, &[&whose, &id, &most]).await?
        } else {
            self.rows(&sql, &[&whose, &id, &most]).await?
        };
        page(&found, most, |row| {
            let item = if part == Part::Subscriptions {
                Item::Subscription(Box::new(subscription(row)?))
            } else if part == Part::Destinations {
                Item::Destination(Box::new(destination(row)?))
            } else {
                Item::Replay(Box::new(job(row)?))
            };
            let mark = format!("{} {}", get::<&str>(row, "tenant")?, get::<Uuid>(row, "id")?);
            Ok((mark, item))
        })
    }

    async fn timelines(&self, mark: Option<&str>, most: i64) -> Result<Batch, StoreError> {
        let (whose, id, n) = match mark {
            None => (String::new(), Uuid::nil(), i64::MIN),
            Some(mark) => {
                let [tenant, id, n] = parts(mark)?;
                (tenant.to_owned(), id.parse().map_err(|_| no_place())?, number(n)?)
            }
        };
        let sql = "SELECT * FROM postrider.transitions \
                   WHERE (tenant, destination, number) > ($1, $2, $3) \
                   ORDER BY tenant, destination, number LIMIT $4";
        let found = self.rows(sql, &[&whose, &id, &n, &most]).await?;
        page(&found, most, |row| {
            let (tenant, id, n): (TenantId, Uuid, i64) =
                (parse(row, "tenant")?, get(row, "destination")?, get(row, "number")?);
            let mark = format!("{tenant} {id} {n}");
            let destination = DestinationId::from_bytes(id.into_bytes());
            let transition = Box::new(json(row, "record")?);
            Ok((mark, Item::Transition { tenant, destination, number: unsigned(n), transition }))
        })
    }

    async fn answers(&self, mark: Option<&str>, most: i64) -> Result<Batch, StoreError> {
        let [whose, key] = mark.map_or(Ok(["", ""]), parts)?;
        let sql = "SELECT * FROM postrider.answers WHERE (tenant, key) > ($1, $2) \
                   ORDER BY tenant, key LIMIT $3";
        let found = self.rows(sql, &[&whose, &key, &most]).await?;
        page(&found, most, |row| {
            let (tenant, key): (TenantId, String) = (parse(row, "tenant")?, get(row, "key")?);
            let answer = answer(row)?;
            Ok((format!("{tenant} {key}"), Item::Answer { tenant, key, answer }))
        })
    }

    async fn audit_log(&self, mark: Option<&str>, most: i64) -> Result<Batch, StoreError> {
        let after = mark.map_or(Ok(Uuid::nil()), |mark| mark.parse().map_err(|_| no_place()))?;
        let sql = "SELECT id, record FROM postrider.audit WHERE id > $1 ORDER BY id LIMIT $2";
        let found = self.rows(sql, &[&after, &most]).await?;
        page(&found, most, |row| {
            let entry = super::super::audit::entry(row)?;
            Ok((get::<Uuid>(row, "id")?.to_string(), Item::Audit(Box::new(entry))))
        })
    }

    async fn small_records(&self, mark: Option<&str>, most: i64) -> Result<Batch, StoreError> {
        let [kind, whose, name] = mark.map_or(Ok(["-1", "", ""]), parts)?;
        let kind = i16::try_from(number(kind)?).map_err(|_| no_place())?;
        let sql = "SELECT * FROM postrider.documents WHERE (kind, tenant, name) > ($1, $2, $3) \
                   ORDER BY kind, tenant, name LIMIT $4";
        let found = self.rows(sql, &[&kind, &whose, &name, &most]).await?;
        page(&found, most, |row| {
            let document = super::super::documents::document(row)?;
            let (kind, tenant): (i16, &str) = (get(row, "kind")?, get(row, "tenant")?);
            let mark = format!("{kind} {tenant} {}", document.name);
            Ok((mark, Item::Document(Box::new(document))))
        })
    }

    /// Reads the sums of the ledger together with the rows that are not folded into them yet.
    async fn ledgers(&self, after: &str, most: i64) -> Result<Batch, StoreError> {
        let columns = "tenant, accepted, queued, waiting, delivered, dead, cancelled";
        let sum = |name: &str| format!("sum({name})::bigint AS {name}");
        let sums: Vec<String> = columns.split(", ").skip(1).map(sum).collect();
        let sql = format!(
            "SELECT tenant, {} FROM (SELECT {columns} FROM postrider.ledgers WHERE tenant > $1 \
             UNION ALL SELECT {columns} FROM postrider.ledger_deltas WHERE tenant > $1) AS l \
             GROUP BY tenant HAVING sum(accepted) <> 0 ORDER BY tenant LIMIT $2",
            sums.join(", ")
        );
        let found = self.rows(&sql, &[&after, &most]).await?;
        page(&found, most, |row| {
            let (tenant, ledger): (TenantId, _) = (parse(row, "tenant")?, rows::ledger(row)?);
            Ok((tenant.to_string(), Item::Ledger { tenant, ledger }))
        })
    }

    async fn minutes(&self, mark: Option<&str>, most: i64) -> Result<Batch, StoreError> {
        let [whose, minute] = mark.map_or(Ok(["", "0"]), parts)?;
        let minute = number(minute)?;
        let columns = "tenant, minute, accepted, delivered, failed, dead";
        let sum = |name: &str| format!("sum({name})::bigint AS {name}");
        let sums: Vec<String> = columns.split(", ").skip(2).map(sum).collect();
        let sql = format!(
            "SELECT tenant, minute, {} FROM (SELECT {columns} FROM postrider.tallies \
             WHERE (tenant, minute) > ($1, $2) UNION ALL SELECT {columns} \
             FROM postrider.tally_deltas WHERE (tenant, minute) > ($1, $2)) AS t \
             GROUP BY tenant, minute \
             HAVING sum(accepted) <> 0 OR sum(delivered) <> 0 OR sum(failed) <> 0 OR sum(dead) <> 0 \
             ORDER BY tenant, minute LIMIT $3",
            sums.join(", ")
        );
        let found = self.rows(&sql, &[&whose, &minute, &most]).await?;
        page(&found, most, |row| {
            let n = |column| get(row, column).map(unsigned);
            let tally = Tally {
                accepted: n("accepted")?,
                delivered: n("delivered")?,
                failed: n("failed")?,
                dead: n("dead")?,
            };
            let (tenant, minute): (TenantId, i64) = (parse(row, "tenant")?, get(row, "minute")?);
            Ok((format!("{tenant} {minute}"), Item::Tally { tenant, minute, tally }))
        })
    }

    /// Reads hours of attempts. A node of an earlier version may have removed a destination without its hours: those are
    /// left out.
    async fn hours(&self, mark: Option<&str>, most: i64) -> Result<Batch, StoreError> {
        let (id, hour) = match mark {
            None => (Uuid::nil(), i64::MIN),
            Some(mark) => {
                let [id, hour] = parts(mark)?;
                (id.parse().map_err(|_| no_place())?, number(hour)?)
            }
        };
        let sql = "SELECT h.* FROM postrider.attempt_hours AS h \
                   WHERE (h.destination, h.hour) > ($1, $2) \
                   AND EXISTS (SELECT 1 FROM postrider.destinations AS d \
                               WHERE d.id = h.destination AND d.tenant = h.tenant) \
                   ORDER BY h.destination, h.hour LIMIT $3";
        let found = self.rows(sql, &[&id, &hour, &most]).await?;
        page(&found, most, |row| {
            let (id, hour): (Uuid, i64) = (get(row, "destination")?, get(row, "hour")?);
            let (tenant, attempts) = (parse(row, "tenant")?, Box::new(attempt_hour(row)?));
            let destination = DestinationId::from_bytes(id.into_bytes());
            let item = Item::AttemptHour { tenant, destination, hour, attempts };
            Ok((format!("{id} {hour}"), item))
        })
    }

    /// Reads events with their deliveries and attempts, day by day.
    async fn whole_events(&self, mark: Option<&str>, most: usize) -> Result<Batch, StoreError> {
        let (day, mut after) = match mark {
            None => (i32::MIN, (String::new(), i64::MIN, String::new())),
            Some(mark) => {
                let [day, tenant, at, id] = parts(mark)?;
                let day = i32::try_from(number(day)?).map_err(|_| no_place())?;
                (day, (tenant.to_owned(), number(at)?, id.to_owned()))
            }
        };
        let sql = "SELECT day FROM postrider.days WHERE day >= $1 AND NOT removing ORDER BY day";
        for row in &self.rows(sql, &[&day]).await? {
            let day: i32 = get(row, "day")?;
            let items = self.events_of(day, &after, most).await?;
            if let Some(Item::Event(last)) = items.last() {
                let EventRecord { event, accepted_at, .. } = &last.record;
                let at = accepted_at.as_unix_ms();
                let next = Some(format!("{day} {} {at} {}", event.tenant, event.id));
                return Ok(Batch { items, next });
            }
            after = (String::new(), i64::MIN, String::new());
        }
        Ok(Batch { items: Vec::new(), next: None })
    }

    async fn events_of(
        &self,
        day: i32,
        (tenant, at, id): &(String, i64, String),
        most: usize,
    ) -> Result<Vec<Item>, StoreError> {
        let (from, to) = (i64::from(day) * DAY_MS, (i64::from(day) + 1) * DAY_MS);
        let bytes = count(BYTES_MAX);
        let found = self.rows(EVENTS, &[&from, &to, tenant, at, id, &EVENTS_MAX, &bytes]).await?;
        let mut events = Vec::with_capacity(found.len());
        for row in &found {
            let fingerprint = get::<&[u8]>(row, "fingerprint")?.try_into();
            let fingerprint = fingerprint.map_err(|e| corrupt("event_ids", e))?;
            let record = rows::event(row)?;
            events.push(WholeEvent {
                record,
                fingerprint,
                deliveries: Vec::new(),
                attempts: Vec::new(),
            });
        }
        if events.is_empty() {
            return Ok(Vec::new());
        }
        let mut owed = self.deliveries_of(&events, (from, to)).await?;
        let mut records = 0;
        let mut kept = 0;
        for whole in &mut events {
            let event = &whole.record.event;
            let key = (event.tenant.clone(), event.id.clone());
            whole.deliveries = owed.remove(&key).unwrap_or_default();
            whole.deliveries.sort_unstable_by_key(|delivery| delivery.id);
            let tried = |delivery: &Delivery| usize::try_from(delivery.attempts).unwrap_or(0);
            records += 1 + whole.deliveries.iter().map(|d| 1 + tried(d)).sum::<usize>();
            kept += 1;
            if records >= most {
                break;
            }
        }
        events.truncate(kept);
        let mut log = self.attempts_of(&events, (from, to)).await?;
        for whole in &mut events {
            for delivery in &whole.deliveries {
                let attempts = log.remove(&delivery.id).unwrap_or_default();
                whole.attempts.extend(attempts.into_iter().map(|attempt| (delivery.id, attempt)));
            }
        }
        Ok(events.into_iter().map(|whole| Item::Event(Box::new(whole))).collect())
    }

    /// The deliveries of these events of one day. Deliveries have the time of their event, so they
    /// are found by time.
    async fn deliveries_of(
        &self,
        events: &[WholeEvent],
        (from, to): (i64, i64),
    ) -> Result<HashMap<(TenantId, EventId), Vec<Delivery>>, StoreError> {
        let records = || events.iter().map(|whole| &whole.record);
        let tenants: Vec<&str> = records().map(|record| record.event.tenant.as_str()).collect();
        let times: Vec<i64> = records().map(|record| record.accepted_at.as_unix_ms()).collect();
        let ids: Vec<&str> = records().map(|record| record.event.id.as_str()).collect();
        let wanted = "(SELECT DISTINCT * FROM unnest($1::text[], $2::bigint[])) AS w (whose, at)";
        let found = "d.tenant = w.whose AND d.created_at = w.at AND d.event = ANY($3::text[])";
        let (open, done) = (OPEN.as_str(), DONE.as_str());
        let sql = format!(
            "SELECT {open} FROM {wanted} CROSS JOIN LATERAL \
             (SELECT * FROM postrider.deliveries_open AS d WHERE {found}) AS d UNION ALL \
             SELECT {done} FROM {wanted} CROSS JOIN LATERAL \
             (SELECT * FROM postrider.deliveries_done AS d WHERE {found} \
              AND d.created_at >= $4 AND d.created_at < $5) AS d"
        );
        let rows = self.rows(&sql, &[&tenants, &times, &ids, &from, &to]).await?;
        let mut owed: HashMap<(TenantId, EventId), Vec<Delivery>> = HashMap::new();
        for delivery in deliveries(&rows)? {
            let key = (delivery.tenant.clone(), delivery.event.clone());
            owed.entry(key).or_default().push(delivery);
        }
        Ok(owed)
    }

    async fn attempts_of(
        &self,
        events: &[WholeEvent],
        (from, to): (i64, i64),
    ) -> Result<HashMap<DeliveryId, Vec<Attempt>>, StoreError> {
        let deliveries = events.iter().flat_map(|whole| &whole.deliveries);
        let ids: Vec<Uuid> = deliveries.map(|delivery| uuid(delivery.id.as_bytes())).collect();
        let sql = format!(
            "SELECT delivery, {ATTEMPT} FROM postrider.attempts WHERE delivery = ANY($1::uuid[]) \
             AND created_at >= $2 AND created_at < $3 ORDER BY delivery, number"
        );
        let mut log: HashMap<DeliveryId, Vec<Attempt>> = HashMap::new();
        for row in &self.rows(&sql, &[&ids, &from, &to]).await? {
            let id = DeliveryId::from_bytes(rows::id(row, "delivery")?);
            log.entry(id).or_default().push(rows::attempt(row)?);
        }
        Ok(log)
    }
}
