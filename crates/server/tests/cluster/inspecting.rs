//! Commands that inspect a cluster from outside: `postrider bench` on several nodes, and `postrider
//! doctor`.

use serde_json::{Value as Json, json};

use crate::neighbours::{KEY, Pair, pair};
use crate::server::Server as Postgres;
use crate::support::server::Server;
use crate::support::{postrider, stderr, stdout};

#[test]
fn a_measurement_of_two_nodes_tells_what_node_and_database_cost() {
    let postgres = Postgres::start();
    let url = postgres.database("bench");
    let directory = tempfile::tempdir().unwrap();
    let output = postrider(&["bench", "--quick", "--json", "--only", "fan-out 5", "--nodes", "2"])
        .args(["--connections", "4", "--store", &url, "--dir"])
        .arg(directory.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let report: Json = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(report["nodes"], 2);
    let scenarios = report["scenarios"].as_array().unwrap();
    assert_eq!(scenarios.len(), 2, "{report}");
    for one in scenarios {
        let number = |figure: &Json| figure.as_f64().unwrap();
        assert!(number(&one["deliveries_per_second"]) > 0.0, "{one}");
        for cost in ["server_us", "postgres_us"] {
            assert!(number(&one["per_delivery"][cost]) > 0.0, "{cost}: {one}");
        }
        assert_eq!((&one["lost"], &one["repeated"]), (&0.into(), &0.into()), "{one}");
    }
    let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().collect();
    assert!(left.is_empty(), "the data is gone: {left:?}");
}

/// The findings of `postrider doctor`, by check: level and text.
fn doctor(arguments: &[&str]) -> impl Fn(&str) -> (String, String) + use<> {
    let output = postrider(&["--json", "doctor"])
        .args(arguments)
        .env("POSTRIDER_ADMIN_KEY", KEY)
        .output()
        .unwrap();
    let found: Json = serde_json::from_str(&stdout(&output)).unwrap();
    let faults = found.as_array().unwrap().iter().filter(|one| one["level"] == "fault").count();
    assert_eq!(output.status.success(), faults == 0, "{found}");
    move |check: &str| {
        let one = found.as_array().unwrap().iter().find(|one| one["check"] == check);
        let one = one.unwrap_or_else(|| panic!("{check}: {found}"));
        let text = |name: &str| one[name].as_str().unwrap().to_owned();
        (text("level"), text("detail"))
    }
}

#[test]
fn doctor_reports_the_cluster() {
    let mut pair = pair();
    let here = pair.folder.path().join("a");
    let (here, url) = (here.to_str().unwrap().to_owned(), pair.url.clone());
    let server = format!("http://{}", pair.nodes[0].address);
    let ask =
        |data_dir: &str| doctor(&["--store", &url, "--data-dir", data_dir, "--server", &server]);
    let found = ask(&here);
    for check in
        ["database", "database role", "durability", "connections", "pooler", "clock", "schema"]
    {
        assert_eq!(found(check).0, "ok", "{check}: {}", found(check).1);
    }
    assert_eq!(found("cluster's ring").0, "ok", "{}", found("cluster's ring").1);
    let (level, nodes) = found("nodes");
    assert_eq!(
        (level.as_str(), nodes.matches(", 128 shards, heard of").count()),
        ("ok", 2),
        "{nodes}"
    );
    assert_eq!(found("shards"), ("ok".into(), "256 held, 0 of ended leases, 0 unowned".into()));
    assert_eq!(found("server").0, "ok");
    // Without the cluster's key ring.
    let elsewhere = pair.folder.path().join("c");
    let found = ask(elsewhere.to_str().unwrap());
    let (level, said) = found("cluster's ring");
    assert!(level == "fault" && said.contains("is missing, and the cluster has one"), "{said}");
    // One node is suspended until its lease has ended, and no other node notices.
    let [a, b] = &mut pair.nodes;
    b.signal("STOP");
    a.signal("STOP");
    let sql = "UPDATE postrider.nodes SET expires_at = clock_timestamp() - interval '1 s'";
    pair.postgres.sql("cluster", sql);
    let found = doctor(&["--store", &url, "--data-dir", &here, "--server", "http://127.0.0.1:1"]);
    let (level, nodes) = found("nodes");
    assert!(level == "note" && nodes.contains("its lease has ended"), "{nodes}");
    assert_eq!(found("shards").0, "note");
    for node in [a, b] {
        node.signal("CONT");
    }
}

#[test]
fn doctor_says_why_a_database_is_unsuitable() {
    let postgres = Postgres::start();
    let empty = postgres.database("empty");
    let found = doctor(&["--store", &empty]);
    assert_eq!(found("schema"), ("ok".into(), "not there yet; the first server makes it".into()));
    let nowhere = "postgres://postrider:hidden@127.0.0.1:1/x";
    let (level, said) = doctor(&["--store", nowhere])("database");
    assert!(level == "fault" && said.contains("is it running"), "{said}");
    assert!(!said.contains("hidden"), "{said}");
    let root = empty.replace("postrider@", "postgres@");
    let (level, said) = doctor(&["--store", &root])("database role");
    assert!(level == "note" && said.contains("superuser"), "{said}");
}

/// The enabled destinations that a node counts.
fn enabled(node: &Server) -> u64 {
    let page = node.metrics();
    let value =
        page.lines().find_map(|line| line.strip_prefix("postrider_circuits{state=\"enabled\"} "));
    value.unwrap_or_else(|| panic!("{page}")).parse().unwrap()
}

#[test]
fn every_destination_is_counted_by_the_one_node_that_holds_its_shard() {
    let Pair { nodes: [mut first, mut second], postgres: _postgres, folder: _folder, .. } = pair();
    for n in 0..20 {
        let body = json!({"url": format!("http://127.0.0.1:9/{n}"), "types": ["task.*"]});
        first.ask("POST", "/v1/subscriptions", Some(&body), 201);
    }
    let counts = first.wait("20 destinations on two nodes", |first| {
        let counts = [enabled(first), enabled(&second)];
        (counts.iter().sum::<u64>() == 20).then_some(counts)
    });
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    second.signal("TERM");
    assert!(second.ended().0.success());
    first.wait("20 destinations on the node that is left", |first| {
        (enabled(first) == 20).then_some(())
    });
}
