//! `/v1/ledger` and `/v1/stats`

use insta::assert_json_snapshot;
use serde_json::json;

use crate::support::Api;

#[tokio::test]
async fn the_ledger_is_the_tenants_or_for_admins_everybodys() {
    let api = Api::new().await;
    api.tenant("acme").await;
    api.delivery("200").await;
    api.delivery("500").await;
    let ledger = api.get("/v1/ledger").expect(200).await;
    assert_json_snapshot!(ledger);
    let acme = api.get("/v1/ledger").tenant("acme").expect(200).await;
    assert_eq!(acme["accepted"], 0);
    let all = api.get("/v1/ledger?scope=all").tenant("acme").expect(200).await;
    assert_eq!(all, ledger);
    let key = api.key("acme", &["read"]).await;
    assert_eq!(api.get("/v1/ledger").key(&key).expect(200).await["accepted"], 0);
    let call = api.get("/v1/ledger?scope=all").key(&key);
    call.refused(403, "missing_scope", Some("scope")).await;
    api.get("/v1/ledger?scope=some").refused(422, "invalid_field", Some("scope")).await;
}

#[tokio::test]
async fn statistics_are_a_series_without_holes() {
    let api = Api::new().await;
    api.delivery("200").await;
    let query = "since=2025-11-15T09:25:00Z&until=2025-11-15T09:40:00Z&step_minutes=5";
    assert_json_snapshot!(api.get(&format!("/v1/stats?{query}")).expect(200).await);
    let day = api.get("/v1/stats").expect(200).await;
    assert_eq!(day["step_minutes"], 5);
    assert_eq!(day["data"].as_array().unwrap().len(), 288);
    for (query, field) in [
        ("step_minutes=0", "step_minutes"),
        ("step_minutes=1&since=2020-01-01T00:00:00Z", "step_minutes"),
        ("since=x", "since"),
        ("since=2025-11-15T09:40:00Z&until=2025-11-15T09:25:00Z", "since"),
        ("since=2030-01-01T00:00:00Z", "since"),
    ] {
        let call = api.get(&format!("/v1/stats?{query}"));
        call.refused(422, "invalid_field", Some(field)).await;
    }
    let moment = "since=2025-11-15T09:25:00Z&until=2025-11-15T09:25:00Z";
    let nothing = api.get(&format!("/v1/stats?{moment}")).expect(200).await;
    assert_eq!(nothing["data"], json!([]));
}
