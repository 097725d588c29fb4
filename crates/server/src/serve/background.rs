//! The threads for large work: their priority is lower than that of everything else.

use std::io;

use rustix::process::{getpriority_process, setpriority_process};
use tokio::runtime::{Builder, Handle, Runtime};

/// How much higher than the server's own the niceness of these threads is. Each step is about a tenth
/// of the processor time.
const LOWER_PRIORITY: i32 = 10;

/// A runtime beside the server's own.
#[derive(Debug)]
pub(super) struct BackgroundRuntime {
    handle: Handle,
    /// Taken at the end only.
    runtime: Option<Runtime>,
}

impl BackgroundRuntime {
    pub(super) fn start() -> io::Result<Self> {
        let niceness = getpriority_process(None).unwrap_or(0) + LOWER_PRIORITY;
        let runtime = Builder::new_multi_thread()
            .enable_all()
            .thread_name("background")
            // On Linux of this thread alone. Where the system does not allow it, it works as it is.
            // Not `nice`, which adds: a thread that one of these threads starts has its niceness
            // already.
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
        // What is left has been told to end, or must not keep the process alive.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
