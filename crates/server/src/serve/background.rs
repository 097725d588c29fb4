//! The threads for large work, at a lower priority than all others.

use std::io;

use rustix::process::{getpriority_process, setpriority_process};
use tokio::runtime::{Builder, Handle, Runtime};

/// By how much the niceness of these threads is higher than the server's. Each step is about a
/// tenth of the processor time.
const LOWER_PRIORITY: i32 = 10;

/// A second runtime beside the main one.
#[derive(Debug)]
pub(super) struct BackgroundRuntime {
    handle: Handle,
    /// `None` only after it was shut down.
    runtime: Option<Runtime>,
}

impl BackgroundRuntime {
    pub(super) fn start() -> io::Result<Self> {
        let niceness = getpriority_process(None).unwrap_or(0) + LOWER_PRIORITY;
        let runtime = Builder::new_multi_thread()
            .enable_all()
            .thread_name("background")
            // On Linux this changes the current thread only. If the system does not allow it, the
            // priority stays. Not `nice`, which is relative: a thread started by one of these
            // threads inherits the niceness.
            .on_thread_start(move || {
                setpriority_process(None, niceness).ok();
            })
            .build()?;
        Ok(BackgroundRuntime { handle: runtime.handle().clone(), runtime: Some(runtime) })
    }

    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for BackgroundRuntime {
    fn drop(&mut self) {
        // Remaining tasks were told to end, or must not keep the process alive.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
