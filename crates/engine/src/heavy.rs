//! Threads for computing whose amount a tenant determines; tenants take turns.
//!
//! Matching a large event, or testing a filter on one, may take tens of milliseconds of computing.
//! It never runs on the threads that serve requests: there are fewer of these extra threads than
//! cores, they have the lowest priority, one tenant uses at most half of them, and tenants take
//! turns. The queue is bounded for each tenant and in total; beyond that the caller is told to try
//! again later.

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use postrider_domain::ids::TenantId;
use tokio::sync::oneshot;

use crate::handle::EngineHandle;

/// Waiting computations of one tenant.
const TENANT_WAITING_MAX: usize = 16;
/// Waiting computations of all tenants.
const WAITING_MAX: usize = 512;

/// The increase of a thread's niceness; on Linux it applies to the calling thread only.
const LOWEST_PRIORITY: i32 = 19;

/// Why a computation was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Busy {
    /// The tenant has as many waiting as it may.
    #[error(
        "too many large events, filter tests and simulations of this tenant are being computed"
    )]
    Tenant,
    /// All tenants together have.
    #[error("too many large events, filter tests and simulations are being computed")]
    All,
}

impl Busy {
    /// When to try again.
    pub const fn retry_after(self) -> Duration {
        Duration::from_secs(1)
    }
}

type Computation = Box<dyn FnOnce() + Send>;

/// The threads and their queue.
pub(crate) struct Heavy {
    shared: Arc<Shared>,
}

struct Shared {
    threads: usize,
    tenant_threads: usize,
    queues: Mutex<TenantQueues>,
    changed: Condvar,
}

#[derive(Default)]
struct TenantQueues {
    of: HashMap<TenantId, TenantQueue>,
    /// Tenants that have a waiting computation and may have one more running.
    ring: VecDeque<TenantId>,
    waiting: usize,
    started: usize,
    idle: usize,
    is_over: bool,
}

#[derive(Default)]
struct TenantQueue {
    computations: VecDeque<Computation>,
    running: usize,
    in_ring: bool,
}

impl Heavy {
    /// With this many threads, which start when they are needed. The default is one fewer than the
    /// machine has cores.
    pub(crate) fn new(threads: Option<usize>) -> Self {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let threads = threads.unwrap_or_else(|| cores().saturating_sub(1)).max(1);
        let queues = Mutex::default();
        let tenant_threads = threads.div_ceil(2);
        let shared = Shared { threads, tenant_threads, queues, changed: Condvar::new() };
        Heavy { shared: Arc::new(shared) }
    }

    /// Runs a computation when it is the tenant's turn. If the caller goes away before that, it is
    /// dropped.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        tenant: &TenantId,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Busy> {
        let (reply, answer) = oneshot::channel();
        let computation = move || {
            if !reply.is_closed() {
                drop(reply.send(work()));
            }
        };
        self.add(tenant, Box::new(computation))?;
        // No answer means that the computation has panicked: it should not be repeated at once.
        answer.await.map_err(|_| Busy::All)
    }

    fn add(&self, tenant: &TenantId, computation: Computation) -> Result<(), Busy> {
        let mut queues = self.shared.queues();
        if queues.waiting >= WAITING_MAX {
            return Err(Busy::All);
        }
        let queue = queues.of.entry(tenant.clone()).or_default();
        if queue.computations.len() >= TENANT_WAITING_MAX {
            return Err(Busy::Tenant);
        }
        queue.computations.push_back(computation);
        queues.waiting += 1;
        queues.enter_ring(tenant, self.shared.tenant_threads);
        if queues.idle == 0 && queues.started < self.shared.threads {
            queues.started += 1;
            let shared = Arc::clone(&self.shared);
            let thread = std::thread::Builder::new().name("matching".to_owned());
            if thread.spawn(move || shared.work()).is_err() {
                // Without any thread no computation would ever run.
                queues.started -= 1;
                if queues.started == 0 {
                    queues.of.remove(tenant);
                    queues.ring.retain(|other| other != tenant);
                    queues.waiting = queues.of.values().map(|queue| queue.computations.len()).sum();
                    return Err(Busy::All);
                }
            }
        }
        drop(queues);
        self.shared.changed.notify_one();
        Ok(())
    }
}

impl EngineHandle {
    /// Runs a computation whose amount a tenant determines on the separate threads, when it is the
    /// tenant's turn.
    pub async fn compute<T: Send + 'static>(
        &self,
        tenant: &TenantId,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Busy> {
        self.shared.ingest.heavy.run(tenant, work).await
    }
}

