//! What this node sees now: destinations that are disabled or frozen, suspended transitions, a full
//! disk, a store that fails.
//!
//! Counts come from the metrics, which have the stored truth of this node's shards. So what happened
//! before a restart, or was missed, is seen all the same.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use postrider_domain::alerts::{AlertKind, EXAMPLES_MAX, Example, Seen, origin_of};
use postrider_domain::destination::DestinationState;
use postrider_domain::ids::{DestinationId, TenantId};
use postrider_domain::policy::Share;
use postrider_store::{DestinationRecord, Store, StoreError};

use super::super::metrics::{Metrics, Standing};
use super::feed::AlertFeed;

/// How often disk and store are looked at.
const PROBE_EVERY: Duration = Duration::from_secs(5);
/// A store that does not answer within this time fails.
const STORE_PATIENCE: Duration = Duration::from_secs(10);
/// How often in a row the store must fail before it is told.
const STORE_FAILURES: u32 = 3;
/// Examples that are remembered.
const REMEMBERED_MAX: usize = 1_000;

/// Looks at this node.
pub(super) struct Sight {
    store: Arc<dyn Store>,
    metrics: Metrics,
    feed: AlertFeed,
    probes: Arc<Mutex<Probes>>,
    /// `None` is everything; then the tenants that some target asks for by name.
    scopes: Vec<Option<TenantId>>,
    /// What a node is called in messages.
    name: String,
    /// Examples by destination, each with the number of failures that it names.
    examples: HashMap<DestinationId, (u64, Example)>,
}

/// The last findings on disk and store.
#[derive(Default)]
struct Probes {
    disk: Option<String>,
    store: Option<String>,
}

impl Sight {
    pub(super) fn new(
        (store, metrics, feed): (Arc<dyn Store>, Metrics, AlertFeed),
        tenants: BTreeSet<TenantId>,
        disk: Option<(PathBuf, Share)>,
    ) -> Sight {
        let name = store.node().unwrap_or("this server").to_owned();
        let probes = Arc::default();
        drop(tokio::spawn(probe(Arc::clone(&store), disk, Arc::clone(&probes))));
        let scopes = std::iter::once(None).chain(tenants.into_iter().map(Some)).collect();
        Sight { store, metrics, feed, probes, scopes, name, examples: HashMap::new() }
    }

    /// The conditions that last now; `None` until the destinations are counted after the start.
    pub(super) async fn look(&mut self) -> Option<Vec<Seen>> {
        let standing = self.metrics.standing()?;
        let mut seen = self.server();
        if self.examples.len() > REMEMBERED_MAX || standing.is_empty() {
            self.examples.clear();
        }
        let kinds = [
            (AlertKind::DestinationDisabled, DestinationState::Disabled),
            (AlertKind::DestinationFrozen, DestinationState::Frozen),
        ];
        for scope in self.scopes.clone() {
            for (kind, state) in kinds {
                let is_in = |one: &&Standing| {
                    one.state == state && scope.as_ref().is_none_or(|scope| one.tenant == *scope)
                };
                let mut all: Vec<&Standing> = standing.iter().filter(is_in).collect();
                if all.is_empty() {
                    continue;
                }
                let count = u64::try_from(all.len()).unwrap_or(u64::MAX);
                all.sort_by_key(|one| (std::cmp::Reverse(one.failures), one.destination));
                let mut worst = Vec::new();
                for one in all.into_iter().take(EXAMPLES_MAX) {
                    worst.push(self.example(one).await);
                }
                seen.push(Seen { kind, scope: scope.clone(), count, worst });
            }
        }
        Some(seen)
    }

    /// The faults of the server itself.
    fn server(&self) -> Vec<Seen> {
        let (is_suspended, full) = self.feed.standing();
        let probes = self.probes.lock().unwrap_or_else(PoisonError::into_inner);
        let full = full.map(|place| format!("{place} has no room: new events are refused"));
        let held = is_suspended.then(|| "no destination is disabled or frozen for now".to_owned());
        let all = [
            (AlertKind::TransitionsSuspended, held),
            (AlertKind::Disk, full.or_else(|| probes.disk.clone())),
            (AlertKind::Store, probes.store.clone()),
        ];
        let seen = |(kind, detail): (AlertKind, Option<String>)| {
            let worst = vec![Example::of_server(&self.name, &detail?)];
            Some(Seen { kind, scope: None, count: 1, worst })
        };
        all.into_iter().filter_map(seen).collect()
    }

