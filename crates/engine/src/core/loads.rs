//! Reads of the store: what was asked, and what the answers mean.
//!
//! An answer may be older than what is known here. Nothing of it counts where the delivery is in
//! memory, or has changed since and is not durable yet.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use postrider_domain::delivery::{CancelReason, Delivery, Lane};
use postrider_domain::event::Event;
use postrider_domain::ids::{DeliveryId, DestinationId, EventId, SubscriptionId, TenantId};
use postrider_domain::time::Timestamp;
use postrider_store::{DueMark, ReplayJob};

use super::commands::Wish;
use super::commits::Ack;
use super::due::LAST_ID;
use super::queue::DestIx;
use super::{Action, Core};
use crate::handle::CommandError;
use crate::loaded::Loaded;

/// The number of a read.
pub(crate) type LoadId = u64;

/// Events by what they are called.
pub(crate) type Events = HashMap<(TenantId, EventId), Arc<Event>>;

/// The same, as deliveries share them.
type SharedEvents = HashMap<(TenantId, EventId), Arc<Loaded>>;

/// Deliveries that were read, and whose events are to be read as well.
#[derive(Debug)]
pub(crate) struct Fetch {
    pub(crate) load: LoadId,
    pub(crate) rows: Vec<Delivery>,
    pub(crate) next_ticket: u64,
    pub(crate) wanted: Vec<(TenantId, EventId)>,
}

/// Deliveries whose events are read together with them.
const FETCHED_MAX: usize = 1_000;

/// What is to be read.
#[derive(Debug, Clone)]
pub(crate) enum Load {
    /// Waiting deliveries, by their due time.
    Due { after: Option<DueMark>, until: Timestamp, limit: usize },
    /// Queued deliveries of all destinations.
    Backlog { after: Option<DueMark>, limit: usize },
    /// Queued deliveries of one destination.
    Queued { destination: DestinationId, limit: usize },
    /// Waiting deliveries of one destination, those that are due soonest first.
    Overdue { destination: DestinationId, limit: usize },
    /// Waiting deliveries of one destination, in the rank of probes.
    Probe { destination: DestinationId, limit: usize },
    /// Waiting deliveries of one destination, oldest first, to be sent at once.
    Drain { destination: DestinationId, limit: usize },
    /// Unfinished deliveries of a subscription, to be cancelled.
    Unfinished { tenant: TenantId, subscription: SubscriptionId, limit: usize },
    /// What a replay job is to replay next.
    Candidates { job: Box<ReplayJob>, limit: usize },
    /// One delivery.
    One { tenant: TenantId, delivery: DeliveryId },
}

impl Load {
    /// The destination that a read is about, where it is one.
    fn destination(&self) -> Option<DestinationId> {
        match self {
            Load::Queued { destination, .. }
            | Load::Overdue { destination, .. }
            | Load::Probe { destination, .. }
            | Load::Drain { destination, .. } => Some(*destination),
            Load::Due { .. }
            | Load::Backlog { .. }
            | Load::Unfinished { .. }
            | Load::Candidates { .. }
            | Load::One { .. } => None,
        }
    }
}

/// Reads that are under way.
#[derive(Default)]
pub(super) struct Loads {
    next: LoadId,
    /// `None` where a destination is read.
    open: BTreeMap<LoadId, Option<(Load, Option<Wish>)>>,
    backlog: Backlog,
}

/// How far the queued deliveries of all destinations have been read.
#[derive(Debug, Default, Clone, Copy)]
struct Backlog {
    /// Where the next page begins, while there is one.
    next: Option<Option<DueMark>>,
    is_loading: bool,
    /// What was accepted from here on is to be looked through once more.
    wanted: Option<Timestamp>,
}

impl Loads {
    /// A mark that no read which is under way has passed; `None` where none is.
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
}

/// What reads of queued deliveries have brought while acceptances were on their way to the lanes:
/// the same delivery may come by both.
#[derive(Default)]
pub(super) struct Seen {
    pages: VecDeque<(u64, HashSet<DeliveryId>)>,
}

impl Seen {
    /// Whether a read has brought what this acceptance hands over.
    pub(super) fn has(&self, ticket: u64, id: DeliveryId) -> bool {
        self.pages.iter().any(|(next, ids)| ticket < *next && ids.contains(&id))
    }

    fn remember(&mut self, next_ticket: u64, rows: &[Delivery], oldest: Option<u64>) {
        self.pages.retain(|(next, _)| oldest.is_some_and(|oldest| oldest < *next));
        if oldest.is_some_and(|oldest| oldest < next_ticket) {
            self.pages.push_back((next_ticket, rows.iter().map(|row| row.id).collect()));
        }
    }
}

