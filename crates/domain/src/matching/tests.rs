//! The index compared with evaluating every subscription, the cost of matching, and its budgets.

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::event::RawJson;
use crate::ids::EventId;
use crate::payload::Format;
use crate::policy::SubscriptionPolicy;
use crate::subscription::{About, TypeSet};
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
        workfront: None,
        headers: Vec::new(),
        rate_limit: None,
        policy: SubscriptionPolicy::default(),
        about: About::default(),
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
fn event_matches_each_subscription_once_in_order() {
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
fn replaced_or_removed_subscription_is_not_found_any_more() {
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

/// A subscription whose filter exceeds every budget on [`heavy_event`].
fn heavy(n: u32) -> Subscription {
    let condition = json!({"field": "data.x", "op": "contains_only", "value": [1]});
    filtered(n, &["*"], json!({"all": vec![condition; 20]}))
}

fn heavy_event() -> Event {
    event("a", None, &json!({"x": vec![1; 400_000], "s": "CUR"}))
}

#[test]
fn subscription_whose_filter_exceeds_its_budget_gets_the_event_and_is_named() {
    let index = index([heavy(1), subscription(2, &["*"])]);
    let index = index.snapshot(&tenant()).unwrap();
    let matched = index.matches(&heavy_event(), &mut Work::whole()).unwrap();
    let ids: Vec<_> = matched.subscriptions.iter().map(|one| one.id).collect();
    assert_eq!((ids, matched.over_budget), (vec![id(1), id(2)], vec![id(1)]));
}

#[test]
fn plain_filters_are_answered_beside_any_number_of_expensive_ones() {
    let plain = json!({"field": "data.s", "op": "ne", "value": "CUR"});
    let others = (1..=20).map(heavy);
    let index = index(others.chain([filtered(99, &["*"], plain)]));
    let index = index.snapshot(&tenant()).unwrap();
    let mut work = Work::whole();
    let matched = index.matches(&heavy_event(), &mut work).unwrap();
    assert_eq!(matched.over_budget.len(), 20);
    assert!(!matched.subscriptions.iter().any(|one| one.id == id(99)));
    assert_eq!(
        work.left,
        limits::BATCH_FILTER_STEPS_MAX - limits::EVENT_FILTER_STEPS_MAX,
        "an event takes no more than its share of the request's steps"
    );
    index.matches(&heavy_event(), &mut work).unwrap();
    index.matches(&heavy_event(), &mut work).unwrap();
    assert_eq!(work.left, 0, "and all events together no more than the request's");
}

#[test]
fn light_work_stops_where_others_would_wait_for_it() {
    let small = event("a", None, &json!({"x": [1], "s": "CUR"}));
    let light = |index: &SubscriptionIndex, event: &Event| {
        let matched = index.snapshot(&tenant()).unwrap().matches(event, &mut Work::light());
        matched.map(|matched| matched.subscriptions.len())
    };
    assert_eq!(light(&index([heavy(1), subscription(2, &["*"])]), &small), Ok(2));
    assert_eq!(light(&index([subscription(2, &["*"])]), &heavy_event()), Ok(1));
    assert_eq!(light(&index([heavy(1)]), &heavy_event()), Err(TooMuch), "large, and parsed");
    let middle = event("a", None, &json!({"x": vec![1; 5_000]}));
    assert_eq!(light(&index([heavy(1)]), &middle), Err(TooMuch), "many steps");
    let pinned = |n: u32| {
        let field = format!("data.f{n}");
        filtered(n, &["*"], json!({"field": field, "op": "eq", "value": 1}))
    };
    assert_eq!(light(&index((0..10_000).map(pinned)), &small), Err(TooMuch), "many filters");
}

#[test]
fn snapshot_does_not_change_with_the_index() {
    let mut index = index([subscription(1, &["*"])]);
    let before = index.snapshot(&tenant()).unwrap();
    index.remove(&tenant(), id(1));
    index.insert(Arc::new(subscription(2, &["*"])));
    let of = |index: &TenantIndex| {
        let matched = index.matches(&event("a", None, &json!({})), &mut Work::light()).unwrap();
        matched.subscriptions.iter().map(|one| one.id).collect::<Vec<_>>()
    };
    assert_eq!(of(&before), [id(1)]);
    assert_eq!(of(&index.snapshot(&tenant()).unwrap()), [id(2)]);
}

/// The cost of matching an event among 10,000 subscriptions of which it matches three.
fn check_cost(kind: &str, make: impl Fn(u32) -> Subscription, event: &Event) {
    let index = index((0..10_000).map(make));
    assert_eq!(index.matches(event).len(), 3, "{kind}");
    let index = index.snapshot(&tenant()).unwrap();
    let found = index.candidates(&EventView::new(event), &mut Work::whole());
    assert_eq!(found.unwrap().len(), 3, "{kind}");
}

#[test]
fn cost_of_matching_follows_the_matches_and_not_the_subscriptions() {
    let data = json!({"status": "CUR", "customer": 7, "when": "2026-01-01T00:00:00Z"});
    let task = event("crm.task.updated", Some("T-7"), &data);
    // Numbers 7, 3,341 and 6,675 match.
    let group = |n: u32| n % 3_334;
    let name = |n: u32| if group(n) == 7 { "task".to_owned() } else { format!("t{}", group(n)) };
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
        let order = if n < 5_000 { [status, exists, customer] } else { [customer, status, exists] };
        filtered(n, &["crm.task.updated"], json!({"all": order}))
    };
    check_cost("by all of several eq", all, &task);
}

/// Subscriptions drawn from few values, so that they often coincide.
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
    (prop::sample::select(types), object, value.clone(), value).prop_map(|(kind, object, x, y)| {
        let fields = [("x", x), ("y", y)].into_iter();
        let data: serde_json::Map<String, Value> =
            fields.filter_map(|(key, value)| Some((key.to_owned(), value?))).collect();
        event(kind, object, &Value::Object(data))
    })
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
    fn index_agrees_with_evaluating_every_subscription(
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
                    let ask = |filter: &Filter| filter.evaluate(&view, &mut Budget::unlimited());
                    let wants = |one: &&Arc<Subscription>| one.verdict(&event, ask).unwrap();
                    let wanted: Vec<Arc<Subscription>> =
                        all.values().filter(wants).cloned().collect();
                    prop_assert_eq!(index.matches(&event), wanted);
                }
            }
            prop_assert_eq!(index.len(), all.len());
        }
    }
}
