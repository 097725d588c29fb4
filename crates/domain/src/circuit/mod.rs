//! The circuit of a destination: whether it may be attempted, and what each outcome changes.
//!
//! ```text
//!              over 70 % of over 100 attempts failed,
//!              or 2,000 consecutive failures
//!    ┌────────┐ ───────────────────────────────────▶ ┌────────┐  ten minutes passed   ┌───────────┐
//!    │ closed │                                      │  open  │ ────────────────────▶ │ half-open │
//!    └────────┘ ◀─────────────────────────────────── └────────┘ ◀──────────────────── └───────────┘
//!        ▲        any success (counters reset)            │       the probe failed          │
//!        │                                                │                                 │
//!        │ enabled by hand                                ▼  over 2,000 consecutive and     ▼
//!    ┌────────┐      last success over 72 h ago, 50,000 consecutive, 410 Gone, or by hand
//!    │ frozen │ ◀───────────────────────────────────────────────────────────────────────────
//!    └────────┘   (from every state)
//! ```
//!
//! Only a person ends frozen. At most one probe is in flight: half-open names it. Faults of our own
//! change no counter. Only a failure disables: a success is counted, but no rule is evaluated on
//! it. Every change of state is a [`Transition`] with its evidence.
//!
//! While transitions are suspended ([`crate::mass_failure`]) a failure is counted separately, in
//! [`Suspended`], and no rule looks at it: when the suspension ends, it is dropped. So are
//! consecutive failures that began shortly before the suspension, in the time that it took to
//! notice the outage ([`Circuit::suspend`]).

use serde::{Deserialize, Serialize};

use crate::attempt::Verdict;
use crate::ids::DeliveryId;
use crate::policy::{CircuitPolicy, DeadRecovery};
use crate::time::Timestamp;

/// A destination's circuit with its counters, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Circuit {
    /// Its state.
    pub state: CircuitState,
    /// The counters since the last reset.
    pub counters: Counters,
    /// The time of the last success; the destination's creation before the first one.
    pub last_success_at: Timestamp,
    /// Whether there was ever a success.
    pub ever_succeeded: bool,
    /// Whether a drain is under way: waiting deliveries are sent ahead of their slots. It is stored, so
    /// that the next process continues the drain after a restart.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub draining: bool,
    /// When the first of the consecutive failures was counted. `None` if there is none, or if an
    /// older version without this field stored the circuit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing_since: Option<Timestamp>,
    /// Failures that are dropped when the suspension of transitions ends. They are not in
    /// `counters`.
    #[serde(default, skip_serializing_if = "Suspended::is_empty")]
    pub suspended: Suspended,
    /// While it is not closed: when the outage began, which is the first of the failures in a row that
    /// led to it. `None` in a circuit that a version without this field stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down_since: Option<Timestamp>,
    /// Since when deliveries died that are to be replayed, now that the destination is back. It is
    /// stored with the transition that closed the circuit, and removed when the replay job is stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay_dead_since: Option<Timestamp>,
    /// When the outage ended whose dead deliveries are to be replayed: the job's identifier and its
    /// oldest delivery follow from it, so they are the same after a crash. `None` if nothing is to be
    /// replayed, or if a version without this field stored the circuit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovered_at: Option<Timestamp>,
    /// The delivery that is to be the next probe, because somebody asked for it while the destination was
    /// disabled. It is stored, so that the wish survives a restart and a change of the owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_probe: Option<DeliveryId>,
}

/// Failures while transitions were suspended: shown in the API, but no rule looks at them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspended {
    /// All failures since transitions were suspended.
    pub failures: u64,
    /// The failures since the last success.
    pub consecutive: u64,
}

impl Suspended {
    fn is_empty(&self) -> bool {
        *self == Suspended::default()
    }
}

/// The state of a circuit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum CircuitState {
    /// Enabled: everything is attempted.
    Closed,
    /// Disabled: nothing is attempted until the next probe.
    Open {
        /// When it was disabled.
        since: Timestamp,
        /// The rule or event that disabled it.
        evidence: Evidence,
        /// When the next probe may be sent.
        probe_at: Timestamp,
    },
    /// Disabled, and a probe is in flight.
    HalfOpen {
        /// When it was disabled.
        since: Timestamp,
        /// The rule or event that disabled it.
        evidence: Evidence,
        /// The delivery that is the probe.
        probe: DeliveryId,
        /// When the probe was sent.
        probed_at: Timestamp,
    },
    /// Frozen: not attempted until somebody enables it.
    Frozen {
        /// When it was frozen.
        since: Timestamp,
        /// The rule or event that froze it.
        evidence: Evidence,
    },
}

