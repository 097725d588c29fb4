//! A store in memory: the model with which every other backend is compared.
//!
//! It consists of ordered maps behind one mutex: deterministic, and simple enough to verify by
//! reading. A write waits in a queue; a sync makes the whole queue durable in order, and only then
//! the write is acknowledged. **A read returns durable data only.** So it can crash like a real
//! store: [`MemoryStore::crash`] keeps all acknowledged writes and a random prefix of the waiting
//! ones.

mod audit;
mod configuration;
mod documents;
mod erasing;
mod faults;
mod history;
mod index;
mod intake;
mod overview;
mod paging;
mod passes;
mod replays;
mod state;
mod statistics;
mod summaries;
mod upkeep;
mod usage;
mod work;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use postrider_domain::ids::Shard;
use postrider_domain::mixing::mix;
use postrider_store::{Acceptance, Change, Commit, ShardSet, StoreError};

use self::faults::Faults;
pub use self::faults::{Fault, Operations};
use self::state::State;

/// A delay, such as a sleep in paused time.
pub type Delay = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// The options of a [`MemoryStore`].
#[derive(Clone, Default)]
pub struct MemoryOptions {
    /// How long a sync takes; with `None` it takes no time, and no write ever waits.
    pub sync: Option<Delay>,
    /// How long a read takes.
    pub read: Option<Delay>,
    /// Decides how many of the waiting writes survive a crash.
    pub seed: u64,
    /// Called with acceptances and settlements as they become durable, in order. It must not call the
    /// store.
    pub witness: Option<Witness>,
}

/// Observes durable writes.
pub type Witness = Arc<dyn Fn(Durable<'_>) + Send + Sync>;

/// A write that became durable.
#[derive(Debug, Clone, Copy)]
pub enum Durable<'a> {
    /// An event with its deliveries.
    Accepted(&'a Acceptance),
    /// A commit; reported again if it was repeated.
    Settled(&'a Commit),
}

impl fmt::Debug for MemoryOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryOptions")
            .field("sync", &self.sync.is_some())
            .field("read", &self.read.is_some())
            .field("seed", &self.seed)
            .field("witness", &self.witness.is_some())
            .finish()
    }
}

/// A store in memory. Clones share it.
#[derive(Clone, Default)]
pub struct MemoryStore {
    options: MemoryOptions,
    shared: Arc<Mutex<Shared>>,
}

/// A waiting write: it applies itself and stores the answer for its caller.
type Write = Box<dyn FnOnce(&mut State) + Send>;

#[derive(Default)]
struct Shared {
    durable: State,
    line: VecDeque<Write>,
    faults: Faults,
}

impl Shared {
    fn sync(&mut self) {
        for write in mem::take(&mut self.line) {
            write(&mut self.durable);
        }
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("options", &self.options).finish_non_exhaustive()
    }
}

impl MemoryStore {
    /// An empty store.
    pub fn new(options: MemoryOptions) -> Self {
        MemoryStore { options, shared: Arc::default() }
    }

    /// Stops this store like a power cut, and opens a new one with the surviving data.
    ///
    /// All acknowledged writes survive, and a prefix of the others: each complete, and none without
    /// those before it. This store returns [`StoreError::Stopped`] from now on. Planned faults are
    /// dropped.
    #[must_use]
    pub fn crash(&self) -> MemoryStore {
        let mut shared = self.lock();
        let seed = mix(self.options.seed);
        let mut durable = mem::take(&mut shared.durable);
        let line = mem::take(&mut shared.line);
        let in_line = u64::try_from(line.len()).unwrap_or(u64::MAX);
        let survive = usize::try_from(seed % (in_line + 1)).unwrap_or(usize::MAX);
        line.into_iter().take(survive).for_each(|write| write(&mut durable));
        shared.faults.stop("it crashed");
        let renewed = Shared { durable, ..Shared::default() };
        MemoryStore {
            options: MemoryOptions { seed, ..self.options.clone() },
            shared: Arc::new(Mutex::new(renewed)),
        }
    }

    /// Makes the next `n` writes fail.
    pub fn fail_next(&self, fault: Fault, n: u64) {
        self.fail_later(0, fault, n);
    }

    /// Makes `n` writes fail after `skip` successful ones. Plans are executed one by one.
    pub fn fail_later(&self, skip: u64, fault: Fault, n: u64) {
        self.lock().faults.plan(skip, fault, n);
    }

    /// Makes the next `n` reads fail, because the store cannot be reached.
    pub fn fail_next_reads(&self, n: u64) {
        self.lock().faults.plan_reads(n);
    }

    /// Removes every planned fault.
    pub fn heal(&self) {
        self.lock().faults.heal();
    }

    /// The number of operations so far.
    pub fn operations(&self) -> Operations {
        self.lock().faults.operations()
    }

    /// How many writes are not durable yet.
    pub fn writes_in_line(&self) -> usize {
        self.lock().line.len()
    }

    /// Gives a shard to another node: a settlement with the older lease is refused.
    pub fn give_away(&self, shard: Shard) {
        self.lock().durable.give_away(shard);
    }

    /// Makes another node want exactly these shards: the engine is told to hand them over, and the other
    /// node owns them once they are released. Other shards that it had return to this store.
    pub fn want(&self, shards: ShardSet) {
        self.lock().durable.want(shards);
    }

    /// Announces a change as one of another node: acceptances that were matched before are refused.
    pub fn announce(&self, change: Change) {
        self.lock().durable.changes.push(change);
    }

    /// The shards that another node has.
    pub fn elsewhere(&self) -> ShardSet {
        self.lock().durable.elsewhere
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        // No operation leaves a partial change when it panics: it checks first, then changes.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn read<T>(
        &self,
        look: impl FnOnce(&State) -> Result<T, StoreError> + Send,
    ) -> Result<T, StoreError> {
        if let Some(delay) = &self.options.read {
            delay().await;
        }
        let mut shared = self.lock();
        shared.faults.before_read()?;
        look(&shared.durable)
    }

    async fn write<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut State) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let answer = Arc::new(Mutex::new(None));
        let fault = {
            let mut shared = self.lock();
            let fault = shared.faults.before_write()?;
            let slot = Arc::clone(&answer);
            shared.line.push_back(Box::new(move |state| {
                *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(change(state));
            }));
            fault
        };
        if let Some(delay) = &self.options.sync {
            delay().await;
        }
        let mut shared = self.lock();
        shared.faults.check_stopped()?;
        shared.sync();
        let answered = answer.lock().unwrap_or_else(PoisonError::into_inner).take();
        match (fault, answered) {
            (Some(error), _) => Err(error),
            (None, Some(answered)) => answered,
            (None, None) => Err(StoreError::Internal("a write in line was not applied".into())),
        }
    }
}
