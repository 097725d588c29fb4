//! Runs the conformance suite on the embedded store, with real files.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use postrider_store::Store;
use postrider_store::embedded::{EmbeddedOptions, EmbeddedStore};
use postrider_store_testing::conformance::Backend;

struct Embedded {
    directory: tempfile::TempDir,
}

impl Embedded {
    fn new() -> Self {
        Embedded { directory: tempfile::tempdir().unwrap() }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

fn small() -> EmbeddedOptions {
    EmbeddedOptions {
        segment_bytes: 16 << 20,
        reserve_bytes: 1 << 20,
        ..EmbeddedOptions::default()
    }
}

#[async_trait]
impl Backend for Embedded {
    async fn open(&self) -> Arc<dyn Store> {
        EmbeddedStore::open(self.at("data"), small()).unwrap()
    }

    fn can_be_unavailable(&self) -> bool {
        false
    }

    async fn copy(&self, store: &dyn Store) -> Option<Arc<dyn Store>> {
        store.backup(&self.at("backup")).await.unwrap();
        EmbeddedStore::restore(self.at("backup"), self.at("restored")).unwrap();
        Some(EmbeddedStore::open(self.at("restored"), small()).unwrap())
    }
}

postrider_store_testing::conformance!(Embedded::new());
