//! Writing to a day's file.
//!
//! **Every write says what a row is, not how it changes**: doing the writes of a stretch of the
//! journal again ends in the same rows. That is why no position has to be kept with each file.

use std::path::PathBuf;

use postrider_domain::attempt::{Attempt, Ending};
use postrider_domain::delivery::Delivery;
use postrider_domain::ids::{DeliveryId, DestinationId, SubscriptionId};
use postrider_domain::trace::TraceContext;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{CachedStatement, Connection, OptionalExtension, Transaction, params};

use super::super::codec::{self, Encoder};
use super::super::files::{At, Day, LARGE_PAGE_BYTES, Layout, open_writer, sync_directory};
use super::super::numbering;
use super::super::rows;
use super::super::schema;
use super::super::sieve::{Sieve, Sieves};
use super::super::{QuickMap, QuickSet};
use super::fold::{Folded, OfDay};
use crate::error::StoreError;
use crate::records::Acceptance;

/// Names and routes are looked up again when so many are remembered.
const REMEMBERED_MAX: usize = 200_000;

type Route = (i64, SubscriptionId, DestinationId, i64);

/// A day's file, open for writing.
#[derive(Debug)]
pub(in crate::embedded) struct DayFile {
    day: Day,
    connection: Connection,
    path: PathBuf,
    numbers: Numbers,
    /// The file may keep a sieve.
    keeps: bool,
}

/// The numbers of names and routes, as far as they were needed.
#[derive(Debug, Default)]
struct Numbers {
    names: QuickMap<String, i64>,
    routes: QuickMap<Route, i64>,
}

impl DayFile {
    /// Opens the file; says whether it is new.
    pub(super) fn open(layout: &Layout, day: Day) -> Result<(Self, bool), StoreError> {
        let path = layout.day(day);
        let is_new = !path.exists();
        let mut connection = open_writer(&path, true, LARGE_PAGE_BYTES)?;
        schema::migrate(&mut connection, &path, schema::DAY)?;
        if is_new {
            sync_directory(&layout.history())?;
        }
        let file = DayFile { day, connection, path, numbers: Numbers::default(), keeps: true };
        Ok((file, is_new))
    }

    /// Keeps the sieve of the day.
    pub(super) fn keep(&mut self, sieve: &Sieve) -> Result<(), StoreError> {
        self.keeps = true;
        sieve.keep(&mut self.connection).at(&self.path)
    }

    pub(in crate::embedded) fn connection(&mut self) -> (&mut Connection, &PathBuf) {
        (&mut self.connection, &self.path)
    }

    /// Writes all of it, or nothing. Answers with the hashes of the odd events.
    pub(super) fn write(&mut self, of_day: &OfDay<'_>) -> Result<Vec<u64>, StoreError> {
        if self.numbers.names.len() + self.numbers.routes.len() > REMEMBERED_MAX {
            self.numbers = Numbers::default();
        }
        let transaction = self.connection.transaction().at(&self.path)?;
        let mut writing = Writing {
            transaction: &transaction,
            numbers: &mut self.numbers,
            day: self.day,
            odd: Vec::new(),
        };
        let written = writing
            .events(&of_day.events)
            .and_then(|events| writing.deliveries(&of_day.deliveries, &events))
            .and_then(|()| write_attempts(&transaction, &of_day.attempts));
        let odd = writing.odd;
        let makes_wrong = self.keeps && !odd.is_empty();
        let written = written
            .and_then(|()| if makes_wrong { Sieve::forget_kept(&transaction) } else { Ok(()) })
            .and_then(|()| transaction.commit());
        if written.is_err() {
            // Numbers that were given out in a transaction that is undone are not theirs.
            self.numbers = Numbers::default();
        }
        written.at(&self.path)?;
        self.keeps &= !makes_wrong;
        Ok(odd)
    }
}

/// A transaction that is under way.
struct Writing<'w> {
    transaction: &'w Transaction<'w>,
    numbers: &'w mut Numbers,
    day: Day,
    /// The hashes of odd events.
    odd: Vec<u64>,
}

