//! The processes of a measurement: this program once more, in other parts, and what the system says
//! of them.
//!
//! They talk by lines of JSON on their standard input and output. One that ends early is told of
//! with its last words, and none outlives the measurement.

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;

use crate::exit::Failure;

/// A process that answers lines with lines.
pub(super) struct Helper {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    part: &'static str,
}

impl Helper {
    /// Starts a part of `postrider bench`.
    pub(super) fn start(part: &'static str) -> Result<Helper, Failure> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["bench", part])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let output = output.ok_or_else(|| Failure::failed("a process without output"))?;
        Ok(Helper { child, input, output: BufReader::new(output), part })
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its next line.
    pub(super) fn hear<T: DeserializeOwned>(&mut self) -> Result<T, Failure> {
        let mut text = String::new();
        self.output.read_line(&mut text)?;
        serde_json::from_str(&text).map_err(|_| {
            Failure::failed(format!("`postrider bench {}` ended early: {text}", self.part))
        })
    }

    pub(super) fn ask<T: DeserializeOwned>(&mut self, what: &impl Serialize) -> Result<T, Failure> {
        let text = serde_json::to_string(what).map_err(anyhow::Error::from)?;
        if let Some(input) = &mut self.input {
            writeln!(input, "{text}")?;
            input.flush()?;
        }
        self.hear()
    }

    /// Gives it its one task and waits for the end of it.
    pub(super) fn task<T: DeserializeOwned>(
        part: &'static str,
        what: &impl Serialize,
    ) -> Result<T, Failure> {
        let mut helper = Helper::start(part)?;
        let answer = helper.ask(what)?;
        helper.input = None;
        helper.child.wait()?;
        Ok(answer)
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The task of a process that has one: its first line of input.
pub(super) fn read_task<T: DeserializeOwned>() -> Result<T, Failure> {
    let mut text = String::new();
    std::io::stdin().lock().read_line(&mut text)?;
    serde_json::from_str(&text)
        .map_err(|error| Failure::usage(format!("this is a part of `postrider bench`: {error}")))
}

/// A server of its own.
pub(super) struct Server {
    child: Child,
    pub(super) address: String,
    pub(super) key: String,
}

/// How long a server may take to start.
const START_MAX: Duration = Duration::from_secs(120);
/// What is kept of a server's last words.
const WORDS_MAX: usize = 4096;

impl Server {
    /// Starts one with a key of its own.
    pub(super) fn start(data_dir: &Path, store: Option<&str>) -> Result<Server, Failure> {
        let mut random = [0; 24];
        getrandom::fill(&mut random).map_err(|error| Failure::failed(error.to_string()))?;
        let key: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--json", "serve", "--dev", "--listen", "127.0.0.1:0", "--data-dir"]);
        command.arg(data_dir).env("POSTRIDER_ADMIN_KEY", &key);
        if let Some(store) = store {
            command.args(["--store", store]);
        }
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let (sender, heard) = mpsc::channel();
        let words = Arc::new(Mutex::new(Vec::new()));
        if let Some(log) = child.stderr.take() {
            let words = Arc::clone(&words);
            drop(std::thread::spawn(move || read_log(log, &sender, &words)));
        }
        let mut server = Server { child, address: String::new(), key };
        match heard.recv_timeout(START_MAX) {
            Ok(address) => server.address = address,
            Err(_) => {
                let words = words.lock().unwrap_or_else(PoisonError::into_inner);
                let words = String::from_utf8_lossy(&words);
                return Err(Failure::failed(format!("the server did not start: {words}")));
            }
        }
        Ok(server)
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends it as its user would, and waits for that.
    pub(super) fn stop(mut self) -> Result<(), Failure> {
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(id) = id {
            kill_process(id, Signal::TERM).map_err(std::io::Error::from)?;
        }
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Reads the log as whoever collects it would, and finds where the server listens.
fn read_log(
    log: std::process::ChildStderr,
    listening: &mpsc::Sender<String>,
    words: &Mutex<Vec<u8>>,
) {
    let mut log = BufReader::with_capacity(256 * 1024, log);
    let mut text = String::new();
    while matches!(log.read_line(&mut text), Ok(1..)) {
        let address = serde_json::from_str::<Json>(&text).ok().and_then(|line| {
            (line["message"] == "listening").then(|| line["address"].as_str().map(str::to_owned))?
        });
        let mut words = words.lock().unwrap_or_else(PoisonError::into_inner);
        words.truncate(WORDS_MAX);
        words.extend_from_slice(text.as_bytes());
        text.clear();
        if let Some(address) = address {
            // Whoever started it waits for nothing else.
            drop(listening.send(address));
            break;
        }
    }
    let mut rest = vec![0; 256 * 1024];
    while matches!(log.read(&mut rest), Ok(1..)) {}
}

/// What the system says of a process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) cpu_us: u64,
    pub(super) written_bytes: u64,
    pub(super) peak_bytes: u64,
}

impl Usage {
    pub(super) fn of(id: u32) -> Usage {
        let status = read(&format!("/proc/{id}/status"));
        let io = read(&format!("/proc/{id}/io"));
        Usage {
            cpu_us: cpu_us(id).unwrap_or(0),
            written_bytes: field(&io, "write_bytes:").unwrap_or(0),
            peak_bytes: field(&status, "VmHWM:").unwrap_or(0) * 1024,
        }
    }
}

/// Memory that a process has now.
pub(super) fn resident_bytes(id: u32) -> u64 {
    field(&read(&format!("/proc/{id}/status")), "VmRSS:").unwrap_or(0) * 1024
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Processor time of a process with all its threads.
pub(super) fn cpu_us(id: u32) -> Option<u64> {
    cpu_of_stat(&std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?)
}

/// User and system time of a line of `/proc/…/stat`, which counts in hundredths of a second.
fn cpu_of_stat(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let (user, system): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some((user + system) * 10_000)
}

/// Processor time of every PostgreSQL process of this machine: all of them, whosesoever they are.
pub(super) fn postgres_cpu_us() -> u64 {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let times = processes.filter_map(|process| {
        let stat = std::fs::read_to_string(process.path().join("stat")).ok()?;
        stat.contains("(postgres)").then(|| cpu_of_stat(&stat))?
    });
    times.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_knows_this_process() {
        // In this order: memory may grow in between.
        let resident = resident_bytes(std::process::id());
        let usage = Usage::of(std::process::id());
        assert!(usage.peak_bytes > 1_000_000, "{usage:?}");
        assert!(resident > 0 && resident <= usage.peak_bytes, "{resident} {usage:?}");
        assert_eq!(Usage::of(0), Usage::default());
    }

    #[test]
    fn a_name_with_spaces_and_brackets_does_not_shift_the_times() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194304 1 0 0 0 12 30 0 0 20 0 1 0 1 1 1";
        assert_eq!(cpu_of_stat(stat), Some(420_000));
    }
}
