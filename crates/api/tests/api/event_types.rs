//! `/v1/event-types` and `/v1/catalogue`

use postrider_api::ApiSettings;
use postrider_domain::catalogue::{Conduct, Conducts};
use postrider_engine::Quotas;
use serde_json::{Value, json};

use crate::support::{Api, id};

fn task() -> Value {
    json!({
        "name": "task.updated",
        "description": "A task has changed.",
        "schema": {
            "type": "object",
            "required": ["status"],
            "properties": {
                "status": {"enum": ["NEW", "CUR"]},
                "lines": {"type": "array", "items": {"properties": {"n": {"type": "integer"}}}},
            },
        },
        "example": {"status": "NEW"},
    })
}

fn event(data: &Value) -> Value {
    json!({"type": "task.updated", "data": data})
}

async fn conduct(api: &Api, unknown_types: &str, misfits: &str) {
    let body = json!({"unknown_types": unknown_types, "misfits": misfits});
    api.patch("/v1/catalogue", body).expect(200).await;
}

#[tokio::test]
async fn event_type_is_created_listed_changed_and_deleted() {
    let api = Api::new().await;
    let made = api.post("/v1/event-types", task()).expect(201).await;
    assert_eq!((&made["id"], &made["scope"]), (&json!("task.updated"), &json!("tenant")));
    assert_eq!(made["schema"], task()["schema"]);
    let path = "/v1/event-types/task.updated";
    assert_eq!(api.get(path).expect(200).await, made);
    let again = api.post("/v1/event-types", task());
    let problem = again.refused(409, "already_exists", Some("name")).await;
    assert_eq!(problem["existing_id"], "task.updated");
    api.clock.advance(std::time::Duration::from_secs(1));
    let change = json!({"deprecated": true, "description": null, "example": {"status": "CUR"}});
    let changed = api.patch(path, change).expect(200).await;
    assert_eq!(changed["deprecated"], true);
    assert_eq!((&changed["description"], &changed["schema"]), (&Value::Null, &made["schema"]));
    assert_ne!(changed["updated_at"], changed["created_at"]);
    let bad = api.patch(path, json!({"example": {"status": "OLD"}}));
    let problem = bad.refused(422, "invalid_field", Some("example")).await;
    assert_eq!(problem["pointer"], "/status");
    let list = api.get("/v1/event-types").expect(200).await;
    assert_eq!(list, json!({"data": [changed], "next_cursor": null}));
    api.delete(path).expect(204).await;
    api.delete(path).refused(404, "not_found", None).await;
    api.get(path).refused(404, "not_found", None).await;
}

#[tokio::test]
async fn bad_event_types_are_refused_with_their_place() {
    let api = Api::new().await;
    for (body, code, field) in [
        (json!({}), "missing_field", "name"),
        (json!({"name": "a b"}), "invalid_field", "name"),
        (json!({"name": "postrider.mine"}), "reserved_type", "name"),
        (json!({"name": "a", "schema": {"type": "strong"}}), "invalid_field", "schema"),
        (json!({"name": "a", "schema": {"$ref": "http://169.254.169.254/"}}), "invalid_field", {
            "schema"
        }),
        (json!({"name": "a", "schema": {"$ref": "file:///etc/passwd"}}), "invalid_field", "schema"),
        (json!({"name": "a", "schema": 7}), "invalid_field", "schema"),
        (json!({"name": "a", "schema": {"pattern": "("}}), "invalid_field", "schema"),
        (json!({"name": "a", "schema": {"type": "string"}, "example": 1}), "invalid_field", {
            "example"
        }),
        (json!({"name": "a", "description": "x".repeat(2_001)}), "invalid_field", "description"),
        (json!({"name": "a", "example": "x".repeat(70_000)}), "invalid_field", "example"),
        (json!({"name": "a", "scope": "world"}), "invalid_field", "scope"),
        (json!({"name": "a", "shema": {}}), "unknown_field", "shema"),
    ] {
        api.post("/v1/event-types", body).refused(422, code, Some(field)).await;
    }
    let doubled = |levels: usize| {
        let mut definitions = serde_json::Map::new();
        for level in 0..levels {
            let next = json!({"$ref": format!("#/$defs/d{}", level + 1)});
            definitions.insert(format!("d{level}"), json!({"anyOf": [next, next]}));
        }
        definitions.insert(format!("d{levels}"), json!({"type": "string"}));
        json!({"name": "a", "schema": {"$ref": "#/$defs/d0", "$defs": definitions}})
    };
    let problem = api.post("/v1/event-types", doubled(25));
    problem.refused(422, "invalid_field", Some("schema")).await;
}

