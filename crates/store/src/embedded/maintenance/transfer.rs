//! The embedded store as the source and as the target of a transfer.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use postrider_domain::circuit::Transition;
use postrider_domain::hex;
use postrider_domain::ids::{DestinationId, TenantId};
use postrider_domain::ledger::Ledger;
use postrider_domain::time::Timestamp;
use rusqlite::types::Value;
use rusqlite::{Connection, Params, params};

use crate::embedded::apply::PROGRESS;
use crate::embedded::contract::audit;
use crate::embedded::contract::configuration::{DESTINATION, KEY, SUBSCRIPTION, TENANT};
use crate::embedded::contract::documents;
use crate::embedded::contract::history::{attempts_of, delivery_in, unsigned};
use crate::embedded::files::read_pool::ReadGuard;
use crate::embedded::files::rows::{self, EVENT_COLUMNS, EVENT_JOINS, Reading, StoredEvent};
use crate::embedded::files::{At, Day, Layout, place};
use crate::embedded::{EmbeddedOptions, EmbeddedStore};
use crate::error::StoreError;
use crate::records::Tally;
use crate::transfer::{
    BYTES_MAX, Batch, Item, Part, Progress, Source, Target, Totals, TransferPosition, WholeEvent,
};

/// SQL: whether a minute has any count.
const TALLIED: &str = "(accepted <> 0 OR delivered <> 0 OR failed <> 0 OR dead <> 0)";

impl EmbeddedStore {
    /// Opens an existing store as the source of a transfer. Blocks.
    pub fn open_to_move(
        data_dir: impl AsRef<Path>,
        options: EmbeddedOptions,
    ) -> Result<Arc<EmbeddedStore>, StoreError> {
        let layout = Layout::new(data_dir.as_ref());
        if !layout.main().is_file() {
            let cause = "there is no main.db in it: it is no data directory".to_owned();
            return Err(StoreError::NotWritable { place: place(layout.root()), cause });
        }
        EmbeddedStore::open(data_dir, options)
    }

    pub(in crate::embedded) fn transfer_progress(
        connection: &Connection,
        path: &Path,
    ) -> Result<Option<Progress>, StoreError> {
        let text = match rows::meta(connection, path, PROGRESS)? {
            Some(Value::Text(text)) => text,
            Some(_) => return Err(damaged(path, "the position of a transfer cannot be parsed")),
            None => return Ok(None),
        };
        serde_json::from_str(&text).map(Some).map_err(|error| damaged(path, &error.to_string()))
    }
}

fn damaged(path: &Path, what: &str) -> StoreError {
    StoreError::Corrupt { place: place(path), what: what.to_owned() }
}

#[async_trait]
impl Source for EmbeddedStore {
    async fn identity(&self) -> Result<String, StoreError> {
        self.read(|guard| {
            guard.main(|connection, path| {
                let find = "SELECT lower(hex(value)) FROM meta WHERE key = 'store_id'";
                connection.query_row(find, [], |row| row.get(0)).at(path)
            })
        })
        .await
    }

    /// The lock on the directory excludes other processes.
    async fn running(&self) -> Result<Vec<String>, StoreError> {
        Ok(Vec::new())
    }

    async fn totals(&self) -> Result<Totals, StoreError> {
        self.read(|guard| {
            let mut totals = Totals { records: guard.main(count_main)?, ..Totals::default() };
            for day in guard.days() {
                let counted = guard.day(day, crate::embedded::contract::upkeep::counted)?;
                totals.events += counted.events;
                totals.deliveries += counted.deliveries;
                totals.attempts += counted.attempts;
            }
            totals.records += totals.events + totals.deliveries + totals.attempts;
            Ok(totals)
        })
        .await
    }

    async fn read(&self, from: &TransferPosition, most: usize) -> Result<Batch, StoreError> {
        let TransferPosition { part, mark } = from.clone();
        EmbeddedStore::read(self, move |guard| {
            let mark = mark.as_deref();
            if part == Part::Events {
                return events(guard, mark, most);
            }
            guard.main(|connection, path| {
                let table = Table { connection, path, most };
                table.read(part, mark)
            })
        })
        .await
    }
}

#[async_trait]
impl Target for EmbeddedStore {
    async fn take_over(&self) -> Result<Option<Progress>, StoreError> {
        EmbeddedStore::read(self, |guard| guard.main(Self::transfer_progress)).await
    }

    async fn write(&self, items: Vec<Item>, progress: &Progress) -> Result<(), StoreError> {
        let progress = serde_json::to_string(progress);
        let progress = progress.map_err(|error| StoreError::Internal(error.to_string()))?;
        self.run_in_applier(move |applier| applier.import(items, &progress)).await
    }
}

