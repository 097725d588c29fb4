//! Reads the gauges of the engine and the store every few seconds, for the metrics, and alerts the
//! operator when transitions are suspended.

use std::sync::Arc;
use std::time::Duration;

use postrider_domain::matching::TenantIndex;
use postrider_domain::time::Timestamp;
use postrider_engine::EngineHandle;
use postrider_store::{ShardLeases, Store, StoreError};
use postrider_transport::Clock;

use super::alerts::AlertFeed;
use super::metrics::{GaugeValues, Metrics};

const EVERY: Duration = Duration::from_secs(2);

/// Reads the gauges every few seconds until the process ends.
pub(super) async fn follow(
    engine: EngineHandle,
    (store, clock): (Arc<dyn Store>, Arc<dyn Clock>),
    metrics: Metrics,
    alerts: Option<AlertFeed>,
) {
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut was_suspended = false;
    loop {
        ticks.tick().await;
        let (Ok(gauges), Ok(ledger)) = (engine.gauges().await, engine.ledger(None).await) else {
            // The server is shutting down, or the store does not answer: the last values stay.
            continue;
        };
        if gauges.suspended != was_suspended {
            was_suspended = gauges.suspended;
            alert(was_suspended);
            if let Some(alerts) = &alerts {
                alerts.suspended(was_suspended);
            }
        }
        let refused = engine.quota_refusals().into_iter();
        metrics.refused(refused.map(|(quota, count)| (quota.name(), count)).collect());
        let now = clock.now();
        let Ok(leases) = engine.leases().await else { continue };
        count_destinations(&engine, &metrics, &leases).await;
        let Ok(ages) = ages(&leases, &*store, now).await else { continue };
        metrics.set_gauges(GaugeValues {
            ledger,
            transitions_suspended: gauges.suspended,
            clock_ahead_ms: now.ms_from(clock.wall()),
            shards: u64::try_from(gauges.shards).unwrap_or(u64::MAX),
            leased: gauges.leased,
            in_flight_first: u64::try_from(gauges.in_flight_first).unwrap_or(u64::MAX),
            in_flight_retry: u64::try_from(gauges.in_flight_retry).unwrap_or(u64::MAX),
            filters_over_budget: gauges.filters_over_budget,
            misfits: engine.misfits(),
            first_lane_age: ages.0,
            retry_lane_overdue: ages.1,
        });
    }
}

/// Logs that transitions are suspended, or that the suspension has ended.
fn alert(suspended: bool) {
    if suspended {
        tracing::error!(
            "most destinations began to fail at once: the fault is probably ours, so none is \
             disabled or frozen for now; look at this machine's network, resolver and proxy"
        );
    } else {
        tracing::warn!(
            "most destinations no longer fail at once: transitions to disabled and frozen are no \
             longer suspended"
        );
    }
}

/// Counts destinations on a blocking thread, because it takes long with many subscriptions.
async fn count_destinations(engine: &EngineHandle, metrics: &Metrics, leases: &Arc<ShardLeases>) {
    let (metrics, leases) = (metrics.clone(), Arc::clone(leases));
    let subscriptions = engine.subscriptions();
    let count = move || {
        let named = subscriptions.iter().flat_map(TenantIndex::destinations);
        metrics.count_destinations(named, &leases);
    };
    if let Err(error) = tokio::task::spawn_blocking(count).await {
        tracing::error!(%error, "cannot count the destinations for the metrics");
    }
}

/// How long the oldest delivery of each lane is overdue.
async fn ages(
    leases: &ShardLeases,
    store: &dyn Store,
    now: Timestamp,
) -> Result<(Duration, Duration), StoreError> {
    let queued = store.queued(leases, None, 1).await?;
    let due = store.due(leases, None, now, 1).await?;
    let first = queued.first().map_or(Duration::ZERO, |delivery| now.since(delivery.created_at));
    let retry = due.first().and_then(|delivery| delivery.next_attempt_at());
    Ok((first, retry.map_or(Duration::ZERO, |at| now.since(at))))
}
