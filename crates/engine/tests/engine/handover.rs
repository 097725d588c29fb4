//! Hand-over of shards: nothing new is sent there, attempts in flight are settled, and only then
//! does another node get them.

use std::time::Duration;

use postrider_domain::delivery::StateName;
use postrider_domain::ids::DestinationId;
use postrider_engine::Options;
use postrider_store::ShardSet;
use postrider_store_testing::memory::{MemoryOptions, MemoryStore};

use crate::world::{FAIL, HOUR, Mood, OK, TEN_MINUTES, World, ms, never_disabled, tenant};

const STAYS: &str = "http://stays.test/a";
const LEAVES: &str = "http://leaves.test/b";

fn shard_of(url: &str) -> ShardSet {
    [DestinationId::of(&tenant(), url).shard()].into_iter().collect()
}

/// Two destinations in different shards.
async fn two(world: &mut World) {
    assert_ne!(shard_of(STAYS), shard_of(LEAVES));
    world.subscribe(STAYS).await;
    world.subscribe(LEAVES).await;
}

/// Waits until the leases were renewed.
async fn held_anew(world: &World) {
    world.pass(Options::default().hold_every + ms(10)).await;
}

#[tokio::test(start_paused = true)]
async fn a_shard_leaves_when_what_is_in_flight_is_settled() {
    let mut world = World::with(never_disabled(), Options::default()).await;
    two(&mut world).await;
    world.script.set(LEAVES, Mood::Gated(200));
    world.send_many(20).await;
    let in_flight = world.script.in_flight_at(LEAVES);
    assert!(in_flight > 0 && in_flight < 20, "{in_flight} of 20 are in flight, the rest waits");
    world.store.want(shard_of(LEAVES));
    held_anew(&world).await;
    world.send_many(5).await;
    assert_eq!(world.script.sent_to(LEAVES).len(), in_flight, "nothing new is begun");
    assert_eq!(world.script.sent_to(STAYS).len(), 25, "elsewhere all goes on");
    assert_eq!(world.store.elsewhere(), ShardSet::default(), "something is still in flight");
    world.script.open_gate();
    world.run_ready_tasks().await;
    held_anew(&world).await;
    assert_eq!(world.store.elsewhere(), shard_of(LEAVES));
    let delivered = world.count(StateName::Delivered).await;
    assert_eq!(delivered, 25 + in_flight, "what was in flight counts, each once");
    assert_eq!(world.script.sent_to(LEAVES).len(), in_flight);
    world.check_ledger().await;
    // The shard comes back: the other deliveries are sent, and none twice.
    world.store.want(ShardSet::default());
    held_anew(&world).await;
    assert_eq!(world.count(StateName::Delivered).await, 50);
    let mut sent: Vec<_> = world.script.sent().into_iter().map(|sent| sent.delivery).collect();
    sent.sort_unstable();
    sent.dedup();
    assert_eq!(sent.len(), world.script.sent().len(), "nothing was sent twice");
    world.check_ledger().await;
}

#[tokio::test(start_paused = true)]
async fn shard_whose_hand_over_is_withdrawn_continues() {
    let mut world = World::with(never_disabled(), Options::default()).await;
    two(&mut world).await;
    world.script.set(LEAVES, Mood::Gated(200));
    world.send_many(20).await;
    let in_flight = world.script.in_flight_at(LEAVES);
    world.store.want(shard_of(LEAVES));
    held_anew(&world).await;
    // The node that was to get it leaves before the first answer comes.
    world.store.want(ShardSet::default());
    held_anew(&world).await;
    world.script.set(LEAVES, OK);
    world.script.open_gate();
    world.run_ready_tasks().await;
    assert_eq!(world.store.elsewhere(), ShardSet::default(), "it was never given back");
    assert_eq!(world.count(StateName::Delivered).await, 40);
    assert!(world.script.sent_to(LEAVES).len() == 20 && in_flight < 20);
    world.check_ledger().await;
}

#[tokio::test(start_paused = true)]
async fn settlements_are_durable_before_a_shard_is_handed_over() {
    let second = Duration::from_secs(1);
    let sync: postrider_store_testing::memory::Delay =
        std::sync::Arc::new(move || Box::pin(tokio::time::sleep(second)));
    let store = MemoryStore::new(MemoryOptions { sync: Some(sync), ..MemoryOptions::default() });
    let mut world = World::on(store, never_disabled(), Options::default()).await;
    two(&mut world).await;
    world.script.set(LEAVES, Mood::Answers(200, ms(100)));
    let ingest = world.engine.clone();
    let sending = tokio::spawn(async move {
        ingest.ingest(&tenant(), vec![crate::world::event("1")]).await.unwrap();
    });
    sending.await.unwrap();
    world.store.want(shard_of(LEAVES));
    let mut last = 0;
    while world.store.elsewhere().is_empty() {
        last = world.count(StateName::Delivered).await;
        world.pass(ms(50)).await;
    }
    assert_eq!(world.count(StateName::Delivered).await, 2, "both were durable by then, not {last}");
    world.check_ledger().await;
}

#[tokio::test(start_paused = true)]
async fn no_probe_is_begun_in_a_shard_that_leaves() {
    let mut world = World::new().await;
    two(&mut world).await;
    world.fail(LEAVES, 101).await;
    assert_eq!(world.state(LEAVES).await, "disabled");
    let before = world.script.sent_to(LEAVES).len();
    world.script.set(LEAVES, FAIL);
    world.store.want(shard_of(LEAVES));
    world.pass(TEN_MINUTES * 2).await;
    assert_eq!(world.script.sent_to(LEAVES).len(), before, "its next owner tries it");
    assert_eq!(world.store.elsewhere(), shard_of(LEAVES));
    // Back again, the destination is probed once, and then every ten minutes.
    world.store.want(ShardSet::default());
    world.pass(TEN_MINUTES).await;
    let probes = world.script.sent_to(LEAVES).len() - before;
    assert!((1..=2).contains(&probes), "{probes}");
    world.script.set(LEAVES, OK);
    world.pass(HOUR * 49).await;
    world.check_ledger().await;
}