/// The counters since the last reset. Only settled attempts are counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Settled attempts, without faults of our own.
    pub attempts: u64,
    /// Attempts that succeeded.
    pub successes: u64,
    /// Attempts that failed.
    pub failures: u64,
    /// Failures since the last success.
    pub consecutive_failures: u64,
}

/// The name of a circuit's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StateName {
    /// Enabled.
    Closed,
    /// Disabled, waiting for the next probe.
    Open,
    /// Disabled, a probe in flight.
    HalfOpen,
    /// Frozen.
    Frozen,
}

/// A change of state, as it is stored in the destination's timeline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transition {
    /// When it happened.
    pub at: Timestamp,
    /// The state before.
    pub from: StateName,
    /// The state after.
    pub to: StateName,
    /// The rule or event that caused it.
    pub evidence: Evidence,
    /// The counters at that time, before any reset.
    pub counters: Counters,
}

/// Why a circuit changed its state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum Evidence {
    /// More than the allowed share of the attempts failed.
    FailureShare,
    /// Too many consecutive failures.
    ConsecutiveFailures,
    /// Many consecutive failures, and no success for days.
    NoSuccess {
        /// The last success, or the destination's creation.
        since: Timestamp,
    },
    /// The receiver answered 410 Gone.
    Gone,
    /// The probe interval is over, and a delivery was sent as the probe.
    ProbeSent {
        /// The delivery that was sent as the probe.
        delivery: DeliveryId,
    },
    /// The probe was not delivered.
    ProbeFailed,
    /// The probe ended with a fault of our own, or the process that sent it ended.
    ProbeLost,
    /// A delivery succeeded while the destination was disabled.
    Success {
        /// Whether it was the probe; otherwise it was an attempt that was still in flight.
        by_probe: bool,
    },
    /// Done by a person, or by Postrider itself: see [`Evidence::taken_back`].
    ByHand {
        /// The reason that was given.
        reason: Option<String>,
    },
}

/// The reason of [`Evidence::taken_back`].
const TAKEN_BACK: &str = "its failures were taken back: most destinations failed at once";

impl Evidence {
    /// Evidence that the failures that disabled the destination were dropped: they began together
    /// with those of most other destinations, so the fault is probably ours. It has the form of
    /// [`Evidence::ByHand`], which nodes of the previous version can read.
    pub fn taken_back() -> Self {
        Evidence::ByHand { reason: Some(TAKEN_BACK.to_owned()) }
    }

    /// The value that the API shows as `why`.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Evidence::FailureShare => "failure_share",
            Evidence::ConsecutiveFailures => "consecutive_failures",
            Evidence::NoSuccess { .. } => "no_success",
            Evidence::Gone => "gone",
            Evidence::ProbeSent { .. } => "probe_sent",
            Evidence::ProbeFailed => "probe_failed",
            Evidence::ProbeLost => "probe_lost",
            Evidence::Success { .. } => "success",
            Evidence::ByHand { .. } => "by_hand",
        }
    }

    /// Whether this is [`Evidence::taken_back`].
    pub fn is_taken_back(&self) -> bool {
        matches!(self, Evidence::ByHand { reason: Some(reason) } if reason == TAKEN_BACK)
    }
}

/// The circuit's answer to "may this destination be attempted?".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// Yes.
    Admit,
    /// One delivery may be sent as the probe: [`Circuit::begin_probe`].
    Probe,
    /// Not before this time; then one delivery may be sent as the probe.
    WaitUntil(Timestamp),
    /// No, until somebody enables the destination.
    Refuse,
}

/// Whether transitions to disabled and frozen are suspended, because so many destinations fail at
/// once that the fault is probably ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Suspension {
    /// Transitions happen as usual.
    Off,
    /// Failures are counted separately, and no destination is disabled or frozen.
    On,
}

