//! How much work a filter may do: steps that are counted, never time that is measured.
//!
//! So the same filter has the same outcome on the same event on every machine. A step is one value
//! that is looked at, one word of a path, or [`BYTES_PER_STEP`] bytes of text that are compared.

/// Bytes of text that are compared in one step.
const BYTES_PER_STEP: usize = 64;

/// The steps that are left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    left: u64,
}

/// The steps are used up before the answer is known. Whether the event passes is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the filter needs more steps than it may take on this event")]
pub struct OverBudget;

impl Budget {
    /// So many steps.
    pub const fn new(steps: u64) -> Self {
        Budget { left: steps }
    }

    /// More steps than anything takes.
    #[cfg(any(test, feature = "fuzzing"))]
    pub const fn unlimited() -> Self {
        Budget { left: u64::MAX }
    }

    /// The steps that are left.
    pub const fn left(self) -> u64 {
        self.left
    }

    /// Takes steps, or says that there are not so many.
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

/// What comparing so many bytes of text costs beside the look at the value itself.
pub(super) const fn bytes_steps(bytes: usize) -> u64 {
    // No text in memory has more bytes than a u64 counts.
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
