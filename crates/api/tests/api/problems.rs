//! Refusals that are common to several routes

use insta::assert_json_snapshot;
use postrider_store_testing::memory::Fault;
use serde_json::json;

use crate::support::Api;

#[tokio::test]
async fn unknown_paths_and_methods_are_problems_too() {
    let api = Api::new().await;
    let unknown = api.get("/v2/events").refused(404, "unknown_path", None).await;
    assert_json_snapshot!(unknown);
    api.get("/portal/x").without_key().refused(404, "unknown_path", None).await;
    api.get("/v1/events/").refused(404, "unknown_path", None).await;
    let answer = api.call("PUT", "/v1/events").send().await;
    assert_eq!((answer.status.as_u16(), answer.json["code"].as_str()), {
        (405, Some("method_not_allowed"))
    });
    let allowed = answer.header("allow").unwrap();
    assert!(allowed.contains("GET") && allowed.contains("POST"), "{allowed}");
}

#[tokio::test]
async fn unknown_and_malformed_ids_are_not_found() {
    let api = Api::new().await;
    let digits = "0".repeat(32);
    for (method, path) in [
        ("GET", "/v1/events/{evt}"),
        ("GET", "/v1/subscriptions/{sub}"),
        ("DELETE", "/v1/subscriptions/{sub}"),
        ("POST", "/v1/subscriptions/{sub}/secret/rotate"),
        ("POST", "/v1/subscriptions/{sub}/test"),
        ("GET", "/v1/destinations/{dst}"),
        ("POST", "/v1/destinations/{dst}/enable"),
        ("POST", "/v1/destinations/{dst}/freeze"),
        ("GET", "/v1/destinations/{dst}/timeline"),
        ("GET", "/v1/deliveries/{dlv}"),
        ("GET", "/v1/deliveries/{dlv}/explain"),
        ("POST", "/v1/deliveries/{dlv}/replay"),
        ("POST", "/v1/deliveries/{dlv}/cancel"),
        ("GET", "/v1/replays/{rpl}"),
        ("POST", "/v1/replays/{rpl}/pause"),
        ("POST", "/v1/replays/{rpl}/resume"),
        ("POST", "/v1/replays/{rpl}/cancel"),
        ("GET", "/v1/tenants/{x}"),
        ("DELETE", "/v1/tenants/{x}"),
        ("GET", "/v1/keys/{x}"),
        ("DELETE", "/v1/keys/{x}"),
        ("DELETE", "/v1/portal-links/{pl}"),
        ("GET", "/portal/logos/{lg}"),
    ] {
        let (head, rest) = path.split_once('{').unwrap();
        let (kind, tail) = rest.split_once('}').unwrap();
        for id in [format!("{kind}_{digits}"), "nonsense".to_owned(), "%00%ff".to_owned()] {
            let call = api.call(method, &format!("{head}{id}{tail}"));
            call.refused(404, "not_found", None).await;
        }
    }
    let call = api.patch(&format!("/v1/subscriptions/sub_{digits}"), json!({}));
    call.refused(404, "not_found", None).await;
}

#[tokio::test]
async fn failing_store_is_answered_with_unavailable() {
    let api = Api::new().await;
    let event = || json!({"type": "a", "data": 1});
    api.post("/v1/events", event()).expect(202).await;
    for (fault, code) in [
        (Fault::DiskFull, "storage_full"),
        (Fault::UnavailableBefore, "unavailable"),
        (Fault::UnavailableAfter, "unavailable"),
    ] {
        api.store.fail_next(fault, 1);
        let answer = api.post("/v1/events", event()).send().await;
        assert_eq!((answer.status.as_u16(), answer.json["code"].as_str()), (503, Some(code)));
        assert_eq!(answer.header("retry-after"), Some("5"));
        assert!(!answer.text.contains("planned fault"), "{}", answer.text);
        api.store.heal();
    }
    api.store.fail_next_reads(1);
    api.get("/v1/events").refused(503, "unavailable", None).await;
    api.post("/v1/events", event()).expect(202).await;
}

#[tokio::test]
async fn a_server_that_is_stopping_refuses_events() {
    let api = Api::new().await;
    api.engine.shutdown(std::time::Duration::from_secs(1)).await;
    let call = api.post("/v1/events", json!({"type": "a", "data": 1}));
    call.refused(503, "unavailable", None).await;
}
