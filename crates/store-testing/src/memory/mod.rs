//! A store in memory: the model that every other backend is compared with.
//!
//! Ordered maps behind one mutex, deterministic, and simple enough to be seen to be right. A write
//! is put in line, a sync makes everything in the line durable in order, and only then is it
//! acknowledged; **what is read is always durable**. So it can crash like a real one:
//! [`MemoryStore::crash`] keeps everything that was acknowledged and, of the writes that were still
//! in line, as many from the front as chance has it.

mod audit;
mod configuration;
mod faults;
mod history;
mod index;
mod intake;
mod paging;
mod replays;
mod state;
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
use postrider_store::{Acceptance, Commit, ShardSet, StoreError};

use self::faults::Faults;
pub(crate) use self::faults::splitmix;
pub use self::faults::{Fault, Operations};
use self::state::State;

/// Something to wait for, such as a while of paused time.
pub type Delay = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// How a [`MemoryStore`] behaves.
#[derive(Clone, Default)]
pub struct MemoryOptions {
    /// How long a sync takes; none where it is `None`, and then nothing ever waits in line.
    pub sync: Option<Delay>,
    /// How long a read takes.
    pub read: Option<Delay>,
    /// Decides how many of the writes in line survive a crash.
    pub seed: u64,
    /// Is told of acceptances and settlements as they become durable, in order. It must not ask the
    /// store for anything.
    pub witness: Option<Witness>,
}

/// Looks on.
pub type Witness = Arc<dyn Fn(Durable<'_>) + Send + Sync>;

/// What became durable.
#[derive(Debug, Clone, Copy)]
pub enum Durable<'a> {
    /// An event with all that is owed for it.
    Accepted(&'a Acceptance),
    /// A commit; the same one again where it was repeated.
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

/// A store in memory. Clones are the same store.
#[derive(Clone, Default)]
pub struct MemoryStore {
    options: MemoryOptions,
    shared: Arc<Mutex<Shared>>,
}

/// A write in line: applies itself and leaves its answer where its caller looks for it.
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

    /// Ends this store as a power cut would, and opens what is left of it.
    ///
    /// Everything that was acknowledged is there. Of the writes that were not, a prefix is: each
    /// whole, and none without those before it. This store answers [`StoreError::Stopped`] from now
    /// on. Planned faults are gone.
    #[must_use]
    pub fn crash(&self) -> MemoryStore {
        let mut shared = self.lock();
        let seed = splitmix(self.options.seed);
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

    /// Lets the next `n` writes fail.
    pub fn fail_next(&self, fault: Fault, n: u64) {
        self.fail_later(0, fault, n);
    }

    /// Lets `n` writes fail after `skip` more have gone well. Plans are carried out one by one.
    pub fn fail_later(&self, skip: u64, fault: Fault, n: u64) {
        self.lock().faults.plan(skip, fault, n);
    }

    /// Lets the next `n` reads fail, because the store cannot be reached.
    pub fn fail_next_reads(&self, n: u64) {
        self.lock().faults.plan_reads(n);
    }

    /// Takes back every fault that is planned.
    pub fn heal(&self) {
        self.lock().faults.heal();
    }

    /// How many operations there were so far.
    pub fn operations(&self) -> Operations {
        self.lock().faults.operations()
    }

    /// How many writes are not durable yet.
    pub fn writes_in_line(&self) -> usize {
        self.lock().line.len()
    }

    /// Gives a shard to another node: what is settled with an older holding is refused.
    pub fn give_away(&self, shard: Shard) {
        self.lock().durable.give_away(shard);
    }

    /// Lets another node want these shards, and no others: whoever holds them is told so, and it has
    /// them when they were given back. What it had beyond them comes back.
    pub fn want(&self, shards: ShardSet) {
        self.lock().durable.want(shards);
    }

    /// The shards that another node has.
    pub fn elsewhere(&self) -> ShardSet {
        self.lock().durable.elsewhere
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        // No operation leaves half a change behind when it panics: they check, then change.
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
