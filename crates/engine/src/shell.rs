//! The shell around the core: one task that passes inputs to the core and carries out its actions.
//!
//! Everything that can take time runs in tasks of its own that report back; this task only waits
//! for the next input. It decides nothing.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use postrider_domain::delivery::Delivery;
use postrider_domain::ids::{DestinationId, TenantId};
use postrider_domain::policy::Policy;
use postrider_domain::time::Timestamp;
use postrider_store::{Commit, ReplayJob, ShardLeases, Store, StoreError, WaitingOrder};
use postrider_transport::{Clock, Transport, pause};
use tokio::sync::mpsc::unbounded_channel as channel;
use tokio::sync::{broadcast, mpsc, watch};
use tokio::task::JoinSet;

use crate::attempt::{AttemptPlan, Runner, TransportRunner};
use crate::background::Background;
use crate::cluster::{self, Mailbox, NEWEST, Refresher, ToReplay, instant};
use crate::core::{
    Action, Command, Core, Fetch, Input, Load, LoadId, OnReplay, Outgoing, WantedEvent,
};
use crate::dead_replays;
use crate::directory::{Credentials, Directory};
use crate::entropy::Entropy;
use crate::handle::{Ended, EngineHandle, Shared};
use crate::handovers::Handovers;
use crate::inbox::{Handover, Inbox};
use crate::ingest::Ingest;
use crate::live::EngineEvent;
use crate::notices::Notices;
use crate::options::Options;
use crate::spans::Spans;
use crate::trial::Elsewhere;
use crate::unused;
use crate::upkeep::{self, LeaseHolder, ToLeaseHolder};

/// How many inputs are processed before the core acts on them: few enough that new events do not
/// wait long behind many attempts that ended together.
const INPUTS_AT_ONCE: usize = 256;

/// The parts of an engine.
pub struct Parts {
    /// The store.
    pub store: Arc<dyn Store>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The source of random bytes.
    pub entropy: Arc<dyn Entropy>,
    /// Opens the credentials of subscriptions.
    pub credentials: Arc<dyn Credentials>,
    /// The numbers of the contract.
    pub policy: Policy,
    /// The limits.
    pub options: Options,
    /// The recorder of traces, if traces are recorded.
    pub spans: Option<Arc<dyn Spans>>,
    /// The runtime for large work.
    pub background: Background,
}

/// Starts an engine: reads the unfinished deliveries from the store and continues with them.
///
/// # Errors
///
/// If the store cannot be read.
pub async fn start<T: Transport>(
    parts: Parts,
    transport: Arc<T>,
) -> Result<EngineHandle, StoreError> {
    let Parts { store, clock, entropy, credentials, policy, options, spans, background } = parts;
    let options = Options { page: options.page.max(1), ..options };
    let directory = Arc::new(Directory::new(credentials));
    let mailbox = Mailbox::new(&store, &entropy);
    let (inbox, handovers) =
        Inbox::new(options.handover_batches_max, options.handover_deliveries_max);
    let (inputs, received) = mpsc::unbounded_channel();
    let policy = watch::Sender::new(Arc::new(policy));
    let (ended, ended_seen) = watch::channel(None);
    let (end, end_seen) = watch::channel(false);
    let refresher = Refresher::new(&store, &directory, &inputs);
    let live = broadcast::Sender::new(options.live_events_max.max(1));
    let (tenants, happened) = mpsc::channel(options.live_events_max.max(1));
    let told = (Notices::new(tenants.clone(), live.clone()), spans.clone());
    let ingest = Ingest::new(&store, &clock, &entropy, &refresher, &inbox, &options, told);
    let ingest = Arc::new(ingest);
    let runner = runner(transport, &clock, spans, &background);
    let core =
        load(&store, &*clock, &policy.borrow().clone(), &options, &directory, &inbox).await?;
    let mut tasks = JoinSet::new();
    upkeep::begin(&mut tasks, (happened, &ingest), (&store, &clock), &policy, &options);
    let (to_holder, told) = mpsc::unbounded_channel();
    let held = ShardLeases::clone(&core.leases());
    tasks.spawn(LeaseHolder::new(&store, &inputs, held, options.hold_every, told).run());
    let ((elsewhere, replays), (dead, died)) = (channel(), channel());
    let prune_every = options.prune_every;
    let shell = Shell {
        core,
        store: Arc::clone(&store),
        clock: Arc::clone(&clock),
        inbox,
        runner: Arc::clone(&runner),
        refresher: Arc::clone(&refresher),
        inputs: inputs.clone(),
        holder: to_holder.clone(),
        elsewhere,
        dead,
        live: live.clone(),
        tenants,
        policy: policy.subscribe(),
        options,
        tasks,
        stopped: None,
    };
    tokio::spawn(shell.run(received, handovers, end_seen, ended));
    let shared = Shared {
        store,
        clock,
        entropy,
        directory,
        ingest,
        runner,
        inputs,
        live,
        policy,
        ended: ended_seen,
        end,
        stopping: AtomicBool::new(false),
        refresher,
        elsewhere: Elsewhere::default(),
        mailbox,
        background,
        holder: to_holder,
    };
    let engine = EngineHandle { shared: Arc::new(shared) };
    Ok(with_replays(engine, replays, died, prune_every))
}

