//! The model of bulk jobs, from the section "Replay" of docs/contract.md: a job sends each delivery
//! once and counts those that it sent. If the rules say so, the dead deliveries of an outage are
//! replayed when it is over.

use std::collections::{BTreeSet, VecDeque};

use postrider_domain::delivery::StateName;
use postrider_domain::ids::{DeliveryId, DestinationId, ReplayId};
use postrider_store::{Commit, DeliveryChange, ReplayJob};

use super::{Dest, Oracle, Stand};
use crate::coverage::Cover;

/// How many deliveries a second a job that the engine starts by itself replays at most.
const BY_ITSELF_PER_SECOND: u32 = 100;

/// The deliveries that a job has sent so far.
#[derive(Debug, Default)]
pub(super) struct Sent {
    deliveries: BTreeSet<DeliveryId>,
    done: u64,
    /// How many of them were delivered, are dead, and were cancelled or sent by a later job.
    ended: [u64; 3],
    /// When it sent, in the last second, one time for each delivery.
    recent: VecDeque<i64>,
}

impl Sent {
    /// Records deliveries that were sent now. Returns how many those of the last second are, if they
    /// are more than the pace allows: a second's deliveries, and a tenth of that at either end.
    fn is_over(&mut self, count: usize, pace: u32, now: i64) -> Option<usize> {
        self.recent.extend(std::iter::repeat_n(now, count));
        while self.recent.front().is_some_and(|at| *at <= now - 1_000) {
            self.recent.pop_front();
        }
        let most = pace + 2 * (pace / 10).max(1);
        Some(self.recent.len()).filter(|sent| *sent > usize::try_from(most).unwrap_or(usize::MAX))
    }
}

impl Oracle {
    /// Somebody starts a job with this identifier.
    pub fn job_is_asked_for(&mut self, id: ReplayId) {
        self.asked_jobs.insert(id);
    }

    /// Checks the progress of a job in a commit. The commit contains deliveries of this job and no
    /// others.
    pub(super) fn job_advanced(&mut self, job: &ReplayJob, commit: &Commit) {
        let is_retry = job.filter.state == Some(StateName::Waiting);
        let is_asked = self.asked_jobs.contains(&job.id);
        let mut found = Vec::new();
        let sent = self.jobs.entry(job.id).or_default();
        sent.done += u64::try_from(commit.deliveries.len()).unwrap_or(u64::MAX);
        if job.done != sent.done {
            found.push((None, format!("a job says {} and has sent {}", job.done, sent.done)));
        }
        for change in &commit.deliveries {
            let id = change.delivery.id;
            if !sent.deliveries.insert(id) {
                found.push((Some(id), "sent twice by the same job".to_owned()));
            }
            if job.filter.destination.is_some_and(|to| to != change.delivery.destination) {
                found.push((Some(id), "sent by a job for another destination".to_owned()));
            }
            if change.attempt.is_some() {
                found.push((Some(id), "attempted in the commit of a job".to_owned()));
            }
            if let Some(owed) = self.owed.get_mut(&id)
                && is_retry
            {
                owed.retries_asked += 1;
            }
        }
        if is_retry && !commit.deliveries.is_empty() {
            self.coverage.hit(Cover::RetryBulk);
        }
        let most = if is_asked { u32::MAX / 2 } else { BY_ITSELF_PER_SECOND };
        let pace = job.per_second.unwrap_or(most).min(most);
        let over = sent.is_over(commit.deliveries.len(), pace, self.now);
        // A process that has just begun continues a job at once.
        if let Some(over) = over.filter(|_| self.up_at < self.now - 1_000) {
            found.push((None, format!("a job of {pace} a second sent {over} in one")));
        }
        if !is_asked && !commit.deliveries.is_empty() {
            self.coverage.hit(Cover::DeadReplayed);
            found.extend(self.wrong_by_itself(job, commit));
        }
        if let Some(destination) = job.filter.destination
            && !is_retry
            && job.per_second.is_some()
            && !commit.deliveries.is_empty()
            && !self.is_disturbed()
            && let Some(id) = self.overdue_at(destination)
        {
            found.push((Some(id), "due, and a job replays what has ended before it".to_owned()));
        }
        for (delivery, what) in found {
            self.violate(what, delivery, job.filter.destination);
        }
    }

    /// Records whose delivery this is, and how it ended. `job` is the one whose commit has the change.
    pub(super) fn outcome_settled(&mut self, change: &DeliveryChange, job: Option<ReplayId>) {
        let id = change.delivery.id;
        let (job, kind) = match change.delivery.state.name() {
            StateName::Delivered => (self.sent_by.remove(&id), 0),
            StateName::Dead => (self.sent_by.remove(&id), 1),
            StateName::Cancelled => (self.sent_by.remove(&id), 2),
            StateName::Queued | StateName::InFlight | StateName::Waiting => {
                let before = job.and_then(|job| self.sent_by.insert(id, job));
                (before.filter(|before| job != Some(*before)), 2)
            }
        };
        if let Some(sent) = job.and_then(|job| self.jobs.get_mut(&job)) {
            sent.ended[kind] += 1;
        }
    }

