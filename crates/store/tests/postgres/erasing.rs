//! Erased means gone: the payload's marker is in no table of the database.

use postrider_domain::delivery::{CancelReason, Delivery};
use postrider_domain::ids::EventId;
use postrider_store::{
    Commit, DeliveryChange, DocumentKind, Documents, Erasing, EventErasure, History, Intake,
    Upkeep, Work,
};
use postrider_store_testing::samples::{at, finished, json};

use crate::nodes::{node, owed};
use crate::server;

const MARKER: &str = "kanarienvogel";

/// How many rows of all tables have the marker, as text or in bytes.
fn rows_with_the_marker(server: &server::Server, database: &str) -> usize {
    let tables =
        "SELECT table_name FROM information_schema.tables WHERE table_schema = 'postrider'";
    let hex = postrider_domain::hex::encode(MARKER.as_bytes());
    let tables = server.sql(database, tables);
    let count = |table: &str| {
        let sql = format!(
            "SELECT count(*) FROM postrider.\"{table}\" AS t \
             WHERE t::text LIKE '%{MARKER}%' OR t::text LIKE '%{hex}%'"
        );
        server.sql(database, &sql).trim().parse::<usize>().unwrap()
    };
    tables.lines().map(count).sum()
}

#[tokio::test]
async fn erased_payload_is_in_no_table_and_two_nodes_erase_it_once() {
    let server = server::shared();
    let url = server.database("erasing");
    let (one, two) = (node(&url, "one").await, node(&url, "two").await);
    let mut acceptance = owed(0, 2);
    let mut event = (*acceptance.event).clone();
    event.data = json(&format!("{{\"name\": \"{MARKER}\"}}"));
    event.old = Some(json(&format!("\"{MARKER}\"")));
    acceptance.event = event.clone().into();
    let owed: Vec<Delivery> = acceptance.deliveries.clone();
    one.accept(vec![acceptance]).await.unwrap();
    let body = format!("got {MARKER}").into_bytes().into();
    let ending = postrider_domain::attempt::Ending::Answered(postrider_domain::attempt::Answer {
        status: 500,
        retry_after: None,
        body,
        body_end: postrider_domain::attempt::BodyEnd::Whole,
    });
    let change = |delivery: &Delivery| DeliveryChange {
        before: delivery.state.name(),
        by_job: None,
        delivery: Delivery {
            attempts: 1,
            ..delivery.cancelled(CancelReason::Asked, at(9)).unwrap()
        },
        attempt: Some(postrider_domain::attempt::Attempt {
            number: 1,
            turn: postrider_domain::attempt::Turn::First,
            started_at: at(5),
            timings: finished(at(5), ending.clone()).timings,
            ending: ending.clone(),
        }),
    };
    let leases = [one.hold_shards().await.unwrap(), two.hold_shards().await.unwrap()];
    for delivery in &owed {
        let shard = delivery.destination.shard();
        let commit = Commit { deliveries: vec![change(delivery)], ..Commit::default() };
        if leases[0].has(shard) {
            one.settle(&leases[0], commit).await.unwrap();
        } else {
            two.settle(&leases[1], commit).await.unwrap();
        }
    }
    assert!(rows_with_the_marker(&server, "erasing") >= 3, "the event and two attempts");
    let ledger = one.ledger(None).await.unwrap();
    let id: EventId = event.id.clone();
    let (first, second) = tokio::join!(
        one.erase_event(&event.tenant, &id, at(20)),
        two.erase_event(&event.tenant, &id, at(21))
    );
    let both = [first.unwrap(), second.unwrap()];
    assert!(both.contains(&EventErasure::Erased { attempts: 2 }), "{both:?}");
    assert!(both.contains(&EventErasure::Already { attempts: 0 }), "{both:?}");
    one.scrub_erased().await.unwrap();
    assert_eq!(rows_with_the_marker(&server, "erasing"), 0);
    assert_eq!(one.ledger(None).await.unwrap(), ledger);
    assert!(one.open_documents(DocumentKind::Erasure).await.unwrap().is_empty());
}
