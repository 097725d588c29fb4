//! A server without a socket. Every answer is checked against the OpenAPI document: an undocumented
//! status fails the test.

use std::net::IpAddr;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use postrider_api::ClientAddress;
use postrider_api::process::{About, Arrivals, Disk, Process, Setting};
use postrider_api::{
    ApiParts, ApiSettings, ApiState, Bootstrap, GivenAdmin, KeyRing, Vault, bootstrap_admin,
};
use postrider_domain::attempt::{
    Answer as Answered, BodyEnd, Ending, Failure, FailureClass, Finished, Timings,
};
use postrider_domain::ids::TenantId;
use postrider_domain::policy::Policy;
use postrider_domain::time::Timestamp;
use postrider_engine::{Background, EngineHandle, Options, Parts, Quotas, SeededEntropy};
use postrider_store::History as _;
use postrider_store_testing::memory::MemoryStore;
use postrider_transport::{Clock, Egress, Transport};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tower::ServiceExt as _;

use crate::schema;

/// A clock that tests advance.
pub(crate) struct HandClock(AtomicI64);

impl HandClock {
    pub(crate) fn advance(&self, duration: Duration) {
        let ms = i64::try_from(duration.as_millis()).unwrap();
        self.0.fetch_add(ms, Ordering::SeqCst);
    }
}

impl Clock for HandClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix_ms(self.0.load(Ordering::SeqCst))
    }
}

/// A process that knows two settings.
struct SampleProcess;

impl Process for SampleProcess {
    fn settings(&self) -> Vec<Setting> {
        let setting = |key, value, origin, place: &str, live| Setting {
            key,
            value,
            origin,
            place: place.to_owned(),
            help: "what it is",
            live,
        };
        vec![
            setting("retry.max", json!(11), "default", "default", true),
            setting("admin_key", json!("***"), "env", "environment variable X", false),
            setting("node", Value::Null, "default", "default", false),
        ]
    }

    fn about(&self) -> About {
        let started_at = Timestamp::from_unix_ms(1_763_198_000_000);
        About { version: "0.0.0", started_at, time_scale: 1, store: "embedded" }
    }

    fn disk(&self) -> Option<Disk> {
        Some(Disk { free: 1, total: 2, data: 3 })
    }

    /// Of the tenant acme, and of all.
    fn arrivals(&self, tenant: Option<&TenantId>) -> Option<Arrivals> {
        let of = |count, p50, p99| {
            let [p50, p99] = [p50, p99].map(Duration::from_millis);
            Some(Arrivals { count, p50, p99 })
        };
        match tenant.map(TenantId::as_str) {
            None => of(9, 20, 4_000),
            Some("acme") => of(3, 12, 250),
            Some(_) => None,
        }
    }
}

/// Answers as the last segment of the URL says: a status, `refused`, `blocked`, or `hang` until it is released.
#[derive(Default)]
pub(crate) struct Receiver {
    pub(crate) requests: Mutex<Vec<(String, String, Bytes)>>,
    pub(crate) release: Notify,
}

