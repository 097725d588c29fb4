//! Work whose size a tenant chooses, on threads of its own and in turns.
//!
//! Matching a large event, or trying a filter on one, may take tens of milliseconds of computing. It
//! never happens on the threads that everybody's requests share: there are fewer of these threads than
//! the machine has cores, they have the lowest priority, one tenant has at most half of them, and
//! tenants take turns. What waits is bounded for each tenant and in total; beyond it the caller is told
//! to come back.

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use postrider_domain::ids::TenantId;
use tokio::sync::oneshot;

use crate::handle::EngineHandle;

/// Jobs of one tenant that wait.
const TENANT_WAITING_MAX: usize = 16;
/// Jobs of all tenants that wait.
const WAITING_MAX: usize = 512;

/// What is added to the niceness of a thread, on Linux of this thread alone.
const LOWEST_PRIORITY: i32 = 19;

/// Why a job was not taken.
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
    /// When to ask again.
    pub const fn retry_after(self) -> Duration {
        Duration::from_secs(1)
    }
}

type Job = Box<dyn FnOnce() + Send>;

/// The threads and what waits for them.
pub(crate) struct Heavy {
    shared: Arc<Shared>,
}

struct Shared {
    threads: usize,
    tenant_threads: usize,
    lines: Mutex<Lines>,
    changed: Condvar,
}

#[derive(Default)]
struct Lines {
    of: HashMap<TenantId, Line>,
    /// Tenants that have a job waiting and may have one more running.
    ring: VecDeque<TenantId>,
    waiting: usize,
    started: usize,
    idle: usize,
    is_over: bool,
}

#[derive(Default)]
struct Line {
    jobs: VecDeque<Job>,
    running: usize,
    in_ring: bool,
}

impl Heavy {
    /// So many threads, which start when they are needed; as many as the machine has cores but one
    /// where none are named.
    pub(crate) fn new(threads: Option<usize>) -> Self {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let threads = threads.unwrap_or_else(|| cores().saturating_sub(1)).max(1);
        let lines = Mutex::default();
        let tenant_threads = threads.div_ceil(2);
        let shared = Shared { threads, tenant_threads, lines, changed: Condvar::new() };
        Heavy { shared: Arc::new(shared) }
    }

    /// Does something for a tenant when it is its turn. A caller that goes away before that takes
    /// its job along.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        tenant: &TenantId,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Busy> {
        let (reply, answer) = oneshot::channel();
        let job = move || {
            if !reply.is_closed() {
                drop(reply.send(work()));
            }
        };
        self.add(tenant, Box::new(job))?;
        // Without an answer the job has panicked: nobody is to repeat it at once.
        answer.await.map_err(|_| Busy::All)
    }

    fn add(&self, tenant: &TenantId, job: Job) -> Result<(), Busy> {
        let mut lines = self.shared.lines();
        if lines.waiting >= WAITING_MAX {
            return Err(Busy::All);
        }
        let line = lines.of.entry(tenant.clone()).or_default();
        if line.jobs.len() >= TENANT_WAITING_MAX {
            return Err(Busy::Tenant);
        }
        line.jobs.push_back(job);
        lines.waiting += 1;
        lines.enter_ring(tenant, self.shared.tenant_threads);
        if lines.idle == 0 && lines.started < self.shared.threads {
            lines.started += 1;
            let shared = Arc::clone(&self.shared);
            let thread = std::thread::Builder::new().name("matching".to_owned());
            if thread.spawn(move || shared.work()).is_err() {
                // Without a single thread nothing would ever be done.
                lines.started -= 1;
                if lines.started == 0 {
                    lines.of.remove(tenant);
                    lines.ring.retain(|other| other != tenant);
                    lines.waiting = lines.of.values().map(|line| line.jobs.len()).sum();
                    return Err(Busy::All);
                }
            }
        }
        drop(lines);
        self.shared.changed.notify_one();
        Ok(())
    }
}

