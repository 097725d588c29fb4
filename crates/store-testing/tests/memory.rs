//! The model itself passes the suite, so the suite is consistent.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use postrider_store::Store;
use postrider_store_testing::conformance::Backend;
use postrider_store_testing::memory::MemoryStore;

/// Stands for the disk of a store in memory: the store that was closed last.
#[derive(Default)]
struct Memory(Mutex<MemoryStore>);

#[async_trait]
impl Backend for Memory {
    async fn open(&self) -> Arc<dyn Store> {
        let mut current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *current = current.crash();
        Arc::new(current.clone())
    }

    fn can_be_unavailable(&self) -> bool {
        true
    }
}

postrider_store_testing::conformance!(Memory::default());

/// A broken backend that loses everything at every start.
struct Forgetful;

#[async_trait]
impl Backend for Forgetful {
    async fn open(&self) -> Arc<dyn Store> {
        Arc::new(MemoryStore::default())
    }

    fn can_be_unavailable(&self) -> bool {
        false
    }
}

#[tokio::test]
#[should_panic(expected = "seed 7, after these operations:")]
async fn suite_reports_the_seed_of_a_store_that_forgets() {
    let ground = postrider_store_testing::conformance::Ground::new(Forgetful).await;
    postrider_store_testing::conformance::sequences::compare(7, 200, ground).await;
}
