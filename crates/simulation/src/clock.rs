//! Virtual time: tokio's paused clock, carried over from one process of the world to the next, and the
//! clock that the engine reads, which is the one that ships ([`postrider_domain::steady`]).
//!
//! The world sets the time of day back and ahead, restarts the machine, and lets the saved state of
//! the clock get old. The model checks everything in virtual time, and the engine's clock must
//! agree with it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use postrider_domain::steady::{Reading, Saved, Steady, Step};
use postrider_domain::time::Timestamp;
use postrider_transport::Clock;
use tokio::time::Instant;

/// The virtual time at which every world begins.
pub const START_MS: i64 = 1_763_199_000_000;

/// The clock of a world. While no process runs it stands still.
#[derive(Debug)]
pub struct WorldClock(Mutex<Face>);

#[derive(Debug)]
struct Face {
    base_ms: i64,
    begun: Option<Instant>,
    /// The difference of the time of day from virtual time.
    skew_ms: i64,
    /// How often the machine was started, and when it last was.
    machine: (u64, i64),
    steady: Steady,
    saved: Option<Saved>,
}

impl Default for WorldClock {
    fn default() -> Self {
        let reference = Timestamp::from_unix_ms(START_MS);
        let reading = Reading { boot: None, elapsed: Duration::ZERO, reference };
        WorldClock(Mutex::new(Face {
            base_ms: START_MS,
            begun: None,
            skew_ms: 0,
            machine: (1, START_MS),
            steady: Steady::start(None, None, &reading).0,
            saved: None,
        }))
    }
}

impl Face {
    fn true_ms(&self) -> i64 {
        let elapsed = self.begun.map_or(Duration::ZERO, |begun| instant().duration_since(begun));
        self.base_ms + i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX)
    }

    fn reading(&self) -> Reading {
        let now = self.true_ms();
        Reading {
            boot: Some(self.machine.0.to_string()),
            elapsed: Duration::from_millis((now - self.machine.1).unsigned_abs()),
            reference: Timestamp::from_unix_ms(now + self.skew_ms),
        }
    }
}

impl WorldClock {
    /// Starts the clock of a process; call it inside the process's runtime. The clock continues where
    /// the process before left off; the returned step happened between the two.
    pub fn start(&self) -> Option<Step> {
        let mut face = self.face();
        face.begun = Some(instant());
        let (steady, step) = Steady::start(face.saved.as_ref(), None, &face.reading());
        face.steady = steady;
        drop(face);
        self.save();
        step
    }

    /// Sets the time of day ahead or back.
    pub fn set_by(&self, ms: i64) {
        self.face().skew_ms += ms;
    }

    /// Compares the engine's clock with the time of day and saves it, as a server does every second.
    pub fn look(&self) -> Option<Step> {
        let mut face = self.face();
        let reading = face.reading();
        let step = face.steady.compare(reading.elapsed, reading.reference);
        drop(face);
        self.save();
        step
    }

    fn save(&self) {
        let mut face = self.face();
        let reading = face.reading();
        face.saved = Some(face.steady.save(reading.boot, reading.elapsed));
    }

    /// Restarts the machine. Call it only while no process runs.
    pub fn reboot(&self) {
        let mut face = self.face();
        face.machine = (face.machine.0 + 1, face.base_ms);
    }

    /// Stops the clock of a process; call it inside the process's runtime.
    pub fn stop(&self) {
        let now = self.now_ms();
        let mut face = self.face();
        (face.base_ms, face.begun) = (now, None);
    }

    /// Advances the time while no process runs.
    pub fn pass(&self, ms: u64) {
        self.face().base_ms += i64::try_from(ms).unwrap_or(0);
    }

    /// The current virtual time in milliseconds since the epoch.
    pub fn now_ms(&self) -> i64 {
        self.face().true_ms()
    }

    fn face(&self) -> MutexGuard<'_, Face> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for WorldClock {
    fn now(&self) -> Timestamp {
        let face = self.face();
        face.steady.now(face.reading().elapsed)
    }

    fn wall(&self) -> Timestamp {
        self.face().reading().reference
    }
}

#[expect(clippy::disallowed_methods, reason = "the clock that is handed in elsewhere")]
fn instant() -> Instant {
    Instant::now()
}

/// Sleeps in virtual time.
#[expect(clippy::disallowed_methods, reason = "virtual time: nothing really waits")]
pub async fn pause(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}
