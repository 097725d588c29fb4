//! The API's data. The fields are those of the OpenAPI document; a test compares the two. A word
//! or a field that a newer server adds is accepted and ignored.

#[cfg(test)]
mod conforms;
mod delivery;
mod destination;
mod event;
mod operation;
mod policy;
mod simulation;
mod subscription;

pub use delivery::{
    Attempt, AttemptOutcome, Delivery, DeliveryDetail, DeliveryState, Explanation, NextStep,
    RequestOutcome, RetryPlace, Schedule, ScheduleSlot, SlotState, Standing, Timings, Unblock,
    Wait,
};
pub use destination::{
    CountThreshold, Counters, Destination, DestinationState, Enable, ShareThreshold, Thresholds,
    TimeThreshold, Transition,
};
pub use event::{
    ConditionVerdict, EventAccepted, EventDetail, EventSummary, FilterVerdict, Json, Match,
    MatchReason, Misfit, NewEvent,
};
pub use operation::{
    AuditEntry, Key, KeyCreated, Ledger, Limit, NewKey, NewReplay, NewTenant, Replay, ReplayFilter,
    ReplayState, Span, Stats, Tenant,
};
pub use policy::{
    DestinationRate, DestinationRecovery, EffectivePolicy, RetryPolicy, SubscriptionAttemptPolicy,
    SubscriptionPolicy, SubscriptionRecoveryPolicy, SubscriptionRetryPolicy,
};
pub use simulation::{
    LateBy, SimulatedChange, SimulatedPlan, SimulatedSample, Simulation, SimulationAnswer,
};
pub use subscription::{
    Certificate, Filter, NewSubscription, NewWorkfrontOptions, Subscription, SubscriptionChange,
    SubscriptionWithSecret, TestOutcome, WorkfrontOptions,
};