/// A row that is to be written: its number if it is plain, and where it stands among the others.
type Planned = (Option<i64>, usize);

impl Writing<'_> {
    /// Writes the events in the order of their numbers; answers with each one's number.
    fn events(&mut self, events: &[&Acceptance]) -> rusqlite::Result<Vec<i64>> {
        let mut plan: Vec<(Planned, i64, Option<[u8; 16]>)> = Vec::with_capacity(events.len());
        for (place, acceptance) in events.iter().enumerate() {
            let event = &acceptance.event;
            let tenant = self.numbers.name(self.transaction, event.tenant.as_str())?;
            let made = numbering::made(event.id.as_str());
            let at = acceptance.accepted_at;
            let plain = made.and_then(|id| numbering::plain_at(tenant, self.day, at, &id));
            plan.push(((plain, place), tenant, made));
        }
        plan.sort_unstable_by_key(|(planned, ..)| *planned);
        let mut insert = self.transaction.prepare_cached(INSERT_EVENT)?;
        let mut insert_odd = self.transaction.prepare_cached(INSERT_ODD_EVENT)?;
        let (mut scratch, mut owed) = (Encoder::default(), Vec::new());
        let mut written = vec![0; events.len()];
        let mut seconds: QuickSet<(i64, i64, i64)> = QuickSet::default();
        for ((plain, place), tenant, made) in plan {
            let Some(acceptance) = events.get(place) else { continue };
            let event = &acceptance.event;
            owed.clear();
            for delivery in &acceptance.deliveries {
                owed.extend_from_slice(delivery.id.as_bytes());
            }
            let (at, fingerprint) = (acceptance.accepted_at, &acceptance.fingerprint);
            let crc = codec::event_sum(&mut scratch, event, at, fingerprint, &owed);
            let kind = self.numbers.name(self.transaction, event.kind.as_str())?;
            let id = match &made {
                Some(bytes) => ValueRef::Blob(bytes),
                None => ValueRef::Text(event.id.as_str().as_bytes()),
            };
            let run = |statement: &mut CachedStatement<'_>, n: i64| {
                statement.execute(params![
                    n,
                    tenant,
                    ToSqlOutput::Borrowed(id),
                    kind,
                    event.object.as_ref().map(|object| object.as_str()),
                    event.time.as_unix_ms(),
                    at.as_unix_ms(),
                    fingerprint.as_slice(),
                    owed.as_slice(),
                    crc,
                    event.data.as_bytes().as_ref(),
                    event.old.as_ref().map(|old| old.as_bytes().as_ref()),
                    event.trace.map(TraceContext::to_bytes),
                ])
            };
            let number = match plain {
                Some(n) if run(&mut insert, n)? > 0 => n,
                Some(_) | None => {
                    self.odd.push(Sieves::hash(&event.tenant, &event.id));
                    let hash = crc32fast::hash(event.id.as_str().as_bytes());
                    let known = "SELECT n FROM events WHERE odd = 1 AND tenant = ?1 AND id = ?2";
                    let values = params![tenant, ToSqlOutput::Borrowed(id)];
                    place_odd(
                        (self.transaction, "events"),
                        |n| numbering::odd(tenant, self.day, at, hash, n),
                        |n| Ok(run(&mut insert_odd, n)? > 0),
                        || number_of(self.transaction, known, values),
                    )?
                }
            };
            seconds.insert((tenant, kind, numbering::second(number)));
            if let Some(entry) = written.get_mut(place) {
                *entry = number;
            }
        }
        self.note(seconds)?;
        Ok(written)
    }

    /// Notes in which seconds of the day there were events of a type.
    fn note(&self, seconds: QuickSet<(i64, i64, i64)>) -> rusqlite::Result<()> {
        let note = "INSERT OR IGNORE INTO seconds VALUES (?1, ?2, ?3)";
        let mut note = self.transaction.prepare_cached(note)?;
        for (tenant, kind, second) in seconds {
            note.execute([tenant, kind, second])?;
        }
        Ok(())
    }

    fn deliveries(&mut self, deliveries: &[Folded<'_>], events: &[i64]) -> rusqlite::Result<()> {
        let mut plan: Vec<(Planned, i64)> = Vec::with_capacity(deliveries.len());
        for (place, Folded { delivery, .. }) in deliveries.iter().enumerate() {
            let tenant = self.numbers.name(self.transaction, delivery.tenant.as_str())?;
            let (at, id) = (delivery.created_at, delivery.id.as_bytes());
            plan.push(((numbering::plain_at(tenant, self.day, at, id), place), tenant));
        }
        plan.sort_unstable();
        let mut rows = DeliveryRows::new(self.transaction, self.day)?;
        for ((plain, place), tenant) in plan {
            let Some(folded) = deliveries.get(place) else { continue };
            rows.encode(folded);
            if folded.event.is_none() && rows.change(plain, folded.delivery)? {
                continue;
            }
            let route = self.numbers.route(self.transaction, tenant, folded.delivery)?;
            let event = folded.event.and_then(|place| events.get(place)).copied();
            rows.insert(plain, tenant, route, event, folded.delivery)?;
        }
        Ok(())
    }
}

