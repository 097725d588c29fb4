//! A cluster under load, and the checks at its end.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::receiver::{Receiver, shortest_gap};
use crate::server::Server as Postgres;
use crate::support::server::Server;
use crate::support::{Deadline, Start, balances, http};

const KEY: &str = "admin-key-of-the-cluster-tests";
/// Paths of the receiver that answer well.
pub(crate) const PLACES: usize = 12;
/// Divides the ten minutes between two probes: to six seconds.
const TIME_SCALE: &str = "100";
const PROBE_INTERVAL: Duration = Duration::from_secs(6);
/// The pause of each of the three senders between two events. On two cores a cluster accepts more
/// than it delivers, and a takeover would wait for the backlog.
const PACE: Duration = Duration::from_millis(30);
/// The longest takeover that is allowed.
const TAKEOVER_MAX: Duration = Duration::from_secs(20);

/// How often each fault is repeated.
#[expect(clippy::disallowed_methods, reason = "the long form is asked for by the environment")]
pub(crate) fn rounds() -> usize {
    std::env::var("POSTRIDER_CLUSTER_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(1)
}

#[expect(clippy::disallowed_methods, reason = "measures how long something took")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// A database, nodes on it, and a receiver.
pub(crate) struct Scene {
    pub(crate) postgres: Postgres,
    pub(crate) receiver: Receiver,
    pub(crate) nodes: Vec<Option<Server>>,
    url: String,
    folder: tempfile::TempDir,
    variables: Vec<(String, String)>,
    /// Another binary for nodes that are started from now on.
    pub(crate) program: Option<PathBuf>,
    /// Deliveries to other paths than the usual ones.
    pub(crate) others: u64,
    /// Requests to each bad path before it was disabled.
    ordinary: Vec<usize>,
}

impl Scene {
    /// This many nodes, on a database of their own.
    pub(crate) fn new(nodes: usize) -> Scene {
        let postgres = Postgres::start();
        let url = postgres.database("cluster");
        Scene::at(postgres, url, nodes, &[])
    }

    /// This many nodes on the database at this address; each with its own environment variables.
    pub(crate) fn at(
        postgres: Postgres,
        url: String,
        nodes: usize,
        variables: &[(&str, &str)],
    ) -> Scene {
        Scene::of(None, postgres, url, nodes, variables)
    }

    /// This many nodes of another program, on a database of their own.
    pub(crate) fn of_program(program: &Path, nodes: usize) -> Scene {
        let postgres = Postgres::start();
        let url = postgres.database("cluster");
        Scene::of(Some(program.to_owned()), postgres, url, nodes, &[])
    }

    fn of(
        program: Option<PathBuf>,
        postgres: Postgres,
        url: String,
        nodes: usize,
        variables: &[(&str, &str)],
    ) -> Scene {
        let folder = tempfile::tempdir().unwrap();
        let (receiver, none) = (Receiver::start(), Vec::new());
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let variables = variables.iter().map(owned).collect();
        let ordinary = Vec::new();
        let mut scene = Scene {
            postgres,
            receiver,
            nodes: none,
            url,
            folder,
            variables,
            program,
            others: 0,
            ordinary,
        };
        for _ in 0..nodes {
            scene.join();
        }
        let good = (0..PLACES).map(|place| format!("/good{place}"));
        for path in good.chain(["/bad0".to_owned(), "/bad1".to_owned()]) {
            let body = json!({"url": scene.receiver.url(&path), "types": ["task.*"]});
            scene.node(0).ask("POST", "/v1/subscriptions", Some(&body), 201);
        }
        scene.wait_for_shares();
        scene.warm_up();
        scene
    }

    /// Waits until every running node has its share of the shards.
    pub(crate) fn wait_for_shares(&mut self) {
        let count = self.nodes.iter().flatten().count();
        let share = 256 / count;
        let place = self.nodes.iter().position(Option::is_some).unwrap();
        let postgres = &self.postgres;
        self.nodes[place].as_mut().unwrap().wait("every node to have its share", |_| {
            let sql = "SELECT count(*) FROM (SELECT owner FROM postrider.shards \
                       GROUP BY owner HAVING count(*) IN ";
            let sql = format!("{sql}({share}, {})) AS s", share + 1);
            (postgres.sql("cluster", &sql) == count.to_string()).then_some(())
        });
    }

    /// Waits until the bad destinations are disabled: from then on only probes come there.
    fn warm_up(&mut self) {
        let node = self.nodes[0].as_mut().unwrap();
        node.send(30);
        node.wait("the bad places to be disabled", |node| {
            let list = node.get("/v1/destinations");
            let list = list["data"].as_array().unwrap();
            let is_so = list.iter().filter(|one| one["state"] == "disabled").count() == 2;
            (is_so && node.ledger()["in_flight"] == 0).then_some(())
        });
        self.ordinary = self.receiver.bad().values().map(Vec::len).collect();
    }

    /// The running node with this index.
    pub(crate) fn node(&self, place: usize) -> &Server {
        self.nodes[place].as_ref().unwrap()
    }

    /// Any running node.
    pub(crate) fn any(&self) -> &Server {
        self.nodes.iter().flatten().next().unwrap()
    }

    /// Starts one more node.
    pub(crate) fn join(&mut self) {
        let place = self.nodes.len();
        self.nodes.push(None);
        self.start(place);
    }

    /// Starts the node with this index, on its own directory.
    pub(crate) fn start(&mut self, place: usize) {
        let here = self.directory(place);
        if place > 0 && !here.exists() {
            std::fs::create_dir_all(&here).unwrap();
            std::fs::copy(self.directory(0).join("keyring"), here.join("keyring")).unwrap();
        }
        self.nodes[place] = Some(self.how(place).at(&here));
    }

    /// The start options of the node with this index.
    pub(crate) fn how(&self, place: usize) -> Start {
        let mut start = Start::dev()
            .with(&["--store", &self.url, "--time-scale", TIME_SCALE])
            .with(&["--set", "circuit.disable_consecutive=5"])
            .variable("POSTRIDER_ADMIN_KEY", KEY);
        if let Some(program) = &self.program {
            start = start.program(program);
        }
        for (name, value) in self.variables.iter().filter(|_| place > 0) {
            let sign = if place == 1 { "" } else { "-" };
            start = start.variable(name, &value.replace('±', sign));
        }
        start
    }

    /// Kills a node, like a power cut.
    pub(crate) fn kill(&mut self, place: usize) {
        let node = self.nodes[place].take().unwrap();
        node.signal("KILL");
        drop(node);
    }

    /// Shuts a node down in order; returns its log.
    pub(crate) fn leave(&mut self, place: usize) -> String {
        let mut node = self.nodes[place].take().unwrap();
        node.signal("TERM");
        let (status, log) = node.ended();
        assert!(status.success(), "{status}: {log}");
        log
    }

    /// The directory of the node with this index.
    pub(crate) fn directory(&self, place: usize) -> PathBuf {
        self.folder.path().join(format!("node{place}"))
    }

    /// Deliveries that arrived and are not settled: in flight, as the receiver sees it. They
    /// include those of nodes that are gone, because nobody else has settled them yet.
    pub(crate) fn in_flight(&self) -> BTreeSet<String> {
        let settled = self.settled();
        // The receiver is read after the settled ones: a delivery that arrives in between is in
        // flight on another node, which is harmless.
        self.receiver.good().into_keys().filter(|id| !settled.contains(id)).collect()
    }

    /// The delivered deliveries, according to the database.
    pub(crate) fn settled(&self) -> BTreeSet<String> {
        self.ids("postrider.deliveries_done WHERE state = 2")
    }

    /// The deliveries that are not settled, whether they arrived or not.
    pub(crate) fn unfinished(&self) -> BTreeSet<String> {
        let mut unfinished = self.ids("postrider.deliveries_open");
        unfinished.append(&mut self.in_flight());
        unfinished
    }

    fn ids(&self, of: &str) -> BTreeSet<String> {
        let sql = format!("SELECT 'dlv_' || replace(id::text, '-', '') FROM {of}");
        self.postgres.sql("cluster", &sql).lines().map(str::to_owned).collect()
    }

    /// Begins to send events to all nodes.
    pub(crate) fn load(&self) -> Load {
        let nodes = self.nodes.iter().flatten().map(|node| node.address).collect();
        Load::begin(nodes)
    }

    /// The time from `began` until an event that is accepted now has come to every path.
    pub(crate) fn takeover(&self, began: Instant, text: &str) -> Duration {
        let event = json!({"type": "task.mark", "data": {"mark": text}});
        self.any().ask("POST", "/v1/events", Some(&event), 202);
        let took = self.receiver.wait_for_event(text, PLACES).saturating_duration_since(began);
        assert!(took <= TAKEOVER_MAX, "the takeover took {took:?}");
        took
    }

    /// Waits until everything has arrived. Checks that nothing is missing, and that nothing arrived
    /// twice that was not in flight during a fault.
    pub(crate) fn settle(
        &mut self,
        acknowledged: &[String],
        in_flight: &BTreeSet<String>,
    ) -> Ended {
        let place = self.nodes.iter().position(Option::is_some).unwrap();
        let (node, others) = (self.nodes[place].as_mut().unwrap(), self.others);
        // Everything except the deliveries to bad paths.
        let ledger = node.wait("everything to arrive", |node| {
            let ledger = node.ledger();
            let count = |name: &str| ledger[name].as_u64().unwrap() - others;
            let good = count("accepted") / (PLACES as u64 + 2) * PLACES as u64;
            (count("delivered") == good).then_some(ledger)
        });
        assert!(balances(&ledger), "{ledger}");
        let arrived = self.receiver.good();
        for id in acknowledged {
            let event = self.any().get(&format!("/v1/events/{id}"));
            let deliveries = event["deliveries"].as_array().unwrap();
            assert_eq!(deliveries.len(), PLACES + 2, "{event}");
            let has_arrived =
                |one: &&serde_json::Value| arrived.contains_key(one["id"].as_str().unwrap());
            assert_eq!(deliveries.iter().filter(has_arrived).count(), PLACES, "{event}");
        }
        let twice = "SELECT count(*) FROM (SELECT delivery FROM postrider.attempts \
                     WHERE status BETWEEN 200 AND 299 GROUP BY delivery HAVING count(*) > 1) AS t";
        assert_eq!(self.postgres.sql("cluster", twice), "0", "a stale settlement was applied");
        let twice = arrived.iter().filter(|(_, times)| **times > 1).map(|(id, _)| id);
        let unexplained: Vec<_> = twice.filter(|id| !in_flight.contains(*id)).collect();
        assert!(unexplained.is_empty(), "came twice, and were not in flight: {unexplained:?}");
        Ended {
            acknowledged: acknowledged.len(),
            duplicates: arrived.values().map(|times| times - 1).sum(),
            in_flight: in_flight.len(),
            probes: self.probes(),
        }
    }

    /// Checks that no probe came too early after another; returns the number of probes.
    fn probes(&self) -> usize {
        let mut probes = 0;
        for ((place, times), ordinary) in self.receiver.bad().into_iter().zip(&self.ordinary) {
            let of_probes = &times[*ordinary..];
            probes += of_probes.len();
            if let Some(gap) = shortest_gap(of_probes) {
                assert!(gap >= PROBE_INTERVAL * 9 / 10, "{place}: two probes within {gap:?}");
            }
        }
        probes
    }
}

/// The result of a scene.
pub(crate) struct Ended {
    acknowledged: usize,
    duplicates: usize,
    in_flight: usize,
    probes: usize,
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} acknowledged, 0 lost, {} duplicates ({} in flight), 0 stale settlements, {} probes, \
             none early",
            self.acknowledged, self.duplicates, self.in_flight, self.probes
        )
    }
}

