//! Other clients of the database interfere with a node: tables change, writes are refused, locks
//! are held.

use std::collections::BTreeSet;
use std::time::Duration;

use postrider_store::postgres::{PostgresOptions, PostgresStore};
use postrider_store::{Configuration, Intake, PageRequest, StoreError, Upkeep};
use postrider_store_testing::samples::{at, tenant};
use tokio_postgres::NoTls;

use crate::nodes::{node, options, owed};
use crate::server::{self, Server};

const ALL: PageRequest = PageRequest { limit: 100, cursor: None };

/// The process ids of a node's connections.
fn pids(server: &Server) -> BTreeSet<String> {
    let sql = "SELECT pid FROM pg_stat_activity WHERE usename = 'postrider'";
    server.sql("postgres", sql).lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn running_node_reads_a_table_that_got_a_new_column() {
    let server = server::shared();
    let url = server.database("columns");
    let store = node(&url, "one").await;
    store.create_tenant(&tenant("acme", at(0))).await.unwrap();
    assert_eq!(store.tenants(&ALL).await.unwrap().items.len(), 1);
    server.sql("columns", "ALTER TABLE postrider.tenants ADD COLUMN more text");
    // The prepared statements no longer fit: each connection notices once and is closed.
    let mut refused = 0;
    let found = loop {
        match store.tenants(&ALL).await {
            Ok(found) => break found,
            Err(StoreError::Unavailable(_)) if refused < 4 => refused += 1,
            Err(other) => panic!("after {refused}: {other}"),
        }
    };
    assert_eq!(found.items.len(), 1);
}

#[tokio::test]
async fn connection_to_a_server_that_became_read_only_is_closed() {
    let server = Server::start();
    // No hints: sending one would need another connection.
    let quiet = PostgresOptions { listen: false, ..options("one") };
    let store = PostgresStore::connect(&server.database("readonly"), quiet).await.unwrap();
    store.accept(vec![owed(0, 1)]).await.unwrap();
    let before = pids(&server);
    server.sql("postgres", "ALTER SYSTEM SET default_transaction_read_only = on");
    server.sql("postgres", "SELECT pg_reload_conf()");
    let mut n = 1;
    while store.accept(vec![owed(n, 1)]).await.is_ok() {
        n += 1;
    }
    // The connection that was refused is closed: a new one may reach a server that takes writes.
    while pids(&server).is_superset(&before) {
        tokio::task::yield_now().await;
    }
    let refused = store.accept(vec![owed(n, 1)]).await;
    assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    assert!(matches!(store.check().await, Err(StoreError::Unavailable(_))));
    let writes = "BEGIN; SET TRANSACTION READ WRITE; \
                  ALTER DATABASE readonly SET default_transaction_read_only = off; COMMIT";
    server.sql("postgres", writes);
    while store.accept(vec![owed(n, 1)]).await.is_err() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_violated_constraint_is_not_taken_for_a_missing_partition() {
    let server = server::shared();
    let store = node(&server.database("checked"), "one").await;
    let constraint = "ALTER TABLE postrider.events ADD CONSTRAINT short CHECK (length(id) < 1)";
    server.sql("checked", constraint);
    let refused = store.accept(vec![owed(0, 1)]).await;
    match refused {
        Err(StoreError::Internal(why)) => assert!(why.contains("\"short\""), "{why}"),
        other => panic!("{other:?}"),
    }
    server.sql("checked", "ALTER TABLE postrider.events DROP CONSTRAINT short");
    store.accept(vec![owed(0, 1)]).await.unwrap();
}

#[tokio::test]
async fn lease_renewal_does_not_wait_for_changes_of_partitions() {
    let server = server::shared();
    let url = server.database("days");
    let quick = PostgresOptions { statement_timeout: Duration::from_secs(3), ..options("one") };
    let store = PostgresStore::connect(&url, quick).await.unwrap();
    store.accept(vec![owed(0, 0)]).await.unwrap();
    store.hold_shards().await.unwrap();
    // After this the node no longer knows which partitions exist.
    let pruned = store.prune(at(10 * 86_400_000)).await.unwrap();
    assert_eq!(pruned.events, 1);
    let (other, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    tokio::spawn(async move { drop(connection.await) });
    other.batch_execute("BEGIN; SELECT pg_advisory_xact_lock(123623980662786)").await.unwrap();
    for _ in 0..3 {
        assert_eq!(store.hold_shards().await.unwrap().shards.len(), 256);
    }
    other.batch_execute("COMMIT").await.unwrap();
    store.accept(vec![owed(1, 1)]).await.unwrap();
}

#[tokio::test]
async fn day_is_pruned_beside_readers_but_not_while_a_delivery_of_it_waits() {
    let server = server::shared();
    let url = server.database("removed");
    let store = node(&url, "one").await;
    let day = 86_400_000;
    store.accept(vec![owed(0, 0)]).await.unwrap();
    store.accept(vec![owed(1, 1)]).await.unwrap();
    assert_eq!(store.prune(at(10 * day)).await.unwrap().events, 0, "one of it is queued");
    let empty = owed(3 * day, 0);
    store.accept(vec![empty]).await.unwrap();
    // A client reads another day for a long time: nobody waits for it longer than half a second.
    let (reader, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    tokio::spawn(async move { drop(connection.await) });
    reader.batch_execute("BEGIN; SELECT count(*) FROM postrider.events").await.unwrap();
    let refused = store.prune(at(10 * day)).await;
    assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    store.accept(vec![owed(2, 1)]).await.unwrap();
    reader.batch_execute("COMMIT").await.unwrap();
    assert_eq!(store.prune(at(10 * day)).await.unwrap().events, 1);
}