impl Circuit {
    /// The circuit of a destination that was just created.
    pub fn new(created_at: Timestamp) -> Self {
        Circuit {
            state: CircuitState::Closed,
            counters: Counters::default(),
            last_success_at: created_at,
            ever_succeeded: false,
            draining: false,
            failing_since: None,
            suspended: Suspended::default(),
            down_since: None,
            replay_dead_since: None,
            recovered_at: None,
            next_probe: None,
        }
    }

    /// Whether the destination may be attempted now. The rule about the time without a success is
    /// evaluated here too, so that a destination freezes on time even if nothing is sent.
    pub fn ask(
        &mut self,
        now: Timestamp,
        suspension: Suspension,
        policy: &CircuitPolicy,
    ) -> (Admission, Option<Transition>) {
        let transition = self.freeze_when_due(now, suspension, policy);
        let admission = match &self.state {
            CircuitState::Closed => Admission::Admit,
            CircuitState::Open { probe_at, .. } if *probe_at <= now => Admission::Probe,
            CircuitState::Open { probe_at, .. } => Admission::WaitUntil(*probe_at),
            CircuitState::HalfOpen { probed_at, .. } => {
                Admission::WaitUntil(probed_at.saturating_add(policy.probe_interval))
            }
            CircuitState::Frozen { .. } => Admission::Refuse,
        };
        (admission, transition)
    }

    /// Whether an attempt of `delivery` that was admitted earlier, as the probe or not, may still
    /// be made. Changes nothing.
    pub fn still_admits(&self, delivery: DeliveryId) -> bool {
        match &self.state {
            CircuitState::Closed => true,
            CircuitState::HalfOpen { probe, .. } => *probe == delivery,
            CircuitState::Open { .. } | CircuitState::Frozen { .. } => false,
        }
    }

    /// Admits `delivery` as the probe. `None`, and nothing changes, unless a probe is due.
    pub fn begin_probe(&mut self, delivery: DeliveryId, now: Timestamp) -> Option<Transition> {
        let CircuitState::Open { since, evidence, probe_at } = &self.state else { return None };
        if *probe_at > now {
            return None;
        }
        let to = CircuitState::HalfOpen {
            since: *since,
            evidence: evidence.clone(),
            probe: delivery,
            probed_at: now,
        };
        Some(self.change(to, Evidence::ProbeSent { delivery }, now))
    }

    /// Records the outcome of an attempt of `delivery`. At most one transition follows.
    pub fn learn(
        &mut self,
        delivery: DeliveryId,
        verdict: Verdict,
        now: Timestamp,
        suspension: Suspension,
        policy: &CircuitPolicy,
    ) -> Option<Transition> {
        // If somebody asked for this attempt, it has been made.
        self.next_probe = self.next_probe.filter(|next| *next != delivery);
        match verdict {
            Verdict::Success => self.succeeded(delivery, now),
            Verdict::Failure => self.failed(delivery, now, suspension, policy),
            Verdict::Gone => self.gone(now, suspension),
            Verdict::OwnFault => self.end_probe(delivery, Evidence::ProbeLost, now, policy),
        }
    }

    /// Closes the circuit and resets its counters. No other function ends frozen.
    pub fn enable(&mut self, reason: Option<String>, now: Timestamp) -> Option<Transition> {
        let transition = match self.state {
            CircuitState::Closed => None,
            CircuitState::Open { .. }
            | CircuitState::HalfOpen { .. }
            | CircuitState::Frozen { .. } => {
                Some(self.change(CircuitState::Closed, Evidence::ByHand { reason }, now))
            }
        };
        self.reset();
        transition
    }

    /// The outage is over and the circuit closed: what died of it is to be replayed, or kept.
    pub fn end_outage(&mut self, dead: DeadRecovery, now: Timestamp) {
        let since = self.down_since.take();
        if dead == DeadRecovery::Replay {
            // What died of an outage before may still be to be replayed.
            self.replay_dead_since = self.replay_dead_since.into_iter().chain(since).min();
            self.recovered_at = self.replay_dead_since.map(|_| now);
        }
    }

    /// The jobs that replay what died of the outage are stored, or nobody wants them any more.
    pub fn dead_are_replayed(&mut self) {
        self.replay_dead_since = None;
        self.recovered_at = None;
    }

    /// Freezes the destination by hand.
    pub fn freeze(&mut self, reason: Option<String>, now: Timestamp) -> Option<Transition> {
        self.freeze_for(Evidence::ByHand { reason }, now)
    }

