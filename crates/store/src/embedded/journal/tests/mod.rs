//! Tests the journal with every fault, every crash and every flipped bit against one oracle.
//!
//! A [`Process`] stands for the server on a simulated medium and remembers which appends were
//! acknowledged; that list is the oracle. No test here sleeps or reads a clock.

mod behaviour;
mod faults;
mod medium;
mod model;
mod rot;
mod threads;

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

use self::medium::SimulatedMedium;
use super::{
    AppendError, Hooks, Journal, JournalError, JournalOptions, Position, Record, Reserve, Run,
    TornTail,
};

const STORE: [u8; 16] = *b"the-test's-store";
/// Small, so that there are many rotations.
const SEGMENT_BYTES: u64 = 8192;

/// The result of a future that is ready at once.
fn now<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the future waits"),
    }
}

fn options(nonce: u64) -> JournalOptions {
    JournalOptions {
        segment_bytes: SEGMENT_BYTES,
        run: Run::Inline,
        ..JournalOptions::new(STORE, nonce)
    }
}

/// A payload that is unique, of a varying length.
fn payload(number: u64) -> Bytes {
    let length = usize::try_from(number.wrapping_mul(0x9E37_79B9) % 1500).unwrap();
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.extend((0..length).map(|i| u8::try_from((i as u64 * 31 + number) % 251).unwrap()));
    Bytes::from(bytes)
}

/// Recovered records as the oracle compares them: sequence number and payload.
type Seen = Vec<(u64, Bytes)>;

fn open(
    medium: &SimulatedMedium,
    options: JournalOptions,
) -> Result<(Journal, Seen, Option<TornTail>), JournalError> {
    let (journal, recovered) = Journal::open(Arc::new(medium.clone()), options, Hooks::none())?;
    let (count, torn) = (recovered.count(), recovered.torn().cloned());
    let seen: Seen = recovered
        .into_records()
        .map(|record| record.map(|record| (record.position.sequence(), record.payload)))
        .collect::<Result<_, _>>()?;
    assert_eq!(count, seen.len() as u64, "the count is the count");
    Ok((journal, seen, torn))
}

/// A server on a medium, through several restarts, and what it was told about its appends.
struct Process {
    medium: SimulatedMedium,
    journal: Option<Journal>,
    /// Records that were acknowledged as durable. Index i has sequence number i + 1.
    acknowledged: Vec<Bytes>,
    /// Records that were refused, or whose append was not answered.
    unacknowledged: Vec<Bytes>,
    /// The last sequence number that SQLite would have.
    applied: u64,
    /// The records that the consumer received since the last start.
    handed_on: Arc<Mutex<Vec<Record>>>,
    payloads: u64,
    lives: u64,
}

impl Process {
    fn new(medium: SimulatedMedium) -> Self {
        Process {
            medium,
            journal: None,
            acknowledged: Vec::new(),
            unacknowledged: Vec::new(),
            applied: 0,
            handed_on: Arc::default(),
            payloads: 0,
            lives: 0,
        }
    }

    /// The same history on a copy of the medium, with the process stopped.
    fn fork(&self) -> Self {
        Process {
            medium: self.medium.fork(),
            acknowledged: self.acknowledged.clone(),
            unacknowledged: self.unacknowledged.clone(),
            applied: self.applied,
            payloads: self.payloads,
            lives: self.lives,
            ..Process::new(SimulatedMedium::new(0))
        }
    }

