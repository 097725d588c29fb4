//! Keys of the key ring come and go; what was sealed stays readable, or says which key is missing.

use postrider_api::vault::{VaultError, check_all, is_ring_needed, reseal_all};
use postrider_api::{Bootstrap, KeyRing, Vault, bootstrap_admin};
use postrider_domain::time::Timestamp;
use postrider_store::memory::MemoryStore;
use postrider_store::{Configuration as _, PageRequest};
use serde_json::json;

use crate::certificates::certificate;
use crate::support::{Api, id};

#[tokio::test]
async fn everything_is_sealed_anew_with_a_new_key() {
    let api = Api::new().await;
    let (chain, key) = certificate("client", 2090);
    let body = json!({
        "url": "https://hooks.example.com/", "types": ["*"], "auth_token": "tok_12345678",
        "client_certificate": chain, "client_key": key,
    });
    let created = api.post("/v1/subscriptions", body).expect(201).await;
    let path = format!("/v1/subscriptions/{}", id(&created));
    let before = api.get(&path).expect(200).await;
    assert_eq!(reseal_all(&api.store, &api.vault).await, Ok(0), "all is sealed with the newest");
    let mut ring = KeyRing::generate().unwrap();
    assert!(matches!(
        check_all(&api.store, &Vault::new(ring.clone())).await,
        Err(VaultError::MissingKey { .. })
    ));
    ring = api.vault.ring();
    ring.add_key().unwrap();
    api.vault.replace(ring);
    assert_eq!(check_all(&api.store, &api.vault).await, Ok(()));
    assert_eq!(reseal_all(&api.store, &api.vault).await, Ok(1));
    assert_eq!(reseal_all(&api.store, &api.vault).await, Ok(0));
    assert_eq!(api.get(&path).expect(200).await, before);
}

#[tokio::test]
async fn a_store_with_secrets_or_keys_needs_its_ring() {
    let store = MemoryStore::default();
    assert_eq!(is_ring_needed(&store).await, Ok(false));
    let vault = Vault::new(KeyRing::generate().unwrap());
    bootstrap_admin(&store, &vault, None, Timestamp::EPOCH).await.unwrap();
    assert_eq!(is_ring_needed(&store).await, Ok(true));
}

#[tokio::test]
async fn the_first_admin_key_is_made_once_or_given() {
    let store = MemoryStore::default();
    let vault = Vault::new(KeyRing::generate().unwrap());
    let given = "a key that the operator chose";
    let bootstrap = bootstrap_admin(&store, &vault, Some(given), Timestamp::EPOCH).await.unwrap();
    assert!(matches!(bootstrap, Bootstrap::Given(_)));
    let page = PageRequest { limit: 10, cursor: None };
    assert!(store.keys(None, &page).await.unwrap().items.is_empty(), "a given key is not stored");
    assert!(bootstrap_admin(&store, &vault, Some("short"), Timestamp::EPOCH).await.is_err());
    let first = bootstrap_admin(&store, &vault, None, Timestamp::EPOCH).await.unwrap();
    assert!(matches!(first, Bootstrap::Created(_)));
    let second = bootstrap_admin(&store, &vault, None, Timestamp::EPOCH).await.unwrap();
    assert!(matches!(second, Bootstrap::Exists));
    let tenants = store.tenants(&page).await.unwrap().items;
    assert_eq!(tenants.len(), 1, "the tenant default exists");
}

#[tokio::test]
async fn a_given_admin_key_is_an_admin_key() {
    let api = Api::with_given_admin("a key that the operator chose").await;
    api.get("/v1/tenants").key("a key that the operator chose").expect(200).await;
    api.get("/v1/tenants")
        .key("a key that the operator close")
        .refused(401, "unauthorized", None)
        .await;
}