/// Begins to have deliveries of jobs replayed by their owners, to keep jobs for what died, and to remove what
/// nothing uses.
fn with_replays(
    engine: EngineHandle,
    replays: mpsc::UnboundedReceiver<ToReplay>,
    died: mpsc::UnboundedReceiver<ReplayJob>,
    prune_every: Duration,
) -> EngineHandle {
    cluster::begin(&engine, replays);
    tokio::spawn(dead_replays::keep(Arc::downgrade(&engine.shared), died));
    tokio::spawn(unused::remove_unused(Arc::downgrade(&engine.shared), prune_every));
    engine
}

/// The runner that carries out attempts.
fn runner<T: Transport>(
    transport: Arc<T>,
    clock: &Arc<dyn Clock>,
    spans: Option<Arc<dyn Spans>>,
    background: &Background,
) -> Arc<dyn Runner> {
    let (clock, background) = (Arc::clone(clock), background.clone());
    Arc::new(TransportRunner { transport, clock, spans, background })
}

/// Builds a core from the store.
async fn load(
    store: &Arc<dyn Store>,
    clock: &dyn Clock,
    policy: &Arc<Policy>,
    options: &Options,
    directory: &Arc<Directory>,
    inbox: &Arc<Inbox>,
) -> Result<Core, StoreError> {
    let asked = instant();
    let leases = store.hold_shards().await?;
    let version = store.changes(NEWEST).await?.version;
    let subscriptions = store.all_subscriptions().await?;
    directory.own_limits.read_all(&**store).await?;
    let destinations = store.held_destinations(&leases).await?;
    let mut jobs = store.running_replays().await?;
    jobs.retain(|job| leases.has(job.shard()));
    for record in subscriptions.iter().filter(|record| record.deleted_at.is_none()) {
        directory.put(record);
    }
    directory.set_version(version);
    let now = clock.now();
    let mut core = Core::new(
        options.clone(),
        Arc::clone(policy),
        Arc::clone(directory),
        Arc::clone(inbox),
        leases,
        now,
    );
    core.leases_valid_until(LeaseHolder::until(&**store, asked));
    for record in destinations {
        let rate = directory.rate_limit(&record.tenant, record.id);
        core.add_destination(record, rate);
    }
    for record in subscriptions.into_iter().filter(|record| record.deleted_at.is_some()) {
        core.cancel_all(record.subscription.tenant, record.subscription.id);
    }
    for job in jobs {
        core.run_job(job);
    }
    core.begin_backlog();
    Ok(core)
}

