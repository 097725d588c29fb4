//! Runs other programs: prints the command, runs it, and turns a failure into an error.

use std::collections::VecDeque;
use std::env;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::{Context, Result, bail};

/// A command in a directory, from words separated by spaces.
pub(crate) fn command(directory: &Path, words: &str) -> Command {
    let mut words = words.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or("true"));
    command.args(words).current_dir(directory);
    command
}

/// The command as a person would type it.
pub(crate) fn shown(command: &Command) -> String {
    let mut text = String::new();
    for (key, value) in command.get_envs() {
        let value = value.map(|v| v.to_string_lossy().into_owned()).unwrap_or_default();
        text += &format!("{}='{value}' ", key.to_string_lossy());
    }
    text += &command.get_program().to_string_lossy();
    for argument in command.get_args() {
        text += &format!(" {}", argument.to_string_lossy());
    }
    text
}

/// Where cargo builds: its target folder, or the one that `CARGO_TARGET_DIR` names.
#[expect(clippy::disallowed_methods, reason = "cargo reads the same variable")]
pub(crate) fn target(root: &Path) -> PathBuf {
    root.join(env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// How many lines of a failed step the summary of CI repeats.
const LAST_LINES: usize = 60;

/// The last lines that programs printed, while CI records them.
static LAST: Mutex<Option<VecDeque<String>>> = Mutex::new(None);

/// Starts to record the last lines that programs print. Output then passes through a pipe, so that
/// programs print it without colours.
pub(crate) fn record() {
    *LAST.lock().unwrap_or_else(PoisonError::into_inner) = Some(VecDeque::new());
}

/// Takes the recorded lines.
pub(crate) fn take_recorded() -> Vec<String> {
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    last.as_mut().map(|lines| lines.drain(..).collect()).unwrap_or_default()
}

fn is_recording() -> bool {
    LAST.lock().unwrap_or_else(PoisonError::into_inner).is_some()
}

/// Prints and records a line.
pub(crate) fn say(line: &str) {
    println!("{line}");
    remember(line);
}

/// Records a line, in place of the oldest.
fn remember(line: &str) {
    if let Some(lines) = LAST.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
        if lines.len() >= LAST_LINES {
            lines.pop_front();
        }
        lines.push_back(line.to_owned());
    }
}

/// Runs the command; its output is shown.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    if is_recording() {
        let (succeeded, _) = run_and_listen(command)?;
        if !succeeded {
            bail!("`{}` failed", shown(command));
        }
        return Ok(());
    }
    println!("$ {}", shown(command));
    let status = command.status().with_context(|| cannot_start(command))?;
    if !status.success() {
        bail!("`{}` ended with {status}", shown(command));
    }
    Ok(())
}

/// Runs the command and returns its standard output.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output =
        command.stderr(Stdio::inherit()).output().with_context(|| cannot_start(command))?;
    if !output.status.success() {
        bail!("`{}` ended with {}", shown(command), output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs the command and shows its output; returns a copy of the output, and whether it succeeded,
/// because the output of a failure may matter.
pub(crate) fn run_and_listen(command: &mut Command) -> Result<(bool, String)> {
    say(&format!("$ {}", shown(command)));
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| cannot_start(command))?;
    let stdout = child.stdout.take().context("no standard output")?;
    let stderr = child.stderr.take().context("no standard error")?;
    let errors = thread::spawn(move || echo(stderr, |line| eprintln!("{line}")));
    let mut heard = echo(stdout, |line| println!("{line}"));
    heard += &errors.join().unwrap_or_default();
    Ok((child.wait()?.success(), heard))
}

/// Prints and records every line as it comes, and returns a copy of all of them.
fn echo(from: impl Read, show: impl Fn(&str)) -> String {
    let mut all = String::new();
    for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line);
        show(&line);
        remember(&line);
        all += &line;
        all.push('\n');
    }
    all
}

/// Whether a program can be run.
pub(crate) fn exists(words: &str) -> bool {
    command(Path::new("."), words)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn cannot_start(command: &Command) -> String {
    format!("cannot start `{}`", command.get_program().to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_as_it_would_be_typed() {
        let mut command = command(Path::new("/"), "cargo doc --no-deps");
        command.env("RUSTDOCFLAGS", "-D warnings");
        assert_eq!(shown(&command), "RUSTDOCFLAGS='-D warnings' cargo doc --no-deps");
    }

    #[test]
    fn output_and_failure_are_both_heard() {
        let here = Path::new("/");
        let mut script = command(here, "sh -c");
        script.arg("echo out; echo err >&2; exit 3");
        assert_eq!(run_and_listen(&mut script).unwrap(), (false, "out\nerr\n".to_owned()));
        assert_eq!(output(&mut command(here, "echo one two")).unwrap(), "one two\n");
        assert!(output(&mut command(here, "false")).is_err());
        let error = run(&mut command(here, "no-such-program-here")).unwrap_err();
        assert_eq!(error.to_string(), "cannot start `no-such-program-here`");
    }
}
