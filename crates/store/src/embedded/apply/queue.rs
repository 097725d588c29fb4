//! The queue in front of the applier.
//!
//! Records wait a moment so that more of them are applied together, unless a reader waits for them.
//! The queue is limited in bytes: when it is full, the journal's writer waits, and so do the
//! callers of `append`.

use std::collections::VecDeque;
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use super::Applier;
use super::unapplied::{Batch, Unapplied};
use crate::error::StoreError;

/// The most rows that one transaction writes.
pub(super) const ROWS_MAX: usize = 200_000;
/// The most records that the applier takes at once.
const RECORDS_MAX: usize = 100_000;
/// The most bytes of records that the applier takes at once.
const BYTES_MAX: usize = 32 << 20;
/// The most bytes of records in the queue.
const WAITING_BYTES_MAX: usize = 48 << 20;
/// So many tasks run before records have their turn: a steady stream of tasks must not keep records out of
/// SQLite.
const FIRST_IN_A_ROW_MAX: usize = 8;
/// How long records wait for more. A delivery that is accepted and ends within this time is never
/// written to a lane.
const LINGER: Duration = Duration::from_millis(200);

/// A task of the applier. An error stops the applier for good.
pub(in crate::embedded) type Task = Box<dyn FnOnce(&mut Applier) -> Result<(), StoreError> + Send>;
/// The answer to a reader that waits for a barrier.
pub(in crate::embedded) type Reply = oneshot::Sender<Result<(), StoreError>>;

/// An entry of the queue.
pub(in crate::embedded) enum Item {
    /// Records that became durable in the journal together.
    Records(Arc<Batch>),
    /// A reader waits for everything before it.
    Barrier(Reply),
    /// A task.
    Task(Task),
}

/// What the applier takes from the queue at once.
pub(in crate::embedded) enum Taken {
    Records(Vec<Arc<Batch>>),
    Barrier(Reply),
    Task(Task),
}

#[derive(Default)]
pub(in crate::embedded) struct ApplyQueue {
    state: Mutex<State>,
    /// Signalled when there is something to take.
    work: Condvar,
    /// Signalled when something was taken.
    room: Condvar,
}

#[derive(Default)]
struct State {
    items: VecDeque<Item>,
    /// Tasks that depend on no record: they are taken before everything else.
    first: VecDeque<Task>,
    /// How many of them were taken since the last entry of `items`, while such entries waited.
    first_in_a_row: usize,
    record_bytes: usize,
    records: usize,
    batches: usize,
    /// The records that the applier is at work on.
    applying: Vec<Arc<Batch>>,
    /// The applier is at work on something that it took.
    busy: bool,
    closed: bool,
    stopped: Option<String>,
}

impl State {
    fn is_urgent(&self) -> bool {
        self.closed
            || !self.first.is_empty()
            || self.items.len() > self.batches
            || self.records >= RECORDS_MAX
            || self.record_bytes >= BYTES_MAX
    }
}

impl std::fmt::Debug for ApplyQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ApplyQueue")
    }
}

