//! Helpers to start nodes and to give them work.

use std::sync::Arc;
use std::time::Duration;

use postrider_domain::attempt::{Ending, Turn};
use postrider_domain::circuit::Suspension;
use postrider_domain::delivery::Delivery;
use postrider_domain::destination::Destination;
use postrider_domain::policy::Policy;
use postrider_domain::settlement::settle;
use postrider_domain::time::Timestamp;
use postrider_store::postgres::{PostgresOptions, PostgresStore};
use postrider_store::{
    Acceptance, Commit, Configuration, DeliveryChange, DestinationChange, History,
};
use postrider_store_testing::samples::{self, acceptance, acme, event};

/// Options of a node with a long lease, so that a pause of a busy machine does not end it.
pub(crate) fn options(node: &str) -> PostgresOptions {
    PostgresOptions {
        node: node.into(),
        lease: Duration::from_secs(600),
        connections: 4,
        ..PostgresOptions::default()
    }
}

pub(crate) async fn node(url: &str, name: &str) -> Arc<PostgresStore> {
    PostgresStore::connect(url, options(name)).await.unwrap()
}

/// Stores destinations 0 to `n` of the tenant acme, with a subscription each.
pub(crate) async fn put_destinations(store: &PostgresStore, n: u64) {
    for to in 0..n {
        let record = samples::subscription(&acme(), to, to);
        store.put_subscription(&record, &samples::destination(&acme(), to)).await.unwrap();
    }
}

/// Event `n` of the tenant acme with `fan_out` deliveries, each to a destination of its own.
pub(crate) fn owed(n: u64, fan_out: u64) -> Acceptance {
    let owed: Vec<_> = (0..fan_out).map(|to| (n * fan_out + to, to)).collect();
    acceptance(event(&acme(), &format!("e{n}")), samples::at(n), &owed)
}

pub(crate) async fn delivery(store: &PostgresStore, n: u64) -> Delivery {
    store.delivery(&acme(), samples::delivery_id(n)).await.unwrap().unwrap()
}

pub(crate) async fn destination(store: &PostgresStore, of: &Delivery) -> Destination {
    store.destination(&of.tenant, of.destination).await.unwrap().unwrap()
}

/// The commit of an attempt of this delivery.
pub(crate) async fn attempted(
    store: &PostgresStore,
    delivery: &Delivery,
    ending: Ending,
    now: Timestamp,
) -> Commit {
    let place = destination(store, delivery).await;
    let turn = delivery.turn().unwrap_or(Turn::Probe);
    let done = samples::finished(now, ending);
    let settled = settle(delivery, &place, turn, done, now, Suspension::Off, &Policy::default());
    Commit {
        deliveries: vec![DeliveryChange::of(delivery, settled.delivery, Some(settled.attempt))],
        destinations: vec![DestinationChange {
            tenant: settled.destination.tenant,
            id: settled.destination.id,
            circuit: settled.destination.circuit,
            transitions: settled.transition.into_iter().collect(),
        }],
        ..Commit::default()
    }
}
