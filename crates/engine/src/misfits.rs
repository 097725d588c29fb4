//! How many events did not fit the catalogue of event types.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::handle::EngineHandle;

/// Counts since the start.
#[derive(Debug, Default)]
pub(crate) struct Misfits {
    flagged: AtomicU64,
    refused: AtomicU64,
}

/// How many events did not fit the catalogue, since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MisfitCounts {
    /// Accepted and flagged.
    pub flagged: u64,
    /// Refused.
    pub refused: u64,
}

impl EngineHandle {
    /// Counts an event that was flagged.
    pub fn count_flagged(&self) {
        self.shared.ingest.misfits.flagged.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an event that was refused.
    pub fn count_misfit_refused(&self) {
        self.shared.ingest.misfits.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// How many events did not fit the catalogue, since the start.
    pub fn misfits(&self) -> MisfitCounts {
        let misfits = &self.shared.ingest.misfits;
        MisfitCounts {
            flagged: misfits.flagged.load(Ordering::Relaxed),
            refused: misfits.refused.load(Ordering::Relaxed),
        }
    }
}
