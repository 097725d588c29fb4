//! Cases that were calculated by hand, and what holds in every case.

use proptest::prelude::*;

use super::*;
use crate::circuit::{Evidence, StateName};
use crate::policy::{MeasuredFrom, RecoveryMode};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn scenario(per_second: u64, outage: Duration) -> Scenario {
    Scenario {
        traffic: Traffic { deliveries: per_second, per: seconds(1) },
        outage,
        healthy_before: Duration::ZERO,
        enabled_after: None,
        answer_time: Duration::from_millis(100),
        in_flight_max: 64,
        samples: 200,
    }
}

fn changes(forecast: &Forecast) -> Vec<(u64, StateName)> {
    let ms = |at: Timestamp| u64::try_from(at.since(OUTAGE_AT).as_millis()).unwrap();
    forecast.transitions.iter().map(|change| (ms(change.at), change.to)).collect()
}

/// What was accepted is delivered, dead or waiting.
fn assert_balanced(forecast: &Forecast) {
    let Forecast { accepted, delivered, dead, waiting, .. } = *forecast;
    assert_eq!(accepted, delivered + dead + waiting, "{forecast:?}");
    assert_eq!(forecast.delays.values().sum::<u64>(), forecast.late);
}

/// One delivery a second to a new URL that is down for an hour. By 92 s there were 93 first
/// attempts, and the first retries of those of 0 s to 7 s (84.8 s later): the 101st failure. The
/// probes at 692, 1292, … 3092 s fail, the one at 3692 s succeeds.
#[test]
fn an_hour_at_one_a_second_as_calculated_by_hand() {
    let forecast = forecast(&scenario(1, HOUR), &Policy::default()).unwrap();
    assert_eq!(changes(&forecast), [(92_000, StateName::Open), (3_692_000, StateName::Closed)]);
    assert_eq!((forecast.failed_attempts, forecast.failed_probes), (106, 5));
    assert_eq!((forecast.peak_backlog, forecast.peak_at), (3_692, seconds(3_692)));
    assert_eq!(forecast.back_at, Some(seconds(3_692)));
    assert_eq!((forecast.dead, forecast.waiting, forecast.late), (0, 0, 3_692));
    // The delivery of 1063 s is 2629 s old by then, 0.2 s too old for its fifth slot: its sixth
    // is the last one of all.
    assert_eq!(forecast.recovered_at, Some(Duration::from_millis(1_063_000 + 5_342_400)));
    assert_eq!(forecast.delays.last_key_value().map(|(delay, _)| *delay), Some(5_342));
    assert_balanced(&forecast);
}

/// Fifty a second after a day without a fault: the 2,000th consecutive failure disables. First
/// attempts alone reach it after 1,999 / 50 s, before any retry.
#[test]
fn traffic_with_a_past_is_disabled_by_consecutive_failures() {
    let scenario = Scenario { healthy_before: HOUR * 24, ..scenario(50, HOUR * 6) };
    let forecast = forecast(&scenario, &Policy::default()).unwrap();
    assert_eq!(forecast.transitions[0].evidence, Evidence::ConsecutiveFailures);
    assert_eq!(changes(&forecast)[0], (39_980, StateName::Open));
    // A probe every ten minutes from there: 35 within six hours, and the 36th succeeds.
    assert_eq!((forecast.failed_attempts, forecast.failed_probes), (2_035, 35));
    assert_eq!(changes(&forecast)[1], (39_980 + 36 * 600_000, StateName::Closed));
    assert_eq!(forecast.peak_backlog, 36 * 600 * 50 + 1_999);
    assert_eq!(forecast.dead, 0);
    assert_balanced(&forecast);
}

/// Over 72 hours without a success, with over 2,000 consecutive failures: frozen to the
/// millisecond. Whatever was accepted more than 48 hours before the end is dead.
#[test]
fn a_destination_that_is_down_for_four_days_is_frozen_and_waits_for_somebody() {
    let long = Scenario { healthy_before: HOUR, ..scenario(10, HOUR * 96) };
    let alone = forecast(&long, &Policy::default()).unwrap();
    assert_eq!(changes(&alone)[1], (259_200_001, StateName::Frozen));
    assert_eq!((alone.delivered, alone.recovered_at, alone.back_at), (0, None, None));
    assert_balanced(&alone);

    let mended = Scenario { enabled_after: Some(HOUR), ..long };
    let mended = forecast(&mended, &Policy::default()).unwrap();
    assert_eq!(changes(&mended)[2], (97 * 3_600_000, StateName::Closed));
    // The eleventh slot lies at 173,585.6 s: who was accepted longer than that before the 97 h is
    // dead. The one whose slot falls on that very moment is not.
    let dead = (97 * 3_600_000 - 173_585_600) / 100;
    assert_eq!(mended.dead, dead);
    assert_eq!(mended.back_at, Some(HOUR * 97));
    assert_balanced(&mended);
}

#[test]
fn a_ramp_sends_what_waits_at_once() {
    let mut policy = Policy::default();
    let slots = forecast(&scenario(1, HOUR), &policy).unwrap();
    policy.recovery.mode = RecoveryMode::Drain;
    let drained = forecast(&scenario(1, HOUR), &policy).unwrap();
    assert_eq!(changes(&slots), changes(&drained));
    // Ten turns a second of 1, 2, 4, 8, 16, 32 and then 64: 630 in six seconds, the other 3,061
    // in five more.
    assert_eq!(drained.recovered_at, Some(seconds(3_692 + 11)));
    assert!(slots.recovered_at > drained.recovered_at);
    assert_balanced(&drained);
}

