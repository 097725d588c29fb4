//! The simulated world: one process of the real engine at a time, on virtual time, with receivers,
//! a store that can crash, and the model that checks everything.
//!
//! A process is a tokio runtime of its own: dropping it ends every task immediately, like kill -9.
//! The driver outside is plain sequential code.

pub mod actions;
pub mod life;
pub mod policies;
pub mod receivers;
pub mod recovery;

use std::future::Future;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use postrider_domain::ids::{DestinationId, TenantId};
use postrider_domain::signature::{SigningSecret, SigningSecrets};
use postrider_engine::{
    Background, Credentials, CredentialsError, Ended, EngineHandle, OpenCredentials, Options,
    Parts, SeededEntropy,
};
use postrider_store::{History, PageRequest, Replays as _, Store, SubscriptionRecord};
use postrider_store_testing::memory::{Durable, MemoryOptions, MemoryStore};
use postrider_transport::Clock;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;

use crate::clock::{WorldClock, pause};
use crate::coverage::Cover;
use crate::oracle::Oracle;
use crate::oracle::limits::Limits;
use crate::oracle::rules::Rules;
use crate::random::Random;
use receivers::Receivers;

/// Crashes the process after a number of requests or durable writes.
#[derive(Debug, Default)]
pub struct Trigger {
    sends: AtomicI64,
    writes: AtomicI64,
    notice: Notify,
}

impl Trigger {
    fn sent(&self) {
        self.count(&self.sends);
    }

    fn count(&self, left: &AtomicI64) {
        if left.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.notice.notify_one();
        }
    }
}

/// The process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Crashed;

/// How long the store takes for a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// No time: every call returns at once.
    Instant,
    /// No time, but other tasks run in between.
    Yields,
    /// Some milliseconds.
    Milliseconds,
}

/// The properties of a world, drawn from its seed.
#[derive(Debug, Clone)]
pub struct Nature {
    /// The seed of everything.
    pub seed: u64,
    /// The thresholds and times of the contract.
    pub rules: Rules,
    /// The limits of the engine.
    pub options: Options,
    /// How long the store takes for a call.
    pub pace: Pace,
    /// Whether it is a long life with little traffic.
    pub sparse: bool,
}

impl Nature {
    /// A plain world: the contract's own numbers, and a store without delays.
    pub fn plain(seed: u64) -> Self {
        let options = Options {
            hold_every: Duration::from_secs(24 * 3_600),
            prune_every: Duration::from_secs(24 * 3_600),
            sleep_max: Duration::from_secs(24 * 3_600),
            ..Options::default()
        };
        Nature { seed, rules: Rules::DEFAULT, options, pace: Pace::Instant, sparse: false }
    }
}

/// A simulated world.
pub struct World {
    /// The properties that were drawn.
    pub nature: Nature,
    /// The model.
    pub oracle: Arc<Mutex<Oracle>>,
    /// The receivers.
    pub receivers: Arc<Receivers>,
    /// The current virtual time.
    pub now: i64,
    /// The subscriptions that are not deleted.
    pub subscriptions: Vec<SubscriptionRecord>,
    /// How many processes have run so far.
    pub processes: u64,
    /// The store.
    pub store: MemoryStore,
    clock: Arc<WorldClock>,
    trigger: Arc<Trigger>,
    process: Option<Process>,
    crash_in_ms: Option<u64>,
    made: u64,
}

struct Process {
    runtime: Runtime,
    engine: EngineHandle,
}

/// The most jobs of a tenant whose outcomes are checked, newest first.
const JOBS_MAX: usize = 200;

/// The most tasks of an idle engine: the main loop, operational events, quota counts, pruning, leases,
/// the start of replays of what died, and the removal of unused destinations.
const TASKS_MAX: usize = 7;

/// Credentials with the same secret for every subscription.
struct SameForAll;

impl Credentials for SameForAll {
    fn open(&self, _: &SubscriptionRecord) -> Result<OpenCredentials, CredentialsError> {
        let secret = SigningSecret::generate_symmetric([7; 32]);
        Ok(OpenCredentials {
            secrets: SigningSecrets::new(secret),
            token: None,
            headers: Vec::new(),
            identity: None,
        })
    }
}

