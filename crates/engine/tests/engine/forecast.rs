//! The forecast of `postrider simulate` is compared with the engine, delivery by delivery, for the
//! same outages.

use std::collections::BTreeMap;
use std::time::Duration;

use postrider_domain::delivery::{DeliveryState, StateName};
use postrider_domain::forecast::{self, Forecast, Scenario, Traffic};
use postrider_domain::policy::{MeasuredFrom, Policy};
use postrider_engine::Options;

use crate::world::{FAIL, HOUR, MINUTE, OK, START, World};

const URL: &str = "https://hooks.example.com/in";

/// Sends deliveries at intervals to a URL that is down at first, and compares with the forecast.
async fn check(policy: Policy, every: Duration, outage: Duration) -> Forecast {
    let scenario = Scenario {
        traffic: Traffic { deliveries: 1, per: every },
        outage,
        healthy_before: Duration::ZERO,
        enabled_after: None,
        answer_time: Duration::ZERO,
        in_flight_max: 64,
        samples: 100,
    };
    let expected = forecast::forecast(&scenario, &policy).unwrap();

    let mut world = World::with(policy, Options::default()).await;
    world.script.set(URL, FAIL);
    world.subscribe(URL).await;
    let end = START.saturating_add(outage);
    let last = START.saturating_add(expected.ends_at);
    let mut at = START;
    while at < last {
        if world.now() < end && at >= end {
            world.pass_until(end).await;
            world.script.set(URL, OK);
        }
        world.pass_until(at).await;
        world.send().await;
        at = at.saturating_add(every);
    }
    world.pass_until(last).await;
    world.check_ledger().await;

    let sent = world.script.sent_to(URL);
    let failed = sent.iter().filter(|sent| sent.at < end).count();
    assert_eq!(u64::try_from(failed).unwrap(), expected.failed_attempts);
    let back = sent.iter().map(|sent| sent.at).find(|at| *at >= end);
    assert_eq!(back.map(|at| at.since(START)), expected.back_at);
    let dead = world.count(StateName::Dead).await;
    assert_eq!(u64::try_from(dead).unwrap(), expected.dead);
    let mut delays: BTreeMap<u64, u64> = BTreeMap::new();
    for delivery in world.deliveries().await {
        if let DeliveryState::Delivered { at } = delivery.state
            && at > delivery.created_at
        {
            *delays.entry(at.since(delivery.created_at).as_secs()).or_default() += 1;
        }
    }
    assert_eq!(delays, expected.delays, "how late each delivery was");
    expected
}

#[tokio::test(start_paused = true)]
async fn the_engine_does_what_the_forecast_says() {
    // A new URL: disabled by the share of failures, probed, enabled.
    let forecast = check(Policy::default(), Duration::from_secs(31), HOUR * 3).await;
    assert!(forecast.transitions.len() == 2 && forecast.dead == 0 && forecast.late > 300);

    // Never disabled: too few attempts.
    let forecast = check(Policy::default(), MINUTE * 10, HOUR).await;
    assert!(forecast.transitions.is_empty() && forecast.late == 6);

    // A short schedule and a longer outage: most deliveries die, many without an attempt.
    let mut policy = Policy::default();
    policy.retry.max = 6;
    policy.circuit.disable_consecutive = 30;
    let forecast = check(policy.clone(), Duration::from_secs(137), HOUR * 9).await;
    assert!(forecast.dead > 150 && forecast.dead_never_attempted > 100, "{forecast:?}");

    // The other interpretation of the schedule.
    policy.retry.measured_from = MeasuredFrom::PreviousAttempt;
    policy.retry.max = 8;
    let forecast = check(policy.clone(), Duration::from_secs(141), HOUR * 4).await;
    assert!(forecast.late > 90);

    // Frozen: nothing is delivered any more.
    policy.circuit.freeze_over_consecutive = 35;
    policy.circuit.freeze_after = HOUR * 2;
    let forecast = check(policy, Duration::from_secs(143), HOUR * 4).await;
    assert!(forecast.back_at.is_none() && forecast.delivered == 0, "{forecast:?}");
}