/// The engine's main task.
struct Shell {
    core: Core,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    inbox: Arc<Inbox>,
    runner: Arc<dyn Runner>,
    refresher: Arc<Refresher>,
    inputs: mpsc::UnboundedSender<Input>,
    /// The task that renews the leases.
    holder: mpsc::UnboundedSender<ToLeaseHolder>,
    /// Deliveries that other nodes are to replay.
    elsewhere: mpsc::UnboundedSender<ToReplay>,
    /// Jobs for what died of an outage, to be kept.
    dead: mpsc::UnboundedSender<ReplayJob>,
    live: broadcast::Sender<EngineEvent>,
    tenants: mpsc::Sender<EngineEvent>,
    policy: watch::Receiver<Arc<Policy>>,
    options: Options,
    /// Tasks for reads, commits and upkeep. They end with the engine.
    tasks: JoinSet<()>,
    stopped: Option<String>,
}

impl Shell {
    async fn run(
        mut self,
        mut received: mpsc::UnboundedReceiver<Input>,
        mut handovers: mpsc::Receiver<Handover>,
        mut end: watch::Receiver<bool>,
        ended: watch::Sender<Option<Ended>>,
    ) {
        let (mut inputs, mut arrived) = (Vec::new(), Vec::new());
        let mut accepted = Handovers::default();
        let inbox = Arc::clone(&self.inbox);
        while self.stopped.is_none() {
            let now = self.clock.now();
            self.look_at_lease();
            self.core.listened = self.live.receiver_count() > 0;
            for input in inputs.drain(..) {
                self.core.handle(input, now);
            }
            arrived.drain(..).for_each(|handover| accepted.add(handover));
            for handover in accepted.take_step() {
                self.core.handle(Input::Accepted(handover), now);
            }
            self.look_at_lease();
            self.core.advance(now);
            self.perform();
            while self.tasks.try_join_next().is_some() {}
            let sleep = self.sleep(now);
            // The branches are polled in a fixed order, so that a run can be repeated. None can
            // starve another: the first two are rare, the third also takes what the fourth waits
            // for, and due timers run in any case.
            tokio::select! {
                biased;
                _ = end.changed() => break,
                () = inbox.spilled_notice.notified() => {
                    inputs.push(Input::Spilled(inbox.take_spilled()));
                }
                _ = received.recv_many(&mut inputs, INPUTS_AT_ONCE) => {
                    // Take from both channels in turn, so that neither blocks the other.
                    while arrived.len() < INPUTS_AT_ONCE
                        && let Ok(handover) = handovers.try_recv()
                    {
                        arrived.push(handover);
                    }
                }
                _ = handovers.recv_many(&mut arrived, INPUTS_AT_ONCE) => {}
                // Continue with the next portion after all other ready tasks have run.
                () = tokio::task::yield_now(), if !accepted.is_empty() => {}
                () = pause(sleep) => {}
            }
        }
        let reason = self.stopped.take().map_or(Ended::Shutdown, Ended::StoreStopped);
        self.tasks.shutdown().await;
        if reason == Ended::Shutdown {
            // A lease that cannot be released ends by itself.
            drop(self.store.release_shards().await);
        }
        ended.send_replace(Some(reason));
    }

    /// Updates whether the leases are valid at this moment.
    fn look_at_lease(&mut self) {
        self.core.check_leases(instant());
    }

    fn sleep(&self, now: Timestamp) -> Duration {
        let longest = self.options.sleep_max;
        self.core.next_wake().map_or(longest, |at| at.since(now).min(longest))
    }

