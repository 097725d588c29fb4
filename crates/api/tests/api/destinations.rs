//! `/v1/destinations`

use insta::assert_json_snapshot;
use serde_json::json;

use crate::support::{Api, id};

#[tokio::test]
async fn a_destination_shows_its_counters_and_how_near_each_threshold_is() {
    let api = Api::new().await;
    api.delivery("500").await;
    let list = api.get("/v1/destinations").expect(200).await;
    assert_json_snapshot!(list, {".data[].id" => "[id]"});
    let shown = api.get(&format!("/v1/destinations/{}", id(&list["data"][0]))).expect(200).await;
    assert_eq!(shown, list["data"][0]);
}

#[tokio::test]
async fn freezing_and_enabling_by_hand_stand_in_the_timeline() {
    let api = Api::new().await;
    let delivery = api.delivery("500").await;
    let path = format!("/v1/destinations/{}", delivery["destination_id"].as_str().unwrap());
    let frozen = api.post(&format!("{path}/freeze"), json!({"reason": "moving house"}));
    let frozen = frozen.expect(200).await;
    assert_eq!(frozen["state"], "frozen");
    assert_eq!(frozen["reason"], "by hand: moving house");
    assert_eq!(frozen["frozen_at"], "2025-11-15T09:30:00.000Z");
    let enabled = api.call("POST", &format!("{path}/enable")).expect(200).await;
    assert_eq!((&enabled["state"], &enabled["failures"]), (&json!("enabled"), &json!(0)));
    api.until(async |api| {
        let timeline = api.get(&format!("{path}/timeline")).expect(200).await;
        timeline["data"].as_array().unwrap().len() == 2
    })
    .await;
    assert_json_snapshot!(api.get(&format!("{path}/timeline")).expect(200).await);
    let long = json!({"reason": "x".repeat(501)});
    let call = api.post(&format!("{path}/freeze"), long);
    call.refused(422, "invalid_field", Some("reason")).await;
    let unknown = api.post(&format!("{path}/freeze"), json!({"why": "x"}));
    unknown.refused(422, "unknown_field", Some("why")).await;
}

#[tokio::test]
async fn a_disabled_destination_says_why_and_when_it_is_probed() {
    let api = Api::new().await;
    let subscription = api.subscribe("500").await;
    let batch: Vec<_> = (0..101).map(|n| json!({"type": "task.a", "data": n})).collect();
    api.post("/v1/events/batch", json!(batch)).expect(202).await;
    let path = format!("/v1/destinations/{}", subscription["destination_id"].as_str().unwrap());
    api.until(async |api| api.get(&path).expect(200).await["state"] == "disabled").await;
    api.idle().await;
    let shown = api.get(&path).expect(200).await;
    assert_json_snapshot!(shown, {".id" => "[id]"});
}

#[tokio::test]
async fn enabling_drains_what_waits_and_replays_what_died() {
    let api = Api::new().await;
    let delivery = api.delivery("500").await;
    let path = format!("/v1/destinations/{}/enable", delivery["destination_id"].as_str().unwrap());
    for (body, field) in
        [(json!({"waiting": "later"}), "waiting"), (json!({"dead_since": "friday"}), "dead_since")]
    {
        api.post(&path, body).refused(422, "invalid_field", Some(field)).await;
    }
    let before = api.receiver.requests.lock().unwrap().len();
    let drained = api.post(&path, json!({"waiting": "drain"})).expect(200).await;
    assert_eq!(drained["replay"], json!(null));
    api.until(async |api| api.receiver.requests.lock().unwrap().len() == before + 1).await;
    // Repeated with its key, the call starts one job.
    let body = json!({"waiting": "slots", "dead_since": "2025-11-15T09:30:00Z"});
    let call = || api.post(&path, body.clone()).header("idempotency-key", "monday");
    let first = call().expect(200).await;
    let second = call().expect(200).await;
    assert!(first["replay"].as_str().unwrap().starts_with("rpl_"), "{first}");
    assert_eq!(first["replay"], second["replay"]);
    let jobs = api.get("/v1/replays").expect(200).await;
    assert_eq!(jobs["data"].as_array().unwrap().len(), 1, "{jobs}");
    let job = &jobs["data"][0];
    assert_eq!(job["id"], first["replay"]);
    assert_eq!(job["filter"]["state"], "dead");
    assert_eq!(job["filter"]["destination"], delivery["destination_id"]);
    assert_eq!(job["filter"]["ended_since"], "2025-11-15T09:30:00.000Z");
}

