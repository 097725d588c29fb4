//! The hosts of destinations, for the log lines of attempts.
//!
//! A settlement names its destination by the identifier alone. The store's answers have the URLs, so
//! their hosts are remembered as they pass by, up to a limit.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use postrider_domain::ids::DestinationId;
use postrider_store::DestinationRecord;
use url::Url;

/// Destinations whose hosts are remembered; the lines of others have none.
const REMEMBERED_MAX: usize = 200_000;

/// Hosts by destination.
#[derive(Default)]
pub(super) struct Hosts(Mutex<HashMap<DestinationId, Arc<str>>>);

impl Hosts {
    fn known(&self) -> MutexGuard<'_, HashMap<DestinationId, Arc<str>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers the hosts of these destinations.
    pub(super) fn remember<'a>(&self, records: impl IntoIterator<Item = &'a DestinationRecord>) {
        let mut known = self.known();
        for record in records {
            if known.len() >= REMEMBERED_MAX || known.contains_key(&record.id) {
                continue;
            }
            let url = Url::parse(&record.url).ok();
            if let Some(host) = url.as_ref().and_then(Url::host_str) {
                known.insert(record.id, Arc::from(host));
            }
        }
    }

    /// The host of a destination.
    pub(super) fn of(&self, destination: DestinationId) -> Option<Arc<str>> {
        self.known().get(&destination).cloned()
    }
}
