//! One server process.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use serde_json::{Value as Json, json};

use super::{Deadline, PATIENCE, http, program};

/// The start options of a server.
#[derive(Clone)]
pub(crate) struct Start {
    /// The program that starts the server, if it is not started directly. It must `exec` the
    /// server, so that signals reach it.
    wrapper: Vec<String>,
    /// The binary.
    program: PathBuf,
    arguments: Vec<String>,
    variables: Vec<(String, String)>,
}

impl Start {
    /// Development mode, on a free port.
    pub(crate) fn dev() -> Start {
        let start = Start {
            wrapper: Vec::new(),
            program: PathBuf::new(),
            arguments: vec!["--dev".to_owned()],
            variables: Vec::new(),
        };
        start.program(Path::new(&program()))
    }

    /// Another binary, such as that of another version.
    pub(crate) fn program(mut self, program: &Path) -> Start {
        self.program = program.to_owned();
        self
    }

    /// Started by another program, which gets the server and its arguments.
    pub(crate) fn under(mut self, wrapper: &[&str]) -> Start {
        self.wrapper = wrapper.iter().map(|word| (*word).to_owned()).collect();
        self
    }

    /// Without any setting, on a free port.
    pub(crate) fn plain() -> Start {
        Start { arguments: Vec::new(), ..Start::dev() }
    }

    pub(crate) fn with(mut self, arguments: &[&str]) -> Start {
        self.arguments.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        self
    }

    pub(crate) fn variable(mut self, name: &str, value: &str) -> Start {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Starts in a new directory.
    pub(crate) fn fresh(self) -> Server {
        let directory = tempfile::tempdir().unwrap();
        let data_dir = directory.path().join("data");
        let mut server = self.at(&data_dir);
        server.directory = Some(directory);
        server
    }

    /// Starts on an existing data directory.
    pub(crate) fn at(self, data_dir: &Path) -> Server {
        self.try_at(data_dir).unwrap_or_else(|(status, log)| panic!("{status}:\n{log}"))
    }

    /// Starts; if the process ends before it listens, returns its status and output.
    pub(crate) fn try_at(self, data_dir: &Path) -> Result<Server, (ExitStatus, String)> {
        let mut server = self.spawn(data_dir);
        let Some(listening) = server.line_or_end(|line| line.contains("\"listening\"")) else {
            return Err(server.ended());
        };
        let listening: Json = serde_json::from_str(&listening).unwrap();
        server.address = listening["address"].as_str().unwrap().parse().unwrap();
        let given = self.variables.iter().find(|(name, _)| name == "POSTRIDER_ADMIN_KEY");
        server.key = match given {
            Some((_, key)) => key.clone(),
            None => std::fs::read_to_string(data_dir.join("admin.key")).unwrap().trim().to_owned(),
        };
        Ok(server)
    }

    /// Starts without waiting: the address is not known yet.
    pub(crate) fn spawn(&self, data_dir: &Path) -> Server {
        let mut command = self.command(data_dir);
        let mut child = command.stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = mpsc::channel();
        let stderr = child.stderr.take().unwrap();
        drop(thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        }));
        Server {
            child,
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            key: String::new(),
            data_dir: data_dir.to_owned(),
            lines,
            log: VecDeque::new(),
            directory: None,
        }
    }

    /// The command, for servers that should refuse to start.
    pub(crate) fn command(&self, data_dir: &Path) -> Command {
        let serve = ["serve", "--listen", "127.0.0.1:0", "--data-dir"];
        let mut command = match self.wrapper.split_first() {
            None => Command::new(&self.program),
            Some((program, words)) => {
                let mut command = Command::new(program);
                command.args(words).arg(&self.program);
                command
            }
        };
        command.args(serve).env_clear().stdin(Stdio::null());
        command.arg(data_dir).args(&self.arguments);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }
}

pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
    pub(crate) key: String,
    pub(crate) data_dir: PathBuf,
    lines: mpsc::Receiver<String>,
    log: VecDeque<String>,
    directory: Option<tempfile::TempDir>,
}

impl Server {
    /// Sends a request to the API, and expects this status.
    pub(crate) fn ask(&self, method: &str, path: &str, body: Option<&Json>, status: u16) -> Json {
        let (found, answer) = http::request(self.address, &self.key, method, path, body).unwrap();
        assert_eq!(found, status, "{method} {path}: {answer}");
        serde_json::from_str(&answer).unwrap_or(Json::Null)
    }

    pub(crate) fn get(&self, path: &str) -> Json {
        self.ask("GET", path, None, 200)
    }

    /// The page that Prometheus reads.
    pub(crate) fn metrics(&self) -> String {
        let (status, page) =
            http::request(self.address, &self.key, "GET", "/metrics", None).unwrap();
        assert_eq!(status, 200, "{page}");
        page
    }

    /// Subscribes this URL to everything.
    pub(crate) fn subscribe(&self, url: &str) -> Json {
        self.subscribe_to(url, "*")
    }

    /// Subscribes this URL to this type of events.
    pub(crate) fn subscribe_to(&self, url: &str, kind: &str) -> Json {
        let body = json!({ "url": url, "types": [kind] });
        self.ask("POST", "/v1/subscriptions", Some(&body), 201)
    }

    /// Sends this many events in one batch.
    pub(crate) fn send(&self, count: usize) {
        let events: Vec<_> =
            (0..count).map(|n| json!({ "type": "task.updated", "data": { "n": n } })).collect();
        self.ask("POST", "/v1/events/batch", Some(&json!(events)), 202);
    }

