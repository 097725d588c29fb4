//! `/`, `/portal`: the web page, or how to get one

use postrider_api::{ApiSettings, has_page};

use crate::support::Api;

#[tokio::test]
async fn page_is_served_strictly_or_says_how_to_get_it() {
    let api = Api::new().await;
    for path in ["/", "/portal"] {
        let answer = api.get(path).without_key().send().await;
        assert_eq!(answer.status, 200, "{path}");
        let policy = answer.header("content-security-policy").unwrap();
        assert!(
            policy.contains("frame-ancestors 'none'") && !policy.contains("unsafe"),
            "{policy}"
        );
        assert_eq!(answer.header("x-frame-options"), Some("DENY"));
        if has_page() {
            assert_eq!(answer.header("content-type"), Some("text/html; charset=utf-8"));
            assert!(policy.contains("script-src 'self'"), "{policy}");
        } else {
            assert_eq!(answer.header("content-type"), Some("text/plain; charset=utf-8"));
            assert!(answer.text.contains("cargo xtask serve"), "{}", answer.text);
        }
    }
    api.get("/assets/nothing.js").without_key().refused(404, "unknown_path", None).await;
}

#[tokio::test]
async fn portal_alone_may_be_framed_by_the_listed_origins() {
    let origins = ["https://app.example.com", "http://127.0.0.1:3000"];
    let origins = origins.iter().map(|origin| origin.parse().unwrap()).collect();
    let frame_ancestors = postrider_api::Origins(origins);
    let api = Api::with(ApiSettings { frame_ancestors, ..ApiSettings::default() }).await;
    let portal = api.get("/portal").without_key().send().await;
    let policy = portal.header("content-security-policy").unwrap();
    let framed = "frame-ancestors https://app.example.com http://127.0.0.1:3000";
    assert!(policy.ends_with(framed), "{policy}");
    assert_eq!(portal.header("x-frame-options"), None);
    for path in ["/", "/docs", "/v1/session"] {
        let answer = api.get(path).send().await;
        let policy = answer.header("content-security-policy").unwrap();
        assert!(policy.contains("frame-ancestors 'none'"), "{path}: {policy}");
        assert_eq!(answer.header("x-frame-options"), Some("DENY"), "{path}");
    }
}
