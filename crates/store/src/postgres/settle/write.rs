//! The statements of a settlement's transaction.

use std::collections::BTreeMap;

use postrider_domain::attempt_tally::{AttemptHour, hour_of};
use postrider_domain::delivery::StateName;
use postrider_domain::ids::{DestinationId, ReplayId};
use postrider_domain::job_outcomes::{OutcomeChange, count_outcomes};
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::{Found, Fresh};
use crate::error::StoreError;
use crate::postgres::counts::{Counts, LedgerColumns, TallyColumns};
use crate::postgres::delivery_columns::{
    DELETE_DONE, DELETE_OPEN, DeliveryColumns, INSERT_DONE, INSERT_OPEN, UPDATE_DONE, UPDATE_OPEN,
};
use crate::postgres::pool::{Refused, Step, Transaction};
use crate::postgres::replays::{ADD_OUTCOMES, OutcomeColumns, state_number as job_state};
use crate::postgres::rows::{AttemptColumns, ms, to_json, uuid};
use crate::postgres::statistics::HourColumns;
use crate::records::{Commit, DestinationChange, ReplayJob};

/// The rows to be written, by statement.
#[derive(Default)]
pub(super) struct Plan<'a> {
    /// Deliveries that stay unfinished.
    moved: DeliveryColumns<'a>,
    /// Deliveries that end: from `deliveries_open` to `deliveries_done`.
    ended: DeliveryColumns<'a>,
    /// Deliveries that are replayed: from `deliveries_done` to `deliveries_open`.
    revived: DeliveryColumns<'a>,
    /// Deliveries that had ended and got another attempt, such as one cancelled while in flight.
    amended: DeliveryColumns<'a>,
    attempts: AttemptColumns<'a>,
    places: DestinationColumns<'a>,
    timeline: TimelineColumns<'a>,
    job: Option<&'a ReplayJob>,
    /// What is added to the outcomes of jobs, with their tenants.
    outcomes: BTreeMap<ReplayId, (&'a str, OutcomeChange)>,
    counts: Counts<'a>,
    /// The hours in which attempts began, with these attempts.
    hours: BTreeMap<(DestinationId, i64), (&'a str, AttemptHour)>,
    failure: Option<StoreError>,
}

#[derive(Default)]
struct DestinationColumns<'a> {
    tenant: Vec<&'a str>,
    id: Vec<Uuid>,
    circuit: Vec<String>,
    transitions: Vec<i64>,
}

#[derive(Default)]
struct TimelineColumns<'a> {
    tenant: Vec<&'a str>,
    destination: Vec<Uuid>,
    number: Vec<i64>,
    record: Vec<String>,
}

impl DestinationColumns<'_> {
    fn all(&self) -> Vec<&(dyn ToSql + Sync)> {
        vec![&self.tenant, &self.id, &self.circuit, &self.transitions]
    }
}

impl TimelineColumns<'_> {
    fn all(&self) -> Vec<&(dyn ToSql + Sync)> {
        vec![&self.tenant, &self.destination, &self.number, &self.record]
    }
}

/// Writes attempts.
pub(in crate::postgres) const INSERT_ATTEMPTS: &str = "INSERT INTO postrider.attempts \
     (tenant, delivery, created_at, number, started_at, status, record, body) \
     SELECT * FROM unnest($1::text[], $2::uuid[], $3::bigint[], $4::integer[], $5::bigint[], \
     $6::integer[], $7::text[], $8::bytea[])";

const UPDATE_DESTINATIONS: &str = "UPDATE postrider.destinations AS d \
     SET circuit = n.circuit, transitions = n.transitions \
     FROM unnest($1::text[], $2::uuid[], $3::text[], $4::bigint[]) \
     AS n (tenant, id, circuit, transitions) \
     WHERE d.id = n.id AND d.tenant = n.tenant AND d.id = ANY($2)";

const INSERT_TRANSITIONS: &str = "INSERT INTO postrider.transitions \
     (tenant, destination, number, record) \
     SELECT * FROM unnest($1::text[], $2::uuid[], $3::bigint[], $4::text[])";

/// Stores the progress of a job. A job that was paused or cancelled meanwhile stays so.
const ADVANCE_JOB: &str = "UPDATE postrider.replays SET done = $3, position = $4, \
     state = CASE WHEN state = 0 THEN $5 ELSE state END, \
     finished_at = CASE WHEN state = 0 THEN $6 ELSE finished_at END \
     WHERE tenant = $1 AND id = $2";

