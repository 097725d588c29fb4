//! Settling: many callers share one transaction.
//!
//! One task takes all waiting commits, in their order, and writes them in one transaction: it locks
//! the node's lease and reads everything that they touch, then checks each commit, then writes the
//! valid ones. A refused commit does not affect the others. Two commits that touch the same
//! delivery, destination or job never share a transaction. **A commit can be repeated**: a change
//! that is stored already is recognised and neither written nor counted again.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use postrider_domain::attempt::Attempt;
use postrider_domain::attempt_tally::{AttemptHour, hour_of};
use postrider_domain::circuit::{Circuit, Transition};
use postrider_domain::delivery::{Delivery, StateName};
use postrider_domain::ids::{DeliveryId, DestinationId, Shard, TenantId};
use postrider_domain::job_outcomes::ByJob;
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use super::StoreState;
use super::days::day_of;
use super::delivery_columns::{DONE, OPEN, by_job, delivery, state_number};
use super::error::for_everybody;
use super::pool::{Refused, Scope, Step, Transaction};
use super::rows::{self, get, json, uuid};
use super::statistics::attempt_hour;
use crate::error::StoreError;
use crate::records::{Commit, DeliveryChange, DestinationChange, Epoch, ReplayJob, ShardLeases};

mod write;

pub(super) use self::write::INSERT_ATTEMPTS;

/// How many callers may wait.
const CALLERS_MAX: usize = 4_096;
/// A transaction takes no further callers once it has this many changes.
const CHANGES_MAX: usize = 4_000;

/// One caller's commit.
pub(super) struct Request {
    leases: ShardLeases,
    commit: Commit,
    answer: oneshot::Sender<Result<(), StoreError>>,
}

/// The format level from which deliveries name the job that sent them. A node of an earlier version
/// would end them without counting the outcome.
const BY_JOB_SINCE: u32 = 3;

/// Passes a commit to the task and waits for the answer.
pub(super) async fn settle(
    core: &StoreState,
    line: &mpsc::Sender<Request>,
    leases: &ShardLeases,
    mut commit: Commit,
) -> Result<(), StoreError> {
    let Commit { deliveries, destinations, replay, traces: _ } = &commit;
    if deliveries.is_empty() && destinations.is_empty() && replay.is_none() {
        return Ok(());
    }
    let has_jobs = deliveries.iter().any(|change| change.delivery.by_job().is_some());
    if has_jobs && core.format().await? < BY_JOB_SINCE {
        for change in &mut commit.deliveries {
            change.delivery = change.delivery.clone().without_job();
        }
    }
    let (answer, answered) = oneshot::channel();
    let gone = || StoreError::Stopped("it was closed".into());
    let request = Request { leases: leases.clone(), commit, answer };
    line.send(request).await.map_err(|_| gone())?;
    answered.await.map_err(|_| gone())?
}

/// Starts the task. It ends when the store is dropped.
pub(super) fn spawn(core: Arc<StoreState>) -> mpsc::Sender<Request> {
    let (sender, mut line) = mpsc::channel::<Request>(CALLERS_MAX);
    tokio::spawn(async move {
        let mut first = line.recv().await;
        while let Some(request) = first.take() {
            let mut touched = Touched::default();
            touched.try_add(&request.commit);
            let mut requests = vec![request];
            while touched.changes < CHANGES_MAX
                && let Ok(next) = line.try_recv()
            {
                if !touched.try_add(&next.commit) {
                    first = Some(next);
                    break;
                }
                requests.push(next);
            }
            let answers = core.settle_together(&requests).await;
            for (request, answer) in requests.into_iter().zip(answers) {
                // The caller may have gone away.
                drop(request.answer.send(answer));
            }
            if first.is_none() {
                first = line.recv().await;
            }
        }
    });
    sender
}

/// The deliveries, destinations and jobs that a transaction touches so far.
#[derive(Default)]
struct Touched {
    deliveries: HashSet<DeliveryId>,
    destinations: HashSet<DestinationId>,
    has_replay: bool,
    changes: usize,
}