impl Transport for Receiver {
    async fn send(&self, request: postrider_transport::Request) -> Finished {
        let url = request.target.url().to_string();
        let headers: Vec<String> =
            request.headers.iter().map(|(n, v)| format!("{n}: {}", text(v.as_bytes()))).collect();
        let (headers, body) = (headers.join("\n"), request.body.to_bytes());
        self.requests.lock().unwrap().push((url.clone(), headers.clone(), body));
        let word = url.rsplit('/').next().unwrap_or_default();
        if word == "hang" {
            self.release.notified().await;
        }
        if word == "refused" {
            let detail = "connect to 192.0.2.7:443: refused".to_owned();
            return Finished {
                started_at: Timestamp::from_unix_ms(1_763_199_000_000),
                timings: Timings::default(),
                ending: Ending::Failed(Failure { class: FailureClass::Refused, detail }),
            };
        }
        if word == "blocked" {
            let detail = "10.1.2.3 is private".to_owned();
            return Finished {
                started_at: Timestamp::from_unix_ms(1_763_199_000_000),
                timings: Timings::default(),
                ending: Ending::Failed(Failure { class: FailureClass::Blocked, detail }),
            };
        }
        let status = word.parse().unwrap_or(200);
        // A receiver that echoes the request's headers.
        let body = if url.contains("/echo/") { headers.into() } else { Bytes::from("seen") };
        let answer = Answered { status, retry_after: None, body, body_end: BodyEnd::Whole };
        Finished {
            started_at: Timestamp::from_unix_ms(1_763_199_000_000),
            timings: Timings { total: Duration::from_millis(7), ..Timings::default() },
            ending: Ending::Answered(answer),
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The server.
pub(crate) struct Api {
    pub(crate) router: Router,
    pub(crate) store: MemoryStore,
    pub(crate) engine: EngineHandle,
    pub(crate) clock: Arc<HandClock>,
    pub(crate) receiver: Arc<Receiver>,
    pub(crate) vault: Vault,
    pub(crate) admin: String,
    pub(crate) state: ApiState,
}

impl Api {
    pub(crate) async fn new() -> Self {
        Api::with(ApiSettings::default()).await
    }

    pub(crate) async fn with(settings: ApiSettings) -> Self {
        Api::build(settings, None, None, Options::default()).await
    }

    pub(crate) async fn with_given_admin(key: &str) -> Self {
        Api::build(ApiSettings::default(), Some(key), None, Options::default()).await
    }

    pub(crate) async fn with_metrics_key(key: &str) -> Self {
        Api::build(ApiSettings::default(), None, Some(key), Options::default()).await
    }

    pub(crate) async fn with_quotas(quotas: Quotas) -> Self {
        let options = Options { quotas, ..Options::default() };
        Api::build(ApiSettings::default(), None, None, options).await
    }

    async fn build(
        settings: ApiSettings,
        given: Option<&str>,
        metrics: Option<&str>,
        options: Options,
    ) -> Self {
        let store = MemoryStore::default();
        let clock = Arc::new(HandClock(AtomicI64::new(1_763_199_000_000)));
        let receiver = Arc::new(Receiver::default());
        let vault = Vault::new(KeyRing::generate().unwrap());
        let Bootstrap::Created(admin) =
            bootstrap_admin(&store, &vault, None, clock.now()).await.unwrap()
        else {
            panic!("an empty store has no key")
        };
        let parts = Parts {
            store: Arc::new(store.clone()),
            clock: Arc::clone(&clock) as Arc<dyn Clock>,
            entropy: Arc::new(SeededEntropy::new(7)),
            credentials: Arc::new(vault.clone()),
            policy: Policy::default(),
            options,
            spans: None,
            background: Background::default(),
        };
        let engine = postrider_engine::start(parts, Arc::clone(&receiver)).await.unwrap();
        let state = ApiState::new(ApiParts {
            store: Arc::new(store.clone()),
            engine: engine.clone(),
            vault: vault.clone(),
            clock: Arc::clone(&clock) as Arc<dyn Clock>,
            egress: Egress::default(),
            settings,
            given_admin: given.map(|key| GivenAdmin::new(&vault, key).unwrap()),
            metrics: Some(Arc::new(|| "up 1\n".to_owned())),
            metrics_key: metrics.map(|key| GivenAdmin::new(&vault, key).unwrap()),
            process: Arc::new(SampleProcess),
        });
        let router = postrider_api::router(state.clone());
        Api { router, store, engine, clock, receiver, vault, admin: admin.to_string(), state }
    }

    /// Another server on the same store, where the operator has chosen this admin key.
    pub(crate) fn with_another_given_admin(&self, key: &str) -> Api {
        let state = ApiState::new(ApiParts {
            store: Arc::new(self.store.clone()),
            engine: self.engine.clone(),
            vault: self.vault.clone(),
            clock: Arc::clone(&self.clock) as Arc<dyn Clock>,
            egress: Egress::default(),
            settings: ApiSettings::default(),
            given_admin: Some(GivenAdmin::new(&self.vault, key).unwrap()),
            metrics: None,
            metrics_key: None,
            process: Arc::new(SampleProcess),
        });
        Api {
            router: postrider_api::router(state.clone()),
            store: self.store.clone(),
            engine: self.engine.clone(),
            clock: Arc::clone(&self.clock),
            receiver: Arc::clone(&self.receiver),
            vault: self.vault.clone(),
            admin: self.admin.clone(),
            state,
        }
    }

    pub(crate) fn call(&self, method: &'static str, path: &str) -> Call<'_> {
        let authorization = format!("Bearer {}", self.admin);
        Call {
            api: self,
            method,
            path: path.to_owned(),
            headers: vec![("authorization".to_owned(), authorization)],
            body: Body::empty(),
            address: None,
        }
    }

    pub(crate) fn get(&self, path: &str) -> Call<'_> {
        self.call("GET", path)
    }

    pub(crate) fn post(&self, path: &str, body: Value) -> Call<'_> {
        self.call("POST", path).json(body)
    }

    pub(crate) fn patch(&self, path: &str, body: Value) -> Call<'_> {
        self.call("PATCH", path).json(body)
    }

    pub(crate) fn delete(&self, path: &str) -> Call<'_> {
        self.call("DELETE", path)
    }

