//! Limits how much a forecast may compute. The API sets a limit, because a policy with a probe each
//! millisecond, or with a threshold that is never reached, would take days.

use super::ForecastError;

/// The steps that a forecast may still take. Moving a group of deliveries is a step, and so is
/// asking the circuit once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Work {
    steps_left: u64,
    groups_max: usize,
}

impl Work {
    /// No limit.
    pub const UNLIMITED: Work = Work { steps_left: u64::MAX, groups_max: usize::MAX };

    /// At most `steps` steps, and at most `groups_max` groups of deliveries in memory at a time.
    pub const fn limited(steps: u64, groups_max: usize) -> Work {
        Work { steps_left: steps, groups_max }
    }

    /// Takes one step; `false` if none is left or there are too many groups.
    pub(super) fn step(&mut self, groups: usize) -> bool {
        let may = self.steps_left > 0 && groups <= self.groups_max;
        self.steps_left = if may { self.steps_left - 1 } else { 0 };
        may
    }

    /// Fails if no step is left.
    pub(super) fn check(&self) -> Result<(), ForecastError> {
        if self.steps_left == 0 { Err(ForecastError::TooMuchWork) } else { Ok(()) }
    }
}
