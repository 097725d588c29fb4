//! When the next retry is due.
//!
//! Retry n (n = 1 … 11) is due at `first_attempt_at + (2^n − 1) × 84,800 ms`. The offsets count
//! from the first attempt, not from the attempt before; only so does the eleventh fall at about 48
//! hours. A slot whose time has passed is never used: it is spent, and the next one is taken. So
//! due times strictly increase, whatever is configured and however late an attempt is.

use serde::{Deserialize, Serialize};
use std::time::Duration;

use crate::ids::DeliveryId;
use crate::job_outcomes::ByJob;
use crate::mixing::mix;
use crate::policy::{MeasuredFrom, RetryPolicy, Share};
use crate::time::Timestamp;

/// A slot of a delivery's retry schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slot {
    /// Retry n is made in slot n. Slot 0 is the first attempt of a schedule that begins in the
    /// retry lane (a replay).
    pub number: u32,
    /// When it falls due.
    pub due_at: Timestamp,
    /// The times from which the slots are counted.
    pub clock: ScheduleClock,
    /// When the slot itself falls due, if a manual attempt was requested before it. That attempt
    /// takes no slot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ahead_of: Option<Timestamp>,
    /// The bulk job that sent the delivery last: its outcome is counted there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_job: Option<ByJob>,
}

/// The times from which a delivery's slots are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleClock {
    /// The first attempt; the time of acceptance if the circuit admitted none.
    pub anchor_at: Timestamp,
    /// The previous attempt, or the slot that passed without one. Used only if delays are measured
    /// from the previous attempt.
    pub previous_at: Timestamp,
}

impl ScheduleClock {
    /// A clock that starts now.
    pub fn starting_at(at: Timestamp) -> Self {
        ScheduleClock { anchor_at: at, previous_at: at }
    }
}

/// How long after the first attempt retry `n` is due: (2^n − 1) units.
pub fn offset(n: u32, policy: &RetryPolicy) -> Duration {
    let units = 1u128.checked_shl(n).map_or(u128::MAX, |power| power - 1);
    let nanos = policy.unit.as_nanos().saturating_mul(units);
    Duration::from_millis(u64::try_from(nanos / 1_000_000).unwrap_or(u64::MAX))
}

/// When the last slot of a schedule is due. Nothing is ever due after it.
pub fn last_due_at(clock: ScheduleClock, policy: &RetryPolicy) -> Timestamp {
    clock.anchor_at.saturating_add(offset(policy.max, policy))
}

/// The first slot after slot `spent` that is still to come, or `None` when no slot is left.
///
/// The jitter is computed from `delivery`: the same slot of the same delivery always has the same
/// due time, on every node and after every restart.
pub fn next_slot(
    clock: ScheduleClock,
    spent: u32,
    now: Timestamp,
    delivery: DeliveryId,
    policy: &RetryPolicy,
) -> Option<Slot> {
    let end = last_due_at(clock, policy);
    let mut previous_at = clock.previous_at;
    for number in spent.saturating_add(1)..=policy.max {
        let due_at = match policy.measured_from {
            MeasuredFrom::FirstAttempt => {
                let gap = offset(number, policy).saturating_sub(offset(number - 1, policy));
                clock.anchor_at.saturating_add(offset(number, policy)).saturating_add(jitter(
                    delivery,
                    number,
                    gap,
                    policy.jitter,
                ))
            }
            MeasuredFrom::PreviousAttempt => {
                let delay = offset(number, policy);
                previous_at.saturating_add(delay).saturating_add(jitter(
                    delivery,
                    number,
                    delay,
                    policy.jitter,
                ))
            }
        };
        let due_at = due_at.min(end);
        if due_at > now {
            let clock = ScheduleClock { previous_at, ..clock };
            return Some(Slot::new(number, due_at, clock));
        }
        previous_at = due_at;
    }
    None
}

impl Slot {
    /// A slot with this due time.
    pub const fn new(number: u32, due_at: Timestamp, clock: ScheduleClock) -> Self {
        Slot { number, due_at, clock, ahead_of: None, by_job: None }
    }

    /// The slot without the manual attempt before it.
    #[must_use]
    pub fn itself(self) -> Slot {
        Slot { due_at: self.ahead_of.unwrap_or(self.due_at), ahead_of: None, ..self }
    }

    /// The slot with a manual attempt at `at`. If the slot falls due by then, it is unchanged.
    #[must_use]
    pub fn with_attempt_at(self, at: Timestamp) -> Slot {
        let itself = self.itself();
        if itself.due_at <= at {
            return itself;
        }
        Slot { due_at: at, ahead_of: Some(itself.due_at), ..itself }
    }

    /// The same slot, moved to the later time that the receiver asked for, but never after the last
    /// slot and never earlier.
    #[must_use]
    pub fn not_before(self, wish: Option<Timestamp>, policy: &RetryPolicy) -> Slot {
        let Some(wish) = wish else { return self };
        let due_at = self.due_at.max(wish.min(last_due_at(self.clock, policy)));
        Slot { due_at, ..self }
    }
}

