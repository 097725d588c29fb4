//! `postrider serve`: starts store, transport, engine and API together, and stops them in order.
//!
//! **Accepted events survive every kind of exit**: an orderly shutdown only avoids that attempts in
//! flight are repeated. **Every server has an admin key**: the first start creates one before the
//! first request is answered, so it is safe to listen on any address.

mod alerts;
mod attempts;
mod background;
mod banner;
mod clock;
mod cluster;
mod exporters;
mod files;
mod gauges;
mod health;
mod hosts;
mod http;
mod instrumented_store;
mod machine;
mod metrics;
mod otlp;
mod otlp_metrics;
mod process;
mod reload;
mod requests;
mod sample;
mod secrets;
mod signals;
mod traces;
mod transport_options;

use std::io::{self, IsTerminal as _};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use postrider_api::process::{AlertDesk, Process};
use postrider_api::{
    ApiParts, ApiSettings, ApiState, Bootstrap, GivenAdmin, Rate, Vault, bootstrap_admin,
    note_operator,
};
use postrider_engine::{Background, Ended, EngineHandle, IngestRate, Parts, Spans, SystemEntropy};
use postrider_store::embedded::{EmbeddedOptions, EmbeddedStore};
use postrider_store::{Store, StoreError};
use postrider_transport::{Clock, Egress, HttpTransport};
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use zeroize::Zeroizing;

use self::alerts::AlertFeed;
use self::background::BackgroundRuntime;
use self::banner::{AdminKey, Started};
use self::clock::ServerClock;
pub(crate) use self::clock::saved as saved_clock;
pub(crate) use self::cluster::is_name as is_node_name;
use self::exporters::Exporters;
pub(crate) use self::files::{keep_private, needed as files_needed};
pub(crate) use self::health::address as health_address;
pub(crate) use self::http::{ListenerOptions, serve as listen_http};
use self::instrumented_store::InstrumentedStore;
pub(crate) use self::metrics::Metrics;
use self::process::ThisProcess;
pub(crate) use self::sample::sample_metrics;
pub(crate) use self::secrets::{mark as ring_mark, open_vault, write_admin_key};
use self::signals::{Order, Signals};
use crate::cli::ServerArgs;
use crate::commands::load;
use crate::config::{Config, Environment, Loaded, StoreChoice, show_duration};
use crate::exit::Failure;
use crate::output::Output;
use crate::telemetry::{self, LogHandle};

/// After the engine has shut down, clients have this long to read their responses.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// Runs a server to its end.
pub(crate) fn run(
    arguments: &ServerArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), Failure> {
    let loaded = load(arguments, environment)?;
    let log = telemetry::start(&loaded.config.telemetry, output)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("postrider")
        .build()?;
    let ended = runtime.block_on(Box::pin(async {
        let server = Server::start(loaded, output, &log).await?;
        server.run(arguments, environment, &log).await
    }));
    // Remaining tasks were told to end, or must not keep the process alive.
    runtime.shutdown_background();
    log.flush();
    Ok(ended?)
}

/// A running server.
pub(crate) struct Server {
    loaded: Loaded,
    address: SocketAddr,
    signals: Signals,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    engine: EngineHandle,
    stop_listening: watch::Sender<bool>,
    listening: JoinHandle<()>,
    /// Receives the reason when the store has stopped for good.
    stopped: mpsc::UnboundedReceiver<String>,
    exporters: Exporters,
    vault: Vault,
    api: ApiState,
    /// What the API is told of this process.
    process: Arc<ThisProcess>,
    /// Large work is done here until the server has ended.
    _background: BackgroundRuntime,
}

impl Server {
    /// Starts, and prints the address.
    async fn start(loaded: Loaded, output: Output, log: &LogHandle) -> anyhow::Result<Server> {
        let (server, first) = Server::open(loaded, log).await?;
        let is_terminal = std::io::stdout().is_terminal();
        let config = &server.loaded.config;
        let has_page = postrider_api::has_page();
        let link = if banner::prints_link(is_terminal, config.dev, has_page) {
            server.sign_in().link().await
        } else {
            None
        };
        let started = Started {
            address: server.address,
            is_terminal,
            has_page,
            link: link.as_deref().map(String::as_str),
        };
        announce(config, &first, &started, output)?;
        Ok(server)
    }

