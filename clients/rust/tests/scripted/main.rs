//! Repeats against a server that answers by a script: when, how often, and with which key.

#![expect(clippy::unwrap_used, reason = "a test fails where something is missing")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider_client::types::NewEvent;
use postrider_client::{Client, Error};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// An answer of the script.
#[derive(Clone)]
enum Answer {
    Text(String),
    Hang,
    Reset,
}

fn answer(status: u16, headers: &str, body: &str) -> Answer {
    let length = body.len();
    Answer::Text(format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n{headers}\r\n{body}"))
}

fn accepted() -> Answer {
    answer(202, "", r#"{"id":"e","deliveries":0}"#)
}

fn problem(status: u16, headers: &str) -> Answer {
    let body = format!(r#"{{"title":"t","status":{status},"code":"code_{status}","detail":"d"}}"#);
    answer(status, headers, &body)
}

/// A server that gives these answers, one after the other; the last one for ever.
struct Script {
    url: String,
    /// The head of each request.
    seen: Arc<Mutex<Vec<String>>>,
}

impl Script {
    async fn start(answers: Vec<Answer>) -> Script {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&seen);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(converse(stream, answers.clone(), Arc::clone(&log)));
            }
        });
        Script { url, seen }
    }

    fn client(&self) -> Client {
        let client = Client::builder(&self.url).key("k").retries(2);
        client.retry_wait_max(Duration::from_secs(2)).build().unwrap()
    }

    fn requests(&self) -> usize {
        self.seen.lock().unwrap().len()
    }

    /// The idempotency keys, each once.
    fn keys(&self) -> Vec<String> {
        let seen = self.seen.lock().unwrap();
        let key = |head: &String| {
            let line = head.lines().find_map(|line| line.strip_prefix("idempotency-key: "));
            line.unwrap_or_default().to_owned()
        };
        let mut keys: Vec<_> = seen.iter().map(key).collect();
        keys.dedup();
        keys
    }
}

async fn converse(mut stream: TcpStream, answers: Vec<Answer>, log: Arc<Mutex<Vec<String>>>) {
    while let Some(head) = read_request(&mut stream).await {
        let number = {
            let mut log = log.lock().unwrap();
            log.push(head);
            log.len() - 1
        };
        match answers.get(number).or(answers.last()) {
            Some(Answer::Text(text)) => stream.write_all(text.as_bytes()).await.unwrap(),
            Some(Answer::Hang) => std::future::pending().await,
            Some(Answer::Reset) | None => return,
        }
    }
}

async fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut text = String::new();
    loop {
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                return Some(head.to_owned());
            }
        }
        let mut buffer = [0; 4096];
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return None,
            Ok(read) => text.push_str(std::str::from_utf8(&buffer[..read]).unwrap()),
        }
    }
}

fn event() -> NewEvent {
    NewEvent::new("a.b", 1)
}

#[tokio::test]
async fn failures_that_may_pass_are_repeated_with_the_same_key() {
    let html = answer(502, "", "<html>");
    for failure in [problem(429, ""), problem(503, ""), problem(500, ""), html, Answer::Reset] {
        let script = Script::start(vec![failure.clone(), failure, accepted()]).await;
        assert_eq!(script.client().events().send(&event()).await.unwrap().id, "e");
        assert_eq!(script.requests(), 3);
        let keys = script.keys();
        assert_eq!((keys.len(), keys[0].len()), (1, 32), "{keys:?}");
    }
}

#[tokio::test]
async fn final_refusals_and_redirects_are_not_repeated() {
    for status in [307, 400, 401, 403, 404, 409, 413, 422] {
        let script =
            Script::start(vec![problem(status, "location: http://127.0.0.1:9/\r\n")]).await;
        let error = script.client().events().send(&event()).await.unwrap_err();
        let problem = error.problem().unwrap();
        assert_eq!((problem.status.as_u16(), problem.attempts), (status, 1));
        assert!(error.has_code(&format!("code_{status}")), "{error}");
        assert_eq!(script.requests(), 1);
    }
}