impl<'a> Plan<'a> {
    /// Adds the changes of a commit that are not stored yet.
    pub(super) fn add(&mut self, commit: &'a Commit, fresh: &Fresh, found: &Found) {
        for (n, is_open) in &fresh.deliveries {
            let Some(change) = commit.deliveries.get(*n) else { continue };
            let delivery = &change.delivery;
            let stays = is_unfinished(delivery.state.name());
            let columns = match (is_open, stays) {
                (true, true) => &mut self.moved,
                (true, false) => &mut self.ended,
                (false, true) => &mut self.revived,
                (false, false) => &mut self.amended,
            };
            columns.push(delivery);
            let stored = found.open.get(&delivery.id).and_then(|standing| standing.by_job);
            count_outcomes(stored, delivery, |job, outcome, n| {
                let of_job = self.outcomes.entry(job);
                let (_, change) = of_job.or_insert((delivery.tenant.as_str(), [0; _]));
                change[outcome as usize] += n;
            });
            self.counts.moved(change.before, delivery, change.attempt.as_ref());
            if let Some(attempt) = &change.attempt {
                let pushed = self.attempts.push(delivery, attempt);
                self.note(pushed);
                let place = (delivery.destination, hour_of(attempt.started_at));
                let stored = || found.hours.get(&place).cloned().unwrap_or_default();
                let hour = self.hours.entry(place);
                let hour = hour.or_insert_with(|| (delivery.tenant.as_str(), stored()));
                hour.1.count(attempt);
            }
        }
        for n in &fresh.destinations {
            if let Some(change) = commit.destinations.get(*n) {
                let added = self.add_destination(change, found.next_transition(change));
                self.note(added);
            }
        }
        self.job = self.job.or(commit.replay.as_ref());
    }

    fn note(&mut self, result: Result<(), StoreError>) {
        if let Err(error) = result {
            self.failure.get_or_insert(error);
        }
    }

    fn add_destination(
        &mut self,
        change: &'a DestinationChange,
        next: i64,
    ) -> Result<(), StoreError> {
        let (tenant, id) = (change.tenant.as_str(), uuid(change.id.as_bytes()));
        let mut number = next;
        for transition in &change.transitions {
            self.timeline.tenant.push(tenant);
            self.timeline.destination.push(id);
            self.timeline.number.push(number);
            self.timeline.record.push(to_json(transition)?);
            number += 1;
        }
        self.places.tenant.push(tenant);
        self.places.id.push(id);
        self.places.circuit.push(to_json(&change.circuit)?);
        self.places.transitions.push(number);
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.moved.is_empty()
            && self.ended.is_empty()
            && self.revived.is_empty()
            && self.amended.is_empty()
            && self.places.id.is_empty()
            && self.job.is_none()
    }

    /// Writes everything and commits, in one round trip.
    pub(super) async fn write(
        mut self,
        transaction: Transaction<'_>,
        node: &str,
    ) -> Result<(), Refused> {
        if let Some(error) = self.failure.take() {
            return Err(Refused::Other(error));
        }
        let (ledger, tallies) = std::mem::take(&mut self.counts).columns();
        let hours = HourColumns::of(std::mem::take(&mut self.hours));
        let job = self.job.map(JobColumns::of);
        let mut outcomes = OutcomeColumns::default();
        for (id, (tenant, change)) in std::mem::take(&mut self.outcomes) {
            outcomes.push(tenant, id, &change);
        }
        let Plan { moved, ended, revived, amended, attempts, places, timeline, .. } = &self;
        let all: [(bool, &str, Vec<&(dyn ToSql + Sync)>); 14] = [
            (moved.is_empty(), &UPDATE_OPEN, moved.open()),
            (ended.is_empty(), DELETE_OPEN, ended.ids()),
            (ended.is_empty(), &INSERT_DONE, ended.done()),
            (revived.is_empty(), DELETE_DONE, revived.ids_and_days()),
            (revived.is_empty(), &INSERT_OPEN, revived.open()),
            (amended.is_empty(), &UPDATE_DONE, amended.done()),
            (attempts.is_empty(), INSERT_ATTEMPTS, attempts.all()),
            (places.id.is_empty(), UPDATE_DESTINATIONS, places.all()),
            (timeline.number.is_empty(), INSERT_TRANSITIONS, timeline.all()),
            (job.is_none(), ADVANCE_JOB, job.iter().flat_map(JobColumns::all).collect()),
            (outcomes.is_empty(), ADD_OUTCOMES, outcomes.all(&node)),
            (ledger.is_empty(), LedgerColumns::SQL, ledger.all()),
            (tallies.is_empty(), TallyColumns::SQL, tallies.all()),
            (hours.is_empty(), HourColumns::SQL, hours.all()),
        ];
        let wanted = all.into_iter().filter(|(is_empty, ..)| !is_empty);
        let steps: Vec<Step<'_>> = wanted.map(|(_, sql, params)| Step { sql, params }).collect();
        transaction.finish(&steps).await
    }
}

struct JobColumns<'a> {
    tenant: &'a str,
    id: Uuid,
    done: i64,
    position: Option<Uuid>,
    state: i16,
    finished_at: Option<i64>,
}

impl<'a> JobColumns<'a> {
    fn of(job: &'a ReplayJob) -> Self {
        JobColumns {
            tenant: job.tenant.as_str(),
            id: uuid(job.id.as_bytes()),
            done: i64::try_from(job.done).unwrap_or(i64::MAX),
            position: job.position.map(|id| uuid(id.as_bytes())),
            state: job_state(job.state),
            finished_at: ms(job.finished_at),
        }
    }

    fn all(&self) -> Vec<&(dyn ToSql + Sync)> {
        vec![&self.tenant, &self.id, &self.done, &self.position, &self.state, &self.finished_at]
    }
}

fn is_unfinished(state: StateName) -> bool {
    match state {
        StateName::Queued | StateName::InFlight | StateName::Waiting => true,
        StateName::Delivered | StateName::Dead | StateName::Cancelled => false,
    }
}
