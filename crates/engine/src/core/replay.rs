//! Bulk replays: a job brings back what has ended, at its pace, each delivery once.
//!
//! How far a job has come becomes durable together with the deliveries that it brought back: after
//! a restart it goes on right there.

use std::time::Duration;

use postrider_domain::delivery::Delivery;
use postrider_domain::ids::ReplayId;
use postrider_store::{ReplayJob, ReplayState};

use super::alarms::Alarm;
use super::commits::Ack;
use super::{Core, Load};

/// How long an unpaced job waits when the retry lane is full.
const FULL_PAUSE: Duration = Duration::from_millis(100);
/// A paced job brings back what is due in this time together.
const PACE_STEP: u32 = 10;

/// A replay job at work.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) job: ReplayJob,
    /// Whether a read or a commit of it is under way.
    busy: bool,
}

impl Core {
    /// Begins or resumes a job.
    pub(crate) fn run_job(&mut self, job: ReplayJob) {
        let id = job.id;
        self.jobs.insert(id, Job { job, busy: false });
        self.alarms.set(Alarm::Replay(id), self.now);
    }

    /// It is time for the next deliveries of a job.
    pub(super) fn replay_next(&mut self, id: ReplayId) {
        let ready = self.rings.retry.len();
        let full = ready >= self.options.in_flight_max || self.is_quiet();
        let batch = self.options.replay_batch.min(self.options.commit_changes_max).max(1);
        let Some(job) = self.jobs.get_mut(&id) else { return };
        if job.busy || job.job.state != ReplayState::Running {
            return;
        }
        if full {
            self.alarms.set(Alarm::Replay(id), self.now.saturating_add(FULL_PAUSE));
            return;
        }
        job.busy = true;
        let limit = job.job.per_second.map_or(batch, |pace| at_a_time(pace).min(batch));
        let load = Load::Candidates { job: Box::new(job.job.clone()), limit };
        self.load(load);
    }

    pub(super) fn candidates_loaded(&mut self, asked: &ReplayJob, rows: &[Delivery], limit: usize) {
        let id = asked.id;
        let Some(job) = self.jobs.get_mut(&id) else { return };
        // A job that was paused and resumed meanwhile may have asked twice.
        if job.job.position != asked.position {
            return;
        }
        job.busy = false;
        if job.job.state != ReplayState::Running {
            return;
        }
        // The job's batch holds nothing else, so that its place and its deliveries go together.
        self.seal_commit();
        let mut replayed = 0;
        for row in rows {
            replayed += u64::from(self.replay_row(row));
        }
        let now = self.now;
        let Some(job) = self.jobs.get_mut(&id) else { return };
        job.busy = true;
        job.job.done += replayed;
        job.job.position = rows.last().map(|row| row.id).or(job.job.position);
        if rows.len() < limit {
            job.job.state = ReplayState::Finished;
            job.job.finished_at = Some(now);
        }
        let job = job.job.clone();
        self.commit_replay(job);
        self.commits.when_durable(Ack::Replay(id));
        self.seal_commit();
    }

    /// Brings one delivery back; `false` where it is not to be: it is on its way, or its
    /// subscription is gone.
    fn replay_row(&mut self, row: &Delivery) -> bool {
        if self.entries.contains_key(&row.id) {
            return false;
        }
        let newest = self.commits.dirty(row.id).unwrap_or(row);
        let before = newest.state.name();
        let (Ok(replayed), Some(ix)) = (newest.replayed(self.now), self.dest_ix(row.destination))
        else {
            return false;
        };
        if !self.directory.has(row.subscription) {
            return false;
        }
        self.commit_delivery(before, replayed.clone(), None);
        self.place(replayed, ix);
        true
    }

    /// What a job brought back is durable.
    pub(super) fn replay_durable(&mut self, id: ReplayId) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
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
                self.jobs.remove(&id);
            }
        }
    }

    /// Stops a job where it is, to be kept as somebody changed it.
    pub(super) fn change_job(&mut self, job: ReplayJob, state: ReplayState) -> ReplayJob {
        self.alarms.clear(Alarm::Replay(job.id));
        let known = self.jobs.remove(&job.id).map(|known| known.job);
        let finished_at = (state == ReplayState::Cancelled).then_some(self.now);
        ReplayJob { state, finished_at, ..known.unwrap_or(job) }
    }
}

/// How many deliveries a paced job brings back at a time.
fn at_a_time(per_second: u32) -> usize {
    usize::try_from(per_second / PACE_STEP).unwrap_or(usize::MAX).max(1)
}
