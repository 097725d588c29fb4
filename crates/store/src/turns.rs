//! Turns at something of which there are few: tenants take turns, and none has more than its part.
//!
//! A reader that finds no place waits in the line of its tenant. The lines are served in turn, one
//! reader each: **a tenant with a thousand readers delays itself and nobody else.** A line has a
//! limit, and so have all lines together: beyond it a reader is refused at once.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use postrider_domain::ids::TenantId;
use tokio::sync::oneshot;

use crate::error::StoreError;

/// Readers of all tenants that may wait.
const LINES_MAX: usize = 4_096;

/// For whom somebody reads; `None` is an administrator, for no tenant in particular.
pub(crate) type Whose = Option<TenantId>;

/// The places, and who waits for one.
pub(crate) struct Turns {
    places: usize,
    per_tenant: usize,
    line_max: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    taken: usize,
    waiting: usize,
    /// Those that have a place or a line.
    tenants: HashMap<Whose, Line>,
    /// Those that have a line, the next to be served first.
    ring: VecDeque<Whose>,
}

#[derive(Default)]
struct Line {
    taken: usize,
    waiting: VecDeque<oneshot::Sender<Turn>>,
}

/// A place. It is free again when this is dropped.
pub(crate) struct Turn {
    /// `None` where nobody received it.
    turns: Option<Arc<Turns>>,
    whose: Whose,
}

impl fmt::Debug for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turns").field("places", &self.places).finish_non_exhaustive()
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn").field("whose", &self.whose).finish_non_exhaustive()
    }
}

