//! Planned faults: which operation fails next, and how.

use postrider_store::StoreError;
use std::collections::VecDeque;

/// How a write fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The disk is full; the write did not happen.
    DiskFull,
    /// The store could not be reached; the write did not happen, but the caller cannot know.
    UnavailableBefore,
    /// The answer was lost; the write happened, but the caller cannot know.
    UnavailableAfter,
    /// The store stops for good; the write did not happen, and no later one will.
    Stopped,
}

/// The number of operations, including failed ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Operations {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Reads and writes that failed by a planned fault, or because the store had stopped.
    pub failed: u64,
}

#[derive(Debug)]
struct Plan {
    skip: u64,
    left: u64,
    fault: Fault,
}

/// The planned faults, and the counts of operations.
#[derive(Debug, Default)]
pub(super) struct Faults {
    plans: VecDeque<Plan>,
    reads_to_fail: u64,
    stopped: Option<&'static str>,
    operations: Operations,
}

impl Faults {
    pub(super) fn plan(&mut self, skip: u64, fault: Fault, left: u64) {
        if left > 0 {
            self.plans.push_back(Plan { skip, left, fault });
        }
    }

    pub(super) fn plan_reads(&mut self, n: u64) {
        self.reads_to_fail += n;
    }

    pub(super) fn heal(&mut self) {
        self.plans.clear();
        self.reads_to_fail = 0;
    }

    pub(super) fn operations(&self) -> Operations {
        self.operations
    }

    pub(super) fn stop(&mut self, why: &'static str) {
        self.stopped = Some(why);
    }

    /// The fault that the next write would get, without counting a write.
    pub(super) fn would_fail(&self) -> Result<(), StoreError> {
        if let Some(why) = self.stopped {
            return Err(StoreError::Stopped(why.into()));
        }
        match self.plans.front() {
            Some(Plan { skip: 0, fault, .. }) => Err(error(*fault)),
            Some(_) | None => Ok(()),
        }
    }

    pub(super) fn check_stopped(&mut self) -> Result<(), StoreError> {
        match self.stopped {
            Some(why) => {
                self.operations.failed += 1;
                Err(StoreError::Stopped(why.into()))
            }
            None => Ok(()),
        }
    }

    pub(super) fn before_read(&mut self) -> Result<(), StoreError> {
        self.operations.reads += 1;
        self.check_stopped()?;
        if self.reads_to_fail > 0 {
            self.reads_to_fail -= 1;
            self.operations.failed += 1;
            return Err(StoreError::Unavailable("a planned fault".into()));
        }
        Ok(())
    }

    /// `Err` if the write must not happen; `Ok(Some(…))` is the error to return after it happened.
    pub(super) fn before_write(&mut self) -> Result<Option<StoreError>, StoreError> {
        self.operations.writes += 1;
        self.check_stopped()?;
        let Some(plan) = self.plans.front_mut() else { return Ok(None) };
        if plan.skip > 0 {
            plan.skip -= 1;
            return Ok(None);
        }
        let fault = plan.fault;
        plan.left -= 1;
        if plan.left == 0 {
            self.plans.pop_front();
        }
        self.operations.failed += 1;
        match fault {
            Fault::DiskFull | Fault::UnavailableBefore => Err(error(fault)),
            Fault::UnavailableAfter => Ok(Some(error(fault))),
            Fault::Stopped => {
                self.stop("a planned fault");
                Err(error(fault))
            }
        }
    }
}

fn error(fault: Fault) -> StoreError {
    match fault {
        Fault::DiskFull => StoreError::DiskFull { place: "memory".into() },
        Fault::UnavailableBefore | Fault::UnavailableAfter => {
            StoreError::Unavailable("a planned fault".into())
        }
        Fault::Stopped => StoreError::Stopped("a planned fault".into()),
    }
}