/// The schedule of 5 s, 5 min and 30 min: whoever is accepted more than 2,105 s before the end
/// of an hour is dead.
#[test]
fn a_fixed_schedule_attempts_everything_and_gives_up() {
    let schedule = FixedSchedule {
        delays: vec![seconds(5), MINUTE * 5, MINUTE * 30],
        off_after: Some(HOUR * 120),
    };
    let forecast = forecast_fixed(&scenario(1, HOUR), &schedule).unwrap();
    assert_eq!(forecast.dead, 3_600 - 2_105);
    assert_eq!(forecast.late, 2_105);
    // Each is attempted in each slot that falls into the outage.
    assert_eq!(forecast.failed_attempts, 3_600 + 3_595 + 3_295 + 1_495);
    assert_eq!(forecast.recovered_at, Some(seconds(3_294 + 2_105)));
    assert!(forecast.transitions.is_empty());
    assert_balanced(&forecast);

    let off = FixedSchedule { off_after: Some(MINUTE * 30), ..schedule };
    let forecast = forecast_fixed(&scenario(1, HOUR), &off).unwrap();
    assert_eq!((forecast.delivered, forecast.waiting), (0, 0));
    assert_eq!(forecast.dead, forecast.accepted);
    assert_balanced(&forecast);
}

#[test]
fn what_cannot_be_computed_is_refused() {
    let mut policy = Policy::default();
    policy.retry.jitter = Share::percent(10);
    let many = forecast(&scenario(1_000, HOUR), &policy);
    assert!(matches!(many, Err(ForecastError::TooManyWithJitter(_))), "{many:?}");
    let policy = Policy::default();
    assert_eq!(forecast(&scenario(0, HOUR), &policy), Err(ForecastError::Rate));
    assert_eq!(forecast(&scenario(2_000_000, HOUR), &policy), Err(ForecastError::Rate));
    assert_eq!(forecast(&scenario(1, Duration::ZERO), &policy), Err(ForecastError::Outage));
}

#[test]
fn forecast_that_takes_more_than_it_may_is_refused() {
    let weekend = Scenario { healthy_before: HOUR * 24, ..scenario(50, HOUR * 62) };
    let (policy, work) = (Policy::default(), Work::limited(200_000, 50_000));
    let limited = forecast_within(&weekend, &policy, work).unwrap();
    assert_eq!(limited, forecast(&weekend, &policy).unwrap());
    let bends: [fn(&mut Policy); 3] = [
        |policy| {
            policy.circuit.probe_interval = Duration::from_millis(1);
            policy.circuit.freeze_after = HOUR * 100_000;
            policy.circuit.freeze_consecutive = u64::MAX;
        },
        |policy| {
            policy.circuit.disable_consecutive = u64::MAX;
            policy.circuit.disable_grace = u64::MAX;
            policy.circuit.freeze_consecutive = u64::MAX;
        },
        |policy| policy.retry.jitter = Share::percent(10),
    ];
    for (n, bend) in bends.into_iter().enumerate() {
        let mut policy = policy.clone();
        bend(&mut policy);
        let refused = forecast_within(&scenario(3, HOUR * 24), &policy, work).err();
        assert_eq!(refused, Some(ForecastError::TooMuchWork), "{n}");
    }
    for preset in Preset::ALL {
        let huge = Scenario { samples: 1_000, ..scenario(1_000_000, HOUR * 24 * 7) };
        assert!(preset.forecast(&huge, work).is_ok_and(|forecast| forecast.accepted > 1 << 36));
    }
}

/// A policy that differs from the default one where it matters here.
fn policies() -> impl Strategy<Value = Policy> {
    (1..200u64, 0..12u32, 1..300u64, 1..900u64, any::<[bool; 2]>()).prop_map(
        |(consecutive, retries, grace, probe, [previous, drain])| {
            let mut policy = Policy::default();
            policy.circuit.disable_consecutive = consecutive;
            policy.circuit.disable_grace = grace;
            policy.circuit.probe_interval = seconds(probe);
            policy.circuit.freeze_over_consecutive = consecutive + 20;
            policy.circuit.freeze_after = HOUR * 3;
            policy.retry.max = retries;
            if previous {
                policy.retry.measured_from = MeasuredFrom::PreviousAttempt;
            }
            if drain {
                policy.recovery.mode = RecoveryMode::Drain;
            }
            policy
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Moving deliveries together changes nothing: with a jitter too small to move any slot (but
    /// large enough for every delivery to be followed by itself) the forecast is the same.
    #[test]
    fn cohorts_are_what_their_members_are(
        policy in policies(),
        outage in 60..20_000u64,
        per_minute in 1..120u64,
        healthy in 0..2_000u64,
        enabled in proptest::option::of(0..5_000u64),
        samples in 1..700u32,
    ) {
        let scenario = Scenario {
            traffic: Traffic { deliveries: per_minute, per: MINUTE },
            healthy_before: seconds(healthy),
            enabled_after: enabled.map(seconds),
            samples,
            ..scenario(1, seconds(outage))
        };
        let together = forecast(&scenario, &policy).unwrap();
        assert_balanced(&together);
        let mut alone = policy.clone();
        alone.retry.jitter = Share::from_millionths(1);
        // A millionth of the longest gap is less than a millisecond only for short schedules.
        if retry_gap(&policy) < 1_000_000 {
            prop_assert_eq!(&together, &forecast(&scenario, &alone).unwrap());
        }
        let peak = together.samples.iter().map(|sample| sample.backlog).max();
        prop_assert!(peak <= Some(together.peak_backlog));
        prop_assert!(together.samples.is_sorted_by_key(|sample| sample.at));
    }
}

/// The longest gap between two slots, in milliseconds.
fn retry_gap(policy: &Policy) -> u128 {
    crate::retry::offset(policy.retry.max, &policy.retry).as_millis()
}