const INSERT_EVENT: &str = "INSERT INTO events (n, tenant, id, kind, object, time, accepted_at,
        fingerprint, deliveries, crc, data, old, trace)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
    ON CONFLICT (n) DO UPDATE SET odd = odd WHERE tenant = ?2 AND id = ?3 AND odd IS NULL";
const INSERT_ODD_EVENT: &str = "INSERT INTO events (n, odd, tenant, id, kind, object, time,
        accepted_at, fingerprint, deliveries, crc, data, old, trace)
    VALUES (?1, 1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13) ON CONFLICT DO NOTHING";

const INSERT_DELIVERY: &str = "INSERT INTO deliveries (n, id, state, at, attempts, last_attempt_at,
        detail, crc, first, route, event, event_id, created_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
    ON CONFLICT (n) DO UPDATE SET state = ?3, at = ?4, attempts = ?5, last_attempt_at = ?6,
        detail = ?7, crc = ?8, first = ?9 WHERE id = ?2 AND odd IS NULL";
const INSERT_ODD_DELIVERY: &str = "INSERT INTO deliveries (n, odd, id, state, at, attempts,
        last_attempt_at, detail, crc, first, route, event, event_id, created_at)
    VALUES (?1, 1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
    ON CONFLICT DO NOTHING";
const CHANGE_DELIVERY: &str = "UPDATE deliveries SET state = ?3, at = ?4, attempts = ?5,
        last_attempt_at = ?6, detail = ?7, crc = ?8, first = coalesce(first, ?9)
    WHERE n = ?1 AND id = ?2 AND odd IS NULL";
const CHANGE_ODD_DELIVERY: &str = "UPDATE deliveries SET state = ?3, at = ?4, attempts = ?5,
        last_attempt_at = ?6, detail = ?7, crc = ?8, first = coalesce(first, ?9)
    WHERE ?1 IS ?1 AND id = ?2 AND odd = 1";
const RENEW_ODD_DELIVERY: &str = "UPDATE deliveries SET state = ?3, at = ?4, attempts = ?5,
        last_attempt_at = ?6, detail = ?7, crc = ?8, first = ?9
    WHERE ?1 IS ?1 AND id = ?2 AND odd = 1";

/// The statements that write deliveries, and the parts of a row that are encoded.
struct DeliveryRows<'w> {
    transaction: &'w Transaction<'w>,
    day: Day,
    insert: CachedStatement<'w>,
    change: CachedStatement<'w>,
    scratch: Encoder,
    detail: Encoder,
    first: Option<Encoder>,
    crc: u32,
}

impl<'w> DeliveryRows<'w> {
    fn new(transaction: &'w Transaction<'w>, day: Day) -> rusqlite::Result<Self> {
        Ok(DeliveryRows {
            transaction,
            day,
            insert: transaction.prepare_cached(INSERT_DELIVERY)?,
            change: transaction.prepare_cached(CHANGE_DELIVERY)?,
            scratch: Encoder::default(),
            detail: Encoder::default(),
            first: None,
            crc: 0,
        })
    }

