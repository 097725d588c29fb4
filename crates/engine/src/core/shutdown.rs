//! Stopping: nothing new is sent, what is in flight ends and is settled, what is settled is durable.

use tokio::sync::oneshot;

use super::state::Core;

/// How far stopping has come.
#[derive(Debug, Default)]
pub(super) struct Shutdown {
    begun: bool,
    /// What is still in flight is given up: it is attempted again after the next start.
    abandoned: bool,
    done: Option<oneshot::Sender<usize>>,
}

impl Shutdown {
    pub(super) fn is_begun(&self) -> bool {
        self.begun
    }
}

impl Core {
    /// Begins to stop; answers with how many attempts were given up when all else is done.
    pub(super) fn begin_shutdown(&mut self, done: oneshot::Sender<usize>) {
        self.shutdown.begun = true;
        self.shutdown.done = Some(done);
    }

    /// Waits no longer for what is in flight.
    pub(super) fn abandon(&mut self) {
        self.shutdown.abandoned = true;
    }

    pub(super) fn finish_shutdown(&mut self) {
        let in_flight = self.in_flight.total();
        let is_over = self.shutdown.begun
            && (in_flight == 0 || self.shutdown.abandoned)
            && self.commits.is_empty();
        if is_over && let Some(done) = self.shutdown.done.take() {
            // Whoever asked may have gone away.
            done.send(in_flight).ok();
        }
    }
}
