//! Signing in to the real binary: the link that it prints, proxies in front of it, and what it must not log.

use std::path::Path;

use serde_json::{Value as Json, json};

use crate::support::server::Server;
use crate::support::{Start, http};

/// Signs in as a browser would, with more header lines, each with its end.
fn sign_in(server: &Server, host: &str, headers: &str, body: &Json) -> String {
    let body = body.to_string();
    let length = body.len();
    let request = format!(
        "POST /v1/session HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n{headers}\
         content-length: {length}\r\nconnection: close\r\n\r\n{body}"
    );
    http::raw(server.address, request.as_bytes()).unwrap()
}

fn cookie_of(answer: &str) -> &str {
    assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
    let line = answer.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    line.split(';').next().unwrap()
}

/// Asks with a cookie, and gives the whole answer.
fn ask(server: &Server, method: &str, path: &str, cookie: &str) -> String {
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: {}\r\ncookie: {cookie}\r\norigin: http://{}\r\n\
         content-length: 0\r\nconnection: close\r\n\r\n",
        server.address, server.address
    );
    http::raw(server.address, request.as_bytes()).unwrap()
}

/// Whether the binary has the dashboard in it: builds without Node.js have not.
fn has_page(server: &Server) -> bool {
    let host = server.address;
    let request = format!("GET / HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    http::raw(server.address, request.as_bytes()).unwrap().contains("content-type: text/html")
}

fn assert_nowhere(directory: &Path, secret: &str) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            assert_nowhere(&path, secret);
        } else {
            let bytes = std::fs::read(&path).unwrap();
            let found = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
            assert!(!found, "a token stands in {}", path.display());
        }
    }
}

#[test]
fn printed_link_signs_in_once_and_leaves_no_trace_of_its_token() {
    let mut server = Start::dev().with(&["--set", "telemetry.log=trace"]).fresh();
    if !has_page(&server) {
        // There is nothing to sign in to: no link is printed.
        server.signal("TERM");
        let (status, _) = server.ended();
        assert!(status.success());
        assert_eq!(server.first_printed("sign in: "), None);
        return;
    }
    let link = server.printed("sign in: ");
    let base = format!("http://{}/#/signin?token=", server.address);
    let token = link.strip_prefix(&base).unwrap_or_else(|| panic!("{link}")).to_owned();
    let host = server.address.to_string();
    let body = json!({ "token": token });
    let answer = sign_in(&server, &host, "", &body);
    let cookie = cookie_of(&answer).to_owned();
    let shown = ask(&server, "GET", "/v1/session", &cookie);
    assert!(shown.starts_with("HTTP/1.1 200") && shown.contains("\"admin\""), "{shown}");
    let again = sign_in(&server, &host, "", &body);
    assert!(again.starts_with("HTTP/1.1 410"), "{again}");
    let wrong = sign_in(&server, &host, "", &json!({ "key": format!("{}x", server.key) }));
    assert!(wrong.starts_with("HTTP/1.1 401"), "{wrong}");
    // It outlives a restart, and ends when somebody signs out.
    let mut server = server.restart(Start::dev().with(&["--set", "telemetry.log=trace"]));
    let shown = ask(&server, "GET", "/v1/session", &cookie);
    assert!(shown.starts_with("HTTP/1.1 200"), "{shown}");
    assert!(ask(&server, "DELETE", "/v1/session", &cookie).starts_with("HTTP/1.1 204"));
    assert!(ask(&server, "GET", "/v1/session", &cookie).starts_with("HTTP/1.1 401"));
    let (key, data_dir) = (server.key.clone(), server.data_dir.clone());
    server.signal("TERM");
    let (_, log) = server.ended();
    for secret in [token.as_str(), &cookie, &key] {
        let secret = secret.rsplit('_').next().unwrap();
        assert!(!log.contains(secret), "the log has a secret");
    }
    for secret in [token.as_str(), &cookie] {
        assert_nowhere(&data_dir, secret.rsplit('_').next().unwrap());
    }
}

#[test]
fn session_over_plain_http_needs_a_proxy_that_is_trusted() {
    let plain = Start::dev().fresh();
    let body = json!({ "key": plain.key });
    let proto = "x-forwarded-proto: https\r\n";
    for headers in ["", proto] {
        let answer = sign_in(&plain, "hooks.example.com", headers, &body);
        assert!(answer.starts_with("HTTP/1.1 403") && answer.contains("tls_needed"), "{answer}");
    }
    cookie_of(&sign_in(&plain, "localhost:8080", "", &body));
    let behind = Start::dev().with(&["--set", "server.trusted_proxies=127.0.0.1"]).fresh();
    let body = json!({ "key": behind.key });
    let answer = sign_in(&behind, "hooks.example.com", "", &body);
    assert!(answer.contains("tls_needed"), "{answer}");
    let origin = format!("{proto}origin: https://hooks.example.com\r\n");
    cookie_of(&sign_in(&behind, "hooks.example.com", &origin, &body));
    let origin = format!("{proto}origin: http://hooks.example.com\r\n");
    let answer = sign_in(&behind, "hooks.example.com", &origin, &body);
    assert!(answer.contains("cross_site"), "{answer}");
}

#[test]
fn portal_link_names_where_browsers_reach_the_server() {
    let settings = [
        "--set",
        "server.public_url=https://hooks.example.com",
        "--set",
        "portal.frame_ancestors=https://app.example.com",
    ];
    let server = Start::dev().with(&settings).fresh();
    let made = server.ask("POST", "/v1/portal-links", Some(&json!({"access": "read"})), 201);
    let url = made["url"].as_str().unwrap();
    assert!(url.starts_with("https://hooks.example.com/portal#/signin?token=pt_"), "{url}");
    let request =
        format!("GET /portal HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", server.address);
    let page = http::raw(server.address, request.as_bytes()).unwrap();
    assert!(page.contains("frame-ancestors https://app.example.com"), "{page}");
}
