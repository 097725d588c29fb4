//! The contract on the circuit of a destination.

use postrider_domain::attempt::{OwnFaultKind, Turn};
use postrider_domain::circuit::{CircuitState, Evidence, StateName as CircuitName, Suspension};
use postrider_domain::delivery::{DeliveryState, StateName};
use postrider_domain::ids::DestinationId;
use postrider_domain::policy::{CircuitPolicy, Policy, RecoveryMode, RecoveryPolicy, RetryPolicy};
use postrider_engine::{EngineEvent, Options};
use postrider_store::{History, PageRequest};

use crate::world::{FAIL, HOUR, MINUTE, Mood, OK, TEN_MINUTES, World, event, ms, slot, tenant};

const URL: &str = "https://hooks.example.com/in";

fn url(n: usize) -> String {
    format!("https://hooks.example.com/{n}")
}

/// A world whose destination was just disabled.
async fn disabled(policy: Policy) -> World {
    let mut world = World::with(policy, Options::default()).await;
    world.subscribe(URL).await;
    world.fail(URL, 101).await;
    assert_eq!(world.state(URL).await, "disabled");
    world.script.forget();
    world
}

fn quick_to_freeze() -> Policy {
    let circuit = CircuitPolicy {
        disable_consecutive: 5,
        freeze_over_consecutive: 5,
        ..CircuitPolicy::default()
    };
    Policy { circuit, ..Policy::default() }
}

#[tokio::test(start_paused = true)]
async fn the_hundredth_failure_does_not_disable_and_the_next_one_does() {
    let mut world = World::new().await;
    world.subscribe(URL).await;
    world.fail(URL, 100).await;
    assert_eq!(world.state(URL).await, "enabled");
    world.send().await;
    assert_eq!(world.state(URL).await, "disabled");
    let destination = world.destination(URL).await;
    assert_eq!(destination.evidence(), Some(&Evidence::FailureShare));
    assert_eq!(destination.circuit.counters.failures, 101);
}

