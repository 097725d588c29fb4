//! The log: structured lines.
//!
//! Text on a terminal, otherwise one JSON object per line. **No secret is ever logged**: lines
//! consist of identifiers, classes, numbers and paths. **Nothing waits for the log**: a thread of
//! its own writes it, and if the reader is so slow that the queue is full, lines are dropped and
//! counted.

use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use anyhow::Context as _;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, Registry};

use crate::config::{LogFormat, TelemetrySettings};
use crate::output::Output;

/// The tracing target of the lines of attempts.
pub(crate) const ATTEMPTS: &str = "postrider::attempt";

/// Queued texts.
const LINES_MAX: usize = 16 * 1024;
/// Queued bytes; a text may contain several lines.
const BYTES_MAX: usize = 8 * 1024 * 1024;
/// How long the shutdown waits for the last lines.
const FLUSH_MAX: Duration = Duration::from_secs(2);

/// Changes the log level of a running server, and flushes the log.
#[derive(Clone)]
pub(crate) struct LogHandle {
    level: reload::Handle<Targets, Registry>,
    lines: Lines,
    is_json: bool,
}

/// Writes the lines of attempts. There is one for each attempt, so JSON lines are written in bulk
/// and without tracing.
#[derive(Clone)]
pub(crate) struct AttemptLog(Option<Lines>);

impl AttemptLog {
    /// Whether the lines of attempts are enabled.
    pub(crate) fn is_wanted() -> bool {
        tracing::enabled!(target: ATTEMPTS, tracing::Level::INFO)
    }

    /// Whether callers format lines themselves, as JSON.
    pub(crate) const fn is_json(&self) -> bool {
        self.0.is_some()
    }

    /// Writes lines of JSON.
    pub(crate) fn write(&self, text: Vec<u8>, lines: u64) {
        if let Some(log) = &self.0 {
            log.send(text, lines);
        }
    }
}

/// Parses a log filter: `info`, or `info,postrider=debug`.
pub(crate) fn filter(text: &str) -> anyhow::Result<Targets> {
    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
    for directive in text.split(',') {
        // A single word that is not a level would silently be taken for the name of a module.
        let level = directive.rsplit('=').next().unwrap_or(directive).trim();
        anyhow::ensure!(LEVELS.contains(&level.to_ascii_lowercase().as_str()), "no level: {level}");
    }
    text.parse().context("not a filter")
}

fn effective(settings: &TelemetrySettings) -> anyhow::Result<Targets> {
    let targets = filter(&settings.log)?;
    Ok(if settings.attempts { targets } else { targets.with_target(ATTEMPTS, LevelFilter::OFF) })
}

/// Starts logging to the standard error; `--json` overrides the configured format.
pub(crate) fn start(settings: &TelemetrySettings, output: Output) -> anyhow::Result<LogHandle> {
    let (targets, level) = reload::Layer::new(effective(settings)?);
    let is_terminal = io::stderr().is_terminal();
    let human = match settings.format {
        LogFormat::Auto => is_terminal && !output.json,
        LogFormat::Human => !output.json,
        LogFormat::Json => false,
    };
    let lines = Lines::to(io::stderr())?;
    let layer = tracing_subscriber::fmt::layer().with_writer(lines.clone());
    let layer = if human {
        layer.with_ansi(output.colours_log()).with_target(false).boxed()
    } else {
        layer.json().flatten_event(true).with_span_list(false).with_current_span(false).boxed()
    };
    tracing_subscriber::registry()
        .with(layer.with_filter(targets))
        .try_init()
        .context("logging was started twice")?;
    Ok(LogHandle { level, lines, is_json: !human })
}

impl LogHandle {
    /// Applies another level.
    pub(crate) fn reload(&self, settings: &TelemetrySettings) -> anyhow::Result<()> {
        let targets = effective(settings)?;
        self.level.reload(targets).context("the log is closed")
    }

    /// The log of attempts.
    pub(crate) fn attempts(&self) -> AttemptLog {
        AttemptLog(self.is_json.then(|| self.lines.clone()))
    }

