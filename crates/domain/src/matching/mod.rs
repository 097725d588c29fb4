//! Which subscriptions an event goes to.
//!
//! Matching costs what matches, not what exists: an event looks up the few patterns that its type
//! has, and below each the values that its fields have. Whatever is found that way is asked itself
//! ([`Subscription::verdict`]), so the index may find too much, but never decides anything.
//!
//! Nothing here crosses a tenant: every question names one. A [`TenantIndex`] is a snapshot that is
//! copied in no time and shares its memory with the next one, so nobody who matches holds a lock, and
//! a change costs the same however many subscriptions there are.
//!
//! What the filters of a tenant may take is counted in [`Work`]. Where a filter does not come to an
//! answer, its subscription is among those that get the event, and is named.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use rpds::{RedBlackTreeMapSync, RedBlackTreeSetSync};
use serde_json::Value;

use crate::event::Event;
use crate::filter::{Budget, EventView, Field, Filter, OverBudget, fingerprint};
use crate::ids::{DestinationId, SubscriptionId, TenantId};
use crate::limits;
use crate::mixing::STEP;
use crate::subscription::{Subscription, TypePattern};

/// Every subscription that a process knows, ready to be matched.
#[derive(Debug, Clone, Default)]
pub struct SubscriptionIndex {
    tenants: BTreeMap<TenantId, TenantIndex>,
}

/// The subscriptions of one tenant, as they were at one moment. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct TenantIndex {
    by_id: RedBlackTreeMapSync<SubscriptionId, Arc<Subscription>>,
    by_destination: RedBlackTreeSetSync<(DestinationId, SubscriptionId)>,
    by_twin_fingerprint: RedBlackTreeSetSync<(u64, SubscriptionId)>,
    /// Those that are enabled, once for each of their patterns.
    wishes: RedBlackTreeMapSync<Wish, Arc<Subscription>>,
    /// How many of the wishes cannot be decided without parsing the event.
    needing_json: usize,
}

/// Where a subscription is looked up: by its pattern, then by what it pins.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Wish {
    pattern: TypePattern,
    pins: Pins,
    id: SubscriptionId,
}

/// Fields whose values an event must have to be wanted: the object, where a subscription names
/// one, and what its filter demands by `eq`. A subscription that wants everything pins nothing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Pins {
    fields: Arc<[Field]>,
    /// Of the values, in the order of the fields.
    fingerprint: u64,
}

/// Who gets an event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Matched {
    /// The subscriptions, each once, by identifier.
    pub subscriptions: Vec<Arc<Subscription>>,
    /// Those among them whose filter did not come to an answer within its steps.
    pub over_budget: Vec<SubscriptionId>,
}

/// The steps that filters may take, all that a request brings together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Work {
    /// What each filter may take that does not count against the others.
    free: u64,
    filter_max: u64,
    event_max: u64,
    left: u64,
}

/// The work is more than was to be tried: it is to be done elsewhere, from the beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooMuch;

/// Steps that a request may take where it must not keep others waiting: well below a millisecond.
const LIGHT_STEPS: u64 = 20_000;
/// Bytes of an event that may be parsed there.
const LIGHT_BYTES: usize = 16 * 1024;

impl Work {
    /// What one request may take at all.
    pub const fn whole() -> Self {
        Work {
            free: limits::FILTER_STEPS_FREE,
            filter_max: limits::FILTER_STEPS_MAX,
            event_max: limits::EVENT_FILTER_STEPS_MAX,
            left: limits::BATCH_FILTER_STEPS_MAX,
        }
    }

    /// What one request may take where others wait for it.
    pub const fn light() -> Self {
        Work { free: 0, filter_max: LIGHT_STEPS, event_max: LIGHT_STEPS, left: LIGHT_STEPS }
    }

    /// Whether what cannot be done within it is to be done elsewhere.
    const fn is_light(self) -> bool {
        self.free == 0
    }

    /// Asks one filter; counts what it took.
    fn ask(
        &mut self,
        event_left: &mut u64,
        filter: &Filter,
        event: &EventView<'_>,
    ) -> Result<bool, OverBudget> {
        let given = self.filter_max.min(self.free.saturating_add((*event_left).min(self.left)));
        let mut budget = Budget::new(given);
        let answer = filter.evaluate(event, &mut budget);
        let shared = (given - budget.left()).saturating_sub(self.free);
        *event_left = event_left.saturating_sub(shared);
        self.left = self.left.saturating_sub(shared);
        answer
    }
}

const FIRST_ID: SubscriptionId = SubscriptionId::from_bytes([0; 16]);
const LAST_ID: SubscriptionId = SubscriptionId::from_bytes([u8::MAX; 16]);

impl SubscriptionIndex {
    /// An index of nothing.
    pub fn new() -> Self {
        SubscriptionIndex::default()
    }

