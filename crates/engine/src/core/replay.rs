//! Bulk jobs: a job replays deliveries that have ended, or requests attempts of waiting deliveries
//! before their slots, at its rate and each delivery once.
//!
//! The progress of a job is committed together with the deliveries that it replayed: after a
//! restart it continues exactly there.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use postrider_domain::delivery::Delivery;
use postrider_domain::ids::{DeliveryId, DestinationId, ReplayId};
use postrider_store::{ReplayJob, ReplayState, ShardSet};

use super::alarms::Alarm;
use super::asked::Asker;
use super::commits::Ack;
use super::destinations::LoadId;
use super::messages::{Action, Load, OnReplay, ReplayChange, Reply};
use super::state::Core;
use crate::handle::CommandError;

/// How long a job without a rate waits when the retry lane is full.
const FULL_PAUSE: Duration = Duration::from_millis(100);

/// How long a job waits while its destination drains.
const DRAIN_PAUSE: Duration = Duration::from_secs(1);

/// How long a job with a rate waits while deliveries of its destination are due.
const DUE_PAUSE: Duration = Duration::from_millis(100);

/// A job with a rate replays this fraction of a second's deliveries at a time: a tenth.
const PACE_STEP: u32 = 10;

/// A running replay job.
#[derive(Debug)]
struct RunningJob {
    job: ReplayJob,
    /// Whether a read or a commit of the job is running.
    busy: bool,
    /// Whether the destinations of its next deliveries have been looked up.
    has_sought: bool,
    /// Results of reads before this one are ignored: another node may have run the job then.
    known_since: LoadId,
}

/// The bulk jobs that this node runs.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    by_id: HashMap<ReplayId, RunningJob>,
}

impl Jobs {
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(super) fn has(&self, id: ReplayId) -> bool {
        self.by_id.contains_key(&id)
    }
}

impl Core {
    pub(super) fn on_replay(&mut self, command: OnReplay) {
        match command {
            // The owner of the job's shard runs it.
            OnReplay::Run { job, reply } | OnReplay::Change { job, reply, .. }
                if !self.shards.has(job.shard()) =>
            {
                drop(reply.send(Err(CommandError::Moved)));
            }
            OnReplay::Run { job, reply } => {
                if job.state == ReplayState::Running {
                    self.run_job((*job).clone());
                }
                drop(reply.send(Ok(*job)));
            }
            OnReplay::Change { job, change, reply } => self.change_replay(*job, change, reply),
            OnReplay::IsRunning { id, reply } => drop(reply.send(self.jobs.has(id))),
            OnReplay::DeadCounted { destination, id, job } => {
                if let Some(ix) = self.table.dest_ix(destination) {
                    self.dead_counted(ix, id);
                }
                // If another node owns the job's shard by now, that node finds the job in the
                // store. A job that was stored before a crash may run already, or have ended.
                let is_to_run = |job: &ReplayJob| {
                    self.shards.has(job.shard())
                        && !self.jobs.has(job.id)
                        && job.state == ReplayState::Running
                };
                if let Some(job) = job.filter(|job| is_to_run(job)) {
                    self.run_job(*job);
                }
            }
            OnReplay::ReplayedElsewhere { job, last, replayed, is_all } => {
                self.replayed_elsewhere(&job, last, replayed, is_all);
            }
        }
    }

    /// Starts or resumes a job.
    pub(crate) fn run_job(&mut self, job: ReplayJob) {
        let id = job.id;
        let known_since = self.reads.next();
        self.jobs.by_id.insert(id, RunningJob { job, busy: false, has_sought: false, known_since });
        self.alarms.set(Alarm::Replay(id), self.now);
    }

    /// Reads the next deliveries of a job.
    pub(super) fn replay_next(&mut self, id: ReplayId) {
        let ready = self.rings.ready;
        let full = ready >= self.options.in_flight_max || self.is_quiet();
        let batch = self.options.replay_batch.min(self.options.commit_changes_max).max(1);
        let Some(job) = self.jobs.by_id.get(&id) else { return };
        if job.busy || job.job.state != ReplayState::Running {
            return;
        }
        let pause = self.pause_for_waiting(&job.job).or_else(|| full.then_some(FULL_PAUSE));
        if let Some(pause) = pause {
            self.alarms.set(Alarm::Replay(id), self.now.saturating_add(pause));
            return;
        }
        let Some(job) = self.jobs.by_id.get_mut(&id) else { return };
        job.busy = true;
        let limit = job.job.per_second.map_or(batch, |pace| at_a_time(pace).min(batch));
        let load = Load::Candidates { job: Box::new(job.job.clone()), limit };
        self.load(load);
    }

