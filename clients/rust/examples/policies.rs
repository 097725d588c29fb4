//! A policy of a subscription, an event type with a schema, and an erasure.

#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "an example reads its environment and prints"
)]

use postrider_client::Client;
use postrider_client::types::{
    CatalogueChange, Conduct, NewErasure, NewEvent, NewEventType, NewSubscription,
    SubscriptionPolicy,
};
use serde_json::json;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let client = Client::new(std::env::var("POSTRIDER_SERVER")?, std::env::var("POSTRIDER_KEY")?)?;

    let mut policy = SubscriptionPolicy::default();
    (policy.retry.max, policy.retry.unit_seconds) = (Some(8), Some(30.0));
    policy.recovery.dead = Some("replay".to_owned());
    let new =
        NewSubscription::new("http://127.0.0.1:9140/crm", ["order.*"]).uid("crm").policy(policy);
    let subscription = client.subscriptions().create(&new).await?;
    if let Some(effective) = &subscription.effective_policy {
        println!("retries: {}", effective.retry.max);
    }

    let schema = json!({ "type": "object", "required": ["id"] });
    client.event_types().create(&NewEventType::new("order.paid", schema)).await?;
    let refuse = CatalogueChange::new().misfits(Some(Conduct::Refuse));
    client.event_types().update_catalogue(&refuse).await?;
    let misfit = NewEvent::new("order.paid", json!({ "amount": 3 }));
    if let Err(error) = client.events().send(&misfit).await {
        println!("{error}");
    }

    let paid = NewEvent::new("order.paid", json!({ "id": 1, "name": "Jane" })).object("customer-7");
    client.events().send(&paid).await?;
    let job = client.erasures().create(&NewErasure::Object("customer-7".to_owned())).await?;
    println!("erased {}", client.erasures().wait_erased(&job.id).await?.erased);

    client.event_types().delete("order.paid", None).await?;
    client.subscriptions().delete("crm").await?;
    Ok(())
}