#[tokio::test(start_paused = true)]
async fn two_thousand_consecutive_failures_disable_and_one_tenants_never_anothers() {
    let circuit = CircuitPolicy { disable_grace: u64::MAX, ..CircuitPolicy::default() };
    let mut world = World::with(Policy { circuit, ..Policy::default() }, Options::default()).await;
    world.subscribe(URL).await;
    let other = "other".parse().unwrap();
    let record = world.wish_of(&other, URL);
    world.put(record).await;
    world.fail(URL, 1999).await;
    assert_eq!(world.state(URL).await, "enabled");
    world.send().await;
    assert_eq!(world.state(URL).await, "disabled");
    let id = DestinationId::of(&other, URL);
    let others = world.engine.destination(&other, id).await.unwrap().unwrap();
    assert_eq!(others.destination.state().as_str(), "enabled");
    assert_eq!(others.destination.circuit.counters.attempts, 0);
    assert_eq!(world.engine.destination(&tenant(), id).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_probe_goes_ten_minutes_after_disabling_to_the_millisecond_and_again() {
    let world = disabled(Policy::default()).await;
    let disabled_at = world.now();
    world.pass(TEN_MINUTES - ms(1)).await;
    assert_eq!(world.script.sent().len(), 0);
    world.pass(ms(1)).await;
    assert_eq!(world.script.sent().len(), 1);
    world.pass(TEN_MINUTES * 5).await;
    let sent = world.script.sent();
    let offsets: Vec<_> = sent.iter().map(|one| one.at.since(disabled_at)).collect();
    assert_eq!(offsets, (1..=6).map(|n| TEN_MINUTES * n).collect::<Vec<_>>());
    let attempts = world.attempts(sent[0].delivery).await;
    assert_eq!(attempts.last().unwrap().turn, Turn::Probe, "it stands in the delivery's log");
}

#[tokio::test(start_paused = true)]
async fn the_ten_minutes_run_from_when_the_probe_failed() {
    let world = disabled(Policy::default()).await;
    world.script.set(URL, Mood::Hangs);
    let disabled_at = world.now();
    world.pass(TEN_MINUTES * 4).await;
    let offsets: Vec<_> = world.script.sent().iter().map(|one| one.at.since(disabled_at)).collect();
    let hang = ms(5_000);
    assert_eq!(offsets, [TEN_MINUTES, TEN_MINUTES * 2 + hang, TEN_MINUTES * 3 + hang * 2]);
}

#[tokio::test(start_paused = true)]
async fn one_probe_in_flight_at_a_time() {
    let world = disabled(Policy::default()).await;
    world.script.set(URL, Mood::Hangs);
    world.pass(TEN_MINUTES).await;
    assert_eq!(world.script.in_flight(), 1);
    world.send_many(50).await;
    assert_eq!(world.script.in_flight(), 1, "whatever arrives meanwhile waits");
    assert!(world.script.sent().iter().all(|one| one.together == 1));
    assert!(matches!(world.destination(URL).await.circuit.state, CircuitState::HalfOpen { .. }));
}

#[tokio::test(start_paused = true)]
async fn probes_rotate_never_attempted_first_then_the_one_furthest_back() {
    let mut world = World::new().await;
    world.subscribe(URL).await;
    world.script.set(URL, FAIL);
    let mut in_order = Vec::new();
    for _ in 0..101 {
        let ingested = world.send().await;
        in_order.push(world.delivery(&ingested).await.id);
        world.pass(ms(10)).await;
    }
    assert_eq!(world.state(URL).await, "disabled");
    world.script.forget();
    let fresh = world.send().await;
    let fresh = world.delivery(&fresh).await.id;
    world.pass(TEN_MINUTES * 5).await;
    let probed: Vec<_> = world.script.sent().iter().map(|one| one.delivery).collect();
    assert_eq!(probed, [fresh, in_order[0], in_order[1], in_order[2], in_order[3]]);
}

#[tokio::test(start_paused = true)]
async fn a_probe_takes_no_retry_slot_and_does_not_move_the_clock() {
    let mut world = World::new().await;
    world.subscribe(URL).await;
    world.script.set(URL, FAIL);
    let first = world.send().await;
    let first_at = world.now();
    world.pass(ms(1)).await;
    world.fail(URL, 100).await;
    assert_eq!(world.state(URL).await, "disabled");
    world.pass(ms(593_600 + 100)).await;
    let delivery = world.delivery(&first).await;
    assert_eq!((delivery.attempts, slot(&delivery)), (1, 4));
    let before = delivery.next_attempt_at();
    world.script.forget();
    world.pass(TEN_MINUTES - ms(593_600 + 100)).await;
    assert_eq!(world.script.sent().len(), 1);
    assert_eq!(world.script.sent()[0].delivery, delivery.id);
    let probed = world.delivery(&first).await;
    assert_eq!((probed.attempts, slot(&probed)), (2, 4));
    assert_eq!(probed.next_attempt_at(), before);
    assert_eq!(before, Some(first_at.saturating_add(ms(1_272_000))));
}

#[tokio::test(start_paused = true)]
async fn if_no_delivery_waits_the_next_one_that_arrives_is_the_probe() {
    let retry = RetryPolicy { max: 1, ..RetryPolicy::default() };
    let world = disabled(Policy { retry, ..Policy::default() }).await;
    world.pass(MINUTE * 5).await;
    assert_eq!(world.count(StateName::Dead).await, 101, "nothing waits any more");
    world.pass(MINUTE * 10).await;
    assert_eq!(world.script.sent().len(), 0);
    world.script.set(URL, OK);
    world.send().await;
    assert_eq!(world.script.sent().len(), 1);
    assert_eq!(world.state(URL).await, "enabled");
    assert_eq!(world.count(StateName::Delivered).await, 1);
}

#[tokio::test(start_paused = true)]
async fn delivery_in_flight_at_the_end_of_the_probe_interval_is_the_probe_when_it_waits() {
    let retry = RetryPolicy { max: 1, unit: HOUR, ..RetryPolicy::default() };
    let mut world = World::with(Policy { retry, ..Policy::default() }, Options::default()).await;
    world.subscribe(URL).await;
    world.script.first(URL, [Mood::Gated(500)]);
    let straggler = world.send().await;
    world.fail(URL, 102).await;
    assert_eq!(world.state(URL).await, "disabled");
    for delivery in world.deliveries().await {
        if delivery.event != straggler.id {
            world.engine.cancel(&tenant(), delivery.id).await.unwrap();
        }
    }
    world.script.forget();
    world.pass(TEN_MINUTES + MINUTE).await;
    assert_eq!(world.script.sent().len(), 0, "nothing waits: all that is owed is in flight");
    world.script.set(URL, OK);
    world.script.open_gate();
    world.run_ready_tasks().await;
    assert_eq!(world.script.sent().len(), 1, "it failed, waits, and is taken at once");
    assert_eq!(world.state(URL).await, "enabled");
}

#[tokio::test(start_paused = true)]
async fn a_probe_is_durable_before_it_is_sent_and_stays_single_through_a_crash() {
    let mut world = disabled(Policy::default()).await;
    world.script.set(URL, Mood::Hangs);
    world.pass(TEN_MINUTES + ms(1_000)).await;
    assert_eq!(world.script.sent().len(), 1);
    let probed_at = world.script.sent()[0].at;
    world.crash().await;
    world.pass(MINUTE * 9).await;
    assert_eq!(world.script.sent().len(), 1, "its ten minutes run from when it was sent");
    world.pass_until(probed_at.saturating_add(TEN_MINUTES)).await;
    assert_eq!(world.script.sent().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_probes_success_enables_resets_and_lets_the_rest_follow_its_slots() {
    let world = disabled(Policy::default()).await;
    world.script.set(URL, OK);
    world.pass(TEN_MINUTES).await;
    assert_eq!(world.state(URL).await, "enabled");
    let circuit = world.destination(URL).await.circuit;
    assert_eq!(circuit.counters, postrider_domain::circuit::Counters::default());
    assert_eq!(world.script.sent().len(), 1, "the rest waits for its slots");
    let slots: Vec<_> = world
        .deliveries()
        .await
        .iter()
        .filter(|one| matches!(one.state, DeliveryState::Waiting(_)))
        .map(slot)
        .collect();
    assert_eq!(slots, vec![4; 100]);
    world.pass(ms(1_272_000) - TEN_MINUTES).await;
    assert_eq!(world.count(StateName::Delivered).await, 101);
}

#[tokio::test(start_paused = true)]
async fn the_success_of_an_attempt_still_in_flight_enables_too() {
    let mut world = World::new().await;
    world.subscribe(URL).await;
    world.script.first(URL, [Mood::Gated(200)]);
    world.send().await;
    world.fail(URL, 102).await;
    assert_eq!(world.state(URL).await, "disabled");
    world.script.open_gate();
    world.run_ready_tasks().await;
    assert_eq!(world.state(URL).await, "enabled");
    let transitions = page_of_transitions(&world).await;
    assert_eq!(transitions[0].evidence, Evidence::Success { by_probe: false });
    assert_eq!(transitions[1].evidence, Evidence::FailureShare);
}

async fn page_of_transitions(world: &World) -> Vec<postrider_domain::circuit::Transition> {
    let id = DestinationId::of(&tenant(), URL);
    let page = PageRequest { limit: 100, cursor: None };
    world.store.transitions(&tenant(), id, &page).await.unwrap().items
}

#[tokio::test(start_paused = true)]
async fn every_transition_stands_in_the_timeline_with_its_evidence() {
    let world = disabled(Policy::default()).await;
    world.pass(TEN_MINUTES).await;
    world.script.set(URL, OK);
    world.pass(TEN_MINUTES).await;
    let timeline: Vec<_> = page_of_transitions(&world)
        .await
        .into_iter()
        .rev()
        .map(|transition| (transition.from, transition.to))
        .collect();
    use CircuitName::{Closed, HalfOpen, Open};
    assert_eq!(
        timeline,
        [(Closed, Open), (Open, HalfOpen), (HalfOpen, Open), (Open, HalfOpen), (HalfOpen, Closed)]
    );
}

#[tokio::test(start_paused = true)]
async fn a_destination_freezes_on_time_also_where_nothing_is_sent() {
    let mut world = World::with(quick_to_freeze(), Options::default()).await;
    world.subscribe(URL).await;
    let created = world.destination(URL).await.created_at;
    world.fail(URL, 6).await;
    // Six consecutive failures, then nothing is sent: all waiting deliveries are cancelled.
    for delivery in world.deliveries().await {
        world.engine.cancel(&tenant(), delivery.id).await.unwrap();
    }
    world.script.forget();
    world.pass_until(created.saturating_add(HOUR * 72)).await;
    assert_eq!(world.state(URL).await, "disabled");
    world.pass(ms(1)).await;
    assert_eq!(world.state(URL).await, "frozen");
    assert_eq!(world.script.sent().len(), 0);
    let evidence = world.destination(URL).await.evidence().cloned();
    assert_eq!(evidence, Some(Evidence::NoSuccess { since: created }));
}

#[tokio::test(start_paused = true)]
async fn fifty_thousand_consecutive_failures_freeze_in_any_time() {
    let circuit = CircuitPolicy {
        disable_grace: u64::MAX,
        disable_consecutive: u64::MAX,
        freeze_over_consecutive: u64::MAX,
        freeze_consecutive: 500,
        ..CircuitPolicy::default()
    };
    let mut world = World::with(Policy { circuit, ..Policy::default() }, Options::default()).await;
    world.subscribe(URL).await;
    world.fail(URL, 499).await;
    assert_eq!(world.state(URL).await, "enabled");
    world.send().await;
    assert_eq!(world.state(URL).await, "frozen");
}

#[tokio::test(start_paused = true)]
async fn a_frozen_destination_is_never_attempted_and_only_enable_ends_it() {
    let mut world = World::new().await;
    world.subscribe(URL).await;
    let id = DestinationId::of(&tenant(), URL);
    world.script.first(URL, [Mood::Gated(200)]);
    let late = world.send().await;
    world.engine.freeze(&tenant(), id, Some("by hand".to_owned())).await.unwrap();
    let waiting = world.send().await;
    world.pass(HOUR * 5).await;
    assert_eq!(world.script.sent().len(), 1, "not even a probe");
    // A late success is recorded and its delivery is delivered, but the destination stays frozen.
    world.script.open_gate();
    world.run_ready_tasks().await;
    assert_eq!(world.delivery(&late).await.state.name(), StateName::Delivered);
    assert_eq!(world.state(URL).await, "frozen");
    assert!(world.destination(URL).await.circuit.ever_succeeded);
    let next = world.delivery(&waiting).await.next_attempt_at().unwrap();
    world.engine.enable(&tenant(), id, None).await.unwrap();
    assert_eq!(world.state(URL).await, "enabled");
    world.pass_until(next).await;
    assert_eq!(world.delivery(&waiting).await.state.name(), StateName::Delivered);
    assert_eq!(world.script.sent()[1].at, next, "it followed its slot");
    world.check_ledger().await;
}

#[tokio::test(start_paused = true)]
async fn deliveries_of_a_frozen_destination_are_accepted_and_their_48_hours_run() {
    let mut world = World::new().await;
    world.subscribe(URL).await;
    let id = DestinationId::of(&tenant(), URL);
    world.engine.freeze(&tenant(), id, None).await.unwrap();
    let ingested = world.send().await;
    world.pass(ms(173_585_600 - 1)).await;
    assert_eq!(world.count(StateName::Waiting).await, 1);
    world.pass(ms(1)).await;
    assert_eq!(world.delivery(&ingested).await.state.name(), StateName::Dead);
    assert_eq!(world.script.sent().len(), 0);
}

fn draining() -> Policy {
    let recovery = RecoveryPolicy { mode: RecoveryMode::Drain, ..RecoveryPolicy::default() };
    Policy { recovery, ..Policy::default() }
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_a_crash_interrupted_begins_anew() {
    let mut world = disabled(draining()).await;
    world.script.set(URL, Mood::Answers(200, ms(900)));
    world.pass(TEN_MINUTES + ms(2_000)).await;
    assert!(world.destination(URL).await.circuit.draining);
    assert!(world.count(StateName::Delivered).await < 10);
    world.crash().await;
    world.pass(ms(20_000)).await;
    assert_eq!(world.count(StateName::Waiting).await, 0, "long before the slots");
    assert!(!world.destination(URL).await.circuit.draining, "and it is over");
}

#[tokio::test(start_paused = true)]
async fn drain_sends_at_once_oldest_first_by_a_ramp() {
    let world = disabled(draining()).await;
    world.script.set(URL, Mood::Answers(200, ms(900)));
    world.pass(TEN_MINUTES + ms(900)).await;
    assert_eq!(world.state(URL).await, "enabled");
    let recovered_at = world.now();
    world.pass(ms(20_000)).await;
    let sent = world.script.sent().split_off(1);
    assert_eq!(sent.len(), 100, "all of it, long before the slots");
    let in_second = |n: u64| {
        let from = recovered_at.saturating_add(ms(1_000 * n));
        let to = recovered_at.saturating_add(ms(1_000 * (n + 1)));
        let within = sent.iter().filter(|one| from <= one.at && one.at < to);
        within.map(|one| one.together).max().unwrap_or(0)
    };
    assert_eq!([in_second(0), in_second(1), in_second(2), in_second(3)], [1, 2, 4, 8]);
    let order: Vec<_> = sent.iter().map(|one| one.delivery).collect();
    let mut by_age = world.deliveries().await;
    by_age.sort_by_key(|one| (one.created_at, one.id));
    let by_age: Vec<_> = by_age.iter().map(|d| d.id).filter(|id| order.contains(id)).collect();
    assert_eq!(order, by_age, "oldest first");
    assert_eq!(world.count(StateName::Delivered).await, 101);
    let gauges = world.engine.gauges().await.unwrap();
    assert_eq!(
        (gauges.resident, gauges.alarms),
        (0, 1),
        "only the next read is planned: {gauges:?}"
    );
    world.check_ledger().await;
}

#[tokio::test(start_paused = true)]
async fn a_failure_stops_the_ramp_and_the_rest_follows_its_slots() {
    let world = disabled(draining()).await;
    world.script.first(URL, [OK, OK, OK, FAIL]);
    world.pass(TEN_MINUTES).await;
    assert_eq!(world.state(URL).await, "enabled");
    world.pass(ms(60_000)).await;
    assert_eq!(world.script.sent().len(), 4, "the probe, two of the ramp, and the failure");
    world.script.set(URL, OK);
    world.pass(ms(2_628_800)).await;
    assert_eq!(world.count(StateName::Delivered).await, 101);
    world.check_ledger().await;
}

#[tokio::test(start_paused = true)]
async fn enabling_by_hand_drains_too() {
    let mut world = World::with(draining(), Options::default()).await;
    world.subscribe(URL).await;
    let id = DestinationId::of(&tenant(), URL);
    world.engine.freeze(&tenant(), id, None).await.unwrap();
    world.send_many(10).await;
    world.engine.enable(&tenant(), id, None).await.unwrap();
    world.pass(ms(10_000)).await;
    assert_eq!(world.count(StateName::Delivered).await, 10);
}

#[tokio::test(start_paused = true)]
async fn a_ramp_that_finds_only_what_is_on_its_way_looks_again() {
    let options = Options { page: 8, ..Options::default() };
    let mut world = World::with(draining(), options).await;
    world.subscribe(URL).await;
    let id = DestinationId::of(&tenant(), URL);
    world.engine.freeze(&tenant(), id, None).await.unwrap();
    // The first hundred are due just after the ramp has begun, the others 40 s later.
    world.send_many(100).await;
    world.pass(ms(40_000)).await;
    world.send_many(100).await;
    world.script.set(URL, Mood::Answers(200, ms(1_500)));
    world.pass(ms(44_790)).await;
    world.engine.enable(&tenant(), id, None).await.unwrap();
    world.pass(ms(30_000)).await;
    assert_eq!(world.count(StateName::Delivered).await, 200, "long before the later slots");
    world.check_ledger().await;
}

#[tokio::test(start_paused = true)]
async fn faults_of_our_own_never_count_against_a_destination() {
    let mut world = World::new().await;
    world.subscribe(URL).await;
    for kind in [
        OwnFaultKind::Resolver,
        OwnFaultKind::Proxy,
        OwnFaultKind::Resources,
        OwnFaultKind::Internal,
    ] {
        world.script.first(URL, vec![Mood::OurFault(kind); 100]);
        world.send_many(100).await;
        world.pass(ms(1)).await;
    }
    let circuit = world.destination(URL).await.circuit;
    assert_eq!(circuit.counters.attempts, 0);
    assert_eq!(world.state(URL).await, "enabled");
    assert_eq!(world.count(StateName::Waiting).await, 400, "each has spent its first attempt");
}

#[tokio::test(start_paused = true)]
async fn when_most_of_twenty_fail_at_once_transitions_are_suspended_and_the_operator_alerted() {
    let options = Options { live_events_max: 100_000, ..Options::default() };
    let mut world = World::with(Policy::default(), options).await;
    for n in 0..21 {
        world.subscribe(&url(n)).await;
    }
    world.send().await;
    world.pass(MINUTE * 3).await;
    let mut live = world.engine.subscribe();
    for n in 0..21 {
        world.script.set(&url(n), FAIL);
    }
    world.send_many(150).await;
    world.pass(ms(10)).await;
    for n in 0..21 {
        assert_eq!(world.state(&url(n)).await, "enabled", "{n}");
        let counters = world.destination(&url(n)).await.circuit.shown_counters();
        assert_eq!(counters.failures, 150, "they count all the same");
    }
    let mut alerts = Vec::new();
    while let Ok(event) = live.try_recv() {
        if let EngineEvent::SuspensionChange(change) = event {
            alerts.push(change.suspension);
        }
    }
    assert_eq!(alerts, [Suspension::On]);
    assert!(world.engine.gauges().await.unwrap().suspended);
    // The suspension ends when nothing fails any more; then the circuits work again.
    for n in 0..21 {
        world.script.set(&url(n), OK);
    }
    world.pass(MINUTE * 2 + ms(1)).await;
    assert!(!world.engine.gauges().await.unwrap().suspended);
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_our_own_disables_none_of_24_destinations_during_it_or_after_it() {
    let mut world = World::new().await;
    for n in 0..24 {
        world.subscribe(&url(n)).await;
    }
    world.send().await;
    world.pass(MINUTE * 3).await;
    for n in 0..24 {
        world.script.set(&url(n), FAIL);
    }
    world.send_many(150).await;
    world.pass(MINUTE).await;
    world.crash().await;
    world.send_many(150).await;
    world.pass(MINUTE).await;
    for n in 0..24 {
        assert_eq!(world.state(&url(n)).await, "enabled", "{n} in the outage");
        world.script.set(&url(n), OK);
    }
    world.pass(MINUTE * 60).await;
    world.send_many(5).await;
    world.pass(MINUTE).await;
    for n in 0..24 {
        assert_eq!(world.state(&url(n)).await, "enabled", "{n} after the outage");
        let circuit = world.destination(&url(n)).await.circuit;
        assert_eq!(circuit.shown_counters().failures, 0, "{n}: they are taken back");
        assert_eq!(circuit.counters.successes, 306, "{n}");
    }
    world.check_ledger().await;
}

#[tokio::test(start_paused = true)]
async fn a_single_bad_url_never_triggers_the_guard() {
    let mut world = World::new().await;
    let bad = world.subscribe(URL).await;
    for n in 0..30 {
        world.subscribe(&url(n)).await;
    }
    world.script.set(URL, FAIL);
    world.send_many(101).await;
    world.pass(ms(10)).await;
    assert_eq!(world.state(URL).await, "disabled");
    assert_eq!(world.state(&url(3)).await, "enabled");
    assert_eq!(bad.url, URL);
    assert!(!world.engine.gauges().await.unwrap().suspended);
}

#[tokio::test(start_paused = true)]
async fn all_subscriptions_with_a_url_share_its_destination() {
    let mut world = World::new().await;
    world.subscribe(URL).await;
    let mut second = world.wish(URL);
    second.subscription.format = postrider_domain::payload::Format::Standard;
    world.put(second).await;
    world.script.set(URL, FAIL);
    world.send_many(51).await;
    world.pass(ms(10)).await;
    assert_eq!(world.state(URL).await, "disabled", "102 failures of 51 events");
    let before = world.script.sent().len();
    assert_eq!(world.engine.ingest(&tenant(), vec![event("1")]).await.unwrap()[0].deliveries, 2);
    world.run_ready_tasks().await;
    assert_eq!(world.script.sent().len(), before, "both wait");
}
