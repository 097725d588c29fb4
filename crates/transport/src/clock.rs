//! The clock of this crate.
//!
//! Nothing else in this crate reads a clock. Points in time come from the [`Clock`] that the caller
//! passes; durations are measured with tokio's clock, so that paused time works.

use std::time::Duration;

use postrider_domain::time::Timestamp;
use tokio::time::Instant;

/// A source of the current time.
pub trait Clock: Send + Sync + 'static {
    /// The current time of Postrider's own clock, on which all stored times are based.
    fn now(&self) -> Timestamp;

    /// The time of day, only for values that others compare with their own clocks. It may go back.
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

/// Waits for so long, for tasks that look again after a while. It decides nothing: what is due is
/// decided by the [`Clock`].
#[expect(clippy::disallowed_methods, reason = "the one place of the product that waits for time")]
pub async fn pause(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// The current instant, for measuring durations only.
#[expect(clippy::disallowed_methods, reason = "the one place that measures durations")]
pub(crate) fn instant_now() -> Instant {
    Instant::now()
}
