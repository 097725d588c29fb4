//! Names, descriptions, metadata and the application's own identifiers; lists by object; destinations that nothing
//! uses.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Api, id};

const URL: &str = "https://hooks.example.com/in";

fn described() -> Value {
    json!({
        "url": URL, "types": ["task.*"], "name": "Orders", "description": "Into the warehouse",
        "metadata": {"team": "blue"}, "uid": "warehouse-7"
    })
}

fn ids(list: &Value) -> Vec<String> {
    list["data"].as_array().unwrap().iter().map(id).collect()
}

#[tokio::test]
async fn subscription_shows_what_describes_it_and_is_changed_by_its_uid() {
    let api = Api::new().await;
    let created = api.post("/v1/subscriptions", described()).expect(201).await;
    for (field, value) in [
        ("name", json!("Orders")),
        ("description", json!("Into the warehouse")),
        ("metadata", json!({"team": "blue"})),
        ("uid", json!("warehouse-7")),
    ] {
        assert_eq!(created[field], value, "{field}");
    }
    let by_uid = api.get("/v1/subscriptions/warehouse-7").expect(200).await;
    assert_eq!(id(&by_uid), id(&created));
    let change = json!({"name": null, "metadata": {"team": "red"}});
    let changed = api.patch("/v1/subscriptions/warehouse-7", change).expect(200).await;
    assert_eq!(changed["name"], Value::Null);
    assert_eq!(changed["metadata"], json!({"team": "red"}));
    assert_eq!(changed["description"], "Into the warehouse");
    api.post("/v1/subscriptions/warehouse-7/secret/rotate", json!({})).expect(200).await;
    let tested = api.post("/v1/subscriptions/warehouse-7/test", json!({})).expect(200).await;
    assert_eq!(tested["subscription_id"], created["id"]);
    api.delete("/v1/subscriptions/warehouse-7").expect(204).await;
    api.get("/v1/subscriptions/warehouse-7").refused(404, "not_found", None).await;
}

#[tokio::test]
async fn creating_again_with_the_same_uid_and_body_answers_the_existing_one_without_its_secret() {
    let api = Api::new().await;
    let created = api.post("/v1/subscriptions", described()).expect(201).await;
    let again = api.post("/v1/subscriptions", described()).expect(200).await;
    assert_eq!(id(&again), id(&created));
    assert_eq!(again.get("secret"), None);
    let mut other = described();
    other["types"] = json!(["note.*"]);
    other["auth_token"] = json!("0123456789abcdef");
    let call = api.post("/v1/subscriptions", other);
    let problem = call.refused(409, "uid_taken", Some("uid")).await;
    assert_eq!(problem["existing_id"], created["id"]);
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("another types, auth_token: change it with PATCH"), "{detail}");
    assert!(!detail.contains("0123456789abcdef"));
    // With the secret that it has it is the same; with another one it is not.
    let mut same = described();
    same["secret"] = created["secret"].clone();
    assert_eq!(id(&api.post("/v1/subscriptions", same).expect(200).await), id(&created));
    let mut other = described();
    other["secret"] = json!("whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=");
    let problem = api.post("/v1/subscriptions", other).refused(409, "uid_taken", Some("uid")).await;
    assert!(problem["detail"].as_str().unwrap().contains("another secret"), "{problem}");
    assert_eq!(ids(&api.get("/v1/subscriptions").expect(200).await).len(), 1);
}

#[tokio::test]
async fn uid_of_another_tenant_is_unknown_and_free() {
    let api = Api::new().await;
    api.tenant("acme").await;
    api.post("/v1/subscriptions", described()).tenant("acme").expect(201).await;
    let key = api.key("default", &["read", "manage"]).await;
    let path = "/v1/subscriptions/warehouse-7";
    api.get(path).key(&key).refused(404, "not_found", None).await;
    api.delete(path).key(&key).refused(404, "not_found", None).await;
    let list = api.get("/v1/subscriptions?uid=warehouse-7").key(&key).expect(200).await;
    assert_eq!(list["data"], json!([]));
    let call = api.get("/v1/deliveries?subscription=warehouse-7").key(&key);
    call.refused(422, "invalid_field", Some("subscription")).await;
    let call = api.post("/v1/replays", json!({"subscription": "warehouse-7"})).key(&key);
    call.refused(422, "invalid_field", Some("subscription")).await;
    api.post("/v1/subscriptions", described()).key(&key).expect(201).await;
}

#[tokio::test]
async fn uid_that_another_subscription_has_is_refused_in_a_change() {
    let api = Api::new().await;
    let first = api.post("/v1/subscriptions", described()).expect(201).await;
    let body = json!({"url": URL, "types": ["note.*"]});
    let second = api.post("/v1/subscriptions", body).expect(201).await;
    let path = format!("/v1/subscriptions/{}", id(&second));
    let call = api.patch(&path, json!({"uid": "warehouse-7"}));
    let problem = call.refused(409, "uid_taken", Some("uid")).await;
    assert_eq!(problem["existing_id"], first["id"]);
    api.patch("/v1/subscriptions/warehouse-7", json!({"uid": null})).expect(200).await;
    api.patch(&path, json!({"uid": "warehouse-7"})).expect(200).await;
}