    /// Starts without printing anything.
    pub(crate) async fn start_quietly(loaded: Loaded, log: &LogHandle) -> anyhow::Result<Server> {
        Ok(Server::open(loaded, log).await?.0)
    }

    /// The address of the API.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The clock that all times of the API are on.
    pub(crate) fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock)
    }

    /// What makes links to sign in with.
    pub(crate) fn sign_in(&self) -> SignIn {
        let config = Arc::new(self.loaded.config.clone());
        SignIn { api: self.api.clone(), address: self.address, config }
    }

    async fn open(loaded: Loaded, log: &LogHandle) -> anyhow::Result<(Server, Bootstrap)> {
        // A running server waits until the disk has space. A starting one reports the full disk and
        // exits.
        Box::pin(Server::open_store_and_listen(loaded, log)).await.map_err(|error| match error
            .downcast_ref::<StoreError>(
        ) {
            Some(StoreError::DiskFull { place }) => anyhow::anyhow!(
                "the disk is full: make room in {place} and start again; nothing that was \
                     acknowledged is lost"
            ),
            _ => error,
        })
    }

    async fn open_store_and_listen(
        loaded: Loaded,
        log: &LogHandle,
    ) -> anyhow::Result<(Server, Bootstrap)> {
        // From here on signals are queued until the server runs.
        let signals = Signals::new().context("cannot listen to signals")?;
        let config = &loaded.config;
        files::raise_limit(config);
        files::tighten(&config.data_dir);
        // Bind first: if the address is in use, nothing has been read or sent yet.
        let listener = TcpListener::bind(config.listen)
            .await
            .map_err(|error| cannot_listen(config.listen, &error, "--listen"))?;
        let address = listener.local_addr()?;
        let apart = health::HealthListeners::bind(config).await?;
        let tls = http::Tls::of(config)?;
        let metrics = Metrics::default();
        metrics.watch_disk(config.data_dir.clone());
        let (fatal, stopped) = mpsc::unbounded_channel();
        let background = BackgroundRuntime::start()?;
        let (store, steady) = open_store(config, fatal, background.handle()).await?;
        let clock: Arc<dyn Clock> = Arc::clone(&steady) as Arc<dyn Clock>;
        let feed = alerts::feed(config);
        let store: Arc<dyn Store> =
            Arc::new(InstrumentedStore::new(store, metrics.clone(), log.attempts(), feed.clone()));
        let vault = secrets::open_vault(config, &*store).await?;
        secrets::reseal(config, &*store, &vault, clock.now()).await?;
        secrets::seal_headers_of_cluster(config, &store, &vault);
        let given = config.admin_key.as_deref();
        let first = bootstrap_admin(&*store, &vault, given, clock.now()).await?;
        keep_admin_key(config, &first);
        let exporters = Exporters::start(&config.telemetry, &metrics, store.node())?;
        let (engine, egress) = start_engine(
            &loaded,
            Arc::clone(&store),
            Arc::clone(&clock),
            vault.clone(),
            (exporters.spans(), background.handle()),
        )
        .await?;
        drop(tokio::spawn(transport_options::follow_own_addresses(config.clone(), egress.clone())));
        let watched = Watched { store: &store, engine: &engine, clock: &clock, metrics: &metrics };
        let desk = watched.follow(config, steady, feed)?;

        let (kept, observed) = (vault.clone(), metrics.clone());
        let of_server = Arc::clone(&clock);
        let process = Arc::new(ThisProcess::new(&loaded, clock.now(), desk, metrics.clone()));
        let about = Arc::clone(&process) as Arc<dyn Process>;
        let parts =
            Assembly { store: &store, engine: &engine, clock, vault, metrics, egress, about };
        let state = parts.api(config, &first)?;
        keep(&state);
        let (stop_listening, stop) = watch::channel(false);
        apart.serve(config, &state, &stop);
        let router = postrider_api::router(state.clone());
        let router = requests::with_metrics(router, observed, config.telemetry.access);
        let options = http::ListenerOptions { tls, ..http::ListenerOptions::of(config) };
        let listening = tokio::spawn(http::serve(listener, router, options, stop));
        let server = Server {
            loaded,
            address,
            signals,
            store,
            clock: of_server,
            engine,
            stop_listening,
            listening,
            stopped,
            exporters,
            vault: kept,
            api: state,
            process,
            _background: background,
        };
        Ok((server, first))
    }

    /// Runs until a signal, the engine or the store ends it.
    async fn run(
        mut self,
        arguments: &ServerArgs,
        environment: &Environment,
        log: &LogHandle,
    ) -> anyhow::Result<()> {
        let engine = self.engine.clone();
        loop {
            tokio::select! {
                order = self.signals.next() => match order {
                    Order::Stop => break,
                    Order::Reload => {
                        let loaded = &mut self.loaded;
                        let taken = reload::reload(loaded, arguments, environment, &engine, log);
                        self.process.reloaded(&self.loaded);
                        if !taken.is_empty() {
                            self.note("settings.reload", "settings", &taken.join(", ")).await;
                        }
                        if let Some(newest) = secrets::reload_ring(&self.loaded.config, &self.vault) {
                            self.note("keyring.reload", "keyring", &newest).await;
                        }
                    }
                },
                ended = engine.ended() => match ended {
                    Ended::Shutdown => break,
                    Ended::StoreStopped(why) => return stopped(&why),
                },
                Some(why) = self.stopped.recv() => return stopped(&why),
            }
        }
        self.stop().await
    }

    /// Adds what the operator did by a signal to the audit log.
    async fn note(&self, action: &str, target_kind: &str, target: &str) {
        let now = self.clock.now();
        let noted = note_operator(&*self.store, action, target_kind, Some(target), now).await;
        if let Err(error) = noted {
            tracing::error!(%error, action, target, "cannot write an entry of the audit log");
        }
    }

    /// Runs until `over` resolves, or a signal, the engine or the store ends it.
    pub(crate) async fn until(&mut self, over: impl Future<Output = ()>) -> anyhow::Result<()> {
        let engine = self.engine.clone();
        tokio::pin!(over);
        loop {
            tokio::select! {
                order = self.signals.next() => match order {
                    Order::Stop => return Ok(()),
                    Order::Reload => {}
                },
                () = &mut over => return Ok(()),
                ended = engine.ended() => match ended {
                    Ended::Shutdown => return Ok(()),
                    Ended::StoreStopped(why) => return stopped(&why),
                },
                Some(why) = self.stopped.recv() => return stopped(&why),
            }
        }
    }

    /// Shuts down in order; a second signal ends the process at once.
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        let deadline = self.loaded.config.shutdown.deadline;
        tracing::info!(deadline = show_duration(deadline), "stopping");
        self.stop_listening.send_replace(true);
        let Server { mut signals, store, engine, listening, exporters, api, .. } = self;
        let orderly = async {
            let given_up = engine.shutdown(deadline).await;
            if tokio::time::timeout(LAST_ANSWERS, listening).await.is_err() {
                tracing::debug!("clients were still reading answers of the API");
            }
            // Changes whose clients have disconnected are completed too.
            if tokio::time::timeout(LAST_ANSWERS, api.finish_mutations()).await.is_err() {
                tracing::warn!(
                    "a change was not finished: its client can repeat it with its Idempotency-Key"
                );
            }
            exporters.flush().await;
            store.close().await?;
            anyhow::Ok(given_up)
        };
        tokio::select! {
            given_up = orderly => {
                let given_up = given_up?;
                tracing::info!(given_up, "stopped");
                Ok(())
            }
            () = stopped_again(&mut signals) => {
                tracing::warn!("second stop signal: exiting now; in-flight attempts are repeated after the restart");
                anyhow::bail!("stopped at once by a second signal")
            }
        }
    }
}

