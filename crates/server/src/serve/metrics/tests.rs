//! Tests of the metrics and of the page.

use postrider_domain::attempt::{Answer, BodyEnd, Failure, Phase};
use postrider_domain::ids::{Shard, TenantId};
use postrider_store::Epoch;

use super::*;

#[test]
fn endings_have_few_classes() {
    let answered = |status| {
        let body_end = BodyEnd::Whole;
        Ending::Answered(Answer { status, retry_after: None, body: "".into(), body_end })
    };
    let failed = |class| Ending::Failed(Failure { class, detail: String::new() });
    for (ending, expected) in [
        (answered(204), "delivered"),
        (answered(301), "status_3xx"),
        (answered(503), "status_5xx"),
        (failed(FailureClass::Timeout(Phase::Connect)), "timeout"),
        (failed(FailureClass::Refused), "refused"),
    ] {
        assert_eq!(class(&ending), expected);
    }
}

#[test]
fn a_histogram_is_cumulative() {
    let metrics = Metrics::default();
    for us in [100, 400, 400, 20_000_000] {
        metrics.settled(Duration::from_micros(us), std::iter::empty());
    }
    let page = metrics.render();
    for line in [
        "postrider_settlement_seconds_bucket{le=\"0.000250\"} 1",
        "postrider_settlement_seconds_bucket{le=\"0.000500\"} 3",
        "postrider_settlement_seconds_bucket{le=\"10.000000\"} 3",
        "postrider_settlement_seconds_bucket{le=\"+Inf\"} 4",
        "postrider_settlement_seconds_sum 20.000900",
        "postrider_ledger_balanced 1",
    ] {
        assert!(page.lines().any(|found| found == line), "{line} is not in\n{page}");
    }
}

fn leases(shards: std::ops::RangeInclusive<u8>) -> ShardLeases {
    ShardLeases { shards: shards.map(|shard| (Shard(shard), Epoch(1))).collect() }
}

/// The counts of enabled, disabled and frozen destinations on the page.
fn counted(metrics: &Metrics) -> [u64; 3] {
    let page = metrics.render();
    DestinationState::ALL.map(|state| {
        let line = format!("postrider_circuits{{state=\"{}\"}} ", state.as_str());
        page.lines().find_map(|found| found.strip_prefix(&line)).unwrap().parse().unwrap()
    })
}

fn destinations() -> Vec<DestinationId> {
    let tenant = TenantId::default_tenant();
    let url = |n| format!("https://hooks.example.com/{n}");
    (0..100).map(|n| DestinationId::of(&tenant, &url(n))).collect()
}

fn standing(destination: DestinationId, state: DestinationState) -> Standing {
    Standing { destination, tenant: TenantId::default_tenant(), state, failures: 1 }
}

#[test]
fn destinations_of_a_shard_that_moved_are_counted_by_its_new_owner_alone() {
    let all = destinations();
    let (old, new) = (Metrics::default(), Metrics::default());
    for destination in &all {
        old.destination_is(standing(*destination, DestinationState::Disabled));
    }
    old.count_destinations(all.iter().copied(), &leases(0..=255));
    assert_eq!(counted(&old), [0, 100, 0]);

    // Half of the shards move. Their new owner reads the destinations from the store.
    let moved = leases(128..=255);
    for destination in all.iter().filter(|destination| moved.has(destination.shard())) {
        new.destination_is(standing(*destination, DestinationState::Disabled));
    }
    old.count_destinations(all.iter().copied(), &leases(0..=127));
    new.count_destinations(all.iter().copied(), &moved);
    let (left, gained) = (counted(&old)[1], counted(&new)[1]);
    assert_eq!(left + gained, 100, "{left} and {gained}");
    assert!(left > 0 && gained > 0, "{left} and {gained}");
    assert_eq!(old.state().not_enabled.len() as u64, left, "what moved is forgotten");
}

#[test]
fn a_destination_that_no_subscription_names_is_not_counted() {
    let all = destinations();
    let metrics = Metrics::default();
    metrics.destination_is(standing(all[0], DestinationState::Frozen));
    metrics.count_destinations(all.iter().copied(), &leases(0..=255));
    assert_eq!(counted(&metrics), [99, 0, 1]);
    metrics.count_destinations(all[2..].iter().copied(), &leases(0..=255));
    assert_eq!(counted(&metrics), [98, 0, 0]);
    metrics.count_destinations(all.iter().copied(), &leases(0..=255));
    assert_eq!(counted(&metrics), [99, 0, 1], "it is still frozen when it is named again");
    metrics.destination_is(standing(all[0], DestinationState::Enabled));
    assert!(metrics.state().not_enabled.is_empty());
}

#[test]
fn every_line_is_of_the_text_format() {
    let metrics = Metrics::default();
    metrics.accepted(1, 2, Duration::from_millis(1));
    metrics.transition(DestinationState::Enabled, DestinationState::Disabled);
    metrics.store_failed("accept");
    for line in metrics.render().lines().filter(|line| !line.starts_with("# ")) {
        let (name, value) = line.rsplit_once(' ').unwrap();
        let is_ours = ["postrider_", "process_"].iter().any(|first| name.starts_with(first));
        assert!(is_ours, "{line}");
        assert!(value.parse::<f64>().is_ok(), "{line}");
    }
}

#[test]
fn deliveries_are_timed_around_the_deadline_and_deaths_counted() {
    let metrics = Metrics::default();
    let delivered = [10, 4_500, 5_500, 90_000_000].map(Duration::from_millis).to_vec();
    metrics.ended(&Endings {
        delivered,
        dead: vec![DeadReason::Exhausted, DeadReason::Exhausted],
        ..Endings::default()
    });
    let page = metrics.render();
    for line in [
        "postrider_delivery_seconds_bucket{le=\"4.000000\"} 1",
        "postrider_delivery_seconds_bucket{le=\"5.000000\"} 2",
        "postrider_delivery_seconds_bucket{le=\"6.000000\"} 3",
        "postrider_delivery_seconds_bucket{le=\"+Inf\"} 4",
        "postrider_deliveries_dead_total{reason=\"exhausted\"} 2",
        "postrider_deliveries_dead_total{reason=\"not_admitted\"} 0",
    ] {
        assert!(page.lines().any(|found| found == line), "{line} is not in\n{page}");
    }
}

#[test]
fn only_the_ten_worst_destinations_are_shown() {
    let (metrics, all) = (Metrics::default(), destinations());
    for (n, destination) in (0..).zip(&all) {
        metrics.destination_is(Standing {
            failures: n,
            ..standing(*destination, DestinationState::Disabled)
        });
    }
    metrics.count_destinations(all.iter().copied(), &leases(0..=255));
    let page = metrics.render();
    let shown: Vec<&str> = page
        .lines()
        .filter(|line| line.starts_with("postrider_worst_destination_failures{"))
        .collect();
    assert_eq!(shown.len(), 10, "{shown:?}");
    assert!(shown[0].ends_with(" 99") && shown[9].ends_with(" 90"), "{shown:?}");
}
