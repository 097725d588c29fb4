//! Connects the callers with the writer: the queue, its limit, and the writer's thread.
//!
//! The queue is limited in bytes; further appends wait outside it. Every append in the queue is
//! answered, also when the writer stops.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Semaphore, oneshot};

use super::format::RECORD_HEADER_BYTES;
use super::writer::{Pending, Progress, Scrubbed, Writer};
use super::{AppendError, JournalError, Meaning, Position, Reserve, Run};

/// How long the queue is empty before the writer seals the last batch. Under load no seal is
/// needed: the next batch proves that the one before was synced.
const SEAL_AFTER: Duration = Duration::from_millis(2);

/// A batch of at least this many appends shows that there are several callers.
const CROWD: usize = 6;
/// How long the writer collects appends after such a batch: this long for each append of that
/// batch, up to the maximum below. A sync costs the same for two appends as for twenty. A single
/// caller does not wait.
const GATHER_EACH: Duration = Duration::from_micros(40);
const GATHER_MAX: Duration = Duration::from_millis(1);

/// Runs the writer, in its own thread or in the caller's.
#[derive(Debug)]
pub(super) enum Driver {
    /// In a thread of its own.
    Thread { shared: Arc<Shared>, thread: Mutex<Option<JoinHandle<Result<(), JournalError>>>> },
    /// In the caller's thread.
    Inline { shared: Arc<Shared>, writer: Mutex<Option<Box<Writer>>> },
}

/// The state that callers and writer share.
#[derive(Debug)]
pub(super) struct Shared {
    queue: Mutex<Queue>,
    /// Signalled when there is something for the writer to do.
    work: Condvar,
    /// One permit for each byte that may wait in the queue.
    room: Semaphore,
    room_bytes: u32,
    progress: Arc<Progress>,
}