impl EngineHandle {
    /// Computes something whose size a tenant chooses, where nobody else's requests wait for it and
    /// when it is the tenant's turn.
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
        self.shared.lines().is_over = true;
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What one thread does until the engine has ended.
    fn work(&self) {
        // Where the system does not allow it, the work is done all the same.
        rustix::process::nice(LOWEST_PRIORITY).ok();
        let mut lines = self.lines();
        while !lines.is_over {
            let Some((tenant, job)) = lines.take(self.tenant_threads) else {
                lines.idle += 1;
                lines = self.changed.wait(lines).unwrap_or_else(PoisonError::into_inner);
                lines.idle -= 1;
                continue;
            };
            drop(lines);
            // Whoever waits for a job that panics is told so by the end of its channel.
            drop(catch_unwind(AssertUnwindSafe(job)));
            lines = self.lines();
            lines.ended(&tenant, self.tenant_threads);
            self.changed.notify_one();
        }
    }
}

impl Lines {
    fn enter_ring(&mut self, tenant: &TenantId, running_max: usize) {
        if let Some(line) = self.of.get_mut(tenant)
            && !line.in_ring
            && !line.jobs.is_empty()
            && line.running < running_max
        {
            line.in_ring = true;
            self.ring.push_back(tenant.clone());
        }
    }

    fn take(&mut self, running_max: usize) -> Option<(TenantId, Job)> {
        let tenant = self.ring.pop_front()?;
        let line = self.of.get_mut(&tenant)?;
        line.in_ring = false;
        let job = line.jobs.pop_front()?;
        line.running += 1;
        self.waiting -= 1;
        self.enter_ring(&tenant, running_max);
        Some((tenant, job))
    }

    fn ended(&mut self, tenant: &TenantId, running_max: usize) {
        let Some(line) = self.of.get_mut(tenant) else { return };
        line.running -= 1;
        if line.running == 0 && line.jobs.is_empty() {
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

    /// A job that begins when it is told to, and says its name when it has.
    fn held(name: &'static str, said: &mpsc::Sender<&'static str>) -> (mpsc::Sender<()>, Job) {
        let (go, gone) = mpsc::channel();
        let said = said.clone();
        let job = move || {
            said.send(name).unwrap();
            gone.recv().ok();
        };
        (go, Box::new(job))
    }

    #[test]
    fn tenants_take_turns_whoever_has_more_waiting() {
        let heavy = Heavy::new(Some(1));
        let (said, order) = mpsc::channel();
        let mut goes = Vec::new();
        for (whose, name) in [("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1"), ("c", "c1")] {
            let (go, job) = held(name, &said);
            heavy.add(&tenant(whose), job).unwrap();
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
        let (a1, job) = held("a1", &said);
        heavy.add(&tenant("a"), job).unwrap();
        let (_a2, job) = held("a2", &said);
        heavy.add(&tenant("a"), job).unwrap();
        let (_b1, job) = held("b1", &said);
        heavy.add(&tenant("b"), job).unwrap();
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
        let (go, job) = held("a", &said);
        heavy.add(&tenant("a"), job).unwrap();
        goes.push(go);
        order.recv().unwrap();
        for _ in 0..TENANT_WAITING_MAX {
            let (go, job) = held("a", &said);
            heavy.add(&tenant("a"), job).unwrap();
            goes.push(go);
        }
        assert_eq!(heavy.add(&tenant("a"), Box::new(|| ())), Err(Busy::Tenant));
        let (go, job) = held("b", &said);
        assert_eq!(heavy.add(&tenant("b"), job), Ok(()));
        goes.push(go);
    }

    #[tokio::test]
    async fn job_that_panics_takes_nobody_along() {
        let heavy = Heavy::new(Some(1));
        let lost = heavy.run(&tenant("a"), || panic!("on purpose")).await;
        assert_eq!(lost, Err::<(), _>(Busy::All));
        assert_eq!(heavy.run(&tenant("a"), || 7).await, Ok(7));
    }
}