#[tokio::test]
async fn servers_types_hold_for_all_tenants_and_a_tenants_own_over_them() {
    let api = Api::new().await;
    api.tenant("acme").await;
    let key = api.key("acme", &["read", "manage", "ingest"]).await;
    let mut body = json!({"name": "a.b", "description": "the server's", "scope": "server"});
    api.post("/v1/event-types", body.clone()).key(&key).refused(403, "missing_scope", None).await;
    api.post("/v1/event-types", body.clone()).expect(201).await;
    let shown = api.get("/v1/event-types/a.b").key(&key).expect(200).await;
    assert_eq!(
        (&shown["scope"], &shown["description"]),
        (&json!("server"), &json!("the server's"))
    );
    api.delete("/v1/event-types/a.b").key(&key).refused(404, "not_found", None).await;
    let of_server = "/v1/event-types/a.b?scope=server";
    api.delete(of_server).key(&key).refused(403, "missing_scope", None).await;
    body = json!({"name": "a.b", "description": "own"});
    api.post("/v1/event-types", body).key(&key).expect(201).await;
    api.post("/v1/event-types", json!({"name": "a.a"})).key(&key).expect(201).await;
    let names = async |query: &str| {
        let list = api.get(&format!("/v1/event-types{query}")).key(&key).expect(200).await;
        let one = |one: &Value| format!("{} {}", one["name"], one["scope"]).replace('"', "");
        list["data"].as_array().unwrap().iter().map(one).collect::<Vec<_>>()
    };
    assert_eq!(names("").await, ["a.a tenant", "a.b tenant"]);
    assert_eq!(names("?scope=server").await, ["a.b server"]);
    assert_eq!(names("?scope=tenant").await, ["a.a tenant", "a.b tenant"]);
    let first = api.get("/v1/event-types?limit=1").key(&key).expect(200).await;
    let cursor = first["next_cursor"].as_str().unwrap();
    assert_eq!(names(&format!("?limit=1&cursor={cursor}")).await, ["a.b tenant"]);
    assert_eq!(api.get(of_server).expect(200).await["description"], "the server's");
    let changed = api.patch(of_server, json!({"deprecated": true})).expect(200).await;
    assert_eq!(changed["scope"], "server");
    api.delete(of_server).expect(204).await;
    assert_eq!(names("").await, ["a.a tenant", "a.b tenant"], "its own stay");
}

#[tokio::test]
async fn nothing_is_checked_unless_somebody_asks_for_it() {
    let api = Api::new().await;
    api.post("/v1/event-types", task()).expect(201).await;
    let accepted = api.post("/v1/events", event(&json!({"status": 7}))).expect(202).await;
    let shown = api.get(&format!("/v1/events/{}", id(&accepted))).expect(200).await;
    assert_eq!(shown["flagged"], Value::Null);
    let catalogue = api.get("/v1/catalogue").expect(200).await;
    let own = json!({"unknown_types": null, "misfits": null});
    assert_eq!(catalogue, json!({"unknown_types": "accept", "misfits": "accept", "own": own}));
}

#[tokio::test]
async fn events_that_do_not_fit_are_flagged_and_delivered() {
    let api = Api::new().await;
    api.post("/v1/event-types", task()).expect(201).await;
    conduct(&api, "flag", "flag").await;
    api.subscribe("200").await;
    let flagged = async |body: Value| {
        api.clock.advance(std::time::Duration::from_millis(1));
        let accepted = api.post("/v1/events", body).expect(202).await;
        assert_eq!(accepted["deliveries"], 1);
        let shown = api.get(&format!("/v1/events/{}", id(&accepted))).expect(200).await;
        let list = api.get("/v1/events?limit=1").expect(200).await;
        assert_eq!(list["data"][0]["flagged"], shown["flagged"]);
        shown["flagged"].clone()
    };
    assert_eq!(flagged(event(&json!({"status": "NEW"}))).await, Value::Null);
    let wrong = flagged(event(&json!({"status": "NEW", "lines": [{"n": "kanarienvogel"}]}))).await;
    assert_eq!((&wrong["reason"], &wrong["pointer"]), (&json!("payload"), &json!("/lines/0/n")));
    assert!(!wrong.to_string().contains("kanarienvogel"), "{wrong}");
    let unknown = flagged(json!({"type": "task.created", "data": 1})).await;
    assert_eq!((&unknown["reason"], &unknown["pointer"]), (&json!("unknown_type"), &Value::Null));
    let counts = api.engine.misfits();
    assert_eq!((counts.flagged, counts.refused), (2, 0));
}

