//! Alerts that leave the building: tells the operator's targets what is wrong, digested.
//!
//! What happens is gathered ([`mod@feed`]), what lasts is looked at ([`sight`]), and
//! [`Book`] decides who is told what and when; [`keeper`] has it in
//! the store. **Nothing waits for a target**: a message is sent by a task of its own, and a target
//! that fails is tried again later.

mod body;
mod email;
mod feed;
mod keeper;
mod sight;
mod webhook;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use futures_util::future::{BoxFuture, FutureExt as _, join_all};
use postrider_api::process::{AlertDesk, AlertTargetState, AlertTrial};
use postrider_domain::alerts::{AlertMessage, AlertPolicy, Book, Report, Seen, Wanted};
use postrider_domain::hex;
use postrider_domain::ids::TenantId;
use postrider_store::Store;
use postrider_transport::Clock;
use tokio::sync::mpsc;

use self::email::Email;
pub(super) use self::feed::AlertFeed;
use self::keeper::Keeper;
use self::sight::Sight;
use self::webhook::Webhook;
use super::metrics::Metrics;
use crate::config::{AlertTarget, Config, SendTo, StoreChoice};

/// How often this node compares what it sees with the book.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A node of a cluster reads the book after this many looks, and reports what it sees.
const READ_AFTER_LOOKS: u32 = 30;

/// A target of alerts.
struct Target {
    name: String,
    kind: &'static str,
    shown: String,
    wanted: Wanted,
    channel: Channel,
}

enum Channel {
    Webhook(Webhook),
    Slack(Webhook),
    Email(Box<Email>),
}

/// Sends test alerts to targets and shows the state of each target.
pub(super) struct Desk {
    targets: Vec<Arc<Target>>,
    /// Where the messages come from.
    source: String,
    clock: Arc<dyn Clock>,
    /// The book as this node knows it.
    book: Mutex<Book>,
}

/// The parts that alerts are made from.
pub(super) struct Parts {
    pub(super) store: Arc<dyn Store>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) metrics: Metrics,
    pub(super) feed: AlertFeed,
}

/// The tenants that some target asks for by name.
fn tenants(config: &Config) -> BTreeSet<TenantId> {
    let targets = config.alerts.targets.0.iter();
    targets.flat_map(|target| target.wanted.tenants.iter().cloned()).collect()
}

/// The collector of what happens; `None` if no target is configured.
pub(super) fn feed(config: &Config) -> Option<AlertFeed> {
    (!config.alerts.targets.0.is_empty()).then(|| AlertFeed::new(tenants(config)))
}

/// Starts the task that sends alerts to the targets.
pub(super) fn start(config: &Config, parts: Parts) -> anyhow::Result<Arc<Desk>> {
    let Parts { store, clock, metrics, feed } = parts;
    let roots = config.tls.extra_roots.as_ref();
    let roots = roots.map(std::fs::read).transpose().context("cannot read tls.extra_roots")?;
    let tls = Arc::new(tls(roots.as_deref())?);
    let target = |target: &AlertTarget| {
        let channel = match &target.to {
            SendTo::Webhook { url, secret } => {
                Channel::Webhook(Webhook::new(url.clone(), Some(secret.clone()), Arc::clone(&tls)))
            }
            SendTo::Slack { url } => {
                Channel::Slack(Webhook::new(url.clone(), None, Arc::clone(&tls)))
            }
            SendTo::Email { to } => {
                let email = Email::new(&config.alerts.smtp, to.clone(), roots.as_deref());
                Channel::Email(Box::new(email.context("cannot send e-mails for alerts")?))
            }
        };
        let (name, wanted) = (target.name.clone(), target.wanted.clone());
        let (kind, shown) = (target.to.kind(), target.to.shown());
        anyhow::Ok(Arc::new(Target { name, kind, shown, wanted, channel }))
    };
    let targets: Vec<Arc<Target>> =
        config.alerts.targets.0.iter().map(target).collect::<Result<_, _>>()?;
    for target in &targets {
        metrics.alert(&target.name, None);
    }
    let (source, book) = (source(config, &*store), Mutex::default());
    let desk = Arc::new(Desk { targets, source, clock: Arc::clone(&clock), book });
    let disk = (config.store == StoreChoice::Embedded)
        .then(|| (config.data_dir.clone(), config.alerts.disk_free_min));
    let sight =
        Sight::new((Arc::clone(&store), metrics.clone(), feed.clone()), tenants(config), disk);
    let (finished, results) = mpsc::channel(desk.targets.len().max(1));
    let teller = Teller {
        desk: Arc::clone(&desk),
        policy: config.alerts.policy.clone(),
        keeper: Keeper::new(Arc::clone(&store)),
        store,
        metrics,
        feed,
        sight,
        reported: None,
        looks: 0,
        finished,
    };
    drop(tokio::spawn(teller.run(results)));
    Ok(desk)
}