    /// The only destination.
    pub(crate) fn destination(&self) -> Json {
        let list = self.get("/v1/destinations");
        assert_eq!(list["data"].as_array().unwrap().len(), 1, "{list}");
        list["data"][0].clone()
    }

    /// The only delivery, with its attempts.
    pub(crate) fn delivery(&self) -> Json {
        let list = self.get("/v1/deliveries");
        assert_eq!(list["data"].as_array().unwrap().len(), 1, "{list}");
        self.get(&format!("/v1/deliveries/{}", list["data"][0]["id"].as_str().unwrap()))
    }

    pub(crate) fn ledger(&self) -> Json {
        self.get("/v1/ledger")
    }

    /// Waits until `look` returns a value; checks again at every log line of the server.
    pub(crate) fn wait<T>(&mut self, what: &str, look: impl Fn(&Server) -> Option<T>) -> T {
        let deadline = Deadline::new();
        loop {
            if let Some(found) = look(self) {
                return found;
            }
            assert!(
                !deadline.has_passed(),
                "waited in vain for {what}; log:\n{}",
                self.shown_log()
            );
            match self.lines.recv_timeout(Duration::from_millis(100)) {
                // Drain all queued lines before checking again.
                Ok(line) => {
                    self.remember(line);
                    while let Ok(line) = self.lines.try_recv() {
                        self.remember(line);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    panic!(
                        "the server ended while we waited for {what}; log:\n{}",
                        self.shown_log()
                    )
                }
            }
        }
    }

    /// Waits for a line of the log.
    pub(crate) fn wait_for_line(&mut self, is_it: impl Fn(&str) -> bool) -> String {
        self.line_or_end(is_it)
            .unwrap_or_else(|| panic!("the server ended; log:\n{}", self.shown_log()))
    }

    /// Waits for a line of the log; `None` if the server ended first.
    fn line_or_end(&mut self, is_it: impl Fn(&str) -> bool) -> Option<String> {
        if let Some(line) = self.log.iter().find(|line| is_it(line)) {
            return Some(line.clone());
        }
        let deadline = Deadline::new();
        loop {
            assert!(!deadline.has_passed(), "the line did not come; log:\n{}", self.shown_log());
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => {
                    self.remember(line.clone());
                    if is_it(&line) {
                        return Some(line);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {
                    panic!("the line did not come; log:\n{}", self.shown_log())
                }
            }
        }
    }

    /// What it printed after these words on its standard output, which is read by this alone.
    pub(crate) fn printed(&mut self, words: &str) -> String {
        self.first_printed(words).unwrap_or_else(|| panic!("it did not print {words:?}"))
    }

    /// The same; `None` if it did not print that until it ended.
    pub(crate) fn first_printed(&mut self, words: &str) -> Option<String> {
        let stdout = self.child.stdout.take().unwrap();
        let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
        lines.find_map(|line| line.strip_prefix(words).map(str::to_owned))
    }

    /// The identifier of the process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The peak memory of the process.
    pub(crate) fn peak_memory_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// All entries of a list, page by page.
    pub(crate) fn all(&self, path: &str) -> Vec<Json> {
        let mut all = Vec::new();
        let mut cursor = String::new();
        loop {
            let mut page = self.get(&format!("{path}?limit=1000{cursor}"));
            all.append(page["data"].as_array_mut().unwrap());
            match page["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return all,
            }
        }
    }

    fn remember(&mut self, line: String) {
        if self.log.len() == 1000 {
            self.log.pop_front();
        }
        self.log.push_back(line);
    }

    fn shown_log(&self) -> String {
        self.log.iter().map(String::as_str).collect::<Vec<_>>().join("\n")
    }

    /// Sends a signal by its name.
    pub(crate) fn signal(&self, name: &str) {
        assert!(kill(name, self.child.id()).status().unwrap().success());
    }

    /// Sends a signal to a process that may have ended already.
    pub(crate) fn try_signal(&self, name: &str) {
        drop(kill(name, self.child.id()).stderr(Stdio::null()).status());
    }

    /// Waits for the end of the process; returns its status and the rest of its log.
    pub(crate) fn ended(&mut self) -> (ExitStatus, String) {
        let deadline = Deadline::new();
        while !deadline.has_passed() {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => self.remember(line),
                Err(RecvTimeoutError::Disconnected) => {
                    return (self.child.wait().unwrap(), self.shown_log());
                }
                Err(RecvTimeoutError::Timeout) => break,
            }
        }
        panic!("the server does not end; log:\n{}", self.shown_log())
    }

    /// Kills the process.
    pub(crate) fn kill(&mut self) {
        self.signal("KILL");
        self.child.wait().unwrap();
    }

    /// Starts another server on the data of this one, which has ended.
    pub(crate) fn succeeded_by(mut self, start: Start) -> Server {
        let directory = self.directory.take();
        let mut next = start.at(&self.data_dir);
        next.directory = directory;
        next
    }

    /// Shuts it down in order, and starts another one on the same data.
    pub(crate) fn restart(self, start: Start) -> Server {
        self.signal("TERM");
        self.restart_after_end(start)
    }

    /// Waits for its orderly end, and starts another one on the same data.
    pub(crate) fn restart_after_end(mut self, start: Start) -> Server {
        let (status, log) = self.ended();
        assert!(status.success(), "{status}: {log}");
        self.succeeded_by(start)
    }
}

/// Uses the shell's builtin `kill`: a minimal machine has no program of that name.
fn kill(signal: &str, pid: u32) -> Command {
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("kill -s {signal} {pid}"));
    command
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
