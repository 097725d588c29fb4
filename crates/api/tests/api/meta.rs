//! `/healthz`, `/readyz`, `/metrics`, `/openapi.json`, `/docs`

use postrider_store_testing::memory::Fault;
use serde_json::json;

use crate::support::Api;

#[tokio::test]
async fn the_server_says_how_it_is_without_a_key() {
    let api = Api::new().await;
    let get = |path: &str| api.get(path).without_key();
    assert_eq!(get("/healthz").expect(200).await, json!({"status": "ok"}));
    assert_eq!(get("/readyz").expect(200).await, json!({"status": "ready"}));
    let metrics = get("/metrics").send().await;
    assert_eq!(metrics.text, "up 1\n");
    assert!(metrics.header("content-type").unwrap().starts_with("text/plain"));
}

#[tokio::test]
async fn metrics_need_their_key_where_one_is_set() {
    let api = Api::with_metrics_key("the key of the metrics, quite long").await;
    let metrics = || api.get("/metrics").without_key();
    metrics().refused(401, "unauthorized", None).await;
    api.get("/metrics").refused(401, "unauthorized", None).await;
    let answer = metrics().key("the key of the metrics, quite long").send().await;
    assert_eq!((answer.status.as_u16(), answer.text.as_str()), (200, "up 1\n"));
    metrics().expect(401).await;
    api.get("/healthz").without_key().expect(200).await;
}

#[tokio::test]
async fn a_server_that_cannot_take_events_is_not_ready() {
    let api = Api::new().await;
    api.store.fail_next(Fault::DiskFull, 1);
    let answer = api.get("/readyz").without_key().send().await;
    assert_eq!(answer.status, 503);
    assert!(answer.header("retry-after").is_some());
    api.store.heal();
    api.get("/readyz").expect(200).await;
    api.engine.shutdown(std::time::Duration::from_secs(1)).await;
    api.get("/readyz").refused(503, "unavailable", None).await;
    api.get("/healthz").expect(200).await;
}

#[tokio::test]
async fn reference_loads_a_style_sheet_and_a_script_of_its_own_and_nothing_inline() {
    let api = Api::new().await;
    let page = api.get("/docs").without_key().send().await;
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    let csp = page.header("content-security-policy").unwrap();
    assert!(csp.starts_with("default-src 'none'; style-src 'self'; script-src 'self'"), "{csp}");
    assert!(!csp.contains("unsafe") && page.text.matches("<script").count() == 1);
    assert!(page.text.contains("<script src=\"/docs/search.js\" defer></script>"));
    assert!(page.text.contains("<summary>Example of 202 <code>application/json</code></summary>"));
    let script = api.get("/docs/search.js").without_key().send().await;
    assert_eq!(script.header("content-type"), Some("text/javascript; charset=utf-8"));
    let style = api.get("/docs/style.css").without_key().send().await;
    assert_eq!(style.header("content-type"), Some("text/css; charset=utf-8"));
    let document = api.get("/openapi.json").without_key().expect(200).await;
    assert_eq!(document["openapi"], "3.1.0");
}