    /// How long a replay for one destination waits because deliveries that wait there go first:
    /// while it drains, and if the job has a rate also while any of its deliveries is due. Without
    /// that, a rate that is faster than the receiver would fill the retry lane, and what falls due
    /// later would be sent after everything that the job replays. What is due hours from now does
    /// not hold up the job.
    fn pause_for_waiting(&self, job: &ReplayJob) -> Option<Duration> {
        let ix = self.table.dest_ix(job.filter.destination?)?;
        if job.retries() {
            None
        } else if self.table.dests[ix.get()].ramp.is_some() {
            Some(DRAIN_PAUSE)
        } else {
            (job.per_second.is_some() && self.has_due(ix)).then_some(DUE_PAUSE)
        }
    }

    pub(super) fn candidates_loaded(
        &mut self,
        read: LoadId,
        asked: &ReplayJob,
        rows: Vec<Delivery>,
        limit: usize,
    ) {
        let id = asked.id;
        let Some(job) = self.jobs.by_id.get_mut(&id) else { return };
        // A job that was paused and resumed meanwhile may have two reads running.
        if job.job.position != asked.position || read < job.known_since {
            return;
        }
        job.busy = false;
        if job.job.state != ReplayState::Running {
            return;
        }
        let is_ours = |row: &Delivery| self.shards.has(row.destination.shard());
        if self.shards.are_shared() && !rows.iter().all(is_ours) {
            // Other nodes own these deliveries and replay them; then the job continues.
            if let Some(job) = self.jobs.by_id.get_mut(&id) {
                job.busy = true;
                let job = Box::new(job.job.clone());
                let is_all = rows.len() < limit;
                self.actions.push(Action::ReplayElsewhere(job, rows, is_all));
            }
            return;
        }
        let unknown: BTreeSet<DestinationId> = rows
            .iter()
            .map(|row| row.destination)
            .filter(|id| self.table.dest_ix(*id).is_none() && self.shards.has(id.shard()))
            .collect();
        if let Some(job) = self.jobs.by_id.get_mut(&id)
            && !unknown.is_empty()
            && !std::mem::replace(&mut job.has_sought, true)
        {
            // The destinations are read first, then these deliveries again.
            job.busy = true;
            let tenant = job.job.tenant.clone();
            return self.await_for_job(id, &tenant, unknown.into_iter().collect());
        }
        let is_all = rows.len() < limit;
        // The job gets a batch of its own, so that its progress and its deliveries are committed
        // together.
        self.commits.seal();
        let mut replayed = 0;
        for row in &rows {
            let is_sent = if asked.retries() {
                self.retry_row(asked, row)
            } else {
                self.replay_row(asked, row)
            };
            replayed += u64::from(is_sent);
        }
        self.advance_job(id, rows.last().map(|row| row.id), replayed, is_all);
    }

    /// A destination that jobs waited for was read, or cannot be: jobs that wait for no other one
    /// continue.
    pub(super) fn jobs_continue(&mut self, jobs: Vec<ReplayId>) {
        for id in jobs {
            if self.is_job_waiting(id) {
                continue;
            }
            if let Some(job) = self.jobs.by_id.get_mut(&id) {
                job.busy = false;
                self.replay_next(id);
            }
        }
    }

    /// The owners of a job's next deliveries have replayed them.
    fn replayed_elsewhere(
        &mut self,
        asked: &ReplayJob,
        last: Option<DeliveryId>,
        replayed: u64,
        is_all: bool,
    ) {
        let Some(job) = self.jobs.by_id.get(&asked.id) else { return };
        if job.job.position != asked.position || job.job.state != ReplayState::Running {
            return;
        }
        self.commits.seal();
        self.advance_job(asked.id, last, replayed, is_all);
    }

    fn advance_job(&mut self, id: ReplayId, last: Option<DeliveryId>, replayed: u64, is_all: bool) {
        let now = self.now;
        let Some(job) = self.jobs.by_id.get_mut(&id) else { return };
        job.busy = true;
        job.has_sought = false;
        job.job.done += replayed;
        job.job.position = last.or(job.job.position);
        if is_all {
            job.job.state = ReplayState::Finished;
            job.job.finished_at = Some(now);
        }
        let job = job.job.clone();
        self.commits.replay(job);
        self.commits.when_durable(Ack::Replay(id));
        self.commits.seal();
    }

