//! Runs one scenario after the other: set up, warm up, measure, wait for the end, verify.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::Method;
use postrider_store::postgres::{self, Visitor};
use serde_json::{Value as Json, json};

use super::Settings;
use super::ceiling::{Post, Posted};
use super::load::{Load, Sent};
use super::nodes::Nodes;
use super::plan::{Extent, Pace, Scenario};
use super::process::Helper;
use super::receiver::{Ask, Report as Arrived};
use super::report::{Measured, PerDelivery};
use super::system::{Disk, Postmaster, Usage};
use postrider_cli::client::Client;
use postrider_cli::exit::Failure;

/// If no delivery arrives for this long, the rest counts as lost.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often the receiver is asked whether everything has arrived.
const GLANCE: Duration = Duration::from_millis(10);

/// The state that all scenarios of a run share.
pub(crate) struct Run {
    extent: Extent,
    store: Option<String>,
    /// The PostgreSQL server, if it is on this machine.
    postmaster: Option<Postmaster>,
    nodes: u64,
    connections: u64,
    window: u64,
    scratch: PathBuf,
    disk: Option<Disk>,
    receiver: Helper,
    receiver_address: String,
    /// The servers, while several scenarios share them.
    servers: Option<Nodes>,
    runtime: tokio::runtime::Runtime,
    count: u64,
    /// Events per second that the first unlimited scenario reached.
    maximum: Option<f64>,
}

impl Run {
    pub(crate) fn new(settings: &Settings, extent: Extent, scratch: &Path) -> Result<Run, Failure> {
        let mut receiver = Helper::start("receiver")?;
        let hello: Json = receiver.hear()?;
        let address = hello["address"].as_str().unwrap_or_default().to_owned();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let postmaster = match &settings.store {
            Some(url) => runtime.block_on(postmaster(url))?,
            None => None,
        };
        Ok(Run {
            extent,
            store: settings.store.clone(),
            postmaster,
            nodes: settings.nodes,
            connections: settings.connections,
            window: settings.window,
            scratch: scratch.to_owned(),
            disk: Disk::of(scratch),
            receiver,
            receiver_address: address,
            servers: None,
            runtime,
            count: 0,
            maximum: None,
        })
    }

    /// Stops all running servers.
    pub(crate) fn end(self) -> Result<(), Failure> {
        self.servers.map_or(Ok(()), Nodes::stop)
    }

    /// Whether the cost of the database can be measured.
    pub(crate) fn sees_postgres(&self) -> bool {
        self.postmaster.is_some()
    }

    pub(crate) fn measure(&mut self, scenario: &Scenario) -> Result<Measured, Failure> {
        let rate = match scenario.pace {
            Pace::Unlimited => None,
            Pace::PerSecond(rate) => Some(rate),
            Pace::HalfOfMaximum => Some(self.half_of_maximum(scenario)?),
        };
        self.count += 1;
        let tenant = format!("bench-{}-{}", std::process::id(), self.count);
        let servers = self.servers()?;
        self.subscribe(&servers, &tenant, scenario)?;
        let load = Load {
            servers: servers.addresses(),
            key: servers.key.clone(),
            tenant: tenant.clone(),
            batch: scenario.batch,
            kinds: scenario.destinations,
            payload_bytes: scenario.payload_bytes,
            connections: self.connections,
            rate,
            seconds: self.extent.seconds,
            receiver: self.receiver_address.clone(),
            fan_out: scenario.fan_out,
            window: self.window,
        };
        let before = self.ceiling(scenario)?;
        let warm_up = Load { seconds: self.extent.warm_up_seconds, ..load.clone() };
        self.send(&warm_up, scenario.fan_out)?;
        let before_it = self.usage(&servers);
        let (sent, arrived) = self.send(&load, scenario.fan_out)?;
        self.verify_ledger(&servers, &tenant, scenario)?;
        let used = self.usage(&servers);
        let after = self.ceiling(scenario)?;
        let ceiling = Posted {
            posts: before.posts + after.posts,
            seconds: before.seconds + after.seconds,
            cpu_us: before.cpu_us + after.cpu_us,
        };
        let deliveries = arrived.arrived.max(1);
        let per_delivery = PerDelivery {
            server_us: per(used.servers.cpu_us - before_it.servers.cpu_us, deliveries),
            load_us: per(sent.cpu_us, deliveries),
            receiver_us: per(used.receiver.cpu_us - before_it.receiver.cpu_us, deliveries),
            postgres_us: used
                .postgres_us
                .zip(before_it.postgres_us)
                .map(|(used, before)| per(used.saturating_sub(before), deliveries)),
            written_bytes: used
                .written_bytes
                .zip(before_it.written_bytes)
                .map(|(used, before)| per(used.saturating_sub(before), deliveries)),
        };
        let measured =
            Measured::new(scenario, rate, &sent, &arrived, ceiling, per_delivery, used.servers);
        if scenario.pace == Pace::Unlimited && self.maximum.is_none() {
            self.maximum = Some(measured.events_per_second);
        }
        self.release(servers)?;
        Ok(measured)
    }

    /// Half of the highest rate of this run; if it is not known yet, it is estimated by a short
    /// run.
    fn half_of_maximum(&mut self, scenario: &Scenario) -> Result<f64, Failure> {
        if self.maximum.is_none() {
            let scenario = Scenario { pace: Pace::Unlimited, ..scenario.clone() };
            drop(self.measure(&scenario)?);
        }
        Ok(self.maximum.unwrap_or(0.0) / 2.0)
    }

    /// The embedded store gets a new server for each scenario, so that memory and bytes are its
    /// own; a database and its nodes are shared, with a tenant for each.
    fn servers(&mut self) -> Result<Nodes, Failure> {
        match self.servers.take() {
            Some(servers) => Ok(servers),
            None => {
                let dir = self.scratch.join(format!("data-{}", self.count));
                Nodes::start(&dir, self.store.as_deref(), self.nodes)
            }
        }
    }

