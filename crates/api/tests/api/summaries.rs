//! `/v1/deliveries/due`, `/v1/deliveries/dead`, and the arrivals of `/v1/stats`

use postrider_domain::delivery::{DeadReason, Delivery, DeliveryState};
use postrider_domain::retry::{ScheduleClock, Slot};
use postrider_domain::time::Timestamp;
use postrider_store::{Commit, DeliveryChange, History as _, Upkeep as _, Work as _};
use serde_json::{Value, json};

use crate::support::{Api, id};

const NOW: i64 = 1_763_199_000_000;
const HOUR: i64 = 3_600_000;

fn at(ms: i64) -> Timestamp {
    Timestamp::from_unix_ms(NOW + ms)
}

/// A delivery of a tenant to `https://<tenant>.example.com/<path>`, in this state.
async fn delivery(api: &Api, tenant: &str, path: &str, state: DeliveryState) -> Value {
    // A subscription of its own, which is no twin of another one with this URL.
    let kind = format!("{path}.{}", api.store.ledger(None).await.unwrap().accepted);
    let body = json!({"url": format!("https://{tenant}.example.com/{path}"), "types": [kind]});
    api.post("/v1/subscriptions", body).tenant(tenant).expect(201).await;
    let event = json!({"type": kind, "data": 1});
    api.post("/v1/events", event).tenant(tenant).expect(202).await;
    api.idle().await;
    let list = api.get(&format!("/v1/deliveries?type={kind}&limit=1")).tenant(tenant);
    let shown = list.expect(200).await["data"][0].clone();
    let delivery = id(&shown).parse().unwrap();
    let found = api.store.delivery(&tenant.parse().unwrap(), delivery).await.unwrap().unwrap();
    let before = found.state.name();
    let change = DeliveryChange {
        before,
        by_job: None,
        delivery: Delivery { state, ..found },
        attempt: None,
    };
    let leases = api.store.hold_shards().await.unwrap();
    let commit = Commit { deliveries: vec![change], ..Commit::default() };
    api.store.settle(&leases, commit).await.unwrap();
    shown
}

fn due(ms: i64) -> DeliveryState {
    DeliveryState::Waiting(Slot::new(1, at(ms), ScheduleClock::starting_at(at(0))))
}

fn dead(ms: i64, reason: DeadReason) -> DeliveryState {
    DeliveryState::Dead { at: at(ms), reason }
}

#[tokio::test]
async fn retries_due_are_counted_by_the_hour_of_a_tenant_or_of_all() {
    let api = Api::new().await;
    for tenant in ["acme", "umbrella"] {
        api.tenant(tenant).await;
    }
    delivery(&api, "acme", "a", due(-1)).await;
    delivery(&api, "acme", "b", due(2 * HOUR)).await;
    delivery(&api, "umbrella", "c", due(2 * HOUR + 1)).await;
    delivery(&api, "umbrella", "d", due(50 * HOUR)).await;
    let show = async |tenant: &str| api.get("/v1/deliveries/due").tenant(tenant).expect(200).await;
    let count = |n: u64| json!({"count": n, "complete": true});
    let acme = show("acme").await;
    assert_eq!(
        (&acme["now"], &acme["complete"]),
        (&json!("2025-11-15T09:30:00.000Z"), &true.into())
    );
    assert_eq!((&acme["overdue"], &acme["later"]), (&count(1), &count(0)));
    assert_eq!(acme["hours"].as_array().unwrap().len(), 48);
    let third = |n: u64| json!({"at": "2025-11-15T11:30:00.000Z", "count": n, "complete": true});
    assert_eq!(acme["hours"][2], third(1));
    let all = show("*").await;
    assert_eq!(
        (&all["overdue"], &all["hours"][2], &all["later"]),
        (&count(1), &third(2), &count(1))
    );
    let key = api.key("umbrella", &["read"]).await;
    let own = api.get("/v1/deliveries/due").key(&key).expect(200).await;
    assert_eq!(
        (&own["overdue"], &own["hours"][2], &own["later"]),
        (&count(0), &third(1), &count(1))
    );
    let call = api.get("/v1/deliveries/due").key(&key).tenant("*");
    call.refused(403, "missing_scope", Some("postrider-tenant")).await;
    let key = api.key("umbrella", &["ingest"]).await;
    api.get("/v1/deliveries/due").key(&key).refused(403, "missing_scope", None).await;
}

