//! Open files: as many as the system permits, and a word where that is too few.

use crate::config::Config;

/// What is open beside connections: the store, the log, the resolver.
const BESIDE: u64 = 256;

/// Raises the limit of open files to what may be needed, as far as the system permits.
pub(super) fn raise_limit(config: &Config) {
    let needed = needed(config);
    match rlimit::increase_nofile_limit(needed) {
        Ok(limit) if limit < needed => tracing::warn!(
            limit,
            needed,
            "few files may be open: raise the limit (ulimit -n), or lower engine.in_flight_max, \
             transport.idle_max and http.connections_max"
        ),
        Ok(_) => {}
        Err(error) => tracing::warn!(%error, needed, "cannot raise the limit of open files"),
    }
}

/// Every attempt, every idle connection and every caller has one.
fn needed(config: &Config) -> u64 {
    let all = config
        .engine
        .in_flight_max
        .saturating_add(config.transport.pool.idle_max)
        .saturating_add(config.http.connections_max);
    u64::try_from(all).unwrap_or(u64::MAX).saturating_add(BESIDE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_need_fewer_files_than_common_systems_permit() {
        assert!(needed(&Config::default()) < 65_536);
    }
}
