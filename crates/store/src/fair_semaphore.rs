//! A semaphore that is fair between tenants: they take turns, and none holds more than half of the
//! permits.
//!
//! A reader that gets no permit at once waits in the queue of its tenant. The queues are served in
//! turn, one reader each: **a tenant with a thousand readers delays itself and nobody else.** Each
//! queue is limited, and so are all queues together: beyond a limit a reader is refused at once.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use postrider_domain::ids::TenantId;
use tokio::sync::oneshot;

use crate::error::StoreError;

/// How many readers of all tenants together may wait.
const WAITING_MAX: usize = 4_096;

/// The tenant on whose behalf a reader reads; `None` is an administrator.
pub(crate) type Whose = Option<TenantId>;

pub(crate) struct FairSemaphore {
    permits: usize,
    per_tenant: usize,
    queue_max: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    taken: usize,
    waiting: usize,
    /// The tenants that hold a permit or have waiting readers.
    tenants: HashMap<Whose, TenantQueue>,
    /// The tenants with waiting readers, the next one to be served first.
    ring: VecDeque<Whose>,
}

#[derive(Default)]
struct TenantQueue {
    taken: usize,
    waiting: VecDeque<oneshot::Sender<FairPermit>>,
}

/// A permit. It is free again when this is dropped.
pub(crate) struct FairPermit {
    /// `None` once the permit was passed on because nobody received it.
    semaphore: Option<Arc<FairSemaphore>>,
    whose: Whose,
}

impl fmt::Debug for FairSemaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FairSemaphore").field("permits", &self.permits).finish_non_exhaustive()
    }
}

impl fmt::Debug for FairPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FairPermit").field("whose", &self.whose).finish_non_exhaustive()
    }
}