impl World {
    /// A world with a first process.
    pub fn new(nature: Nature) -> Result<Self> {
        let clock = Arc::new(WorldClock::default());
        let now = clock.now_ms();
        let mut oracle = Oracle::new(nature.rules, now);
        // The contract allows a second. With a store without delays, and lanes that hold
        // everything, nothing may be late.
        let is_tight =
            nature.options.lane_resident_max < 100 || nature.options.resident_max < 1_000;
        oracle.limits = Limits::of(&nature.options);
        oracle.slack = if is_tight || nature.pace == Pace::Milliseconds { 1_000 } else { 0 };
        let oracle = Arc::new(Mutex::new(oracle));
        let trigger = Arc::new(Trigger::default());
        let receivers =
            Arc::new(Receivers::new(Arc::clone(&clock), Arc::clone(&oracle), Arc::clone(&trigger)));
        let store = MemoryStore::new(store_options(&nature, &clock, &oracle, &trigger));
        let mut world = World {
            nature,
            oracle,
            receivers,
            now,
            subscriptions: Vec::new(),
            processes: 0,
            store,
            clock,
            trigger,
            process: None,
            crash_in_ms: None,
            made: 0,
        };
        world.boot()?;
        Ok(world)
    }

    /// The model.
    pub fn oracle(&self) -> MutexGuard<'_, Oracle> {
        self.oracle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number that this world has not used yet.
    pub fn number(&mut self) -> u64 {
        self.made += 1;
        self.made
    }

    /// Starts a process.
    fn boot(&mut self) -> Result<()> {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build()?;
        self.processes += 1;
        let entropy = Random::new(self.nature.seed ^ (self.processes << 40), "identifiers").draw();
        let parts = Parts {
            store: Arc::new(self.store.clone()) as Arc<dyn Store>,
            clock: Arc::clone(&self.clock) as Arc<dyn Clock>,
            entropy: Arc::new(SeededEntropy::new(entropy)),
            credentials: Arc::new(SameForAll),
            policy: self.oracle().rules.policy(),
            options: self.nature.options.clone(),
            spans: None,
            background: Background::default(),
        };
        let receivers = Arc::clone(&self.receivers);
        self.oracle().started(self.now);
        let clock = Arc::clone(&self.clock);
        let engine = runtime.block_on(async move {
            let step = clock.start();
            let engine = postrider_engine::start(parts, receivers).await;
            (engine, clock.now_ms(), step)
        });
        let (engine, now, step) = engine;
        self.now = now;
        if step.is_some() {
            self.oracle().coverage.hit(Cover::ClockSetInDowntime);
        }
        self.process = Some(Process { runtime, engine: engine.context("the engine starts")? });
        Ok(())
    }

    /// Runs a future inside the process; an error if the process ends first.
    pub fn inside<T, F: Future<Output = T>>(
        &mut self,
        work: impl FnOnce(EngineHandle) -> F,
    ) -> Result<T, Crashed> {
        let Some(process) = &self.process else { return Err(Crashed) };
        let (engine, trigger) = (process.engine.clone(), Arc::clone(&self.trigger));
        let (clock, crash_in) = (Arc::clone(&self.clock), self.crash_in_ms);
        let work = work(engine.clone());
        let (result, now, stopped) = process.runtime.block_on(async move {
            let begun = clock.now_ms();
            let crash = async move {
                match crash_in {
                    Some(ms) => pause(ms).await,
                    None => std::future::pending().await,
                }
            };
            // An orderly stop is noticed by the code that requested it.
            let stop = async {
                if engine.ended().await == Ended::Shutdown {
                    std::future::pending::<()>().await;
                }
            };
            let (mut stopped, mut result) = (false, Err(Crashed));
            tokio::select! {
                biased;
                () = trigger.notice.notified() => {}
                () = stop => stopped = true,
                () = crash => {}
                answer = work => result = Ok(answer),
            }
            let now = clock.now_ms();
            (result, now, (stopped, now - begun))
        });
        self.now = now;
        let (stopped, passed) = stopped;
        if let Some(left) = &mut self.crash_in_ms {
            *left = left.saturating_sub(passed.unsigned_abs());
        }
        if stopped {
            self.oracle().coverage.hit(Cover::StoreStopped);
        }
        result
    }

    /// Advances virtual time, and waits until everything due at its end has happened.
    pub fn pass(&mut self, ms: u64) -> Result<(), Crashed> {
        self.inside(|_| pause(ms))
    }

    /// Plans a crash after a number of requests, writes or milliseconds.
    pub fn plan_crash(&mut self, sends: Option<u64>, writes: Option<u64>, ms: Option<u64>) {
        let signed = |n: Option<u64>| n.and_then(|n| i64::try_from(n).ok()).unwrap_or(-1);
        self.trigger.sends.store(signed(sends), Ordering::Relaxed);
        self.trigger.writes.store(signed(writes), Ordering::Relaxed);
        self.crash_in_ms = ms;
    }

    /// Whether a crash is planned.
    pub fn crash_is_planned(&self) -> bool {
        self.crash_in_ms.is_some()
            || self.trigger.sends.load(Ordering::Relaxed) > 0
            || self.trigger.writes.load(Ordering::Relaxed) > 0
    }

