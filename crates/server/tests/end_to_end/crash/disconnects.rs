//! Clients that disconnect before their answer, and `kill -9` between an effect and its answer. Each
//! client repeats its request with the same `Idempotency-Key`.

use std::collections::HashSet;
use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::crash::{Random, count, figure};
use crate::support::server::Server;
use crate::support::{Start, http, text};

/// A change with its own idempotency key.
struct Mutation {
    key: String,
    path: &'static str,
    body: Json,
}

impl Mutation {
    fn new(n: usize) -> Mutation {
        let url = format!("http://127.0.0.1:9/{n}");
        let (path, body) = match n % 4 {
            0 => ("/v1/events", json!({"type": "task.updated", "data": {"n": n}})),
            1 => ("/v1/subscriptions", json!({"url": url, "types": ["never.sent"]})),
            2 => ("/v1/keys", json!({"name": format!("key {n}"), "scopes": ["read"]})),
            _ => {
                let event = |m: usize| json!({"type": "task.updated", "data": {"n": n, "m": m}});
                ("/v1/events/batch", json!([event(1), event(2)]))
            }
        };
        Mutation { key: format!("mutation-{n}"), path, body }
    }

    /// Sends the request, and disconnects after a moment without reading the answer.
    fn cut(&self, server: SocketAddr, key: &str, wait: impl FnOnce()) -> io::Result<()> {
        let mut stream = TcpStream::connect(server)?;
        let body = self.body.to_string();
        let head = format!(
            "POST {} HTTP/1.1\r\nhost: {server}\r\nauthorization: Bearer {key}\r\n\
             idempotency-key: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            self.path,
            self.key,
            body.len()
        );
        stream.write_all((head + &body).as_bytes())?;
        wait();
        Ok(())
    }

    /// Repeats the request until it is answered.
    fn repeat(&self, server: &Server) -> String {
        let headers = format!("idempotency-key: {}\r\n", self.key);
        let (address, key) = (server.address, &server.key);
        let body = Some(&self.body);
        let answer = http::request_with(address, key, "POST", self.path, &headers, body);
        let (status, answer) = answer.unwrap();
        assert!([201, 202].contains(&status), "{} {}: {status} {answer}", self.path, self.key);
        answer
    }
}

/// Checks that every change had its effect once, and that the answers are true.
fn compare(server: &Server, mutations: &[(Mutation, String)]) {
    let answers = |path: &str| -> Vec<Json> {
        let of_path = mutations.iter().filter(|(mutation, _)| mutation.path == path);
        of_path.map(|(_, answer)| serde_json::from_str(answer).unwrap()).collect()
    };
    let ids = |values: &[Json]| -> HashSet<String> {
        values.iter().map(|value| text(value, "id")).collect()
    };
    let mut events = answers("/v1/events");
    for batch in answers("/v1/events/batch") {
        events.extend(batch["results"].as_array().unwrap().iter().cloned());
    }
    for event in &events {
        assert_eq!(event.get("duplicate"), None, "no event is a duplicate of itself: {event}");
    }
    let stored = server.all("/v1/events");
    assert_eq!(stored.len(), events.len(), "each event is stored once");
    assert_eq!(ids(&stored), ids(&events));
    let subscriptions = answers("/v1/subscriptions");
    let stored = server.all("/v1/subscriptions");
    assert_eq!(stored.len(), subscriptions.len(), "each subscription is stored once");
    assert_eq!(ids(&stored), ids(&subscriptions));
    for subscription in &subscriptions {
        assert!(text(subscription, "secret").starts_with("whsec_"), "its secret was seen");
    }
    let keys = answers("/v1/keys");
    // The list of an admin key also has the admin key, which belongs to no tenant.
    let stored = server.all("/v1/keys").iter().filter(|key| !key["tenant"].is_null()).count();
    assert_eq!(stored, keys.len(), "each key is stored once");
    for key in &keys {
        let asked = http::request(server.address, &text(key, "key"), "GET", "/v1/ledger", None);
        assert_eq!(asked.unwrap().0, 200, "a key that was answered works");
    }
}

#[test]
fn disconnected_clients_find_one_effect_and_its_first_answer() {
    let (mut random, disconnects) = (Random::new(), count("CRASH_DISCONNECTS", 100));
    let server = Start::dev().fresh();
    let mut done = Vec::new();
    for n in 0..disconnects {
        let mutation = Mutation::new(n);
        let wait = || random.moment(Duration::from_micros(4_000));
        mutation.cut(server.address, &server.key, wait).unwrap();
        let answer = mutation.repeat(&server);
        done.push((mutation, answer));
    }
    for (mutation, answer) in &done {
        assert_eq!(mutation.repeat(&server), *answer, "the first answer, byte for byte");
    }
    compare(&server, &done);
    figure(&format!("disconnects: {disconnects} clients gone, 0 effects twice, 0 answers lost"));
}

#[test]
fn a_killed_server_has_done_each_mutation_once_when_it_is_repeated() {
    let (mut random, kills) = (Random::new(), count("CRASH_KEYED_KILLS", 8));
    let mut server = Start::dev().fresh();
    let mut done = Vec::new();
    for n in 0..kills {
        let mutations: Vec<Mutation> = (0..4).map(|m| Mutation::new(n * 4 + m)).collect();
        for mutation in &mutations {
            mutation.cut(server.address, &server.key, || {}).unwrap();
        }
        random.moment(Duration::from_micros(8_000));
        server.kill();
        server = server.succeeded_by(Start::dev());
        for mutation in mutations {
            let answer = mutation.repeat(&server);
            done.push((mutation, answer));
        }
    }
    for (mutation, answer) in &done {
        assert_eq!(mutation.repeat(&server), *answer, "the first answer, byte for byte");
    }
    compare(&server, &done);
    figure(&format!(
        "kill -9 with idempotency keys: {kills} kills, {} mutations, 0 effects twice, 0 answers lost",
        done.len()
    ));
}