    /// Carries out the actions of the core.
    fn perform(&mut self) {
        for action in self.core.take_actions() {
            match action {
                Action::Send(outgoing) => {
                    let own = &outgoing.prepared.subscription.policy;
                    let limits = self.policy.borrow().attempt_for(own);
                    self.runner.begin(plan(outgoing, limits), self.inputs.clone());
                }
                Action::ReadEvents(wanted) => self.read_events(wanted),
                Action::Commit(commit) => self.commit(*commit),
                Action::Load(id, load) => self.load(id, load),
                Action::Fetch(fetch) => self.fetch(fetch),
                Action::Publish(event) => self.publish(event),
                Action::Forget(tenant, subscription) => {
                    let store = Arc::clone(&self.store);
                    self.tasks.spawn(async move {
                        // If it fails, the record is found and removed at the next start.
                        drop(store.remove_subscription(&tenant, subscription).await);
                    });
                }
                Action::PutReplay(job, reply) => {
                    let reader = self.reader();
                    self.tasks.spawn(async move {
                        if reader.insist(|| reader.store.put_replay(&job)).await.is_some() {
                            let command = Command::OnReplay(OnReplay::Run { job, reply });
                            drop(reader.inputs.send(Input::Command(command)));
                        }
                    });
                }
                Action::ReadDestination(read, tenant, id) => {
                    self.read_destination(read, tenant, id)
                }
                // Sending fails only while the engine is shutting down.
                Action::ReplayElsewhere(job, rows, is_all) => {
                    drop(self.elsewhere.send((*job, rows, is_all)));
                }
                Action::ReplayDead(job) => drop(self.dead.send(*job)),
                Action::RenewLeases(shards) => drop(self.holder.send(ToLeaseHolder::Renew(shards))),
                Action::GiveBack(decision) => {
                    drop(self.holder.send(ToLeaseHolder::GiveBack(decision)));
                }
                Action::Stop(why) => self.stopped = Some(why),
            }
        }
    }

    fn publish(&mut self, event: EngineEvent) {
        let is_for_tenants = match &event {
            EngineEvent::Transition { .. }
            | EngineEvent::Dead { .. }
            | EngineEvent::FilterOverBudget { .. }
            | EngineEvent::Warning { .. }
            | EngineEvent::ClockStep(_) => true,
            EngineEvent::Attempt { .. }
            | EngineEvent::Began { .. }
            | EngineEvent::SuspensionChange(_) => false,
        };
        if is_for_tenants {
            // If the channel is full, the event is dropped; nothing waits for it.
            drop(self.tenants.try_send(event.clone()));
        }
        // Sending fails if nobody listens, which is no error.
        drop(self.live.send(event));
    }

    fn commit(&mut self, commit: Commit) {
        let (store, inputs) = (Arc::clone(&self.store), self.inputs.clone());
        let leases = self.core.leases();
        self.tasks.spawn(async move {
            let result = store.settle(&leases, commit).await;
            drop(inputs.send(Input::Settled(result)));
        });
    }

    fn load(&mut self, id: LoadId, load: Load) {
        let reader = self.reader();
        let (inbox, refresher) = (Arc::clone(&self.inbox), Arc::clone(&self.refresher));
        self.tasks.spawn(async move {
            if let Some(rows) = reader.insist(|| reader.read(&load)).await {
                let next_ticket = inbox.next_ticket();
                let is_unknown = |row: &Delivery| !refresher.directory.has(row.subscription);
                if reader.store.node().is_some() && rows.iter().any(is_unknown) {
                    // Another node may have created the subscription a moment ago: catch up before
                    // it counts as deleted.
                    if reader.insist(|| refresher.catch_up()).await.is_none() {
                        return;
                    }
                }
                drop(reader.inputs.send(Input::Loaded(id, rows, next_ticket)));
            }
        });
    }

    /// Reads the events of deliveries that were read.
    fn fetch(&mut self, mut fetch: Fetch) {
        let reader = self.reader();
        fetch.wanted.sort_unstable();
        fetch.wanted.dedup();
        self.tasks.spawn(async move {
            let Some(events) = reader.insist(|| reader.store.events(&fetch.wanted)).await else {
                return;
            };
            let wanted = std::mem::take(&mut fetch.wanted).into_iter();
            let events = wanted.zip(events).filter_map(|(id, event)| Some((id, event?)));
            drop(reader.inputs.send(Input::Fetched(fetch, events.collect())));
        });
    }