    /// Transitions are suspended from now on. Consecutive failures that began at `since` or later
    /// belong to the outage, so they are moved to `suspended`. If they disabled the destination, it
    /// is enabled again.
    pub fn suspend(&mut self, since: Timestamp, now: Timestamp) -> Option<Transition> {
        self.failing_since.filter(|first| *first >= since)?;
        let disabled_by_these = match &self.state {
            CircuitState::Open { since: at, evidence, .. }
            | CircuitState::HalfOpen { since: at, evidence, .. } => {
                *at >= since
                    && matches!(evidence, Evidence::FailureShare | Evidence::ConsecutiveFailures)
            }
            CircuitState::Closed | CircuitState::Frozen { .. } => false,
        };
        let transition = disabled_by_these
            .then(|| self.change(CircuitState::Closed, Evidence::taken_back(), now));
        let run = std::mem::take(&mut self.counters.consecutive_failures);
        self.counters.failures = self.counters.failures.saturating_sub(run);
        self.counters.attempts = self.counters.attempts.saturating_sub(run);
        self.suspended.failures += run;
        self.suspended.consecutive += run;
        self.failing_since = None;
        transition
    }

    /// Drops the failures of a suspension that has ended. Returns whether there were any.
    pub fn take_back(&mut self) -> bool {
        !std::mem::take(&mut self.suspended).is_empty()
    }

    /// The counters as they are shown: including the failures that will be dropped.
    pub fn shown_counters(&self) -> Counters {
        let Suspended { failures, consecutive } = self.suspended;
        Counters {
            attempts: self.counters.attempts + failures,
            successes: self.counters.successes,
            failures: self.counters.failures + failures,
            consecutive_failures: self.counters.consecutive_failures + consecutive,
        }
    }

    /// Recovers a circuit that is read after a crash or a takeover: a probe that was in flight is
    /// lost, and the next one is due ten minutes after that one was sent.
    pub fn recover(&mut self, now: Timestamp, policy: &CircuitPolicy) -> Option<Transition> {
        let CircuitState::HalfOpen { probed_at, .. } = self.state else { return None };
        let probe_at = probed_at.saturating_add(policy.probe_interval);
        self.reopen(probe_at, Evidence::ProbeLost, now)
    }

    /// The name of the state.
    pub fn state_name(&self) -> StateName {
        match self.state {
            CircuitState::Closed => StateName::Closed,
            CircuitState::Open { .. } => StateName::Open,
            CircuitState::HalfOpen { .. } => StateName::HalfOpen,
            CircuitState::Frozen { .. } => StateName::Frozen,
        }
    }

    fn succeeded(&mut self, delivery: DeliveryId, now: Timestamp) -> Option<Transition> {
        self.last_success_at = now;
        self.ever_succeeded = true;
        self.failing_since = None;
        match &self.state {
            CircuitState::Open { .. } | CircuitState::HalfOpen { .. } => {
                let by_probe = self.is_probe(delivery);
                let evidence = Evidence::Success { by_probe };
                let transition = self.change(CircuitState::Closed, evidence, now);
                self.reset();
                Some(transition)
            }
            CircuitState::Closed | CircuitState::Frozen { .. } => {
                self.counters.attempts += 1;
                self.counters.successes += 1;
                self.counters.consecutive_failures = 0;
                self.suspended.consecutive = 0;
                None
            }
        }
    }

    fn failed(
        &mut self,
        delivery: DeliveryId,
        now: Timestamp,
        suspension: Suspension,
        policy: &CircuitPolicy,
    ) -> Option<Transition> {
        self.count_failure(now, suspension);
        self.freeze_when_due(now, suspension, policy)
            .or_else(|| self.end_probe(delivery, Evidence::ProbeFailed, now, policy))
            .or_else(|| self.disable_when_due(now, suspension, policy))
    }

    /// A response of 410: the receiver itself says that it is gone, so a suspension does not
    /// matter.
    fn gone(&mut self, now: Timestamp, suspension: Suspension) -> Option<Transition> {
        self.count_failure(now, suspension);
        self.freeze_for(Evidence::Gone, now)
    }

