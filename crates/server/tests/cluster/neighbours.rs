//! Changes on one node that another node relies on.

use serde_json::{Value as Json, json};
use std::os::unix::fs::PermissionsExt as _;

use crate::receiver::Receiver;
use crate::server::Server as Postgres;
use crate::support::http::request_with;
use crate::support::server::Server;
use crate::support::{Start, stderr, text};

pub(crate) const KEY: &str = "admin-key-of-the-cluster-tests";

pub(crate) struct Pair {
    pub(crate) postgres: Postgres,
    pub(crate) folder: tempfile::TempDir,
    pub(crate) url: String,
    pub(crate) nodes: [Server; 2],
}

fn start(url: &str) -> Start {
    Start::dev().with(&["--store", url]).variable("POSTRIDER_ADMIN_KEY", KEY)
}

/// Two nodes with an equal share of the shards.
pub(crate) fn pair() -> Pair {
    let postgres = Postgres::start();
    let url = postgres.database("cluster");
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (folder.path().join("a"), folder.path().join("b"));
    let mut first = start(&url).at(&a);
    std::fs::create_dir(&b).unwrap();
    std::fs::copy(a.join("keyring"), b.join("keyring")).unwrap();
    let mut second = start(&url).at(&b);
    for node in [&mut first, &mut second] {
        node.wait_for_line(|line| line.contains("\"shards\":128"));
    }
    Pair { postgres, folder, url, nodes: [first, second] }
}

fn subscribe(node: &Server, url: &str) -> Json {
    node.ask("POST", "/v1/subscriptions", Some(&json!({"url": url, "types": ["task.*"]})), 201)
}

fn send(node: &Server, n: usize) -> Json {
    node.ask("POST", "/v1/events", Some(&json!({"type": "task.updated", "data": n})), 202)
}

#[test]
fn change_acknowledged_by_one_node_is_effective_on_another_at_once() {
    let pair = pair();
    let receiver = Receiver::start();
    let mut expected = 0;
    for n in 0..20 {
        let [here, there] = [n % 2, 1 - n % 2].map(|place| &pair.nodes[place]);
        let made = subscribe(here, &receiver.url(&format!("/good{n}")));
        let event = send(there, n);
        assert_eq!(event["deliveries"], n + 1, "a subscription that was acknowledged is matched");
        expected += n + 1;
        if n == 19 {
            let path = format!("/v1/subscriptions/{}", text(&made, "id"));
            there.ask("DELETE", &path, None, 204);
            assert_eq!(send(here, n)["deliveries"], n, "one that was deleted is not");
            expected += n;
        }
    }
    receiver.wait_for_event("19", 19);
    let mut nodes = pair.nodes;
    for node in &mut nodes {
        let ledger = node.wait("everything to end", |node| {
            let ledger = node.ledger();
            let ended = ledger["delivered"].as_u64()? + ledger["cancelled"].as_u64()?;
            (Some(ended) == ledger["accepted"].as_u64()).then_some(ledger)
        });
        assert_eq!(ledger["accepted"], expected);
    }
    assert!(receiver.good().values().all(|times| *times == 1), "each is sent once");
    println!(
        "cluster, read your writes: 20 subscriptions made on one node and matched on the other"
    );
}

/// The same request twice with one idempotency key, on both nodes at once: it is executed once, and
/// both get the same answer.
#[test]
fn a_request_that_comes_to_two_nodes_at_once_is_done_once() {
    const ROUNDS: usize = 20;
    let pair = pair();
    for n in 0..ROUNDS {
        let headers = format!("idempotency-key: round-{n}\r\n");
        let body = json!({"type": "task.updated", "data": n});
        let answers = std::thread::scope(|scope| {
            let asked = [0, 1].map(|place| {
                let (address, body, headers) = (pair.nodes[place].address, &body, &headers);
                scope.spawn(move || {
                    let path = "/v1/events";
                    request_with(address, KEY, "POST", path, headers, Some(body)).unwrap()
                })
            });
            asked.map(|one| one.join().unwrap())
        });
        assert_eq!(answers[0].0, 202, "{answers:?}");
        assert_eq!(answers[0], answers[1], "both are told the same");
    }
    let events = pair.nodes[0].all("/v1/events");
    assert_eq!(events.len(), ROUNDS, "each was done once");
    println!("cluster, idempotency: {ROUNDS} requests at two nodes at once, each done once");
}

