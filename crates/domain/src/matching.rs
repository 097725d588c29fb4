//! Which subscriptions an event goes to.
//!
//! Matching costs what matches, not what exists: an event looks up the few patterns that its type
//! has, and below each the values that its fields have. Whatever is found that way is asked itself
//! ([`Subscription::wants`]), so the index may find too much, but never decides anything.
//!
//! Nothing here crosses a tenant: every question names one.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use serde_json::Value;

use crate::event::Event;
use crate::filter::{EventView, Field, Filter, fingerprint};
use crate::ids::{DestinationId, SubscriptionId, TenantId};
use crate::subscription::{Subscription, TypePattern};

/// Every subscription that a process knows, ready to be matched.
#[derive(Debug, Clone, Default)]
pub struct SubscriptionIndex {
    tenants: BTreeMap<TenantId, TenantIndex>,
}

/// The subscriptions of one tenant. The sets are flat, so that a hundred thousand subscriptions
/// cost a hundred thousand entries and not as many maps of one entry.
#[derive(Debug, Clone, Default)]
struct TenantIndex {
    by_id: BTreeMap<SubscriptionId, Arc<Subscription>>,
    by_destination: BTreeSet<(DestinationId, SubscriptionId)>,
    by_twin_fingerprint: BTreeSet<(u64, SubscriptionId)>,
    /// Those that are enabled, once for each of their patterns.
    wishes: BTreeMap<Wish, Arc<Subscription>>,
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

    /// The subscriptions that want this event, each once, by identifier.
    pub fn matches(&self, event: &Event) -> Vec<Arc<Subscription>> {
        let view = EventView::new(event);
        let mut found = self.candidates(&view);
        found.retain(|subscription| subscription.wants(&view));
        found.into_iter().cloned().collect()
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
        let range = (destination, FIRST_ID)..=(destination, LAST_ID);
        self.tenants.get(tenant).into_iter().flat_map(move |index| {
            index.by_destination.range(range.clone()).filter_map(|(_, id)| index.by_id.get(id))
        })
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
        self.tenants.values().map(|index| index.by_id.len()).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.tenants.is_empty()
    }

    /// Those that the index finds for an event, each once, by identifier: all that want it, and
    /// few that do not.
    fn candidates(&self, event: &EventView<'_>) -> Vec<&Arc<Subscription>> {
        let mut found = Vec::new();
        if let Some(index) = self.tenants.get(&event.event().tenant) {
            for pattern in TypePattern::all_matching(&event.event().kind) {
                index.collect(&pattern, event, &mut found);
            }
        }
        found.sort_unstable_by_key(|subscription| subscription.id);
        found.dedup_by_key(|subscription| subscription.id);
        found
    }
}

impl TenantIndex {
    fn insert(&mut self, subscription: Arc<Subscription>) {
        let id = subscription.id;
        self.by_destination.insert((subscription.destination, id));
        self.by_twin_fingerprint.insert((subscription.twin_fingerprint(), id));
        for wish in Wish::of(&subscription) {
            self.wishes.insert(wish, Arc::clone(&subscription));
        }
        self.by_id.insert(id, subscription);
    }

    fn remove(&mut self, id: SubscriptionId) -> Option<Arc<Subscription>> {
        let subscription = self.by_id.remove(&id)?;
        self.by_destination.remove(&(subscription.destination, id));
        self.by_twin_fingerprint.remove(&(subscription.twin_fingerprint(), id));
        for wish in Wish::of(&subscription) {
            self.wishes.remove(&wish);
        }
        Some(subscription)
    }

    /// Adds what stands under one pattern. The wishes are sorted by the fields that they pin: one
    /// step for each list of fields, and for each a look at the event's own values of them.
    fn collect<'i>(
        &'i self,
        pattern: &TypePattern,
        event: &EventView<'_>,
        found: &mut Vec<&'i Arc<Subscription>>,
    ) {
        let wish = |fields: &Arc<[Field]>, fingerprint: u64, id: SubscriptionId| {
            let pins = Pins { fields: Arc::clone(fields), fingerprint };
            Wish { pattern: pattern.clone(), pins, id }
        };
        let mut from = Bound::Included(wish(&Arc::default(), 0, FIRST_ID));
        while let Some((first, _)) = self.wishes.range((from, Bound::Unbounded)).next()
            && first.pattern == *pattern
        {
            let fields = &first.pins.fields;
            if let Some(own) = Pins::fingerprint_in(fields, event) {
                let range = wish(fields, own, FIRST_ID)..=wish(fields, own, LAST_ID);
                found.extend(self.wishes.range(range).map(|(_, subscription)| subscription));
            }
            from = Bound::Excluded(wish(fields, u64::MAX, LAST_ID));
        }
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
        fields.iter().try_fold(0, |all, field| Some(joined(all, fingerprint(field.find(event)?)?)))
    }
}