    /// Puts a subscription in, and takes out what its tenant had under the same identifier.
    pub fn insert(&mut self, subscription: Arc<Subscription>) -> Option<Arc<Subscription>> {
        let replaced = self.remove(&subscription.tenant, subscription.id);
        self.tenants.entry(subscription.tenant.clone()).or_default().insert(subscription);
        replaced
    }

    /// Takes a subscription out.
    pub fn remove(&mut self, tenant: &TenantId, id: SubscriptionId) -> Option<Arc<Subscription>> {
        let index = self.tenants.get_mut(tenant)?;
        let removed = index.remove(id);
        if index.by_id.is_empty() {
            self.tenants.remove(tenant);
        }
        removed
    }

    /// The subscriptions of a tenant as they are now.
    pub fn snapshot(&self, tenant: &TenantId) -> Option<TenantIndex> {
        self.tenants.get(tenant).cloned()
    }

    /// The subscriptions of every tenant as they are now.
    pub fn snapshots(&self) -> Vec<TenantIndex> {
        self.tenants.values().cloned().collect()
    }

    /// The subscriptions that want this event, each once, by identifier, and those whose filters
    /// did not come to an answer.
    pub fn matches(&self, event: &Event) -> Vec<Arc<Subscription>> {
        let index = self.tenants.get(&event.tenant);
        let matched = index.map(|index| index.matches(event, &mut Work::whole()));
        matched.and_then(Result::ok).unwrap_or_default().subscriptions
    }

    /// One subscription of a tenant.
    pub fn get(&self, tenant: &TenantId, id: SubscriptionId) -> Option<&Arc<Subscription>> {
        self.tenants.get(tenant)?.by_id.get(&id)
    }

    /// All subscriptions of a tenant, by identifier.
    pub fn of_tenant(&self, tenant: &TenantId) -> impl Iterator<Item = &Arc<Subscription>> {
        self.tenants.get(tenant).into_iter().flat_map(|index| index.by_id.values())
    }

    /// All subscriptions of a tenant that share this destination, by identifier.
    pub fn of_destination(
        &self,
        tenant: &TenantId,
        destination: DestinationId,
    ) -> impl Iterator<Item = &Arc<Subscription>> {
        let index = self.tenants.get(tenant).into_iter();
        index.flat_map(move |index| index.of_destination(destination))
    }

    /// A subscription other than this one that would get the same events in the same way.
    pub fn find_twin(&self, subscription: &Subscription) -> Option<&Arc<Subscription>> {
        let index = self.tenants.get(&subscription.tenant)?;
        let fingerprint = subscription.twin_fingerprint();
        index
            .by_twin_fingerprint
            .range((fingerprint, FIRST_ID)..=(fingerprint, LAST_ID))
            .filter_map(|(_, id)| index.by_id.get(id))
            .find(|other| other.id != subscription.id && other.is_twin_of(subscription))
    }

    /// How many subscriptions there are, those switched off included.
    pub fn len(&self) -> usize {
        self.tenants.values().map(|index| index.by_id.size()).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.tenants.is_empty()
    }
}

impl TenantIndex {
    /// Who gets this event, each once, by identifier. [`TooMuch`] only where the work is
    /// [`Work::light`].
    pub fn matches(&self, event: &Event, work: &mut Work) -> Result<Matched, TooMuch> {
        let bytes =
            event.data.as_bytes().len() + event.old.as_ref().map_or(0, |old| old.as_bytes().len());
        if work.is_light() && bytes > LIGHT_BYTES && self.needing_json > 0 {
            return Err(TooMuch);
        }
        let view = EventView::new(event);
        let mut event_left = work.event_max.min(work.left);
        let mut matched = Matched::default();
        for subscription in self.candidates(&view, work)? {
            let ask = |filter: &Filter| work.ask(&mut event_left, filter, &view);
            match subscription.verdict(event, ask) {
                Ok(false) => continue,
                Ok(true) => {}
                Err(OverBudget) if work.is_light() => return Err(TooMuch),
                Err(OverBudget) => matched.over_budget.push(subscription.id),
            }
            matched.subscriptions.push(Arc::clone(subscription));
        }
        Ok(matched)
    }

    /// All subscriptions, newest first; those before this one, where one is named.
    pub fn newest_first(
        &self,
        before: Option<SubscriptionId>,
    ) -> impl Iterator<Item = &Arc<Subscription>> {
        let end = before.map_or(Bound::Unbounded, Bound::Excluded);
        self.by_id.range((Bound::Unbounded, end)).rev().map(|(_, subscription)| subscription)
    }

    /// All subscriptions that share this destination, by identifier.
    pub fn of_destination(
        &self,
        destination: DestinationId,
    ) -> impl Iterator<Item = &Arc<Subscription>> {
        let range = (destination, FIRST_ID)..=(destination, LAST_ID);
        self.by_destination.range(range).filter_map(|(_, id)| self.by_id.get(id))
    }

    /// Every destination that a subscription names, each once.
    pub fn destinations(&self) -> impl Iterator<Item = DestinationId> {
        let mut before = None;
        let all = self.by_destination.iter().map(|(destination, _)| *destination);
        all.filter(move |destination| before.replace(*destination) != Some(*destination))
    }

