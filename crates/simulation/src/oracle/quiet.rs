//! Checks while the world is idle: nothing is overdue.

use super::circuit::State;
use super::{Oracle, Stand};

/// How long a delivery may be overdue while its destination is idle.
const REST_MS: i64 = 1_000;

impl Oracle {
    /// Checks, while the world is idle, that nothing is overdue.
    pub fn check_rest(&mut self, now: i64) {
        self.tick(now);
        let rest = REST_MS + self.slack;
        if self.is_disturbed() || now < self.up_at + rest {
            return;
        }
        let mut found = Vec::new();
        let open = self.open.values().flatten();
        for (id, owed) in open.filter_map(|id| Some((id, self.owed.get(id)?))) {
            let due = match owed.stand {
                Stand::Queued => owed.created_at,
                Stand::Waiting { due, .. } => due,
                Stand::Delivered | Stand::Dead | Stand::Cancelled => continue,
            };
            let Some(dest) = self.destinations.get(&owed.destination) else { continue };
            let rested = now - due.max(self.up_at).max(dest.idle_from).max(owed.since);
            if owed.in_flight == 0 && dest.in_flight == 0 && !dest.paced && rested > rest {
                found.push((*id, format!("due for {rested} ms, and nothing happens")));
            }
        }
        for (id, dest) in &self.destinations {
            let model = &dest.model;
            let is_time = now - model.last_success > self.rules.freeze_after_ms + rest;
            let is_over = model.consecutive > self.rules.freeze_over;
            if model.state != State::Frozen && is_over && is_time && !self.may_suspend() {
                self.violations.push(super::Violation {
                    at: now,
                    what: "not frozen on time".into(),
                    delivery: None,
                    destination: Some(*id),
                });
            }
            let from = match model.state {
                State::Open { probe_at } => probe_at.max(self.up_at),
                // A probe that was in flight when the process ended is lost.
                State::HalfOpen { probe, probed_at } => {
                    if self.owed.get(&probe).is_some_and(|owed| owed.in_flight > 0) {
                        continue;
                    }
                    (probed_at + self.rules.probe_ms).max(self.up_at)
                }
                State::Closed | State::Frozen => continue,
            };
            let waits = self.open_at(*id).find(|(_, owed)| {
                matches!(owed.stand, Stand::Waiting { .. })
                    && owed.in_flight == 0
                    && now - from.max(owed.since).max(owed.landed_at) > rest
            });
            if let Some((waiting, _)) = waits {
                found.push((waiting, format!("no probe for {} ms", now - from)));
            }
        }
        for (id, what) in found {
            self.violate(what, Some(id), None);
        }
    }

    /// Checks that every delivery has ended, long after all faults ended at `healed_at`.
    ///
    /// Postrider's own events may have come later, and so may deliveries that a job replays at its
    /// rate. Returns whether there are such.
    pub fn check_end(&mut self, now: i64, healed_at: i64) -> bool {
        self.tick(now);
        let left = self
            .owed
            .iter()
            .filter(|(_, owed)| matches!(owed.stand, Stand::Queued | Stand::Waiting { .. }));
        let (left, later): (Vec<_>, Vec<_>) =
            left.map(|(id, owed)| (*id, owed.begun)).partition(|(_, at)| *at <= healed_at);
        for (id, _) in left {
            self.violate("has not ended, long after everything was healed".into(), Some(id), None);
        }
        self.check_replayed();
        let (kept, counted) = (self.ledger(None), self.recount());
        if kept != counted {
            self.violate(format!("the model kept {kept:?} and counts {counted:?}"), None, None);
        }
        if self.in_flight > 0 {
            self.violate(format!("{} attempts never end", self.in_flight), None, None);
        }
        !later.is_empty()
    }
}