impl FairSemaphore {
    /// Creates a semaphore with this many permits, of which a tenant holds at most half;
    /// `queue_max` readers of a tenant may wait.
    pub(crate) fn new(permits: usize, queue_max: usize) -> Arc<Self> {
        let permits = permits.max(1);
        let per_tenant = (permits / 2).max(1);
        Arc::new(FairSemaphore { permits, per_tenant, queue_max, state: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a permit until it is this tenant's turn. A caller that goes away leaves the queue.
    pub(crate) async fn take(self: &Arc<Self>, whose: Whose) -> Result<FairPermit, StoreError> {
        let waiting = match self.join(whose)? {
            Joined::Served(permit) => return Ok(permit),
            Joined::Waits(waiting) => waiting,
        };
        waiting.await.map_err(|_| StoreError::Internal("a queue of readers was dropped".into()))
    }

    fn join(self: &Arc<Self>, whose: Whose) -> Result<Joined, StoreError> {
        let mut state = self.lock();
        let State { taken, waiting, tenants, ring } = &mut *state;
        let queue = tenants.entry(whose.clone()).or_default();
        let before = queue.waiting.len();
        queue.waiting.retain(|waiter| !waiter.is_closed());
        *waiting -= before - queue.waiting.len();
        if *taken < self.permits && queue.taken < self.per_tenant && queue.waiting.is_empty() {
            *taken += 1;
            queue.taken += 1;
            return Ok(Joined::Served(FairPermit { semaphore: Some(Arc::clone(self)), whose }));
        }
        if queue.waiting.len() >= self.queue_max {
            return Err(StoreError::Busy);
        }
        if *waiting >= WAITING_MAX {
            if queue.taken == 0 && queue.waiting.is_empty() {
                tenants.remove(&whose);
            }
            return Err(StoreError::Unavailable("too many readers wait already".into()));
        }
        let (waiter, served) = oneshot::channel();
        queue.waiting.push_back(waiter);
        *waiting += 1;
        if !ring.contains(&whose) {
            ring.push_back(whose);
        }
        Ok(Joined::Waits(served))
    }

    /// Returns a permit, and passes free permits to waiting readers.
    ///
    /// **Nobody is woken while the lock is held.** A thread that wakes one of a higher priority may
    /// be preempted at once, and would block everybody who needs the lock until it runs again.
    fn give_back(self: &Arc<Self>, whose: Whose) {
        let mut free = vec![whose];
        while let Some(whose) = free.pop() {
            let served = {
                let mut state = self.lock();
                state.give_back(&whose);
                self.serve(&mut state)
            };
            for (waiter, whose) in served {
                let permit = FairPermit { semaphore: Some(Arc::clone(self)), whose };
                // The reader has gone away meanwhile: the permit goes to the next one.
                if let Err(mut unused) = waiter.send(permit) {
                    unused.semaphore = None;
                    free.push(unused.whose.clone());
                }
            }
        }
    }

    /// Assigns free permits to waiting readers, one tenant after the other.
    fn serve(&self, state: &mut State) -> Vec<(oneshot::Sender<FairPermit>, Whose)> {
        let (mut served, mut passed) = (Vec::new(), 0);
        while state.taken < self.permits && passed < state.ring.len() {
            let Some(whose) = state.ring.pop_front() else { break };
            let Some(queue) = state.tenants.get_mut(&whose) else { continue };
            if queue.taken >= self.per_tenant {
                state.ring.push_back(whose);
                passed += 1;
                continue;
            }
            while let Some(waiter) = queue.waiting.pop_front() {
                state.waiting -= 1;
                if !waiter.is_closed() {
                    queue.taken += 1;
                    state.taken += 1;
                    passed = 0;
                    served.push((waiter, whose.clone()));
                    break;
                }
            }
            if !queue.waiting.is_empty() {
                state.ring.push_back(whose);
            } else if queue.taken == 0 {
                state.tenants.remove(&whose);
            }
        }
        served
    }
}

impl State {
    fn give_back(&mut self, whose: &Whose) {
        self.taken -= 1;
        if let Some(queue) = self.tenants.get_mut(whose) {
            queue.taken -= 1;
            if queue.taken == 0 && queue.waiting.is_empty() {
                self.tenants.remove(whose);
            }
        }
    }
}

enum Joined {
    Served(FairPermit),
    Waits(oneshot::Receiver<FairPermit>),
}

impl Drop for FairPermit {
    fn drop(&mut self) {
        if let Some(semaphore) = self.semaphore.take() {
            semaphore.give_back(self.whose.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    const QUEUE_MAX: usize = 8;

    type Taking = Pin<Box<dyn Future<Output = Result<FairPermit, StoreError>>>>;

    fn whose(name: &str) -> Whose {
        Some(name.parse().unwrap())
    }

    /// Asks for a permit; returns it, or the waiting future.
    fn ask(
        semaphore: &Arc<FairSemaphore>,
        name: &str,
    ) -> (Option<Result<FairPermit, StoreError>>, Taking) {
        let (semaphore, whose) = (Arc::clone(semaphore), whose(name));
        let mut taking: Taking = Box::pin(async move { semaphore.take(whose).await });
        (poll(&mut taking), taking)
    }

    fn poll(taking: &mut Taking) -> Option<Result<FairPermit, StoreError>> {
        match taking.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answer) => Some(answer),
            Poll::Pending => None,
        }
    }

    fn now(semaphore: &Arc<FairSemaphore>, name: &str) -> FairPermit {
        ask(semaphore, name).0.unwrap().unwrap()
    }

    #[test]
    fn tenant_holds_at_most_half_of_the_permits() {
        let semaphore = FairSemaphore::new(4, QUEUE_MAX);
        let held = [now(&semaphore, "loud"), now(&semaphore, "loud")];
        let (third, mut waits) = ask(&semaphore, "loud");
        assert!(third.is_none(), "two places are free, and they are not for this tenant");
        drop([now(&semaphore, "quiet"), now(&semaphore, "quiet")]);
        assert!(poll(&mut waits).is_none(), "others' places are not this tenant's");
        drop(held);
        assert!(poll(&mut waits).unwrap().is_ok());
    }

    #[test]
    fn queues_of_tenants_are_served_in_turn() {
        let semaphore = FairSemaphore::new(2, QUEUE_MAX);
        let (first, other) = (now(&semaphore, "loud"), now(&semaphore, "other"));
        let mut loud: Vec<_> = (0..3).map(|_| ask(&semaphore, "loud").1).collect();
        let (_, mut quiet) = ask(&semaphore, "quiet");
        drop(other);
        let quiet = poll(&mut quiet).unwrap().unwrap();
        assert!(poll(&mut loud[0]).is_none(), "the other place is the quiet tenant's");
        drop(first);
        let second = poll(&mut loud[0]).unwrap().unwrap();
        assert!(poll(&mut loud[1]).is_none());
        drop((quiet, second));
        assert!(poll(&mut loud[1]).unwrap().is_ok());
    }

    #[test]
    fn full_queue_refuses_its_own_tenant_only() {
        let semaphore = FairSemaphore::new(2, QUEUE_MAX);
        let held = now(&semaphore, "loud");
        let mut queue: Vec<_> = (0..QUEUE_MAX).map(|_| ask(&semaphore, "loud").1).collect();
        assert!(matches!(ask(&semaphore, "loud").0, Some(Err(StoreError::Busy))));
        drop(now(&semaphore, "quiet"));
        // Readers that go away free their places in the queue.
        queue.truncate(QUEUE_MAX / 2);
        let (answer, mut last) = ask(&semaphore, "loud");
        assert!(answer.is_none());
        drop((queue, held));
        assert!(poll(&mut last).unwrap().is_ok());
    }

    #[test]
    fn permit_sent_to_a_reader_that_went_away_is_free_again() {
        let semaphore = FairSemaphore::new(1, QUEUE_MAX);
        let held = now(&semaphore, "a");
        let (_, gone) = ask(&semaphore, "b");
        let (_, mut next) = ask(&semaphore, "c");
        // The permit is sent to `b`, which never receives it.
        drop(held);
        drop(gone);
        drop(poll(&mut next).unwrap().unwrap());
        let state = semaphore.lock();
        assert_eq!((state.taken, state.waiting, state.tenants.len()), (0, 0, 0));
        assert!(state.ring.is_empty());
    }
}
