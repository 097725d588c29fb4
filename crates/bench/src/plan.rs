//! The scenarios, and what each of them sends.
//!
//! A scenario is data. The code that runs it adds nothing, so two runs of a scenario do the same.

use serde::Serialize;

/// One measurement.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Scenario {
    /// The name in tables.
    pub(crate) name: String,
    /// Events per request.
    pub(crate) batch: u64,
    /// Subscriptions that get each event.
    pub(crate) fan_out: u64,
    /// Destinations over which the events are spread, for each of these subscriptions.
    pub(crate) destinations: u64,
    /// The size of an event's `data`.
    pub(crate) payload_bytes: u64,
    /// The rate of events.
    pub(crate) pace: Pace,
}

/// The rate of events.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Pace {
    /// Events are sent as fast as they are accepted.
    Unlimited,
    /// This many events per second.
    PerSecond(f64),
    /// Half of the rate that the first unlimited scenario of this run reached.
    HalfOfMaximum,
}

/// The extent of a measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Extent {
    /// How long events are sent in each scenario.
    pub(crate) seconds: f64,
    /// How long events are sent before the measurement.
    pub(crate) warm_up_seconds: f64,
    /// How long the bare client posts, before and after each scenario.
    pub(crate) ceiling_seconds: f64,
    /// The number of destinations in scenarios with many.
    pub(crate) many: u64,
}

impl Extent {
    pub(crate) const FULL: Extent =
        Extent { seconds: 8.0, warm_up_seconds: 2.0, ceiling_seconds: 2.0, many: 1_000 };
    pub(crate) const QUICK: Extent =
        Extent { seconds: 0.5, warm_up_seconds: 0.2, ceiling_seconds: 0.3, many: 50 };
}

const SMALL: u64 = 500;
const LARGE: u64 = 20_000;
const BATCH: u64 = 100;

/// All scenarios, in order.
pub(crate) fn scenarios(extent: Extent) -> Vec<Scenario> {
    let plain = |name: &str, batch, pace| Scenario {
        name: name.to_owned(),
        batch,
        fan_out: 1,
        destinations: 1,
        payload_bytes: SMALL,
        pace,
    };
    let unlimited = |name: &str, batch| plain(name, batch, Pace::Unlimited);
    let many = extent.many;
    vec![
        unlimited("single", 1),
        unlimited("batch", BATCH),
        Scenario { fan_out: 5, ..unlimited("single, fan-out 5", 1) },
        Scenario { fan_out: 5, ..unlimited("batch, fan-out 5", BATCH) },
        Scenario { destinations: many, ..unlimited(&format!("single, {many} destinations"), 1) },
        Scenario { destinations: many, ..unlimited(&format!("batch, {many} destinations"), BATCH) },
        Scenario { payload_bytes: LARGE, ..unlimited("single, 20 KB", 1) },
        Scenario { payload_bytes: LARGE, ..unlimited("batch, 20 KB", BATCH) },
        plain("100/s", 1, Pace::PerSecond(100.0)),
        plain("half of maximum", 1, Pace::HalfOfMaximum),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_the_maximum_comes_before_its_half() {
        let all = scenarios(Extent::FULL);
        for (place, one) in all.iter().enumerate() {
            assert!(all[..place].iter().all(|other| other.name != one.name), "{}", one.name);
        }
        let half = all.iter().position(|one| one.pace == Pace::HalfOfMaximum).unwrap();
        let maximum = all.iter().position(|one| one.pace == Pace::Unlimited).unwrap();
        assert!(maximum < half);
        assert_eq!(
            (all[half].batch, all[half].fan_out),
            (all[maximum].batch, all[maximum].fan_out)
        );
    }
}