impl Core {
    pub(super) fn load(&mut self, load: Load) {
        self.load_for(load, None);
    }

    pub(super) fn load_for(&mut self, load: Load, wish: Option<Wish>) {
        let id = self.loads.next;
        self.loads.next += 1;
        self.actions.push(Action::Load(id, load.clone()));
        self.loads.open.insert(id, Some((load, wish)));
    }

    /// A read has ended. Where another node accepted what it brought, the events are read before it
    /// counts as ended: all of them at once, and not one by one when they are sent.
    pub(super) fn loaded(&mut self, id: LoadId, rows: Vec<Delivery>, next_ticket: u64) {
        let is_first_lane = matches!(
            self.loads.open.get(&id),
            Some(Some((Load::Backlog { .. } | Load::Queued { .. }, _)))
        );
        if is_first_lane && self.held_until.is_some() {
            let is_new = |row: &&Delivery| {
                !self.entries.contains_key(&row.id) && !self.commits.is_dirty(row.id)
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

    /// A read has ended, with some of the events.
    pub(super) fn fetched(
        &mut self,
        id: LoadId,
        rows: Vec<Delivery>,
        next_ticket: u64,
        events: Events,
    ) {
        let Some(Some((load, wish))) = self.loads.open.remove(&id) else { return };
        let events: SharedEvents =
            events.into_iter().map(|(key, event)| (key, self.share(event))).collect();
        self.take_loaded(id, load, wish, rows, next_ticket, &events);
        self.reads_ended();
    }

    fn take_loaded(
        &mut self,
        id: LoadId,
        load: Load,
        wish: Option<Wish>,
        mut rows: Vec<Delivery>,
        next_ticket: u64,
        events: &SharedEvents,
    ) {
        // What another node owned when this read began may have moved on since.
        let is_known = |destination| {
            let ix = self.dest_ix(destination);
            ix.is_none_or(|ix| self.dests[ix.get()].known_since <= id)
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
                self.seen.remember(next_ticket, &rows, self.inbox.oldest_ticket());
                self.backlog_loaded(rows, last, asked < limit, events);
            }
            Load::Queued { destination, limit } => {
                self.seen.remember(next_ticket, &rows, self.inbox.oldest_ticket());
                if let Some(ix) = self.dest_ix(destination) {
                    self.queued_loaded(ix, rows, limit, events);
                }
            }
            Load::Overdue { destination, limit } => {
                if let Some(ix) = self.dest_ix(destination) {
                    self.overdue_loaded(ix, rows, limit);
                }
            }
            Load::Probe { destination, limit } => {
                if let Some(ix) = self.dest_ix(destination) {
                    self.probe_candidates(ix, rows, limit);
                }
            }
            Load::Drain { destination, limit } => {
                if let Some(ix) = self.dest_ix(destination) {
                    self.drain_loaded(ix, rows, limit);
                }
            }
            Load::Unfinished { tenant, subscription, .. } => {
                self.unfinished_loaded(tenant, subscription, rows, asked == 0);
            }
            Load::Candidates { job, limit } => self.candidates_loaded(id, &job, rows, limit),
            Load::One { .. } => match wish {
                Some(wish) if rows.len() < asked => wish.refuse(CommandError::Moved),
                Some(wish) => self.grant(wish, rows.into_iter().next()),
                None => {}
            },
        }
    }

    /// A destination is being read from now on.
    pub(super) fn open_find(&mut self) -> LoadId {
        let id = self.loads.next;
        self.loads.next += 1;
        self.loads.open.insert(id, None);
        id
    }

    /// A destination was read.
    pub(super) fn close_find(&mut self, id: LoadId) {
        self.loads.open.remove(&id);
        self.reads_ended();
    }

    fn reads_ended(&mut self) {
        let oldest = self.loads.open.keys().next().copied().unwrap_or(LoadId::MAX);
        self.commits.reads_ended(oldest);
    }

    pub(super) fn dest_ix(&self, id: DestinationId) -> Option<DestIx> {
        self.dest_by_id.get(&id).copied()
    }

    /// Begins to read what was queued before the start.
    pub(crate) fn begin_backlog(&mut self) {
        self.scan_from(Timestamp::EPOCH);
    }

    /// Wants everything looked through that was accepted then or later.
    pub(super) fn scan_from(&mut self, since: Timestamp) {
        let wanted = &mut self.loads.backlog.wanted;
        *wanted = Some(wanted.map_or(since, |before| before.min(since)));
    }

    pub(super) fn scan_backlog(&mut self) {
        let Backlog { next, is_loading, wanted } = self.loads.backlog;
        if is_loading || self.shutdown.is_begun() {
            return;
        }
        let after = match (next, wanted) {
            (None, None) => return,
            (Some(after), Some(since)) if after.is_some_and(|mark| mark.at < since) => {
                // What is wanted is still to come.
                self.loads.backlog.wanted = None;
                after
            }
            (Some(after), _) => after,
            (None, Some(since)) => {
                self.loads.backlog.wanted = None;
                (since > Timestamp::EPOCH).then(|| DueMark {
                    at: since.saturating_sub(Duration::from_millis(1)),
                    delivery: LAST_ID,
                })
            }
        };
        // Whatever is in memory: a lane that has nothing there must not wait for others. What does
        // not fit into its lane is not kept.
        self.loads.backlog.next = Some(after);
        self.loads.backlog.is_loading = true;
        self.load(Load::Backlog { after, limit: self.options.page });
    }

    fn backlog_loaded(
        &mut self,
        rows: Vec<Delivery>,
        last: Option<DueMark>,
        is_complete: bool,
        events: &SharedEvents,
    ) {
        self.loads.backlog.is_loading = false;
        self.loads.backlog.next = if is_complete { None } else { Some(last) };
        self.arrive_all(rows, events);
    }

    fn arrive_all(&mut self, rows: Vec<Delivery>, events: &SharedEvents) {
        for row in rows {
            let event = events.get(&(row.tenant.clone(), row.event.clone())).cloned();
            self.arrive(row, event);
        }
    }

    fn queued_loaded(
        &mut self,
        ix: DestIx,
        rows: Vec<Delivery>,
        limit: usize,
        events: &SharedEvents,
    ) {
        let (before, complete) = (self.entries.len(), rows.len() < limit);
        self.arrive_all(rows, events);
        let grew = self.entries.len() > before;
        let low = self.lane_cap() / 2;
        let queue = &mut self.dests[ix.get()].first;
        queue.loading = false;
        queue.spilled |= !complete;
        if !queue.spilled || queue.len > low {
            return;
        }
        if grew {
            self.read_back_soon(ix, Lane::First);
        } else {
            // All of these are dealt with already; the store does not know it yet.
            self.commits.when_durable(Ack::ReadBack(ix, Lane::First));
        }
    }

    /// A subscription is gone: what it still owed is cancelled, page by page.
    pub(crate) fn cancel_all(&mut self, tenant: TenantId, subscription: SubscriptionId) {
        self.load(Load::Unfinished { tenant, subscription, limit: self.options.page });
    }

    fn unfinished_loaded(
        &mut self,
        tenant: TenantId,
        subscription: SubscriptionId,
        rows: Vec<Delivery>,
        is_none_left: bool,
    ) {
        if is_none_left {
            self.actions.push(Action::Forget(tenant, subscription));
            return;
        }
        // What is another node's to cancel, that one cancels.
        let ours = |row: &Delivery| self.holding.has(row.destination.shard());
        let rows: Vec<Delivery> = rows.into_iter().filter(ours).collect();
        if rows.is_empty() {
            return;
        }
        for row in rows {
            if self.entries.contains_key(&row.id) {
                self.cancel_resident(row.id, CancelReason::SubscriptionDeleted);
            } else {
                let newest = self.commits.dirty(row.id).cloned().unwrap_or(row);
                self.cancel_absent(&newest, CancelReason::SubscriptionDeleted);
            }
        }
        self.commits.when_durable(Ack::Unfinished(tenant, subscription));
    }
}

#[cfg(test)]
mod tests {
    use postrider_domain::delivery::DeliveryState;
    use postrider_domain::ids::EventId;

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
    fn what_a_read_brought_is_known_to_every_acceptance_that_began_before_its_end() {
        let mut seen = Seen::default();
        let id = |n: u8| DeliveryId::from_bytes([n; 16]);
        seen.remember(5, &[row(1), row(2)], Some(3));
        assert!(seen.has(3, id(1)) && seen.has(4, id(2)));
        assert!(!seen.has(5, id(1)), "it began after the read");
        assert!(!seen.has(3, id(3)), "the read did not bring it");
        // When all of those are through, it is forgotten.
        seen.remember(9, &[row(3)], Some(7));
        assert!(!seen.has(4, id(1)));
        assert!(seen.has(7, id(3)));
        seen.remember(12, &[row(4)], None);
        assert_eq!(seen.pages.len(), 0, "nothing is under way: nothing to remember");
    }
}
