//! A server with two tenants: `mallory`, the attacker, and `alice`, who must not be affected.

use std::net::SocketAddr;
use std::sync::OnceLock;

use serde_json::{Value as Json, json};

use crate::kit::{ATTACKER, Client, Seen, Watch, quiet};
use crate::support::server::Server;
use crate::support::{Start, run, stdout, text};

/// A server under attack.
pub(crate) struct Scene {
    pub(crate) server: Server,
    /// The victim's key, with every scope except `admin`.
    pub(crate) alice: String,
    /// The attacker's key, with every scope except `admin`.
    pub(crate) mallory: String,
    /// A key of the attacker with the scope `read` alone.
    pub(crate) reader: String,
}

/// Whether the binary has this setting: an older one refuses unknown settings.
pub(crate) fn knows(setting: &str) -> bool {
    static SHOWN: OnceLock<Json> = OnceLock::new();
    let shown = SHOWN.get_or_init(|| {
        serde_json::from_str(&stdout(&run(&["config", "--json"]))).unwrap_or_default()
    });
    shown.get(setting).is_some()
}

/// The attacker's address and key, usable from several threads.
#[derive(Clone)]
pub(crate) struct Attack {
    address: SocketAddr,
    key: String,
}

impl Attack {
    /// A new connection.
    pub(crate) fn client(&self) -> Client {
        Client::new(self.address, &self.key, ATTACKER)
    }
}

impl Scene {
    /// A server with default settings in development mode, without a log line per attempt.
    pub(crate) fn start() -> Scene {
        Scene::with(&[])
    }

    /// A server with these settings, as far as the binary knows them.
    pub(crate) fn with(settings: &[&str]) -> Scene {
        Scene::of(&mut Scene::options(settings))
    }

    /// The start options of a server with these settings.
    pub(crate) fn options(settings: &[&str]) -> Start {
        let mut start = Start::dev().with(&["--set", "telemetry.attempts=false"]);
        for setting in settings {
            if knows(setting.split('=').next().unwrap_or_default()) {
                start = start.with(&["--set", setting]);
            }
        }
        start
    }

    /// A new server with these start options.
    pub(crate) fn of(start: &mut Start) -> Scene {
        // If the limit cannot be raised, fewer connections are opened.
        drop(rlimit::increase_nofile_limit(u64::MAX));
        let server = start.clone().fresh();
        for tenant in ["alice", "mallory"] {
            server.ask("POST", "/v1/tenants", Some(&json!({ "id": tenant })), 201);
        }
        let key = |tenant: &str, scopes: &[&str]| {
            let wish = json!({ "tenant": tenant, "scopes": scopes });
            text(&server.ask("POST", "/v1/keys", Some(&wish), 201), "key")
        };
        let all = ["ingest", "manage", "read"];
        let (alice, mallory) = (key("alice", &all), key("mallory", &all));
        let reader = key("mallory", &["read"]);
        Scene { server, alice, mallory, reader }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.address
    }

    /// The attacker, for several threads.
    pub(crate) fn attack(&self) -> Attack {
        Attack { address: self.address(), key: self.mallory.clone() }
    }

    /// A connection of the attacker.
    pub(crate) fn attacker(&self) -> Client {
        Client::new(self.address(), &self.mallory, ATTACKER)
    }

    /// A connection of the victim, which is not measured.
    pub(crate) fn victim(&self) -> Client {
        Client::new(self.address(), &self.alice, crate::kit::VICTIM)
    }

    /// Measures the victim without an attack.
    pub(crate) fn quiet(&self) -> Seen {
        quiet(self.address(), &self.alice)
    }

    /// Starts to measure the victim.
    pub(crate) fn watch(&self) -> Watch {
        Watch::start(self.address(), &self.alice)
    }

    /// Memory of the process now, in MiB.
    pub(crate) fn memory(&self) -> u64 {
        let status = format!("/proc/{}/status", self.server.pid());
        let status = std::fs::read_to_string(status).unwrap_or_default();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
        line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) / 1024
    }

    /// The most memory that the process ever had, in MiB.
    pub(crate) fn peak(&self) -> u64 {
        self.server.peak_memory_kib() / 1024
    }

    /// Subscribes a URL of the attacker to this type.
    pub(crate) fn subscribe(&self, url: &str, kind: &str) -> Json {
        let answer =
            self.attacker().post("/v1/subscriptions", &json!({"url": url, "types": [kind]}));
        let answer = answer.unwrap();
        assert_eq!(answer.status, 201, "{}", answer.json());
        answer.json()
    }

    /// Whether the process is running, answers, and has a ledger that balances.
    pub(crate) fn is_sound(&self) -> bool {
        let ledgers = ["/v1/ledger", "/v1/ledger?scope=all"].map(|path| {
            Client::new(self.address(), &self.server.key, crate::kit::VICTIM).get(path)
        });
        ledgers.into_iter().all(|answer| {
            answer.is_ok_and(|answer| {
                answer.status == 200 && crate::support::balances(&answer.json())
            })
        })
    }
}
