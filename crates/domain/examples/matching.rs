//! Measures what matching costs among 100,000 subscriptions, of which three want the event:
//! `cargo run --release -p postrider-domain --example matching`.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use postrider_domain::event::{Event, RawJson};
use postrider_domain::ids::{DestinationId, EventId, SubscriptionId, TenantId};
use postrider_domain::matching::SubscriptionIndex;
use postrider_domain::subscription::Subscription;
use postrider_domain::time::Timestamp;
use serde_json::{Value, json};

const SUBSCRIPTIONS: u32 = 100_000;
/// Each group has three of the subscriptions, except the last.
const GROUPS: u32 = 33_334;
const ROUNDS: u32 = 100_000;

type Wish = fn(group: u32) -> Value;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let wishes: [(&str, Wish); 4] = [
        ("exact type", |group| json!({"types": [format!("crm.task.t{group}")]})),
        ("wildcard", |group| json!({"types": [format!("crm.task.t{group}.*"), "crm.x.*"]})),
        ("object", |group| json!({"types": ["*"], "object": format!("T-{group}")})),
        ("eq filter", |group| {
            let status = json!({"field": "data.status", "op": "eq", "value": "CUR"});
            let customer = json!({"field": "data.customer", "op": "eq", "value": group});
            json!({"types": ["crm.*"], "filter": {"all": [status, customer]}})
        }),
    ];
    for (name, wish) in wishes {
        let index = index(wish)?;
        let kind = if name == "wildcard" { "crm.task.t7.updated" } else { "crm.task.t7" };
        report(name, &index, &event(kind)?);
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "measures the machine it runs on")]
#[expect(clippy::print_stdout, reason = "its figures are for people")]
fn report(name: &str, index: &SubscriptionIndex, event: &Event) {
    let started = Instant::now();
    for _ in 0..ROUNDS {
        black_box(index.matches(black_box(event)));
    }
    let micros = started.elapsed().as_secs_f64() * 1e6 / f64::from(ROUNDS);
    let (all, found) = (index.len(), index.matches(event).len());
    println!("matching by {name}: {found} of {all} subscriptions found in {micros:.1} µs");
}

fn index(wish: Wish) -> Result<SubscriptionIndex, Box<dyn std::error::Error>> {
    let mut index = SubscriptionIndex::new();
    let tenant = TenantId::default_tenant();
    for n in 0..SUBSCRIPTIONS {
        let url = format!("https://hooks.example.com/{n}");
        let mut id = [0; 16];
        id[12..].copy_from_slice(&n.to_be_bytes());
        let mut subscription = json!({
            "id": SubscriptionId::from_bytes(id),
            "tenant": tenant,
            "destination": DestinationId::of(&tenant, &url),
            "url": url,
            "enabled": true,
            "created_at": Timestamp::EPOCH,
            "updated_at": Timestamp::EPOCH,
        });
        if let (Value::Object(whole), Value::Object(wish)) = (&mut subscription, wish(n % GROUPS)) {
            whole.extend(wish);
        }
        index.insert(Arc::new(serde_json::from_value::<Subscription>(subscription)?));
    }
    Ok(index)
}

fn event(kind: &str) -> Result<Event, Box<dyn std::error::Error>> {
    let data = json!({"status": "CUR", "customer": 7, "text": "x".repeat(500)});
    Ok(Event {
        id: EventId::new(Timestamp::EPOCH, [0; 10]),
        tenant: TenantId::default_tenant(),
        kind: kind.parse()?,
        object: Some("T-7".parse()?),
        data: RawJson::parse(Bytes::from(data.to_string()))?,
        old: None,
        time: Timestamp::EPOCH,
        trace: None,
    })
}
