//! Virtual time: tokio's paused clock, carried over from one process of the world to the next.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use postrider_domain::time::Timestamp;
use postrider_transport::Clock;
use tokio::time::Instant;

/// When every world begins.
pub const START_MS: i64 = 1_763_199_000_000;

/// The clock of a world. While no process runs it stands still.
#[derive(Debug)]
pub struct WorldClock(Mutex<Face>);

#[derive(Debug)]
struct Face {
    base_ms: i64,
    begun: Option<Instant>,
}

impl Default for WorldClock {
    fn default() -> Self {
        WorldClock(Mutex::new(Face { base_ms: START_MS, begun: None }))
    }
}

impl WorldClock {
    /// A process begins: time follows its runtime. To be called inside of it.
    pub fn start(&self) {
        self.face().begun = Some(instant());
    }

    /// The process ends: time stands still. To be called inside its runtime.
    pub fn stop(&self) {
        let now = self.now_ms();
        let mut face = self.face();
        (face.base_ms, face.begun) = (now, None);
    }

    /// Time passes while no process runs.
    pub fn pass(&self, ms: u64) {
        self.face().base_ms += i64::try_from(ms).unwrap_or(0);
    }

    /// Now, in milliseconds since the epoch.
    pub fn now_ms(&self) -> i64 {
        let face = self.face();
        let elapsed = face.begun.map_or(Duration::ZERO, |begun| instant().duration_since(begun));
        face.base_ms + i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX)
    }

    fn face(&self) -> MutexGuard<'_, Face> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for WorldClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix_ms(self.now_ms())
    }
}

#[expect(clippy::disallowed_methods, reason = "the clock that is handed in elsewhere")]
fn instant() -> Instant {
    Instant::now()
}

/// Waits for virtual time to pass.
#[expect(clippy::disallowed_methods, reason = "virtual time: nothing really waits")]
pub async fn pause(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}