#[test]
fn command_sent_to_any_node_is_executed_by_the_owner() {
    let mut pair = pair();
    let receiver = Receiver::start();
    for n in 0..6 {
        subscribe(&pair.nodes[0], &receiver.url(&format!("/good{n}")));
    }
    send(&pair.nodes[0], 1);
    receiver.wait_for_event("1", 6);
    let list = |node: &Server, path: &str| node.get(path)["data"].as_array().unwrap().clone();
    let [a, b] = &mut pair.nodes;
    b.wait("all to be delivered", |node| (node.ledger()["delivered"] == 6).then_some(()));
    for destination in list(a, "/v1/destinations") {
        let path = format!("/v1/destinations/{}", text(&destination, "id"));
        let frozen = a.ask("POST", &format!("{path}/freeze"), Some(&json!({"reason": "x"})), 200);
        assert_eq!(frozen["state"], "frozen");
        assert_eq!(b.get(&path)["state"], "frozen");
    }
    send(b, 2);
    b.wait("all to wait", |node| (node.ledger()["waiting"] == 6).then_some(()));
    for delivery in list(a, "/v1/deliveries?state=waiting") {
        let path = format!("/v1/deliveries/{}", text(&delivery, "id"));
        let cancelled = a.ask("POST", &format!("{path}/cancel"), None, 200);
        assert_eq!(cancelled["state"], "cancelled");
        a.ask("POST", &format!("{path}/cancel"), None, 409);
    }
    for destination in list(b, "/v1/destinations") {
        let path = format!("/v1/destinations/{}/enable", text(&destination, "id"));
        assert_eq!(b.ask("POST", &path, None, 200)["state"], "enabled");
    }
    // A job replays deliveries of both nodes, each once.
    let job = a.ask("POST", "/v1/replays", Some(&json!({"state": "cancelled"})), 201);
    let path = format!("/v1/replays/{}", text(&job, "id"));
    let job = b.wait("the job to end", |node| {
        let job = node.get(&path);
        (job["state"] == "finished").then_some(job)
    });
    assert_eq!(job["done"], 6, "{job}");
    receiver.wait_for_event("2", 6);
    let ledger = a.wait("the ledger", |node| {
        let ledger = node.ledger();
        (ledger["delivered"] == 12).then_some(ledger)
    });
    assert_eq!((&ledger["accepted"], &ledger["cancelled"]), (&json!(12), &json!(0)));
    let outcomes = &a.get(&path)["outcomes"];
    let all = json!({"pending": 0, "failed": 0, "delivered": 6, "dead": 0, "withdrawn": 0});
    assert_eq!(*outcomes, all, "each node counted its own");
    assert!(receiver.good().values().all(|times| *times == 1), "each is sent once");
    println!(
        "cluster, commands: 6 destinations of 2 nodes frozen, enabled, cancelled and replayed"
    );
}

#[test]
fn a_node_without_the_key_ring_refuses_to_start() {
    let pair = pair();
    subscribe(&pair.nodes[0], "http://127.0.0.1:9/x");
    let path = pair.folder.path().join("c");
    let refusal = |url: &str| {
        let output = start(url).command(&path).output().unwrap();
        assert!(!output.status.success());
        stderr(&output)
    };
    let said = refusal(&pair.url);
    assert!(said.contains("is missing, and this data was sealed with it"), "{said}");
    std::fs::create_dir_all(&path).unwrap();
    let ring = path.join("keyring");
    std::fs::write(&ring, other_ring(&pair)).unwrap();
    std::fs::set_permissions(&ring, std::fs::Permissions::from_mode(0o600)).unwrap();
    let said = refusal(&pair.url);
    assert!(said.contains("is the key ring of another store"), "{said}");
}

#[test]
fn node_without_the_key_ring_is_refused_even_if_nothing_is_sealed_yet() {
    let pair = pair();
    let path = pair.folder.path().join("c");
    for _ in 0..2 {
        let output = start(&pair.url).command(&path).output().unwrap();
        let said = stderr(&output);
        assert!(!output.status.success(), "{said}");
        assert!(said.contains("is missing, and this cluster has one"), "{said}");
        assert!(!path.join("keyring").exists(), "one of no use is not left behind");
    }
}

/// A valid key ring of another cluster.
fn other_ring(pair: &Pair) -> String {
    let ring = std::fs::read_to_string(pair.folder.path().join("a/keyring")).unwrap();
    let mut ring: Json = serde_json::from_str(&ring).unwrap();
    let key = ring["keys"][0]["key"].clone();
    ring["hash_key"] = key;
    ring.to_string()
}
