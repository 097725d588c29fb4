//! Keys, scopes, limits, audit log and idempotency hold here as under `/v1`, and `/v1` shows what is
//! made here.

use std::time::Duration;

use postrider_api::ApiSettings;
use postrider_domain::workfront::OBJECT_CODES;
use postrider_store::Configuration as _;
use serde_json::{Value, json};

use super::{SUBSCRIPTIONS, ask, call, fits, subscribe, workfront};
use crate::support::{Api, id};

fn body() -> Value {
    json!({
        "objCode": "PROJ",
        "eventType": "UPDATE",
        "url": "https://hooks.example.com/in",
        "authToken": "EauthTokenWorkfrontRocks1234_",
    })
}

#[tokio::test]
async fn nothing_is_there_unless_it_is_switched_on() {
    let api = Api::new().await;
    for path in [SUBSCRIPTIONS, "/attask/eventsubscription/openapi.json"] {
        api.get(path).refused(404, "unknown_path", None).await;
    }
}

/// Changes of an acceptable body, each with the code and the field of its refusal.
const REFUSED: [(&str, &str, &str); 13] = [
    (r#"{"url": "ftp://x/"}"#, "url_refused", "url"),
    (r#"{"url": "http://10.0.0.1/"}"#, "url_refused", "url"),
    (r#"{"surprise": 1}"#, "unknown_field", "surprise"),
    (r#"{"url": null}"#, "missing_field", "url"),
    (r#"{"authToken": null}"#, "missing_field", "authToken"),
    (r#"{"authToken": "a b"}"#, "invalid_field", "authToken"),
    (r#"{"objCode": "Task"}"#, "invalid_field", "objCode"),
    (r#"{"eventType": "SHARE"}"#, "invalid_field", "eventType"),
    (r#"{"objId": "a\tb"}"#, "invalid_field", "objId"),
    (r#"{"filters": [1]}"#, "invalid_field", "filters[0]"),
    (r#"{"filterConnector": "XOR"}"#, "invalid_field", "filterConnector"),
    (r#"{"base64Encoding": "yes"}"#, "invalid_field", "base64Encoding"),
    (r#"{"version": "v9"}"#, "invalid_field", "version"),
];

#[tokio::test]
async fn a_refused_body_is_answered_with_400_and_its_field() {
    let api = workfront().await;
    let longest = json!({"authToken": "x".repeat(256)}).to_string();
    for (change, code, field) in
        REFUSED.into_iter().chain([(longest.as_str(), "invalid_field", "authToken")])
    {
        let change: Value = serde_json::from_str(change).unwrap();
        let mut body = body();
        body.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let refused = ask(&api, "POST", SUBSCRIPTIONS, Some(&body), 400).await;
        let found = (refused["error"]["code"].as_str(), refused["error"]["field"].as_str());
        assert_eq!(found, (Some(code), Some(field)), "{change}: {refused}");
    }
}

#[tokio::test]
async fn every_other_refusal_has_workfronts_shape_too() {
    let api = workfront().await;
    let one = "/attask/eventsubscription/api/v1/subscriptions/nobody";
    for (method, path, status, code) in [
        ("GET", &format!("{SUBSCRIPTIONS}?page=0"), 400, "invalid_field"),
        ("GET", &format!("{SUBSCRIPTIONS}?color=x"), 400, "unknown_field"),
        ("GET", &one.to_owned(), 404, "not_found"),
        ("DELETE", &one.to_owned(), 404, "not_found"),
        ("POST", &format!("{one}/enable"), 404, "not_found"),
        ("GET", &"/attask/api/v15.0/project".to_owned(), 404, "unknown_path"),
        ("PATCH", &one.to_owned(), 405, "method_not_allowed"),
    ] {
        let refused = ask(&api, method, path, None, status).await;
        assert_eq!(refused["error"]["code"], code, "{method} {path}");
    }
    let text = [("sessionID", api.admin.as_str()), ("content-type", "text/plain")];
    let refused = call(&api, "POST", SUBSCRIPTIONS, &text, None).await;
    let found = (refused.status, &refused.body["error"]["code"]);
    assert_eq!(found, (415, &json!("unsupported_media_type")));
    let large = json!({"url": "x".repeat(300_000)});
    ask(&api, "POST", SUBSCRIPTIONS, Some(&large), 413).await;
}

#[tokio::test]
async fn the_token_is_in_no_error() {
    let api = workfront().await;
    let wrong = json!({"authToken": {"canary": "canary-4711"}});
    let refused = ask(&api, "POST", SUBSCRIPTIONS, Some(&wrong), 400).await;
    assert!(!refused.to_string().contains("canary-4711"), "{refused}");
}

#[tokio::test]
async fn a_key_is_taken_from_any_of_its_headers_and_from_one_only() {
    let api = workfront().await;
    let key = api.admin.clone();
    let bearer = format!("Bearer {key}");
    for header in [("sessionID", key.as_str()), ("apiKey", &key), ("authorization", &bearer)] {
        assert_eq!(call(&api, "GET", SUBSCRIPTIONS, &[header], None).await.status, 200);
    }
    let twice = [("sessionID", key.as_str()), ("apiKey", &key)];
    assert_eq!(call(&api, "GET", SUBSCRIPTIONS, &twice, None).await.status, 400);
    for wrong in [&[][..], &[("sessionID", "pr_wrong")], &[("apiKey", "")]] {
        let answered = call(&api, "GET", SUBSCRIPTIONS, wrong, None).await;
        assert_eq!(
            (answered.status, &answered.body["error"]["code"]),
            (401, &json!("unauthorized"))
        );
    }
    // The headers mean nothing to the other API.
    let elsewhere = api.get("/v1/subscriptions").without_key().header("sessionid", &key);
    elsewhere.refused(401, "unauthorized", None).await;
}

#[tokio::test]
async fn looking_needs_read_and_changing_needs_manage() {
    let api = workfront().await;
    let id = subscribe(&api, "in", json!({})).await;
    let one = format!("{SUBSCRIPTIONS}/{id}");
    let version = json!({"version": "v1"});
    let calls = [
        ("GET", SUBSCRIPTIONS.to_owned(), None, "read"),
        ("GET", format!("{SUBSCRIPTIONS}/list"), None, "read"),
        ("GET", one.clone(), None, "read"),
        ("POST", SUBSCRIPTIONS.to_owned(), Some(json!({})), "manage"),
        ("PUT", format!("{one}/version"), Some(version.clone()), "manage"),
        ("PUT", format!("{SUBSCRIPTIONS}/version"), Some(version), "manage"),
        ("POST", format!("{one}/enable"), None, "manage"),
        ("DELETE", one, None, "manage"),
    ];
    for scope in ["ingest", "read", "manage"] {
        let key = api.key("default", &[scope]).await;
        for (method, path, body, needed) in &calls {
            let answered = call(&api, method, path, &[("sessionID", &key)], body.as_ref()).await;
            assert_eq!(answered.status != 403, scope == *needed, "{scope}: {method} {path}");
        }
    }
}

#[tokio::test]
async fn a_tenant_sees_and_changes_only_its_own() {
    let api = workfront().await;
    api.tenant("acme").await;
    let key = api.key("acme", &["read", "manage"]).await;
    let others = subscribe(&api, "in", json!({})).await;
    let own = [("sessionID", key.as_str())];
    let created = call(&api, "POST", SUBSCRIPTIONS, &own, Some(&body())).await;
    assert_eq!(created.status, 201, "another tenant's twin is no duplicate");
    let list = call(&api, "GET", SUBSCRIPTIONS, &own, None).await.body;
    assert_eq!(list["meta"]["total_count"], 1);
    assert_eq!(list["subscriptions"][0]["customerId"], "acme");
    let version = json!({"version": "v1"});
    for (method, path, body) in [
        ("GET", "", None),
        ("DELETE", "", None),
        ("PUT", "/version", Some(&version)),
        ("POST", "/enable", None),
    ] {
        let path = format!("{SUBSCRIPTIONS}/{others}{path}");
        assert_eq!(call(&api, method, &path, &own, body).await.status, 404, "{method} {path}");
    }
    let all = json!({"allCustomerSubscriptions": true, "version": "v1"});
    let changed = call(&api, "PUT", &format!("{SUBSCRIPTIONS}/version"), &own, Some(&all)).await;
    assert_eq!(changed.body["subscription_ids"], json!([created.body["id"]]));
    let named = json!({"subscriptionIds": [others], "version": "v1"});
    let refused = call(&api, "PUT", &format!("{SUBSCRIPTIONS}/version"), &own, Some(&named)).await;
    assert_eq!(
        (refused.status, &refused.body["error"]["field"]),
        (400, &json!("subscriptionIds[0]"))
    );
}

#[tokio::test]
async fn our_own_api_shows_and_changes_them_like_any_other() {
    let api = workfront().await;
    let filters = json!([{"fieldName": "status", "fieldValue": "CUR"}]);
    let id = subscribe(&api, "in", json!({"filters": filters})).await;
    let path = format!("/v1/subscriptions/{id}");
    let shown = api.get(&path).expect(200).await;
    assert_eq!(shown["types"], json!(["PROJ.UPDATE"]));
    assert_eq!(shown["format"], "workfront");
    assert_eq!(
        shown["workfront"],
        json!({"version": "v2", "base64": false, "version_changed_at": null})
    );
    assert_eq!(shown["filter"], json!({"field": "data.status", "op": "eq", "value": "CUR"}));
    let face = format!("{SUBSCRIPTIONS}/{id}");
    api.patch(&path, json!({"filter": shown["filter"], "enabled": false})).expect(200).await;
    assert_eq!(
        ask(&api, "GET", &face, None, 200).await["filters"],
        filters,
        "it is the same filter"
    );
    api.patch(&path, json!({"filter": null})).expect(200).await;
    assert_eq!(ask(&api, "GET", &face, None, 200).await["filters"], Value::Null);
    // What Workfront's API cannot express is not shown by it.
    api.patch(&path, json!({"types": ["PROJ.*"]})).expect(200).await;
    ask(&api, "GET", &face, None, 404).await;
    assert_eq!(ask(&api, "GET", SUBSCRIPTIONS, None, 200).await["meta"]["total_count"], 0);
    let shown = api.patch(&path, json!({"format": "raw"})).expect(200).await;
    assert_eq!(shown["workfront"], Value::Null);
    let options = json!({"workfront": {"base64": true}});
    api.patch(&path, options).refused(422, "invalid_field", Some("workfront")).await;
    let wrong = json!({"format": "workfront", "workfront": {"version": "v3"}});
    api.patch(&path, wrong).refused(422, "invalid_field", Some("workfront.version")).await;
}

#[tokio::test]
async fn a_subscription_of_our_own_api_with_the_same_shape_is_shown_too() {
    let api = workfront().await;
    let wish = json!({
        "url": "https://hooks.example.com/in", "types": ["TASK.CREATE"],
        "format": "workfront", "workfront": {"version": "v1", "base64": true},
    });
    let created = api.post("/v1/subscriptions", wish).expect(201).await;
    assert_eq!(created["workfront"]["version_changed_at"], Value::Null);
    let shown = ask(&api, "GET", &format!("{SUBSCRIPTIONS}/{}", id(&created)), None, 200).await;
    let fields = ["objCode", "eventType", "version", "base64Encoding", "authToken"];
    let found: Vec<&Value> = fields.iter().map(|name| &shown[*name]).collect();
    assert_eq!(json!(found), json!(["TASK", "CREATE", "v1", true, null]));
}

#[tokio::test]
async fn a_frozen_url_is_shown_and_enabled() {
    let api = workfront().await;
    let id = subscribe(&api, "500", json!({})).await;
    let event = json!({"type": "PROJ.UPDATE", "data": {}});
    api.post("/v1/events", event).expect(202).await;
    api.idle().await;
    let path = format!("{SUBSCRIPTIONS}/{id}");
    let url = ask(&api, "GET", &path, None, 200).await["subscription_url"].clone();
    assert_eq!((&url["successes"], &url["failures"]), (&json!(0), &json!(1)));
    let subscription = api.get(&format!("/v1/subscriptions/{id}")).expect(200).await;
    let destination = subscription["destination_id"].as_str().unwrap();
    api.post(&format!("/v1/destinations/{destination}/freeze"), json!({})).expect(200).await;
    let url = ask(&api, "GET", &path, None, 200).await["subscription_url"].clone();
    assert!(url["frozen_at"].is_string() && url["disabled_at"].is_null(), "{url}");
    let why = json!({"reason": "repaired"});
    let enabled = ask(&api, "POST", &format!("{path}/enable"), Some(&why), 200).await;
    assert_eq!(enabled["subscription_url"]["frozen_at"], Value::Null);
    assert_eq!(enabled["subscription_url"]["failures"], 0);
    let shown = api.get(&format!("/v1/destinations/{destination}")).expect(200).await;
    assert_eq!(shown["state"], "enabled");
}

#[tokio::test]
async fn changes_stand_in_the_audit_log_with_the_status_that_was_answered() {
    let api = workfront().await;
    let id = subscribe(&api, "in", json!({})).await;
    let one = format!("{SUBSCRIPTIONS}/{id}");
    let pass = || api.clock.advance(Duration::from_millis(1));
    pass();
    ask(&api, "PUT", &format!("{one}/version"), Some(&json!({"version": "v3"})), 400).await;
    pass();
    ask(&api, "POST", &format!("{one}/enable"), None, 200).await;
    pass();
    ask(&api, "DELETE", &one, None, 200).await;
    let list = api.get("/v1/audit").expect(200).await;
    let seen: Vec<_> = list["data"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|entry| entry["action"] != "key.create")
        .map(|entry| json!([entry["action"], entry["target"], entry["status"], entry["problem"]]))
        .collect();
    let expected = json!([
        ["subscription.delete", id, 200, null],
        ["destination.enable", id, 200, null],
        ["subscription.change", id, 400, "invalid_field"],
        ["subscription.create", id, 201, null],
    ]);
    assert_eq!(json!(seen), expected);
}

#[tokio::test]
async fn every_mutating_route_leaves_an_entry_with_the_name_that_it_has_under_v1() {
    let api = workfront().await;
    let document = serde_json::to_value(postrider_api::workfront_openapi()).unwrap();
    let mut seen = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in ["POST", "PUT", "PATCH", "DELETE"] {
            if item.get(method.to_lowercase()).is_none() {
                continue;
            }
            let entries = async || api.get("/v1/audit").expect(200).await["data"].clone();
            let before = entries().await.as_array().unwrap().len();
            api.clock.advance(Duration::from_millis(1));
            let path_of_none = path.replace("{id}", "nothing");
            let headers = [("sessionID", api.admin.as_str())];
            let wrong = json!({"x": 1});
            let answered = call(&api, method, &path_of_none, &headers, Some(&wrong)).await;
            let after = entries().await;
            assert_eq!(after.as_array().unwrap().len(), before + 1, "{method} {path}: no entry");
            let entry = &after[0];
            assert_eq!(entry["status"], answered.status, "{method} {path}: {entry}");
            let target = path.contains("{id}").then_some("nothing");
            assert_eq!(entry["target"].as_str(), target, "{method} {path}: {entry}");
            let below = path.strip_prefix(SUBSCRIPTIONS).unwrap();
            seen.push(format!("{method} {below}: {}", entry["action"].as_str().unwrap()));
        }
    }
    seen.sort_unstable();
    assert_eq!(
        seen,
        [
            "DELETE /{id}: subscription.delete",
            "POST /{id}/enable: destination.enable",
            "POST : subscription.create",
            "PUT /version: subscription.change",
            "PUT /{id}/version: subscription.change",
        ]
    );
}

#[tokio::test]
async fn a_repeated_request_is_answered_again_and_done_once() {
    let api = workfront().await;
    let headers = [("sessionID", api.admin.as_str()), ("idempotency-key", "k1")];
    let first = call(&api, "POST", SUBSCRIPTIONS, &headers, Some(&body())).await;
    let again = call(&api, "POST", SUBSCRIPTIONS, &headers, Some(&body())).await;
    assert_eq!((first.status, again.status), (201, 201));
    assert_eq!(first.body, again.body);
    let bad = json!({"surprise": 1});
    let headers = [("sessionID", api.admin.as_str()), ("idempotency-key", "k2")];
    for _ in 0..2 {
        let refused = call(&api, "POST", SUBSCRIPTIONS, &headers, Some(&bad)).await;
        assert_eq!(
            (refused.status, &refused.body["error"]["code"]),
            (400, &json!("unknown_field"))
        );
    }
}

#[tokio::test]
async fn pages_are_numbered_from_one_and_count_only_workfronts() {
    let api = workfront().await;
    let mut ids = Vec::new();
    for n in 0..5 {
        api.clock.advance(Duration::from_millis(1));
        ids.push(subscribe(&api, &n.to_string(), json!({})).await);
        api.subscribe(&format!("other/{n}")).await;
    }
    for (page, found) in [(1, &ids[..2]), (2, &ids[2..4]), (3, &ids[4..]), (4, &[][..])] {
        let path = format!("{SUBSCRIPTIONS}?page={page}&limit=2");
        let list = ask(&api, "GET", &path, None, 200).await;
        assert_eq!(
            list["meta"],
            json!({"page": page, "page_count": 3, "limit": 2, "total_count": 5})
        );
        let shown: Vec<&Value> =
            list["subscriptions"].as_array().unwrap().iter().map(|one| &one["id"]).collect();
        assert_eq!(json!(shown), json!(found));
    }
    let all = ask(&api, "GET", &format!("{SUBSCRIPTIONS}/list"), None, 200).await;
    assert_eq!(all.as_array().unwrap().len(), 5);
}

#[tokio::test]
async fn rates_and_quotas_hold() {
    let rate = Some(postrider_api::Rate { per_second: 1, burst: 1 });
    let settings = ApiSettings { workfront: true, tenant_rate: rate, ..ApiSettings::default() };
    let api = Api::with(settings).await;
    ask(&api, "GET", SUBSCRIPTIONS, None, 200).await;
    let limited = call(&api, "GET", SUBSCRIPTIONS, &[("sessionID", &api.admin)], None).await;
    assert_eq!((limited.status, &limited.body["error"]["code"]), (429, &json!("rate_limited")));
    assert!(limited.headers.contains_key("retry-after"));
}

#[tokio::test]
async fn the_document_describes_every_path_and_needs_no_key() {
    let api = workfront().await;
    let answered = call(&api, "GET", "/attask/eventsubscription/openapi.json", &[], None).await;
    assert_eq!(answered.status, 200);
    let paths: Vec<&String> = answered.body["paths"].as_object().unwrap().keys().collect();
    let below = ["", "/list", "/version", "/{id}", "/{id}/enable", "/{id}/version"];
    assert_eq!(json!(paths), json!(below.map(|path| format!("{SUBSCRIPTIONS}{path}"))));
    let ours = postrider_api::openapi();
    assert!(ours["paths"].as_object().unwrap().keys().all(|path| !path.starts_with("/attask")));
}

#[tokio::test]
async fn filter_with_more_groups_than_ours_may_have_is_taken_back_unchanged_only() {
    let api = workfront().await;
    let filter = |name: &str| json!({"fieldName": name, "fieldValue": {"a": "1", "b": "2"}});
    let groups: Vec<Value> = (0..10)
        .map(|n| json!({"type": "group", "connector": "OR", "filters": [filter(&format!("f{n}")), filter("g")]}))
        .collect();
    let id = subscribe(&api, "in", json!({"filters": groups})).await;
    let path = format!("/v1/subscriptions/{id}");
    let shown = api.get(&path).expect(200).await;
    let whole = json!({"filter": shown["filter"], "name": "wide"});
    let changed = api.patch(&path, whole).expect(200).await;
    assert_eq!((&changed["filter"], &changed["name"]), (&shown["filter"], &json!("wide")));
    let face = ask(&api, "GET", &format!("{SUBSCRIPTIONS}/{id}"), None, 200).await;
    assert_eq!(face["filters"], json!(groups));
    let mut other = shown["filter"].clone();
    other["all"][0]["any"][0]["all"][0]["value"] = json!("3");
    api.patch(&path, json!({"filter": other}))
        .refused(422, "invalid_field", Some("filter.all[3].any"))
        .await;
}

#[tokio::test]
async fn options_that_are_removed_are_a_change_of_version_and_keep_the_filters() {
    let api = workfront().await;
    let filters = json!([{"fieldName": "status", "fieldValue": "CUR"}]);
    let more = json!({"filters": filters, "version": "v1", "base64Encoding": true});
    let id = subscribe(&api, "in", more).await;
    api.clock.advance(Duration::from_millis(1));
    let path = format!("/v1/subscriptions/{id}");
    let changed = api.patch(&path, json!({"workfront": null})).expect(200).await;
    assert_eq!(changed["workfront"]["version"], "v2");
    assert_eq!(changed["workfront"]["base64"], false);
    assert!(changed["workfront"]["version_changed_at"].is_string(), "{changed}");
    let face = ask(&api, "GET", &format!("{SUBSCRIPTIONS}/{id}"), None, 200).await;
    assert_eq!(face["filters"], filters);
}

#[tokio::test]
async fn change_of_all_versions_leaves_out_a_subscription_that_is_deleted_meanwhile() {
    let api = workfront().await;
    let (kept, gone) =
        (subscribe(&api, "kept", json!({})).await, subscribe(&api, "gone", json!({})).await);
    // The index of the engine still has it: the store alone knows that it was deleted.
    let tenant = "default".parse().unwrap();
    let now = postrider_transport::Clock::now(&*api.clock);
    api.store.mark_subscription_deleted(&tenant, gone.parse().unwrap(), now).await.unwrap();
    let all = json!({"allCustomerSubscriptions": true, "version": "v1"});
    let changed = ask(&api, "PUT", &format!("{SUBSCRIPTIONS}/version"), Some(&all), 200).await;
    assert_eq!(changed, json!({"subscription_ids": [kept], "version": "v1"}));
    let one = json!({"version": "v1"});
    ask(&api, "PUT", &format!("{SUBSCRIPTIONS}/{gone}/version"), Some(&one), 404).await;
}

#[test]
fn the_document_describes_filters_groups_and_words() {
    let document = postrider_api::workfront_openapi();
    let operation = &document["paths"][SUBSCRIPTIONS]["post"]["requestBody"];
    let filter = json!({"fieldName": "f", "fieldValue": 1, "comparison": "notContains"});
    let group = |filters: Value| json!({"type": "group", "connector": "OR", "filters": filters});
    for (change, is_accepted) in [
        (json!({}), true),
        (json!({"objCode": OBJECT_CODES[30], "eventType": "DELETE", "version": "v1"}), true),
        (json!({"version": null, "filterConnector": null, "filters": null}), true),
        (json!({"base64Encoding": ""}), true),
        (json!({"base64Encoding": "yes"}), false),
        (json!({"objCode": "Task"}), false),
        (json!({"eventType": "SHARE"}), false),
        (json!({"version": "v3"}), false),
        (json!({"filterConnector": "XOR"}), false),
        (json!({"filters": [filter, group(json!([filter, filter]))]}), true),
        (json!({"filters": vec![filter.clone(); 21]}), false),
        (json!({"filters": [group(json!([filter]))]}), false),
        (json!({"filters": [group(json!(vec![filter.clone(); 6]))]}), false),
        (json!({"filters": [group(json!([filter, group(json!([filter, filter]))]))]}), false),
        (json!({"filters": [{"fieldName": "f", "comparison": "changed"}]}), true),
        (json!({"filters": [{"fieldName": "f", "fieldValue": 1, "comparison": "equals"}]}), false),
        (json!({"filters": [{"fieldName": "f", "fieldValue": 1, "state": "old"}]}), false),
        (json!({"filters": [{"fieldName": "a.b", "fieldValue": 1}]}), false),
    ] {
        let mut body = body();
        body.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let found = fits(&document, operation, &body);
        assert_eq!(found.is_ok(), is_accepted, "{change}: {found:?}");
    }
}
