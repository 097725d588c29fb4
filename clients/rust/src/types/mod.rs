//! The API's data. The fields are those of the OpenAPI document; a test compares the two. A word
//! or a field that a newer server adds is accepted and ignored, and a field that an older server
//! lacks is absent or has its default.

mod catalogue;
mod change;
#[cfg(test)]
mod conforms;
mod delivery;
mod destination;
mod event;
mod operation;
mod policy;
mod server;
mod simulation;
mod statistics;
mod subscription;

pub use catalogue::{
    Catalogue, CatalogueChange, Conduct, Erasure, ErasureState, EventType, EventTypeChange,
    EventTypeScope, NewErasure, NewEventType, OwnCatalogue,
};
pub use delivery::{
    Attempt, AttemptOutcome, Delivery, DeliveryDetail, DeliveryState, Explanation, NextStep,
    RequestOutcome, RetryPlace, Schedule, ScheduleSlot, SentHeader, SentRequest, SlotState,
    Standing, Timings, Unblock, Wait,
};
pub use destination::{
    CountThreshold, Counters, Destination, DestinationState, DestinationSummary, Enable,
    ShareThreshold, Thresholds, TimeThreshold, Transition,
};
pub use event::{
    ConditionVerdict, EventAccepted, EventDetail, EventSummary, FilterTrialAnswer, FilterVerdict,
    Json, Match, MatchReason, Misfit, NewEvent, TriedEvent,
};
pub use operation::{
    Arrivals, AuditEntry, Key, KeyCreated, Ledger, Limit, NewKey, NewReplay, NewTenant, RateLimit,
    Replay, ReplayFilter, ReplayOutcomes, ReplayState, Span, Stats, Tenant, TenantChange,
};
pub use policy::{
    AttemptPolicy, CircuitPolicy, DestinationRate, DestinationRecovery, EffectivePolicy,
    MassFailurePolicy, Policy, RecoveryPolicy, Retention, RetryPolicy, SubscriptionAttemptPolicy,
    SubscriptionPolicy, SubscriptionPolicyLimits, SubscriptionRecoveryPolicy,
    SubscriptionRetryPolicy,
};
pub use server::{
    AlertTarget, AlertTestResult, Backup, BackupState, Disk, FiringAlert, Lane, Lanes,
    MassFailureState, NewPortalLink, NewTheme, Node, PortalLink, PortalLinkCreated, Server,
    Setting, Theme,
};
pub use simulation::{
    LateBy, SimulatedChange, SimulatedPlan, SimulatedSample, Simulation, SimulationAnswer,
};
pub use statistics::{
    AttemptCounts, DeadGroup, DeadLetters, DestinationFigures, DestinationStats, DueCount, DueHour,
    FailureCount, HourOfAttempts, RecentAttempt, RetriesDue,
};
pub use subscription::{
    Certificate, Filter, NewSubscription, NewWorkfrontOptions, Subscription, SubscriptionChange,
    SubscriptionWithSecret, TestOutcome, WorkfrontOptions,
};