    /// Opens the journal, and checks the recovered records against the oracle.
    fn start(&mut self) -> Result<(), JournalError> {
        self.lives += 1;
        let handed_on: Arc<Mutex<Vec<Record>>> = Arc::default();
        let for_hook = Arc::clone(&handed_on);
        let hooks = Hooks {
            synced: Box::new(move |records| for_hook.lock().unwrap().extend(records)),
            fatal: None,
        };
        let options =
            JournalOptions { applied: Position::new(self.applied), ..options(self.lives) };
        let (journal, recovered) = Journal::open(Arc::new(self.medium.clone()), options, hooks)?;
        let applied = usize::try_from(self.applied).unwrap();
        let mut recovered_payloads = Vec::new();
        for (i, record) in recovered.into_records().enumerate() {
            let record = record?;
            assert_eq!(record.position.sequence(), self.applied + 1 + i as u64, "no gap");
            recovered_payloads.push(record.payload);
        }
        let owed = &self.acknowledged[applied..];
        assert!(recovered_payloads.len() >= owed.len(), "an acknowledged record is lost");
        let (told, untold) = recovered_payloads.split_at(owed.len());
        assert!(told == owed, "an acknowledged record is not what it was");
        for payload in untold {
            let known = self.unacknowledged.iter().position(|known| known == payload);
            self.unacknowledged.swap_remove(known.expect("a record that nobody appended"));
        }
        // The caller has read these records, so from now on they must not be lost.
        self.acknowledged.extend_from_slice(untold);
        self.handed_on = handed_on;
        self.journal = Some(journal);
        Ok(())
    }

    /// Appends some records together, if the process is running.
    fn append(&mut self, count: u64, reserve: Reserve) {
        let Some(journal) = &self.journal else { return };
        let payloads: Vec<Bytes> = (0..count).map(|i| payload(self.payloads + i)).collect();
        self.payloads += count;
        let batch = payloads.iter().map(|payload| (1, payload.clone(), reserve)).collect();
        let answers = journal.append_together(batch);
        for (payload, answer) in payloads.into_iter().zip(answers) {
            match answer {
                Ok(position) => {
                    self.acknowledged.push(payload);
                    assert_eq!(position.sequence(), self.acknowledged.len() as u64);
                    assert!(journal.synced() >= position, "synced lags behind");
                    let handed_on = self.handed_on.lock().unwrap();
                    let record = &handed_on[handed_on.len() - 1];
                    assert!(record.position >= position, "answered before it was handed on");
                }
                Err(_) => self.unacknowledged.push(payload),
            }
        }
    }

    /// SQLite has caught up, except for the last `but_for` records.
    fn release(&mut self, but_for: u64) {
        let Some(journal) = &self.journal else { return };
        self.applied = self.applied.max((self.acknowledged.len() as u64).saturating_sub(but_for));
        journal.release(Position::new(self.applied));
    }

    /// Checks that the consumer received everything acknowledged since the start, once and in
    /// order.
    fn check_handed_on(&self) {
        let handed_on = self.handed_on.lock().unwrap();
        let first = self.acknowledged.len() - handed_on.len();
        for (i, (record, payload)) in handed_on.iter().zip(&self.acknowledged[first..]).enumerate()
        {
            assert_eq!(record.position.sequence(), (first + i + 1) as u64);
            assert_eq!(record.payload, payload);
        }
    }

    /// Closes the journal; returns whether that succeeded.
    fn close(&mut self) -> bool {
        self.journal.take().is_none_or(|journal| journal.close().is_ok())
    }

    /// `kill -9`: the process ends, the machine keeps running.
    fn kill(&mut self) {
        self.medium.kill();
        self.journal = None;
    }

    /// The power fails and comes back.
    fn crash(&mut self, seed: u64) {
        self.medium.crash(seed);
        self.journal = None;
    }
}

/// A run with everything in it: batches of all sizes, rotations, releases, orderly and disorderly
/// restarts. It ends where a start fails.
fn script(process: &mut Process, steps: u64) {
    if process.start().is_err() {
        return;
    }
    for step in 1..=steps {
        let reserve = if step % 3 == 0 { Reserve::MayUseReserve } else { Reserve::Normal };
        process.append(1 + step % 4, reserve);
        if step % 4 == 0 {
            process.release(step % 5);
        }
        if step % 9 == 0 {
            process.check_handed_on();
            if step % 2 == 0 {
                process.close();
            } else {
                process.kill();
            }
            if process.start().is_err() {
                process.journal = None;
                return;
            }
        }
    }
    process.check_handed_on();
}
