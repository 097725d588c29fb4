//! Webhooks arrive signed, and `verify` accepts them.

use axum::http::StatusCode;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postrider_client::types::{AttemptOutcome, DeliveryState, NewEvent, NewSubscription};
use postrider_client::{DeliveryQuery, Happening, verify};
use serde_json::json;

use crate::support::{Receiver, fresh_tenant, until};

#[tokio::test]
#[ignore = "needs a server: cargo xtask clients"]
async fn an_event_arrives_signed_with_the_secret_that_was_shown() {
    let client = fresh_tenant().await;
    let receiver = Receiver::start(StatusCode::OK).await;
    let new = NewSubscription::new(&receiver.url, ["task.*"]);
    let subscription = client.subscriptions().create(&new).await.unwrap();
    let event =
        NewEvent::new("task.updated", json!({ "ключ": "<☃>" })).object("t1").old(json!(null));
    let sent = client.events().send(&event).await.unwrap();
    assert_eq!((sent.deliveries, sent.duplicate), (1, false));
    let (headers, body) = receiver.take().await;
    let verified = verify(&body, &headers, [subscription.secret.expose()]).unwrap();
    assert!(String::from_utf8_lossy(&body).contains("\"<☃>\""));
    let mut detail = client.deliveries().get(&verified.id).await.unwrap();
    until(async || {
        detail = client.deliveries().get(&verified.id).await.unwrap();
        detail.state == DeliveryState::Delivered
    })
    .await;
    assert_eq!(detail.event_id, sent.id);
    assert_eq!(detail.attempt_log[0].outcome, AttemptOutcome::Delivered);
    let stored = client.events().get(&sent.id).await.unwrap();
    assert_eq!(stored.data.get(), r#"{"ключ":"<☃>"}"#);
    let matches = client.events().matches(&sent.id).all().await.unwrap();
    assert!(matches[0].matched && matches[0].subscription_id == subscription.id);
}

#[tokio::test]
#[ignore = "needs a server: cargo xtask clients"]
async fn both_secrets_verify_during_a_rotation_and_a_third_does_not() {
    let client = fresh_tenant().await;
    let receiver = Receiver::start(StatusCode::OK).await;
    let new = NewSubscription::new(&receiver.url, ["*"]);
    let old = client.subscriptions().create(&new).await.unwrap();
    let minute = Some(std::time::Duration::from_secs(60));
    let rotated = client.subscriptions().rotate_secret(&old.id, minute).await.unwrap();
    assert_eq!(rotated.retiring_secrets, 1);
    let outcome = client.subscriptions().test(&old.id).await.unwrap();
    assert_eq!(outcome.outcome, AttemptOutcome::Delivered);
    let (headers, body) = receiver.take().await;
    for secret in [&old.secret, &rotated.secret] {
        verify(&body, &headers, [secret.expose()]).unwrap();
    }
    let forged = format!("whsec_{}", STANDARD.encode([0; 32]));
    assert_eq!(verify(&body, &headers, [forged]).unwrap_err().code(), "no_matching_signature");
}

#[tokio::test]
#[ignore = "needs a server: cargo xtask clients"]
async fn an_ed25519_subscription_is_verified_with_its_public_key() {
    let client = fresh_tenant().await;
    let receiver = Receiver::start(StatusCode::OK).await;
    let secret = format!("whsk_{}", STANDARD.encode([b'7'; 32]));
    let new = NewSubscription::new(&receiver.url, ["*"]).secret(secret);
    let subscription = client.subscriptions().create(&new).await.unwrap();
    client.subscriptions().test(&subscription.id).await.unwrap();
    let (headers, body) = receiver.take().await;
    verify(&body, &headers, subscription.public_key.as_deref()).unwrap();
}

#[tokio::test]
#[ignore = "needs a server: cargo xtask clients"]
async fn a_failed_delivery_is_followed_explained_retried_cancelled_and_replayed() {
    let client = fresh_tenant().await;
    let receiver = Receiver::start(StatusCode::INTERNAL_SERVER_ERROR).await;
    let mut stream = client.stream().await.unwrap();
    let new = NewSubscription::new(&receiver.url, ["*"]);
    client.subscriptions().create(&new).await.unwrap();
    let event = client.events().send(&NewEvent::new("a.b", 1)).await.unwrap();
    let happened = stream.next().await.unwrap().unwrap();
    assert!(
        matches!(&happened, Happening::Attempt { delivery, attempt }
            if delivery.event_id == event.id && attempt.status == Some(500)),
        "{happened:?}"
    );
    let query = DeliveryQuery {
        event: Some(event.id),
        state: Some(DeliveryState::Waiting),
        ..DeliveryQuery::default()
    };
    let mut waiting = Vec::new();
    until(async || {
        waiting = client.deliveries().list(&query).all().await.unwrap();
        waiting.len() == 1
    })
    .await;
    let id = &waiting[0].id;
    let explained = client.deliveries().explain(id).await.unwrap();
    assert!(explained.summary.starts_with("waiting for retry 1"), "{explained:?}");
    client.deliveries().retry(id).await.unwrap();
    until(async || client.deliveries().get(id).await.unwrap().attempts == 2).await;
    assert_eq!(client.deliveries().attempts(id).all().await.unwrap().len(), 2);
    assert_eq!(client.deliveries().cancel(id).await.unwrap().state, DeliveryState::Cancelled);
    assert!(client.deliveries().cancel(id).await.unwrap_err().has_code("wrong_state"));
    client.deliveries().replay(id).await.unwrap();
    until(async || client.deliveries().get(id).await.unwrap().attempts >= 3).await;
}
