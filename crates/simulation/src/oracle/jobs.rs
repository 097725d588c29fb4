//! The model of bulk jobs, from the section "Replay" of docs/contract.md: a job sends each delivery
//! once and counts those that it sent. If the rules say so, the dead deliveries of an outage are
//! replayed when it is over.

use std::collections::BTreeSet;

use postrider_domain::delivery::StateName;
use postrider_domain::ids::{DeliveryId, DestinationId};
use postrider_store::{Commit, ReplayJob};

use super::{Dest, Oracle, Stand};
use crate::coverage::Cover;

/// The longest downtime, in which deliveries grow older before they are replayed.
const DOWNTIME_MS: i64 = 80 * 3_600_000;

/// The deliveries that a job has sent so far.
#[derive(Debug, Default)]
pub(super) struct Sent {
    deliveries: BTreeSet<DeliveryId>,
    done: u64,
}

impl Oracle {
    /// Checks the progress of a job in a commit. The commit contains deliveries of this job and no
    /// others.
    pub(super) fn job_advanced(&mut self, job: &ReplayJob, commit: &Commit) {
        let is_retry = job.filter.state == Some(StateName::Waiting);
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
        if !self.bulk_replay && !commit.deliveries.is_empty() {
            // Nobody has asked for a bulk replay in this life so far: the engine itself started the
            // job.
            self.coverage.hit(Cover::DeadReplayed);
            found.extend(self.wrong_by_itself(job, commit));
        }
        for (delivery, what) in found {
            self.violate(what, delivery, job.filter.destination);
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
    /// be replayed.
    pub(super) fn outage_ended(&mut self, destination: DestinationId, began_at: i64) {
        let (now, slack) = (self.now, self.slack);
        let died = self.owed.iter().filter(|(_, owed)| {
            owed.destination == destination
                && owed.stand == Stand::Dead
                && owed.since > began_at + slack
        });
        let is_young = |(id, created_at): &(DeliveryId, i64)| {
            let age = self.replay_age(*id);
            age.is_some_and(|age| *created_at > now - (age - DOWNTIME_MS))
        };
        let died: Vec<_> = died.map(|(id, owed)| (*id, owed.created_at)).filter(is_young).collect();
        for (id, _) in died {
            if let Some(owed) = self.owed.get_mut(&id) {
                owed.replay_due = true;
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

    /// Records transitions of the destination. If an outage has ended, returns when it began,
    /// unless somebody asked for a replay of its dead deliveries.
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
                    ended = self.down_since.take().filter(|_| !self.replay_asked);
                    self.replay_asked = false;
                }
                _ => {}
            }
        }
        ended
    }
}
