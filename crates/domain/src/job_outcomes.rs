//! What became of the deliveries that a bulk job sent.
//!
//! ```text
//!   sent by the job ─▶ pending ──────────────────▶ delivered, dead or withdrawn
//!                         │ an attempt failed          ▲
//!                         ▼                            │
//!                       failed ────────────────────────┘
//! ```
//!
//! A delivery that waits names the job that sent it last, with whether an attempt has failed since
//! ([`ByJob`]). A delivery that has ended names none: its outcome is counted. **All stores count with
//! [`count_outcomes`]**, in the write that changes the delivery, so that the outcomes of a job always
//! add up to the deliveries that it sent.

use serde::{Deserialize, Serialize};

use crate::delivery::{Delivery, DeliveryState};
use crate::ids::ReplayId;

/// The job that sent a waiting delivery last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByJob {
    /// The job.
    pub job: ReplayId,
    /// Whether an attempt has failed since.
    pub has_failed: bool,
}

/// What became of a delivery that a job sent. The numbers are the indexes of the counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Not attempted since.
    Pending = 0,
    /// An attempt has failed since, and it waits for its next slot.
    Failed = 1,
    /// Delivered.
    Delivered = 2,
    /// Dead.
    Dead = 3,
    /// Cancelled, or sent by a later job, before it was delivered or dead.
    Withdrawn = 4,
}

/// How many deliveries of a job came to each outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JobOutcomes(pub [u64; JobOutcomes::KINDS]);

/// What a change adds to the counts of a job, by [`Outcome`].
pub type OutcomeChange = [i64; JobOutcomes::KINDS];

impl ByJob {
    /// The mark of a delivery that this job sends now.
    pub const fn sent(job: ReplayId) -> ByJob {
        ByJob { job, has_failed: false }
    }

    /// The mark after a failed attempt.
    #[must_use]
    pub const fn after_failure(self) -> ByJob {
        ByJob { has_failed: true, ..self }
    }

    const fn outcome(self) -> Outcome {
        if self.has_failed { Outcome::Failed } else { Outcome::Pending }
    }
}

impl JobOutcomes {
    /// How many outcomes there are.
    pub const KINDS: usize = 5;

    /// How many deliveries came to this outcome.
    pub const fn of(&self, outcome: Outcome) -> u64 {
        self.0[outcome as usize]
    }

