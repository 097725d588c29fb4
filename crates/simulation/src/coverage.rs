//! Coverage: the receivers' behaviours, faults, edge cases and final states that a run must
//! contain. A run that missed one has shown little.

macro_rules! covers {
    ($($name:ident => $text:literal),+ $(,)?) => {
        /// A situation that a run must contain.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Cover { $(#[doc = $text] $name),+ }

        impl Cover {
            /// All situations.
            pub const ALL: &'static [Cover] = &[$(Cover::$name),+];

            /// The printed name.
            pub const fn text(self) -> &'static str {
                match self { $(Cover::$name => $text),+ }
            }
        }
    };
}

covers! {
    Delivered => "delivered",
    DeadExhausted => "dead: exhausted",
    DeadNotAdmitted => "dead: never admitted",
    Cancelled => "cancelled by somebody",
    CancelledWithSubscription => "cancelled with its subscription",
    CancelledInFlight => "cancelled in flight",
    FirstAttempt => "first attempt",
    Retry => "retry, to the millisecond",
    LastRetry => "eleventh retry",
    MadeUp => "slots made up after downtime",
    LastSlotMadeUp => "last slot made up after downtime",
    SlotSpent => "slot spent while not admitted",
    SpentInFlight => "slot spent while in flight",
    StartedFromAcceptance => "clock from acceptance",
    RetryAfterMoves => "retry-after moves a retry",
    RetryAfterCut => "retry-after cut at the last slot",
    Jitter => "slot spread by jitter",
    FromPrevious => "delay counted from the attempt before",
    Drained => "sent ahead of its slot by a ramp",
    Probe => "probe sent",
    ProbeOnTime => "probe at ten minutes sharp",
    ProbeOfArrival => "probe of what arrived",
    ProbeFailed => "probe failed",
    ProbeLostInCrash => "probe lost in a crash",
    ProbeOwnFault => "probe ended by our own fault",
    DisabledByShare => "disabled by share",
    DisabledByConsecutive => "disabled by consecutive failures",
    FrozenByTime => "frozen by time",
    FrozenOnTheDot => "frozen to the millisecond, unasked",
    FrozenByConsecutive => "frozen by consecutive failures",
    FrozenGone => "frozen by 410",
    FrozenByHand => "frozen by hand",
    EnabledByHand => "enabled by hand",
    EnabledByProbe => "re-enabled by a probe",
    EnabledByStraggler => "re-enabled by a straggler",
    StragglerAtFrozen => "late success at a frozen destination",
    OwnFault => "fault of our own, not counted",
    CountersResetByHand => "counters of an enabled one reset",
    Suspended => "transition suspended by the guard",
    FailureSuspended => "failure taken back after a suspension",
    RunTakenBack => "an outage's first failures taken back",
    EnabledByTakingBack => "re-enabled because failures were taken back",
    SuccessOverShare => "success over the share, not disabled",
    ShareAtEdge => "exactly the share, not disabled",
    GraceAtEdge => "grace period full of failures",
    Crash => "crash",
    CrashInCommit => "crash with writes in line",
    CrashInFlight => "crash with attempts in flight",
    CrashInProbe => "crash with a probe in flight",
    ClockSetAhead => "clock set ahead",
    ClockSetBack => "clock set back",
    ClockSetInDowntime => "clock set while the server was down",
    Reboot => "machine started anew",
    Downtime => "downtime of hours or days",
    Shutdown => "orderly stop",
    StoreFull => "store: disk full",
    StoreUnknown => "store: outcome unknown",
    StoreReads => "store: reads fail",
    StoreStopped => "store: stopped for good",
    DuplicateByCrash => "repeat because of a crash",
    DuplicateByLostAnswer => "repeat because of a lost answer",
    DuplicateEvent => "the same event again",
    ReplayOne => "replay of one",
    ReplayBulk => "bulk replay",
    ReplayChanged => "bulk replay paused and resumed",
    SubscriptionAdded => "subscription added",
    SubscriptionChanged => "subscription changed",
    SubscriptionDeleted => "subscription deleted",
    PolicyChanged => "policy changed in mid-flight",
    Overflow => "several batches at once",
    SmallMemory => "more waits than memory holds",
    Paced => "rate limit kept",
    TenantFlood => "a tenant that floods",
    TooFast => "tenant over its rate refused",
    ReplayRefused => "replay of what has not ended refused",
    RetriedNow => "attempted before its slot, because somebody asked",
    RetryPutOff => "retry now of a disabled destination's",
    RetryRefused => "retry now refused",
    RetryBulk => "bulk retry of what waits",
    RetryBulkRefused => "bulk retry of a frozen destination's refused",
    WishLapsed => "asked for, and the probe failed",
    DrainedByHand => "enabled by hand with a drain",
    EnabledWithDead => "enabled by hand with what died",
    DeadReplayed => "dead of an outage replayed by itself",
    OwnSchedule => "slot of a subscription's own schedule",
    OwnPolicyChanged => "a subscription's own policy changed",
    TightLimits => "limits so tight that lanes spill",
    AskedProbe => "probe of the one that somebody asked for",
    AtLimit => "as many in flight as a destination may have",
    TestSend => "test send",
    Timeout => "attempt timed out",
    Late => "answer just before the deadline",
    Healed => "healed, and all ended in time",
}

/// How often each situation occurred.
#[derive(Debug, Clone)]
pub struct Coverage(Vec<u64>);

impl Default for Coverage {
    fn default() -> Self {
        Coverage(vec![0; Cover::ALL.len()])
    }
}

impl Coverage {
    /// Counts one occurrence.
    pub fn hit(&mut self, cover: Cover) {
        self.0[cover as usize] += 1;
    }

    /// How often it occurred.
    pub fn count(&self, cover: Cover) -> u64 {
        self.0[cover as usize]
    }

    /// Adds the counts of another world.
    pub fn add(&mut self, other: &Coverage) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine += theirs;
        }
    }

    /// The situations that never occurred.
    pub fn missing(&self) -> Vec<Cover> {
        Cover::ALL.iter().copied().filter(|cover| self.count(*cover) == 0).collect()
    }

    /// A table with one line for each situation.
    pub fn table(&self) -> String {
        let line = |cover: &Cover| format!("  {:>12}  {}\n", self.count(*cover), cover.text());
        Cover::ALL.iter().map(line).collect()
    }
}