/// Why a server cannot listen on an address, and what to do.
pub(crate) fn cannot_listen(address: SocketAddr, error: &io::Error, flag: &str) -> anyhow::Error {
    let another = SocketAddr::new(address.ip(), address.port().checked_add(1).unwrap_or(0));
    let kind = error.kind();
    let advice = if kind == io::ErrorKind::AddrInUse {
        format!(
            "another program listens there: stop it, or choose another port, such as {flag} {another}"
        )
    } else if kind == io::ErrorKind::PermissionDenied {
        format!(
            "ports below 1024 are for root: choose another by {flag}, or give the program CAP_NET_BIND_SERVICE"
        )
    } else if kind == io::ErrorKind::AddrNotAvailable {
        format!(
            "this machine has no such address: choose one of its own by {flag}, or 0.0.0.0 for all"
        )
    } else {
        format!("choose another address by {flag}")
    };
    anyhow::anyhow!("cannot listen on {address}: {error}\n{advice}")
}

/// The store has stopped for good: nothing can be acknowledged any more, so the process ends.
fn stopped(why: &str) -> anyhow::Result<()> {
    tracing::error!(why, "the store has stopped: the server stops too");
    anyhow::bail!("the store has stopped: {why}")
}

async fn stopped_again(signals: &mut Signals) {
    while signals.next().await != Order::Stop {}
}