impl Touched {
    /// Adds a commit, unless it touches something that is touched already.
    fn try_add(&mut self, commit: &Commit) -> bool {
        let is_apart = commit.deliveries.iter().all(|c| !self.deliveries.contains(&c.delivery.id))
            && commit.destinations.iter().all(|c| !self.destinations.contains(&c.id))
            && !(self.has_replay && commit.replay.is_some());
        if is_apart {
            self.deliveries.extend(commit.deliveries.iter().map(|change| change.delivery.id));
            self.destinations.extend(commit.destinations.iter().map(|change| change.id));
            self.has_replay |= commit.replay.is_some();
            self.changes += commit.deliveries.len() + commit.destinations.len();
        }
        is_apart
    }
}

impl StoreState {
    /// One answer for each commit.
    async fn settle_together(&self, requests: &[Request]) -> Vec<Result<(), StoreError>> {
        let all: Vec<&Request> = requests.iter().collect();
        match self.try_settle(&all).await {
            Ok(answers) => answers,
            Err(error) if requests.len() == 1 => vec![Err(error)],
            Err(error) => {
                let mut answers = Vec::with_capacity(requests.len());
                for request in requests {
                    answers.push(match for_everybody(&error) {
                        Some(error) => Err(error),
                        // Try each alone, so that the error of one does not fail the others.
                        None => self
                            .try_settle(&[request])
                            .await
                            .and_then(|mut one| one.pop().unwrap_or(Ok(()))),
                    });
                }
                answers
            }
        }
    }

    async fn try_settle(
        &self,
        requests: &[&Request],
    ) -> Result<Vec<Result<(), StoreError>>, StoreError> {
        let commits: Vec<&Commit> = requests.iter().map(|request| &request.commit).collect();
        let changes = commits.iter().flat_map(|commit| &commit.deliveries);
        let days = changes.map(|change| day_of(change.delivery.created_at)).collect();
        self.days.ensure(&self.vital, days).await?;
        let mut transaction = self.settling.begin(Scope::All).await?;
        let mut found = look(&mut transaction, &self.options.node, &commits).await?;
        found.look_closer(&mut transaction, &commits).await?;
        let mut plan = write::Plan::default();
        let mut answers = Vec::with_capacity(requests.len());
        for request in requests {
            let judged = found.judge(&request.leases, &request.commit);
            answers.push(judged.map(|fresh| plan.add(&request.commit, &fresh, &found)));
        }
        if plan.is_empty() {
            transaction.rollback().await?;
            return Ok(answers);
        }
        match plan.write(transaction, &self.options.node).await {
            Ok(()) => {
                self.folding.appended();
                Ok(answers)
            }
            Err(Refused::NoDay) => {
                self.days.forget();
                Err(Refused::NoDay.into())
            }
            Err(refused @ (Refused::Taken(_) | Refused::Stale | Refused::Other(_))) => {
                Err(refused.into())
            }
        }
    }
}

/// The shards that a commit touches.
fn shards(commit: &Commit) -> impl Iterator<Item = Shard> + '_ {
    let of_deliveries = commit.deliveries.iter().map(|change| change.delivery.destination);
    of_deliveries.chain(commit.destinations.iter().map(|change| change.id)).map(|id| id.shard())
}

/// The stored state of everything that the commits touch.
struct Found {
    /// Shards that this node owns, while its lease holds.
    epochs: HashMap<Shard, Epoch>,
    /// Unfinished deliveries.
    open: HashMap<DeliveryId, Standing>,
    destinations: HashMap<(TenantId, DestinationId), StoredDestination>,
    replays: HashSet<(TenantId, Uuid)>,
    /// The hours of destinations in which attempts began.
    hours: HashMap<(DestinationId, i64), AttemptHour>,
    /// Deliveries whose stored state differs from the commit's `before`, in full.
    closer: HashMap<DeliveryId, Closer>,
}

/// What a settlement needs to know of an unfinished delivery.
struct Standing {
    state: i16,
    attempts: i32,
    /// The job that counts its outcome.
    by_job: Option<ByJob>,
}

/// A destination as it is stored.
struct StoredDestination {
    circuit: Circuit,
    transitions: i64,
    /// The last transitions, oldest first; read only where they are needed to recognise a repeat.
    timeline: Vec<Transition>,
}

struct Closer {
    stored: Delivery,
    attempts: BTreeMap<u32, Attempt>,
}

