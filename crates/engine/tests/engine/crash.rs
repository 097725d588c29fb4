//! Crashes at many points: nothing that was acknowledged is lost.

use std::collections::{HashMap, HashSet};

use postrider_domain::delivery::StateName;
use postrider_domain::ids::EventId;
use postrider_domain::policy::Policy;
use postrider_engine::Options;
use postrider_store::Configuration;
use postrider_store_testing::memory::Fault;

use crate::nothing_lost::slow_store;
use crate::world::{FAIL, HOUR, MINUTE, Mood, OK, World, event, ms, tenant};

const URL: &str = "https://hooks.example.com/in";

/// Crashes once, after `after` milliseconds of work, and checks that everything is there.
async fn crash_after(after: u64, seed: u64) {
    let policy = Policy::default();
    let mut world = World::on(slow_store(seed), policy, Options::default()).await;
    world.subscribe(URL).await;
    world.subscribe("https://hooks.example.com/slow").await;
    world.script.set("https://hooks.example.com/slow", Mood::Answers(200, ms(7)));
    world.script.first(URL, [FAIL, OK, FAIL]);
    let acknowledged = std::sync::Arc::new(std::sync::Mutex::new(Vec::<EventId>::new()));
    let mut callers = Vec::new();
    for n in 0..6 {
        let (engine, list) = (world.engine.clone(), std::sync::Arc::clone(&acknowledged));
        callers.push(tokio::spawn(async move {
            for _ in 0..10 {
                tokio::time::sleep(ms(n)).await;
                if let Ok(done) = engine.ingest(&tenant(), vec![event("1"); 3]).await {
                    list.lock().unwrap().extend(done.into_iter().map(|one| one.id));
                }
            }
        }));
    }
    tokio::time::sleep(ms(after)).await;
    let promised = acknowledged.lock().unwrap().clone();
    world.crash().await;
    callers.iter().for_each(tokio::task::JoinHandle::abort);
    world.check_ledger().await;
    world.pass(HOUR).await;
    let mut owed: HashMap<EventId, usize> = HashMap::new();
    for delivery in world.deliveries().await {
        assert_eq!(delivery.state.name(), StateName::Delivered, "after {after} ms, seed {seed}");
        *owed.entry(delivery.event.clone()).or_default() += 1;
    }
    for id in &promised {
        assert_eq!(owed.get(id), Some(&2), "after {after} ms, seed {seed}: {id} was acknowledged");
    }
    assert!(owed.values().all(|&n| n == 2), "all of an event's deliveries, or none");
    let arrived: HashSet<_> = world.script.sent().iter().map(|one| one.delivery).collect();
    assert_eq!(arrived.len(), owed.len() * 2, "each was sent");
    world.check_ledger().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_acknowledged_is_lost_wherever_the_process_ends() {
    for after in 0..60 {
        crash_after(after, after * 7 + 1).await;
    }
}

#[tokio::test(start_paused = true)]
async fn only_unsettled_attempts_are_repeated_after_a_crash() {
    let options = Options { destination_in_flight_max: 8, ..Options::default() };
    let mut world = World::with(Policy::default(), options).await;
    world.subscribe(URL).await;
    world.script.first(URL, vec![OK; 20]);
    world.script.set(URL, Mood::Gated(200));
    world.send_many(40).await;
    assert_eq!(world.script.sent().len(), 28, "twenty settled, eight in flight");
    world.script.set(URL, OK);
    world.crash().await;
    world.run_ready_tasks().await;
    assert_eq!(world.script.sent().len(), 28 + 20, "eight of them again");
    assert_eq!(world.count(StateName::Delivered).await, 40);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_a_crash_interrupted_is_ended_after_the_start() {
    let options = Options { page: 5, ..Options::default() };
    let mut world = World::with(Policy::default(), options).await;
    let gone = world.subscribe(URL).await;
    world.script.set(URL, FAIL);
    world.send_many(30).await;
    world.store.mark_subscription_deleted(&tenant(), gone.id, world.now()).await.unwrap();
    world.crash().await;
    world.pass(ms(100)).await;
    assert_eq!(world.count(StateName::Cancelled).await, 30);
    assert_eq!(world.store.all_subscriptions().await.unwrap(), []);
    let sent = world.script.sent().len();
    world.pass(HOUR).await;
    assert_eq!(world.script.sent().len(), sent);
    world.check_ledger().await;
}

#[tokio::test(start_paused = true)]
async fn a_large_backlog_is_taken_up_page_by_page() {
    let options =
        Options { page: 50, resident_max: 300, lane_resident_max: 60, ..Options::default() };
    let mut world = World::with(Policy::default(), options).await;
    for n in 0..3 {
        let url = format!("https://hooks.example.com/{n}");
        world.subscribe(&url).await;
        world.script.set(&url, Mood::Gated(200));
    }
    world.send_many(1000).await;
    for n in 0..3 {
        world.script.set(&format!("https://hooks.example.com/{n}"), Mood::Answers(200, ms(1)));
    }
    world.script.forget();
    world.crash_for(MINUTE).await;
    // New events arrive while the backlog is read.
    for _ in 0..10 {
        world.send_many(20).await;
    }
    world.pass(MINUTE * 2).await;
    assert_eq!(world.count(StateName::Delivered).await, 3 * 1200);
    assert_eq!(world.script.sent().len(), 3 * 1200, "each once");
    world.check_ledger().await;
}

#[tokio::test(start_paused = true)]
async fn counters_and_circuits_are_as_they_were() {
    let mut world = World::new().await;
    world.subscribe(URL).await;
    world.fail(URL, 100).await;
    world.crash().await;
    assert_eq!(world.state(URL).await, "enabled");
    world.send().await;
    assert_eq!(world.state(URL).await, "disabled", "the 101st failure, a process later");
    let disabled_at = world.now();
    world.script.forget();
    world.crash_for(MINUTE).await;
    world.pass_until(disabled_at.saturating_add(MINUTE * 10)).await;
    let probes: Vec<_> = world.script.sent().iter().map(|one| one.at).collect();
    assert_eq!(probes, [disabled_at.saturating_add(MINUTE * 10)]);
}

/// Pseudo-random numbers from a seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % sides
    }
}

