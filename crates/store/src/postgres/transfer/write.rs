//! Writes records of another store. Each batch is one transaction together with the position of the
//! transfer.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use postrider_domain::delivery::{Delivery, StateName};
use postrider_domain::ids::{DeliveryId, SubscriptionUid, TenantId};
use postrider_domain::job_outcomes::{JobOutcomes, Outcome};
use postrider_domain::ledger::Ledger;
use serde_json::{Value as Json, json};
use tokio_postgres::types::ToSql;

use super::super::PostgresStore;
use super::super::configuration::details_text;
use super::super::days::day_of;
use super::super::delivery_columns::{DeliveryColumns, INSERT_DONE, INSERT_OPEN};
use super::super::documents::whose;
use super::super::intake::{EventColumns, INSERT_EVENTS, INSERT_IDS};
use super::super::pool::{Refused, Scope, Step};
use super::super::replays::{filter_text, state_number as job_state};
use super::super::rows::{AttemptColumns, ms, shard, to_json, uuid};
use super::super::settle::INSERT_ATTEMPTS;
use crate::attempt_codec::{encode_recent, encode_tally};
use crate::audit::AuditEntry;
use crate::error::StoreError;
use crate::records::{
    Acceptance, DestinationRecord, IdempotentAnswer, Key, ReplayJob, SubscriptionRecord,
};
use crate::transfer::{Item, Progress, WholeEvent};

/// The first statement of each batch: it fails if another process has taken over the transfer. The
/// earlier process may have been killed while one of its transactions was still on its way to the
/// server.
const PROGRESS: &str = "INSERT INTO postrider.transfer AS t (run, progress) VALUES ($1, $2) \
     ON CONFLICT (one) DO UPDATE SET progress = \
     CASE WHEN t.run = excluded.run THEN excluded.progress END";

/// Takes over a transfer from an earlier process; waits for its running transaction.
pub(super) const TAKE_OVER: &str = "UPDATE postrider.transfer SET run = $1 RETURNING progress";

/// Builds a statement that inserts rows of one table from a JSON list of objects whose keys are the
/// columns.
macro_rules! insert {
    ($table:literal) => {
        concat!(
            "INSERT INTO postrider.",
            $table,
            " SELECT * FROM json_populate_recordset(NULL::postrider.",
            $table,
            ", $1::text::json)"
        )
    };
}

/// Inserts destinations. A column of theirs is computed, and cannot be written.
const INSERT_DESTINATIONS: &str = "INSERT INTO postrider.destinations \
     (tenant, id, shard, url, created_at, circuit, transitions) \
     SELECT tenant, id, shard, url, created_at, circuit, transitions \
     FROM json_populate_recordset(NULL::postrider.destinations, $1::text::json)";

/// Sets the length of each destination's timeline.
const COUNT_TRANSITIONS: &str = "UPDATE postrider.destinations AS d SET transitions = n.next \
     FROM (SELECT tenant, destination, max(number) + 1 AS next \
           FROM json_populate_recordset(NULL::postrider.transitions, $1::text::json) \
           GROUP BY tenant, destination) AS n \
     WHERE d.id = n.destination AND d.tenant = n.tenant";

/// Rows by table, as JSON.
type Rows = HashMap<&'static str, Vec<Json>>;

impl PostgresStore {
    /// Writes these records and the progress, both or none.
    pub(super) async fn write_items(
        &self,
        items: &[Item],
        progress: &Progress,
    ) -> Result<(), StoreError> {
        let (core, progress) = (&self.core, to_json(progress)?);
        let (mut rows, mut events) = (Rows::new(), Events::default());
        for item in items {
            row(item, &mut rows, &mut events)?;
        }
        let texts: Vec<(&str, String)> =
            rows.into_iter().map(|(sql, rows)| (sql, Json::Array(rows).to_string())).collect();
        let columns = events.columns()?;
        let run = core.leases.instance();
        let mut steps = vec![Step { sql: PROGRESS, params: vec![&run, &progress] }];
        steps.extend(columns.steps());
        for (sql, text) in &texts {
            steps.push(Step { sql, params: vec![text] });
            if *sql == insert!("transitions") {
                steps.push(Step { sql: COUNT_TRANSITIONS, params: vec![text] });
            }
        }
        let days: BTreeSet<i32> =
            events.0.iter().map(|(event, _)| day_of(event.accepted_at)).collect();
        core.days.ensure(&core.vital, days).await?;
        let transaction = core.vital.begin(Scope::All).await?;
        transaction.finish(&steps).await.map_err(|refused: Refused| refused.into())
    }
}

