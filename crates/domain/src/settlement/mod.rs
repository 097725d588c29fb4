//! Everything that one outcome changes, as one value that a store applies atomically.
//!
//! [`settle`] is called once for every attempt that has ended. The attempt record, the
//! destination's counters and circuit, the delivery's attempt count and its next slot or its end:
//! all of it is in the [`Settlement`], and none of it is computed anywhere else. After a crash
//! either all of it is stored or none.

use crate::attempt::{Attempt, Finished, Turn, Verdict};
use crate::circuit::{StateName, Suspension, Transition};
use crate::delivery::Delivery;
use crate::destination::Destination;
use crate::policy::Policy;
use crate::thresholds::{self, Warning};
use crate::time::Timestamp;

/// The changes that follow from one outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    /// The delivery afterwards.
    pub delivery: Delivery,
    /// The destination afterwards.
    pub destination: Destination,
    /// The attempt, for the log.
    pub attempt: Attempt,
    /// The change of the destination's circuit, for its timeline.
    pub transition: Option<Transition>,
    /// A threshold that the destination has come near, for an operational event.
    pub warning: Option<Warning>,
}

/// Settles an attempt of `delivery` that was made in `turn` and has ended at `now`.
pub fn settle(
    delivery: &Delivery,
    destination: &Destination,
    turn: Turn,
    finished: Finished,
    now: Timestamp,
    suspension: Suspension,
    policy: &Policy,
) -> Settlement {
    let verdict = finished.ending.verdict();
    let mut learned = destination.clone();
    let transition = learned.circuit.learn(delivery.id, verdict, now, suspension, &policy.circuit);
    if transition.as_ref().is_some_and(|transition| transition.to == StateName::Closed) {
        learned.circuit.end_outage(policy.recovery.dead, now);
    }
    let settled = match verdict {
        Verdict::Success => delivery.delivered(finished.started_at, now),
        // A fault of our own does not count against the destination, but it spends the delivery's
        // slot: the schedule does not depend on who is to blame.
        Verdict::Failure | Verdict::Gone | Verdict::OwnFault => delivery.failed(
            turn,
            finished.started_at,
            finished.ending.retry_after(now),
            now,
            &policy.retry,
        ),
    };
    let attempt = Attempt {
        number: settled.attempts,
        turn,
        started_at: finished.started_at,
        timings: finished.timings,
        ending: finished.ending,
    };
    Settlement {
        warning: thresholds::newly_near(&destination.circuit, &learned.circuit, &policy.circuit),
        delivery: settled,
        destination: learned,
        attempt,
        transition,
    }
}

#[cfg(test)]
mod tests;