/// How far this slot of this delivery is moved later, within `share` of `delay`. Always less than
/// `delay`, so that a slot never reaches the next one.
fn jitter(delivery: DeliveryId, slot: u32, delay: Duration, share: Share) -> Duration {
    if share == Share::ZERO {
        return Duration::ZERO;
    }
    // The identifier's last eight bytes are random; the slot's number makes each slot's jitter
    // differ.
    let mut random = [0; 8];
    random.copy_from_slice(&delivery.as_bytes()[8..]);
    let mixed = mix(u64::from_be_bytes(random) ^ u64::from(slot));
    let within = u128::from(mixed >> 32);
    let reach = delay.as_millis().saturating_mul(u128::from(share.as_millionths())) / 1_000_000;
    let ms = reach.saturating_mul(within) >> 32;
    Duration::from_millis(u64::try_from(ms).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const START: Timestamp = Timestamp::from_unix_ms(1_763_199_000_000);
    /// The table of the contract, in milliseconds.
    const OFFSETS: [u64; 11] = [
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

    fn delivery(n: u8) -> DeliveryId {
        DeliveryId::new(START, [n; 10])
    }

    fn after(ms: u64) -> Timestamp {
        START.saturating_add(Duration::from_millis(ms))
    }

    /// The slots of a delivery whose attempts all take `latency_ms` and fail.
    fn schedule(policy: &RetryPolicy, latency_ms: u64) -> Vec<(u32, u64)> {
        let mut clock = ScheduleClock::starting_at(START);
        let mut spent = 0;
        let mut now = after(latency_ms);
        let mut slots = Vec::new();
        while let Some(slot) = next_slot(clock, spent, now, delivery(1), policy) {
            slots.push((slot.number, offset_ms(slot.due_at)));
            spent = slot.number;
            clock = ScheduleClock { previous_at: slot.due_at, ..slot.clock };
            now = slot.due_at.saturating_add(Duration::from_millis(latency_ms));
        }
        slots
    }

    fn offset_ms(at: Timestamp) -> u64 {
        u64::try_from(at.since(START).as_millis()).unwrap()
    }

    #[test]
    fn the_eleven_offsets_are_exact_to_the_millisecond() {
        let policy = RetryPolicy::default();
        let expected: Vec<(u32, u64)> = (1..).zip(OFFSETS).collect();
        assert_eq!(schedule(&policy, 0), expected);
        // However long the attempts take, the offsets count from the start of the first one.
        assert_eq!(schedule(&policy, 5_000), expected);
        for (n, ms) in (1..).zip(OFFSETS) {
            assert_eq!(offset(n, &policy), Duration::from_millis(ms));
        }
    }

    #[test]
    fn measured_from_the_previous_attempt_everything_ends_at_the_same_48_hours() {
        let policy =
            RetryPolicy { measured_from: MeasuredFrom::PreviousAttempt, ..RetryPolicy::default() };
        // Delay n is (2^n − 1) units after the attempt before: the sums 1, 4, 11, 26, … units.
        let units = [1, 4, 11, 26, 57, 120, 247, 502, 1013, 2036];
        let mut expected: Vec<(u32, u64)> = (1..).zip(units.map(|n: u64| n * 84_800)).collect();
        expected.push((11, 173_585_600));
        assert_eq!(schedule(&policy, 0), expected);
    }

    #[test]
    fn measured_from_the_previous_attempt_a_slow_attempt_does_not_move_its_own_delay() {
        let policy =
            RetryPolicy { measured_from: MeasuredFrom::PreviousAttempt, ..RetryPolicy::default() };
        let clock = ScheduleClock { anchor_at: START, previous_at: after(100_000) };
        let slot = next_slot(clock, 1, after(105_000), delivery(1), &policy).unwrap();
        assert_eq!((slot.number, offset_ms(slot.due_at)), (2, 100_000 + 254_400));
    }

    #[test]
    fn a_slot_that_has_passed_is_spent_and_several_are_spent_together() {
        let policy = RetryPolicy::default();
        let clock = ScheduleClock::starting_at(START);
        let cases = [
            (0, 0, Some(1)),
            (0, 84_799, Some(1)),
            (0, 84_800, Some(2)),
            (1, 84_800, Some(2)),
            (1, 600_000, Some(4)),
            (4, 86_750_399, Some(10)),
            (4, 86_750_400, Some(11)),
            (9, 173_585_599, Some(11)),
            (9, 173_585_600, None),
            (11, 173_000_000, None),
            (u32::MAX, 0, None),
        ];
        for (spent, now_ms, expected) in cases {
            let slot = next_slot(clock, spent, after(now_ms), delivery(1), &policy);
            assert_eq!(slot.map(|s| s.number), expected, "spent {spent} at {now_ms}");
        }
    }

    #[test]
    fn retry_after_moves_later_never_earlier_and_never_past_the_last_slot() {
        let policy = RetryPolicy::default();
        let clock = ScheduleClock::starting_at(START);
        let slot = next_slot(clock, 0, START, delivery(1), &policy).unwrap();
        let cases = [
            (None, 84_800),
            (Some(0), 84_800),
            (Some(84_799), 84_800),
            (Some(84_801), 84_801),
            (Some(3_600_000), 3_600_000),
            (Some(173_585_600), 173_585_600),
            (Some(173_585_601), 173_585_600),
        ];
        for (wish, expected) in cases {
            let moved = slot.not_before(wish.map(after), &policy);
            assert_eq!(offset_ms(moved.due_at), expected, "{wish:?}");
            assert_eq!(moved.number, 1);
        }
        assert_eq!(slot.not_before(Some(Timestamp::MAX), &policy).due_at, after(173_585_600));
    }

    #[test]
    fn scaled_time_keeps_the_fractions_of_a_millisecond() {
        // 84,800 ms / 3,000 is not a whole number of milliseconds; the sums must not drift.
        let policy =
            RetryPolicy { unit: Duration::from_millis(84_800) / 3_000, ..RetryPolicy::default() };
        assert_eq!(offset(11, &policy), Duration::from_millis(173_585_600 / 3_000));
    }

    #[test]
    fn no_retries_is_a_policy_too() {
        let policy = RetryPolicy { max: 0, ..RetryPolicy::default() };
        let clock = ScheduleClock::starting_at(START);
        assert_eq!(next_slot(clock, 0, START, delivery(1), &policy), None);
        assert_eq!(last_due_at(clock, &policy), START);
    }

    #[test]
    fn jitter_spreads_deliveries_and_is_the_same_every_time() {
        let policy = RetryPolicy { jitter: Share::percent(50), ..RetryPolicy::default() };
        let clock = ScheduleClock::starting_at(START);
        let due = |n| next_slot(clock, 0, START, delivery(n), &policy).unwrap().due_at;
        let mut distinct: Vec<_> = (0..100).map(due).collect();
        assert!(distinct.iter().all(|at| (84_800..127_200).contains(&offset_ms(*at))));
        assert_eq!(distinct, (0..100).map(due).collect::<Vec<_>>());
        distinct.sort_unstable();
        distinct.dedup();
        assert!(distinct.len() > 95, "only {} of 100 differ", distinct.len());
    }

    fn any_policy() -> impl Strategy<Value = RetryPolicy> {
        let durations =
            prop_oneof![1u64..100_000, Just(u64::MAX), any::<u64>().prop_map(|ms| ms.max(1)),];
        (durations, 0u32..=100, any::<bool>(), 0u32..=1_000_000).prop_map(
            |(unit_ms, max, from_first, jitter)| RetryPolicy {
                unit: Duration::from_millis(unit_ms),
                max,
                measured_from: if from_first {
                    MeasuredFrom::FirstAttempt
                } else {
                    MeasuredFrom::PreviousAttempt
                },
                jitter: Share::from_millionths(jitter),
            },
        )
    }

    proptest! {
        #[test]
        fn due_times_strictly_increase_and_end_at_the_last_slot(
            policy in any_policy(),
            random in any::<[u8; 10]>(),
            anchor_ms in any::<i64>(),
            latencies in proptest::collection::vec(0u64..200_000_000, 1..20),
        ) {
            let id = DeliveryId::new(START, random);
            let mut clock = ScheduleClock::starting_at(Timestamp::from_unix_ms(anchor_ms));
            let end = last_due_at(clock, &policy);
            let (mut spent, mut now, mut retries) = (0, clock.anchor_at, 0);
            let mut latencies = latencies.into_iter().cycle();
            while let Some(slot) = next_slot(clock, spent, now, id, &policy) {
                prop_assert!(slot.due_at > now && slot.due_at <= end);
                prop_assert!(slot.number > spent && slot.number <= policy.max);
                let latency = Duration::from_millis(latencies.next().unwrap());
                now = slot.due_at.saturating_add(latency);
                clock = ScheduleClock { previous_at: slot.due_at, ..slot.clock };
                spent = slot.number;
                retries += 1;
            }
            prop_assert!(retries <= policy.max);
        }

        #[test]
        fn without_jitter_a_slot_is_never_early(
            n in 1u32..=11, late_ms in 0u64..200_000_000, random in any::<[u8; 10]>(),
        ) {
            let policy = RetryPolicy::default();
            let clock = ScheduleClock::starting_at(START);
            if let Some(slot) =
                next_slot(clock, n - 1, after(late_ms), DeliveryId::new(START, random), &policy)
            {
                prop_assert_eq!(slot.due_at, START.saturating_add(offset(slot.number, &policy)));
            }
        }
    }
}
