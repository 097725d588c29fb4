//! A mail server: aiosmtpd, of Debian's package, on loopback.

use std::io::{BufRead as _, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::Value as Json;

/// Debian's Python, which has Debian's packages.
const PYTHON: &str = "/usr/bin/python3";

pub(crate) struct MailServer {
    child: Child,
    pub(crate) port: u16,
    lines: Lines<BufReader<ChildStdout>>,
}

impl MailServer {
    /// Starts it with the options of `smtp.py`.
    pub(crate) fn start(options: &Json) -> MailServer {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/end_to_end/support/smtp.py");
        let mut child = Command::new(PYTHON)
            .args([script, &options.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let port = lines.next().expect("the mail server did not start: cargo xtask install");
        MailServer { port: port.unwrap().parse().unwrap(), child, lines }
    }

    /// Waits for the next message.
    pub(crate) fn next(&mut self) -> Json {
        serde_json::from_str(&self.lines.next().unwrap().unwrap()).unwrap()
    }
}

impl Drop for MailServer {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
