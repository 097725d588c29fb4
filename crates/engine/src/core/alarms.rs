//! The timers of the core: a table of deadlines. Each alarm is set at most once.

use std::collections::{BTreeSet, HashMap};

use postrider_domain::ids::ReplayId;
use postrider_domain::time::Timestamp;

use super::destinations::DestIx;

/// What happens when the time has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Alarm {
    /// A disabled destination can be probed.
    Probe(DestIx),
    /// A destination is frozen because it had no success for too long.
    Freeze(DestIx),
    /// A destination's rate limit allows the next request.
    Tokens(DestIx),
    /// The next step of a ramp.
    Ramp(DestIx),
    /// The next deliveries of a replay job.
    Replay(ReplayId),
    /// The mass-failure guard evaluates again.
    Guard,
    /// A failed commit is tried again.
    Commit,
    /// The next waiting deliveries are read from the store.
    Due,
}

/// All alarms that are set.
#[derive(Debug, Default)]
pub(super) struct Alarms {
    by_time: BTreeSet<(Timestamp, Alarm)>,
    times: HashMap<Alarm, Timestamp>,
}

impl Alarms {
    /// Sets an alarm, or changes its time.
    pub(super) fn set(&mut self, alarm: Alarm, at: Timestamp) {
        if let Some(before) = self.times.insert(alarm, at) {
            self.by_time.remove(&(before, alarm));
        }
        self.by_time.insert((at, alarm));
    }

    pub(super) fn clear(&mut self, alarm: Alarm) {
        if let Some(before) = self.times.remove(&alarm) {
            self.by_time.remove(&(before, alarm));
        }
    }

    pub(super) fn is_set(&self, alarm: Alarm) -> bool {
        self.times.contains_key(&alarm)
    }

    pub(super) fn next_at(&self) -> Option<Timestamp> {
        self.by_time.first().map(|(at, _)| *at)
    }

    pub(super) fn len(&self) -> usize {
        self.by_time.len()
    }

    pub(super) fn take_due(&mut self, now: Timestamp) -> Option<Alarm> {
        let &(at, alarm) = self.by_time.first()?;
        if at > now {
            return None;
        }
        self.by_time.pop_first();
        self.times.remove(&alarm);
        Some(alarm)
    }
}
