//! Accepting events: many callers share one commit.
//!
//! One task takes all batches that arrived while the last commit was running and writes them in one
//! transaction. Each batch is checked on its own, in order: if one has a conflict, nothing of it is
//! written, and the others are not affected. **A batch can be repeated**: event identifiers are
//! unique in the database, so an event that was written is a duplicate the next time.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use async_trait::async_trait;
use postrider_domain::delivery::{Delivery, DeliveryState};
use postrider_domain::ids::{EventId, TenantId};
use postrider_domain::time::Timestamp;
use tokio::sync::{mpsc, oneshot};
use tokio_postgres::types::ToSql;

use super::counts::{Counts, LedgerColumns, TallyColumns};
use super::days::day_of;
use super::delivery_columns::{DeliveryColumns, INSERT_OPEN};
use super::error::for_everybody;
use super::pool::{Refused, Scope, Step, Transaction};
use super::rows::{count, get, to_json};
use super::{PostgresStore, StoreState};
use crate::contract::Intake;
use crate::error::StoreError;
use crate::nodes::ShardSet;
use crate::records::{Acceptance, Accepted};

/// How many callers may wait.
const CALLERS_MAX: usize = 4_096;
/// A transaction takes no further callers once it has this many deliveries and events,
const ROWS_MAX: usize = 4_000;
/// or this many bytes of payload.
const BYTES_MAX: usize = 8 << 20;
/// How often a batch is tried while other nodes keep taking its identifiers.
const TRIES_MAX: usize = 8;

/// The answer to a caller; `None` if a subscription changed after the version that the batch was
/// matched with.
type Answer = Result<Option<Vec<Accepted>>, StoreError>;

/// One caller's batch.
pub(super) struct Request {
    batch: Vec<Acceptance>,
    /// The version of the configuration with which the batch was matched; `None` if that is not to
    /// be checked.
    as_of: Option<u64>,
    answer: oneshot::Sender<Answer>,
}

#[async_trait]
impl Intake for PostgresStore {
    async fn accept(&self, batch: Vec<Acceptance>) -> Result<Vec<Accepted>, StoreError> {
        self.hand_in(batch, None).await.map(Option::unwrap_or_default)
    }
}

impl PostgresStore {
    /// Passes a batch to the task and waits for the answer.
    pub(super) async fn hand_in(&self, batch: Vec<Acceptance>, as_of: Option<u64>) -> Answer {
        if batch.is_empty() {
            return Ok(Some(Vec::new()));
        }
        check(&batch)?;
        let (answer, answered) = oneshot::channel();
        let gone = || StoreError::Stopped("it was closed".into());
        self.acceptances.send(Request { batch, as_of, answer }).await.map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    }
}

/// Checks that each delivery is of the same day as its event: they share a partition's day and are
/// removed together.
fn check(batch: &[Acceptance]) -> Result<(), StoreError> {
    for Acceptance { event, accepted_at, deliveries, .. } in batch {
        let belongs = |delivery: &Delivery| {
            delivery.created_at == *accepted_at
                && delivery.tenant == event.tenant
                && delivery.event == event.id
                && delivery.state == DeliveryState::Queued
        };
        if let Some(stray) = deliveries.iter().find(|delivery| !belongs(delivery)) {
            let what = format!("{} is not as its event {} was accepted", stray.id, event.id);
            return Err(StoreError::Internal(what));
        }
    }
    Ok(())
}

/// Starts the task. It ends when the store is dropped.
pub(super) fn spawn(core: Arc<StoreState>) -> mpsc::Sender<Request> {
    let (sender, mut line) = mpsc::channel::<Request>(CALLERS_MAX);
    tokio::spawn(async move {
        while let Some(first) = line.recv().await {
            let mut together = Size::of(&first.batch);
            let mut requests = vec![first];
            while together.has_room()
                && let Ok(next) = line.try_recv()
            {
                together.add(&next.batch);
                requests.push(next);
            }
            let answers = core.accept_together(&requests).await;
            for (request, answer) in requests.into_iter().zip(answers) {
                // The caller may have gone away.
                drop(request.answer.send(answer));
            }
        }
    });
    sender
}