/// Faults of the store, crashes and failing receivers in random order: nothing acknowledged is
/// lost.
async fn chaos(seed: u64) {
    let mut dice = Dice(seed * 7919 + 1);
    let options = Options { hold_every: MINUTE * 10, ..Options::default() };
    let mut world = World::on(slow_store(seed), Policy::default(), options).await;
    let urls: Vec<_> = (0..3).map(|n| format!("https://hooks.example.com/{n}")).collect();
    for url in &urls {
        world.subscribe(url).await;
    }
    let mut promised = Vec::new();
    for _ in 0..40 {
        let url = &urls[usize::try_from(dice.roll(3)).unwrap()];
        match dice.roll(10) {
            0 => world.script.set(url, Mood::Hangs),
            1 => world.script.set(url, FAIL),
            2 | 3 => world.script.set(url, OK),
            4 => {
                let faults = [Fault::DiskFull, Fault::UnavailableBefore, Fault::UnavailableAfter];
                let fault = faults[usize::try_from(dice.roll(3)).unwrap()];
                world.store.fail_later(dice.roll(4), fault, dice.roll(4));
            }
            5 => world.store.fail_next_reads(dice.roll(5)),
            6 => {
                world.store.heal();
                world.crash_for(ms(dice.roll(60_000))).await;
            }
            _ => {
                let events = vec![event("1"); 5];
                if let Ok(done) = world.engine.ingest(&tenant(), events).await {
                    promised.extend(done.into_iter().map(|one| one.id));
                }
            }
        }
        world.pass(ms(dice.roll(20_000))).await;
    }
    world.store.heal();
    urls.iter().for_each(|url| world.script.set(url, OK));
    world.pass(HOUR * 50).await;
    world.check_ledger().await;
    let mut owed: HashMap<EventId, usize> = HashMap::new();
    for delivery in world.deliveries().await {
        assert_eq!(delivery.state.name(), StateName::Delivered, "seed {seed}: {delivery:?}");
        *owed.entry(delivery.event.clone()).or_default() += 1;
    }
    for id in &promised {
        assert_eq!(owed.get(id), Some(&3), "seed {seed}: {id} was acknowledged");
    }
    let gauges = world.engine.gauges().await.unwrap();
    assert_eq!((gauges.resident, gauges.unpersisted, gauges.loads), (0, 0, 0), "seed {seed}");
}

#[tokio::test(start_paused = true)]
async fn nothing_acknowledged_is_lost_through_faults_and_crashes_in_any_order() {
    for seed in 0..12 {
        chaos(seed).await;
    }
}
