//! The writer's thread: group commit, order, back-pressure, and shutdown.

use std::io;
use std::sync::{Condvar, mpsc};

use super::*;
use crate::embedded::medium::{Disk, Lock, Medium, MediumFile};

/// A medium whose syncs wait for permission, so that a test decides which appends wait together.
#[derive(Debug, Clone)]
struct Gated {
    inner: SimulatedMedium,
    gate: Arc<Gate>,
}

#[derive(Debug, Default)]
struct Gate {
    closed: Mutex<(bool, bool)>,
    changed: Condvar,
}

impl Gate {
    fn set(&self, closed: bool, failing: bool) {
        *self.closed.lock().unwrap() = (closed, failing);
        self.changed.notify_all();
    }

    fn pass(&self) -> io::Result<()> {
        let gate = self.closed.lock().unwrap();
        let (_, failing) = *self.changed.wait_while(gate, |(closed, _)| *closed).unwrap();
        if failing { Err(io::Error::other("the disk is gone")) } else { Ok(()) }
    }
}

#[derive(Debug)]
struct GatedFile(Arc<dyn MediumFile>, Arc<Gate>);

impl MediumFile for GatedFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, into)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_at(offset, bytes)
    }
    fn allocate(&self, bytes: u64) -> io::Result<()> {
        self.0.allocate(bytes)
    }
    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.0.truncate(bytes)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.1.pass()?;
        self.0.sync_data()
    }
    fn len_bytes(&self) -> io::Result<u64> {
        self.0.len_bytes()
    }
}

impl Medium for Gated {
    fn create(&self, name: &str) -> io::Result<Arc<dyn MediumFile>> {
        Ok(Arc::new(GatedFile(self.inner.create(name)?, Arc::clone(&self.gate))))
    }
    fn open(&self, name: &str) -> io::Result<Arc<dyn MediumFile>> {
        Ok(Arc::new(GatedFile(self.inner.open(name)?, Arc::clone(&self.gate))))
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.inner.rename(from, to)
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.inner.remove(name)
    }
    fn list(&self) -> io::Result<Vec<String>> {
        self.inner.list()
    }
    fn sync_names(&self) -> io::Result<()> {
        self.inner.sync_names()
    }
    fn available_bytes(&self) -> io::Result<u64> {
        self.inner.available_bytes()
    }
    fn lock(&self, name: &str) -> io::Result<Lock> {
        self.inner.lock(name)
    }
    fn describe(&self, name: &str) -> String {
        self.inner.describe(name)
    }
}

fn threaded(nonce: u64) -> JournalOptions {
    JournalOptions { run: Run::Thread, segment_bytes: 1 << 20, ..options(nonce) }
}

fn gated(options: JournalOptions) -> (Journal, Gated, mpsc::Receiver<Vec<Record>>) {
    let medium = Gated { inner: SimulatedMedium::new(1), gate: Arc::default() };
    let (sender, batches) = mpsc::channel();
    let hooks = Hooks { synced: Box::new(move |batch| sender.send(batch).unwrap()), fatal: None };
    let (journal, _) = Journal::open(Arc::new(medium.clone()), options, hooks).unwrap();
    (journal, medium, batches)
}

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

