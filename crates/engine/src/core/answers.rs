//! Passes the result of a read of the store to the module that asked for it.

use std::collections::HashMap;

use postrider_domain::delivery::Delivery;
use postrider_store::DueMark;

use super::arrivals::SharedEvents;
use super::destinations::LoadId;
use super::messages::{Action, Events, Fetch, Load, OnDelivery};
use super::state::Core;
use crate::handle::CommandError;

/// The most deliveries of a read whose events are read too.
const FETCHED_MAX: usize = 1_000;

impl Core {
    /// Handles the result of a read. If another node accepted the deliveries, their events are read
    /// first, all at once and not one by one when they are sent.
    pub(super) fn loaded(&mut self, id: LoadId, rows: Vec<Delivery>, next_ticket: u64) {
        let is_first_lane = self.reads.is_of_first_lane(id);
        if is_first_lane && self.shards.are_shared() {
            let is_new = |row: &&Delivery| {
                !self.table.entries.contains_key(&row.id) && !self.commits.is_dirty(row.id)
            };
            let new = rows.iter().filter(is_new).take(FETCHED_MAX);
            let wanted: Vec<_> = new.map(|row| (row.tenant.clone(), row.event.clone())).collect();
            if !wanted.is_empty() {
                self.actions.push(Action::Fetch(Fetch { load: id, rows, next_ticket, wanted }));
                return;
            }
        }
        self.fetched(id, rows, next_ticket, HashMap::new());
    }

    /// Handles the result of a read together with some of the events.
    pub(super) fn fetched(
        &mut self,
        id: LoadId,
        rows: Vec<Delivery>,
        next_ticket: u64,
        events: Events,
    ) {
        let Some((load, command)) = self.close_load(id) else { return };
        let events: SharedEvents =
            events.into_iter().map(|(key, event)| (key, self.share(event))).collect();
        self.take_loaded(id, load, command, rows, next_ticket, &events);
        self.reads_ended();
    }

    fn take_loaded(
        &mut self,
        id: LoadId,
        load: Load,
        command: Option<OnDelivery>,
        mut rows: Vec<Delivery>,
        next_ticket: u64,
        events: &SharedEvents,
    ) {
        // A delivery that another node owned when the read began may have changed since.
        let is_known = |destination| {
            let ix = self.table.dest_ix(destination);
            ix.is_none_or(|ix| self.table.dests[ix.get()].known_since <= id)
        };
        if load.destination().is_some_and(|destination| !is_known(destination)) {
            return;
        }
        let asked = rows.len();
        let last = rows.last().map(|row| DueMark { at: row.created_at, delivery: row.id });
        if !matches!(load, Load::Candidates { .. }) {
            rows.retain(|row| is_known(row.destination));
        }
        match load {
            Load::Due { until, limit, .. } => self.due_loaded(rows, asked < limit, until),
            Load::Backlog { limit, .. } => {
                self.reads.seen.remember(next_ticket, &rows, self.inbox.oldest_ticket());
                self.backlog_loaded(rows, last, asked < limit, events);
            }
            Load::Queued { destination, limit } => {
                self.reads.seen.remember(next_ticket, &rows, self.inbox.oldest_ticket());
                if let Some(ix) = self.table.dest_ix(destination) {
                    self.queued_loaded(ix, rows, limit, events);
                }
            }
            Load::Overdue { destination, limit } => {
                if let Some(ix) = self.table.dest_ix(destination) {
                    self.overdue_loaded(ix, rows, limit);
                }
            }
            Load::Probe { destination, limit, .. } => {
                if let Some(ix) = self.table.dest_ix(destination) {
                    self.probe_candidates(ix, rows, limit);
                }
            }
            Load::Drain { destination, limit } => {
                if let Some(ix) = self.table.dest_ix(destination) {
                    self.drain_loaded(ix, rows, limit);
                }
            }
            Load::Unfinished { tenant, subscription, .. } => {
                self.unfinished_loaded(tenant, subscription, rows, asked == 0);
            }
            Load::Candidates { job, limit } => self.candidates_loaded(id, &job, rows, limit),
            Load::One { .. } => match command {
                Some(command) if rows.len() < asked => command.refuse(CommandError::Moved),
                Some(command) => self.change_delivery(command, rows.into_iter().next()),
                None => {}
            },
        }
    }
}