    /// The example of a destination. If the store does not answer, it has the identifier alone.
    async fn example(&mut self, one: &Standing) -> Example {
        match self.examples.get(&one.destination) {
            Some((failures, example)) if *failures == one.failures => return example.clone(),
            Some(_) | None => {}
        }
        let asked = self.store.destination(&one.tenant, one.destination);
        let record = tokio::time::timeout(STORE_PATIENCE, asked).await;
        let record = record.ok().and_then(Result::ok).flatten();
        let is_found = record.is_some();
        let example = example(one, record);
        if is_found {
            self.examples.insert(one.destination, (one.failures, example.clone()));
        }
        example
    }
}

fn example(one: &Standing, record: Option<DestinationRecord>) -> Example {
    let failures = one.failures;
    let mut detail =
        format!("{failures} consecutive failure{}", if failures == 1 { "" } else { "s" });
    let mut name = "?".to_owned();
    if let Some(record) = record {
        name = origin_of(&record.url);
        if let Some(evidence) = record.evidence() {
            detail = format!("{detail}, {}", evidence.as_str().replace('_', " "));
        }
        if record.circuit.ever_succeeded {
            detail = format!("{detail}; last success {}", record.circuit.last_success_at);
        } else {
            detail = format!("{detail}; never succeeded");
        }
    }
    let (tenant, id) = (Some(one.tenant.clone()), Some(one.destination.to_string()));
    Example { tenant, id, name, detail, weight: failures }
}

/// Looks at disk and store until the process ends.
async fn probe(store: Arc<dyn Store>, disk: Option<(PathBuf, Share)>, probes: Arc<Mutex<Probes>>) {
    let mut ticks = tokio::time::interval(PROBE_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut failures = 0;
    loop {
        ticks.tick().await;
        let checked = tokio::time::timeout(STORE_PATIENCE, store.check()).await;
        let (full, failed) = match checked {
            Ok(Ok(())) => (None, None),
            Ok(Err(StoreError::DiskFull { place })) => {
                (Some(format!("{place} has no room: new events are refused")), None)
            }
            Ok(Err(error)) => (None, Some(error.to_string())),
            Err(_) => (None, Some("it does not answer".to_owned())),
        };
        failures = if failed.is_some() { failures + 1 } else { 0 };
        let low = disk.as_ref().and_then(|(path, least)| low(path, *least));
        let mut probes = probes.lock().unwrap_or_else(PoisonError::into_inner);
        probes.disk = full.or(low);
        probes.store = failed.filter(|_| failures >= STORE_FAILURES);
    }
}

/// What to say if less than this share of a disk is free.
fn low(path: &std::path::Path, least: Share) -> Option<String> {
    let space = rustix::fs::statvfs(path).ok()?;
    let (free, all) = (u128::from(space.f_bavail), u128::from(space.f_blocks));
    let millionths = (free * 1_000_000).checked_div(all)?;
    let is_low = millionths < u128::from(least.as_millionths());
    let megabytes = free * u128::from(space.f_frsize) / 1_000_000;
    is_low.then(|| {
        format!(
            "{} MB are left in {}, {} % of its disk",
            megabytes,
            path.display(),
            millionths / 10_000
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disk_is_low_below_the_given_share_of_free_space() {
        let here = std::env::temp_dir();
        assert_eq!(low(&here, Share::from_millionths(0)), None);
        let said = low(&here, Share::from_millionths(1_000_000)).unwrap();
        assert!(said.contains("MB are left"), "{said}");
        assert_eq!(low(std::path::Path::new("/no/such/folder"), Share::from_millionths(1)), None);
    }
}
