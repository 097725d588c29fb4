//! What time is it?
//!
//! The only place of this crate that reads a clock. Points in time come from the [`Clock`] that is
//! handed in; durations are measured with tokio's, so that paused time works.

use postrider_domain::time::Timestamp;
use tokio::time::Instant;

/// Says what time it is.
pub trait Clock: Send + Sync + 'static {
    /// Now, on the one clock that every time is kept on.
    fn now(&self) -> Timestamp;

    /// The time of day, as others have it: for what they compare with their own clocks, and for
    /// nothing else. It may be set back.
    fn wall(&self) -> Timestamp {
        self.now()
    }
}

/// The clock of the machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock that is handed in elsewhere")]
    fn now(&self) -> Timestamp {
        let elapsed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Timestamp::EPOCH.saturating_add(elapsed.unwrap_or_default())
    }
}

/// Now, for measuring durations only.
#[expect(clippy::disallowed_methods, reason = "the one place that measures durations")]
pub(crate) fn instant_now() -> Instant {
    Instant::now()
}