#[tokio::test]
async fn repeats_are_bounded_and_the_error_counts_them() {
    let script = Script::start(vec![problem(503, "")]).await;
    let error = script.client().events().send(&event()).await.unwrap_err();
    assert_eq!((error.problem().unwrap().attempts, script.requests()), (3, 3));
    let once = script.client().with_retries(0);
    let error = once.events().send(&event()).await.unwrap_err();
    assert_eq!((error.problem().unwrap().attempts, script.requests()), (1, 4));
    let reset = Script::start(vec![Answer::Reset]).await;
    let error = reset.client().ledger().await.unwrap_err();
    assert!(matches!(error, Error::Connection { attempts: 3, .. }), "{error}");
}

#[tokio::test]
async fn retry_after_is_obeyed_unless_it_is_too_long() {
    let script = Script::start(vec![problem(429, "retry-after: 0\r\n"), accepted()]).await;
    script.client().events().send(&event()).await.unwrap();
    let date = "retry-after: Fri, 14 Nov 2025 09:30:00 GMT\r\n";
    let script = Script::start(vec![problem(503, date), accepted()]).await;
    script.client().events().send(&event()).await.unwrap();
    let script = Script::start(vec![problem(429, "retry-after: 3600\r\n"), accepted()]).await;
    let error = script.client().events().send(&event()).await.unwrap_err();
    assert_eq!(error.problem().unwrap().retry_after, Some(Duration::from_secs(3600)));
    assert_eq!(script.requests(), 1);
}

#[tokio::test]
async fn a_time_limit_ends_each_attempt() {
    let script = Script::start(vec![Answer::Hang]).await;
    let client = script.client().with_timeout(Duration::from_millis(50)).with_retries(1);
    let error = client.events().send(&event()).await.unwrap_err();
    assert!(matches!(error, Error::Timeout { attempts: 2, .. }), "{error}");
    assert_eq!(error.to_string(), "POST /v1/events: no answer within 0.05 s");
}

#[tokio::test]
async fn an_answer_that_is_not_json_is_told_without_its_text() {
    for body in ["whsec_not-json-at-all", r#"{"id": "whsec_", "deliveries": "whsec_"}"#] {
        let script = Script::start(vec![answer(200, "", body)]).await;
        let error = script.client().events().send(&event()).await.unwrap_err();
        assert!(matches!(error, Error::Answer { .. }), "{error}");
        assert!(!format!("{error} {error:?}").contains("whsec_"), "{error:?}");
    }
}

#[tokio::test]
async fn the_key_of_the_caller_is_sent_and_reads_carry_none() {
    let script = Script::start(vec![accepted()]).await;
    let client = script.client().with_idempotency_key("mine-1").unwrap();
    client.events().send(&event()).await.unwrap();
    assert_eq!(script.keys(), ["mine-1"]);
    let script = Script::start(vec![answer(200, "", "{}")]).await;
    assert!(script.client().ledger().await.is_err());
    assert_eq!(script.keys(), [""]);
    let script = Script::start(vec![accepted()]).await;
    script.client().with_retries(0).events().send(&event()).await.unwrap();
    assert_eq!(script.keys(), [""], "what is sent once needs no key");
}

#[tokio::test]
async fn an_unreachable_server_is_named_by_its_cause_and_never_with_the_key() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let client = Client::builder(url).key("pr_secret_key").retries(0).build().unwrap();
    let error = client.ledger().await.unwrap_err();
    assert!(error.to_string().contains("Connection refused"), "{error}");
    assert!(!format!("{error:?}{client:?}").contains("pr_secret_key"));
}

#[test]
fn urls_and_identifiers_that_cannot_be_used_are_refused_before_anything_is_sent() {
    for url in ["", "ftp://a", "http://a:b@c/", "http://a/?q", "http://a/#f", "a"] {
        assert!(matches!(Client::new(url, "k"), Err(Error::Usage(_))), "{url}");
    }
    let client = Client::new("http://127.0.0.1:1", "k").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for id in ["", ".", ".."] {
        let error = runtime.block_on(client.deliveries().get(id)).unwrap_err();
        assert!(matches!(error, Error::Usage(_)), "{error}");
    }
}
