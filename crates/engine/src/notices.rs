//! Tells the owners of subscriptions whose filters exceed their budget: at once the first time,
//! then at most once an hour, with the number of events since.
//!
//! A notice for each event would double the load. All occurrences are also counted
//! ([`crate::Gauges::filters_over_budget`]).

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use postrider_domain::ids::{EventId, SubscriptionId, TenantId};
use postrider_domain::time::Timestamp;
use tokio::sync::{broadcast, mpsc};

use crate::live::EngineEvent;

/// The pause between two notices of one subscription.
const EVERY: Duration = Duration::from_secs(60 * 60);
/// How many subscriptions are remembered; beyond that occurrences are only counted.
const REMEMBERED_MAX: usize = 10_000;

/// For each subscription whose filter exceeded its budget: when its owner was last notified, and how
/// many events have exceeded the budget since then.
pub(crate) struct Notices {
    known: Mutex<HashMap<SubscriptionId, Notice>>,
    /// Makes an operational event of each notice, for the tenant.
    tenants: mpsc::Sender<EngineEvent>,
    /// Listeners of the live stream.
    live: broadcast::Sender<EngineEvent>,
}

struct Notice {
    tenant: TenantId,
    told_at: Timestamp,
    /// Events that exceeded the budget since the last notice.
    events: u64,
    last: EventId,
}

impl Notice {
    /// Makes the notice, and starts to count again from zero.
    fn tell(&mut self, subscription: SubscriptionId, now: Timestamp) -> EngineEvent {
        let since = std::mem::replace(&mut self.told_at, now);
        EngineEvent::FilterOverBudget {
            tenant: self.tenant.clone(),
            subscription,
            events: std::mem::take(&mut self.events),
            last: self.last.clone(),
            since,
        }
    }
}

impl Notices {
    pub(crate) fn new(
        tenants: mpsc::Sender<EngineEvent>,
        live: broadcast::Sender<EngineEvent>,
    ) -> Self {
        Notices { known: Mutex::default(), tenants, live }
    }

    /// Records that a filter exceeded its budget on an accepted event.
    pub(crate) fn note(
        &self,
        tenant: &TenantId,
        subscription: SubscriptionId,
        event: &EventId,
        now: Timestamp,
    ) {
        let mut known = self.known();
        if known.len() >= REMEMBERED_MAX && !known.contains_key(&subscription) {
            return;
        }
        let mut is_first = false;
        let notice = known.entry(subscription).or_insert_with(|| {
            is_first = true;
            Notice { tenant: tenant.clone(), told_at: now, events: 0, last: event.clone() }
        });
        notice.events += 1;
        notice.last = event.clone();
        let told = (is_first || is_due(notice, now)).then(|| notice.tell(subscription, now));
        drop(known);
        told.into_iter().for_each(|told| self.publish(told));
    }

    /// Whether there may be notices to send later.
    pub(crate) fn are_pending(&self) -> bool {
        !self.known().is_empty()
    }

    /// Sends the notices whose last one was long enough ago.
    pub(crate) fn flush(&self, now: Timestamp) {
        let mut known = self.known();
        let due = known.iter_mut().filter(|(_, notice)| is_due(notice, now) && notice.events > 0);
        let told: Vec<EngineEvent> = due.map(|(id, notice)| notice.tell(*id, now)).collect();
        known.retain(|_, notice| !is_due(notice, now));
        drop(known);
        told.into_iter().for_each(|told| self.publish(told));
    }

    fn publish(&self, told: EngineEvent) {
        // If the channel is full, the notice is dropped; it is counted all the same.
        drop(self.tenants.try_send(told.clone()));
        // Sending fails if nobody listens, which is no error.
        drop(self.live.send(told));
    }

    fn known(&self) -> MutexGuard<'_, HashMap<SubscriptionId, Notice>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_due(notice: &Notice, now: Timestamp) -> bool {
    now.since(notice.told_at) >= EVERY
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_is_told_at_once_and_then_once_an_hour_with_the_number_of_events() {
        let (tenants, mut told) = mpsc::channel(16);
        let notices = Notices::new(tenants, broadcast::Sender::new(16));
        let (tenant, id) = (TenantId::default_tenant(), SubscriptionId::from_bytes([7; 16]));
        let at = |minutes: u64| Timestamp::EPOCH.saturating_add(Duration::from_secs(minutes * 60));
        let event = |n: u8| EventId::new(Timestamp::EPOCH, [n; 10]);
        for n in 0..10 {
            notices.note(&tenant, id, &event(n), at(u64::from(n)));
        }
        notices.flush(at(59));
        let mut counts = || {
            std::iter::from_fn(|| told.try_recv().ok())
                .map(|told| {
                    let EngineEvent::FilterOverBudget { events, last, .. } = told else {
                        panic!("{told:?}");
                    };
                    (events, last)
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(counts(), [(1, event(0))]);
        notices.flush(at(60));
        assert_eq!(counts(), [(9, event(9))]);
        notices.flush(at(180));
        assert_eq!(counts(), [], "nothing has happened since, and it is forgotten");
        assert!(notices.known().is_empty());
        notices.note(&tenant, id, &event(11), at(181));
        assert_eq!(counts(), [(1, event(11))]);
    }
}