    fn insert(&mut self, subscription: Arc<Subscription>) {
        let id = subscription.id;
        self.by_destination.insert_mut((subscription.destination, id));
        self.by_twin_fingerprint.insert_mut((subscription.twin_fingerprint(), id));
        for wish in Wish::of(&subscription) {
            self.needing_json += usize::from(subscription.needs_json());
            self.wishes.insert_mut(wish, Arc::clone(&subscription));
        }
        self.by_id.insert_mut(id, subscription);
    }

    fn remove(&mut self, id: SubscriptionId) -> Option<Arc<Subscription>> {
        let subscription = Arc::clone(self.by_id.get(&id)?);
        self.by_id.remove_mut(&id);
        self.by_destination.remove_mut(&(subscription.destination, id));
        self.by_twin_fingerprint.remove_mut(&(subscription.twin_fingerprint(), id));
        for wish in Wish::of(&subscription) {
            self.needing_json -= usize::from(subscription.needs_json());
            self.wishes.remove_mut(&wish);
        }
        Some(subscription)
    }

    /// Those that the index finds for an event, each once, by identifier: all that want it, and
    /// few that do not.
    fn candidates(
        &self,
        event: &EventView<'_>,
        work: &mut Work,
    ) -> Result<Vec<&Arc<Subscription>>, TooMuch> {
        let mut found = Vec::new();
        for pattern in TypePattern::all_matching(&event.event().kind) {
            self.collect(&pattern, event, work, &mut found)?;
        }
        found.sort_unstable_by_key(|subscription| subscription.id);
        found.dedup_by_key(|subscription| subscription.id);
        Ok(found)
    }

    /// Adds what stands under one pattern. The wishes are sorted by the fields that they pin: one
    /// step for each list of fields, and for each a look at the event's own values of them. What
    /// that takes is bounded by how many subscriptions a tenant may have; so it is only counted
    /// where others wait for it.
    fn collect<'i>(
        &'i self,
        pattern: &TypePattern,
        event: &EventView<'_>,
        work: &mut Work,
        found: &mut Vec<&'i Arc<Subscription>>,
    ) -> Result<(), TooMuch> {
        let wish = |fields: &Arc<[Field]>, fingerprint: u64, id: SubscriptionId| {
            let pins = Pins { fields: Arc::clone(fields), fingerprint };
            Wish { pattern: pattern.clone(), pins, id }
        };
        let mut from = Bound::Included(wish(&Arc::default(), 0, FIRST_ID));
        while let Some((first, _)) = self.wishes.range((from, Bound::Unbounded)).next()
            && first.pattern == *pattern
        {
            let fields = &first.pins.fields;
            if work.is_light() {
                let steps = fields.iter().map(Field::steps).fold(4, u64::saturating_add);
                work.left = work.left.checked_sub(steps).ok_or(TooMuch)?;
            }
            if let Some(own) = Pins::fingerprint_in(fields, event) {
                let range = wish(fields, own, FIRST_ID)..=wish(fields, own, LAST_ID);
                found.extend(self.wishes.range(range).map(|(_, subscription)| subscription));
            }
            from = Bound::Excluded(wish(fields, u64::MAX, LAST_ID));
        }
        Ok(())
    }
}

impl Wish {
    /// One for each pattern; none of a subscription that is switched off.
    fn of(subscription: &Subscription) -> impl Iterator<Item = Wish> {
        let (id, pins) = (subscription.id, Pins::of(subscription));
        let patterns = if subscription.enabled { subscription.types.patterns() } else { &[] };
        patterns.iter().map(move |pattern| Wish {
            pattern: pattern.clone(),
            pins: pins.clone(),
            id,
        })
    }
}

impl Pins {
    fn of(subscription: &Subscription) -> Self {
        let object = subscription.object.as_ref().and_then(|object| {
            Some((Field::object(), fingerprint(&Value::from(object.as_str()))?))
        });
        let demands = subscription.filter.iter().flat_map(Filter::pins);
        let mut pins: Vec<(Field, u64)> = object
            .into_iter()
            .chain(demands.map(|(field, value)| (field.clone(), value)))
            .collect();
        // Filters that pin the same fields in another order are looked up together.
        pins.sort();
        let fingerprint = pins.iter().map(|(_, value)| *value).fold(0, joined);
        Pins { fields: pins.into_iter().map(|(field, _)| field).collect(), fingerprint }
    }

    /// The fingerprint of an event's own values of these fields; `None` where it lacks one.
    fn fingerprint_in(fields: &[Field], event: &EventView<'_>) -> Option<u64> {
        fields
            .iter()
            .try_fold(0, |all, field| Some(joined(all, event.fingerprint(field.find(event)?)?)))
    }
}

/// One fingerprint of several, in their order.
const fn joined(all: u64, next: u64) -> u64 {
    (all.rotate_left(5) ^ next).wrapping_mul(STEP)
}

#[cfg(test)]
mod tests;