#[tokio::test]
async fn destinations_are_found_by_state_and_by_a_part_of_their_url() {
    let api = Api::new().await;
    for n in 0..30 {
        api.subscribe(&format!("Shop-{n}/in")).await;
    }
    let frozen = api.subscribe("other/in").await;
    let path = format!("/v1/destinations/{}", frozen["destination_id"].as_str().unwrap());
    api.call("POST", &format!("{path}/freeze")).expect(200).await;
    let count = async |query: &str| {
        let list = api.get(&format!("/v1/destinations?{query}")).expect(200).await;
        (list["data"].as_array().unwrap().len(), list["next_cursor"].is_null())
    };
    let summary = api.get("/v1/destinations/summary").expect(200).await;
    let expected = json!({"enabled": 30, "disabled": 0, "frozen": 1, "complete": true});
    assert_eq!(summary, expected);
    assert_eq!(count("state=frozen").await, (1, true));
    assert_eq!(count("state=disabled").await, (0, true));
    assert_eq!(count("state=enabled&limit=1000").await, (30, true));
    assert_eq!(count("q=shop-1").await, (11, true));
    assert_eq!(count("q=OTHER&state=frozen").await, (1, true));
    assert_eq!(count("q=other&state=enabled").await, (0, true));
    // Page by page each is met once, however few a page has.
    for (query, expected) in [("q=shop-1", 11), ("state=enabled", 30), ("q=nowhere", 0)] {
        let (mut seen, mut cursor) = (std::collections::BTreeSet::new(), String::new());
        loop {
            let path = format!("/v1/destinations?{query}&limit=2{cursor}");
            let page = api.get(&path).expect(200).await;
            for destination in page["data"].as_array().unwrap() {
                assert!(seen.insert(destination["id"].as_str().unwrap().to_owned()));
            }
            let Some(next) = page["next_cursor"].as_str() else { break };
            cursor = format!("&cursor={next}");
        }
        assert_eq!(seen.len(), expected, "{query}");
    }
    api.get("/v1/destinations?state=lost").refused(422, "invalid_field", Some("state")).await;
    let long = format!("/v1/destinations?q={}", "x".repeat(201));
    api.get(&long).refused(422, "invalid_field", Some("q")).await;
}

#[tokio::test]
async fn statistics_say_how_attempts_ended_by_the_hour() {
    let api = Api::new().await;
    let delivery = api.delivery("500").await;
    let to = delivery["destination_id"].as_str().unwrap();
    let stats = api.get(&format!("/v1/destinations/{to}/stats?hours=2")).expect(200).await;
    assert_eq!(stats["since"], "2025-11-15T08:00:00.000Z");
    let hours = stats["hours"].as_array().unwrap();
    assert_eq!(hours.len(), 2, "{stats}");
    assert_eq!((&hours[0]["at"], &hours[0]["attempts"]), (&stats["since"], &json!(0)));
    assert_eq!(hours[0]["success_rate"], json!(null));
    assert_eq!((&hours[1]["attempts"], &hours[1]["failed"]), (&json!(1), &json!(1)));
    assert_eq!(stats["total"]["success_rate"], json!(0.0));
    assert_eq!(stats["failures"], json!([{"class": "status_5xx", "count": 1}]));
    let figures = &stats["figures"];
    assert_eq!(figures["last_24_hours"], figures["last_7_days"]);
    assert_eq!(figures["recent"].as_array().unwrap().len(), 1);
    assert_eq!(figures["recent"][0]["class"], "status_5xx");
    assert_eq!(figures["recent"][0]["status"], 500);
    let default = api.get(&format!("/v1/destinations/{to}/stats")).expect(200).await;
    assert_eq!(default["hours"].as_array().unwrap().len(), 24);
    for hours in ["0", "169", "x", "-1"] {
        let call = api.get(&format!("/v1/destinations/{to}/stats?hours={hours}"));
        call.refused(422, "invalid_field", Some("hours")).await;
    }
    let several = api.get(&format!("/v1/destinations/stats?ids={to}")).expect(200).await;
    assert_eq!(several["data"], json!([figures]));
}

#[tokio::test]
async fn figures_of_several_destinations_are_those_of_the_tenant() {
    let api = Api::new().await;
    let delivery = api.delivery("200").await;
    let to = delivery["destination_id"].as_str().unwrap();
    let unknown = "dst_00000000000070008000000000000000";
    let several = api.get(&format!("/v1/destinations/stats?ids={unknown},{to}")).expect(200).await;
    assert_eq!(several["data"][0]["last_7_days"]["attempts"], 0);
    assert_eq!(several["data"][1]["destination_id"], to);
    assert_eq!(several["data"][1]["last_24_hours"]["success_rate"], 1.0);
    let path = format!("/v1/destinations/stats?ids={to}");
    api.tenant("umbrella").await;
    let theirs = api.get(&path).key(&api.key("umbrella", &["read"]).await).expect(200).await;
    assert_eq!(theirs["data"][0]["last_7_days"]["attempts"], 0, "another tenant's");
    let operator = api.get(&path).tenant("*").expect(200).await;
    assert_eq!(operator["data"][0], several["data"][1]);
    let many = vec![unknown; 101].join(",");
    for ids in ["", ",", "x", &many] {
        let call = api.get(&format!("/v1/destinations/stats?ids={ids}"));
        call.refused(422, "invalid_field", Some("ids")).await;
    }
    api.get("/v1/destinations/stats").refused(422, "invalid_field", Some("ids")).await;
    let call = api.get(&format!("/v1/destinations/{unknown}/stats"));
    call.refused(404, "not_found", None).await;
}
