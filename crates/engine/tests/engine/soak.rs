//! Hundreds of destinations with all kinds of receivers for days of virtual time: afterwards
//! nothing is left over.

use std::sync::atomic::Ordering;

use postrider_domain::attempt::OwnFaultKind;
use postrider_domain::circuit::CircuitState;
use postrider_domain::policy::{Policy, RecoveryMode, RecoveryPolicy};
use postrider_engine::{Gauges, Options};

use crate::world::{HOUR, MINUTE, Mood, OK, World, event, ms, tenant};

fn mood(n: u64, round: u64) -> Mood {
    match (n * 31 + round * 17) % 11 {
        0 => Mood::Hangs,
        1 => Mood::Refuses,
        2 => Mood::Answers(500, ms(30)),
        3 => Mood::Later(429, MINUTE * 3),
        4 => Mood::OurFault(OwnFaultKind::Resolver),
        5 => Mood::Answers(200, ms(2_000)),
        6 => Mood::Answers(302, ms(1)),
        _ => Mood::Answers(200, ms(5)),
    }
}

#[tokio::test(start_paused = true)]
async fn after_days_in_all_moods_nothing_is_left_over() {
    let recovery = RecoveryPolicy { mode: RecoveryMode::Drain, ..RecoveryPolicy::default() };
    let policy = Policy { recovery, ..Policy::default() };
    let options = Options { hold_every: MINUTE * 10, ..Options::default() };
    let mut world = World::with(policy, options).await;
    world.script.keep_log.store(false, Ordering::Relaxed);
    for n in 0..200 {
        let url = format!("https://hooks.example.com/{n}");
        let mut record = world.wish(&url);
        record.subscription.types =
            serde_json::from_str(&format!("[\"task.n{}\"]", n % 10)).unwrap();
        world.put(record).await;
    }
    let mut accepted = 0;
    for round in 0..24 {
        for n in 0..200 {
            world.script.set(&format!("https://hooks.example.com/{n}"), mood(n, round / 3));
        }
        for kind in 0..10 {
            let mut one = event("{\"a\":1}");
            one.kind = format!("task.n{kind}").parse().unwrap();
            let done = world.engine.ingest(&tenant(), vec![one; 4]).await.unwrap();
            accepted += done.iter().map(|one| u64::from(one.deliveries)).sum::<u64>();
        }
        world.pass(MINUTE * 40).await;
        world.check_ledger().await;
    }
    for n in 0..200 {
        world.script.set(&format!("https://hooks.example.com/{n}"), OK);
    }
    world.pass(HOUR * 49).await;
    let ledger = world.engine.ledger(Some(&tenant())).await.unwrap();
    assert!(ledger.balances());
    assert_eq!(ledger.accepted, accepted);
    assert_eq!(ledger.delivered + ledger.dead, accepted, "{ledger:?}");
    let gauges = world.engine.gauges().await.unwrap();
    assert!(gauges.alarms <= 1 + 200, "the next read, and a probe for each that stays disabled");
    // Only destinations with failures stay in memory.
    let mut unwell = 0;
    for n in 0..200 {
        let circuit = world.destination(&format!("https://hooks.example.com/{n}")).await.circuit;
        let failures = circuit.counters.consecutive_failures;
        unwell += usize::from(failures > 0 || circuit.state != CircuitState::Closed);
    }
    assert!(unwell < 200);
    let rest = Gauges {
        destinations: unwell,
        alarms: gauges.alarms,
        shards: 256,
        leased: true,
        ..Gauges::default()
    };
    assert_eq!(gauges, rest, "no slot, no memory, no read left over");
    assert_eq!(world.script.in_flight(), 0, "no attempt");
    // The engine's task, its four tasks of upkeep, the one that keeps replays of the dead, and the one that removes
    // unused destinations.
    let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    assert_eq!(tasks, 7, "no task");
    println!("soak: {accepted} deliveries, {} delivered, {} dead", ledger.delivered, ledger.dead);
}