    /// Replays one delivery; `false` if the job skips it: it is unfinished, another job has replayed
    /// it since it was read, or its subscription is deleted.
    fn replay_row(&mut self, job: &ReplayJob, row: &Delivery) -> bool {
        if self.table.entries.contains_key(&row.id) {
            return false;
        }
        let newest = self.commits.dirty(row.id).unwrap_or(row);
        if !job.takes(newest) {
            return false;
        }
        let (Ok(replayed), Some(ix)) =
            (newest.replayed(self.now), self.table.dest_ix(row.destination))
        else {
            return false;
        };
        if !self.directory.has(row.subscription) {
            return false;
        }
        let replayed = replayed.sent_by(job.id);
        let newest = newest.clone();
        self.commits.delivery(&newest, replayed.clone(), None);
        self.place(replayed, ix);
        true
    }

    /// Requests an attempt of one delivery before its slot. `false` if the job skips it: it was
    /// attempted since the job was created, it is sent without the job, its subscription is
    /// deleted, or its destination is frozen.
    fn retry_row(&mut self, job: &ReplayJob, row: &Delivery) -> bool {
        let Some(ix) = self.table.dest_ix(row.destination) else { return false };
        let resident = self.table.entries.get(&row.id).map(|entry| &entry.delivery);
        let newest = resident.or_else(|| self.commits.dirty(row.id)).unwrap_or(row).clone();
        if !job.takes(&newest)
            || self.is_on_its_way(&newest)
            || !self.directory.has(newest.subscription)
        {
            return false;
        }
        self.ask_for(&newest, ix, Asker::Job(Some(job.id))).is_ok()
    }

    /// The deliveries that a job has just replayed are durable.
    pub(super) fn replay_durable(&mut self, id: ReplayId) {
        let Some(job) = self.jobs.by_id.get_mut(&id) else { return };
        job.busy = false;
        match job.job.state {
            ReplayState::Running => {
                let pause = job.job.per_second.map_or(Duration::ZERO, |pace| {
                    let tokens = u32::try_from(at_a_time(pace)).unwrap_or(u32::MAX);
                    Duration::from_secs(1).saturating_mul(tokens) / pace.max(1)
                });
                self.alarms.set(Alarm::Replay(id), self.now.saturating_add(pause));
            }
            ReplayState::Paused | ReplayState::Finished | ReplayState::Cancelled => {
                self.jobs.by_id.remove(&id);
            }
        }
    }

    /// Drops the jobs of shards that another node owns now; they continue there.
    pub(super) fn lose_jobs(&mut self, lost: &ShardSet) {
        let gone: Vec<ReplayId> = self
            .jobs
            .by_id
            .values()
            .filter(|job| lost.has(job.job.shard()))
            .map(|job| job.job.id)
            .collect();
        for id in gone {
            self.jobs.by_id.remove(&id);
            self.alarms.clear(Alarm::Replay(id));
        }
    }

    fn change_replay(&mut self, job: ReplayJob, change: ReplayChange, reply: Reply<ReplayJob>) {
        let state = self.jobs.by_id.get(&job.id).map_or(job.state, |known| known.job.state);
        let next = match (change, state) {
            (ReplayChange::Pause, ReplayState::Running | ReplayState::Paused) => {
                ReplayState::Paused
            }
            (ReplayChange::Resume, ReplayState::Running | ReplayState::Paused) => {
                ReplayState::Running
            }
            (ReplayChange::Cancel, ReplayState::Running | ReplayState::Paused) => {
                ReplayState::Cancelled
            }
            (_, ReplayState::Finished | ReplayState::Cancelled) => {
                drop(reply.send(Err(CommandError::JobEnded)));
                return;
            }
        };
        let job = Box::new(self.change_job(job, next));
        // The deliveries that it has replayed so far are made durable before its new state is
        // stored.
        self.commits.when_durable(Ack::PutReplay(job, reply));
    }

    /// Stops a job, and returns it with its new state, to be stored.
    fn change_job(&mut self, job: ReplayJob, state: ReplayState) -> ReplayJob {
        self.alarms.clear(Alarm::Replay(job.id));
        let known = self.jobs.by_id.remove(&job.id).map(|known| known.job);
        let finished_at = (state == ReplayState::Cancelled).then_some(self.now);
        ReplayJob { state, finished_at, ..known.unwrap_or(job) }
    }
}

/// How many deliveries a job with a rate replays at a time.
fn at_a_time(per_second: u32) -> usize {
    usize::try_from(per_second / PACE_STEP).unwrap_or(usize::MAX).max(1)
}