#[tokio::test]
async fn events_that_do_not_fit_are_refused_with_the_place() {
    let api = Api::new().await;
    api.post("/v1/event-types", task()).expect(201).await;
    conduct(&api, "refuse", "refuse").await;
    let wrong = event(&json!({"status": "CUR", "lines": [{"n": 1}, {"n": "x"}]}));
    let problem = api.post("/v1/events", wrong.clone());
    let problem = problem.refused(422, "payload_misfit", Some("data.lines[1].n")).await;
    assert_eq!(problem["pointer"], "/lines/1/n");
    let unknown = api.post("/v1/events", json!({"type": "task.closed", "data": 1}));
    unknown.refused(422, "unknown_event_type", Some("type")).await;
    let batch = json!([event(&json!({"status": "NEW"})), wrong]);
    let batch = api.post("/v1/events/batch", batch);
    batch.refused(422, "payload_misfit", Some("[1].data.lines[1].n")).await;
    let list = api.get("/v1/events").expect(200).await;
    assert_eq!(list["data"], json!([]), "nothing of a batch is accepted");
    assert_eq!(api.engine.misfits().refused, 3);
    let own = api.patch("/v1/catalogue", json!({"misfits": null})).expect(200).await;
    assert_eq!((&own["misfits"], &own["unknown_types"]), (&json!("accept"), &json!("refuse")));
    api.post("/v1/events", event(&json!(7))).expect(202).await;
}

#[tokio::test]
async fn servers_setting_holds_where_a_tenant_has_made_no_choice() {
    let conducts = Conducts { unknown_types: Conduct::Refuse, misfits: Conduct::Flag };
    let api = Api::with(ApiSettings { conducts, ..ApiSettings::default() }).await;
    let unknown = json!({"type": "x", "data": 1});
    api.post("/v1/events", unknown.clone()).refused(422, "unknown_event_type", Some("type")).await;
    api.patch("/v1/catalogue", json!({"unknown_types": "accept"})).expect(200).await;
    api.post("/v1/events", unknown).expect(202).await;
}

#[tokio::test]
async fn repeat_of_an_accepted_event_is_a_duplicate_whatever_the_schema_says_by_now() {
    let api = Api::new().await;
    let mut body = event(&json!({"status": "OLD"}));
    body["id"] = json!("e1");
    api.post("/v1/events", body.clone()).expect(202).await;
    api.post("/v1/event-types", task()).expect(201).await;
    conduct(&api, "refuse", "refuse").await;
    let repeat = api.post("/v1/events", body.clone()).expect(202).await;
    assert_eq!(repeat["duplicate"], true);
    body["id"] = json!("e2");
    api.post("/v1/events", body).refused(422, "payload_misfit", Some("data.status")).await;
    let shown = api.get("/v1/events/e1").expect(200).await;
    assert_eq!(shown["flagged"], Value::Null, "it is not judged again");
}

#[tokio::test]
async fn event_that_is_too_large_for_its_schema_is_not_validated() {
    let api = Api::new().await;
    let heavy = json!({"name": "heavy", "schema": {"items": {"anyOf":
        (0..15).map(|n| json!({"pattern": format!("^{n}")})).collect::<Vec<_>>()
    }}});
    api.post("/v1/event-types", heavy).expect(201).await;
    conduct(&api, "accept", "flag").await;
    let data = json!(vec!["x".repeat(60); 10_000]);
    let accepted = api.post("/v1/events", json!({"type": "heavy", "data": data})).expect(202).await;
    let shown = api.get(&format!("/v1/events/{}", id(&accepted))).expect(200).await;
    assert_eq!(shown["flagged"]["reason"], "too_much_work");
}

#[tokio::test]
async fn catalogue_has_limits() {
    let quotas =
        Quotas { tenant_event_types: 2, tenant_event_type_bytes: 2_000, ..Quotas::default() };
    let api = Api::with_quotas(quotas).await;
    let add = |name: &str| api.post("/v1/event-types", json!({"name": name}));
    add("a").expect(201).await;
    let large = json!({"name": "b", "example": "x".repeat(3_000)});
    api.post("/v1/event-types", large).refused(429, "quota_reached", None).await;
    add("b").expect(201).await;
    add("c").refused(429, "quota_reached", None).await;
    let large = api.patch("/v1/event-types/a", json!({"example": "x".repeat(3_000)}));
    large.refused(429, "quota_reached", None).await;
    let limits = api.get("/v1/limits").expect(200).await;
    let of = |name: &str| {
        let all = limits["data"].as_array().unwrap();
        all.iter().find(|one| one["name"] == name).unwrap()["used"].clone()
    };
    assert_eq!((of("event_types"), of("erasures_open")), (json!(2), json!(0)));
    api.delete("/v1/event-types/a").expect(204).await;
    add("c").expect(201).await;
}

#[tokio::test]
async fn changes_of_the_catalogue_are_in_the_audit_log() {
    let api = Api::new().await;
    api.post("/v1/event-types", task()).expect(201).await;
    conduct(&api, "flag", "flag").await;
    api.delete("/v1/event-types/task.updated").expect(204).await;
    let log = api.get("/v1/audit").expect(200).await;
    let entry = |one: &Value| format!("{} {}", one["action"], one["target"]).replace('"', "");
    let log: Vec<String> = log["data"].as_array().unwrap().iter().map(entry).collect();
    for expected in [
        "event_type.delete task.updated",
        "catalogue.change null",
        "event_type.create task.updated",
    ] {
        assert!(log.iter().any(|entry| entry == expected), "{expected} in {log:?}");
    }
}
