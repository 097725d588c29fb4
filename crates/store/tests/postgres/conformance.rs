//! Runs the conformance suite, and compares random sequences with the model.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use postrider_store::Store;
use postrider_store::postgres::{PostgresOptions, PostgresStore};
use postrider_store_testing::conformance::Backend;

use crate::server;

/// A database of its own for each test.
struct Postgres {
    server: server::Shared,
    url: String,
}

static DATABASES: AtomicU64 = AtomicU64::new(0);

impl Postgres {
    fn new() -> Self {
        let server = server::shared();
        let n = DATABASES.fetch_add(1, Ordering::Relaxed);
        let url = server.database(&format!("conformance_{n}"));
        Postgres { server, url }
    }
}

#[async_trait]
impl Backend for Postgres {
    async fn open(&self) -> Arc<dyn Store> {
        assert!(self.server.runs());
        // A long lease, so that a pause of a busy machine does not end it.
        let options = PostgresOptions {
            node: "one".into(),
            lease: Duration::from_secs(600),
            connections: 3,
            ..PostgresOptions::default()
        };
        let store = PostgresStore::connect(&self.url, options).await.unwrap();
        assert!(store.is_walled().await.unwrap(), "row-level security binds the role");
        store
    }

    fn can_be_unavailable(&self) -> bool {
        true
    }
}

postrider_store_testing::conformance!(Postgres::new());