fn count_main(connection: &Connection, path: &Path) -> Result<u64, StoreError> {
    let derived =
        ["tenants", "keys", "subscriptions", "destinations", "transitions", "answers", "audit"];
    let mut all = derived.map(|table| format!("(SELECT count(*) FROM {table})")).to_vec();
    all.push("(SELECT count(*) FROM replays)".into());
    all.push("(SELECT count(*) FROM documents)".into());
    all.push("(SELECT count(*) FROM attempt_hours)".into());
    all.push("(SELECT count(*) FROM ledger WHERE accepted <> 0)".into());
    all.push(format!("(SELECT count(*) FROM tallies WHERE tenant <> '' AND {TALLIED})"));
    let sql = format!("SELECT {}", all.join(" + "));
    connection.query_row(&sql, [], |row| row.get(0)).map(unsigned).at(path)
}

/// A read of `main.db`, with the number of rows to read.
struct Table<'a> {
    connection: &'a Connection,
    path: &'a Path,
    most: usize,
}

impl Table<'_> {
    fn read(&self, part: Part, mark: Option<&str>) -> Result<Batch, StoreError> {
        let after = mark.unwrap_or("");
        match part {
            Part::Tenants => {
                let sql = format!("{TENANT} WHERE id > ?1 ORDER BY id");
                self.rows("tenants", &sql, [after], |reading| {
                    let tenant = rows::tenant_of(reading)?;
                    Ok((tenant.id.to_string(), Item::Tenant(tenant)))
                })
            }
            Part::Keys => {
                let sql = format!("{KEY} WHERE id > ?1 ORDER BY id");
                self.rows("keys", &sql, [after], |reading| {
                    let key = rows::key_of(reading)?;
                    Ok((key.id.clone(), Item::Key(key)))
                })
            }
            Part::Subscriptions => {
                let sql = format!("{SUBSCRIPTION} WHERE id > ?1 ORDER BY id");
                self.rows("subscriptions", &sql, [self.id_after(mark)?], |reading| {
                    let record = rows::subscription_of(reading)?;
                    let mark = hex::encode(record.subscription.id.as_bytes());
                    Ok((mark, Item::Subscription(Box::new(record))))
                })
            }
            Part::Destinations => {
                let sql = format!("{DESTINATION} WHERE id > ?1 ORDER BY id");
                self.rows("destinations", &sql, [self.id_after(mark)?], |reading| {
                    let destination = rows::destination_of(reading)?;
                    let mark = hex::encode(destination.id.as_bytes());
                    Ok((mark, Item::Destination(Box::new(destination))))
                })
            }
            Part::Transitions => self.transitions(mark),
            Part::Answers => self.answers(mark),
            Part::Audit => {
                let sql = format!("{} WHERE id > ?1 ORDER BY id", audit::ENTRY);
                self.rows("audit", &sql, [self.id_after(mark)?], |reading| {
                    let entry = audit::entry_of(reading)?;
                    Ok((hex::encode(entry.id.as_bytes()), Item::Audit(Box::new(entry))))
                })
            }
            Part::Replays => {
                let sql = "SELECT id, body, crc FROM replays WHERE id > ?1 ORDER BY id";
                self.rows("replays", sql, [self.id_after(mark)?], |reading| {
                    let job = rows::replay_of(reading)?;
                    Ok((hex::encode(job.id.as_bytes()), Item::Replay(Box::new(job))))
                })
            }
            Part::Documents => self.documents(mark),
            Part::Ledgers => self.ledgers(after),
            Part::Tallies => self.tallies(mark),
            Part::AttemptHours => self.attempt_hours(mark),
            // Events are in the files of the days, not in `main.db`.
            Part::Events => Ok(Batch { items: Vec::new(), next: None }),
        }
    }

    fn rows(
        &self,
        name: &'static str,
        sql: &str,
        values: impl Params,
        make: impl Fn(&Reading<'_>) -> Result<(String, Item), StoreError>,
    ) -> Result<Batch, StoreError> {
        let sql = format!("{sql} LIMIT {}", self.most);
        Ok(self.page(rows::all(self.connection, self.path, name, &sql, values, make)?))
    }

    /// A batch of these items; it has the mark of the last one if there may be more.
    fn page(&self, found: Vec<(String, Item)>) -> Batch {
        let is_full = found.len() >= self.most;
        let next = found.last().filter(|_| is_full).map(|(mark, _)| mark.clone());
        Batch { items: found.into_iter().map(|(_, item)| item).collect(), next }
    }

    /// The identifier in a mark; without a mark, a value that sorts before all identifiers.
    fn id_after(&self, mark: Option<&str>) -> Result<Vec<u8>, StoreError> {
        let mark = mark.unwrap_or("");
        let byte = |at: usize| u8::from_str_radix(mark.get(at..at + 2)?, 16).ok();
        let bytes: Option<Vec<u8>> = (0..mark.len()).step_by(2).map(byte).collect();
        bytes.ok_or_else(|| no_place(self.path))
    }

    /// Reads transitions in the order of each timeline, numbered from 0.
    fn transitions(&self, mark: Option<&str>) -> Result<Batch, StoreError> {
        let (mut last, n, mut place) = match mark {
            None => (Vec::new(), i64::MIN, 0),
            Some(mark) => {
                let [id, n, place] = parts(self.path, mark)?;
                let place = unsigned(number(self.path, &place)?) + 1;
                (self.id_after(Some(&id))?, number(self.path, &n)?, place)
            }
        };
        let sql = "SELECT n, tenant, destination, body, crc FROM transitions
            INDEXED BY transitions_of_destination WHERE (destination, n) > (?1, ?2)
            ORDER BY destination, n LIMIT ?3";
        let most = i64::try_from(self.most).unwrap_or(i64::MAX);
        let values = params![last, n, most];
        let found = rows::all(self.connection, self.path, "transitions", sql, values, |row| {
            let body: String = row.get(3)?;
            let (tenant, id) = (row.parse(1)?, row.id(2, DestinationId::from_bytes)?);
            row.check(4, rows::transition_sum(&tenant, id, &body))?;
            Ok((row.get::<i64>(0)?, tenant, id, row.json::<Transition>(&body)?))
        })?;
        let mut items = Vec::with_capacity(found.len());
        for (n, tenant, destination, transition) in found {
            if last != destination.as_bytes() {
                (last, place) = (destination.as_bytes().to_vec(), 0);
            }
            let mark = format!("{} {n} {place}", hex::encode(destination.as_bytes()));
            let transition = Box::new(transition);
            items.push((mark, Item::Transition { tenant, destination, number: place, transition }));
            place += 1;
        }
        Ok(self.page(items))
    }

    fn answers(&self, mark: Option<&str>) -> Result<Batch, StoreError> {
        let [tenant, key] =
            mark.map_or(Ok([String::new(), String::new()]), |mark| parts(self.path, mark))?;
        let sql = "SELECT key, request, status, body, created_at, crc, tenant FROM answers
            WHERE (tenant, key) > (?1, ?2) ORDER BY tenant, key";
        self.rows("answers", sql, [tenant, key], |reading| {
            let (key, tenant): (String, TenantId) = (reading.get(0)?, reading.parse(6)?);
            let answer = rows::answer_of(reading, &tenant, &key)?;
            Ok((format!("{tenant} {key}"), Item::Answer { tenant, key, answer }))
        })
    }

    fn documents(&self, mark: Option<&str>) -> Result<Batch, StoreError> {
        let [kind, tenant, name] = mark
            .map_or(Ok(["-1".into(), String::new(), String::new()]), {
                |mark| parts(self.path, mark)
            })?;
        let sql = format!(
            "{} WHERE (kind, tenant, name) > (?1, ?2, ?3) ORDER BY kind, tenant, name",
            documents::DOCUMENT
        );
        let values = params![number(self.path, &kind)?, tenant, name];
        self.rows("documents", &sql, values, |reading| {
            let document = documents::document_of(reading)?;
            let (kind, tenant): (i64, String) = (reading.get(1)?, reading.get(2)?);
            let mark = format!("{kind} {tenant} {}", document.name);
            Ok((mark, Item::Document(Box::new(document))))
        })
    }

    fn ledgers(&self, after: &str) -> Result<Batch, StoreError> {
        let sql = format!("{} WHERE tenant > ?1 AND accepted <> 0 ORDER BY tenant", rows::LEDGER);
        self.rows("ledger", &sql, [after], |reading| {
            let [accepted, queued, waiting, delivered, dead, cancelled] =
                rows::ledger_of(reading)?.map(unsigned);
            let ledger =
                Ledger { accepted, queued, in_flight: 0, waiting, delivered, dead, cancelled };
            let tenant: TenantId = reading.parse(0)?;
            Ok((tenant.to_string(), Item::Ledger { tenant, ledger }))
        })
    }

    /// Reads tallies without those of the tenant '', which are sums over all tenants: the target
    /// computes them.
    fn tallies(&self, mark: Option<&str>) -> Result<Batch, StoreError> {
        let (tenant, minute) = match mark {
            None => (String::new(), i64::MAX),
            Some(mark) => {
                let [tenant, minute] = parts(self.path, mark)?;
                (tenant, number(self.path, &minute)?)
            }
        };
        let sql = format!(
            "{} WHERE (tenant, minute) > (?1, ?2) AND {TALLIED} ORDER BY tenant, minute",
            rows::TALLIES
        );
        self.rows("tallies", &sql, params![tenant, minute], |reading| {
            let (minute, tally) = rows::tally_of(reading)?;
            let [accepted, delivered, failed, dead] = tally.map(unsigned);
            let tally = Tally { accepted, delivered, failed, dead };
            let tenant: TenantId = reading.parse(0)?;
            Ok((format!("{tenant} {minute}"), Item::Tally { tenant, minute, tally }))
        })
    }

    fn attempt_hours(&self, mark: Option<&str>) -> Result<Batch, StoreError> {
        let (id, hour) = match mark {
            None => (Vec::new(), i64::MIN),
            Some(mark) => {
                let [id, hour] = parts(self.path, mark)?;
                (self.id_after(Some(&id))?, number(self.path, &hour)?)
            }
        };
        let sql = "SELECT h.destination, h.hour, h.counts, h.recent, h.crc, d.tenant
            FROM attempt_hours AS h JOIN destinations AS d ON d.id = h.destination
            WHERE (h.destination, h.hour) > (?1, ?2) ORDER BY h.destination, h.hour";
        self.rows("attempt_hours", sql, params![id, hour], |reading| {
            let (hour, attempts) = rows::attempt_hour_of(reading)?;
            let destination = reading.id(0, DestinationId::from_bytes)?;
            let (tenant, attempts) = (reading.parse(5)?, Box::new(attempts));
            let mark = format!("{} {hour}", hex::encode(destination.as_bytes()));
            Ok((mark, Item::AttemptHour { tenant, destination, hour, attempts }))
        })
    }
}

