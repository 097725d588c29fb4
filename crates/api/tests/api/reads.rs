//! What is only looked at: `/v1/policy`, `/v1/config`, `/v1/server`, `/v1/simulate`.

use postrider_api::ApiSettings;
use postrider_domain::forecast::Work;
use serde_json::{Value, json};

use crate::support::Api;

#[tokio::test]
async fn policy_is_shown_to_every_tenant() {
    let api = Api::new().await;
    let key = api.key("default", &["read"]).await;
    let policy = api.get("/v1/policy").key(&key).expect(200).await;
    assert_eq!(policy["retry"]["unit_seconds"], 84.8);
    assert_eq!(policy["retry"]["max"], 11);
    assert_eq!(policy["retry"]["measured_from"], "first_attempt");
    let offsets = policy["retry"]["offsets_ms"].as_array().unwrap();
    assert_eq!((offsets.len(), &offsets[10]), (11, &json!(173_585_600)));
    assert_eq!(policy["circuit"]["disable_share"], 0.7);
    assert_eq!(policy["circuit"]["probe_interval_seconds"], 600.0);
    assert_eq!(policy["circuit"]["freeze_after_seconds"], 259_200.0);
    assert_eq!(policy["recovery"]["mode"], "slots");
    assert_eq!(policy["attempt"]["deadline_seconds"], 5.0);
    assert_eq!(policy["retention"]["finished_seconds"], 2_592_000.0);
}

#[tokio::test]
async fn configuration_is_for_admins_and_has_the_origin_of_each_value() {
    let api = Api::new().await;
    let config = api.get("/v1/config").expect(200).await;
    let expected = json!({
        "key": "admin_key", "value": "***", "origin": "env", "place": "environment variable X",
        "help": "what it is", "live": false,
    });
    assert_eq!(config["data"][1], expected);
    assert_eq!(config["data"][2]["value"], Value::Null);
    let key = api.key("default", &["read", "manage", "ingest"]).await;
    api.get("/v1/config").key(&key).refused(403, "missing_scope", None).await;
}

#[tokio::test]
async fn server_shows_lanes_disk_and_nodes_to_admins() {
    let api = Api::new().await;
    api.delivery("500").await;
    let server = api.get("/v1/server").expect(200).await;
    assert_eq!((&server["version"], &server["store"]), (&json!("0.0.0"), &json!("embedded")));
    assert_eq!(server["lanes"]["retry"]["depth"], 1);
    assert_eq!(server["lanes"]["retry"]["oldest_seconds"], Value::Null);
    assert_eq!(
        server["lanes"]["first"],
        json!({"depth": 0, "in_flight": 0, "oldest_seconds": null})
    );
    assert_eq!(server["mass_failure"], json!({"suspended": false, "suspended_since": null}));
    assert_eq!(server["disk"], json!({"free_bytes": 1, "total_bytes": 2, "data_bytes": 3}));
    let nodes = server["nodes"].as_array().unwrap();
    assert_eq!((nodes.len(), &nodes[0]["shards"]), (1, &json!(256)));
    let key = api.key("default", &["read", "manage", "ingest"]).await;
    api.get("/v1/server").key(&key).refused(403, "missing_scope", None).await;
}

#[tokio::test]
async fn outage_is_simulated_as_the_command_line_does() {
    let api = Api::new().await;
    let key = api.key("default", &["read"]).await;
    let body = json!({"outage_seconds": 3_600, "deliveries": 1, "healthy_before_seconds": 0});
    let answer = api.post("/v1/simulate", body).key(&key).expect(200).await;
    let names: Vec<_> = answer["plans"].as_array().unwrap().iter().map(|p| &p["name"]).collect();
    assert_eq!(names, ["default", "replay", "svix", "stripe"]);
    // The hour that the domain's tests calculate by hand.
    let plan = &answer["plans"][0];
    assert_eq!((&plan["late"], &plan["dead"]), (&json!(3_692), &json!(0)));
    assert_eq!(plan["recovered_at_seconds"], 6_405.4);
    let first = json!({"at_seconds": 92.0, "state": "disabled", "why": "failure_share"});
    assert_eq!(plan["timeline"][0], first);
    assert!(plan["samples"].as_array().unwrap().len() > 10);
    let body = json!({
        "outage_seconds": 3_600, "deliveries": 60, "per_seconds": 60,
        "policy": {"retry": {"max": 0}, "circuit": {"disable_consecutive": 5}},
        "presets": ["server"],
    });
    let answer = api.post("/v1/simulate", body).key(&key).expect(200).await;
    let names: Vec<_> = answer["plans"].as_array().unwrap().iter().map(|p| &p["name"]).collect();
    assert_eq!(names, ["yours", "server"]);
    assert!(answer["plans"][0]["dead"].as_u64() > Some(3_000), "{answer}");
}

#[tokio::test]
async fn simulation_that_is_too_large_or_makes_no_sense_is_refused() {
    // The threads that compute have the lowest priority, so on a busy machine the whole allowance takes
    // longer than the time limit of a request.
    let simulation_work = Work::limited(2_000, 500);
    let api = Api::with(ApiSettings { simulation_work, ..ApiSettings::default() }).await;
    let asked = |more: Value| {
        let mut body = json!({"outage_seconds": 3_600, "deliveries": 10});
        for (name, value) in more.as_object().unwrap() {
            body[name] = value.clone();
        }
        body
    };
    for (more, field) in [
        (json!({"outage_seconds": 0}), "outage_seconds"),
        (json!({"deliveries": 0}), "deliveries"),
        (json!({"deliveries": 2_000_000}), "deliveries"),
        (json!({"samples": 5}), "samples"),
        (json!({"presets": []}), "presets"),
        (json!({"presets": ["svix", "svix"]}), "presets[1]"),
        (json!({"policy": {"retry": {"max": 101}}}), "policy.retry.max"),
        (json!({"policy": {"retry": {"unit_seconds": -1}}}), "policy.retry.unit_seconds"),
        (json!({"policy": {"retry": {"jitter": 1.5}}}), "policy.retry.jitter"),
        (json!({"policy": {"circuit": {"disable_share": 7}}}), "policy.circuit.disable_share"),
    ] {
        let call = api.post("/v1/simulate", asked(more));
        call.refused(422, "invalid_field", Some(field)).await;
    }
    let unknown = asked(json!({"policy": {"retry": {"unit": 1}}}));
    let call = api.post("/v1/simulate", unknown);
    call.refused(422, "unknown_field", Some("policy.retry.unit")).await;
    let missing = json!({"deliveries": 10});
    api.post("/v1/simulate", missing).refused(422, "missing_field", Some("outage_seconds")).await;
    let endless = json!({
        "outage_seconds": 31_000_000, "deliveries": 1_000_000,
        "policy": {"circuit": {
            "disable_consecutive": u64::MAX, "disable_grace": u64::MAX, "freeze_consecutive": u64::MAX,
        }},
    });
    api.post("/v1/simulate", endless).refused(422, "too_much_work", None).await;
}