    fn encode(&mut self, folded: &Folded<'_>) {
        self.crc = codec::delivery_sum(&mut self.scratch, folded.delivery);
        self.detail.clear();
        codec::put_state(&mut self.detail, &folded.delivery.state);
        self.first = folded.first.map(|attempt| {
            let mut first = self.first.take().unwrap_or_default();
            first.clear();
            codec::put_first_attempt(&mut first, folded.delivery.id, attempt);
            first
        });
    }

    /// Changes a row that is there; `false` where there is none.
    fn change(&mut self, plain: Option<i64>, delivery: &Delivery) -> rusqlite::Result<bool> {
        let DeliveryRows { change, detail, first, crc, .. } = self;
        let first = first.as_ref();
        if plain.is_some() && run_change(change, plain, (detail, first), *crc, delivery)? {
            return Ok(true);
        }
        let mut odd = self.transaction.prepare_cached(CHANGE_ODD_DELIVERY)?;
        run_change(&mut odd, None, (detail, first), *crc, delivery)
    }

    fn insert(
        &mut self,
        plain: Option<i64>,
        tenant: i64,
        route: i64,
        event: Option<i64>,
        delivery: &Delivery,
    ) -> rusqlite::Result<()> {
        let DeliveryRows { transaction, insert, detail, first, crc, .. } = self;
        let at = delivery.finished_at().or(delivery.next_attempt_at());
        let event_id = if event.is_none() { Some(delivery.event.as_str()) } else { None };
        let run = |statement: &mut CachedStatement<'_>, n: i64| {
            let values = params![
                n,
                delivery.id.as_bytes().as_slice(),
                codec::state_number(delivery.state.name()),
                at.map(|at| at.as_unix_ms()),
                delivery.attempts,
                delivery.last_attempt_at.map(|at| at.as_unix_ms()),
                detail.as_slice(),
                *crc,
                first.as_ref().map(Encoder::as_slice),
                route,
                event,
                event_id,
                delivery.created_at.as_unix_ms(),
            ];
            Ok(statement.execute(values)? > 0)
        };
        if let Some(n) = plain
            && run(insert, n)?
        {
            return Ok(());
        }
        let mut insert = transaction.prepare_cached(INSERT_ODD_DELIVERY)?;
        let hash = crc32fast::hash(delivery.id.as_bytes());
        let known = || {
            // It is the same row once more: it becomes what it is now.
            let mut renew = transaction.prepare_cached(RENEW_ODD_DELIVERY)?;
            let renewed = run_change(&mut renew, None, (detail, first.as_ref()), *crc, delivery)?;
            Ok(renewed.then_some(0))
        };
        let place = |n| numbering::odd(tenant, self.day, delivery.created_at, hash, n);
        place_odd((transaction, "deliveries"), place, |n| run(&mut insert, n), known).map(drop)
    }
}

fn run_change(
    statement: &mut CachedStatement<'_>,
    n: Option<i64>,
    (detail, first): (&Encoder, Option<&Encoder>),
    crc: u32,
    delivery: &Delivery,
) -> rusqlite::Result<bool> {
    let at = delivery.finished_at().or(delivery.next_attempt_at());
    let changed = statement.execute(params![
        n,
        delivery.id.as_bytes().as_slice(),
        codec::state_number(delivery.state.name()),
        at.map(|at| at.as_unix_ms()),
        delivery.attempts,
        delivery.last_attempt_at.map(|at| at.as_unix_ms()),
        detail.as_slice(),
        crc,
        first.map(Encoder::as_slice),
    ])?;
    Ok(changed > 0)
}

fn number_of(
    transaction: &Transaction<'_>,
    sql: &str,
    values: impl rusqlite::Params,
) -> rusqlite::Result<Option<i64>> {
    transaction.prepare_cached(sql)?.query_row(values, |row| row.get(0)).optional()
}

