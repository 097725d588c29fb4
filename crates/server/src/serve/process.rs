//! What the API is told of this process: its settings, its age, its disk.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use postrider_api::process::{About, AlertDesk, Arrivals, Disk, Process, Setting};
use postrider_domain::ids::TenantId;
use postrider_domain::time::Timestamp;
use tokio::time::Instant;

use super::metrics::Metrics;
use crate::config::{Loaded, StoreChoice};

/// This process.
pub(super) struct ThisProcess {
    about: About,
    data_dir: PathBuf,
    settings: RwLock<Vec<Setting>>,
    alerts: Option<Arc<dyn AlertDesk>>,
    metrics: Metrics,
}

impl ThisProcess {
    pub(super) fn new(
        loaded: &Loaded,
        started_at: Timestamp,
        alerts: Option<Arc<dyn AlertDesk>>,
        metrics: Metrics,
    ) -> Self {
        let config = &loaded.config;
        let about = About {
            version: env!("CARGO_PKG_VERSION"),
            started_at,
            time_scale: config.time_scale.get(),
            store: match config.store {
                StoreChoice::Embedded => "embedded",
                StoreChoice::Postgres(_) => "postgres",
            },
        };
        let settings = RwLock::new(settings(loaded));
        ThisProcess { about, data_dir: config.data_dir.clone(), settings, alerts, metrics }
    }

    /// The settings were read again.
    pub(super) fn reloaded(&self, loaded: &Loaded) {
        *self.settings.write().unwrap_or_else(PoisonError::into_inner) = settings(loaded);
    }
}

fn settings(loaded: &Loaded) -> Vec<Setting> {
    let one = |shown: crate::config::Shown| Setting {
        key: shown.key,
        value: shown.value,
        origin: shown.origin.kind(),
        place: shown.origin.to_string(),
        help: shown.help,
        live: shown.live,
    };
    loaded.shown().into_iter().map(one).collect()
}

impl Process for ThisProcess {
    fn settings(&self) -> Vec<Setting> {
        self.settings.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn about(&self) -> About {
        self.about.clone()
    }

    fn disk(&self) -> Option<Disk> {
        let space = rustix::fs::statvfs(&self.data_dir).ok()?;
        Some(Disk {
            free: space.f_bavail.saturating_mul(space.f_frsize),
            total: space.f_blocks.saturating_mul(space.f_frsize),
            data: bytes_below(&self.data_dir),
        })
    }

    #[expect(clippy::disallowed_methods, reason = "selects the last minutes, nothing else")]
    fn arrivals(&self, tenant: Option<&TenantId>) -> Option<Arrivals> {
        let lately = self.metrics.arrivals(Instant::now(), tenant);
        let (p50, p99) = (lately.percentile(500)?, lately.percentile(990)?);
        Some(Arrivals { count: lately.times_counted(), p50, p99 })
    }

    fn alerts(&self) -> Option<Arc<dyn AlertDesk>> {
        self.alerts.clone()
    }
}

/// The bytes of all files in a directory and in those below it. A file that cannot be read counts nothing:
/// the store removes files at any time.
fn bytes_below(directory: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(directory) else { return 0 };
    let bytes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(found) if found.is_dir() => bytes_below(&entry.path()),
        Ok(found) => found.len(),
        Err(_) => 0,
    });
    bytes.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_a_directory_are_those_of_its_files_at_any_depth() {
        let directory = tempfile::tempdir().unwrap();
        let inner = directory.path().join("a/b");
        std::fs::create_dir_all(&inner).unwrap();
        std::fs::write(directory.path().join("one"), [0; 7]).unwrap();
        std::fs::write(inner.join("two"), [0; 5]).unwrap();
        assert_eq!(bytes_below(directory.path()), 12);
        assert_eq!(bytes_below(&directory.path().join("none")), 0);
    }
}
