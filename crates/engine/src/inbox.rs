//! Passes accepted deliveries from the caller's task to the lanes, without loss and without
//! waiting.
//!
//! Deliveries that do not fit are not lost: they are durable already, and their destination is
//! marked as having more in the store. A ticket is held from before the write until the lanes have
//! the deliveries (or they were dropped), so that the lanes know which reads of the store may
//! overlap with a later handover.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use postrider_domain::delivery::Delivery;
use postrider_domain::event::Event;
use postrider_domain::ids::{DestinationId, TenantId};
use postrider_transport::pause;
use tokio::sync::{Notify, mpsc};

/// When to look again for a write whose outcome is unknown. It usually ends soon; at the last of
/// these times it certainly has.
const DOUBTS: [Duration; 3] =
    [Duration::from_secs(1), Duration::from_secs(5), Duration::from_secs(60)];

/// The path from ingest to the lanes.
pub(crate) struct Inbox {
    sender: mpsc::Sender<Handover>,
    deliveries_max: usize,
    waiting: Mutex<Waiting>,
    tickets: Mutex<Tickets>,
    spilled: Mutex<BTreeMap<DestinationId, TenantId>>,
    pub(crate) spilled_notice: Notify,
}

/// How many deliveries are on their way to the lanes.
#[derive(Default)]
struct Waiting {
    all: usize,
    of: HashMap<TenantId, usize>,
}

#[derive(Default)]
struct Tickets {
    next: u64,
    open: BTreeSet<u64>,
}

/// Durable deliveries of one tenant on their way to the lanes.
pub(crate) struct Handover {
    pub(crate) tenant: TenantId,
    pub(crate) ticket: Arc<Ticket>,
    pub(crate) items: VecDeque<(Arc<Event>, Delivery)>,
}

impl Handover {
    /// Splits off this many deliveries from the front. The rest is not moved: there may be a
    /// million.
    pub(crate) fn cut(&mut self, count: usize) -> Handover {
        let items = self.items.drain(..count.min(self.items.len())).collect();
        Handover { tenant: self.tenant.clone(), ticket: Arc::clone(&self.ticket), items }
    }
}

/// A running acceptance. Dropping it means that the lanes will get no more deliveries from it.
pub(crate) struct Ticket {
    inbox: Arc<Inbox>,
    pub(crate) number: u64,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.inbox.tickets().open.remove(&self.number);
    }
}

/// The destinations of a running acceptance. If it is dropped before the handover, because the
/// caller went away, the destinations are marked to be read again.
pub(crate) struct Pending {
    ticket: Option<Ticket>,
    tenant: TenantId,
    destinations: Vec<DestinationId>,
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(ticket) = &self.ticket {
            ticket.inbox.spill(&self.tenant, &self.destinations);
        }
    }
}

impl Inbox {
    pub(crate) fn new(
        batches_max: usize,
        deliveries_max: usize,
    ) -> (Arc<Self>, mpsc::Receiver<Handover>) {
        let (sender, receiver) = mpsc::channel(batches_max.max(1));
        let inbox = Inbox {
            sender,
            deliveries_max,
            waiting: Mutex::default(),
            tickets: Mutex::default(),
            spilled: Mutex::default(),
            spilled_notice: Notify::new(),
        };
        (Arc::new(inbox), receiver)
    }

    /// Begins an acceptance that may have deliveries for these destinations of a tenant.
    pub(crate) fn begin(
        self: &Arc<Self>,
        tenant: &TenantId,
        destinations: Vec<DestinationId>,
    ) -> Pending {
        let number = {
            let mut tickets = self.tickets();
            let number = tickets.next;
            tickets.next += 1;
            tickets.open.insert(number);
            number
        };
        let ticket = Ticket { inbox: Arc::clone(self), number };
        Pending { ticket: Some(ticket), tenant: tenant.clone(), destinations }
    }

    /// The number of the next acceptance: a read of the store that ended before now has none of its
    /// deliveries.
    pub(crate) fn next_ticket(&self) -> u64 {
        self.tickets().next
    }