/// One fingerprint of several, in their order.
const fn joined(all: u64, next: u64) -> u64 {
    (all.rotate_left(5) ^ next).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::event::RawJson;
    use crate::ids::EventId;
    use crate::payload::Format;
    use crate::subscription::TypeSet;
    use crate::time::Timestamp;

    fn tenant() -> TenantId {
        TenantId::default_tenant()
    }

    fn id(n: u32) -> SubscriptionId {
        let mut bytes = [0; 16];
        bytes[12..].copy_from_slice(&n.to_be_bytes());
        SubscriptionId::from_bytes(bytes)
    }

    fn subscription(n: u32, types: &[&str]) -> Subscription {
        let url = format!("https://hooks.example.com/{n}");
        Subscription {
            id: id(n),
            tenant: tenant(),
            destination: DestinationId::of(&tenant(), &url),
            url,
            types: TypeSet::new(types.iter().map(|text| text.parse().unwrap())).unwrap(),
            object: None,
            filter: None,
            format: Format::Standard,
            headers: Vec::new(),
            rate_limit: None,
            enabled: true,
            created_at: Timestamp::EPOCH,
            updated_at: Timestamp::EPOCH,
        }
    }

    fn filtered(n: u32, types: &[&str], filter: Value) -> Subscription {
        let filter = Some(Filter::compile(&filter).unwrap());
        Subscription { filter, ..subscription(n, types) }
    }

    fn of_object(n: u32, types: &[&str], object: &str) -> Subscription {
        Subscription { object: Some(object.parse().unwrap()), ..subscription(n, types) }
    }

    fn event(kind: &str, object: Option<&str>, data: &Value) -> Event {
        Event {
            id: EventId::new(Timestamp::EPOCH, [0; 10]),
            tenant: tenant(),
            kind: kind.parse().unwrap(),
            object: object.map(|object| object.parse().unwrap()),
            data: RawJson::from_trusted(Bytes::from(data.to_string())),
            old: None,
            time: Timestamp::EPOCH,
            trace: None,
        }
    }

    fn index(subscriptions: impl IntoIterator<Item = Subscription>) -> SubscriptionIndex {
        let mut index = SubscriptionIndex::new();
        for subscription in subscriptions {
            assert_eq!(index.insert(Arc::new(subscription)), None);
        }
        index
    }

    fn matched(index: &SubscriptionIndex, event: &Event) -> Vec<SubscriptionId> {
        index.matches(event).iter().map(|subscription| subscription.id).collect()
    }

    #[test]
    fn an_event_goes_to_those_who_want_it_each_once_and_in_order() {
        let off = Subscription { enabled: false, ..subscription(7, &["*"]) };
        let other = Subscription { tenant: "other".parse().unwrap(), ..subscription(8, &["*"]) };
        let index = index([
            subscription(9, &["*"]),
            subscription(1, &["task.updated", "task.*", "*"]),
            of_object(5, &["task.*"], "T-1"),
            of_object(4, &["task.*"], "T-2"),
            filtered(3, &["*"], json!({"field": "data.s", "op": "eq", "value": "CUR"})),
            filtered(2, &["*"], json!({"field": "data.s", "op": "ne", "value": "CUR"})),
            subscription(6, &["note.*"]),
            off,
            other,
        ]);
        let current = event("task.updated", Some("T-1"), &json!({"s": "CUR"}));
        assert_eq!(matched(&index, &current), [id(1), id(3), id(5), id(9)]);
        let old = event("task", None, &json!({}));
        assert_eq!(matched(&index, &old), [id(1), id(2), id(9)]);
        let foreign = Event { tenant: "other".parse().unwrap(), ..current.clone() };
        assert_eq!(matched(&index, &foreign), [id(8)]);
        let nobodys = Event { tenant: "nobody".parse().unwrap(), ..current };
        assert_eq!(matched(&index, &nobodys), []);
        let operational = event("postrider.delivery.dead", None, &json!({"s": "CUR"}));
        assert_eq!(matched(&index, &operational), []);
    }

    #[test]
    fn what_is_replaced_or_removed_is_gone_everywhere() {
        let mut index = index([subscription(1, &["task.*"]), subscription(2, &["task.*"])]);
        let task = event("task.updated", None, &json!({}));
        let first = Arc::clone(index.get(&tenant(), id(1)).unwrap());
        let changed = Subscription { url: "https://b.example.com/".to_owned(), ..(*first).clone() };
        let destination = DestinationId::of(&tenant(), &changed.url);
        let changed = Subscription { destination, ..changed };
        let off = Arc::new(Subscription { enabled: false, ..changed });
        assert_eq!(index.insert(Arc::clone(&off)), Some(Arc::clone(&first)));
        assert_eq!(matched(&index, &task), [id(2)]);
        assert_eq!(index.len(), 2);
        assert_eq!(index.of_destination(&tenant(), first.destination).count(), 0);
        assert_eq!(index.of_destination(&tenant(), destination).collect::<Vec<_>>(), [&off]);
        assert_eq!(index.remove(&tenant(), id(1)), Some(off));
        assert_eq!(index.remove(&tenant(), id(1)), None);
        assert!(index.remove(&tenant(), id(2)).is_some());
        assert!(index.is_empty());
        assert!(index.remove(&tenant(), id(2)).is_none());
    }

    #[test]
    fn subscriptions_are_found_by_tenant_identifier_and_destination() {
        let shared = DestinationId::of(&tenant(), "https://shared.example.com/");
        let index = index((1..=4).map(|n| match n {
            1 | 3 => Subscription { destination: shared, ..subscription(n, &["*"]) },
            _ => subscription(n, &["*"]),
        }));
        let other: TenantId = "other".parse().unwrap();
        let ids = |found: &mut dyn Iterator<Item = &Arc<Subscription>>| {
            found.map(|subscription| subscription.id).collect::<Vec<_>>()
        };
        assert_eq!(ids(&mut index.of_tenant(&tenant())), [id(1), id(2), id(3), id(4)]);
        assert_eq!(ids(&mut index.of_tenant(&other)), []);
        assert_eq!(ids(&mut index.of_destination(&tenant(), shared)), [id(1), id(3)]);
        assert_eq!(ids(&mut index.of_destination(&other, shared)), []);
        assert_eq!(index.get(&tenant(), id(2)).unwrap().id, id(2));
        assert_eq!(index.get(&tenant(), id(5)), None);
        assert_eq!(index.get(&other, id(2)), None);
    }

    #[test]
    fn a_twin_is_found_but_never_oneself() {
        let index = index((1..=3).map(|n| subscription(n, &["task.*", "*"])));
        let original = index.get(&tenant(), id(2)).unwrap();
        assert_eq!(index.find_twin(original), None);
        let twin = Subscription { id: id(9), enabled: false, ..(**original).clone() };
        assert_eq!(index.find_twin(&twin), Some(original));
        let other = Subscription { format: Format::Raw, ..twin.clone() };
        assert_eq!(index.find_twin(&other), None);
        let foreign = Subscription { tenant: "other".parse().unwrap(), ..twin };
        assert_eq!(index.find_twin(&foreign), None);
    }

    #[test]
    fn the_last_identifier_of_all_is_found_like_any_other() {
        let last = Subscription { id: LAST_ID, ..subscription(1, &["*"]) };
        let index = index([subscription(2, &["*"]), last]);
        assert_eq!(matched(&index, &event("a", None, &json!({}))), [id(2), LAST_ID]);
    }

    /// What 10,000 subscriptions of a kind cost an event that three of them want.
    fn check_cost(kind: &str, make: impl Fn(u32) -> Subscription, event: &Event) {
        let index = index((0..10_000).map(make));
        assert_eq!(index.matches(event).len(), 3, "{kind}");
        assert_eq!(index.candidates(&EventView::new(event)).len(), 3, "{kind}");
    }

    #[test]
    fn matching_looks_at_what_matches_and_not_at_what_exists() {
        let data = json!({"status": "CUR", "customer": 7, "when": "2026-01-01T00:00:00Z"});
        let task = event("crm.task.updated", Some("T-7"), &data);
        // Which of them are wanted: numbers 7, 3,341 and 6,675.
        let group = |n: u32| n % 3_334;
        let name =
            |n: u32| if group(n) == 7 { "task".to_owned() } else { format!("t{}", group(n)) };
        let exact = |n| subscription(n, &[&format!("crm.{}.updated", name(n))]);
        check_cost("by exact type", exact, &task);
        let below = |n| subscription(n, &[&format!("crm.{}.*", name(n)), "x.*"]);
        check_cost("by wildcard", below, &task);
        let object = |n| of_object(n, &["crm.*", "*"], &format!("T-{}", group(n)));
        check_cost("by object", object, &task);
        let eq = |n| {
            let value = group(n);
            filtered(n, &["*"], json!({"field": "data.customer", "op": "eq", "value": value}))
        };
        check_cost("by an eq", eq, &task);
        let all = |n: u32| {
            let status = json!({"field": "data.status", "op": "eq", "value": "CUR"});
            let customer = json!({"field": "data.customer", "op": "eq", "value": group(n)});
            let exists = json!({"field": "data.when", "op": "exists"});
            let order =
                if n < 5_000 { [status, exists, customer] } else { [customer, status, exists] };
            filtered(n, &["crm.task.updated"], json!({"all": order}))
        };
        check_cost("by all of several eq", all, &task);
    }

    /// One of few of everything, so that they meet often.
    fn any_subscription() -> impl Strategy<Value = Subscription> {
        let type_names = vec!["*", "a.*", "a.b.*", "a", "a.b", "a.b.c", "c.*", "postrider.*"];
        let values = [json!(1), json!("1"), json!(1.0), json!("x"), json!(null), json!([1])];
        let condition = (
            prop::sample::select(vec!["data.x", "data.y", "object", "type"]),
            prop::sample::select(vec!["eq", "eq", "eq", "ne", "contains"]),
            prop::sample::select(values.to_vec()),
        )
            .prop_map(|(field, op, value)| json!({"field": field, "op": op, "value": value}));
        let group = |name: &'static str| {
            prop::collection::vec(condition.clone(), 1..4).prop_map(move |of| json!({name: of}))
        };
        let filter = prop_oneof![condition.clone(), group("all"), group("any")];
        (
            (0u32..12, prop::collection::vec(prop::sample::select(type_names), 1..4)),
            prop::option::of(prop::sample::select(vec!["1", "x", "a.b"])),
            prop::option::weighted(0.7, filter),
            (prop::bool::weighted(0.9), prop::bool::weighted(0.9)),
        )
            .prop_map(|((n, types), object, filter, (enabled, own_tenant))| Subscription {
                tenant: if own_tenant { tenant() } else { "other".parse().unwrap() },
                object: object.map(|object| object.parse().unwrap()),
                filter: filter.map(|filter| Filter::compile(&filter).unwrap()),
                enabled,
                ..subscription(n, &types)
            })
    }

    fn any_event() -> impl Strategy<Value = Event> {
        let values = [json!(1), json!("1"), json!(1.0), json!("x"), json!(null), json!([1])];
        let value = prop::option::of(prop::sample::select(values.to_vec()));
        let types = vec!["a", "a.b", "a.b.c", "c.d", "postrider.x", "e"];
        let object = prop::option::of(prop::sample::select(vec!["1", "x", "a.b"]));
        (prop::sample::select(types), object, value.clone(), value).prop_map(
            |(kind, object, x, y)| {
                let fields = [("x", x), ("y", y)].into_iter();
                let data: serde_json::Map<String, Value> =
                    fields.filter_map(|(key, value)| Some((key.to_owned(), value?))).collect();
                event(kind, object, &Value::Object(data))
            },
        )
    }

    #[derive(Debug, Clone)]
    enum Step {
        Insert(Subscription),
        Remove(u32),
        Match(Event),
    }

    fn any_step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => any_subscription().prop_map(Step::Insert),
            1 => (0u32..12).prop_map(Step::Remove),
            3 => any_event().prop_map(Step::Match),
        ]
    }

    proptest! {
        #[test]
        fn the_index_agrees_with_asking_every_subscription(
            steps in prop::collection::vec(any_step(), 1..60),
        ) {
            let mut index = SubscriptionIndex::new();
            let mut all: BTreeMap<(TenantId, SubscriptionId), Arc<Subscription>> = BTreeMap::new();
            for step in steps {
                match step {
                    Step::Insert(subscription) => {
                        let subscription = Arc::new(subscription);
                        let key = (subscription.tenant.clone(), subscription.id);
                        let replaced = all.insert(key, Arc::clone(&subscription));
                        prop_assert_eq!(index.insert(Arc::clone(&subscription)), replaced);
                        let twin = all.values().find(|other| {
                            other.id != subscription.id && other.is_twin_of(&subscription)
                        });
                        prop_assert_eq!(index.find_twin(&subscription), twin);
                    }
                    Step::Remove(n) => {
                        let removed = all.remove(&(tenant(), id(n)));
                        prop_assert_eq!(index.remove(&tenant(), id(n)), removed);
                    }
                    Step::Match(event) => {
                        let view = EventView::new(&event);
                        let wanted: Vec<Arc<Subscription>> =
                            all.values().filter(|one| one.wants(&view)).cloned().collect();
                        prop_assert_eq!(index.matches(&event), wanted);
                    }
                }
                prop_assert_eq!(index.len(), all.len());
            }
        }
    }
}