/// Opens the store, replays its journal, and starts its clock.
async fn open_store(
    config: &Config,
    fatal: mpsc::UnboundedSender<String>,
    background: &Handle,
) -> anyhow::Result<(Arc<dyn Store>, Arc<ServerClock>)> {
    if let StoreChoice::Postgres(url) = &config.store {
        let store = cluster::connect(config, url).await?;
        let clock = ServerClock::of_database(Arc::clone(&store)).await?;
        return Ok((store, clock));
    }
    let options = EmbeddedOptions {
        lists_on: Some(background.clone()),
        // Sending fails only while the server is shutting down.
        fatal: Some(Arc::new(move |why| drop(fatal.send(why.to_owned())))),
        ..EmbeddedOptions::default()
    };
    let data_dir = config.data_dir.clone();
    let opened = tokio::task::spawn_blocking(move || EmbeddedStore::open(data_dir, options));
    let store = opened.await.context("opening the store panicked")??;
    Ok((store, ServerClock::of_machine(&config.data_dir)))
}

async fn start_engine(
    loaded: &Loaded,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    vault: Vault,
    (spans, background): (Option<Arc<dyn Spans>>, &Handle),
) -> anyhow::Result<(EngineHandle, Egress)> {
    let config = &loaded.config;
    let mut options = config.engine.clone();
    options.tenant_ingest =
        config.limits.tenant_events.map(|per_second| IngestRate { per_second, burst: per_second });
    let parts = Parts {
        store,
        clock: Arc::clone(&clock),
        entropy: Arc::new(SystemEntropy::new()?),
        credentials: Arc::new(vault),
        policy: loaded.policy(),
        options,
        spans,
        background: Background::on(background.clone()),
    };
    let transport = HttpTransport::new(config.transport_options()?, clock)?;
    let egress = transport.egress();
    Ok((postrider_engine::start(parts, Arc::new(transport)).await?, egress))
}

/// The parts that are looked at while the server runs.
struct Watched<'a> {
    store: &'a Arc<dyn Store>,
    engine: &'a EngineHandle,
    clock: &'a Arc<dyn Clock>,
    metrics: &'a Metrics,
}

impl Watched<'_> {
    /// Starts to follow the clock and the gauges, and to tell the operator what is wrong.
    fn follow(
        self,
        config: &Config,
        steady: Arc<ServerClock>,
        feed: Option<AlertFeed>,
    ) -> anyhow::Result<Option<Arc<dyn AlertDesk>>> {
        let (engine, metrics) = (self.engine.clone(), self.metrics.clone());
        let (store, clock) = (Arc::clone(self.store), Arc::clone(self.clock));
        drop(tokio::spawn(steady.follow(engine.clone(), feed.clone())));
        let looked = (Arc::clone(&store), Arc::clone(&clock));
        drop(tokio::spawn(gauges::follow(engine, looked, metrics.clone(), feed.clone())));
        let Some(feed) = feed else { return Ok(None) };
        let desk = alerts::start(config, alerts::Parts { store, clock, metrics, feed })?;
        Ok(Some(desk))
    }
}