fn no_place(path: &Path) -> StoreError {
    damaged(path, "the position of a transfer cannot be parsed")
}

/// Splits a mark into `N` parts at spaces; the last part may contain spaces.
fn parts<const N: usize>(path: &Path, mark: &str) -> Result<[String; N], StoreError> {
    let parts: Vec<String> = mark.splitn(N, ' ').map(str::to_owned).collect();
    parts.try_into().map_err(|_| no_place(path))
}

fn number(path: &Path, text: &str) -> Result<i64, StoreError> {
    text.parse().map_err(|_| no_place(path))
}

/// Reads events day by day, in the order of their row numbers.
fn events(guard: &ReadGuard<'_>, mark: Option<&str>, most: usize) -> Result<Batch, StoreError> {
    let days = guard.days();
    let (day, mut after) = match mark {
        None => (days.first().copied(), 0),
        Some(mark) => guard.main(|_, path| {
            let [day, n] = parts(path, mark)?;
            let day = Day::of(Timestamp::from_unix_ms(number(path, &day)?));
            Ok((Some(day), number(path, &n)?))
        })?,
    };
    let (mut items, mut records, mut bytes) = (Vec::new(), 0, 0);
    let Some(first) = day else { return Ok(Batch { items, next: None }) };
    for day in days.range(first..) {
        let is_full = guard.day(*day, |connection, path| {
            let sql = format!(
                "SELECT {EVENT_COLUMNS} FROM events AS e {EVENT_JOINS}
                 WHERE e.n > ?1 ORDER BY e.n"
            );
            let mut statement = connection.prepare_cached(&sql).at(path)?;
            let mut found = statement.query([after]).at(path)?;
            while let Some(row) = found.next().at(path)? {
                let reading = Reading { row, path, table: "events" };
                let stored = rows::event(&reading)?;
                after = stored.number;
                let whole = whole(connection, &reading, *day, stored)?;
                (records, bytes) = (records + whole.records(), bytes + whole.bytes());
                items.push(Item::Event(Box::new(whole)));
                if records >= most || bytes >= BYTES_MAX {
                    return Ok(true);
                }
            }
            Ok(false)
        })?;
        if is_full {
            let next = Some(format!("{} {after}", day.start().as_unix_ms()));
            return Ok(Batch { items, next });
        }
        after = 0;
    }
    Ok(Batch { items, next: None })
}

/// An event with its deliveries and attempts.
fn whole(
    connection: &Connection,
    reading: &Reading<'_>,
    day: Day,
    stored: StoredEvent,
) -> Result<WholeEvent, StoreError> {
    let StoredEvent { record, fingerprint, deliveries: mut owed, number: _ } = stored;
    let tenant = &record.event.tenant;
    owed.sort_unstable();
    let (mut deliveries, mut attempts) = (Vec::with_capacity(owed.len()), Vec::new());
    for id in owed {
        let found = delivery_in(connection, reading.path, day, tenant, id)?;
        let Some((number, delivery)) = found else {
            return Err(reading.damaged("one of its deliveries is not there"));
        };
        let log = attempts_of(connection, reading.path, number, id)?;
        attempts.extend(log.into_iter().map(|attempt| (id, attempt)));
        deliveries.push(delivery);
    }
    Ok(WholeEvent { record, fingerprint, deliveries, attempts })
}
