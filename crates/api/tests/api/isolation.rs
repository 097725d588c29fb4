//! No tenant sees or changes records of another: a foreign id is answered exactly like an unknown
//! one.

use serde_json::{Value, json};

use crate::support::{Api, document, id};

/// Records of another tenant, by the prefix of their ids.
async fn foreign(api: &Api) -> Vec<(&'static str, String)> {
    api.tenant("acme").await;
    let body = json!({"url": "https://hooks.example.com/500", "types": ["*"]});
    let subscription = api.post("/v1/subscriptions", body).tenant("acme").expect(201).await;
    let event = json!({"type": "a", "data": 1, "id": "evt_foreign"});
    api.post("/v1/events", event).tenant("acme").expect(202).await;
    api.idle().await;
    let deliveries = api.get("/v1/deliveries").tenant("acme").expect(200).await;
    let replay = api.post("/v1/replays", json!({"per_second": 1})).tenant("acme");
    let replay = replay.expect(201).await;
    let kind = json!({"name": "acme_type.made"});
    api.post("/v1/event-types", kind).tenant("acme").expect(201).await;
    let erasure = api.post("/v1/erasures", json!({"object": "o"})).tenant("acme").expect(202).await;
    vec![
        ("/v1/event-types/", "acme_type.made".to_owned()),
        ("/v1/erasures/", id(&erasure)),
        ("/v1/events/", "evt_foreign".to_owned()),
        ("/v1/subscriptions/", id(&subscription)),
        ("/v1/destinations/", subscription["destination_id"].as_str().unwrap().to_owned()),
        ("/v1/deliveries/", id(&deliveries["data"][0])),
        ("/v1/replays/", id(&replay)),
    ]
}

/// An unused id of the same kind.
fn unknown(id: &str) -> String {
    let (prefix, rest) = id.split_once('_').unwrap();
    let rest: String = rest.chars().map(|c| if c == '0' { '1' } else { '0' }).collect();
    format!("{prefix}_{rest}")
}

#[tokio::test]
async fn every_route_answers_a_foreign_id_as_an_unknown_one() {
    let api = Api::new().await;
    let foreign = foreign(&api).await;
    let before = everything(&api, "acme").await;
    let key = api.key("default", &["read", "manage", "ingest"]).await;
    let mut routes = 0;
    for (path, item) in document()["paths"].as_object().unwrap() {
        let Some((_, id)) = foreign.iter().find(|(head, _)| path.starts_with(head)) else {
            continue;
        };
        if !path.contains("{id}") {
            continue;
        }
        for method in ["GET", "POST", "PATCH", "DELETE"] {
            if item.get(method.to_lowercase()).is_none() {
                continue;
            }
            let ask = async |id: &str| {
                let mut call = api.call(method, &path.replace("{id}", id)).key(&key);
                if method == "PATCH" && path.starts_with("/v1/event-types/") {
                    call = call.json(json!({"deprecated": true}));
                } else if method == "PATCH" {
                    call = call.json(json!({"enabled": false}));
                }
                let answer = call.send().await;
                let headers = format!("{:?}", answer.headers);
                (answer.status.as_u16(), answer.text.replace(id, "[id]"), headers)
            };
            let of_foreign = ask(id).await;
            assert_eq!(of_foreign.0, 404, "{method} {path}");
            assert_eq!(of_foreign, ask(&unknown(id)).await, "{method} {path}");
            routes += 1;
        }
    }
    assert_eq!(routes, 27, "a new route must be listed in `foreign`");
    assert_eq!(everything(&api, "acme").await, before, "nothing was changed");
}

/// Everything that a tenant can see.
async fn everything(api: &Api, tenant: &str) -> Vec<Value> {
    let mut seen = Vec::new();
    for path in ["events", "subscriptions", "destinations", "deliveries", "replays", "ledger"] {
        seen.push(api.get(&format!("/v1/{path}")).tenant(tenant).expect(200).await);
    }
    seen
}

#[tokio::test]
async fn lists_and_filters_have_nothing_of_others() {
    let api = Api::new().await;
    let foreign = foreign(&api).await;
    let key = api.key("default", &["read", "manage"]).await;
    let lists = ["events", "subscriptions", "destinations", "deliveries", "replays"];
    for path in lists.into_iter().chain(["event-types", "erasures"]) {
        let list = api.get(&format!("/v1/{path}")).key(&key).expect(200).await;
        assert_eq!(list["data"], json!([]), "{path}");
    }
    for (head, name) in [
        ("/v1/events/", "event"),
        ("/v1/subscriptions/", "subscription"),
        ("/v1/destinations/", "destination"),
    ] {
        let id = &foreign.iter().find(|(known, _)| *known == head).unwrap().1;
        let list = api.get(&format!("/v1/deliveries?{name}={id}")).key(&key).expect(200).await;
        assert_eq!(list["data"], json!([]), "{name}");
        if name != "event" {
            let wish = json!({name: id, "dry_run": true, "state": "dead"});
            let counted = api.post("/v1/replays", wish).key(&key).expect(200).await;
            assert_eq!(counted["total"], 0);
        }
    }
}

#[tokio::test]
async fn the_same_url_and_the_same_event_id_are_two_things_in_two_tenants() {
    let api = Api::new().await;
    foreign(&api).await;
    let body = json!({"url": "https://hooks.example.com/500", "types": ["*"]});
    let own = api.post("/v1/subscriptions", body).expect(201).await;
    let event = json!({"type": "a", "data": 2, "id": "evt_foreign"});
    let accepted = api.post("/v1/events", event).expect(202).await;
    assert_eq!(accepted, json!({"id": "evt_foreign", "deliveries": 1}));
    api.idle().await;
    let path = format!("/v1/destinations/{}", own["destination_id"].as_str().unwrap());
    assert_eq!(api.get(&path).expect(200).await["failures"], 1, "never shared");
}
