//! What the API tells of the running process itself.

use serde_json::{Value as Json, json};

use crate::support::{Start, run, stdout};

#[test]
fn server_shows_its_settings_its_policy_and_its_disk() {
    let start = Start::dev().with(&["--set", "retry.max=3"]);
    let server = start.variable("POSTRIDER_METRICS__KEY", "canary-canary-canary-canary").fresh();
    let config = server.get("/v1/config");
    let setting = |key: &str| {
        let all = config["data"].as_array().unwrap();
        all.iter().find(|setting| setting["key"] == key).unwrap().clone()
    };
    let max = setting("retry.max");
    assert_eq!(
        (&max["value"], &max["origin"], &max["live"]),
        (&json!(3), &json!("flag"), &json!(true))
    );
    let key = setting("metrics.key");
    assert_eq!((&key["value"], &key["origin"]), (&json!("***"), &json!("env")));
    assert!(!config.to_string().contains("canary"));
    assert_eq!(server.get("/v1/policy")["retry"]["max"], 3);
    let shown = server.get("/v1/server");
    assert_eq!((&shown["store"], &shown["time_scale"]), (&json!("embedded"), &json!(1)));
    assert_eq!(shown["version"], env!("CARGO_PKG_VERSION"));
    assert!(shown["disk"]["data_bytes"].as_u64() > Some(0), "{shown}");
    assert!(shown["disk"]["total_bytes"].as_u64() >= shown["disk"]["free_bytes"].as_u64());
    assert_eq!(shown["nodes"][0]["shards"], 256);
}

#[test]
fn simulation_has_the_figures_of_the_command_line() {
    let server = Start::dev().fresh();
    let body = json!({"outage_seconds": 6 * 3_600, "deliveries": 200, "per_seconds": 60});
    let answer = server.ask("POST", "/v1/simulate", Some(&body), 200);
    let output = run(&["simulate", "--outage", "6h", "--rate", "200/min", "--json"]);
    let printed: Json = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(answer, printed);
}
