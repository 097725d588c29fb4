//! The numbers of the contract for the model, typed from the specification, in milliseconds.

use postrider_domain::policy::{
    CircuitPolicy, DeadRecovery, MeasuredFrom, Policy, RecoveryMode, Share,
};

/// The thresholds and times of the contract.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// The number of attempts up to which the share of failures does not matter.
    pub grace: u64,
    /// The failure share, in per cent, that does not disable yet.
    pub percent: u64,
    /// Disabled at this many consecutive failures.
    pub consecutive: u64,
    /// The time between two probes.
    pub probe_ms: i64,
    /// Frozen with more consecutive failures than this …
    pub freeze_over: u64,
    /// … without a success for longer than this.
    pub freeze_after_ms: i64,
    /// Frozen at this many consecutive failures.
    pub freeze_at: u64,
    /// Whether waiting deliveries are sent ahead of their slots on recovery.
    pub drain: bool,
    /// Whether each delay counts from the previous attempt.
    pub from_previous: bool,
    /// The jitter, in per cent of the gap to the previous slot.
    pub jitter: u64,
    /// Whether what died of an outage is replayed when it is over.
    pub replay_dead: bool,
}

/// The times from which the slots of a schedule are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clock {
    /// The first attempt, or acceptance.
    pub anchor: i64,
    /// The previous attempt, or the slot that passed without one.
    pub previous: i64,
}

/// How many retries the contract has.
pub const RETRIES: u32 = 11;

/// The retry table of the contract: when each retry is due, in milliseconds after the first attempt.
const OFFSETS_MS: [i64; 11] = [
    84_800,
    254_400,
    593_600,
    1_272_000,
    2_628_800,
    5_342_400,
    10_769_600,
    21_624_000,
    43_332_800,
    86_750_400,
    173_585_600,
];

/// When retry `n` of the contract's schedule that began at `anchor` is due.
pub fn due(anchor: i64, n: u32) -> i64 {
    Schedule::CONTRACT.due(anchor, n)
}

/// The schedule of a subscription: the contract's, or one of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    /// The unit, where it is not the contract's.
    pub unit_ms: Option<i64>,
    /// How many retries there are.
    pub retries: u32,
}

impl Schedule {
    /// The contract's.
    pub const CONTRACT: Schedule = Schedule { unit_ms: None, retries: RETRIES };

    /// When retry `n` of a schedule that began at `anchor` is due: each gap is twice the one before.
    pub fn due(&self, anchor: i64, n: u32) -> i64 {
        let Some(unit) = self.unit_ms else {
            let place = usize::try_from(n.max(1) - 1).unwrap_or(0);
            return anchor + OFFSETS_MS.get(place).copied().unwrap_or(i64::MAX / 2);
        };
        let (mut at, mut gap) = (0_i64, unit);
        for _ in 0..n {
            (at, gap) = (at.saturating_add(gap), gap.saturating_mul(2));
        }
        anchor.saturating_add(at)
    }

    /// When the last retry is due.
    pub fn last(&self, anchor: i64) -> i64 {
        if self.retries == 0 { anchor } else { self.due(anchor, self.retries) }
    }
}

impl Rules {
    /// The defaults that docs/contract.md promises: retries, thresholds, times.
    pub const DEFAULT: Rules = Rules {
        grace: 100,
        percent: 70,
        consecutive: 2_000,
        probe_ms: 600_000,
        freeze_over: 2_000,
        freeze_after_ms: 72 * 3_600_000,
        freeze_at: 50_000,
        drain: false,
        from_previous: false,
        jitter: 0,
        replay_dead: false,
    };

    /// The same contract with small numbers, so that a short run reaches every edge case.
    pub const SMALL: Rules = Rules {
        grace: 10,
        percent: 70,
        consecutive: 16,
        probe_ms: 600_000,
        freeze_over: 18,
        freeze_after_ms: 3 * 3_600_000,
        freeze_at: 40,
        drain: false,
        from_previous: false,
        jitter: 0,
        replay_dead: false,
    };