/// The changes of a commit that are not stored yet.
#[derive(Default)]
struct Fresh {
    /// Indexes into the commit's deliveries, with whether each is unfinished in the store.
    deliveries: Vec<(usize, bool)>,
    /// Indexes into the commit's destinations.
    destinations: Vec<usize>,
}

const LOCK_LEASE: &str = "SELECT 1 FROM postrider.nodes \
     WHERE name = $1 AND expires_at > clock_timestamp() FOR NO KEY UPDATE";
const OWNED: &str = "SELECT shard, epoch FROM postrider.shards \
     WHERE owner = $1 AND shard = ANY($2::smallint[])";
const STANDING: &str = "SELECT id, state, attempts, by_job FROM postrider.deliveries_open \
     WHERE id = ANY($1::uuid[])";
const PLACES: &str = "SELECT tenant, id, circuit, transitions FROM postrider.destinations \
     WHERE id = ANY($1::uuid[])";
const HOURS: &str = "SELECT a.destination, a.hour, a.counts, a.recent \
     FROM unnest($1::uuid[], $2::bigint[]) AS wanted (id, hour) \
     JOIN postrider.attempt_hours AS a ON a.destination = wanted.id AND a.hour = wanted.hour";
const JOBS: &str = "SELECT tenant, id FROM postrider.replays \
     WHERE tenant = ANY($1::text[]) AND id = ANY($2::uuid[])";

/// Locks the lease and reads everything in one round trip.
async fn look(
    transaction: &mut Transaction<'_>,
    node: &str,
    commits: &[&Commit],
) -> Result<Found, StoreError> {
    let touched: BTreeSet<i16> = commits
        .iter()
        .flat_map(|commit| shards(commit).chain(commit.replay.iter().map(ReplayJob::shard)))
        .map(|shard| i16::from(shard.0))
        .collect();
    let touched: Vec<i16> = touched.into_iter().collect();
    let changes = commits.iter().flat_map(|commit| &commit.deliveries);
    let ids: Vec<Uuid> = changes.map(|change| uuid(change.delivery.id.as_bytes())).collect();
    let places = commits.iter().flat_map(|commit| &commit.destinations);
    let place_ids: Vec<Uuid> = places.map(|change| uuid(change.id.as_bytes())).collect();
    let (hour_ids, hours) = touched_hours(commits);
    let jobs = || commits.iter().filter_map(|commit| commit.replay.as_ref());
    let job_tenants: Vec<&str> = jobs().map(|job| job.tenant.as_str()).collect();
    let job_ids: Vec<Uuid> = jobs().map(|job| uuid(job.id.as_bytes())).collect();
    let steps = [
        Step { sql: LOCK_LEASE, params: vec![&node] },
        Step { sql: OWNED, params: vec![&node, &touched] },
        Step { sql: STANDING, params: vec![&ids] },
        Step { sql: PLACES, params: vec![&place_ids] },
        Step { sql: HOURS, params: vec![&hour_ids, &hours] },
        Step { sql: JOBS, params: vec![&job_tenants, &job_ids] },
    ];
    let steps = if job_ids.is_empty() { &steps[..5] } else { &steps[..] };
    let mut answers = transaction.query_all(steps).await?.into_iter();
    let mut next = || answers.next().unwrap_or_default();
    let lease_holds = !next().is_empty();
    let mut found = Found {
        epochs: HashMap::new(),
        open: HashMap::new(),
        destinations: HashMap::new(),
        replays: HashSet::new(),
        hours: HashMap::new(),
        closer: HashMap::new(),
    };
    for row in next().iter().filter(|_| lease_holds) {
        let shard = u8::try_from(get::<i16>(row, "shard")?).unwrap_or_default();
        found.epochs.insert(Shard(shard), Epoch(rows::unsigned(get(row, "epoch")?)));
    }
    for row in &next() {
        let id = DeliveryId::from_bytes(rows::id(row, "id")?);
        let (state, attempts) = (get(row, "state")?, get(row, "attempts")?);
        found.open.insert(id, Standing { state, attempts, by_job: by_job(row)? });
    }
    for row in &next() {
        let id = DestinationId::from_bytes(rows::id(row, "id")?);
        let place = StoredDestination {
            circuit: json(row, "circuit")?,
            transitions: get(row, "transitions")?,
            timeline: Vec::new(),
        };
        found.destinations.insert((rows::parse(row, "tenant")?, id), place);
    }
    for row in &next() {
        let id = DestinationId::from_bytes(rows::id(row, "destination")?);
        found.hours.insert((id, get(row, "hour")?), attempt_hour(row)?);
    }
    for row in &next() {
        found.replays.insert((rows::parse(row, "tenant")?, get(row, "id")?));
    }
    Ok(found)
}