    /// Crashes the process now and starts another after the downtime, with the durable state.
    pub fn crash(&mut self, downtime_ms: u64) -> Result<()> {
        self.end_process();
        self.clock.pass(downtime_ms);
        self.now = self.clock.now_ms();
        self.boot()
    }

    /// Sets the machine's time of day; if the server `looks`, it notices at once.
    pub fn set_clock(&mut self, by_ms: i64, looks: bool) -> Result<(), Crashed> {
        self.clock.set_by(by_ms);
        if !looks {
            return Ok(());
        }
        let clock = Arc::clone(&self.clock);
        let step = self.inside(|_| async move { clock.look() })?;
        let mut oracle = self.oracle();
        match step.map(|step| step.by_ms.signum()) {
            Some(1) => oracle.coverage.hit(Cover::ClockSetAhead),
            Some(-1) => oracle.coverage.hit(Cover::ClockSetBack),
            Some(_) | None => {}
        }
        Ok(())
    }

    /// Crashes the process; the machine's time of day is set meanwhile.
    pub fn crash_and_set_clock(&mut self, downtime_ms: u64, by_ms: i64) -> Result<()> {
        self.end_process();
        self.clock.set_by(by_ms);
        self.clock.pass(downtime_ms);
        self.now = self.clock.now_ms();
        self.boot()
    }

    /// Reboots the machine. Its clock's lead is known by then.
    pub fn reboot(&mut self, downtime_ms: u64) -> Result<()> {
        self.end_process();
        self.clock.look();
        self.clock.pass(downtime_ms);
        self.clock.reboot();
        self.now = self.clock.now_ms();
        self.oracle().coverage.hit(Cover::Reboot);
        self.boot()
    }

    fn end_process(&mut self) {
        self.plan_crash(None, None, None);
        let Some(Process { runtime, engine }) = self.process.take() else { return };
        {
            let _inside = runtime.enter();
            self.clock.stop();
        }
        self.now = self.clock.now_ms();
        let in_line = self.store.writes_in_line();
        drop(engine);
        drop(runtime);
        // A trigger that fired while the process ended must not crash the next one.
        self.trigger.notice.notify_one();
        self.forget_notice();
        let store = self.store.crash();
        let mut oracle = self.oracle.lock().unwrap_or_else(PoisonError::into_inner);
        oracle.crashed(self.now);
        if in_line > 0 {
            oracle.coverage.hit(Cover::CrashInCommit);
        }
        drop(oracle);
        self.store = store;
    }

    fn forget_notice(&self) {
        let mut notified = Box::pin(self.trigger.notice.notified());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        // Whether it was ready does not matter: the permit is consumed.
        notified.as_mut().poll(&mut context).is_ready();
    }

    /// Shuts the process down in order and starts another.
    pub fn restart(&mut self, downtime_ms: u64) -> Result<()> {
        let stopped =
            self.inside(|engine| async move { engine.shutdown(Duration::from_secs(30)).await });
        if stopped.is_ok() {
            self.oracle().coverage.hit(Cover::Shutdown);
        }
        self.crash(downtime_ms)
    }

    /// Waits until nothing changes, and compares the engine's counts with the model's.
    pub fn check(&mut self) -> Result<(), Crashed> {
        self.pass(1)?;
        let tenants: Vec<TenantId> = self.tenants();
        let (store, shared) = (self.store.clone(), Arc::clone(&self.oracle));
        let gauges = self.inside(|engine| async move {
            let oracle = || shared.lock().unwrap_or_else(PoisonError::into_inner);
            let mut gauges = engine.gauges().await.ok();
            // An attempt that begins or ends at this moment is counted on one side only, so try
            // again.
            for _ in 0..20 {
                if gauges.is_some_and(|gauges| flights(&gauges) == oracle().in_flight) {
                    break;
                }
                for _ in 0..20 {
                    tokio::task::yield_now().await;
                }
                gauges = engine.gauges().await.ok();
            }
            if let Some(gauges) = gauges {
                compare_flights(&mut oracle(), gauges);
            }
            for tenant in tenants.iter().map(Some).chain([None]) {
                let stored = store.ledger(tenant).await.ok();
                // There is no await here, so nothing changes in between.
                let expected = oracle().ledger(tenant);
                if stored.is_some_and(|stored| stored != expected) {
                    let what = format!("ledger is {stored:?}, must be {expected:?}");
                    oracle().violate(what, None, None);
                }
                if let Some(tenant) = tenant {
                    let page = PageRequest { limit: JOBS_MAX, cursor: None };
                    let jobs = store.replays(tenant, &page).await.map(|page| page.items);
                    oracle().check_outcomes(&jobs.unwrap_or_default());
                }
                let shown = engine.ledger(tenant).await.ok();
                if shown.is_some_and(|shown| !shown.balances()) {
                    oracle().violate(format!("ledger shows {shown:?}"), None, None);
                }
            }
            gauges
        })?;
        let now = self.now;
        let mut oracle = self.oracle();
        if gauges.is_some_and(|gauges| gauges.suspended) && !oracle.may_suspend() {
            oracle.violate("suspended, with so few destinations".into(), None, None);
        }
        let known = oracle.violations.len();
        oracle.check_rest(now);
        for found in oracle.violations.iter_mut().skip(known) {
            found.what += &format!("; the engine has {gauges:?}");
        }
        Ok(())
    }

