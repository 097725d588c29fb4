//! Lists of deliveries are read from an index, in its order, for every combination of filters.

use postrider_domain::delivery::{Delivery, DeliveryState, StateName};
use postrider_store::{Commit, DeliveryChange, DeliveryFilter, Intake, PageRequest, Upkeep, Work};
use postrider_store_testing::samples::{
    acceptance, acme, at, destination, event, kind, subscription_id,
};

use crate::nodes::node;
use crate::server;

#[tokio::test]
async fn every_combination_of_filters_is_read_in_the_order_of_an_index() {
    let server = server::shared();
    let url = server.database("plans");
    let store = node(&url, "one").await;
    let mut changes = Vec::new();
    for n in 0..400 {
        let new = acceptance(event(&acme(), &format!("e{n}")), at(n), &[(n, n % 7)]);
        let delivery = new.deliveries[0].clone();
        if n % 3 != 0 {
            let state = DeliveryState::Delivered { at: at(n) };
            let (before, attempt) = (StateName::Queued, None);
            let delivery = Delivery { state, ..delivery };
            changes.push(DeliveryChange { before, by_job: None, delivery, attempt });
        }
        store.accept(vec![new]).await.unwrap();
    }
    let leases = store.hold_shards().await.unwrap();
    let commit = Commit { deliveries: changes, ..Commit::default() };
    store.settle(&leases, commit).await.unwrap();
    server.sql("plans", "ANALYZE postrider.deliveries_open; ANALYZE postrider.deliveries_done");
    let states = [None, Some(StateName::Queued), Some(StateName::Waiting)]
        .into_iter()
        .chain([StateName::Delivered, StateName::Dead, StateName::Cancelled].map(Some));
    let page = PageRequest { limit: 50, cursor: None };
    for state in states {
        for given in 0..32u32 {
            let has = |bit: u32| given & (1 << bit) != 0;
            let filter = DeliveryFilter {
                state,
                destination: has(0).then(|| destination(&acme(), 1).id),
                subscription: has(1).then(|| subscription_id(1)),
                kind: has(2).then(|| kind("task.updated")),
                since: has(3).then(|| at(5)),
                until: has(3).then(|| at(300)),
                event: has(4).then(|| "e8".parse().unwrap()),
                ended_since: None,
            };
            let plan = store.plan_of_list(&acme(), &filter, &page).await.unwrap();
            assert!(!plan.contains("Seq Scan") && !plan.contains("Bitmap"), "{filter:?}\n{plan}");
            // The parts of a list, each of at most one page, may be sorted together; the rows
            // within a part must come in the order of an index.
            let inner = plan.lines().filter(|line| line.starts_with("   "));
            let sorts = inner.filter(|line| line.trim_start().starts_with("->  Sort"));
            assert_eq!(sorts.count(), 0, "{filter:?}\n{plan}");
        }
    }
}
