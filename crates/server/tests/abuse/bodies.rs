//! Malformed, ambiguous or misleading requests: bodies, heads, paths, queries.

use std::io::{BufReader, Write as _};
use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::kit::{
    ATTACKER, Answer, Client, Verdict, connect, count, ms, now, read_answer, request_head,
};
use crate::scene::Scene;
use crate::support::text;

#[test]
fn hostile_json_is_answered_without_a_server_error() {
    let mut verdict = Verdict::of("hostile JSON");
    let scene = Scene::start();
    let quiet = scene.quiet();
    let keys = count(50_000, 100_000);
    let many: Vec<_> = (0..keys / 2).map(|n| format!("\"k{n}\":1")).collect();
    let same = vec!["\"k\":1"; keys].join(",");
    let wrap = |data: &str| format!("{{\"type\":\"a.b\",\"data\":{data}}}");
    let cases = [
        ("nested arrays", wrap(&format!("{}{}", "[".repeat(100_000), "]".repeat(100_000)))),
        ("nested objects", wrap(&format!("{}1{}", "{\"a\":".repeat(50_000), "}".repeat(50_000)))),
        ("open arrays", "[".repeat(1_000_000)),
        ("huge exponent", wrap("1e999999999")),
        ("huge number", wrap(&"9".repeat(500_000))),
        ("many keys", wrap(&format!("{{{}}}", many.join(",")))),
        ("the same key", wrap(&format!("{{{same}}}"))),
        ("the same field", "{\"type\":\"a.b\",\"type\":\"c.d\",\"data\":1}".to_owned()),
        ("lone surrogate", wrap("\"\\ud800\"")),
        ("null character", wrap("\"\\u0000\"")),
        ("escapes", wrap(&format!("\"{}\"", "\\u0041".repeat(150_000)))),
        ("long type", format!("{{\"type\":\"{}\",\"data\":1}}", "a.".repeat(400_000))),
        ("long id", format!("{{\"id\":\"{}\",\"type\":\"a\",\"data\":1}}", "i".repeat(900_000))),
        ("byte order mark", format!("\u{feff}{}", wrap("1"))),
        ("two values", format!("{}{}", wrap("1"), wrap("2"))),
        ("nothing", String::new()),
        (
            "deep time",
            "{\"type\":\"a\",\"data\":1,\"time\":\"+999999-12-31T23:59:59Z\"}".to_owned(),
        ),
    ];
    let watch = scene.watch();
    let (mut faults, mut worst) = (Vec::new(), Duration::ZERO);
    for path in ["/v1/events", "/v1/events/batch", "/v1/subscriptions", "/v1/filters/test"] {
        for (name, body) in &cases {
            let begun = now();
            match scene.attacker().send("POST", path, "", body.as_bytes()) {
                Ok(Answer { status: 200..=499, .. }) => {}
                Ok(answer) => faults.push(format!("{name} at {path}: {}", answer.status)),
                Err(error) => faults.push(format!("{name} at {path}: {error}")),
            }
            worst = worst.max(begun.elapsed());
        }
    }
    verdict.victim(&quiet, &watch.end());
    verdict.figure(format!("{} bodies, slowest {}", cases.len() * 4, ms(worst)));
    verdict.must(faults.is_empty(), faults.join(", "));
    verdict.must(scene.is_sound(), "the server is not sound afterwards");
    verdict.end();
}

#[test]
fn tiny_chunks_and_chunk_extensions_are_bounded() {
    let mut verdict = Verdict::of("tiny chunks and chunk extensions");
    let scene = Scene::start();
    let quiet = scene.quiet();
    let (before, watch) = (scene.memory(), scene.watch());
    let head = format!(
        "POST /v1/events HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n",
        scene.mallory
    );
    let event = json!({"type": "a.b", "data": "x".repeat(count(20_000, 200_000))}).to_string();
    let mut tiny = head.clone().into_bytes();
    for byte in event.bytes() {
        tiny.extend_from_slice(&[b'1', b'\r', b'\n', byte, b'\r', b'\n']);
    }
    tiny.extend_from_slice(b"0\r\n\r\n");
    let mut stream = connect(scene.address(), ATTACKER).unwrap();
    stream.write_all(&tiny).unwrap();
    let answer = read_answer(&mut BufReader::new(stream)).map_or(0, |answer| answer.status);
    verdict.figure(format!("{} chunks of a byte: {answer}", event.len()));
    verdict.must(matches!(answer, 202 | 400..=499), format!("tiny chunks answered {answer}"));
    // Chunk extensions that are longer than a head may be.
    let mut sent = 0;
    let mut stream = connect(scene.address(), ATTACKER).unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    let extension = format!("1;{}\r\nx\r\n", "e".repeat(10_000));
    for _ in 0..count(200, 5_000) {
        if stream.write_all(extension.as_bytes()).is_err() {
            break;
        }
        sent += extension.len();
    }
    let answer = read_answer(&mut BufReader::new(stream)).map_or(0, |answer| answer.status);
    let grown = scene.memory().saturating_sub(before);
    verdict.victim(&quiet, &watch.end());
    verdict.figure(format!(
        "{} KiB of extensions taken, then {answer} (0: closed), memory +{grown} MiB",
        sent / 1024
    ));
    verdict.must(grown < 100, format!("memory grew by {grown} MiB"));
    verdict.end();
}