/// Adds an item to the rows of its table, or to the events, which are written differently.
fn row<'a>(item: &'a Item, rows: &mut Rows, events: &mut Events<'a>) -> Result<(), StoreError> {
    let (sql, row) = match item {
        Item::Tenant(tenant) => {
            let at = tenant.created_at.as_unix_ms();
            let row = json!({
                "id": tenant.id.as_str(),
                "name": tenant.name,
                "created_at": at,
                "details": details_text(tenant)?,
            });
            (insert!("tenants"), row)
        }
        Item::Key(key) => (insert!("keys"), key_row(key)),
        Item::Subscription(record) => (insert!("subscriptions"), subscription_row(record)?),
        Item::Destination(destination) => (INSERT_DESTINATIONS, destination_row(destination)?),
        Item::Transition { tenant, destination, number, transition } => {
            let row = json!({
                "tenant": tenant.as_str(),
                "destination": uuid(destination.as_bytes()).to_string(),
                "number": number,
                "record": to_json(transition)?,
            });
            (insert!("transitions"), row)
        }
        Item::Answer { tenant, key, answer } => {
            (insert!("answers"), answer_row(tenant, key, answer))
        }
        Item::Audit(entry) => (insert!("audit"), audit_row(entry)?),
        Item::Replay(job) => {
            add_outcomes(job, rows);
            (insert!("replays"), job_row(job)?)
        }
        Item::Document(document) => {
            let row = json!({
                "kind": document.kind.number(),
                "tenant": whose(document.tenant.as_ref()),
                "name": document.name,
                "open": document.is_open,
                "body": document.body,
            });
            (insert!("documents"), row)
        }
        Item::Event(whole) => {
            events.push(whole);
            return Ok(());
        }
        Item::Ledger { tenant, ledger } => (insert!("ledgers"), ledger_row(tenant, ledger)),
        Item::Tally { tenant, minute, tally } => {
            let row = json!({
                "tenant": tenant.as_str(),
                "minute": minute,
                "accepted": tally.accepted,
                "delivered": tally.delivered,
                "failed": tally.failed,
                "dead": tally.dead,
            });
            (insert!("tallies"), row)
        }
        Item::AttemptHour { tenant, destination, hour, attempts } => {
            let row = json!({
                "tenant": tenant.as_str(),
                "destination": uuid(destination.as_bytes()).to_string(),
                "hour": hour,
                "counts": hex(&encode_tally(&attempts.tally)),
                "recent": hex(&encode_recent(*hour, &attempts.recent)),
            });
            (insert!("attempt_hours"), row)
        }
    };
    rows.entry(sql).or_default().push(row);
    Ok(())
}

fn subscription_row(record: &SubscriptionRecord) -> Result<Json, StoreError> {
    let subscription = &record.subscription;
    Ok(json!({
        "tenant": subscription.tenant.as_str(),
        "id": uuid(subscription.id.as_bytes()).to_string(),
        "destination": uuid(subscription.destination.as_bytes()).to_string(),
        "created_at": subscription.created_at.as_unix_ms(),
        "deleted_at": ms(record.deleted_at),
        "record": to_json(subscription)?,
        "credentials": hex(&record.credentials),
        "uid": subscription.about.uid.as_ref().map(SubscriptionUid::as_str),
    }))
}

fn destination_row(destination: &DestinationRecord) -> Result<Json, StoreError> {
    Ok(json!({
        "tenant": destination.tenant.as_str(),
        "id": uuid(destination.id.as_bytes()).to_string(),
        "shard": shard(&destination.id),
        "url": destination.url,
        "created_at": destination.created_at.as_unix_ms(),
        "circuit": to_json(&destination.circuit)?,
        "transitions": 0,
    }))
}

fn answer_row(tenant: &TenantId, key: &str, answer: &IdempotentAnswer) -> Json {
    json!({
        "tenant": tenant.as_str(),
        "key": key,
        "request": hex(&answer.request),
        "status": answer.status,
        "body": hex(&answer.body),
        "created_at": answer.created_at.as_unix_ms(),
    })
}

fn audit_row(entry: &AuditEntry) -> Result<Json, StoreError> {
    Ok(json!({
        "id": uuid(entry.id.as_bytes()).to_string(),
        "tenant": entry.tenant.as_ref().map(TenantId::as_str),
        "actor": entry.actor.id,
        "action": entry.action,
        "target": entry.target,
        "refused": entry.is_refused(),
        "record": to_json(entry)?,
    }))
}

fn ledger_row(tenant: &TenantId, ledger: &Ledger) -> Json {
    json!({
        "tenant": tenant.as_str(),
        "accepted": ledger.accepted,
        "queued": ledger.queued,
        "waiting": ledger.waiting,
        "delivered": ledger.delivered,
        "dead": ledger.dead,
        "cancelled": ledger.cancelled,
    })
}