/// The destinations and hours of all attempts, each once.
fn touched_hours(commits: &[&Commit]) -> (Vec<Uuid>, Vec<i64>) {
    let changes = commits.iter().flat_map(|commit| &commit.deliveries);
    let hour = |change: &DeliveryChange| {
        let at = change.attempt.as_ref()?.started_at;
        Some((uuid(change.delivery.destination.as_bytes()), hour_of(at)))
    };
    let touched: BTreeSet<(Uuid, i64)> = changes.filter_map(hour).collect();
    touched.into_iter().unzip()
}

impl Found {
    /// Whether a delivery is unfinished and in the state that the commit expects.
    fn is_plain(&self, change: &DeliveryChange) -> bool {
        let DeliveryChange { before, by_job: _, delivery, attempt } = change;
        let Some(Standing { state, attempts, by_job: _ }) = self.open.get(&delivery.id) else {
            return false;
        };
        let is_next = |attempt: &Attempt| {
            i64::from(*attempts) + 1 == i64::from(delivery.attempts)
                && attempt.number == delivery.attempts
        };
        *state == state_number(*before) && attempt.as_ref().is_none_or(is_next)
    }

    /// Reads those deliveries in full that are not in the state that a commit expects: the commit
    /// is a repeat, or the delivery has ended, or the commit is wrong.
    async fn look_closer(
        &mut self,
        transaction: &mut Transaction<'_>,
        commits: &[&Commit],
    ) -> Result<(), StoreError> {
        let changes = commits.iter().flat_map(|commit| &commit.deliveries);
        let doubtful: Vec<&Delivery> =
            changes.filter(|change| !self.is_plain(change)).map(|c| &c.delivery).collect();
        if !doubtful.is_empty() {
            let ids: Vec<Uuid> = doubtful.iter().map(|d| uuid(d.id.as_bytes())).collect();
            let times: Vec<i64> = doubtful.iter().map(|d| d.created_at.as_unix_ms()).collect();
            let sql = format!(
                "SELECT {open} FROM postrider.deliveries_open WHERE id = ANY($1::uuid[]) \
                 UNION ALL SELECT {done} FROM postrider.deliveries_done \
                 WHERE id = ANY($1::uuid[]) AND created_at = ANY($2::bigint[])",
                open = *OPEN,
                done = *DONE
            );
            for row in &transaction.query(&sql, &[&ids, &times]).await? {
                let stored = delivery(row)?;
                self.closer.insert(stored.id, Closer { stored, attempts: BTreeMap::new() });
            }
            let sql = format!(
                "SELECT delivery, {} FROM postrider.attempts \
                 WHERE delivery = ANY($1::uuid[]) AND created_at = ANY($2::bigint[])",
                rows::ATTEMPT
            );
            for row in &transaction.query(&sql, &[&ids, &times]).await? {
                let id = DeliveryId::from_bytes(rows::id(row, "delivery")?);
                let attempt = rows::attempt(row)?;
                if let Some(closer) = self.closer.get_mut(&id) {
                    closer.attempts.insert(attempt.number, attempt);
                }
            }
        }
        self.look_at_timelines(transaction, commits).await
    }

    /// Reads the timelines of circuits that already are as a commit wants them: the commit may be a
    /// repeat.
    async fn look_at_timelines(
        &mut self,
        transaction: &mut Transaction<'_>,
        commits: &[&Commit],
    ) -> Result<(), StoreError> {
        for change in commits.iter().flat_map(|commit| &commit.destinations) {
            let key = (change.tenant.clone(), change.id);
            let Some(place) = self.destinations.get_mut(&key) else { continue };
            if change.transitions.is_empty() || place.circuit != change.circuit {
                continue;
            }
            let sql = "SELECT record FROM postrider.transitions \
                       WHERE tenant = $1 AND destination = $2 ORDER BY number DESC LIMIT $3";
            let (tenant, id) = (change.tenant.as_str(), uuid(change.id.as_bytes()));
            let limit = rows::count(change.transitions.len());
            let found = transaction.query(sql, &[&tenant, &id, &limit]).await?;
            let newest_first = found.iter().rev().map(|row| json(row, "record"));
            place.timeline = newest_first.collect::<Result<_, _>>()?;
        }
        Ok(())
    }