#[derive(Debug, Default)]
struct Queue {
    pending: VecDeque<Pending>,
    released: Position,
    /// Callers that wait until stale bytes are gone.
    scrubs: Vec<Scrubbed>,
    /// Whether the writer sleeps until it is woken.
    is_writer_asleep: bool,
    /// Set when the queue is closed: the error for further appends.
    ended: Option<AppendError>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Driver {
    pub(super) fn start(writer: Writer, run: Run, pending_bytes_max: usize) -> io::Result<Self> {
        let room_bytes = pending_bytes_max.min(Semaphore::MAX_PERMITS);
        let room_bytes = u32::try_from(room_bytes).unwrap_or(u32::MAX);
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            work: Condvar::new(),
            room: Semaphore::new(usize::try_from(room_bytes).map_err(io::Error::other)?),
            room_bytes,
            progress: writer.progress(),
        });
        match run {
            Run::Inline => {
                Ok(Driver::Inline { shared, writer: Mutex::new(Some(Box::new(writer))) })
            }
            Run::Thread => {
                let for_thread = Ender(Arc::clone(&shared));
                let thread = thread::Builder::new()
                    .name("journal".to_owned())
                    .spawn(move || write_until_closed(&for_thread.0, writer))?;
                Ok(Driver::Thread { shared, thread: Mutex::new(Some(thread)) })
            }
        }
    }

    fn shared(&self) -> &Arc<Shared> {
        match self {
            Driver::Thread { shared, .. } | Driver::Inline { shared, .. } => shared,
        }
    }

    pub(super) fn append(
        &self,
        kind: u8,
        payload: Bytes,
        meaning: Option<Meaning>,
        reserve: Reserve,
        bytes_max: usize,
    ) -> impl Future<Output = Result<Position, AppendError>> + Send + '_ {
        let bytes = payload.len();
        let (reply, answer) = oneshot::channel();
        let pending = Pending { kind, payload, meaning, reserve, reply };
        let waits = if bytes > bytes_max {
            pending.answer(Err(AppendError::TooLarge { bytes, bytes_max }));
            None
        } else {
            self.append_now(pending)
        };
        async move {
            if let Some(pending) = waits {
                self.append_when_there_is_room(pending).await;
            }
            answer.await.unwrap_or(Err(AppendError::Closed))
        }
    }

    /// Puts an append into the queue; returns it if there is no space for it now.
    fn append_now(&self, pending: Pending) -> Option<Pending> {
        match self {
            Driver::Thread { shared, .. } => {
                match shared.room.try_acquire_many(shared.cost(&pending)) {
                    Ok(room) => room.forget(),
                    // There is no space, or the queue is closed: the waiting path finds out which.
                    Err(_) => return Some(pending),
                }
                shared.enqueue(pending);
            }
            Driver::Inline { writer, .. } => match &mut *locked(writer) {
                None => pending.answer(Err(AppendError::Closed)),
                Some(writer) => {
                    writer.commit(&mut VecDeque::from([pending]));
                    writer.seal();
                }
            },
        }
        None
    }

    #[cfg(test)]
    pub(super) fn append_together(
        &self,
        batch: Vec<(u8, Bytes, Reserve)>,
    ) -> Vec<Result<Position, AppendError>> {
        let Driver::Inline { writer, .. } = self else { panic!("only without a thread") };
        let mut answers = Vec::new();
        let mut waiting = VecDeque::new();
        for (kind, payload, reserve) in batch {
            let (reply, answer) = oneshot::channel();
            waiting.push_back(Pending { kind, payload, meaning: None, reserve, reply });
            answers.push(answer);
        }
        if let Some(writer) = &mut *locked(writer) {
            writer.commit(&mut waiting);
            writer.seal();
        }
        drop(waiting);
        answers.into_iter().map(|mut a| a.try_recv().unwrap_or(Err(AppendError::Closed))).collect()
    }

    async fn append_when_there_is_room(&self, pending: Pending) {
        let shared = self.shared();
        // An error means that the queue is closed; `enqueue` reports that to the caller.
        if let Ok(room) = shared.room.acquire_many(shared.cost(&pending)).await {
            room.forget();
        }
        shared.enqueue(pending);
    }

    pub(super) fn release(&self, through: Position) {
        match self {
            Driver::Thread { shared, .. } => {
                let mut queue = locked(&shared.queue);
                queue.released = queue.released.max(through);
                shared.wake(queue);
            }
            Driver::Inline { writer, .. } => {
                if let Some(writer) = &mut *locked(writer) {
                    writer.release(through);
                }
            }
        }
    }

    pub(super) fn scrub(&self) -> oneshot::Receiver<Result<(), AppendError>> {
        let (reply, answer) = oneshot::channel();
        match self {
            Driver::Thread { shared, .. } => {
                let mut queue = locked(&shared.queue);
                // Dropping the reply answers the caller when the queue is closed.
                if queue.ended.is_none() {
                    queue.scrubs.push(reply);
                    shared.wake(queue);
                }
            }
            Driver::Inline { writer, .. } => {
                if let Some(writer) = &mut *locked(writer) {
                    writer.begin_scrub(vec![reply]);
                    while writer.has_scrub_step() {
                        writer.scrub_step();
                    }
                }
            }
        }
        answer
    }

    pub(super) fn synced(&self) -> Position {
        Position::new(self.shared().progress.synced.load(Ordering::Acquire))
    }

    pub(super) fn is_disk_full(&self) -> bool {
        self.shared().progress.refusing.load(Ordering::Relaxed)
    }

    pub(super) fn close(&self) -> Result<(), JournalError> {
        match self {
            Driver::Thread { shared, thread } => {
                shared.end(AppendError::Closed);
                match locked(thread).take().map(JoinHandle::join) {
                    Some(Ok(outcome)) => outcome,
                    Some(Err(_)) => Err(JournalError::Io {
                        file: "the journal's writer".to_owned(),
                        action: "go on",
                        source: io::Error::other("it panicked"),
                    }),
                    None => Ok(()),
                }
            }
            Driver::Inline { writer, .. } => {
                locked(writer).take().map_or(Ok(()), |mut writer| writer.close())
            }
        }
    }
}