/// The name of this installation in messages.
fn source(config: &Config, store: &dyn Store) -> String {
    let url = config.api.public_url.as_ref().map(|url| url.as_str().to_owned());
    let host = || rustix::system::uname().nodename().to_string_lossy().into_owned();
    match (url, store.node()) {
        (Some(url), Some(node)) => format!("{url}, node {node}"),
        (Some(url), None) => url,
        (None, Some(node)) => format!("{}, node {node}", host()),
        (None, None) => host(),
    }
}

fn tls(extra: Option<&[u8]>) -> anyhow::Result<rustls::ClientConfig> {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;

    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    for root in extra.into_iter().flat_map(CertificateDer::pem_slice_iter) {
        roots.add(root.context("tls.extra_roots")?).context("tls.extra_roots")?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

impl Target {
    /// Sends a message. The error has no secret.
    async fn send(
        &self,
        message: &AlertMessage,
        source: &str,
        clock: &dyn Clock,
    ) -> Result<(), String> {
        // The time of day, because receivers compare it with theirs.
        let now = clock.wall();
        let random = postrider_entropy::system_bytes::<12>().map_err(|error| error.to_string())?;
        let id = format!("alert_{}", hex::encode(&random));
        match &self.channel {
            Channel::Webhook(webhook) => {
                webhook.post(&id, body::webhook(message, source).to_string().into(), now).await
            }
            Channel::Slack(webhook) => {
                webhook.post(&id, body::slack(message, source).to_string().into(), now).await
            }
            Channel::Email(email) => email.send(message, &id, source).await,
        }
    }
}

/// The end of a message.
struct Sent {
    target: Arc<Target>,
    message: AlertMessage,
    result: Result<(), String>,
}

/// Looks every second, and tells the targets.
struct Teller {
    desk: Arc<Desk>,
    policy: AlertPolicy,
    keeper: Keeper,
    store: Arc<dyn Store>,
    metrics: Metrics,
    feed: AlertFeed,
    sight: Sight,
    /// What this node reported last; `None` before its first report, which replaces what the process
    /// before it saw.
    reported: Option<Vec<Seen>>,
    looks: u32,
    finished: mpsc::Sender<Sent>,
}

impl Teller {
    async fn run(mut self, mut results: mpsc::Receiver<Sent>) {
        if let Err(error) = self.keeper.read().await {
            tracing::warn!(%error, "the book of alerts cannot be read for now");
        }
        let mut ticks = tokio::time::interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => self.look().await,
                Some(sent) = results.recv() => self.finish(sent).await,
            }
            let book = self.keeper.book().clone();
            *self.desk.book.lock().unwrap_or_else(PoisonError::into_inner) = book;
        }
    }

    async fn look(&mut self) {
        self.looks += 1;
        let mut members = None;
        let mut is_anew = false;
        if self.store.node().is_some() && self.looks >= READ_AFTER_LOOKS {
            self.looks = 0;
            // If it fails, the book in memory goes on.
            is_anew = self.keeper.read().await.is_ok();
        }
        let Some(seen) = self.sight.look().await else { return };
        let happened = self.feed.drain();
        // Also where this node sees nothing: a node that has left may have seen something.
        is_anew &= !seen.is_empty() || !self.keeper.book().is_quiet();
        let is_changed = is_anew || self.reported.as_ref() != Some(&seen) || !happened.is_empty();
        let now = self.desk.clock.now();
        if !is_changed && !self.keeper.is_behind() && !self.is_due(now) {
            return;
        }
        if self.store.node().is_some() {
            let living = self.store.members().await.ok().filter(|living| !living.is_empty());
            members = living.map(|all| all.into_iter().map(|one| one.name).collect::<Vec<_>>());
        }
        let node = self.store.node().unwrap_or_default().to_owned();
        let (desk, policy) = (Arc::clone(&self.desk), self.policy.clone());
        let wanted: Vec<(&str, &Wanted)> =
            desk.targets.iter().map(|target| (target.name.as_str(), &target.wanted)).collect();
        let change = |book: &mut Book| {
            if let Some(members) = &members {
                book.keep_nodes(|one| one == node || members.iter().any(|name| name == one));
            }
            if is_changed {
                let report = Report { now: seen.clone(), happened: happened.clone() };
                book.report(&node, report, &wanted, &policy, now);
            }
            let due = |target: &Arc<Target>| {
                let message = book.due(&target.name, &target.wanted, &policy, now)?;
                Some((Arc::clone(target), message))
            };
            desk.targets.iter().filter_map(due).collect::<Vec<_>>()
        };
        for (target, message) in self.keeper.change(change).await {
            self.send(target, message);
        }
        self.reported = Some(seen);
    }

    /// Whether a target would be told something now, as far as this node knows.
    fn is_due(&self, now: postrider_domain::time::Timestamp) -> bool {
        if self.keeper.book().is_quiet() {
            return false;
        }
        let mut book = self.keeper.book().clone();
        let mut targets = self.desk.targets.iter();
        targets.any(|target| book.due(&target.name, &target.wanted, &self.policy, now).is_some())
    }

    fn send(&self, target: Arc<Target>, message: AlertMessage) {
        let (desk, finished) = (Arc::clone(&self.desk), self.finished.clone());
        drop(tokio::spawn(async move {
            let result = target.send(&message, &desk.source, &*desk.clock).await;
            // Receiving fails only while the server is shutting down.
            drop(finished.send(Sent { target, message, result }).await);
        }));
    }

    async fn finish(&mut self, sent: Sent) {
        let Sent { target, message, result } = sent;
        let (name, now) = (&target.name, self.desk.clock.now());
        self.metrics.alert(name, Some(result.is_ok()));
        match result {
            Ok(()) => {
                tracing::info!(to = name, subject = message.subject(), "alert sent");
                let policy = self.policy.clone();
                self.keeper.change(|book| book.sent(name, &message, &policy, now)).await;
            }
            Err(error) => {
                let pause = self.keeper.change(|book| book.failed(name, now)).await;
                tracing::warn!(
                    to = name,
                    error,
                    again_in_seconds = pause.as_secs(),
                    "an alert was not sent"
                );
            }
        }
    }
}

impl AlertDesk for Desk {
    fn targets(&self) -> Vec<AlertTargetState> {
        let book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        let state = |target: &Arc<Target>| {
            let state = book.state(&target.name);
            AlertTargetState {
                name: target.name.clone(),
                kind: target.kind,
                to: target.shown.clone(),
                messages: state.messages,
                last_message_at: state.last_message_at,
                failures: state.failures,
                next_try_at: state.next_try_at,
                firing: state.firing.iter().map(|(kind, n)| (kind.as_str(), *n)).collect(),
            }
        };
        self.targets.iter().map(state).collect()
    }

    fn test<'a>(&'a self, only: Option<&'a str>) -> BoxFuture<'a, Vec<AlertTrial>> {
        let chosen =
            self.targets.iter().filter(move |one| only.is_none_or(|only| one.name == only));
        let trial = |target: &'a Arc<Target>| async move {
            let message = AlertMessage::test(self.clock.now());
            let began = self.clock.now();
            let result = target.send(&message, &self.source, &*self.clock).await;
            AlertTrial {
                target: target.name.clone(),
                kind: target.kind,
                to: target.shown.clone(),
                took: self.clock.now().since(began),
                error: result.err(),
            }
        };
        join_all(chosen.map(trial)).boxed()
    }
}
