//! Everything that one outcome changes, as one value that a store applies atomically.
//!
//! This is the heart: [`settle`] is called once for every attempt that has ended. The failure is
//! logged, the destination's counters go up, the delivery's attempt count goes up, the next slot is
//! computed, the delivery is placed or is dead: all of it is in the [`Settlement`], and nothing of
//! it happens anywhere else. A crash leaves all of it or none of it.

use crate::attempt::{Attempt, Finished, Turn, Verdict};
use crate::circuit::{Hold, StateName, Transition};
use crate::delivery::Delivery;
use crate::destination::Destination;
use crate::policy::Policy;
use crate::thresholds::{self, Warning};
use crate::time::Timestamp;

/// What one outcome changes.
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
    /// A threshold that has come near, for the notice about it.
    pub warning: Option<Warning>,
}

/// Settles an attempt of `delivery` that was made in `turn` and has ended at `now`.
pub fn settle(
    delivery: &Delivery,
    destination: &Destination,
    turn: Turn,
    finished: Finished,
    now: Timestamp,
    hold: Hold,
    policy: &Policy,
) -> Settlement {
    let verdict = finished.ending.verdict();
    let mut learned = destination.clone();
    let transition = learned.circuit.learn(delivery.id, verdict, now, hold, &policy.circuit);
    if transition.as_ref().is_some_and(|transition| transition.to == StateName::Closed) {
        learned.circuit.end_outage(policy.recovery.dead);
    }
    let settled = match verdict {
        Verdict::Success => delivery.delivered(finished.started_at, now),
        // A fault of our own spares the destination, not the delivery's slot: the schedule's
        // times hold whoever is to blame.
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
