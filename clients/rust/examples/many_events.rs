//! Many events in batches, and lists that fetch their pages as they are needed.

#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "an example reads its environment and prints"
)]

use postrider_client::types::{DeliveryState, NewEvent};
use postrider_client::{Client, DeliveryQuery};
use serde_json::json;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let client = Client::new(std::env::var("POSTRIDER_SERVER")?, std::env::var("POSTRIDER_KEY")?)?;

    let events = (0..2500).map(|n| NewEvent::new("row.imported", json!({ "n": n })));
    let mut sending = client.events().send_all(events);
    let mut accepted = 0;
    while let Some(result) = sending.next().await {
        accepted += u32::from(!result?.duplicate);
    }
    println!("accepted {accepted}");

    let dead = DeliveryQuery { state: Some(DeliveryState::Dead), ..DeliveryQuery::default() };
    let mut deliveries = client.deliveries().list(&dead);
    while let Some(delivery) = deliveries.next().await {
        let explained = client.deliveries().explain(&delivery?.id).await?;
        println!("{} {}", explained.delivery.id, explained.summary);
    }
    Ok(())
}