    /// The number of the oldest running acceptance.
    pub(crate) fn oldest_ticket(&self) -> Option<u64> {
        self.tickets().open.first().copied()
    }

    /// Destinations that have more in the store than was handed over, since the last call.
    pub(crate) fn take_spilled(&self) -> BTreeMap<DestinationId, TenantId> {
        std::mem::take(&mut *self.spilled.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether this many deliveries of a tenant fit into the queue; if so, they are counted. A
    /// tenant uses at most half of it, so that the deliveries of others need not be read from the
    /// store because of it. A larger handover fits if nothing else of the tenant waits.
    fn admit(&self, tenant: &TenantId, deliveries: usize) -> bool {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let own = waiting.of.get(tenant).copied().unwrap_or(0);
        let half = self.deliveries_max / 2;
        let fits = |has: usize, most: usize| has.saturating_add(deliveries) <= most;
        if waiting.all != 0 && !fits(waiting.all, self.deliveries_max)
            || own != 0 && !fits(own, half)
        {
            return false;
        }
        waiting.all += deliveries;
        *waiting.of.entry(tenant.clone()).or_default() += deliveries;
        true
    }

    /// The lanes took this many deliveries of a tenant.
    pub(crate) fn took(&self, tenant: &TenantId, deliveries: usize) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.all = waiting.all.saturating_sub(deliveries);
        if let Some(own) = waiting.of.get_mut(tenant) {
            *own = own.saturating_sub(deliveries);
            if *own == 0 {
                waiting.of.remove(tenant);
            }
        }
    }

    fn spill(&self, tenant: &TenantId, destinations: &[DestinationId]) {
        if destinations.is_empty() {
            return;
        }
        let mut spilled = self.spilled.lock().unwrap_or_else(PoisonError::into_inner);
        spilled.extend(destinations.iter().map(|id| (*id, tenant.clone())));
        drop(spilled);
        self.spilled_notice.notify_one();
    }

    fn tickets(&self) -> MutexGuard<'_, Tickets> {
        self.tickets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pending {
    /// The deliveries are durable: hands them to the lanes, or marks them to be read.
    pub(crate) fn hand_over(mut self, items: Vec<(Arc<Event>, Delivery)>) {
        let Some(ticket) = self.ticket.take() else { return };
        if items.is_empty() {
            return;
        }
        let (inbox, count) = (Arc::clone(&ticket.inbox), items.len());
        let fits = inbox.admit(&self.tenant, count);
        let (tenant, items) = (self.tenant.clone(), items.into());
        let handover = Handover { tenant, ticket: Arc::new(ticket), items };
        if !fits || inbox.sender.try_send(handover).is_err() {
            if fits {
                inbox.took(&self.tenant, count);
            }
            inbox.spill(&self.tenant, &self.destinations);
        }
    }

    /// The outcome of the write is unknown: reads these destinations again after 1, 5 and 60 s,
    /// when every running write must have ended.
    pub(crate) fn doubt(mut self) {
        let Some(ticket) = self.ticket.take() else { return };
        let inbox = Arc::clone(&ticket.inbox);
        // Nothing will be handed over.
        drop(ticket);
        tokio::spawn(async move {
            inbox.spill(&self.tenant, &self.destinations);
            for doubt in DOUBTS {
                pause(doubt).await;
                inbox.spill(&self.tenant, &self.destinations);
            }
        });
    }

    /// The write failed: there are no deliveries.
    pub(crate) fn forget(mut self) {
        self.ticket = None;
    }
}

#[cfg(test)]
mod tests {
    use postrider_domain::event::RawJson;
    use postrider_domain::ids::{DeliveryId, EventId, SubscriptionId};
    use postrider_domain::time::Timestamp;

    use super::*;

    fn destination(n: u32) -> DestinationId {
        DestinationId::of(&TenantId::default_tenant(), &n.to_string())
    }

    fn tenant() -> TenantId {
        TenantId::default_tenant()
    }

    fn items(n: u8) -> Vec<(Arc<Event>, Delivery)> {
        let now = Timestamp::EPOCH;
        let event = Arc::new(Event {
            id: EventId::new(now, [1; 10]),
            tenant: TenantId::default_tenant(),
            kind: "task.updated".parse().unwrap(),
            object: None,
            data: RawJson::from_trusted("1".into()),
            old: None,
            time: now,
            trace: None,
        });
        let delivery = |n| {
            let subscription = SubscriptionId::from_bytes([1; 16]);
            Delivery::accepted(
                DeliveryId::new(now, [n; 10]),
                &event,
                subscription,
                destination(1),
                now,
            )
        };
        (0..n).map(|n| (Arc::clone(&event), delivery(n))).collect()
    }

    #[test]
    fn deliveries_that_do_not_fit_mark_their_destinations_for_a_read() {
        let (inbox, mut receiver) = Inbox::new(2, 6);
        inbox.begin(&tenant(), vec![destination(1)]).hand_over(items(2));
        assert!(inbox.take_spilled().is_empty());
        inbox.begin(&tenant(), vec![destination(2)]).hand_over(items(2));
        assert_eq!(
            inbox.take_spilled(),
            BTreeMap::from([(destination(2), tenant())]),
            "four are more than half of six"
        );
        inbox.begin(&tenant(), vec![destination(3)]).hand_over(items(1));
        inbox.begin(&tenant(), vec![destination(4)]).hand_over(items(0));
        assert!(inbox.take_spilled().is_empty());
        assert_eq!(receiver.try_recv().unwrap().items.len(), 2);
        assert_eq!(receiver.try_recv().unwrap().items.len(), 1);
        assert!(receiver.try_recv().is_err());
    }

    #[test]
    fn tenant_that_fills_its_half_leaves_the_other_half() {
        let (inbox, mut receiver) = Inbox::new(9, 6);
        let other: TenantId = "other".parse().unwrap();
        for _ in 0..3 {
            inbox.begin(&tenant(), vec![destination(1)]).hand_over(items(3));
        }
        inbox.begin(&other, vec![destination(2)]).hand_over(items(3));
        assert_eq!(inbox.take_spilled(), BTreeMap::from([(destination(1), tenant())]));
        let first = receiver.try_recv().unwrap();
        assert_eq!((&first.tenant, first.items.len()), (&tenant(), 3));
        let second = receiver.try_recv().unwrap();
        assert_eq!((&second.tenant, second.items.len()), (&other, 3));
        inbox.took(&tenant(), 3);
        inbox.begin(&tenant(), vec![destination(1)]).hand_over(items(3));
        assert!(inbox.take_spilled().is_empty());
    }

    #[test]
    fn dropped_acceptance_marks_its_destinations_for_a_second_read() {
        let (inbox, _receiver) = Inbox::new(2, 3);
        drop(inbox.begin(&tenant(), vec![destination(1)]));
        assert_eq!(inbox.take_spilled(), BTreeMap::from([(destination(1), tenant())]));
        inbox.begin(&tenant(), vec![destination(2)]).forget();
        assert!(inbox.take_spilled().is_empty());
    }

    #[test]
    fn ticket_is_open_until_the_lanes_have_all_deliveries() {
        let (inbox, mut receiver) = Inbox::new(2, 3);
        assert_eq!((inbox.oldest_ticket(), inbox.next_ticket()), (None, 0));
        let first = inbox.begin(&tenant(), vec![destination(1)]);
        let second = inbox.begin(&tenant(), vec![destination(2)]);
        assert_eq!((inbox.oldest_ticket(), inbox.next_ticket()), (Some(0), 2));
        second.hand_over(items(1));
        first.forget();
        assert_eq!(inbox.oldest_ticket(), Some(1), "it is still on its way");
        let handover = receiver.try_recv().unwrap();
        assert_eq!(handover.ticket.number, 1);
        drop(handover);
        assert_eq!(inbox.oldest_ticket(), None);
    }
}