fn key_row(key: &Key) -> Json {
    json!({
        "id": key.id,
        "tenant": key.tenant.as_ref().map(TenantId::as_str),
        "name": key.name,
        "scopes": key.scopes.iter().map(|scope| scope.as_str()).collect::<Vec<_>>(),
        "hash": hex(&key.hash),
        "created_at": key.created_at.as_unix_ms(),
        "expires_at": ms(key.expires_at),
        "last_used_at": ms(key.last_used_at),
    })
}

/// Adds the outcomes of a job, which the transfer counts in place of a node.
fn add_outcomes(job: &ReplayJob, rows: &mut Rows) {
    if job.outcomes == JobOutcomes::default() {
        return;
    }
    let row = json!({
        "tenant": job.tenant.as_str(),
        "replay": uuid(job.id.as_bytes()).to_string(),
        "node": "",
        "pending": job.outcomes.of(Outcome::Pending),
        "failed": job.outcomes.of(Outcome::Failed),
        "delivered": job.outcomes.of(Outcome::Delivered),
        "dead": job.outcomes.of(Outcome::Dead),
        "withdrawn": job.outcomes.of(Outcome::Withdrawn),
    });
    rows.entry(insert!("replay_outcomes")).or_default().push(row);
}

fn job_row(job: &ReplayJob) -> Result<Json, StoreError> {
    Ok(json!({
        "tenant": job.tenant.as_str(),
        "id": uuid(job.id.as_bytes()).to_string(),
        "filter": filter_text(&job.filter)?,
        "per_second": job.per_second,
        "created_at": job.created_at.as_unix_ms(),
        "state": job_state(job.state),
        "total": job.total,
        "done": job.done,
        "position": job.position.map(|id| uuid(id.as_bytes()).to_string()),
        "finished_at": ms(job.finished_at),
    }))
}

/// Bytes in the text form that PostgreSQL parses.
fn hex(bytes: &[u8]) -> String {
    format!("\\x{}", postrider_domain::hex::encode(bytes))
}

/// Events to be written, with their deliveries and attempts.
#[derive(Default)]
struct Events<'a>(Vec<(Acceptance, &'a WholeEvent)>);

/// The events as one array per column.
#[derive(Default)]
struct Columns<'a> {
    events: EventColumns<'a>,
    open: DeliveryColumns<'a>,
    done: DeliveryColumns<'a>,
    attempts: AttemptColumns<'a>,
    is_empty: bool,
}

impl<'a> Events<'a> {
    fn push(&mut self, whole: &'a WholeEvent) {
        let acceptance = Acceptance {
            event: Arc::clone(&whole.record.event),
            accepted_at: whole.record.accepted_at,
            fingerprint: whole.fingerprint,
            id_given: true,
            mark: whole.record.mark.clone(),
            deliveries: whole.deliveries.clone(),
        };
        self.0.push((acceptance, whole));
    }

    fn columns(&self) -> Result<Columns<'_>, StoreError> {
        let mut columns = Columns { is_empty: self.0.is_empty(), ..Columns::default() };
        for (acceptance, whole) in &self.0 {
            columns.events.push(acceptance);
            let mut by_id: HashMap<DeliveryId, &Delivery> = HashMap::new();
            for delivery in &whole.deliveries {
                by_id.insert(delivery.id, delivery);
                match delivery.state.name() {
                    StateName::Queued | StateName::InFlight | StateName::Waiting => {
                        columns.open.push(delivery);
                    }
                    StateName::Delivered | StateName::Dead | StateName::Cancelled => {
                        columns.done.push(delivery);
                    }
                }
            }
            for (id, attempt) in &whole.attempts {
                if let Some(delivery) = by_id.get(id) {
                    columns.attempts.push(delivery, attempt)?;
                }
            }
        }
        Ok(columns)
    }
}

impl Columns<'_> {
    fn steps(&self) -> Vec<Step<'_>> {
        let all: [(bool, &str, Vec<&(dyn ToSql + Sync)>); 5] = [
            (self.is_empty, INSERT_IDS, self.events.ids()),
            (self.is_empty, INSERT_EVENTS, self.events.events()),
            (self.open.is_empty(), &INSERT_OPEN, self.open.open()),
            (self.done.is_empty(), &INSERT_DONE, self.done.done()),
            (self.attempts.is_empty(), INSERT_ATTEMPTS, self.attempts.all()),
        ];
        let wanted = all.into_iter().filter(|(is_empty, ..)| !is_empty);
        wanted.map(|(_, sql, params)| Step { sql, params }).collect()
    }
}