    fn release(&mut self, servers: Nodes) -> Result<(), Failure> {
        if self.store.is_some() {
            self.servers = Some(servers);
            return Ok(());
        }
        servers.stop()?;
        let dir = self.scratch.join(format!("data-{}", self.count));
        Ok(std::fs::remove_dir_all(dir)?)
    }

    fn subscribe(&self, servers: &Nodes, tenant: &str, scenario: &Scenario) -> Result<(), Failure> {
        let address = format!("http://{}", servers.address()?);
        let admin = Client::new(&address, Some(servers.key.clone()), None)?;
        self.ask(&admin, "/v1/tenants", &json!({ "id": tenant }))?;
        let client = Client::new(&address, Some(servers.key.clone()), Some(tenant.to_owned()))?;
        for kind in 0..scenario.destinations {
            for slot in 0..scenario.fan_out {
                let subscription = json!({
                    "url": format!("http://{}/d{kind}/{slot}", self.receiver_address),
                    "types": [format!("bench.k{kind}")],
                });
                self.ask(&client, "/v1/subscriptions", &subscription)?;
            }
        }
        Ok(())
    }

    fn ask(&self, client: &Client, path: &str, body: &Json) -> Result<Json, Failure> {
        let body = Some(Bytes::from(body.to_string()));
        self.runtime.block_on(client.ask(Method::POST, path, &[], body))
    }

    /// Sends events, and waits until everything has arrived or nothing more arrives.
    fn send(&mut self, load: &Load, fan_out: u64) -> Result<(Sent, Arrived), Failure> {
        let _: Json = self.receiver.ask(&Ask::Begin { fan_out })?;
        let sent: Sent = Helper::task("load", load)?;
        let refused = sent.refused.len() as u64;
        let owed = (sent.events - refused.min(sent.events)) * fan_out;
        self.wait_for(owed)?;
        let report = Ask::Report { events: sent.events, refused: sent.refused.clone() };
        let arrived: Arrived = self.receiver.ask(&report)?;
        if let Some(refusal) = &sent.refusal {
            return Err(Failure::failed(format!("{refused} events were refused: {refusal}")));
        }
        if arrived.lost + arrived.repeated + arrived.unexpected > 0 {
            return Err(Failure::failed(format!(
                "of {owed} deliveries {} were lost, {} arrived more than once, {} were not owed",
                arrived.lost, arrived.repeated, arrived.unexpected
            )));
        }
        Ok((sent, arrived))
    }

    #[expect(clippy::disallowed_methods, reason = "a measurement reads the machine's clock")]
    fn wait_for(&mut self, owed: u64) -> Result<(), Failure> {
        let (mut seen, mut since) = (0, Instant::now());
        loop {
            let count: Json = self.receiver.ask(&Ask::Count)?;
            let arrived = count["arrived"].as_u64().unwrap_or(0);
            if arrived >= owed || since.elapsed() > PATIENCE {
                return Ok(());
            }
            if arrived > seen {
                (seen, since) = (arrived, Instant::now());
            }
            std::thread::sleep(GLANCE);
        }
    }

    /// Checks the server's ledger: everything accepted is delivered, and nothing else is left.
    #[expect(clippy::disallowed_methods, reason = "what has arrived is settled a moment later")]
    fn verify_ledger(
        &self,
        servers: &Nodes,
        tenant: &str,
        scenario: &Scenario,
    ) -> Result<(), Failure> {
        let address = format!("http://{}", servers.address()?);
        let client = Client::new(&address, Some(servers.key.clone()), Some(tenant.to_owned()))?;
        let begin = Instant::now();
        loop {
            let ask = client.ask(Method::GET, "/v1/ledger", &[], None);
            let ledger = self.runtime.block_on(ask)?;
            if ledger["accepted"] == ledger["delivered"] && ledger["accepted"] != 0 {
                return Ok(());
            }
            if begin.elapsed() > PATIENCE {
                let name = &scenario.name;
                return Err(Failure::failed(format!("{name}: the ledger says {ledger}")));
            }
            std::thread::sleep(GLANCE);
        }
    }

    fn ceiling(&mut self, scenario: &Scenario) -> Result<Posted, Failure> {
        let _: Json = self.receiver.ask(&Ask::Begin { fan_out: 0 })?;
        let post = Post {
            receiver: self.receiver_address.clone(),
            payload_bytes: scenario.payload_bytes,
            connections: self.connections,
            seconds: self.extent.ceiling_seconds,
        };
        Helper::task("ceiling", &post)
    }

    /// The usage of all processes so far.
    fn usage(&self, servers: &Nodes) -> Used {
        Used {
            servers: servers.usage(),
            receiver: Usage::of(self.receiver.id()),
            postgres_us: self.postmaster.map(Postmaster::cpu_us),
            written_bytes: self.disk.as_ref().and_then(Disk::written_bytes),
        }
    }
}

/// The usage of all processes at a moment.
struct Used {
    servers: Usage,
    receiver: Usage,
    postgres_us: Option<u64>,
    written_bytes: Option<u64>,
}

/// The server behind a database's address, if it is on this machine.
async fn postmaster(url: &str) -> Result<Option<Postmaster>, Failure> {
    let failed = |error| Failure::failed(format!("{}: {error}", postgres::shown(url)));
    let visitor = Visitor::connect(url).await.map_err(failed)?;
    let process = visitor.process().await.map_err(failed)?;
    Ok(process.and_then(Postmaster::of_backend))
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn per(sum: u64, deliveries: u64) -> f64 {
    sum as f64 / deliveries as f64
}