    fn count_failure(&mut self, now: Timestamp, suspension: Suspension) {
        if suspension == Suspension::On {
            self.suspended.failures += 1;
            self.suspended.consecutive += 1;
            return;
        }
        if self.counters.consecutive_failures == 0 {
            self.failing_since = Some(now);
        }
        self.counters.attempts += 1;
        self.counters.failures += 1;
        self.counters.consecutive_failures += 1;
    }

    /// Resets the counters: a new grace period begins.
    fn reset(&mut self) {
        self.counters = Counters::default();
        self.suspended = Suspended::default();
        self.failing_since = None;
    }

    fn is_probe(&self, delivery: DeliveryId) -> bool {
        matches!(&self.state, CircuitState::HalfOpen { probe, .. } if *probe == delivery)
    }

    /// Reopens the circuit and starts the probe interval again; `None` if `delivery` is not the
    /// probe.
    fn end_probe(
        &mut self,
        delivery: DeliveryId,
        why: Evidence,
        now: Timestamp,
        policy: &CircuitPolicy,
    ) -> Option<Transition> {
        if !self.is_probe(delivery) {
            return None;
        }
        self.reopen(now.saturating_add(policy.probe_interval), why, now)
    }

    /// Goes from half-open back to open. `since` and `evidence` of the disabling stay the same.
    fn reopen(&mut self, probe_at: Timestamp, why: Evidence, now: Timestamp) -> Option<Transition> {
        let CircuitState::HalfOpen { since, evidence, .. } = &self.state else { return None };
        let to = CircuitState::Open { since: *since, evidence: evidence.clone(), probe_at };
        Some(self.change(to, why, now))
    }

    fn disable_when_due(
        &mut self,
        now: Timestamp,
        suspension: Suspension,
        policy: &CircuitPolicy,
    ) -> Option<Transition> {
        if self.state != CircuitState::Closed || suspension == Suspension::On {
            return None;
        }
        let Counters { attempts, failures, consecutive_failures, .. } = self.counters;
        let evidence = if consecutive_failures >= policy.disable_consecutive {
            Evidence::ConsecutiveFailures
        } else if attempts > policy.disable_grace
            && policy.disable_share.is_exceeded_by(failures, attempts)
        {
            Evidence::FailureShare
        } else {
            return None;
        };
        let to = CircuitState::Open {
            since: now,
            evidence: evidence.clone(),
            probe_at: now.saturating_add(policy.probe_interval),
        };
        Some(self.change(to, evidence, now))
    }

    fn freeze_when_due(
        &mut self,
        now: Timestamp,
        suspension: Suspension,
        policy: &CircuitPolicy,
    ) -> Option<Transition> {
        if suspension == Suspension::On {
            return None;
        }
        let consecutive = self.counters.consecutive_failures;
        if consecutive >= policy.freeze_consecutive {
            self.freeze_for(Evidence::ConsecutiveFailures, now)
        } else if consecutive > policy.freeze_over_consecutive
            && now.since(self.last_success_at) > policy.freeze_after
        {
            self.freeze_for(Evidence::NoSuccess { since: self.last_success_at }, now)
        } else {
            None
        }
    }

    fn freeze_for(&mut self, evidence: Evidence, now: Timestamp) -> Option<Transition> {
        if let CircuitState::Frozen { .. } = self.state {
            return None;
        }
        let to = CircuitState::Frozen { since: now, evidence: evidence.clone() };
        Some(self.change(to, evidence, now))
    }

    /// The only function that changes the state.
    fn change(&mut self, to: CircuitState, evidence: Evidence, at: Timestamp) -> Transition {
        let from = self.state_name();
        self.down_since = match &self.state {
            CircuitState::Closed => Some(self.failing_since.map_or(at, |first| first.min(at))),
            CircuitState::Open { since, .. }
            | CircuitState::HalfOpen { since, .. }
            | CircuitState::Frozen { since, .. } => self.down_since.or(Some(*since)),
        };
        self.next_probe = match &to {
            CircuitState::Open { .. } => self.next_probe,
            CircuitState::HalfOpen { probe, .. } => self.next_probe.filter(|next| next != probe),
            CircuitState::Closed | CircuitState::Frozen { .. } => None,
        };
        self.state = to;
        Transition { at, from, to: self.state_name(), evidence, counters: self.counters }
    }
}

#[cfg(test)]
mod tests;