    /// The changes of a commit that are to be written; an error if the commit does not fit the
    /// stored state.
    fn judge(&self, leases: &ShardLeases, commit: &Commit) -> Result<Fresh, StoreError> {
        let held: HashMap<Shard, Epoch> = leases.shards.iter().copied().collect();
        let is_held = |shard: &Shard| {
            held.get(shard).is_some_and(|epoch| self.epochs.get(shard) == Some(epoch))
        };
        if let Some(shard) = shards(commit).find(|shard| !is_held(shard)) {
            return Err(StoreError::Fenced { shard });
        }
        // Only the owner of a job's shard advances the job; if the commit names the shard, its
        // epoch must be current.
        let is_run = |shard: &Shard| {
            let owned = self.epochs.get(shard);
            owned.is_some() && held.get(shard).is_none_or(|epoch| owned == Some(epoch))
        };
        if let Some(shard) = commit.replay.iter().map(ReplayJob::shard).find(|s| !is_run(s)) {
            return Err(StoreError::Fenced { shard });
        }
        let mut fresh = Fresh::default();
        for (n, change) in commit.deliveries.iter().enumerate() {
            if self.is_plain(change) {
                fresh.deliveries.push((n, true));
            } else if !self.is_applied(change)? {
                fresh.deliveries.push((n, self.open.contains_key(&change.delivery.id)));
            }
        }
        for (n, change) in commit.destinations.iter().enumerate() {
            if !self.is_repeated(change)? {
                fresh.destinations.push(n);
            }
        }
        match &commit.replay {
            Some(job) if !self.replays.contains(&(job.tenant.clone(), uuid(job.id.as_bytes()))) => {
                Err(StoreError::Internal(format!("{} of {} is not there", job.id, job.tenant)))
            }
            Some(_) | None => Ok(fresh),
        }
    }

    /// Whether a change is stored already, because its commit is repeated; an error if it does not
    /// fit the stored delivery.
    fn is_applied(&self, change: &DeliveryChange) -> Result<bool, StoreError> {
        let DeliveryChange { before, by_job: _, delivery, attempt } = change;
        let closer = self.closer.get(&delivery.id);
        let Some(closer) = closer.filter(|closer| closer.stored.tenant == delivery.tenant) else {
            let what = format!("{} of {} is not there", delivery.id, delivery.tenant);
            return Err(StoreError::Internal(what));
        };
        let logged = attempt.as_ref().map(|attempt| closer.attempts.get(&attempt.number));
        let is_logged = match (attempt, logged) {
            (Some(attempt), Some(logged)) => logged == Some(attempt),
            (_, _) => true,
        };
        // The first time, the commit may have been written without the job.
        let is_same =
            closer.stored.clone().without_job() == delivery.clone().without_job() && is_logged;
        if is_same {
            return Ok(true);
        }
        let is: StateName = closer.stored.state.name();
        if is != *before {
            return Err(StoreError::Internal(format!("{} is {is}, not {before}", delivery.id)));
        }
        if let (Some(attempt), Some(Some(_))) = (attempt, logged) {
            let what = format!("attempt {} of {} is there", attempt.number, delivery.id);
            return Err(StoreError::Internal(what));
        }
        Ok(false)
    }

    fn is_repeated(&self, change: &DestinationChange) -> Result<bool, StoreError> {
        let DestinationChange { tenant, id, circuit, transitions } = change;
        // A destination that nothing used was removed, and its circuit with it.
        let Some(place) = self.destinations.get(&(tenant.clone(), *id)) else { return Ok(true) };
        Ok(place.circuit == *circuit && place.timeline == *transitions)
    }

    /// The number of a destination's next transition.
    fn next_transition(&self, change: &DestinationChange) -> i64 {
        let key = (change.tenant.clone(), change.id);
        self.destinations.get(&key).map_or(0, |place| place.transitions)
    }
}