impl Drop for Heavy {
    fn drop(&mut self) {
        self.shared.queues().is_over = true;
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn queues(&self) -> MutexGuard<'_, TenantQueues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The loop of one thread, until the engine shuts down.
    fn work(&self) {
        // If the system does not allow it, the thread runs at normal priority.
        rustix::process::nice(LOWEST_PRIORITY).ok();
        let mut queues = self.queues();
        while !queues.is_over {
            let Some((tenant, computation)) = queues.take(self.tenant_threads) else {
                queues.idle += 1;
                queues = self.changed.wait(queues).unwrap_or_else(PoisonError::into_inner);
                queues.idle -= 1;
                continue;
            };
            drop(queues);
            // If the computation panics, its caller is notified by the dropped channel.
            drop(catch_unwind(AssertUnwindSafe(computation)));
            queues = self.queues();
            queues.ended(&tenant, self.tenant_threads);
            self.changed.notify_one();
        }
    }
}

impl TenantQueues {
    fn enter_ring(&mut self, tenant: &TenantId, running_max: usize) {
        if let Some(queue) = self.of.get_mut(tenant)
            && !queue.in_ring
            && !queue.computations.is_empty()
            && queue.running < running_max
        {
            queue.in_ring = true;
            self.ring.push_back(tenant.clone());
        }
    }

    fn take(&mut self, running_max: usize) -> Option<(TenantId, Computation)> {
        let tenant = self.ring.pop_front()?;
        let queue = self.of.get_mut(&tenant)?;
        queue.in_ring = false;
        let computation = queue.computations.pop_front()?;
        queue.running += 1;
        self.waiting -= 1;
        self.enter_ring(&tenant, running_max);
        Some((tenant, computation))
    }

    fn ended(&mut self, tenant: &TenantId, running_max: usize) {
        let Some(queue) = self.of.get_mut(tenant) else { return };
        queue.running -= 1;
        if queue.running == 0 && queue.computations.is_empty() {
            self.of.remove(tenant);
        } else {
            self.enter_ring(tenant, running_max);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn tenant(name: &str) -> TenantId {
        name.parse().unwrap()
    }

    /// A computation that begins when it is told to, and sends its name when it has.
    fn held(
        name: &'static str,
        said: &mpsc::Sender<&'static str>,
    ) -> (mpsc::Sender<()>, Computation) {
        let (go, gone) = mpsc::channel();
        let said = said.clone();
        let computation = move || {
            said.send(name).unwrap();
            gone.recv().ok();
        };
        (go, Box::new(computation))
    }

    #[test]
    fn tenants_take_turns_regardless_of_their_number_of_waiting_jobs() {
        let heavy = Heavy::new(Some(1));
        let (said, order) = mpsc::channel();
        let mut goes = Vec::new();
        for (whose, name) in [("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1"), ("c", "c1")] {
            let (go, computation) = held(name, &said);
            heavy.add(&tenant(whose), computation).unwrap();
            goes.push(go);
            if name == "a1" {
                assert_eq!(order.recv().unwrap(), "a1", "it runs before the others come");
            }
        }
        drop(goes);
        let order: Vec<_> = order.iter().take(4).collect();
        assert_eq!(order, ["b1", "c1", "a2", "a3"]);
    }

    #[test]
    fn tenant_never_has_all_threads() {
        let heavy = Heavy::new(Some(2));
        let (said, order) = mpsc::channel();
        let (a1, computation) = held("a1", &said);
        heavy.add(&tenant("a"), computation).unwrap();
        let (_a2, computation) = held("a2", &said);
        heavy.add(&tenant("a"), computation).unwrap();
        let (_b1, computation) = held("b1", &said);
        heavy.add(&tenant("b"), computation).unwrap();
        let mut first: Vec<_> = order.iter().take(2).collect();
        first.sort_unstable();
        assert_eq!(first, ["a1", "b1"]);
        drop(a1);
        assert_eq!(order.recv().unwrap(), "a2");
    }

    #[test]
    fn tenant_that_has_too_many_waiting_is_refused_and_others_are_not() {
        let heavy = Heavy::new(Some(1));
        let (said, order) = mpsc::channel();
        let mut goes = Vec::new();
        let (go, computation) = held("a", &said);
        heavy.add(&tenant("a"), computation).unwrap();
        goes.push(go);
        order.recv().unwrap();
        for _ in 0..TENANT_WAITING_MAX {
            let (go, computation) = held("a", &said);
            heavy.add(&tenant("a"), computation).unwrap();
            goes.push(go);
        }
        assert_eq!(heavy.add(&tenant("a"), Box::new(|| ())), Err(Busy::Tenant));
        let (go, computation) = held("b", &said);
        assert_eq!(heavy.add(&tenant("b"), computation), Ok(()));
        goes.push(go);
    }

    #[tokio::test]
    async fn panic_of_a_job_affects_no_other_job() {
        let heavy = Heavy::new(Some(1));
        let lost = heavy.run(&tenant("a"), || panic!("on purpose")).await;
        assert_eq!(lost, Err::<(), _>(Busy::All));
        assert_eq!(heavy.run(&tenant("a"), || 7).await, Ok(7));
    }
}