    /// Creates a key of a tenant, with these scopes.
    pub(crate) async fn key(&self, tenant: &str, scopes: &[&str]) -> String {
        let body = json!({"tenant": tenant, "scopes": scopes});
        self.post("/v1/keys", body).expect(201).await["key"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn tenant(&self, id: &str) {
        self.post("/v1/tenants", json!({ "id": id })).expect(201).await;
    }

    /// A subscription of the tenant default to `https://hooks.example.com/<path>`.
    pub(crate) async fn subscribe(&self, path: &str) -> Value {
        let url = format!("https://hooks.example.com/{path}");
        self.post("/v1/subscriptions", json!({"url": url, "types": ["task.*"]})).expect(201).await
    }

    pub(crate) async fn send_event(&self) -> Value {
        let event = json!({"type": "task.updated", "data": {"status": "CUR"}});
        self.post("/v1/events", event).expect(202).await
    }

    /// A delivery of a new event to a new subscription, after its first attempt.
    pub(crate) async fn delivery(&self, path: &str) -> Value {
        let subscription = self.subscribe(path).await;
        self.send_event().await;
        self.idle().await;
        let path = format!("/v1/deliveries?subscription={}", id(&subscription));
        self.get(&path).expect(200).await["data"][0].clone()
    }

    /// Waits until nothing is queued or in flight.
    pub(crate) async fn idle(&self) {
        self.until(async |api| {
            let ledger = api.engine.ledger(None).await.unwrap();
            ledger.queued == 0
                && ledger.in_flight == 0
                && api.store.ledger(None).await.unwrap().queued == 0
        })
        .await;
    }

    /// Waits until a condition holds, without depending on time.
    pub(crate) async fn until(&self, holds: impl AsyncFn(&Api) -> bool) {
        for _ in 0..100_000 {
            if holds(self).await {
                return;
            }
            tokio::task::yield_now().await;
        }
        panic!("it never came to hold");
    }
}

pub(crate) fn id(value: &Value) -> String {
    value["id"].as_str().unwrap_or_else(|| panic!("no id in {value}")).to_owned()
}

/// A request that is being built.
pub(crate) struct Call<'a> {
    api: &'a Api,
    method: &'static str,
    path: String,
    headers: Vec<(String, String)>,
    body: Body,
    address: Option<IpAddr>,
}

impl Call<'_> {
    /// From this address.
    pub(crate) fn from(mut self, address: &str) -> Self {
        self.address = Some(address.parse().unwrap());
        self
    }

    pub(crate) fn json(self, body: Value) -> Self {
        self.header("content-type", "application/json").raw(body.to_string())
    }

    pub(crate) fn raw(mut self, body: impl Into<Body>) -> Self {
        self.body = body.into();
        self
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(known, _)| known != name);
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn key(self, key: &str) -> Self {
        self.header("authorization", &format!("Bearer {key}"))
    }

    pub(crate) fn tenant(self, tenant: &str) -> Self {
        self.header("postrider-tenant", tenant)
    }

    pub(crate) fn without_key(mut self) -> Self {
        self.headers.retain(|(name, _)| name != "authorization");
        self
    }

    pub(crate) async fn response(self) -> axum::response::Response {
        let mut request = Request::builder().method(self.method).uri(&self.path);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let mut request = request.body(self.body).unwrap();
        if let Some(address) = self.address {
            request.extensions_mut().insert(ClientAddress(address));
        }
        let response = self.api.router.clone().oneshot(request).await.unwrap();
        check_documented(self.method, &self.path, response.status());
        response
    }

