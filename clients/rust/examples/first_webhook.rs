//! The first webhook: a receiver, a subscription, an event.

#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "an example reads its environment and prints"
)]

use axum::{Router, body::Bytes, http::HeaderMap, routing::post};
use postrider_client::types::{NewEvent, NewSubscription};
use postrider_client::{Client, verify};
use serde_json::json;
use tokio::sync::mpsc;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let client = Client::new(std::env::var("POSTRIDER_SERVER")?, std::env::var("POSTRIDER_KEY")?)?;

    let (arrived, mut webhooks) = mpsc::channel(1);
    let receiver = async move |headers: HeaderMap, body: Bytes| {
        arrived.send((headers, body)).await.map_or("gone", |()| "thanks")
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/", listener.local_addr()?);
    tokio::spawn(axum::serve(listener, Router::new().route("/", post(receiver))).into_future());

    let subscription =
        client.subscriptions().create(&NewSubscription::new(url, ["task.*"])).await?;
    let event = NewEvent::new("task.updated", json!({ "status": "CUR" }));
    let sent = client.events().send(&event).await?;
    println!("accepted {} with {} delivery", sent.id, sent.deliveries);

    let (headers, body) = webhooks.recv().await.ok_or_else(|| anyhow::anyhow!("no webhook"))?;
    let webhook = verify(&body, &headers, [subscription.secret.expose()])?;
    println!("verified {} {}", webhook.id, String::from_utf8_lossy(&body));
    client.subscriptions().delete(&subscription.id).await?;
    Ok(())
}
