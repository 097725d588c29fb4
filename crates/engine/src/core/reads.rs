//! Running reads of the store, and deliveries that were both read and handed over.
//!
//! A result may be older than the state in memory. A row is ignored if its delivery is in memory,
//! or has changed since and is not durable yet.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::time::Duration;

use postrider_domain::delivery::Delivery;
use postrider_domain::ids::DeliveryId;
use postrider_domain::time::Timestamp;
use postrider_store::DueMark;

use super::destinations::LoadId;
use super::messages::{Action, Load, OnDelivery, WantedEvent};
use super::state::Core;

/// Sorts after every delivery with the same due time.
pub(super) const LAST_ID: DeliveryId = DeliveryId::from_bytes([u8::MAX; 16]);

/// The running reads, and what they have returned.
#[derive(Default)]
pub(super) struct Reads {
    next: LoadId,
    /// The parameters of each read; `None` for the lookup of a destination.
    open: BTreeMap<LoadId, Option<(Load, Option<OnDelivery>)>>,
    backlog: Backlog,
    /// Deliveries that hold in-flight capacity and whose events are to be read.
    events: Vec<WantedEvent>,
    pub(super) seen: Seen,
}

/// The progress of reading the queued deliveries of all destinations.
#[derive(Debug, Default, Clone, Copy)]
struct Backlog {
    /// Where the next page begins; `None` if everything is read.
    next: Option<Option<DueMark>>,
    is_loading: bool,
    /// Deliveries accepted from this time on are to be read again.
    wanted: Option<Timestamp>,
}

impl Reads {
    /// The number of the next read, if any read is running: those running now have lower numbers.
    pub(super) fn barrier(&self) -> Option<LoadId> {
        (!self.open.is_empty()).then_some(self.next)
    }

    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// The number of the next read.
    pub(super) fn next(&self) -> LoadId {
        self.next
    }

    /// Whether this running read is one of queued deliveries.
    pub(super) fn is_of_first_lane(&self, id: LoadId) -> bool {
        matches!(self.open.get(&id), Some(Some((Load::Backlog { .. } | Load::Queued { .. }, _))))
    }

    /// A page of queued deliveries was read; `next` is where the next page begins, if there is one.
    pub(super) fn backlog_read(&mut self, next: Option<Option<DueMark>>) {
        self.backlog.is_loading = false;
        self.backlog.next = next;
    }
}

/// Queued deliveries that were read from the store, or cancelled while they were not in memory,
/// during running acceptances. An acceptance may hand over the same delivery later, with an
/// outdated state.
#[derive(Default)]
pub(super) struct Seen {
    pages: VecDeque<(u64, HashSet<DeliveryId>)>,
}

impl Seen {
    /// Whether the delivery that this acceptance hands over was seen already.
    pub(super) fn has(&self, ticket: u64, id: DeliveryId) -> bool {
        self.pages.iter().any(|(next, ids)| ticket < *next && ids.contains(&id))
    }

    pub(super) fn remember(&mut self, next_ticket: u64, rows: &[Delivery], oldest: Option<u64>) {
        self.pages.retain(|(next, _)| oldest.is_some_and(|oldest| oldest < *next));
        if oldest.is_none_or(|oldest| oldest >= next_ticket) {
            return;
        }
        let ids = rows.iter().map(|row| row.id);
        match self.pages.back_mut() {
            Some((next, known)) if *next == next_ticket => known.extend(ids),
            Some(_) | None => self.pages.push_back((next_ticket, ids.collect())),
        }
    }
}

impl Core {
    pub(super) fn load(&mut self, load: Load) {
        self.load_for(load, None);
    }

    pub(super) fn load_for(&mut self, load: Load, command: Option<OnDelivery>) {
        let id = self.reads.next;
        self.reads.next += 1;
        self.actions.push(Action::Load(id, load.clone()));
        self.reads.open.insert(id, Some((load, command)));
    }

    /// Ends a read; returns its parameters, and the command that waits for it.
    pub(super) fn close_load(&mut self, id: LoadId) -> Option<(Load, Option<OnDelivery>)> {
        self.reads.open.remove(&id)?
    }

    /// Requests the event of a delivery; it is read together with those of others.
    pub(super) fn want_event(&mut self, id: DeliveryId) {
        if let Some(entry) = self.table.entries.get(&id) {
            let (tenant, event) = (entry.delivery.tenant.clone(), entry.delivery.event.clone());
            self.reads.events.push(WantedEvent { delivery: id, tenant, event });
        }
    }

