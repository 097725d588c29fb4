//! The engine on the embedded store with real files and real time.

use std::sync::Arc;

use postrider_domain::policy::Policy;
use postrider_engine::{EngineEvent, EngineHandle, Options};
use postrider_store::embedded::{self, EmbeddedStore};
use postrider_store::{History, Store, Upkeep};
use tokio::sync::broadcast;

use crate::world::{FAIL, World, event, ms, record, start, tenant};

/// Waits until `n` attempts have ended.
async fn attempts(live: &mut broadcast::Receiver<EngineEvent>, n: usize) {
    let mut left = n;
    while left > 0 {
        if let EngineEvent::Attempt { .. } = live.recv().await.unwrap() {
            left -= 1;
        }
    }
}

fn open(directory: &tempfile::TempDir) -> Arc<EmbeddedStore> {
    EmbeddedStore::open(directory.path(), embedded::EmbeddedOptions::default()).unwrap()
}

async fn begin(store: &Arc<EmbeddedStore>, world: &World, seed: u64) -> EngineHandle {
    let store: Arc<dyn Store> = Arc::clone(store) as Arc<dyn Store>;
    let options = Options { live_events_max: 100_000, ..Options::default() };
    start(store, &world.clock, &world.script, &Policy::default(), &options, seed).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accepted_events_are_delivered_or_wait_and_a_restart_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    // Provides the clock and the receivers.
    let world = World::new().await;
    let (well, ill) = ("https://well.example.com/", "https://ill.example.com/");
    world.script.set(ill, FAIL);
    let store = open(&directory);
    let engine = begin(&store, &world, 1).await;
    for (n, url) in [well, ill].into_iter().enumerate() {
        let record = record(&tenant(), url, u32::try_from(n).unwrap(), world.now());
        engine.put_subscription(record).await.unwrap();
    }
    let mut live = engine.subscribe();
    let events = vec![event("{\"n\":1}"); 90];
    let ingested = engine.ingest(&tenant(), events).await.unwrap();
    assert!(ingested.iter().all(|one| one.deliveries == 2));
    attempts(&mut live, 180).await;
    assert_eq!(engine.shutdown(ms(10_000)).await, 0);
    let before = store.ledger(Some(&tenant())).await.unwrap();
    assert!(before.balances());
    assert_eq!((before.accepted, before.delivered, before.waiting), (180, 90, 90));
    store.close().await.unwrap();
    drop((engine, store));

    let store = open(&directory);
    let engine = begin(&store, &world, 2).await;
    assert_eq!(engine.ledger(Some(&tenant())).await.unwrap(), before);
    let mut live = engine.subscribe();
    engine.ingest(&tenant(), vec![event("{\"n\":2}")]).await.unwrap();
    attempts(&mut live, 2).await;
    assert_eq!(world.script.sent_to(well).len(), 91, "0 duplicates");
    assert_eq!(engine.shutdown(ms(10_000)).await, 0);
    let after = store.ledger(Some(&tenant())).await.unwrap();
    assert_eq!((after.accepted, after.delivered, after.waiting), (182, 91, 91));
    store.close().await.unwrap();
}