fn is_ready<F: Future + Unpin>(future: &mut F) -> bool {
    std::pin::Pin::new(future).poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

#[test]
fn appends_during_a_sync_are_committed_together_and_answered_in_order() {
    let (journal, medium, batches) = gated(threaded(1));
    medium.gate.set(true, false);
    let answers: Vec<_> =
        (0..500).map(|number| journal.append(1, payload(number), Reserve::Normal)).collect();
    assert_eq!(journal.synced(), Position::START, "nothing is acknowledged before its sync");
    medium.gate.set(false, false);
    for (number, answer) in (1..).zip(answers) {
        assert_eq!(block_on(answer).unwrap().sequence(), number, "order of calls");
    }
    assert_eq!(journal.synced(), Position::new(500));
    journal.close().unwrap();
    drop(journal);
    let batches: Vec<Vec<Record>> = batches.into_iter().collect();
    assert!(batches.len() <= 4, "500 appends in {} batches", batches.len());
    let handed_on: Vec<u64> =
        batches.iter().flatten().map(|record| record.position.sequence()).collect();
    assert_eq!(handed_on, (1..=500).collect::<Vec<_>>());
}

#[test]
fn append_beyond_the_limit_waits_outside_the_queue() {
    let small = JournalOptions { pending_bytes_max: 1000, ..threaded(1) };
    let (journal, medium, _batches) = gated(small);
    medium.gate.set(true, false);
    let bytes = || Bytes::from(vec![1; 480]);
    let first = journal.append(1, bytes(), Reserve::Normal);
    let second = journal.append(1, bytes(), Reserve::Normal);
    let mut third = Box::pin(journal.append(1, bytes(), Reserve::Normal));
    // Longer than the whole queue: it is admitted when the queue is empty.
    let mut fourth = Box::pin(journal.append(1, Bytes::from(vec![2; 5000]), Reserve::Normal));
    assert!(!is_ready(&mut third) && !is_ready(&mut fourth));
    medium.gate.set(false, false);
    let answers = block_on(async { [first.await, second.await, third.await, fourth.await] });
    assert_eq!(answers.map(|answer| answer.unwrap().sequence()), [1, 2, 3, 4]);
}

#[test]
fn after_a_failed_sync_every_append_is_refused() {
    let medium = Gated { inner: SimulatedMedium::new(1), gate: Arc::default() };
    let (sender, told) = mpsc::channel();
    let fatal: Box<dyn FnOnce(Arc<io::Error>) + Send> =
        Box::new(move |error| sender.send(error.to_string()).unwrap());
    let hooks = Hooks { synced: Box::new(|_| panic!("nothing was synced")), fatal: Some(fatal) };
    let small = JournalOptions { pending_bytes_max: 1000, ..threaded(1) };
    let (journal, _) = Journal::open(Arc::new(medium.clone()), small, hooks).unwrap();
    medium.gate.set(true, false);
    let bytes = || Bytes::from(vec![1; 480]);
    let queued: Vec<_> =
        (0..4).map(|_| Box::pin(journal.append(1, bytes(), Reserve::Normal))).collect();
    medium.gate.set(false, true);
    for answer in queued {
        assert!(matches!(block_on(answer), Err(AppendError::SyncFailed)));
    }
    assert_eq!(told.recv().unwrap(), "the disk is gone");
    let late = block_on(journal.append(1, bytes(), Reserve::MayUseReserve));
    assert!(matches!(late, Err(AppendError::SyncFailed)));
    assert!(matches!(journal.close(), Err(JournalError::SyncFailed(_))));
    assert!(told.recv().is_err(), "told once");
}

#[test]
fn closing_commits_the_waiting_appends() {
    let (journal, medium, _batches) = gated(threaded(1));
    medium.gate.set(true, false);
    let answers: Vec<_> =
        (0..50).map(|number| journal.append(1, payload(number), Reserve::Normal)).collect();
    medium.gate.set(false, false);
    journal.close().unwrap();
    for answer in answers {
        assert!(block_on(answer).is_ok());
    }
    let late = block_on(journal.append(1, payload(1), Reserve::Normal));
    assert!(matches!(late, Err(AppendError::Closed)));
    journal.close().unwrap();
    drop(journal);
    let (_, seen, torn) = open(&medium.inner, options(2)).unwrap();
    assert_eq!((seen.len(), torn), (50, None));
}

#[test]
fn panic_of_the_consumer_closes_the_journal_and_answers_all_callers() {
    let hooks = Hooks { synced: Box::new(|_| panic!("the consumer")), fatal: None };
    let medium = SimulatedMedium::new(1);
    let (journal, _) = Journal::open(Arc::new(medium), threaded(1), hooks).unwrap();
    for _ in 0..2 {
        let answer = block_on(journal.append(1, payload(1), Reserve::Normal));
        assert!(matches!(answer, Err(AppendError::Closed)));
    }
    assert!(journal.close().is_err());
}

#[test]
fn many_tasks_on_real_files_through_rotations_and_a_large_record() {
    let directory = tempfile::tempdir().unwrap();
    let disk = || Arc::new(Disk::open(directory.path()).unwrap());
    let large = JournalOptions { segment_bytes: 36 << 20, ..threaded(1) };
    let (journal, _) = Journal::open(disk(), large.clone(), Hooks::none()).unwrap();
    let journal = Arc::new(journal);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let tasks: Vec<_> = (0..8_u64)
        .map(|task| {
            let journal = Arc::clone(&journal);
            runtime.spawn(async move {
                let mut last = Position::START;
                for i in 0..100 {
                    let bytes = payload(task * 1000 + i);
                    let position = journal.append(2, bytes, Reserve::Normal).await.unwrap();
                    assert!(position > last);
                    last = position;
                }
            })
        })
        .collect();
    let whole = Bytes::from(vec![5; 32 << 20]);
    let position = block_on(journal.append(3, whole.clone(), Reserve::Normal)).unwrap();
    for task in tasks {
        runtime.block_on(task).unwrap();
    }
    journal.close().unwrap();
    drop(journal);
    let (_, recovered) =
        Journal::open(disk(), JournalOptions { nonce: 2, ..large }, Hooks::none()).unwrap();
    assert_eq!(recovered.count(), 801);
    let records: Vec<Record> = recovered.into_records().map(Result::unwrap).collect();
    let index = usize::try_from(position.sequence()).unwrap() - 1;
    assert!(records[index].payload == whole);
}