/// Senders of events, to one node after the other.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    senders: Vec<JoinHandle<Vec<String>>>,
}

impl Load {
    fn begin(nodes: Vec<std::net::SocketAddr>) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        static RUNS: AtomicUsize = AtomicUsize::new(0);
        let run = RUNS.fetch_add(1, Ordering::Relaxed);
        let senders = (0..3).map(|sender| {
            let (stop, nodes) = (Arc::clone(&stop), nodes.clone());
            thread::spawn(move || {
                let (mut acknowledged, deadline) = (Vec::new(), Deadline::new());
                for n in 0.. {
                    if stop.load(Ordering::Relaxed) || deadline.has_passed() {
                        break;
                    }
                    let id = format!("event-{run}-{sender}-{n}");
                    let event = json!({"id": id, "type": "task.updated", "data": {"n": n}});
                    let node = nodes[(n + sender) % nodes.len()];
                    // A node that is gone, suspended or without its database acknowledges nothing.
                    if let Ok((202, _)) =
                        http::request(node, KEY, "POST", "/v1/events", Some(&event))
                    {
                        acknowledged.push(id);
                    }
                    thread::park_timeout(PACE);
                }
                acknowledged
            })
        });
        let senders = senders.collect();
        Load { stop, senders }
    }

    /// Stops, and returns the acknowledged events.
    pub(crate) fn end(self) -> Vec<String> {
        self.stop.store(true, Ordering::Relaxed);
        self.senders.iter().for_each(|sender| sender.thread().unpark());
        self.senders.into_iter().flat_map(|sender| sender.join().unwrap()).collect()
    }
}