    pub(crate) async fn send(self) -> Answer {
        let (method, path) = (self.method, self.path.clone());
        let response = self.response().await;
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let json = serde_json::from_str(&text).unwrap_or(Value::Null);
        let answer = Answer { status: parts.status, headers: parts.headers, text, json };
        answer.check_headers();
        if let Some(operation) = operation_of(method, &path) {
            schema::check_answer(operation, &answer);
            check_code(operation, &answer);
        }
        answer
    }

    /// Sends the request, expects this status, and returns the body.
    pub(crate) async fn expect(self, status: u16) -> Value {
        let what = format!("{} {}", self.method, self.path);
        let answer = self.send().await;
        assert_eq!(answer.status.as_u16(), status, "{what}: {}", answer.text);
        answer.json
    }

    /// Sends the request, and expects a problem with this status, code and field.
    pub(crate) async fn refused(self, status: u16, code: &str, field: Option<&str>) -> Value {
        let problem = self.expect(status).await;
        let found = (problem["code"].as_str(), problem["field"].as_str());
        assert_eq!(found, (Some(code), field), "{problem}");
        problem
    }
}

/// The answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
    pub(crate) json: Value,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// Checks the headers that every answer has.
    fn check_headers(&self) {
        assert_eq!(self.header("x-content-type-options"), Some("nosniff"));
        assert!(self.header("content-security-policy").is_some());
        assert_eq!(self.header("access-control-allow-origin"), None);
        if self.status.is_client_error() || self.status.is_server_error() {
            assert_eq!(self.header("content-type"), Some("application/problem+json"));
            for field in ["type", "title", "status", "code", "detail", "field"] {
                assert!(self.json.get(field).is_some(), "{field} in {}", self.text);
            }
            assert_eq!(self.json["status"], self.status.as_u16());
        }
    }
}

/// The OpenAPI document as JSON.
pub(crate) fn document() -> &'static Value {
    static DOCUMENT: OnceLock<Value> = OnceLock::new();
    DOCUMENT.get_or_init(|| serde_json::to_value(postrider_api::openapi()).unwrap())
}

/// Fails if a documented path answers with an undocumented status.
fn check_documented(method: &str, path: &str, status: StatusCode) {
    match operation_of(method, path) {
        Some(operation) => {
            let is_documented = operation["responses"].get(status.as_str()).is_some();
            assert!(is_documented, "{method} {path} answered {status}, which is not documented");
        }
        // The files of the page are not in it.
        None if ["/", "/portal", "/docs/style.css", "/docs/search.js"].contains(&path) => {
            assert_eq!(status, 200, "{method} {path}")
        }
        None => assert!([401, 404, 405].contains(&status.as_u16()), "{method} {path}: {status}"),
    }
}

/// Fails if a call answers with a problem that it is not documented with.
fn check_code(operation: &Value, answer: &Answer) {
    let Some(code) = answer.json["code"].as_str().filter(|_| answer.status.as_u16() >= 400) else {
        return;
    };
    let said = operation["responses"][answer.status.as_str()]["description"].as_str();
    // Some calls describe an answer by its meaning.
    let Some(said) = said.filter(|said| said.starts_with("A problem: ")) else { return };
    assert!(
        said.contains(&format!("`{code}`")),
        "{} may not answer {code}: {said:?}",
        operation["operationId"]
    );
}

/// The documentation of a call.
fn operation_of(method: &str, path: &str) -> Option<&'static Value> {
    let template = template_of(path.split('?').next().unwrap_or_default())?;
    document()["paths"][&template].get(method.to_lowercase())
}

/// The documented path that matches this one; those without parameters first.
fn template_of(path: &str) -> Option<String> {
    let paths = document()["paths"].as_object().unwrap();
    if paths.contains_key(path) {
        return Some(path.to_owned());
    }
    let fits = |template: &str| {
        let (wanted, given) = (template.split('/'), path.split('/'));
        wanted.clone().count() == given.clone().count()
            && wanted.zip(given).all(|(w, g)| w == g || (w.starts_with('{') && !g.is_empty()))
    };
    paths.keys().find(|template| fits(template)).cloned()
}