    /// How many deliveries are counted.
    pub fn sum(&self) -> u64 {
        self.0.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// The counts after a change.
    #[must_use]
    pub fn plus(&self, change: &OutcomeChange) -> JobOutcomes {
        let mut counts = self.0;
        for (count, change) in counts.iter_mut().zip(change) {
            *count = count.saturating_add_signed(*change);
        }
        JobOutcomes(counts)
    }
}

/// Tells `count` which outcomes of which jobs a change of a delivery adds to or takes from: a
/// delivery that had the mark `before` is now `after`.
pub fn count_outcomes(
    before: Option<ByJob>,
    after: &Delivery,
    mut count: impl FnMut(ReplayId, Outcome, i64),
) {
    let now = after.by_job();
    if before == now {
        return;
    }
    if let Some(before) = before {
        count(before.job, before.outcome(), -1);
        if now.is_none_or(|now| now.job != before.job) {
            count(before.job, ended_as(&after.state), 1);
        }
    }
    if let Some(now) = now {
        count(now.job, now.outcome(), 1);
    }
}

/// The outcome of a delivery for the job that it no longer names.
const fn ended_as(state: &DeliveryState) -> Outcome {
    match state {
        DeliveryState::Delivered { .. } => Outcome::Delivered,
        DeliveryState::Dead { .. } => Outcome::Dead,
        DeliveryState::Queued | DeliveryState::Waiting(_) | DeliveryState::Cancelled { .. } => {
            Outcome::Withdrawn
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::attempt::Turn;
    use crate::delivery::CancelReason;
    use crate::event::{Event, RawJson};
    use crate::ids::{DeliveryId, DestinationId, SubscriptionId, TenantId};
    use crate::policy::RetryPolicy;
    use crate::time::Timestamp;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_unix_ms(ms)
    }

    /// A delivery that is dead.
    fn dead() -> Delivery {
        let event = Event {
            id: "e1".parse().unwrap(),
            tenant: TenantId::default_tenant(),
            kind: "task.updated".parse().unwrap(),
            object: None,
            time: at(0),
            data: RawJson::from_trusted(bytes::Bytes::from_static(b"{}")),
            old: None,
            trace: None,
        };
        let id = DeliveryId::from_bytes([7; 16]);
        let (to, whose) = (DestinationId::from_bytes([1; 16]), SubscriptionId::from_bytes([2; 16]));
        let queued = Delivery::accepted(id, &event, whose, to, at(0));
        let policy = RetryPolicy { max: 0, ..RetryPolicy::default() };
        queued.failed(Turn::First, at(0), None, at(1), &policy)
    }

    /// Runs steps on a dead delivery: `send1` by job 1, `ask2` before its slot by job 2, and `fail`,
    /// `probe-fail`, `skip` (not admitted), `ok`, `cancel`, `replay` and `ask` by hand. Returns the
    /// counts of jobs 1 and 2.
    fn counts(steps: &str) -> [[u64; 5]; 2] {
        let job = |n: u8| ReplayId::from_bytes([n; 16]);
        let policy = RetryPolicy::default();
        let (mut delivery, mut counts) = (dead(), BTreeMap::<ReplayId, JobOutcomes>::new());
        for (n, step) in steps.split_whitespace().enumerate() {
            let now = at(100 + i64::try_from(n).unwrap());
            let turn = delivery.turn().unwrap_or(Turn::Probe);
            let after = match step {
                "send1" => delivery.replayed(now).unwrap().sent_by(job(1)),
                "send2" => delivery.replayed(now).unwrap().sent_by(job(2)),
                "ask1" => delivery.asked_for(now).unwrap().sent_by(job(1)),
                "ask2" => delivery.asked_for(now).unwrap().sent_by(job(2)),
                "replay" => delivery.replayed(now).unwrap(),
                "ask" => delivery.asked_for(now).unwrap(),
                "fail" => delivery.failed(turn, now, None, now, &policy),
                "probe-fail" => delivery.failed(Turn::Probe, now, None, now, &policy),
                "die" => {
                    let policy = RetryPolicy { max: 0, ..policy.clone() };
                    delivery.failed(turn, now, None, now, &policy)
                }
                "skip" => delivery.not_admitted(now, &policy),
                "ok" => delivery.delivered(now, now),
                "cancel" => delivery.cancelled(CancelReason::Asked, now).unwrap(),
                other => panic!("{other}"),
            };
            count_outcomes(delivery.by_job(), &after, |job, outcome, n| {
                let mut change = OutcomeChange::default();
                change[outcome as usize] = n;
                let counts = counts.entry(job).or_default();
                *counts = counts.plus(&change);
            });
            delivery = after;
        }
        [job(1), job(2)].map(|job| counts.get(&job).copied().unwrap_or_default().0)
    }

    #[test]
    fn outcomes_follow_a_delivery_from_the_job_that_sent_it_to_its_end() {
        // Counts: pending, failed, delivered, dead, withdrawn.
        for (steps, expected) in [
            ("send1", [1, 0, 0, 0, 0]),
            ("send1 skip", [1, 0, 0, 0, 0]),
            ("send1 ok", [0, 0, 1, 0, 0]),
            ("send1 fail", [0, 1, 0, 0, 0]),
            ("send1 probe-fail", [0, 1, 0, 0, 0]),
            ("send1 fail skip fail", [0, 1, 0, 0, 0]),
            ("send1 fail ask fail", [0, 1, 0, 0, 0]),
            ("send1 fail ok", [0, 0, 1, 0, 0]),
            ("send1 die", [0, 0, 0, 1, 0]),
            ("send1 fail die", [0, 0, 0, 1, 0]),
            ("send1 cancel", [0, 0, 0, 0, 1]),
            ("send1 cancel ok", [0, 0, 0, 0, 1]),
            ("send1 fail cancel", [0, 0, 0, 0, 1]),
            ("send1 ok replay fail die", [0, 0, 1, 0, 0]),
            ("replay fail ask1", [1, 0, 0, 0, 0]),
            ("replay fail ask1 fail", [0, 1, 0, 0, 0]),
            ("replay ok", [0; 5]),
        ] {
            assert_eq!(counts(steps), [expected, [0; 5]], "{steps}");
        }
    }

    #[test]
    fn delivery_that_a_later_job_sends_is_counted_there() {
        let withdrawn = [0, 0, 0, 0, 1];
        assert_eq!(counts("send1 fail ask2"), [withdrawn, [1, 0, 0, 0, 0]]);
        assert_eq!(counts("send1 fail ask2 ok"), [withdrawn, [0, 0, 1, 0, 0]]);
        // It had ended: its outcome for the first job stays.
        assert_eq!(counts("send1 die send2 ok"), [[0, 0, 0, 1, 0], [0, 0, 1, 0, 0]]);
        assert_eq!(counts("send1 fail ask1"), [[1, 0, 0, 0, 0], [0; 5]], "by the same job");
    }
}