/// The size of a transaction.
#[derive(Default)]
struct Size {
    rows: usize,
    bytes: usize,
}

impl Size {
    fn of(batch: &[Acceptance]) -> Self {
        let mut size = Size::default();
        size.add(batch);
        size
    }

    fn add(&mut self, batch: &[Acceptance]) {
        for Acceptance { event, deliveries, .. } in batch {
            self.rows += 1 + deliveries.len();
            let old = event.old.as_ref().map_or(0, |old| old.as_bytes().len());
            self.bytes += event.data.as_bytes().len() + old;
        }
    }

    fn has_room(&self) -> bool {
        self.rows < ROWS_MAX && self.bytes < BYTES_MAX
    }
}

impl StoreState {
    /// One answer for each batch.
    async fn accept_together(&self, requests: &[Request]) -> Vec<Answer> {
        let batches: Vec<&[Acceptance]> = requests.iter().map(|r| r.batch.as_slice()).collect();
        let as_of = requests.iter().filter_map(|request| request.as_of).min();
        match self.try_accept(&batches, as_of).await {
            Ok(Some(answers)) => answers.into_iter().map(|answer| Ok(Some(answer))).collect(),
            Ok(None) => {
                // Callers with a newer version, or without one, may not be affected: try each of
                // them alone.
                let is_stale = |request: &Request| request.as_of == as_of;
                self.accept_apart(requests, |request| is_stale(request).then_some(Ok(None))).await
            }
            Err(error) if batches.len() == 1 => vec![Err(error)],
            Err(error) => self.accept_apart(requests, |_| for_everybody(&error).map(Err)).await,
        }
    }

    /// Accepts each batch alone, so that the error of one does not fail the others.
    async fn accept_apart(
        &self,
        requests: &[Request],
        common: impl Fn(&Request) -> Option<Answer>,
    ) -> Vec<Answer> {
        let mut answers = Vec::with_capacity(requests.len());
        for request in requests {
            answers.push(match common(request) {
                Some(answer) => answer,
                None => {
                    let alone = self.try_accept(&[&request.batch], request.as_of).await;
                    alone.map(|answers| answers.map(|mut one| one.pop().unwrap_or_default()))
                }
            });
        }
        answers
    }

    async fn try_accept(
        &self,
        batches: &[&[Acceptance]],
        as_of: Option<u64>,
    ) -> Result<Option<Vec<Vec<Accepted>>>, StoreError> {
        // An identifier that Postrider made is looked up only after an insert found it taken.
        let mut look = batches.iter().any(|batch| batch.iter().any(|event| event.id_given));
        let mut last = StoreError::Internal("accepting came to no end".into());
        for _ in 0..TRIES_MAX {
            self.days.ensure(&self.vital, days(batches)).await?;
            let mut transaction = self.accepting.begin(Scope::All).await?;
            let known = if look { known(&mut transaction, batches).await? } else { HashMap::new() };
            let (answers, new) = judge(batches, known);
            if new.is_empty() {
                transaction.rollback().await?;
                return Ok(Some(answers));
            }
            match write(transaction, &new, as_of).await {
                Ok(shards) => {
                    self.folding.appended();
                    let since = new.iter().map(|new| new.accepted_at).min();
                    self.notifier.tell(
                        shards,
                        since.unwrap_or(Timestamp::EPOCH),
                        &self.leases.held(),
                    );
                    return Ok(Some(answers));
                }
                Err(Refused::Stale) => return Ok(None),
                Err(Refused::Taken(error)) => last = error,
                Err(Refused::NoDay) => self.days.forget(),
                Err(Refused::Other(error)) => return Err(error),
            }
            look = true;
        }
        Err(last)
    }
}

fn days(batches: &[&[Acceptance]]) -> BTreeSet<i32> {
    batches.iter().flat_map(|batch| batch.iter()).map(|event| day_of(event.accepted_at)).collect()
}

