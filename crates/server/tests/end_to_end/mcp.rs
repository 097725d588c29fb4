//! `postrider mcp`: an assistant speaks the protocol to the real binary, which asks a real server.

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use serde_json::{Value as Json, json};

use crate::support::server::Server;
use crate::support::{Receiver, Start, postrider, stderr, text};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo=";

/// An assistant that has started the command.
struct Assistant {
    process: Child,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
    asked: u64,
    /// Everything that was answered.
    heard: String,
}

impl Assistant {
    fn start(server: &Server, key: &str, arguments: &[&str]) -> Assistant {
        let mut process = postrider(&["mcp", "--server", &format!("http://{}", server.address)])
            .args(arguments)
            .env("POSTRIDER_KEY", key)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stdout.take().unwrap()).lines();
        let input = process.stdin.take();
        let mut assistant = Assistant { process, input, output, asked: 0, heard: String::new() };
        let hello = assistant.ask(
            "initialize",
            &json!({
                "protocolVersion": "2025-06-18", "capabilities": {},
                "clientInfo": { "name": "test", "version": "1" },
            }),
        );
        assert_eq!(hello["result"]["protocolVersion"], "2025-06-18");
        assert_eq!(hello["result"]["serverInfo"]["name"], "postrider");
        assistant.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        assistant
    }

    fn say(&mut self, message: &Json) {
        writeln!(self.input.as_mut().unwrap(), "{message}").unwrap();
    }

    fn ask(&mut self, method: &str, params: &Json) -> Json {
        self.asked += 1;
        let id = self.asked;
        self.say(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        let line = self.output.next().unwrap().unwrap();
        self.heard.push_str(&line);
        let answer: Json = serde_json::from_str(&line).unwrap();
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    /// What a tool says, and whether it is an error.
    fn call(&mut self, tool: &str, arguments: &Json) -> (String, bool) {
        let answer = self.ask("tools/call", &json!({ "name": tool, "arguments": arguments }));
        let result = &answer["result"];
        (text(&result["content"][0], "text"), result["isError"].as_bool().unwrap())
    }

    /// The JSON that a tool answers with.
    fn json(&mut self, tool: &str, arguments: &Json) -> Json {
        let (said, is_error) = self.call(tool, arguments);
        assert!(!is_error, "{tool}: {said}");
        serde_json::from_str(&said).unwrap()
    }

    fn tools(&mut self) -> Vec<String> {
        let listed = self.ask("tools/list", &json!({}));
        listed["result"]["tools"].as_array().unwrap().iter().map(|one| text(one, "name")).collect()
    }
}

impl Drop for Assistant {
    fn drop(&mut self) {
        // The end of its input ends the command.
        self.input = None;
        drop(self.process.wait());
    }
}

fn key(server: &Server, scopes: &[&str]) -> String {
    text(&server.ask("POST", "/v1/keys", Some(&json!({ "scopes": scopes })), 201), "key")
}

#[test]
fn assistant_finds_out_why_a_delivery_waits_and_sees_no_secret() {
    let mut server = Start::dev().fresh();
    let receiver = Receiver::start(500);
    let body = json!({
        "url": receiver.url(), "types": ["*"], "secret": SECRET, "auth_token": "token-of-the-receiver",
    });
    server.ask("POST", "/v1/subscriptions", Some(&body), 201);
    let event =
        json!({ "type": "task.updated", "data": { "leak": SECRET, "long": "x".repeat(100_000) } });
    let event = server.ask("POST", "/v1/events", Some(&event), 202);
    server.wait("the delivery waits for its retry", |server| {
        (server.ledger()["waiting"] == 1).then_some(())
    });
    let read_key = key(&server, &["read"]);
    let mut assistant = Assistant::start(&server, &read_key, &[]);

    let tools = assistant.tools();
    for expected in
        ["explain_delivery", "list_deliveries", "destination_timeline", "ledger", "simulate"]
    {
        assert!(tools.iter().any(|name| name == expected), "{tools:?}");
    }
    let changes =
        |name: &String| ["enable", "retry", "replay"].iter().any(|word| name.starts_with(word));
    assert!(!tools.iter().any(changes), "{tools:?}");
    assert_eq!(assistant.json("ledger", &json!({}))["waiting"], 1);
    let list = assistant.json("list_deliveries", &json!({ "state": "waiting" }));
    let id = text(&list["data"][0], "id");
    let explained = assistant.json("explain_delivery", &json!({ "id": id }));
    assert!(text(&explained, "summary").starts_with("waiting for retry 1"), "{explained}");
    let destination = text(&list["data"][0], "destination_id");
    assistant.json("get_destination", &json!({ "id": destination }));
    assistant.json("destination_timeline", &json!({ "id": destination, "limit": 5 }));
    assistant.json("list_destinations", &json!({ "state": "enabled" }));
    assistant.json("list_events", &json!({}));
    assistant.json("event_matches", &json!({ "id": text(&event, "id") }));
    let subscriptions = assistant.json("list_subscriptions", &json!({}));
    assert_eq!(subscriptions["data"][0]["auth_token"], "****iver");
    let shown = assistant.json("get_event", &json!({ "id": text(&event, "id") }));
    assert!(shown["cut"].is_string(), "a large payload is cut");
    let plans = assistant.json("simulate", &json!({ "deliveries": 10, "outage_seconds": 3600 }));
    assert!(plans["plans"][0]["delivered"].is_number(), "{plans}");

    let (said, is_error) = assistant.call("explain_delivery", &json!({ "id": "dlv_nope" }));
    assert!(is_error && said.starts_with("404 not_found"), "{said}");
    let refused =
        assistant.ask("tools/call", &json!({ "name": "retry_delivery", "arguments": {} }));
    assert_eq!(refused["error"]["code"], -32602, "what changes something is not offered");
    for secret in [SECRET, "token-of-the-receiver", &read_key, &server.key] {
        assert!(!assistant.heard.contains(&secret[6..]), "a secret was shown");
    }
}

#[test]
fn assistant_with_a_manage_key_and_leave_to_write_enables_retries_and_replays() {
    let mut server = Start::dev().fresh();
    let receiver = Receiver::start(500);
    server.subscribe(&receiver.url());
    server.send(1);
    server.wait("the delivery waits for its retry", |server| {
        (server.ledger()["waiting"] == 1).then_some(())
    });
    let delivery = text(&server.delivery(), "id");
    let destination = text(&server.destination(), "id");

    let reader = key(&server, &["read"]);
    let output =
        postrider(&["mcp", "--allow-writes", "--server", &format!("http://{}", server.address)])
            .env("POSTRIDER_KEY", &reader)
            .output()
            .unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("--allow-writes needs a key with the scope manage"));

    let manager = key(&server, &["read", "manage"]);
    let mut assistant = Assistant::start(&server, &manager, &["--allow-writes"]);
    let freeze = format!("/v1/destinations/{destination}/freeze");
    server.ask("POST", &freeze, Some(&json!({ "reason": "test" })), 200);
    let enabled = assistant.json(
        "enable_destination",
        &json!({ "id": destination, "reason": "the receiver is repaired" }),
    );
    assert_eq!(enabled["state"], "enabled");
    let timeline = assistant.json("destination_timeline", &json!({ "id": destination }));
    assert!(timeline.to_string().contains("the receiver is repaired"), "{timeline}");
    receiver.answer(200);
    assistant.json("retry_delivery", &json!({ "id": delivery }));
    server.wait("it is delivered", |server| (server.ledger()["delivered"] == 1).then_some(()));
    assistant.json("replay_delivery", &json!({ "id": delivery }));
    receiver.wait_until(3);
    let counted = assistant.json("replay_many", &json!({ "dry_run": true, "state": "dead" }));
    assert_eq!(counted["total"], 0);
    let job = assistant.json("replay_many", &json!({ "dry_run": false, "state": "dead" }));
    assert!(text(&job, "id").starts_with("rpl_"), "{job}");
}
