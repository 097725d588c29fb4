//! Keys of the key ring are added and removed; sealed secrets stay readable, or the missing key is
//! named.

use std::path::{Path, PathBuf};

use postrider_api::credentials::{Credentials, HeaderForm, TlsCredentials};
use postrider_api::vault::{Resealed, VaultError, check_all, is_ring_needed, reseal_all};
use postrider_api::{Bootstrap, KeyRing, Vault, bootstrap_admin};
use postrider_domain::ids::TenantId;
use postrider_domain::signature::{SigningSecret, SigningSecrets};
use postrider_domain::subscription::{CustomHeader, Subscription};
use postrider_domain::time::Timestamp;
use postrider_store::embedded::{EmbeddedOptions, EmbeddedStore};
use postrider_store::{Configuration as _, PageRequest, Upkeep as _};
use postrider_store_testing::memory::MemoryStore;
use postrider_store_testing::samples;
use serde_json::json;

use crate::certificates::certificate;
use crate::support::{Api, id};

#[tokio::test]
async fn everything_is_sealed_anew_with_a_new_key() {
    let api = Api::new().await;
    let (chain, key) = certificate("client", 2090);
    let body = json!({
        "url": "https://hooks.example.com/", "types": ["*"], "auth_token": "tok_12345678",
        "client_certificate": chain, "client_key": key, "headers": {"x-key": "value-of-it"},
    });
    let created = api.post("/v1/subscriptions", body).expect(201).await;
    let path = format!("/v1/subscriptions/{}", id(&created));
    let before = api.get(&path).expect(200).await;
    let none = Resealed::default();
    assert_eq!(reseal_all(&api.store, &api.vault).await, Ok(none), "all is sealed with the newest");
    let mut ring = KeyRing::generate().unwrap();
    assert!(matches!(
        check_all(&api.store, &Vault::new(ring.clone())).await,
        Err(VaultError::MissingKey { .. })
    ));
    ring = api.vault.ring();
    ring.add_key().unwrap();
    api.vault.replace(ring);
    assert_eq!(check_all(&api.store, &api.vault).await, Ok(()));
    let one = Resealed { stale: 1, clear: 0 };
    assert_eq!(reseal_all(&api.store, &api.vault).await, Ok(one));
    assert_eq!(reseal_all(&api.store, &api.vault).await, Ok(none));
    assert_eq!(api.get(&path).expect(200).await, before);
}

/// The files of a directory that contain a text.
fn found_in(directory: &Path, text: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(found_in(&path, text));
        } else if let Ok(bytes) = std::fs::read(&path)
            && bytes.windows(text.len()).any(|window| window == text.as_bytes())
        {
            found.push(path);
        }
    }
    found
}

#[tokio::test]
async fn headers_that_an_older_version_kept_in_clear_are_sealed_and_leave_no_trace_in_the_files() {
    const CLEAR: &str = "hdr_CANARYCANARYCANARY5";
    let directory = tempfile::tempdir().unwrap();
    // Small files, because they are searched byte by byte.
    let small = EmbeddedOptions {
        segment_bytes: 1 << 18,
        reserve_bytes: 1 << 16,
        ..EmbeddedOptions::default()
    };
    let store = EmbeddedStore::open(directory.path(), small).unwrap();
    let vault = Vault::new(KeyRing::generate().unwrap());
    let secret = SigningSecret::generate_symmetric([1; 32]);
    let mut credentials = Credentials {
        secrets: SigningSecrets::new(secret),
        token: None,
        headers: Vec::new(),
        tls: TlsCredentials::default(),
    };
    for n in 1..=20_u64 {
        // Each is changed once and some are deleted, so that earlier values stay in freed space.
        let sample = samples::subscription(&TenantId::default_tenant(), n, n);
        let to = samples::destination(&TenantId::default_tenant(), n);
        for value in [format!("{CLEAR}-{n}-{}", "x".repeat(900)), format!("{CLEAR}-{n}")] {
            credentials.headers = vec![CustomHeader::new("x-key", &value).unwrap()];
            let record = credentials.record(&vault, &sample.subscription, HeaderForm::Clear);
            store.put_subscription(&record.unwrap(), &to).await.unwrap();
        }
        if n % 4 == 0 {
            let Subscription { tenant, id, .. } = &sample.subscription;
            store.mark_subscription_deleted(tenant, *id, Timestamp::EPOCH).await.unwrap();
            store.remove_subscription(tenant, *id).await.unwrap();
        }
    }
    assert!(!found_in(directory.path(), CLEAR).is_empty(), "they are in clear");
    let resealed = reseal_all(&*store, &vault).await;
    assert_eq!(resealed, Ok(Resealed { stale: 0, clear: 15 }));
    assert_eq!(found_in(directory.path(), CLEAR), Vec::<PathBuf>::new());
    let records = store.all_subscriptions().await.unwrap();
    assert_eq!(records.len(), 15);
    for record in records {
        let opened = Credentials::open(&vault, &record).unwrap();
        assert!(opened.headers[0].value().starts_with(CLEAR));
    }
    assert_eq!(reseal_all(&*store, &vault).await, Ok(Resealed::default()));
    store.close().await.unwrap();
    assert_eq!(found_in(directory.path(), CLEAR), Vec::<PathBuf>::new());
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