impl Shared {
    /// How many permits an append takes. One that is longer than the whole limit takes all of them.
    fn cost(&self, pending: &Pending) -> u32 {
        let bytes = pending.payload.len() + RECORD_HEADER_BYTES;
        u32::try_from(bytes).unwrap_or(u32::MAX).min(self.room_bytes)
    }

    fn enqueue(&self, pending: Pending) {
        let mut queue = locked(&self.queue);
        if let Some(reason) = &queue.ended {
            pending.answer(Err(reason.clone()));
            return;
        }
        queue.pending.push_back(pending);
        self.wake(queue);
    }

    /// Wakes the writer if it sleeps. Waking costs a system call.
    fn wake(&self, mut queue: MutexGuard<'_, Queue>) {
        if std::mem::take(&mut queue.is_writer_asleep) {
            drop(queue);
            self.work.notify_one();
        }
    }

    /// Waits for further appends before the next batch is taken; `company` is the size of the last
    /// batch. Does not wait once the queue is closed.
    fn gather(&self, company: usize) {
        let each = GATHER_EACH.saturating_mul(u32::try_from(company).unwrap_or(u32::MAX));
        let open = |queue: &mut Queue| queue.ended.is_none();
        drop(self.work.wait_timeout_while(locked(&self.queue), each.min(GATHER_MAX), open));
    }

    /// Closes the queue. The writer still commits the appends in it.
    fn end(&self, reason: AppendError) {
        locked(&self.queue).ended.get_or_insert(reason);
        self.room.close();
        self.work.notify_one();
    }
}

/// Closes the queue when the writer's thread ends, also by a panic.
struct Ender(Arc<Shared>);

impl Drop for Ender {
    fn drop(&mut self) {
        self.0.end(AppendError::Closed);
        let mut queue = locked(&self.0.queue);
        queue.scrubs.clear();
        let left = std::mem::take(&mut queue.pending);
        drop(queue);
        left.into_iter().for_each(|pending| pending.answer(Err(AppendError::Closed)));
    }
}

/// The loop of the writer's thread.
fn write_until_closed(shared: &Shared, mut writer: Writer) -> Result<(), JournalError> {
    let mut batch = VecDeque::new();
    let mut released = Position::START;
    loop {
        {
            let has_step = writer.has_scrub_step();
            let idle = |queue: &mut Queue| {
                let has_work = !queue.pending.is_empty()
                    || queue.released > released
                    || !queue.scrubs.is_empty()
                    || has_step;
                queue.is_writer_asleep = !has_work && queue.ended.is_none();
                queue.is_writer_asleep
            };
            let waited = shared.work.wait_timeout_while(locked(&shared.queue), SEAL_AFTER, idle);
            let (mut queue, waited) = waited.unwrap_or_else(PoisonError::into_inner);
            if waited.timed_out() {
                drop(queue);
                writer.seal();
                let waited = shared.work.wait_while(locked(&shared.queue), idle);
                queue = waited.unwrap_or_else(PoisonError::into_inner);
            }
            if queue.pending.is_empty() && queue.released <= released && queue.ended.is_some() {
                drop(queue);
                return writer.close();
            }
            queue.is_writer_asleep = false;
            std::mem::swap(&mut queue.pending, &mut batch);
            released = released.max(queue.released);
            let scrubs = std::mem::take(&mut queue.scrubs);
            drop(queue);
            writer.begin_scrub(scrubs);
        }
        let company = batch.len();
        let room = batch.iter().map(|pending| u64::from(shared.cost(pending))).sum::<u64>();
        writer.commit(&mut batch);
        shared.room.add_permits(usize::try_from(room).unwrap_or(0));
        writer.release(released);
        writer.scrub_step();
        if writer.has_failed() {
            shared.end(AppendError::SyncFailed);
        } else if company >= CROWD {
            shared.gather(company);
        }
    }
}