    /// Checks what the store says became of the deliveries of these jobs.
    pub fn check_outcomes(&mut self, jobs: &[ReplayJob]) {
        for job in jobs {
            let [pending, failed, delivered, dead, withdrawn] = job.outcomes.0;
            let sent = self.jobs.get(&job.id);
            let (ended, done) = sent.map_or(([0; 3], 0), |sent| (sent.ended, sent.done));
            let open = self.sent_by.values().filter(|sender| **sender == job.id).count();
            let open = u64::try_from(open).unwrap_or(u64::MAX);
            if ([delivered, dead, withdrawn], pending + failed) != (ended, open) {
                let what = format!(
                    "a job that sent {done} says {:?}, must have {open} open and {ended:?} ended",
                    job.outcomes
                );
                self.violate(what, None, job.filter.destination);
            }
        }
    }

    /// What is wrong with a job that the engine started by itself.
    fn wrong_by_itself(
        &self,
        job: &ReplayJob,
        commit: &Commit,
    ) -> Option<(Option<DeliveryId>, String)> {
        let mut ids = commit.deliveries.iter().map(|change| change.delivery.id);
        if let Some(id) = ids.find(|id| !self.may_replay(*id)) {
            return Some((Some(id), "replayed by itself, and it was to be kept".to_owned()));
        }
        let ended_at = job.created_at.as_unix_ms();
        let of_outage = job.filter.destination.and_then(|id| self.destinations.get(&id));
        if of_outage.is_none_or(|dest| !dest.recoveries.contains(&ended_at)) {
            return Some((None, "replayed by itself, and no outage ended at its time".to_owned()));
        }
        let is_old = |id: &DeliveryId| self.is_too_old(*id, job.created_at.as_unix_ms());
        let mut ids = commit.deliveries.iter().map(|change| change.delivery.id);
        if let Some(id) = ids.find(is_old) {
            return Some((Some(id), "replayed by itself, and it was too old".to_owned()));
        }
        let is_dead = |id: &DeliveryId| self.owed.get(id).is_some_and(|o| o.stand == Stand::Dead);
        let mut ids = commit.deliveries.iter().map(|change| change.delivery.id);
        let other = ids.find(|id| !is_dead(id));
        let is_whole = job.filter.destination.is_some() && job.filter.ended_since.is_some();
        match (other, is_whole) {
            (None, true) => None,
            (other, _) => Some((other, "replayed by itself, and not dead of an outage".to_owned())),
        }
    }

    /// A destination has recovered: its deliveries that died since it was disabled or frozen are to
    /// be replayed. If what died of an outage before is not replayed yet, its age counts from now too.
    pub(super) fn outage_ended(&mut self, destination: DestinationId, began_at: i64) {
        let (now, slack) = (self.now, self.slack);
        let died = self.owed.iter().filter(|(_, owed)| {
            let is_of_outage = owed.since > began_at + slack || owed.replay_due;
            owed.destination == destination && owed.stand == Stand::Dead && is_of_outage
        });
        let is_young = |id: DeliveryId, created_at: i64| {
            self.replay_age(id).is_some_and(|age| created_at > now - age)
        };
        let died: Vec<_> = died.map(|(id, owed)| (*id, is_young(*id, owed.created_at))).collect();
        for (id, is_due) in died {
            if let Some(owed) = self.owed.get_mut(&id) {
                owed.replay_due = is_due;
            }
        }
    }

    /// Checks, long after all faults have ended, that the dead deliveries of outages were replayed.
    pub(super) fn check_replayed(&mut self) {
        let left: Vec<_> = self
            .owed
            .iter()
            .filter(|(_, owed)| {
                owed.replay_due
                    && owed.stand == Stand::Dead
                    && !self.deleted.contains(&owed.subscription)
            })
            .map(|(id, _)| *id)
            .collect();
        for id in left {
            self.violate("died of an outage, and was not replayed after it".into(), Some(id), None);
        }
    }
}

impl Dest {
    /// Records whether the destination drains now. Returns whether a drain began that neither a
    /// rule nor a person asked for.
    pub(super) fn drains(&mut self, is_draining: bool, by_rule: bool, now: i64) -> bool {
        let (from, until) = self.drained;
        let was_draining = until == i64::MAX;
        self.drained = match (was_draining, is_draining) {
            (false, true) => (now.min(self.not_closed_at), i64::MAX),
            (true, false) => (from, now),
            (true, true) | (false, false) => (from, until),
        };
        let begins = is_draining && !was_draining;
        let is_asked = std::mem::take(&mut self.drain_asked);
        self.drain_asked = is_asked && !is_draining;
        begins && !by_rule && !is_asked
    }

    /// Whether the destination was draining at this time.
    pub(super) fn drained_at(&self, at: i64) -> bool {
        let (from, until) = self.drained;
        from <= at && at <= until
    }

    /// Records transitions of the destination. If an outage has ended, returns when it began.
    pub(super) fn outage_ended(
        &mut self,
        transitions: &[postrider_domain::circuit::Transition],
    ) -> Option<i64> {
        use postrider_domain::circuit::StateName;
        let mut ended = None;
        for transition in transitions {
            match (transition.from, transition.to) {
                (StateName::Closed, _) => self.down_since = Some(transition.at.as_unix_ms()),
                (_, StateName::Closed) => {
                    ended = self.down_since.take();
                    self.recoveries.insert(transition.at.as_unix_ms());
                }
                _ => {}
            }
        }
        ended
    }
}
