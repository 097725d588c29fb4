//! Through PgBouncer in transaction mode: each transaction may be on another session.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use async_trait::async_trait;
use postrider_store::postgres::{PostgresOptions, PostgresStore};
use postrider_store::{
    Accepted, Commit, DeliveryFilter, History, Intake, Store, StoreError, Upkeep, Work,
};
use postrider_store_testing::conformance::{Backend, Ground, sequences};
use postrider_store_testing::samples::{acme, answered, at, refused};

use crate::nodes::{attempted, delivery, options, owed, put_destinations};
use crate::server::{self, Server, as_ordinary_user, free_port};

/// Few sessions, so that connections have to share them.
const SESSIONS: u32 = 3;

/// A pooler in front of a server; dropping it stops the pooler.
struct Bouncer {
    child: Child,
    port: u16,
    _folder: tempfile::TempDir,
}

impl Bouncer {
    fn before(server: &Server) -> Bouncer {
        let folder = tempfile::Builder::new().prefix("postrider-pgb-").tempdir().unwrap();
        let port = free_port();
        let settings = format!(
            "[databases]\n* = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nunix_socket_dir =\nauth_type = trust\nauth_file = {}\n\
             pool_mode = transaction\ndefault_pool_size = {SESSIONS}\nmax_client_conn = 200\n",
            server.port(),
            folder.path().join("users").display(),
        );
        std::fs::write(folder.path().join("settings.ini"), settings).unwrap();
        std::fs::write(folder.path().join("users"), "\"postrider\" \"\"\n").unwrap();
        let opened = Command::new("chmod").args(["-R", "a+rX"]).arg(folder.path()).status();
        assert!(opened.unwrap().success());
        let program = Path::new("/usr/sbin/pgbouncer");
        assert!(program.exists(), "pgbouncer is not installed: `cargo xtask install` helps");
        let mut command = as_ordinary_user(program, &["--pdeathsig", "KILL"]);
        command.arg(folder.path().join("settings.ini")).current_dir("/").stdout(Stdio::null());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let mut said = Vec::new();
        let is_up = lines.by_ref().any(|line| {
            said.push(line.clone());
            line.contains("process up")
        });
        assert!(is_up, "PgBouncer did not start:\n{}", said.join("\n"));
        // Its further output is not needed, but must be read so that it does not block.
        thread::spawn(move || lines.for_each(drop));
        Bouncer { child, port, _folder: folder }
    }

    fn url(&self, database: &str) -> String {
        format!("postgres://postrider@127.0.0.1:{}/{database}?pgbouncer=true", self.port)
    }
}

impl Drop for Bouncer {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

struct Pooled {
    _server: server::Shared,
    _bouncer: Bouncer,
    url: String,
}

impl Pooled {
    fn new(database: &str) -> Self {
        let server = server::shared();
        server.database(database);
        let bouncer = Bouncer::before(&server);
        let url = bouncer.url(database);
        Pooled { _server: server, _bouncer: bouncer, url }
    }
}

#[async_trait]
impl Backend for Pooled {
    async fn open(&self) -> Arc<dyn Store> {
        // A long lease, so that a pause of a busy machine does not end it.
        let options = PostgresOptions {
            node: "one".into(),
            lease: Duration::from_secs(600),
            connections: 6,
            ..PostgresOptions::default()
        };
        PostgresStore::connect(&self.url, options).await.unwrap()
    }

    fn can_be_unavailable(&self) -> bool {
        true
    }
}

#[tokio::test]
async fn random_sequences_agree_with_the_model_through_a_pooler() {
    for seed in 40..42 {
        let ground = Ground::new(Pooled::new(&format!("pooled_{seed}"))).await;
        let ledger = sequences::compare(seed, 150, ground).await;
        assert!(ledger.balances() && ledger.accepted > 0, "{ledger:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_share_the_sessions_of_a_pooler() {
    let pooled = Pooled::new("shared");
    let one = PostgresStore::connect(&pooled.url, options("one")).await.unwrap();
    let other = PostgresStore::connect(&pooled.url, options("other")).await.unwrap();
    put_destinations(&one, 3).await;
    let callers: Vec<_> = (0..8u64)
        .map(|caller| {
            let store = Arc::clone(if caller % 2 == 0 { &one } else { &other });
            tokio::spawn(async move {
                for n in 0..25 {
                    let accepted = store.accept(vec![owed(caller * 25 + n, 3)]).await.unwrap();
                    assert_eq!(accepted, [Accepted::New]);
                    store.count_deliveries(&acme(), &DeliveryFilter::default()).await.unwrap();
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
    // Both hold shards, and each is refused in the shards of the other.
    one.hold_shards().await.unwrap();
    other.hold_shards().await.unwrap();
    let (here, there) = (one.hold_shards().await.unwrap(), other.hold_shards().await.unwrap());
    assert_eq!(here.shards.len() + there.shards.len(), 256);
    let (mut settled, mut fenced) = (0, 0);
    for n in 0..600 {
        let before = delivery(&one, n).await;
        let ending = if n % 2 == 0 { answered(200) } else { refused() };
        let commit: Commit = attempted(&one, &before, ending, at(5_000)).await;
        let is_here = here.has(before.destination.shard());
        let (holder, stranger) = if is_here { (&one, &other) } else { (&other, &one) };
        let stolen = stranger.settle(if is_here { &here } else { &there }, commit.clone()).await;
        assert!(matches!(stolen, Err(StoreError::Fenced { .. })), "{stolen:?}");
        fenced += 1;
        holder.settle(if is_here { &here } else { &there }, commit).await.unwrap();
        settled += 1;
    }
    let ledger = one.ledger(None).await.unwrap();
    assert_eq!((ledger.accepted, ledger.delivered, ledger.waiting), (600, 300, 300));
    println!(
        "through PgBouncer in transaction mode, 2 nodes on {SESSIONS} sessions: 200 events, \
         {settled} settled, {fenced} fenced"
    );
}
