//! What the tests share: the real server, a tenant for each test, a receiver, a cutting proxy.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use postrider_client::types::NewTenant;
use postrider_client::{Builder, Client};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex as AsyncMutex, mpsc};

/// How often a condition is asked for before a test gives up.
const ASKED_MAX: u32 = 500;

#[expect(clippy::disallowed_methods, reason = "the chore names its server in the environment")]
pub(crate) fn setting(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run cargo xtask clients"))
}

pub(crate) fn server() -> String {
    setting("POSTRIDER_SERVER")
}

fn builder(server: &str) -> Builder {
    Client::builder(server).key(setting("POSTRIDER_KEY"))
}

/// An admin client in a tenant of its own, so that tests do not meet each other.
pub(crate) async fn fresh_tenant() -> Client {
    fresh_tenant_through(&server()).await
}

/// The same, through a proxy. The tenant is created without it.
pub(crate) async fn fresh_tenant_through(url: &str) -> Client {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    // Each test may be a process of its own.
    let id = format!("rust-{}-{number}", std::process::id());
    let admin = builder(&server()).build().unwrap();
    admin.tenants().create(&NewTenant { id: id.clone(), ..NewTenant::default() }).await.unwrap();
    builder(url).tenant(id).build().unwrap()
}

/// Waits until a condition holds.
pub(crate) async fn until(mut holds: impl AsyncFnMut() -> bool) {
    let mut ticks = tokio::time::interval(std::time::Duration::from_millis(20));
    for _ in 0..ASKED_MAX {
        if holds().await {
            return;
        }
        ticks.tick().await;
    }
    panic!("the condition did not come true");
}

/// A receiver that hands over what it gets and answers with this status.
pub(crate) struct Receiver {
    pub(crate) url: String,
    webhooks: AsyncMutex<mpsc::UnboundedReceiver<(HeaderMap, Bytes)>>,
}

impl Receiver {
    pub(crate) async fn start(status: StatusCode) -> Receiver {
        let (arrived, webhooks) = mpsc::unbounded_channel();
        let answer = async move |headers: HeaderMap, body: Bytes| {
            drop(arrived.send((headers, body)));
            status
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let app = Router::new().route("/hook", post(answer));
        tokio::spawn(axum::serve(listener, app).into_future());
        Receiver { url, webhooks: AsyncMutex::new(webhooks) }
    }

    /// The next webhook.
    pub(crate) async fn take(&self) -> (HeaderMap, Bytes) {
        self.webhooks.lock().await.recv().await.unwrap()
    }
}

/// A TCP proxy to the server. It breaks the first connections after so many bytes of the answer.
pub(crate) struct CuttingProxy {
    pub(crate) url: String,
    /// The requests whose answers came back to the proxy, in order.
    requests: Arc<Mutex<Vec<String>>>,
}

impl CuttingProxy {
    pub(crate) async fn start(cuts: u32, bytes: usize) -> CuttingProxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let target = server().trim_start_matches("http://").to_owned();
        let (requests, left) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicU32::new(cuts)));
        let log = Arc::clone(&requests);
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let far = TcpStream::connect(&target).await.unwrap();
                tokio::spawn(relay(near, far, bytes, Arc::clone(&left), Arc::clone(&log)));
            }
        });
        CuttingProxy { url, requests }
    }

    /// The idempotency keys of the requests that were answered, in order.
    pub(crate) fn keys(&self) -> Vec<String> {
        let requests = self.requests.lock().unwrap();
        let key = |text: &String| {
            let line = text.lines().find_map(|line| line.strip_prefix("idempotency-key: "));
            line.unwrap_or_default().to_owned()
        };
        requests.iter().map(key).collect()
    }
}

async fn relay(
    mut near: TcpStream,
    mut far: TcpStream,
    bytes: usize,
    cuts: Arc<AtomicU32>,
    log: Arc<Mutex<Vec<String>>>,
) {
    let (mut from_near, mut from_far) = (vec![0; 65_536], vec![0; 65_536]);
    let mut request = String::new();
    loop {
        tokio::select! {
            read = near.read(&mut from_near) => {
                let Ok(read @ 1..) = read else { return };
                request.push_str(&String::from_utf8_lossy(&from_near[..read]));
                if far.write_all(&from_near[..read]).await.is_err() { return }
            }
            read = far.read(&mut from_far) => {
                let Ok(read @ 1..) = read else { return };
                log.lock().unwrap().push(std::mem::take(&mut request));
                let cut = cuts.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
                let end = if cut.is_ok() { read.min(bytes) } else { read };
                if near.write_all(&from_far[..end]).await.is_err() || cut.is_ok() { return }
            }
        }
    }
}
