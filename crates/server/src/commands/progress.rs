//! A bar for work on files that takes long, on a terminal only.

use std::path::Path;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::backup::bytes_in;
use crate::output::Output;

/// How often the length of a copy is read.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// A bar of bytes. Clones are the same bar.
#[derive(Clone)]
pub(super) struct Progress(ProgressBar);

impl Progress {
    /// A bar for `total` bytes. It is not shown with `--json`, nor where the standard error is no terminal, or one that
    /// cannot move its cursor.
    pub(super) fn new(output: Output, what: &'static str, total: u64) -> Progress {
        if !output.redraws() {
            return Progress(ProgressBar::hidden());
        }
        let style = "{msg:>10} {bar:30} {bytes} of {total_bytes}, {elapsed}";
        let style = ProgressStyle::with_template(style);
        let bar = ProgressBar::new(total)
            .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
            .with_message(what);
        bar.tick();
        Progress(bar)
    }

    /// So many more bytes are done.
    pub(super) fn add(&self, bytes: u64) {
        self.0.inc(bytes);
    }

    /// Removes the bar.
    pub(super) fn end(&self) {
        self.0.finish_and_clear();
    }

    /// Waits for `work`, which fills this directory, and shows how full it is.
    pub(super) async fn of_copy<T>(&self, directory: &Path, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        let mut looks = tokio::time::interval(LOOK_EVERY);
        loop {
            tokio::select! {
                done = &mut work => {
                    self.end();
                    return done;
                }
                _ = looks.tick() => self.0.set_position(bytes_in(directory).unwrap_or(0)),
            }
        }
    }
}
