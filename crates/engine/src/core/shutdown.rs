//! Shutdown: nothing new is sent, attempts in flight end and are settled, settlements become
//! durable.

use tokio::sync::oneshot;

use super::state::Core;

/// The progress of a shutdown.
#[derive(Debug, Default)]
pub(super) struct Shutdown {
    begun: bool,
    /// Attempts in flight are abandoned: they are repeated after the next start.
    abandoned: bool,
    done: Option<oneshot::Sender<usize>>,
}

impl Shutdown {
    pub(super) fn is_begun(&self) -> bool {
        self.begun
    }
}

impl Core {
    /// Begins the shutdown; when everything else is done, sends the number of abandoned attempts.
    pub(super) fn begin_shutdown(&mut self, done: oneshot::Sender<usize>) {
        self.shutdown.begun = true;
        self.shutdown.done = Some(done);
    }

    /// Stops waiting for attempts in flight.
    pub(super) fn abandon(&mut self) {
        self.shutdown.abandoned = true;
    }

    pub(super) fn finish_shutdown(&mut self) {
        let in_flight = self.table.in_flight.total();
        let is_over = self.shutdown.begun
            && (in_flight == 0 || self.shutdown.abandoned)
            && self.commits.is_empty();
        if is_over && let Some(done) = self.shutdown.done.take() {
            // The caller may have gone away.
            done.send(in_flight).ok();
        }
    }
}