    /// Waits until everything logged is written, for a limited time.
    pub(crate) fn flush(&self) {
        let (done, written) = sync_channel(1);
        if self.lines.sender.send(WriterMessage::Flush(done)).is_ok() {
            match written.recv_timeout(FLUSH_MAX) {
                Ok(()) | Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
        }
    }
}

enum WriterMessage {
    Text(Vec<u8>),
    Flush(SyncSender<()>),
}

/// The queue of the thread that writes.
#[derive(Clone)]
struct Lines {
    sender: SyncSender<WriterMessage>,
    waiting: Arc<Waiting>,
}

/// The size of that queue.
#[derive(Default)]
struct Waiting {
    bytes: AtomicUsize,
    lost: AtomicU64,
}

impl Lines {
    fn to(target: impl Write + Send + 'static) -> io::Result<Lines> {
        let (sender, lines) = sync_channel(LINES_MAX);
        let waiting = Arc::new(Waiting::default());
        let seen = Arc::clone(&waiting);
        let write = move || write_all(&lines, &seen, BufWriter::new(target));
        // The thread runs as long as the process.
        drop(std::thread::Builder::new().name("postrider-log".to_owned()).spawn(write)?);
        Ok(Lines { sender, waiting })
    }

    fn send(&self, text: Vec<u8>, lines: u64) {
        let bytes = text.len();
        let before = self.waiting.bytes.fetch_add(bytes, Ordering::Relaxed);
        let is_sent = before < BYTES_MAX
            && match self.sender.try_send(WriterMessage::Text(text)) {
                Ok(()) => true,
                Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
            };
        if !is_sent {
            self.waiting.bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.waiting.lost.fetch_add(lines, Ordering::Relaxed);
        }
    }
}

/// Writes queued lines, and flushes whenever the queue is empty.
fn write_all(lines: &Receiver<WriterMessage>, waiting: &Waiting, mut target: impl Write) {
    // If the log cannot be written, deliveries continue.
    while let Ok(first) = lines.recv() {
        let mut next = Some(first);
        while let Some(line) = next {
            match line {
                WriterMessage::Text(text) => {
                    drop(target.write_all(&text));
                    waiting.bytes.fetch_sub(text.len(), Ordering::Relaxed);
                }
                WriterMessage::Flush(done) => {
                    drop(target.flush());
                    done.send(()).unwrap_or_default();
                }
            }
            next = lines.try_recv().ok();
        }
        let lost = waiting.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            let told =
                format!("{{\"level\":\"WARN\",\"message\":\"{lost} log lines were lost\"}}\n");
            drop(target.write_all(told.as_bytes()));
        }
        drop(target.flush());
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = OneLine;

    fn make_writer(&'a self) -> OneLine {
        OneLine { text: Vec::with_capacity(512), lines: self.clone() }
    }
}

/// One line that is being formatted.
struct OneLine {
    text: Vec<u8>,
    lines: Lines,
}

impl Write for OneLine {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for OneLine {
    fn drop(&mut self) {
        self.lines.send(std::mem::take(&mut self.text), 1);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_filter_names_levels() {
        for good in ["info", "WARN", "off", "info,postrider=debug", "info, postrider::serve=trace"]
        {
            assert!(filter(good).is_ok(), "{good}");
        }
        for bad in ["", "loud", "info,loud", "postrider", "info,", "=", "a=b=c"] {
            assert!(filter(bad).is_err(), "{bad}");
        }
    }

    /// Blocks at its first line until it is released, like a reader that has stopped reading.
    struct Stuck {
        go_on: Mutex<Receiver<()>>,
        written: std::sync::mpsc::Sender<Vec<u8>>,
    }

    impl Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.go_on.lock().unwrap().recv().unwrap_or_default();
            self.written.send(bytes.to_vec()).unwrap();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn stuck_log_reader_loses_lines_and_delays_nobody() {
        let (let_go, go_on) = channel();
        let (written, read) = channel();
        let lines = Lines::to(Stuck { go_on: Mutex::new(go_on), written }).unwrap();
        let line = b"one line of the log\n";
        for _ in 0..LINES_MAX * 3 {
            lines.make_writer().write_all(line).unwrap();
        }
        assert!(lines.waiting.lost.load(Ordering::Relaxed) > 0, "nobody waited");
        // A large text is dropped as a whole, and all its lines are counted.
        let before = lines.waiting.lost.load(Ordering::Relaxed);
        AttemptLog(Some(lines.clone())).write(vec![b'x'; BYTES_MAX], 7);
        AttemptLog(Some(lines.clone())).write(vec![b'x'; BYTES_MAX], 7);
        assert!(lines.waiting.lost.load(Ordering::Relaxed) >= before + 7);
        drop(let_go);
        let mut all = Vec::new();
        while !all.ends_with(b"log lines were lost\"}\n") {
            all.extend(read.recv().unwrap());
        }
        assert!(all.len() > line.len() * LINES_MAX);
    }
}