    /// Reads a destination that is not in memory.
    fn read_destination(&mut self, read: LoadId, tenant: TenantId, id: DestinationId) {
        let reader = self.reader();
        self.tasks.spawn(async move {
            if let Some(found) = reader.insist(|| reader.store.destination(&tenant, id)).await {
                let command = Command::DestinationRead { read, id, record: found.map(Box::new) };
                drop(reader.inputs.send(Input::Command(command)));
            }
        });
    }

    /// Reads the events of several deliveries in one query.
    fn read_events(&mut self, wanted: Vec<WantedEvent>) {
        let reader = self.reader();
        self.tasks.spawn(async move {
            let key = |one: &WantedEvent| (one.tenant.clone(), one.event.clone());
            let mut ids: Vec<_> = wanted.iter().map(key).collect();
            // Several deliveries may have the same event.
            ids.sort_unstable();
            ids.dedup();
            let Some(events) = reader.insist(|| reader.store.events(&ids)).await else { return };
            let events: HashMap<_, _> = ids.into_iter().zip(events).collect();
            let event = |one: &WantedEvent| events.get(&key(one)).cloned().flatten();
            let read = wanted.iter().map(|one| (one.delivery, event(one))).collect();
            drop(reader.inputs.send(Input::EventsRead(read)));
        });
    }

    fn reader(&self) -> Reader {
        Reader {
            store: Arc::clone(&self.store),
            inputs: self.inputs.clone(),
            leases: self.core.leases(),
            pause_min: self.options.store_retry_min,
            pause_max: self.options.store_retry_max,
        }
    }
}

fn plan(outgoing: Outgoing, limits: postrider_domain::policy::AttemptPolicy) -> AttemptPlan {
    let Outgoing { delivery, number, event, prepared, target } = outgoing;
    AttemptPlan { delivery, number, event, prepared, target, limits }
}

/// Repeats a read of the store until it succeeds.
struct Reader {
    store: Arc<dyn Store>,
    inputs: mpsc::UnboundedSender<Input>,
    leases: Arc<ShardLeases>,
    pause_min: Duration,
    pause_max: Duration,
}

impl Reader {
    /// Repeats a read until it succeeds. `None` if the store has stopped.
    async fn insist<T, F>(&self, ask: impl Fn() -> F) -> Option<T>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let mut wait = self.pause_min;
        loop {
            match ask().await {
                Ok(answer) => return Some(answer),
                Err(StoreError::Stopped(why)) => {
                    drop(self.inputs.send(Input::Command(Command::Stop { why })));
                    return None;
                }
                Err(_) => pause(wait).await,
            }
            wait = (wait * 2).min(self.pause_max);
        }
    }

    async fn read(&self, load: &Load) -> Result<Vec<Delivery>, StoreError> {
        let store = &self.store;
        match load {
            Load::Due { after, until, limit } => {
                store.due(&self.leases, *after, *until, *limit).await
            }
            Load::Backlog { after, limit } => store.queued(&self.leases, *after, *limit).await,
            Load::Queued { destination, limit } => {
                store.queued_of(*destination, None, *limit).await
            }
            Load::Overdue { destination, limit } => {
                store.waiting_of(*destination, WaitingOrder::Due, *limit).await
            }
            Load::Drain { destination, limit } => {
                store.waiting_of(*destination, WaitingOrder::Oldest, *limit).await
            }
            Load::Probe { destination, limit, asked } => {
                let order = WaitingOrder::ProbeRank;
                let mut rows = store.waiting_of(*destination, order, *limit).await?;
                if let Some((tenant, id)) = asked
                    && rows.iter().all(|row| row.id != *id)
                {
                    let found = store.delivery(tenant, *id).await?;
                    rows.extend(found.filter(|found| found.destination == *destination));
                }
                Ok(rows)
            }
            Load::Unfinished { subscription, limit, .. } => {
                store.unfinished_of(*subscription, *limit).await
            }
            Load::Candidates { job, limit } => store.replay_candidates(job, *limit).await,
            Load::One { tenant, delivery } => {
                Ok(store.delivery(tenant, *delivery).await?.into_iter().collect())
            }
        }
    }
}