    /// The earliest and the latest due time of a slot: equal without jitter.
    fn range(&self, schedule: &Schedule, clock: Clock, n: u32) -> (i64, i64) {
        let last = schedule.last(clock.anchor);
        let offset = schedule.due(0, n);
        let (from, gap) = if self.from_previous {
            (clock.previous + offset, offset)
        } else {
            let before = if n > 1 { schedule.due(0, n - 1) } else { 0 };
            (clock.anchor + offset, offset - before)
        };
        let reach = gap * i64::try_from(self.jitter).unwrap_or(0) / 100;
        (from.min(last), (from + reach).min(last))
    }

    /// The possible next slots after slot `spent` at the time `now`: number, earliest and latest
    /// due time, and clock. Without jitter there is one.
    pub fn next_slots(
        &self,
        schedule: &Schedule,
        clock: Clock,
        spent: u32,
        now: i64,
    ) -> Vec<(u32, i64, i64, Clock)> {
        let (mut clock, mut found) = (clock, Vec::new());
        for n in spent + 1..=schedule.retries {
            let (from, to) = self.range(schedule, clock, n);
            if to > now {
                found.push((n, from.max(now + 1), to, clock));
            }
            if from > now {
                break;
            }
            clock.previous = from;
        }
        found
    }

    /// Whether a destination is disabled: over 70 % of over 100 attempts, or 2,000 consecutive
    /// failures.
    pub fn disables(&self, attempts: u64, failures: u64, consecutive: u64) -> bool {
        consecutive >= self.consecutive
            || attempts > self.grace && failures * 100 > attempts * self.percent
    }

    /// Whether a destination is frozen: over 2,000 consecutive failures and over 72 hours without a
    /// success, or 50,000.
    pub fn freezes(&self, consecutive: u64, without_success_ms: i64) -> bool {
        consecutive >= self.freeze_at
            || consecutive > self.freeze_over && without_success_ms > self.freeze_after_ms
    }

    /// These numbers as a policy for the engine.
    pub fn policy(&self) -> Policy {
        let ms = |ms: i64| std::time::Duration::from_millis(ms.unsigned_abs());
        let circuit = CircuitPolicy {
            disable_share: Share::percent(u32::try_from(self.percent).unwrap_or(100)),
            disable_grace: self.grace,
            disable_consecutive: self.consecutive,
            probe_interval: ms(self.probe_ms),
            freeze_over_consecutive: self.freeze_over,
            freeze_after: ms(self.freeze_after_ms),
            freeze_consecutive: self.freeze_at,
        };
        let mut policy = Policy { circuit, ..Policy::default() };
        policy.retry.measured_from = if self.from_previous {
            MeasuredFrom::PreviousAttempt
        } else {
            MeasuredFrom::FirstAttempt
        };
        policy.retry.jitter = Share::percent(u32::try_from(self.jitter).unwrap_or(100));
        if self.replay_dead {
            policy.recovery.dead = DeadRecovery::Replay;
        }
        policy.recovery.mode = if self.drain { RecoveryMode::Drain } else { RecoveryMode::Slots };
        policy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_table_follows_the_formula_of_the_contract() {
        for n in 1..=RETRIES {
            assert_eq!(due(0, n), ((1 << n) - 1) * 84_800);
        }
    }

    #[test]
    fn own_schedule_doubles_each_gap() {
        let own = Schedule { unit_ms: Some(10), retries: 3 };
        assert_eq!([1, 2, 3].map(|n| own.due(100, n)), [110, 130, 170]);
        assert_eq!((own.last(100), Schedule { retries: 0, ..own }.last(100)), (170, 100));
        let contract = Schedule { unit_ms: Some(84_800), retries: RETRIES };
        assert!((1..=RETRIES).all(|n| contract.due(7, n) == due(7, n)));
    }

    #[test]
    fn the_default_rules_are_the_default_policy() {
        assert_eq!(Rules::DEFAULT.policy(), Policy::default());
    }
}
