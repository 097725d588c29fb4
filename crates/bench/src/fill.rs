//! Fills a store like a large installation: subscriptions, destinations, waiting deliveries. It
//! writes to the store directly, because a million requests would take too long.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use postrider_api::credentials::{Credentials, HeaderForm, TlsCredentials};
use postrider_api::vault::{KeyRing, Vault};
use postrider_domain::attempt::{Attempt, Ending, Failure, FailureClass, Timings, Turn};
use postrider_domain::delivery::{Delivery, DeliveryState, StateName};
use postrider_domain::destination::Destination;
use postrider_domain::event::{Event, RawJson};
use postrider_domain::ids::{DeliveryId, DestinationId, EventId, SubscriptionId, TenantId};
use postrider_domain::payload::Format;
use postrider_domain::policy::SubscriptionPolicy;
use postrider_domain::retry::{ScheduleClock, Slot};
use postrider_domain::signature::{SigningSecret, SigningSecrets};
use postrider_domain::subscription::{About, Subscription, TypePattern, TypeSet};
use postrider_domain::time::Timestamp;
use postrider_store::embedded::{EmbeddedOptions, EmbeddedStore};
use postrider_store::{
    Acceptance, Commit, Configuration as _, DeliveryChange, Intake as _, SubscriptionPut,
    SubscriptionRecord, Upkeep as _, Work as _,
};
use postrider_transport::{Clock as _, SystemClock};
use tokio::task::JoinSet;

use super::message;

/// Concurrent writes.
const AT_ONCE: usize = 256;
/// Deliveries in one write.
const PAGE: u64 = 2_000;

/// The time span in which the waiting deliveries were accepted.
const BACKLOG_SPAN: Duration = Duration::from_secs(3600);

/// The contents of a store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Filling {
    /// Subscriptions that match none of the sent events.
    pub(crate) subscriptions: u64,
    /// Destinations, each with a subscription to its own type of event.
    pub(crate) destinations: u64,
    /// Deliveries that wait for a slot in a day.
    pub(crate) waiting: u64,
    /// Deliveries that wait for their first attempt, at the destinations in turn.
    pub(crate) queued: u64,
    /// Bytes of the data of each queued event.
    pub(crate) payload_bytes: u64,
}

/// Fills a new store. The URLs of destinations begin with this URL.
pub(crate) async fn fill(data_dir: &Path, receiver: &str, filling: Filling) -> anyhow::Result<()> {
    std::fs::create_dir_all(data_dir)?;
    let ring = KeyRing::generate()?;
    ring.create(&data_dir.join("keyring"))?;
    let vault = Vault::new(ring);
    let path = data_dir.to_owned();
    let opened =
        tokio::task::spawn_blocking(move || EmbeddedStore::open(path, EmbeddedOptions::default()));
    let store = opened.await.context("opening the store panicked")??;
    let filler =
        Filler { store, vault, tenant: TenantId::default_tenant(), now: SystemClock.now() };
    for first in (0..filling.destinations).step_by(AT_ONCE) {
        let numbers = first..(first + AT_ONCE as u64).min(filling.destinations);
        let url = |n: u64| format!("http://{receiver}/d{n}/0");
        let wanted = numbers.map(|n| (n, url(n), format!("bench.k{n}"))).collect();
        filler.subscribe(wanted).await?;
    }
    for first in (0..filling.subscriptions).step_by(AT_ONCE) {
        let numbers = first..(first + AT_ONCE as u64).min(filling.subscriptions);
        // A thousand types, as in a real application; a hundred subscriptions for each.
        let kind = |n: u64| format!("other.kind{}.{}", n % 1000, n / 100_000);
        let url = |n: u64| format!("http://{receiver}/other{n}/0");
        let wanted = numbers.map(|n| (filling.destinations + n, url(n), kind(n))).collect();
        filler.subscribe(wanted).await?;
    }
    filler.wait(filling.waiting, receiver).await?;
    filler.queue(filling, receiver).await?;
    filler.store.close().await?;
    Ok(())
}

struct Filler {
    store: Arc<EmbeddedStore>,
    vault: Vault,
    tenant: TenantId,
    now: Timestamp,
}

impl Filler {
    async fn subscribe(&self, wanted: Vec<(u64, String, String)>) -> anyhow::Result<()> {
        let mut writes = JoinSet::new();
        for (number, url, kind) in wanted {
            let destination = Destination::new(self.tenant.clone(), url.clone(), self.now);
            let record = self.record(number, url, destination.id, &kind)?;
            let store = Arc::clone(&self.store);
            writes.spawn(async move { store.put_subscription(&record, &destination).await });
        }
        for put in writes.join_all().await {
            anyhow::ensure!(put? == SubscriptionPut::Stored, "a subscription is there twice");
        }
        Ok(())
    }