/// Finds a place for an odd row, unless it has one: somewhere in its millisecond, or else after it.
fn place_odd(
    (transaction, table): (&Transaction<'_>, &str),
    place: impl Fn(i64) -> i64,
    mut insert: impl FnMut(i64) -> rusqlite::Result<bool>,
    known: impl Fn() -> rusqlite::Result<Option<i64>>,
) -> rusqlite::Result<i64> {
    let first = place(0);
    if insert(first)? {
        return Ok(first);
    }
    if let Some(known) = known()? {
        return Ok(known);
    }
    for number in (1..numbering::TRIES).map(place) {
        if insert(number)? {
            return Ok(number);
        }
    }
    // The last one of a stretch of numbers that are all taken.
    let last = format!(
        "SELECT n FROM {table} AS r WHERE n >= ?1
            AND NOT EXISTS (SELECT 1 FROM {table} WHERE n = r.n + 1) ORDER BY n LIMIT 1"
    );
    let last = number_of(transaction, &last, [first])?;
    let number = last.map_or(first, |last| last.saturating_add(1));
    if insert(number)? {
        return Ok(number);
    }
    Err(rusqlite::Error::QueryReturnedNoRows)
}

fn write_attempts(
    transaction: &Transaction<'_>,
    attempts: &[(DeliveryId, &Attempt)],
) -> rusqlite::Result<()> {
    let mut insert = transaction.prepare_cached(
        "INSERT OR REPLACE INTO attempts (delivery, number, started_at, status, error, body, crc)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?;
    let mut sorted: Vec<&(DeliveryId, &Attempt)> = attempts.iter().collect();
    sorted.sort_unstable_by_key(|(delivery, attempt)| (*delivery, attempt.number));
    let mut body = Encoder::default();
    for (delivery, attempt) in sorted {
        body.clear();
        codec::put_attempt(&mut body, attempt);
        let error = match &attempt.ending {
            Ending::Answered(_) => None,
            Ending::Failed(_) | Ending::OwnFault(_) => Some(attempt.ending.to_string()),
        };
        insert.execute(params![
            delivery.as_bytes().as_slice(),
            attempt.number,
            attempt.started_at.as_unix_ms(),
            attempt.ending.status(),
            error,
            body.as_slice(),
            rows::attempt_sum(delivery.as_bytes(), body.as_slice()),
        ])?;
    }
    Ok(())
}

impl Numbers {
    fn name(&mut self, transaction: &Transaction<'_>, name: &str) -> rusqlite::Result<i64> {
        if let Some(&number) = self.names.get(name) {
            return Ok(number);
        }
        let find = "SELECT n FROM names WHERE name = ?1";
        let found = transaction.query_row(find, [name], |row| row.get(0)).optional()?;
        let number = match found {
            Some(number) => number,
            None => {
                transaction.execute("INSERT INTO names (name) VALUES (?1)", [name])?;
                transaction.last_insert_rowid()
            }
        };
        self.names.insert(name.to_owned(), number);
        Ok(number)
    }

    fn route(
        &mut self,
        transaction: &Transaction<'_>,
        tenant: i64,
        delivery: &Delivery,
    ) -> rusqlite::Result<i64> {
        let kind = self.name(transaction, delivery.kind.as_str())?;
        let route = (tenant, delivery.subscription, delivery.destination, kind);
        if let Some(&number) = self.routes.get(&route) {
            return Ok(number);
        }
        let subscription = delivery.subscription.as_bytes().as_slice();
        let values =
            params![tenant, subscription, delivery.destination.as_bytes().as_slice(), kind];
        let find = "SELECT n FROM routes
            WHERE tenant = ?1 AND subscription = ?2 AND destination = ?3 AND kind = ?4";
        let found = transaction.query_row(find, values, |row| row.get(0)).optional()?;
        let number = match found {
            Some(number) => number,
            None => {
                let insert = "INSERT INTO routes (tenant, subscription, destination, kind)
                    VALUES (?1, ?2, ?3, ?4)";
                transaction.execute(insert, values)?;
                transaction.last_insert_rowid()
            }
        };
        self.routes.insert(route, number);
        Ok(number)
    }
}