    /// The engine's gauges.
    pub fn gauges(&mut self) -> Result<Option<postrider_engine::Gauges>, Crashed> {
        self.inside(|engine| async move { engine.gauges().await.ok() })
    }

    /// Checks that the idle engine has no attempt in flight, no timer, no read and no task left.
    pub fn check_leaks(&mut self) {
        let Ok(Some(gauges)) = self.gauges() else { return };
        let tasks = self.process.as_ref().map_or(0, |one| one.runtime.metrics().num_alive_tasks());
        let mut oracle = self.oracle();
        let left = [
            gauges.resident,
            gauges.in_flight_first,
            gauges.in_flight_retry,
            gauges.queued,
            gauges.ready,
            gauges.due,
            gauges.unpersisted,
            gauges.loads,
            gauges.payload_bytes,
            gauges.replays,
        ];
        // One read of due deliveries, and the timers of destinations that will be probed or frozen.
        let rules = oracle.rules;
        let armed = |dest: &crate::oracle::Dest| {
            usize::from(dest.model.state != crate::oracle::circuit::State::Closed)
                + usize::from(dest.model.consecutive > rules.freeze_over)
        };
        let alarms = 2 + oracle.destinations.values().map(armed).sum::<usize>();
        if left.iter().any(|left| *left > 0) || gauges.alarms > alarms {
            oracle.violate(format!("something is left at the end: {gauges:?}"), None, None);
        }
        if tasks > TASKS_MAX {
            oracle.violate(format!("{tasks} tasks are left at the end"), None, None);
        }
    }

    /// The tenants that have subscriptions.
    pub fn tenants(&self) -> Vec<TenantId> {
        let mut tenants: Vec<_> =
            self.subscriptions.iter().map(|one| one.subscription.tenant.clone()).collect();
        tenants.sort();
        tenants.dedup();
        tenants
    }

    /// The destinations that the model knows.
    pub fn destinations(&self) -> Vec<DestinationId> {
        self.oracle().destinations.keys().copied().collect()
    }
}

fn flights(gauges: &postrider_engine::Gauges) -> u32 {
    u32::try_from(gauges.in_flight_first + gauges.in_flight_retry).unwrap_or(u32::MAX)
}

/// Compares the engine's count of attempts in flight with the model's.
fn compare_flights(oracle: &mut Oracle, gauges: postrider_engine::Gauges) {
    let (counted, seen) = (flights(&gauges), oracle.in_flight);
    if counted != seen && !oracle.is_disturbed() && oracle.slack == 0 {
        let what = format!("{counted} in flight by the engine's count, {seen} in truth");
        oracle.violate(what, None, None);
    }
}

fn store_options(
    nature: &Nature,
    clock: &Arc<WorldClock>,
    oracle: &Arc<Mutex<Oracle>>,
    trigger: &Arc<Trigger>,
) -> MemoryOptions {
    let (clock, oracle, trigger) = (Arc::clone(clock), Arc::clone(oracle), Arc::clone(trigger));
    let witness = move |what: Durable<'_>| {
        let now = clock.now_ms();
        oracle.lock().unwrap_or_else(PoisonError::into_inner).durable(what, now);
        trigger.count(&trigger.writes);
    };
    let chance = Arc::new(Mutex::new(Random::new(nature.seed, "store")));
    let pace = nature.pace;
    let delay: Option<postrider_store_testing::memory::Delay> =
        (pace != Pace::Instant).then(|| {
            let delay: postrider_store_testing::memory::Delay = Arc::new(move || {
                let n = chance.lock().unwrap_or_else(PoisonError::into_inner).skewed(40);
                Box::pin(async move {
                    if pace == Pace::Milliseconds {
                        pause(n).await;
                    } else {
                        for _ in 0..n / 8 {
                            tokio::task::yield_now().await;
                        }
                    }
                })
            });
            delay
        });
    MemoryOptions {
        sync: delay.clone(),
        read: delay,
        seed: nature.seed,
        witness: Some(Arc::new(witness)),
    }
}