    fn record(
        &self,
        number: u64,
        url: String,
        destination: DestinationId,
        kind: &str,
    ) -> anyhow::Result<SubscriptionRecord> {
        let id = SubscriptionId::new(self.now, numbered(number));
        let secrets = SigningSecrets::new(SigningSecret::generate_symmetric([7; 32]));
        let (headers, tls) = (Vec::new(), TlsCredentials::default());
        let credentials = Credentials { secrets, token: None, headers, tls };
        let subscription = Subscription {
            id,
            destination,
            tenant: self.tenant.clone(),
            url,
            types: TypeSet::new([kind.parse::<TypePattern>()?])?,
            object: None,
            filter: None,
            format: Format::Standard,
            workfront: None,
            headers: Vec::new(),
            rate_limit: None,
            policy: SubscriptionPolicy::default(),
            about: About::default(),
            enabled: true,
            created_at: self.now,
            updated_at: self.now,
        };
        Ok(credentials.record(&self.vault, &subscription, HeaderForm::Sealed)?)
    }

    /// Adds deliveries that have failed once and wait, at a thousand destinations.
    async fn wait(&self, count: u64, receiver: &str) -> anyhow::Result<()> {
        if count == 0 {
            return Ok(());
        }
        let names = (0..1000u64).map(|n| (1 << 40 | n, format!("http://{receiver}/waits{n}/0")));
        let names: Vec<_> = names.collect();
        for part in names.chunks(AT_ONCE) {
            let wanted = part.iter().map(|(n, url)| (*n, url.clone(), "waits".to_owned()));
            self.subscribe(wanted.collect()).await?;
        }
        let leases = self.store.hold_shards().await?;
        for first in (0..count).step_by(usize::try_from(PAGE).unwrap_or(1)) {
            let made: Vec<Acceptance> = (first..(first + PAGE).min(count))
                .filter_map(|n| {
                    let place = usize::try_from(n % 1000).ok()?;
                    let (number, url) = names.get(place)?;
                    // The queue does not hold payloads, so small ones make the same queue.
                    let data = RawJson::from_trusted(Bytes::from_static(b"{}"));
                    self.acceptance(n, "waits", data, *number, url)
                })
                .collect();
            let owed = made.iter().flat_map(|one| one.deliveries.clone());
            let deliveries = owed.zip(first..).map(|(owed, n)| failed(owed, n)).collect();
            self.store.accept(made).await?;
            self.store.settle(&leases, Commit { deliveries, ..Commit::default() }).await?;
        }
        Ok(())
    }

    /// Adds events whose deliveries were never attempted, as a server leaves them that was killed.
    async fn queue(&self, filling: Filling, receiver: &str) -> anyhow::Result<()> {
        for first in (0..filling.queued).step_by(usize::try_from(PAGE).unwrap_or(1)) {
            let made: Vec<Acceptance> = (first..(first + PAGE).min(filling.queued))
                .filter_map(|n| {
                    let number = n % filling.destinations.max(1);
                    let data = message::data(n, filling.payload_bytes);
                    let data = RawJson::from_trusted(Bytes::from(data));
                    let (kind, url) =
                        (format!("bench.k{number}"), format!("http://{receiver}/d{number}/0"));
                    self.acceptance(n, &kind, data, number, &url)
                })
                .collect();
            self.store.accept(made).await?;
        }
        Ok(())
    }

    fn acceptance(
        &self,
        n: u64,
        kind: &str,
        data: RawJson,
        subscription: u64,
        url: &str,
    ) -> Option<Acceptance> {
        // A few per millisecond, like real traffic.
        let at = self.now.saturating_sub(BACKLOG_SPAN);
        let at = at.saturating_add(Duration::from_millis(n / 4).min(BACKLOG_SPAN));
        let event = Arc::new(Event {
            id: EventId::new(at, numbered(n)),
            tenant: self.tenant.clone(),
            kind: kind.parse().ok()?,
            object: None,
            data,
            old: None,
            time: at,
            trace: None,
        });
        let id = DeliveryId::new(at, numbered(n));
        let subscription = SubscriptionId::new(self.now, numbered(subscription));
        let destination = DestinationId::of(&self.tenant, url);
        let delivery = Delivery::accepted(id, &event, subscription, destination, at);
        Some(Acceptance {
            event,
            accepted_at: at,
            fingerprint: [7; 32],
            id_given: false,
            mark: postrider_domain::catalogue::EventMark::default(),
            deliveries: vec![delivery],
        })
    }
}

/// A delivery after its first failed attempt: due in a day, each at its own time.
fn failed(delivery: Delivery, n: u64) -> DeliveryChange {
    let at = delivery.created_at;
    let due_at = at.saturating_add(Duration::from_millis(86_750_400 + n % 3_600_000));
    let slot = Slot::new(10, due_at, ScheduleClock::starting_at(at));
    let detail = "connection refused".to_owned();
    let attempt = Attempt {
        number: 1,
        turn: Turn::First,
        started_at: at,
        timings: Timings { total: Duration::from_millis(1), ..Timings::default() },
        ending: Ending::Failed(Failure { class: FailureClass::Refused, detail }),
    };
    DeliveryChange {
        before: StateName::Queued,
        by_job: None,
        delivery: Delivery {
            state: DeliveryState::Waiting(slot),
            attempts: 1,
            last_attempt_at: Some(at),
            ..delivery
        },
        attempt: Some(attempt),
    }
}

/// The random part of an identifier: different for each number.
fn numbered(n: u64) -> [u8; 10] {
    let [a, b, ..] = n.wrapping_mul(postrider_domain::mixing::STEP).to_be_bytes();
    let mut random = [a, b, 0, 0, 0, 0, 0, 0, 0, 0];
    random[2..].copy_from_slice(&n.to_be_bytes());
    random
}
