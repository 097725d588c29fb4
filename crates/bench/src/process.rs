//! The processes of a measurement: other parts of this program.
//!
//! They communicate by lines of JSON on their standard input and output. If one ends early, its
//! last output is reported, and none outlives the measurement.

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use postrider_domain::ids::SHARDS;
use rustix::process::{Signal, kill_process};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;

use super::ending;
use postrider_cli::exit::Failure;

/// A process that answers lines with lines.
pub(crate) struct Helper {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    part: &'static str,
}

impl Helper {
    /// Starts a part of `postrider bench`.
    pub(crate) fn start(part: &'static str) -> Result<Helper, Failure> {
        let mut child = ending::spawn(&["bench", part], |command| {
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
        })?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let output = output.ok_or_else(|| Failure::failed("a process without output"))?;
        Ok(Helper { child, input, output: BufReader::new(output), part })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its next line.
    pub(crate) fn hear<T: DeserializeOwned>(&mut self) -> Result<T, Failure> {
        let mut text = String::new();
        self.output.read_line(&mut text)?;
        serde_json::from_str(&text).map_err(|_| {
            Failure::failed(format!("`postrider bench {}` ended early: {text}", self.part))
        })
    }

    pub(crate) fn ask<T: DeserializeOwned>(&mut self, what: &impl Serialize) -> Result<T, Failure> {
        let text = serde_json::to_string(what).map_err(anyhow::Error::from)?;
        if let Some(input) = &mut self.input {
            writeln!(input, "{text}")?;
            input.flush()?;
        }
        self.hear()
    }

    /// Gives it its task and waits for the result.
    pub(crate) fn task<T: DeserializeOwned>(
        part: &'static str,
        what: &impl Serialize,
    ) -> Result<T, Failure> {
        let mut helper = Helper::start(part)?;
        let answer = helper.ask(what)?;
        helper.input = None;
        ending::let_go(&helper.child);
        helper.child.wait()?;
        Ok(answer)
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        ending::let_go(&self.child);
        // It may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The task of a process: its first line of input.
pub(crate) fn read_task<T: DeserializeOwned>() -> Result<T, Failure> {
    let mut text = String::new();
    std::io::stdin().lock().read_line(&mut text)?;
    serde_json::from_str(&text)
        .map_err(|error| Failure::usage(format!("this is a part of `postrider bench`: {error}")))
}

/// A server process.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: String,
    /// The number of shards it last logged.
    shards: u64,
    /// The relevant log lines, while they are needed.
    said: Option<mpsc::Receiver<Said>>,
    is_heard: Arc<AtomicBool>,
}

/// The time limit for starting a server, or for nodes to share the shards.
const START_MAX: Duration = Duration::from_secs(120);
/// How much of a server's last output is kept.
const WORDS_MAX: usize = 4096;

/// The relevant log lines.
enum Said {
    Listening(String),
    Shards(u64),
}

impl Server {
    /// Starts a server with this admin key.
    pub(crate) fn start(
        data_dir: &Path,
        store: Option<&str>,
        key: &str,
    ) -> Result<Server, Failure> {
        let arguments = ["--json", "serve", "--dev", "--listen", "127.0.0.1:0"];
        let mut child = ending::spawn(&arguments, |command| {
            command.arg("--data-dir").arg(data_dir).env("POSTRIDER_ADMIN_KEY", key);
            if let Some(store) = store {
                // In the environment, because it may contain a password.
                command.env("POSTRIDER_STORE", store);
            }
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        })?;
        let (sender, said) = mpsc::channel();
        let (words, is_heard) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(true)));
        if let Some(log) = child.stderr.take() {
            let (words, is_heard) = (Arc::clone(&words), Arc::clone(&is_heard));
            drop(std::thread::spawn(move || read_log(log, &sender, &is_heard, &words)));
        }
        let mut server = Server { child, address: String::new(), shards: 0, said: None, is_heard };
        loop {
            match said.recv_timeout(START_MAX) {
                Ok(Said::Listening(address)) => {
                    server.address = address;
                    server.said = Some(said);
                    return Ok(server);
                }
                Ok(Said::Shards(held)) => server.shards = held,
                Err(_) => {
                    let words = words.lock().unwrap_or_else(PoisonError::into_inner);
                    let words = String::from_utf8_lossy(&words);
                    return Err(Failure::failed(format!("the server did not start: {words}")));
                }
            }
        }
    }

    /// Waits until it owns its share of the shards among this many nodes.
    pub(crate) fn wait_for_share(&mut self, nodes: u64) -> Result<(), Failure> {
        let share = u64::from(SHARDS) / nodes.max(1);
        while self.shards != share && self.shards != share + 1 {
            let said = self.said.as_ref().map(|said| said.recv_timeout(START_MAX));
            match said {
                Some(Ok(Said::Shards(held))) => self.shards = held,
                Some(Ok(Said::Listening(_))) => {}
                Some(Err(_)) | None => {
                    return Err(Failure::failed(format!(
                        "one of {nodes} nodes holds {} shards, not {share}: do other nodes use the \
                         same database?",
                        self.shards
                    )));
                }
            }
        }
        Ok(())
    }

    /// From here on its log is only drained, at the least cost.
    pub(crate) fn hear_no_more(&mut self) {
        self.is_heard.store(false, Ordering::Relaxed);
        self.said = None;
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Shuts it down in order, and waits for its end.
    pub(crate) fn stop(mut self) -> Result<(), Failure> {
        ending::let_go(&self.child);
        if let Some(id) = ending::pid(&self.child) {
            kill_process(id, Signal::TERM).map_err(std::io::Error::from)?;
        }
        self.child.wait()?;
        Ok(())
    }
}

/// A new random key.
pub(crate) fn new_key() -> Result<String, Failure> {
    let random = postrider_entropy::system_bytes::<24>();
    let random = random.map_err(|error| Failure::failed(error.to_string()))?;
    Ok(postrider_domain::hex::encode(&random))
}

impl Drop for Server {
    fn drop(&mut self) {
        ending::let_go(&self.child);
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Reads the log; finds the server's address and its number of shards.
fn read_log(
    log: std::process::ChildStderr,
    said: &mpsc::Sender<Said>,
    is_heard: &AtomicBool,
    words: &Mutex<Vec<u8>>,
) {
    let mut log = BufReader::with_capacity(256 * 1024, log);
    let mut text = String::new();
    while is_heard.load(Ordering::Relaxed) && matches!(log.read_line(&mut text), Ok(1..)) {
        let what = serde_json::from_str::<Json>(&text).ok().and_then(|line| match line["message"]
            .as_str()?
        {
            "listening" => Some(Said::Listening(line["address"].as_str()?.to_owned())),
            "shards held" => Some(Said::Shards(line["shards"].as_u64()?)),
            _ => None,
        });
        let mut words = words.lock().unwrap_or_else(PoisonError::into_inner);
        words.truncate(WORDS_MAX);
        words.extend_from_slice(text.as_bytes());
        text.clear();
        if let Some(what) = what {
            // The receiver may have been dropped.
            drop(said.send(what));
        }
    }
    let mut rest = vec![0; 256 * 1024];
    while matches!(log.read(&mut rest), Ok(1..)) {}
}
