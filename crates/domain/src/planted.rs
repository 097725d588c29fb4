//! Bugs of the engine that are still switched on in its own sources. None of them is ever made here:
//! `cargo xtask planted` puts another module in place of this one, in a copy of the sources.

/// A bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// An event is acknowledged before it is durable.
    AcknowledgeBeforeSync,
    /// A delivery and its destination settle in two writes.
    SettlementSplit,
    /// Deliveries that do not fit into the lanes are lost.
    LostOnOverflow,
    /// A probe is sent twice.
    DuplicateProbe,
    /// A last slot that our own downtime swallowed gets no attempt.
    DeadInsteadOfMakeUp,
    /// `webhook-id` is the event's.
    WebhookIdOfEvent,
    /// An attempt that ended still counts as in flight.
    LeakedPlace,
    /// Deliveries that were evicted for some that are due sooner are not read again.
    GaveWayForgotten,
    /// The ramp of a recovery goes on after a failure.
    RampIgnoresFailure,
}

/// Whether this bug is made: never.
pub const fn is(_: Bug) -> bool {
    false
}
