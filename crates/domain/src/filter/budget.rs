//! Limits the work of a filter by counting steps instead of measuring time.
//!
//! So a filter has the same outcome for the same event on every machine. A step is one visited
//! value, one segment of a path, or [`BYTES_PER_STEP`] compared bytes of text.

/// Bytes of text that are compared in one step.
const BYTES_PER_STEP: usize = 64;

/// The steps that are left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    left: u64,
}

/// The steps were used up before the filter had a result. Whether the event passes is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the filter needs more steps than it may take on this event")]
pub struct OverBudget;

impl Budget {
    /// A budget of `steps` steps.
    pub const fn new(steps: u64) -> Self {
        Budget { left: steps }
    }

    /// A budget that is never used up.
    #[cfg(any(test, feature = "fuzzing"))]
    pub const fn unlimited() -> Self {
        Budget { left: u64::MAX }
    }

    /// The steps that are left.
    pub const fn left(self) -> u64 {
        self.left
    }

    /// Takes steps; fails if fewer are left.
    pub(crate) const fn spend(&mut self, steps: u64) -> Result<(), OverBudget> {
        match self.left.checked_sub(steps) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => {
                self.left = 0;
                Err(OverBudget)
            }
        }
    }
}

/// The cost of comparing this many bytes of text, in addition to visiting the value.
pub(super) const fn bytes_steps(bytes: usize) -> u64 {
    // The length of a text in memory always fits a `u64`.
    (bytes / BYTES_PER_STEP) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_gives_what_it_has_and_then_nothing() {
        let mut budget = Budget::new(3);
        assert_eq!(budget.spend(2), Ok(()));
        assert_eq!(budget.left(), 1);
        assert_eq!(budget.spend(2), Err(OverBudget));
        assert_eq!((budget.left(), budget.spend(1)), (0, Err(OverBudget)));
        assert_eq!(budget.spend(0), Ok(()));
    }
}
