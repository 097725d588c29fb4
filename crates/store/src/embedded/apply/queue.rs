//! The queue in front of the applier.
//!
//! Records wait a moment so that more of them are applied together, unless a reader waits for them.
//! The queue is limited in bytes: when it is full, the journal's writer waits, and so do the
//! callers of `append`.

use std::collections::VecDeque;
use std::mem;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use super::Applier;
use crate::embedded::journal::Record;
use crate::error::StoreError;

/// The most rows that one transaction writes.
pub(super) const ROWS_MAX: usize = 200_000;
/// The most records that the applier takes at once.
const RECORDS_MAX: usize = 100_000;
/// The most bytes of records that the applier takes at once.
const BYTES_MAX: usize = 32 << 20;
/// The most bytes of records in the queue.
const WAITING_BYTES_MAX: usize = 48 << 20;
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
    Records(Vec<Record>),
    /// A reader waits until everything before this entry is applied.
    Barrier(Reply),
    /// A task.
    Task(Task),
}

/// What the applier takes from the queue at once.
pub(in crate::embedded) enum Taken {
    Records(Vec<Record>),
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
    record_bytes: usize,
    records: usize,
    batches: usize,
    /// The applier is working on an entry that it took.
    busy: bool,
    closed: bool,
    stopped: Option<String>,
}

impl State {
    fn is_urgent(&self) -> bool {
        self.closed
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

    /// Appends records to the queue; blocks while the queue is full.
    pub(in crate::embedded) fn push_records(&self, records: Vec<Record>) {
        let mut state = self.lock();
        while state.record_bytes > WAITING_BYTES_MAX && state.stopped.is_none() {
            state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.stopped.is_some() {
            return;
        }
        let was_empty = state.items.is_empty();
        state.record_bytes += bytes_of(&records);
        state.records += records.len();
        state.batches += 1;
        state.items.push_back(Item::Records(records));
        let is_urgent = was_empty || state.is_urgent();
        drop(state);
        if is_urgent {
            self.work.notify_one();
        }
    }

    /// Appends a task or a barrier to the queue.
    pub(in crate::embedded) fn push(&self, item: Item) -> Result<(), StoreError> {
        let mut state = self.lock();
        if let Some(why) = &state.stopped {
            return Err(StoreError::Stopped(why.clone()));
        }
        if state.closed {
            return Err(StoreError::Stopped("the store is closed".into()));
        }
        state.items.push_back(item);
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
            None => Ok(state.items.is_empty() && !state.busy),
        }
    }

    /// How many bytes of records wait.
    pub(in crate::embedded) fn waiting_bytes(&self) -> u64 {
        u64::try_from(self.lock().record_bytes).unwrap_or(u64::MAX)
    }

    /// The next entry or batch of records; `None` when the queue is closed and empty.
    pub(in crate::embedded) fn take(&self) -> Option<Taken> {
        let mut state = self.lock();
        while state.items.is_empty() {
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
        // The journal's writer waits for this lock, so only whole batches are moved while it is held.
        let (mut batches, mut records, mut bytes) = (Vec::new(), 0, 0);
        loop {
            match state.items.pop_front() {
                Some(Item::Records(batch)) => {
                    records += batch.len();
                    bytes += bytes_of(&batch);
                    batches.push(batch);
                    if records >= RECORDS_MAX || bytes >= BYTES_MAX {
                        break;
                    }
                }
                Some(Item::Barrier(reply)) if batches.is_empty() => {
                    return Some(Taken::Barrier(reply));
                }
                Some(Item::Task(task)) if batches.is_empty() => return Some(Taken::Task(task)),
                Some(other) => {
                    state.items.push_front(other);
                    break;
                }
                None => break,
            }
        }
        state.records -= records;
        state.batches -= batches.len();
        state.record_bytes -= bytes;
        drop(state);
        self.room.notify_all();
        Some(Taken::Records(batches.into_iter().flatten().collect()))
    }

    /// Marks the entry that was taken last as done.
    pub(in crate::embedded) fn done(&self) {
        self.lock().busy = false;
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
        (state.records, state.batches, state.record_bytes) = (0, 0, 0);
        self.room.notify_all();
        self.work.notify_all();
        drop(state);
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
        drop(state);
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

fn bytes_of(records: &[Record]) -> usize {
    records.iter().map(|record| record.bytes).sum()
}