/// The parts that the API is built from.
struct Assembly<'a> {
    store: &'a Arc<dyn Store>,
    engine: &'a EngineHandle,
    clock: Arc<dyn Clock>,
    vault: Vault,
    metrics: Metrics,
    egress: Egress,
    about: Arc<dyn Process>,
}

impl Assembly<'_> {
    fn api(self, config: &Config, first: &Bootstrap) -> anyhow::Result<ApiState> {
        let rate = |per_second: Option<u32>| {
            per_second.map(|per_second| Rate { per_second, burst: per_second })
        };
        let metrics = self.metrics;
        let metrics_key = config.metrics.key.as_deref();
        let metrics_key = metrics_key.map(|key| GivenAdmin::new(&self.vault, key)).transpose()?;
        Ok(ApiState::new(ApiParts {
            store: Arc::clone(self.store),
            engine: self.engine.clone(),
            vault: self.vault,
            clock: self.clock,
            egress: self.egress,
            settings: ApiSettings {
                key_rate: rate(config.limits.key_requests),
                tenant_rate: rate(config.limits.tenant_requests),
                metrics_elsewhere: config.metrics.listen.is_some(),
                ..config.api.clone()
            },
            given_admin: match first {
                Bootstrap::Given(given) => Some(given.clone()),
                Bootstrap::Created(_) | Bootstrap::Exists => None,
            },
            metrics: Some(Arc::new(move || metrics.render())),
            metrics_key,
            process: self.about,
        }))
    }
}

/// Writes a new admin key to its file, before the server answers: whoever finds it ready finds the file.
fn keep_admin_key(config: &Config, first: &Bootstrap) {
    let Bootstrap::Created(key) = first else { return };
    // The key is in the store already: if its file cannot be written, it must at least be printed.
    if let Err(error) = secrets::write_admin_key(&config.admin_key_path(), key) {
        tracing::error!(%error, "cannot write the admin key to its file: keep the one that is printed now");
    }
}

/// Makes links that sign in, while the server runs.
#[derive(Clone)]
pub(crate) struct SignIn {
    api: ApiState,
    address: SocketAddr,
    config: Arc<Config>,
}

impl SignIn {
    /// A link that signs in as the admin key, once. Without one there is still the key.
    pub(crate) async fn link(&self) -> Option<Zeroizing<String>> {
        match postrider_api::sign_in_token(&self.api).await {
            Ok(token) => token.map(|token| banner::link(self.address, &self.config, &token)),
            Err(error) => {
                tracing::warn!(%error, "there is no link to sign in with: use the admin key");
                None
            }
        }
    }
}

/// Prints the address.
fn announce(
    config: &Config,
    first: &Bootstrap,
    started: &Started<'_>,
    output: Output,
) -> anyhow::Result<()> {
    let path = config.admin_key_path();
    let key = match first {
        Bootstrap::Created(key) => {
            let written = std::fs::read_to_string(&path);
            let is_written = written.is_ok_and(|text| text.trim() == key.as_str());
            AdminKey::Created { key, path: &path, is_written }
        }
        Bootstrap::Given(_) => AdminKey::Given,
        Bootstrap::Exists => AdminKey::Exists { path: &path },
    };
    let address = started.address;
    banner::print(output, started, &key, config)?;
    if config.dev {
        tracing::warn!("for development: receivers on loopback and plain http are allowed");
    }
    if !address.ip().is_loopback() && config.server.tls_cert.is_none() {
        tracing::warn!(
            %address,
            "other machines reach the API over plain http: give it a certificate (--tls-cert), or put a \
             proxy with TLS in front of it"
        );
    }
    tracing::info!(
        %address,
        version = env!("CARGO_PKG_VERSION"),
        data_dir = %config.data_dir.display(),
        time_scale = config.time_scale,
        "listening"
    );
    Ok(())
}

/// Starts the tasks of the API that run beside its requests.
fn keep(state: &ApiState) {
    drop(tokio::spawn(state.clone().follow_changes()));
    drop(tokio::spawn(state.clone().keep_house()));
    drop(tokio::spawn(state.clone().run_erasures()));
}
