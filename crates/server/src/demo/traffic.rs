//! The application of the demonstration: it sends events.

use std::time::Duration;

use hyper::Method;
use serde_json::{Value as Json, json};
use tokio::sync::mpsc;

use super::receivers::Diet;
use super::scene::Seen;
use crate::client::Client;

/// The time between two batches.
const EVERY: Duration = Duration::from_millis(100);
/// Orders in a batch.
const ORDERS: u64 = 3;
/// Batches from one with an invoice to the next.
const INVOICE_EVERY: u64 = 3;

/// How many orders a second are sent.
pub(super) const ORDERS_PER_SECOND: u64 = 30;

/// Sends events until the server ends, and reports those that were accepted.
pub(super) async fn send(client: Client, seen: mpsc::Sender<Seen>) {
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    for n in 0_u64.. {
        ticks.tick().await;
        let events = batch(n);
        let accepted = [Diet::Orders, Diet::Invoices].map(|diet| {
            let is_it = |event: &&Json| event["type"] == diet.event_type();
            Seen::Accepted { diet, events: events.iter().filter(is_it).count() }
        });
        let body = Json::from(events).to_string().into();
        // The server is shutting down: the demonstration is over.
        if client.ask(Method::POST, "/v1/events/batch", &[], Some(body)).await.is_err() {
            return;
        }
        for accepted in accepted {
            if seen.send(accepted).await.is_err() {
                return;
            }
        }
    }
}

/// The n-th batch.
fn batch(n: u64) -> Vec<Json> {
    let order = |k: u64| {
        let number = n * ORDERS + k;
        json!({"type": Diet::Orders.event_type(), "object": format!("order-{number}"), "data": {"order": number}})
    };
    let mut events: Vec<Json> = (0..ORDERS).map(order).collect();
    if n.is_multiple_of(INVOICE_EVERY) {
        let number = n / INVOICE_EVERY;
        events.push(json!({"type": Diet::Invoices.event_type(), "data": {"invoice": number}}));
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_the_number_of_orders_that_the_screen_claims() {
        let second: Vec<Json> = (0..10).flat_map(batch).collect();
        let orders =
            second.iter().filter(|event| event["type"] == Diet::Orders.event_type()).count();
        assert_eq!(u64::try_from(orders), Ok(ORDERS_PER_SECOND));
        assert_eq!(second.len() - orders, 4);
    }
}