/// Requests whose end two parsers could see at different places. None may be answered twice, and a
/// smuggled request (an event with the type `smuggled`) must not be stored.
#[test]
fn ambiguous_requests_smuggle_nothing() {
    let mut verdict = Verdict::of("request smuggling");
    let scene = Scene::start();
    let inner_body = r#"{"type":"smuggled.event","data":1}"#;
    let inner =
        request_head(&scene.mallory, "POST", "/v1/events", "", inner_body.len()) + inner_body;
    let start = format!(
        "POST /v1/events HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\n",
        scene.mallory
    );
    let mut cases: Vec<String> = [
        "content-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "transfer-encoding: chunked\r\ncontent-length: 4\r\n\r\n0\r\n\r\n",
        "content-length: 0\r\ncontent-length: 5\r\n\r\n",
        "content-length: +0\r\n\r\n",
        "content-length: 0, 0\r\n\r\n",
        "content-length: 0x0\r\n\r\n",
        "transfer-encoding: xchunked\r\n\r\n0\r\n\r\n",
        "transfer-encoding : chunked\r\n\r\n0\r\n\r\n",
        "transfer-encoding: identity\r\n\r\n",
        "transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        "x: y\n\ncontent-length: 0\r\n\r\n",
        "x: y\r\n content-length: 0\r\n\r\n",
        "content-length: 18446744073709551616\r\n\r\n",
        "content-length: -1\r\n\r\n",
        "x\0y: z\r\ncontent-length: 0\r\n\r\n",
    ]
    .iter()
    .map(|rest| format!("{start}{rest}"))
    .collect();
    cases.push("GET /healthz HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\n".to_owned());
    let total = cases.len();
    let mut twice = Vec::new();
    for case in cases {
        let mut stream = connect(scene.address(), ATTACKER).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(15))).unwrap();
        drop(stream.write_all(format!("{case}{inner}").as_bytes()));
        let mut reader = BufReader::new(stream);
        let first = read_answer(&mut reader).map_or(0, |answer| answer.status);
        // A second answer is allowed if the first request had an unambiguous end.
        let second = read_answer(&mut reader).map_or(0, |answer| answer.status);
        if second == 202 {
            let shown: String = case[start.len().min(case.len())..].chars().take(60).collect();
            twice.push(format!("{shown:?}: {first} then {second}"));
        }
    }
    let events = scene.attacker().get("/v1/events?limit=1000").unwrap().json();
    let stored = events["data"].as_array().map_or(0, |events| {
        events.iter().filter(|event| event["type"] == "smuggled.event").count()
    });
    verdict.figure(format!("{total} ambiguous requests, {stored} smuggled"));
    verdict.must(stored == 0, format!("smuggled: {}", twice.join(", ")));
    verdict.end();
}

#[test]
fn repeated_headers_that_decide_who_asks_are_refused() {
    let mut verdict = Verdict::of("repeated Authorization, postrider-tenant, Host");
    let scene = Scene::start();
    let admin = scene.server.key.clone();
    let mut faults = Vec::new();
    for (name, key, headers) in [
        ("authorization", &scene.mallory, format!("authorization: Bearer {}\r\n", scene.alice)),
        ("host", &scene.mallory, "host: elsewhere\r\n".to_owned()),
        (
            "postrider-tenant",
            &admin,
            "postrider-tenant: alice\r\npostrider-tenant: mallory\r\n".to_owned(),
        ),
    ] {
        let mut client = Client::new(scene.address(), key, ATTACKER);
        let status = client.send("GET", "/v1/ledger", &headers, b"").map_or(0, |a| a.status);
        if status != 400 {
            faults.push(format!("repeated {name}: {status}"));
        }
    }
    // A key of one tenant with a header that names another.
    let mut client = scene.attacker();
    let foreign = client.send("GET", "/v1/events", "postrider-tenant: alice\r\n", b"");
    let foreign = foreign.map_or(0, |answer| answer.status);
    verdict.must(matches!(foreign, 400..=404), format!("a foreign tenant named: {foreign}"));
    verdict
        .figure(format!("3 repeated, {} taken; a foreign tenant named: {foreign}", faults.len()));
    verdict.must(faults.is_empty(), faults.join(", "));
    verdict.end();
}