    /// Reads the requested events, a page at a time.
    pub(super) fn read_events(&mut self) {
        while !self.reads.events.is_empty() {
            let at = self.reads.events.len().min(self.options.page);
            let rest = self.reads.events.split_off(at);
            let page = std::mem::replace(&mut self.reads.events, rest);
            self.actions.push(Action::ReadEvents(page));
        }
    }

    /// Begins the lookup of a destination.
    pub(super) fn begin_lookup(&mut self) -> LoadId {
        let id = self.reads.next;
        self.reads.next += 1;
        self.reads.open.insert(id, None);
        id
    }

    /// Ends the lookup of a destination.
    pub(super) fn end_lookup_read(&mut self, id: LoadId) {
        self.reads.open.remove(&id);
        self.reads_ended();
    }

    pub(super) fn reads_ended(&mut self) {
        let oldest = self.reads.open.keys().next().copied().unwrap_or(LoadId::MAX);
        self.commits.reads_ended(oldest);
    }

    /// Begins to read all queued deliveries.
    pub(crate) fn begin_backlog(&mut self) {
        self.scan_from(Timestamp::EPOCH);
    }

    /// Requests to read all deliveries accepted at this time or later.
    pub(super) fn scan_from(&mut self, since: Timestamp) {
        let wanted = &mut self.reads.backlog.wanted;
        *wanted = Some(wanted.map_or(since, |before| before.min(since)));
    }

    pub(super) fn scan_backlog(&mut self) {
        let Backlog { next, is_loading, wanted } = self.reads.backlog;
        if is_loading || self.shutdown.is_begun() {
            return;
        }
        let after = match (next, wanted) {
            (None, None) => return,
            (Some(after), Some(since)) if after.is_some_and(|mark| mark.at < since) => {
                // The running scan will still reach that time.
                self.reads.backlog.wanted = None;
                after
            }
            (Some(after), _) => after,
            (None, Some(since)) => {
                self.reads.backlog.wanted = None;
                (since > Timestamp::EPOCH).then(|| DueMark {
                    at: since.saturating_sub(Duration::from_millis(1)),
                    delivery: LAST_ID,
                })
            }
        };
        // Read regardless of how full memory is: a lane without deliveries in memory must not wait
        // for others. Deliveries that do not fit into their lane are dropped.
        self.reads.backlog.next = Some(after);
        self.reads.backlog.is_loading = true;
        self.load(Load::Backlog { after, limit: self.options.page });
    }
}

#[cfg(test)]
mod tests {
    use postrider_domain::delivery::DeliveryState;
    use postrider_domain::ids::{DestinationId, EventId, SubscriptionId, TenantId};

    use super::*;

    fn row(n: u8) -> Delivery {
        Delivery {
            id: DeliveryId::from_bytes([n; 16]),
            tenant: TenantId::default_tenant(),
            event: EventId::new(Timestamp::EPOCH, [n; 10]),
            subscription: SubscriptionId::from_bytes([1; 16]),
            destination: DestinationId::of(&TenantId::default_tenant(), "a"),
            kind: "task.updated".parse().unwrap(),
            created_at: Timestamp::EPOCH,
            state: DeliveryState::Queued,
            attempts: 0,
            last_attempt_at: None,
        }
    }

    #[test]
    fn read_deliveries_are_remembered_for_every_acceptance_that_began_before_the_end_of_the_read() {
        let mut seen = Seen::default();
        let id = |n: u8| DeliveryId::from_bytes([n; 16]);
        seen.remember(5, &[row(1), row(2)], Some(3));
        assert!(seen.has(3, id(1)) && seen.has(4, id(2)));
        assert!(!seen.has(5, id(1)), "it began after the read");
        assert!(!seen.has(3, id(3)), "the read did not bring it");
        seen.remember(5, &[row(9)], Some(3));
        assert!(seen.has(4, id(1)) && seen.has(4, id(9)) && seen.pages.len() == 1);
        // When all acceptances before the read have ended, the delivery is forgotten.
        seen.remember(9, &[row(3)], Some(7));
        assert!(!seen.has(4, id(1)));
        assert!(seen.has(7, id(3)));
        seen.remember(12, &[row(4)], None);
        assert_eq!(seen.pages.len(), 0, "nothing is under way: nothing to remember");
    }
}