/// Events that exist already: their fingerprint and number of deliveries.
type Known<'a> = HashMap<(&'a TenantId, &'a EventId), ([u8; 32], u32)>;

async fn known<'a>(
    transaction: &mut Transaction<'_>,
    batches: &[&'a [Acceptance]],
) -> Result<Known<'a>, StoreError> {
    let events: Vec<_> = batches.iter().flat_map(|batch| batch.iter()).map(|a| &a.event).collect();
    let tenants: Vec<&str> = events.iter().map(|event| event.tenant.as_str()).collect();
    let ids: Vec<&str> = events.iter().map(|event| event.id.as_str()).collect();
    let sql = "SELECT n, fingerprint, deliveries \
               FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS wanted (tenant, id, n) \
               CROSS JOIN LATERAL (SELECT fingerprint, deliveries FROM postrider.event_ids AS i \
               WHERE i.tenant = wanted.tenant AND i.id = wanted.id LIMIT 1) AS found";
    let rows = transaction.query(sql, &[&tenants, &ids]).await?;
    let mut known = Known::new();
    for row in &rows {
        let place = usize::try_from(get::<i64>(row, "n")?.saturating_sub(1)).unwrap_or_default();
        let fingerprint = <[u8; 32]>::try_from(get::<&[u8]>(row, "fingerprint")?)
            .map_err(|e| super::error::corrupt("event_ids", e))?;
        let deliveries = u32::try_from(get::<i32>(row, "deliveries")?).unwrap_or_default();
        if let Some(event) = events.get(place) {
            known.insert((&event.tenant, &event.id), (fingerprint, deliveries));
        }
    }
    Ok(known)
}

/// Decides the answers of each batch, in order, and which events are to be written.
fn judge<'a>(
    batches: &[&'a [Acceptance]],
    mut known: Known<'a>,
) -> (Vec<Vec<Accepted>>, Vec<&'a Acceptance>) {
    let (mut answers, mut all_new) = (Vec::with_capacity(batches.len()), Vec::new());
    for batch in batches {
        let (mut here, mut new): (Known<'a>, Vec<&Acceptance>) = (Known::new(), Vec::new());
        let mut of_batch = Vec::with_capacity(batch.len());
        for acceptance in *batch {
            let key = (&acceptance.event.tenant, &acceptance.event.id);
            let found = known.get(&key).or_else(|| here.get(&key)).copied();
            of_batch.push(match found {
                Some((fingerprint, deliveries)) if fingerprint == acceptance.fingerprint => {
                    Accepted::Duplicate { deliveries }
                }
                Some(_) => Accepted::Conflict,
                None => {
                    let deliveries = u32::try_from(acceptance.deliveries.len());
                    here.insert(key, (acceptance.fingerprint, deliveries.unwrap_or(u32::MAX)));
                    new.push(acceptance);
                    Accepted::New
                }
            });
        }
        if !of_batch.contains(&Accepted::Conflict) {
            known.extend(here);
            all_new.extend(new);
        }
        answers.push(of_batch);
    }
    // Insert in a fixed order, so that two nodes with the same identifiers do not deadlock.
    all_new.sort_by_key(|new| (&new.event.tenant, &new.event.id));
    (answers, all_new)
}

/// Events as one array per column.
#[derive(Default)]
pub(super) struct EventColumns<'a> {
    tenant: Vec<&'a str>,
    id: Vec<&'a str>,
    accepted_at: Vec<i64>,
    fingerprint: Vec<&'a [u8]>,
    deliveries: Vec<i32>,
    kind: Vec<&'a str>,
    object: Vec<Option<&'a str>>,
    data: Vec<&'a [u8]>,
    old: Vec<Option<&'a [u8]>>,
    time: Vec<i64>,
    trace: Vec<Option<Vec<u8>>>,
    mark: Vec<Option<String>>,
}

/// Aborts the transaction with [`super::error::STALE_MATCH`] if a subscription of these tenants
/// changed after that version.
const REFUSE_STALE_MATCH: &str = "SELECT postrider.refuse_stale_match($1::text[], $2::bigint)";