#[tokio::test]
async fn what_describes_a_subscription_is_limited() {
    let api = Api::new().await;
    let many: Value =
        (0..51).map(|n| (format!("k{n}"), json!("v"))).collect::<serde_json::Map<_, _>>().into();
    for (field, value) in [
        ("name", json!("x".repeat(101))),
        ("name", json!("a\nb")),
        ("description", json!("x".repeat(1001))),
        ("metadata", json!({"a b": "1"})),
        ("metadata", json!({"a": "x".repeat(501)})),
        ("metadata", many),
        ("uid", json!("sub_1")),
        ("uid", json!("a/b")),
        ("uid", json!("")),
    ] {
        let mut body = json!({"url": URL, "types": ["*"]});
        body[field] = value;
        api.post("/v1/subscriptions", body).refused(422, "invalid_field", Some(field)).await;
    }
    let body = json!({"url": URL, "types": ["*"], "metadata": {"a": 1}});
    api.post("/v1/subscriptions", body).expect(422).await;
}

#[tokio::test]
async fn subscriptions_are_found_by_text_metadata_uid_and_destination() {
    let api = Api::new().await;
    let first = api.post("/v1/subscriptions", described()).expect(201).await;
    // Within a millisecond the order is by random parts of the identifiers.
    api.clock.advance(Duration::from_millis(2));
    let body = json!({"url": "https://other.example.com/", "types": ["*"], "name": "Blue notes"});
    let second = api.post("/v1/subscriptions", body).expect(201).await;
    let find =
        async |query: &str| ids(&api.get(&format!("/v1/subscriptions?{query}")).expect(200).await);
    assert_eq!(find("q=blue").await, [id(&second), id(&first)]);
    assert_eq!(find("q=WAREHOUSE").await, [id(&first)]);
    assert_eq!(find("q=other.example").await, [id(&second)]);
    assert_eq!(find("metadata=team:blue").await, [id(&first)]);
    assert_eq!(find("metadata=team:red").await, [""; 0]);
    assert_eq!(find("uid=warehouse-7").await, [id(&first)]);
    assert_eq!(find("uid=warehouse-7&q=nothing").await, [""; 0]);
    let to = second["destination_id"].as_str().unwrap();
    assert_eq!(find(&format!("destination={to}&q=notes")).await, [id(&second)]);
    let page = api.get("/v1/subscriptions?q=blue&limit=1").expect(200).await;
    assert_eq!(ids(&page), [id(&second)]);
    let cursor = page["next_cursor"].as_str().unwrap();
    let rest =
        api.get(&format!("/v1/subscriptions?q=blue&limit=1&cursor={cursor}")).expect(200).await;
    assert_eq!((ids(&rest), &rest["next_cursor"]), (vec![id(&first)], &Value::Null));
    api.get("/v1/subscriptions?metadata=team")
        .refused(422, "invalid_field", Some("metadata"))
        .await;
}

#[tokio::test]
async fn events_and_deliveries_are_listed_by_object_and_deliveries_by_uid() {
    let api = Api::new().await;
    api.post("/v1/subscriptions", described()).expect(201).await;
    for (name, object) in [("a", "T 1"), ("b", "T 2"), ("c", "T 1")] {
        let event = json!({"type": "task.made", "data": 1, "id": name, "object": object});
        api.post("/v1/events", event).expect(202).await;
    }
    api.idle().await;
    let events = api.get("/v1/events?object=T%201").expect(200).await;
    assert_eq!(ids(&events), ["c", "a"]);
    let of = async |query: &str| {
        let list = api.get(&format!("/v1/deliveries?{query}")).expect(200).await;
        let all = list["data"].as_array().unwrap().clone();
        let mut all: Vec<String> =
            all.iter().map(|one| one["event_id"].as_str().unwrap().to_owned()).collect();
        all.sort();
        all.join(" ")
    };
    assert_eq!(of("object=T%201").await, "a c");
    assert_eq!(of("object=T%201&state=delivered").await, "a c");
    assert_eq!(of("object=T%201&state=dead").await, "");
    assert_eq!(of("object=T%203").await, "");
    assert_eq!(of("subscription=warehouse-7").await, "a b c");
    let call = api.get("/v1/deliveries?object=T%201&state=in_flight");
    call.refused(422, "invalid_field", Some("object")).await;
    api.tenant("acme").await;
    let foreign = api.get("/v1/deliveries?object=T%201").tenant("acme").expect(200).await;
    assert_eq!(foreign["data"], json!([]));
}

#[tokio::test]
async fn destination_of_a_deleted_subscription_leaves_the_list_and_is_frozen_when_it_comes_back() {
    let api = Api::new().await;
    let created = api.post("/v1/subscriptions", described()).expect(201).await;
    let place = format!("/v1/destinations/{}", created["destination_id"].as_str().unwrap());
    api.post(&format!("{place}/freeze"), json!({})).expect(200).await;
    api.delete("/v1/subscriptions/warehouse-7").expect(204).await;
    api.until(async |api| api.get("/v1/destinations").expect(200).await["data"] == json!([])).await;
    assert_eq!(api.get(&place).expect(200).await["state"], "frozen");
    api.post("/v1/subscriptions", described()).expect(201).await;
    let list = api.get("/v1/destinations").expect(200).await;
    assert_eq!(list["data"][0]["state"], "frozen");
    assert_eq!(ids(&api.get("/v1/destinations?state=failing").expect(200).await).len(), 1);
    assert_eq!(ids(&api.get("/v1/destinations?state=enabled").expect(200).await).len(), 0);
}
