//! How much a forecast may compute. Whoever forecasts for others gives it a limit: a policy with a
//! probe each millisecond, or with a threshold that is never reached, would take days.

use super::ForecastError;

/// What a forecast may still compute, in steps: a group of deliveries that is moved, or a look at the
/// circuit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Work {
    steps_left: u64,
    groups_max: usize,
}

impl Work {
    /// As much as it takes.
    pub const UNLIMITED: Work = Work { steps_left: u64::MAX, groups_max: usize::MAX };

    /// At most so many steps, and so many groups of deliveries in memory at a time.
    pub const fn limited(steps: u64, groups_max: usize) -> Work {
        Work { steps_left: steps, groups_max }
    }

    /// Takes one step; whether there was one left.
    pub(super) fn step(&mut self, groups: usize) -> bool {
        let may = self.steps_left > 0 && groups <= self.groups_max;
        self.steps_left = if may { self.steps_left - 1 } else { 0 };
        may
    }

    /// Refuses where a step was wanted that was not left.
    pub(super) fn check(&self) -> Result<(), ForecastError> {
        if self.steps_left == 0 { Err(ForecastError::TooMuchWork) } else { Ok(()) }
    }
}
