//! Alerts of a cluster: an outage is told once, with the counts of all nodes.

use std::path::Path;

use serde_json::{Value as Json, json};

use crate::server::Server as Postgres;
use crate::support::Start;
use crate::support::receiver::Receiver;
use crate::support::server::Server;

const DESTINATIONS: usize = 16;

fn join(url: &str, alerts: &Receiver, folder: &Path, name: &str) -> Server {
    let here = folder.join(name);
    std::fs::create_dir_all(&here).unwrap();
    if folder.join("a/keyring").exists() && name != "a" {
        std::fs::copy(folder.join("a/keyring"), here.join("keyring")).unwrap();
    }
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let targets = json!([{"name": "ops", "url": alerts.url(), "secret": secret}]);
    let mut start = Start::dev()
        .with(&["--store", url, "--set", "circuit.disable_consecutive=2"])
        .with(&["--set", "circuit.probe_interval=2s", "--set", &format!("node={name}")])
        .variable("POSTRIDER_ADMIN_KEY", "admin-key-of-the-cluster-tests")
        .variable("POSTRIDER_ALERTS__TARGETS", &targets.to_string());
    // Longer than it takes until every destination is disabled.
    for quick in ["group_window=15s", "interval_min=1s", "resolve_after=3s", "disk_free_min=0"] {
        start = start.with(&["--set", &format!("alerts.{quick}")]);
    }
    start.at(&here)
}

#[test]
fn outage_is_told_once_by_the_whole_cluster() {
    let (postgres, folder) = (Postgres::start(), tempfile::tempdir().unwrap());
    let url = postgres.database("alerts");
    let (bad, alerts) = (Receiver::start(500), Receiver::start(200));
    let mut first = join(&url, &alerts, folder.path(), "a");
    let second = join(&url, &alerts, folder.path(), "b");
    first.wait("both nodes to have shards", |_| {
        let sql = "SELECT count(DISTINCT owner) FROM postrider.shards";
        (postgres.sql("alerts", sql) == "2").then_some(())
    });
    for n in 0..DESTINATIONS {
        first.subscribe(&format!("{}/{n}", bad.url()));
    }
    second.send(2);
    first.wait("every destination to be disabled", |first| {
        let list = first.get("/v1/destinations");
        let list = list["data"].as_array().unwrap();
        let disabled = list.iter().filter(|one| one["state"] == "disabled").count();
        (disabled == DESTINATIONS).then_some(())
    });
    alerts.wait_until(1);
    bad.answer(200);
    let told: Vec<Json> =
        alerts.wait_for(2).iter().map(|one| serde_json::from_slice(&one.body).unwrap()).collect();
    let line = &told[0]["data"]["alerts"][0];
    assert_eq!(line["kind"], "destination_disabled", "{told:?}");
    assert_eq!(line["count"], DESTINATIONS, "{told:?}");
    assert_eq!(told[1]["data"]["status"], "resolved", "{told:?}");
}