impl Turns {
    /// So many places, of which a tenant has at most half, and so many readers of a tenant that wait.
    pub(crate) fn new(places: usize, line_max: usize) -> Arc<Self> {
        let places = places.max(1);
        let per_tenant = (places / 2).max(1);
        Arc::new(Turns { places, per_tenant, line_max, state: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place, as soon as it is this tenant's turn. A caller that goes away leaves the line.
    pub(crate) async fn take(self: &Arc<Self>, whose: Whose) -> Result<Turn, StoreError> {
        let waiting = match self.join(whose)? {
            Joined::Served(turn) => return Ok(turn),
            Joined::Waits(waiting) => waiting,
        };
        waiting.await.map_err(|_| StoreError::Internal("a line of readers was lost".into()))
    }

    fn join(self: &Arc<Self>, whose: Whose) -> Result<Joined, StoreError> {
        let mut state = self.lock();
        let State { taken, waiting, tenants, ring } = &mut *state;
        let line = tenants.entry(whose.clone()).or_default();
        let before = line.waiting.len();
        line.waiting.retain(|waiter| !waiter.is_closed());
        *waiting -= before - line.waiting.len();
        if *taken < self.places && line.taken < self.per_tenant && line.waiting.is_empty() {
            *taken += 1;
            line.taken += 1;
            return Ok(Joined::Served(Turn { turns: Some(Arc::clone(self)), whose }));
        }
        if line.waiting.len() >= self.line_max {
            return Err(StoreError::Busy);
        }
        if *waiting >= LINES_MAX {
            if line.taken == 0 && line.waiting.is_empty() {
                tenants.remove(&whose);
            }
            return Err(StoreError::Unavailable("too many readers wait already".into()));
        }
        let (waiter, served) = oneshot::channel();
        line.waiting.push_back(waiter);
        *waiting += 1;
        if !ring.contains(&whose) {
            ring.push_back(whose);
        }
        Ok(Joined::Waits(served))
    }

    /// Gives free places to those who wait, one tenant after the other.
    fn serve(self: &Arc<Self>, state: &mut State) {
        let mut passed = 0;
        while state.taken < self.places && passed < state.ring.len() {
            let Some(whose) = state.ring.pop_front() else { return };
            let Some(line) = state.tenants.get_mut(&whose) else { continue };
            if line.taken >= self.per_tenant {
                state.ring.push_back(whose);
                passed += 1;
                continue;
            }
            while let Some(waiter) = line.waiting.pop_front() {
                state.waiting -= 1;
                let turn = Turn { turns: Some(Arc::clone(self)), whose: whose.clone() };
                match waiter.send(turn) {
                    Ok(()) => {
                        line.taken += 1;
                        state.taken += 1;
                        passed = 0;
                        break;
                    }
                    // It has gone away: the place was never taken.
                    Err(mut unused) => unused.turns = None,
                }
            }
            if !line.waiting.is_empty() {
                state.ring.push_back(whose);
            } else if line.taken == 0 {
                state.tenants.remove(&whose);
            }
        }
    }
}

enum Joined {
    Served(Turn),
    Waits(oneshot::Receiver<Turn>),
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Some(turns) = self.turns.take() else { return };
        let mut state = turns.lock();
        state.taken -= 1;
        if let Some(line) = state.tenants.get_mut(&self.whose) {
            line.taken -= 1;
            if line.taken == 0 && line.waiting.is_empty() {
                state.tenants.remove(&self.whose);
            }
        }
        turns.serve(&mut state);
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    const LINE_MAX: usize = 8;

    type Taking = Pin<Box<dyn Future<Output = Result<Turn, StoreError>>>>;

    fn whose(name: &str) -> Whose {
        Some(name.parse().unwrap())
    }

    /// Asks for a place; answers with it, or with who waits.
    fn ask(turns: &Arc<Turns>, name: &str) -> (Option<Result<Turn, StoreError>>, Taking) {
        let (turns, whose) = (Arc::clone(turns), whose(name));
        let mut taking: Taking = Box::pin(async move { turns.take(whose).await });
        (poll(&mut taking), taking)
    }

    fn poll(taking: &mut Taking) -> Option<Result<Turn, StoreError>> {
        match taking.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answer) => Some(answer),
            Poll::Pending => None,
        }
    }

    fn now(turns: &Arc<Turns>, name: &str) -> Turn {
        ask(turns, name).0.unwrap().unwrap()
    }

    #[test]
    fn tenant_has_at_most_half_of_the_places() {
        let turns = Turns::new(4, LINE_MAX);
        let held = [now(&turns, "loud"), now(&turns, "loud")];
        let (third, mut waits) = ask(&turns, "loud");
        assert!(third.is_none(), "two places are free, and they are not for this tenant");
        drop([now(&turns, "quiet"), now(&turns, "quiet")]);
        assert!(poll(&mut waits).is_none(), "others' places are not this tenant's");
        drop(held);
        assert!(poll(&mut waits).unwrap().is_ok());
    }

    #[test]
    fn lines_of_tenants_are_served_in_turn() {
        let turns = Turns::new(2, LINE_MAX);
        let (first, other) = (now(&turns, "loud"), now(&turns, "other"));
        let mut loud: Vec<_> = (0..3).map(|_| ask(&turns, "loud").1).collect();
        let (_, mut quiet) = ask(&turns, "quiet");
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
    fn full_line_refuses_its_own_tenant_only() {
        let turns = Turns::new(2, LINE_MAX);
        let held = now(&turns, "loud");
        let mut line: Vec<_> = (0..LINE_MAX).map(|_| ask(&turns, "loud").1).collect();
        assert!(matches!(ask(&turns, "loud").0, Some(Err(StoreError::Busy))));
        drop(now(&turns, "quiet"));
        // Readers that have gone away leave room for others.
        line.truncate(LINE_MAX / 2);
        let (answer, mut last) = ask(&turns, "loud");
        assert!(answer.is_none());
        drop((line, held));
        assert!(poll(&mut last).unwrap().is_ok());
    }

    #[test]
    fn place_that_was_given_to_a_reader_that_went_away_is_free_again() {
        let turns = Turns::new(1, LINE_MAX);
        let held = now(&turns, "a");
        let (_, gone) = ask(&turns, "b");
        let (_, mut next) = ask(&turns, "c");
        // The place is sent to `b`, who never takes it.
        drop(held);
        drop(gone);
        drop(poll(&mut next).unwrap().unwrap());
        let state = turns.lock();
        assert_eq!((state.taken, state.waiting, state.tenants.len()), (0, 0, 0));
        assert!(state.ring.is_empty());
    }
}