#[test]
fn odd_paths_and_queries_are_never_server_errors() {
    let mut verdict = Verdict::of("odd paths and queries");
    let scene = Scene::start();
    let mut asked = 0;
    let mut faults = Vec::new();
    let long = format!("/v1/events/{}", "x".repeat(30_000));
    let cursor = format!("/v1/events?cursor={}", "A".repeat(20_000));
    let paths = [
        "/v1/../v1/keys",
        "//v1/keys",
        "/v1/./keys",
        "/v1/keys/",
        "/v1/%6beys",
        "/v1%2fkeys",
        "/v1/events/%2e%2e%2fkeys",
        "/v1/events/%00",
        "/v1/events/%ff%fe",
        "/v1/keys;a=b",
        "/V1/keys",
        "/v1/events?limit=18446744073709551616",
        "/v1/events?limit=-1",
        "/v1/events?limit=1e3",
        "/v1/events?limit=%00",
        "/v1/events?since=0000-01-01T00:00:00Z",
        "/v1/events?since=-009999-01-01T00:00:00Z",
        "/v1/events?until=9999-12-31T23:59:59.999Z",
        "/v1/events?until=%2B999999-12-31T23:59:59Z",
        "/v1/deliveries?state=%27%20OR%201%3D1--",
        "/v1/deliveries?type=%25&subscription=*",
        "/v1/deliveries?since=9999-12-31T23:59:59Z",
        "/v1/stats?since=0001-01-01T00:00:00Z&until=9999-12-31T23:59:59Z&step_minutes=1",
        "/v1/stats?since=9999-12-31T23:59:59Z",
        "/v1/stats?step_minutes=99999999999999999999",
        "/v1/ledger?scope=all",
        "/v1/audit?limit=1000",
        "/v1/events?limit=1&limit=1000",
        &long,
        &cursor,
    ];
    for path in paths {
        for method in
            ["GET", "POST", "DELETE", "PATCH", "PUT", "OPTIONS", "HEAD", "TRACE", "CONNECT"]
        {
            asked += 1;
            let begun = now();
            let mut stream = connect(scene.address(), ATTACKER).unwrap();
            let head = request_head(&scene.mallory, method, path, "connection: close\r\n", 0);
            drop(stream.write_all(head.as_bytes()));
            let mut answer = Vec::new();
            drop(std::io::Read::read_to_end(&mut stream, &mut answer));
            let answer = String::from_utf8_lossy(&answer).into_owned();
            let status = answer.split(' ').nth(1).unwrap_or("none").to_owned();
            let shown: String = path.chars().take(60).collect();
            if !status.starts_with(['2', '3', '4']) {
                faults.push(format!("{method} {shown}: {status} after {:?}", begun.elapsed()));
            }
            if path.contains("keys") && status.starts_with('2') && !answer.contains("allow:") {
                faults.push(format!("{method} {shown} answered {status} to a tenant's key"));
            }
        }
    }
    verdict.figure(format!("{asked} requests, {} wrong", faults.len()));
    verdict.must(faults.is_empty(), faults.join(", "));
    verdict.end();
}

#[test]
fn forged_and_foreign_cursors_are_refused() {
    let mut verdict = Verdict::of("forged and foreign cursors");
    let scene = Scene::start();
    let mut client = scene.attacker();
    for n in 0..6 {
        scene.subscribe(&format!("http://127.0.0.1:9/{n}"), "a.b");
    }
    client.post("/v1/events/batch", &json!(vec![json!({"type": "a.b", "data": 1}); 5])).unwrap();
    let mut alice = scene.victim();
    alice.post("/v1/events/batch", &json!(vec![json!({"type": "alice.x", "data": 1}); 5])).unwrap();
    let lists = ["events", "subscriptions", "destinations", "deliveries"];
    let cursors: Vec<(usize, String)> = (0..lists.len())
        .filter_map(|n| {
            let page = client.get(&format!("/v1/{}?limit=2", lists[n])).unwrap().json();
            Some((n, page["next_cursor"].as_str()?.to_owned()))
        })
        .collect();
    let page = alice.get("/v1/events?limit=2").unwrap().json();
    let hers = text(&page, "next_cursor");
    let (mut taken, mut forged, mut leaked) = (Vec::new(), 0, 0);
    for (n, cursor) in &cursors {
        for (m, list) in lists.iter().enumerate().filter(|(m, _)| m != n) {
            let status = client.status("GET", &format!("/v1/{list}?cursor={cursor}"), &Json::Null);
            if !matches!(status, 400 | 422) {
                taken.push(format!("cursor of {} at {}: {status}", lists[*n], lists[m]));
            }
        }
        // Flip every byte, one at a time, and truncate the text.
        for place in 0..cursor.len() {
            let mut bytes = cursor.clone().into_bytes();
            bytes[place] = if bytes[place] == b'A' { b'B' } else { b'A' };
            let bad = String::from_utf8(bytes).unwrap();
            for bad in [bad, cursor[..place].to_owned()] {
                forged += 1;
                let answer = client.get(&format!("/v1/{}?cursor={bad}", lists[*n])).unwrap();
                verdict.must(answer.status < 500, format!("forged cursor: {}", answer.status));
                leaked += usize::from(String::from_utf8_lossy(&answer.body).contains("alice.x"));
            }
        }
    }
    let answer = client.get(&format!("/v1/events?cursor={hers}")).unwrap();
    leaked += usize::from(String::from_utf8_lossy(&answer.body).contains("alice.x"));
    verdict
        .figure(format!("{forged} forged, {} of other lists taken, {leaked} leaked", taken.len()));
    verdict.must(taken.is_empty(), taken.join(", "));
    verdict.must(leaked == 0, "another tenant's events were shown");
    verdict.end();
}