impl ApplyQueue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts records at the end; waits while too many wait already.
    pub(in crate::embedded) fn push_records(&self, batch: Batch) {
        let mut state = self.lock();
        while state.record_bytes > WAITING_BYTES_MAX && state.stopped.is_none() {
            state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.stopped.is_some() {
            return;
        }
        let was_empty = state.items.is_empty();
        state.record_bytes += batch.bytes();
        state.records += batch.records().len();
        state.batches += 1;
        state.items.push_back(Item::Records(Arc::new(batch)));
        let is_urgent = was_empty || state.is_urgent();
        drop(state);
        if is_urgent {
            self.work.notify_one();
        }
    }

    /// Appends a task or a barrier to the queue.
    pub(in crate::embedded) fn push(&self, item: Item) -> Result<(), StoreError> {
        self.push_to(|state| state.items.push_back(item))
    }

    /// Puts a task before all records. Only for a task that neither reads nor writes the columns that records
    /// write.
    pub(in crate::embedded) fn push_first(&self, task: Task) -> Result<(), StoreError> {
        self.push_to(|state| state.first.push_back(task))
    }

    fn push_to(&self, push: impl FnOnce(&mut State)) -> Result<(), StoreError> {
        let mut state = self.lock();
        if let Some(why) = &state.stopped {
            return Err(StoreError::Stopped(why.clone()));
        }
        if state.closed {
            return Err(StoreError::Stopped("the store is closed".into()));
        }
        push(&mut state);
        // Unlock before waking the applier: this thread may have a low priority, and would be
        // preempted while it holds the lock that the applier needs.
        drop(state);
        self.work.notify_one();
        Ok(())
    }

    /// Whether the queue is empty and the applier idle.
    pub(in crate::embedded) fn is_done(&self) -> Result<bool, StoreError> {
        let state = self.lock();
        match &state.stopped {
            Some(why) => Err(StoreError::Stopped(why.clone())),
            None => Ok(state.items.is_empty() && state.first.is_empty() && !state.busy),
        }
    }

    /// How many readers wait.
    #[cfg(test)]
    pub(in crate::embedded) fn barriers(&self) -> usize {
        self.lock().items.iter().filter(|item| matches!(item, Item::Barrier(_))).count()
    }

    /// How many tasks wait that run before the records.
    #[cfg(test)]
    pub(in crate::embedded) fn waiting_first(&self) -> usize {
        self.lock().first.len()
    }

    /// How many bytes of records wait.
    pub(in crate::embedded) fn waiting_bytes(&self) -> u64 {
        u64::try_from(self.lock().record_bytes).unwrap_or(u64::MAX)
    }

    /// The next entry or batch of records; `None` when the queue is closed and empty.
    pub(in crate::embedded) fn take(&self) -> Option<Taken> {
        let mut state = self.lock();
        while state.items.is_empty() && state.first.is_empty() {
            if state.closed {
                return None;
            }
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if matches!(state.items.front(), Some(Item::Records(_))) {
            let lingered = self.work.wait_timeout_while(state, LINGER, |state| !state.is_urgent());
            state = lingered.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.busy = true;
        let is_turn_of_items =
            !state.items.is_empty() && state.first_in_a_row >= FIRST_IN_A_ROW_MAX;
        if !is_turn_of_items && let Some(task) = state.first.pop_front() {
            state.first_in_a_row =
                if state.items.is_empty() { 0 } else { state.first_in_a_row + 1 };
            return Some(Taken::Task(task));
        }
        // The journal's writer waits for this lock, so only whole batches are moved while it is held.
        let (mut batches, mut records, mut bytes) = (Vec::new(), 0, 0);
        loop {
            match state.items.pop_front() {
                Some(Item::Records(batch)) => {
                    records += batch.records().len();
                    bytes += batch.bytes();
                    batches.push(batch);
                    if records >= RECORDS_MAX || bytes >= BYTES_MAX {
                        break;
                    }
                }
                Some(Item::Barrier(reply)) if batches.is_empty() => {
                    return Some(Taken::Barrier(reply));
                }
                Some(Item::Task(task)) if batches.is_empty() => {
                    state.first_in_a_row = 0;
                    return Some(Taken::Task(task));
                }
                Some(other) => {
                    state.items.push_front(other);
                    break;
                }
                None => break,
            }
        }
        state.first_in_a_row = 0;
        state.records -= records;
        state.batches -= batches.len();
        state.record_bytes -= bytes;
        state.applying.clone_from(&batches);
        drop(state);
        self.room.notify_all();
        Some(Taken::Records(batches))
    }

    /// Marks the entry that was taken last as done.
    pub(in crate::embedded) fn done(&self) {
        let mut state = self.lock();
        state.busy = false;
        let applied = mem::take(&mut state.applying);
        drop(state);
        // Freeing the records takes a while: not under the lock.
        drop(applied);
    }

    /// The records that are not in SQLite yet. Those that are acknowledged before this call are in
    /// SQLite or among them.
    pub(in crate::embedded) fn unapplied(&self) -> Result<Unapplied, StoreError> {
        let state = self.lock();
        if let Some(why) = &state.stopped {
            return Err(StoreError::Stopped(why.clone()));
        }
        let waiting = state.items.iter().filter_map(|item| match item {
            Item::Records(batch) => Some(batch),
            Item::Barrier(_) | Item::Task(_) => None,
        });
        Ok(Unapplied(state.applying.iter().chain(waiting).map(Arc::clone).collect()))
    }

    /// Closes the queue; the applier ends when it is empty.
    pub(in crate::embedded) fn close(&self) {
        self.lock().closed = true;
        self.work.notify_all();
    }

    /// Stops the queue for good, and answers everybody who waits with an error.
    pub(in crate::embedded) fn stop(&self, why: &str) {
        let mut state = self.lock();
        state.stopped.get_or_insert_with(|| why.to_owned());
        let items = mem::take(&mut state.items);
        let first = mem::take(&mut state.first);
        state.applying.clear();
        (state.records, state.batches, state.record_bytes) = (0, 0, 0);
        self.room.notify_all();
        self.work.notify_all();
        drop(state);
        drop(first);
        for item in items {
            match item {
                Item::Barrier(reply) => drop(reply.send(Err(StoreError::Stopped(why.to_owned())))),
                // The caller of a task gets an error because its reply channel is dropped.
                Item::Records(_) | Item::Task(_) => {}
            }
        }
    }

    /// Answers everybody who waits that the disk is full; records stay in the queue.
    pub(super) fn refuse_waiting(&self, place: &str) {
        let mut state = self.lock();
        let (records, others): (VecDeque<Item>, VecDeque<Item>) =
            mem::take(&mut state.items).into_iter().partition(|i| matches!(i, Item::Records(_)));
        state.items = records;
        let first = mem::take(&mut state.first);
        drop(state);
        drop(first);
        for item in others {
            match item {
                Item::Barrier(reply) => {
                    drop(reply.send(Err(StoreError::DiskFull { place: place.to_owned() })));
                }
                Item::Records(_) | Item::Task(_) => {}
            }
        }
    }

    /// Waits for this time; `false` if the queue is closed meanwhile.
    pub(super) fn pause(&self, pause: Duration) -> bool {
        let state = self.lock();
        let waited = self.work.wait_timeout_while(state, pause, |state| !state.closed);
        !waited.unwrap_or_else(PoisonError::into_inner).0.closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steady_stream_of_first_tasks_does_not_keep_other_entries_waiting() {
        let queue = ApplyQueue::default();
        let (reply, _waits) = oneshot::channel();
        queue.push(Item::Barrier(reply)).unwrap();
        for _ in 0..FIRST_IN_A_ROW_MAX {
            queue.push_first(Box::new(|_| Ok(()))).unwrap();
            queue.push_first(Box::new(|_| Ok(()))).unwrap();
            assert!(matches!(queue.take(), Some(Taken::Task(_))));
            queue.done();
        }
        assert!(matches!(queue.take(), Some(Taken::Barrier(_))));
    }
}