/// Writes identifiers of events.
pub(super) const INSERT_IDS: &str = "INSERT INTO postrider.event_ids \
     (tenant, id, accepted_at, fingerprint, deliveries) \
     SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bytea[], $5::integer[])";

/// Writes events.
pub(super) const INSERT_EVENTS: &str = "INSERT INTO postrider.events \
     (tenant, id, accepted_at, deliveries, kind, object, data, old, time, trace, mark) \
     SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::integer[], $5::text[], \
     $6::text[], $7::bytea[], $8::bytea[], $9::bigint[], $10::bytea[], $11::text[])";

impl<'a> EventColumns<'a> {
    pub(super) fn push(&mut self, acceptance: &'a Acceptance) {
        let event = &acceptance.event;
        self.tenant.push(event.tenant.as_str());
        self.id.push(event.id.as_str());
        self.accepted_at.push(acceptance.accepted_at.as_unix_ms());
        self.fingerprint.push(&acceptance.fingerprint);
        let deliveries = i32::try_from(count(acceptance.deliveries.len())).unwrap_or(i32::MAX);
        self.deliveries.push(deliveries);
        self.kind.push(event.kind.as_str());
        self.object.push(event.object.as_ref().map(|object| object.as_str()));
        self.data.push(event.data.as_bytes());
        self.old.push(event.old.as_ref().map(|old| &old.as_bytes()[..]));
        self.time.push(event.time.as_unix_ms());
        self.trace.push(event.trace.map(|trace| trace.to_bytes().to_vec()));
        let mark = Some(&acceptance.mark).filter(|mark| !mark.is_empty());
        // The type has no value that JSON lacks.
        self.mark.push(mark.map(|mark| to_json(mark).unwrap_or_default()));
    }

    pub(super) fn ids(&self) -> Vec<&(dyn ToSql + Sync)> {
        vec![&self.tenant, &self.id, &self.accepted_at, &self.fingerprint, &self.deliveries]
    }

    pub(super) fn events(&self) -> Vec<&(dyn ToSql + Sync)> {
        vec![
            &self.tenant,
            &self.id,
            &self.accepted_at,
            &self.deliveries,
            &self.kind,
            &self.object,
            &self.data,
            &self.old,
            &self.time,
            &self.trace,
            &self.mark,
        ]
    }
}

/// Writes all new events and commits; returns the shards that have new deliveries.
async fn write(
    transaction: Transaction<'_>,
    new: &[&Acceptance],
    as_of: Option<u64>,
) -> Result<ShardSet, Refused> {
    let (mut events, mut deliveries) = (EventColumns::default(), DeliveryColumns::default());
    let (mut counts, mut shards) = (Counts::default(), ShardSet::default());
    for acceptance in new {
        events.push(acceptance);
        let tenant = acceptance.event.tenant.as_str();
        counts.accepted(tenant, acceptance.accepted_at, acceptance.deliveries.len());
        for delivery in &acceptance.deliveries {
            deliveries.push(delivery);
            shards.insert(delivery.destination.shard());
        }
    }
    let (ledger, tallies) = counts.columns();
    let tenants: Vec<&str> = new
        .iter()
        .map(|new| new.event.tenant.as_str())
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect();
    let version = as_of.map(|version| i64::try_from(version).unwrap_or(i64::MAX));
    let mut steps = Vec::with_capacity(6);
    if let Some(version) = &version {
        steps.push(Step { sql: REFUSE_STALE_MATCH, params: vec![&tenants, version] });
    }
    steps.push(Step { sql: INSERT_IDS, params: events.ids() });
    steps.push(Step { sql: INSERT_EVENTS, params: events.events() });
    if !deliveries.is_empty() {
        steps.push(Step { sql: &INSERT_OPEN, params: deliveries.open() });
        steps.push(Step { sql: LedgerColumns::SQL, params: ledger.all() });
        steps.push(Step { sql: TallyColumns::SQL, params: tallies.all() });
    }
    transaction.finish(&steps).await?;
    Ok(shards)
}
