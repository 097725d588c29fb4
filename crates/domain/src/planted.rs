//! Mistakes on purpose, one at a time, which the simulator must catch.
//!
//! Without the feature `planted-bugs`, which nothing that ships has, [`is`] is `false` for every one
//! of them and the compiler removes them all.

/// A mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// An event is acknowledged before it is durable.
    AcknowledgeBeforeSync,
    /// Disabled at one consecutive failure too many.
    OffByOneConsecutive,
    /// A probe that was in flight in a crash stays in flight for ever.
    ProbeNotClearedAfterCrash,
    /// Re-enabled, and the counters go on.
    CountersNotReset,
    /// The slots count from the attempt before.
    SlotFromPreviousAttempt,
    /// A delivery and its destination settle in two writes.
    SettlementSplit,
    /// Exactly 70 % disables.
    ShareIncludesEquality,
    /// Frozen without waiting for the 72 hours.
    FreezeIgnoresTime,
    /// A late success thaws a frozen destination.
    StragglerThawsFrozen,
    /// A slot that passes while the circuit is open is given out again.
    SlotNotSpentWhileOpen,
    /// What does not fit into the lanes is forgotten.
    LostOnOverflow,
    /// A probe is sent twice.
    DuplicateProbe,
    /// A failed probe is followed by the next after half of the time.
    ProbeTooSoon,
    /// `Retry-After` moves a retry earlier.
    RetryAfterEarlier,
    /// Faults of our own count against the destination.
    OwnFaultCounted,
    /// A last slot that our own downtime swallowed gets no attempt.
    DeadInsteadOfMakeUp,
    /// A frozen destination is attempted.
    FrozenAttempted,
    /// `webhook-id` is the event's.
    WebhookIdOfEvent,
    /// An attempt that ended keeps its place in flight.
    LeakedPlace,
    /// A probe takes a slot from its delivery.
    ProbeTakesSlot,
    /// The same delivery is probed again and again.
    ProbesDoNotRotate,
    /// What gave way in memory to something that is due sooner is not read again.
    GaveWayForgotten,
    /// Destinations are disabled although most of them began to fail at once.
    HoldIgnored,
    /// A success can disable a destination.
    SuccessDisables,
    /// Failures while transitions are suspended count for good.
    SuspendedFailuresCounted,
    /// The failures of an outage's first moments, before it is recognised, count for good.
    FirstFailuresKept,
    /// A relapse within a minute after a suspension is not recognised.
    RelapseNotRecognised,
    /// A clock that is set ahead is followed.
    ClockFollowsStepAhead,
    /// A clock that is set back is followed.
    ClockFollowsStepBack,
    /// After a restart the time of day is believed, whatever the clock said before.
    ClockForgetsOffset,
    /// The ramp of a recovery goes on after a failure.
    RampIgnoresFailure,
}

/// Whether this mistake is made.
#[cfg(not(feature = "planted-bugs"))]
pub const fn is(_: Bug) -> bool {
    false
}

#[cfg(feature = "planted-bugs")]
mod selected {
    use std::cell::Cell;

    use super::Bug;

    thread_local! {
        /// A world lives on one thread: so several can be lived side by side.
        static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// Whether this mistake is made on this thread.
    pub fn is(bug: Bug) -> bool {
        PLANTED.get() == Some(bug)
    }

    /// From now on this mistake is made on this thread, and no other.
    pub fn plant(bug: Option<Bug>) {
        PLANTED.set(bug);
    }
}

#[cfg(feature = "planted-bugs")]
pub use selected::{is, plant};
