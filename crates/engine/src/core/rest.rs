//! Destinations at rest leave memory: memory follows activity, not the number of URLs.
//!
//! One leaves only where the store has all that is known of it: nothing of it is in memory, in flight
//! or on its way into the store, its circuit is closed and no failure stands against it, and nothing
//! has happened for a while. It comes back from the store when something does
//! ([`find`](super::find)).

use std::ops::{Index, IndexMut};
use std::time::Duration;

use postrider_domain::circuit::{CircuitState, Suspended};
use postrider_domain::time::Timestamp;

use super::Core;
use super::alarms::Alarm;
use super::probe::ProbeStage;
use super::queue::{Dest, DestIx, Queue};

/// How long a look at all destinations takes: a share of them at a time.
const ROUND: Duration = Duration::from_secs(60);

/// The destinations that are in memory, each at its place while it is there.
#[derive(Debug, Default)]
pub(super) struct Dests {
    places: Vec<Option<Box<Dest>>>,
    free: Vec<DestIx>,
    /// The place that is looked at next.
    hand: usize,
    looked_at: Option<Timestamp>,
}

impl Dests {
    pub(super) fn add(&mut self, dest: Dest) -> DestIx {
        let dest = Some(Box::new(dest));
        if let Some(ix) = self.free.pop() {
            self.places[ix.get()] = dest;
            return ix;
        }
        self.places.push(dest);
        DestIx::new(self.places.len() - 1)
    }

    fn remove(&mut self, ix: DestIx) -> Option<Box<Dest>> {
        let removed = self.places[ix.get()].take()?;
        self.free.push(ix);
        Some(removed)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (DestIx, &Dest)> {
        let places = self.places.iter().enumerate();
        places.filter_map(|(at, dest)| Some((DestIx::new(at), dest.as_deref()?)))
    }

    /// The share of them that is to be looked at now.
    fn next_share(&mut self, now: Timestamp) -> Vec<DestIx> {
        let all = self.places.len();
        let since = *self.looked_at.get_or_insert(now);
        let (passed, round) = (now.since(since).min(ROUND).as_millis(), ROUND.as_millis());
        let wanted = u128::try_from(all).unwrap_or(u128::MAX).saturating_mul(passed) / round;
        let wanted = usize::try_from(wanted).unwrap_or(all);
        if wanted == 0 {
            return Vec::new();
        }
        self.looked_at = Some(now);
        let begin = self.hand;
        self.hand = (begin + wanted) % all;
        let share = (begin..begin + wanted).map(|at| DestIx::new(at % all));
        share.filter(|ix| self.places[ix.get()].is_some()).collect()
    }
}

impl Index<usize> for Dests {
    type Output = Dest;

    fn index(&self, at: usize) -> &Dest {
        self.places[at].as_deref().expect("nothing refers to a destination that has left")
    }
}

impl IndexMut<usize> for Dests {
    fn index_mut(&mut self, at: usize) -> &mut Dest {
        self.places[at].as_deref_mut().expect("nothing refers to a destination that has left")
    }
}

impl Queue {
    fn is_at_rest(&self) -> bool {
        let has_more = self.in_ring || self.spilled || self.loading || self.starved;
        self.len == 0 && !has_more
    }
}

impl Core {
    /// Lets go of destinations that have been at rest for long, and of those that another node owns.
    pub(super) fn let_rest(&mut self) {
        if self.shutdown.is_begun() {
            return;
        }
        for ix in self.dests.next_share(self.now) {
            if !self.is_at_rest(ix) {
                continue;
            }
            if let Some(gone) = self.dests.remove(ix)
                && !gone.lost
            {
                self.dest_by_id.remove(&gone.record.id);
            }
        }
    }

    fn is_at_rest(&mut self, ix: DestIx) -> bool {
        let now = self.now;
        let dest = &mut self.dests[ix.get()];
        let is_idle = dest.lost || now.since(dest.used_at) >= self.options.destination_idle;
        let is_healthy = dest.record.circuit.state == CircuitState::Closed
            && dest.record.circuit.counters.consecutive_failures == 0
            && dest.record.circuit.suspended == Suspended::default()
            && dest.bucket.as_mut().is_none_or(|bucket| bucket.is_full(now));
        let is_empty = dest.in_flight == 0
            && dest.retry_in_flight == 0
            && dest.first.is_at_rest()
            && dest.retry.is_at_rest()
            && dest.ramp.is_none();
        let is_known = dest.lost || is_healthy && dest.probe == ProbeStage::None;
        let alarms = [Alarm::Probe(ix), Alarm::Freeze(ix), Alarm::Tokens(ix), Alarm::Ramp(ix)];
        is_idle
            && is_empty
            && is_known
            && self.entries.of(ix) == 0
            && !self.held_back.contains(&ix)
            && !alarms.iter().any(|alarm| self.alarms.is_set(*alarm))
            && !self.commits.has(ix, self.dests[ix.get()].record.id)
    }
}
