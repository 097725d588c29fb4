//! A real `postrider` on loopback, a receiver, and functions that wait for conditions.
//!
//! Nothing sleeps: waiting functions are woken by the server's log lines. Deadlines are generous,
//! and only make a broken server fail a test instead of hanging it.

pub(crate) mod http;
pub(crate) mod mail;
pub(crate) mod receiver;
pub(crate) mod server;

use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value as Json;

pub(crate) use receiver::Receiver;
pub(crate) use server::Start;

/// Longer than anything takes, even on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A point in time after which a test gives up.
#[derive(Clone, Copy)]
pub(crate) struct Deadline(Instant);

impl Deadline {
    #[expect(
        clippy::disallowed_methods,
        reason = "a broken server must fail the test, not hang it"
    )]
    pub(crate) fn new() -> Deadline {
        Deadline(Instant::now() + PATIENCE)
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "a broken server must fail the test, not hang it"
    )]
    pub(crate) fn has_passed(self) -> bool {
        Instant::now() > self.0
    }
}

/// The binary under test: the one of this build, or the one that `ABUSE_BINARY` names.
#[expect(clippy::disallowed_methods, reason = "a suite may be run against another binary")]
pub(crate) fn program() -> String {
    std::env::var("ABUSE_BINARY").unwrap_or_else(|_| env!("CARGO_BIN_EXE_postrider").to_owned())
}

/// The binary, without environment variables of ours that would configure it.
pub(crate) fn postrider(arguments: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.args(arguments).env_clear().stdin(Stdio::null());
    command
}

/// Runs a command to its end.
pub(crate) fn run(arguments: &[&str]) -> Output {
    postrider(arguments).output().unwrap()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The text of a JSON field.
pub(crate) fn text(value: &Json, name: &str) -> String {
    value[name].as_str().unwrap_or_else(|| panic!("no text {name} in {value}")).to_owned()
}

/// Whether the accounts of a ledger add up.
pub(crate) fn balances(ledger: &Json) -> bool {
    let count = |name: &str| ledger[name].as_u64().unwrap();
    let accounts = ["queued", "in_flight", "waiting", "delivered", "dead", "cancelled"];
    accounts.iter().map(|name| count(name)).sum::<u64>() == count("accepted")
}