#[tokio::test]
async fn dead_letters_are_grouped_by_destination_and_reason() {
    let api = Api::new().await;
    for tenant in ["acme", "umbrella"] {
        api.tenant(tenant).await;
    }
    let first = delivery(&api, "acme", "a", dead(1_000, DeadReason::Exhausted)).await;
    delivery(&api, "acme", "a", dead(3_000, DeadReason::Exhausted)).await;
    delivery(&api, "acme", "a", dead(2_000, DeadReason::NotAdmitted)).await;
    delivery(&api, "acme", "b", due(1)).await;
    let other = delivery(&api, "umbrella", "c", dead(4_000, DeadReason::NotAdmitted)).await;
    let show = async |query: &str, tenant: &str| {
        api.get(&format!("/v1/deliveries/dead{query}")).tenant(tenant).expect(200).await
    };
    let of_acme = show("", "acme").await;
    let largest = json!({
        "destination_id": first["destination_id"], "reason": "exhausted", "count": 2,
        "first_at": "2025-11-15T09:30:01.000Z", "last_at": "2025-11-15T09:30:03.000Z",
    });
    assert_eq!(of_acme["data"][0], largest);
    assert_eq!(of_acme["data"][1]["reason"], "not_admitted");
    assert_eq!(
        (&of_acme["groups"], &of_acme["counted"], &of_acme["complete"]),
        (&2.into(), &3.into(), &true.into())
    );
    let one = show("?limit=1", "acme").await;
    assert_eq!((&one["data"], &one["groups"]), (&json!([largest]), &2.into()));
    let all = show("", "*").await;
    assert_eq!((&all["groups"], &all["counted"]), (&3.into(), &4.into()));
    let all = all["data"].as_array().unwrap();
    assert_eq!(all[0]["tenant"], "acme");
    let of_umbrella = all.iter().find(|group| group["tenant"] == "umbrella").unwrap();
    assert_eq!(of_umbrella["destination_id"], other["destination_id"]);
    for bad in ["0", "1001", "x"] {
        let call = api.get(&format!("/v1/deliveries/dead?limit={bad}")).tenant("acme");
        call.refused(422, "invalid_field", Some("limit")).await;
    }
    let key = api.key("umbrella", &["read"]).await;
    let own = api.get("/v1/deliveries/dead").key(&key).expect(200).await;
    assert_eq!((&own["counted"], own["data"][0].get("tenant")), (&1.into(), None));
    let call = api.get("/v1/deliveries/dead").key(&key).tenant("*");
    call.refused(403, "missing_scope", Some("postrider-tenant")).await;
}

#[tokio::test]
async fn arrivals_are_those_of_the_tenant_or_for_admins_of_all() {
    let api = Api::new().await;
    api.tenant("acme").await;
    api.tenant("quiet").await;
    let show = async |path: &str, tenant: &str| {
        api.get(path).tenant(tenant).expect(200).await["arrivals"].clone()
    };
    let of_acme = json!({"count": 3, "p50_ms": 12, "p99_ms": 250});
    assert_eq!(show("/v1/stats", "acme").await, of_acme);
    assert_eq!(show("/v1/stats", "quiet").await, Value::Null);
    let of_all = json!({"count": 9, "p50_ms": 20, "p99_ms": 4_000});
    assert_eq!(show("/v1/stats?scope=all", "quiet").await, of_all);
}
