//! A measurement that is interrupted (SIGTERM, SIGINT) leaves nothing behind: its processes are
//! killed, and its data is removed.
//!
//! After SIGKILL the system ends the child processes, because each of them requested a signal at
//! the death of its parent.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal, getppid, kill_process, set_parent_process_death_signal};
use tokio::signal::unix::{SignalKind, signal};

use postrider_cli::exit::Failure;

/// The processes and directories to clean up.
static LEFT: Mutex<Left> = Mutex::new(Left { processes: Vec::new(), directories: Vec::new() });

#[derive(Default)]
struct Left {
    processes: Vec<Pid>,
    directories: Vec<PathBuf>,
}

fn left() -> MutexGuard<'static, Left> {
    LEFT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts to handle signals; they trigger the clean-up.
pub(crate) fn watch() -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut terminate, mut interrupt) = {
        let _entered = runtime.enter();
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?)
    };
    drop(std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let code = runtime.block_on(async {
            tokio::select! {
                _ = terminate.recv() => 128 + Signal::TERM.as_raw(),
                _ = interrupt.recv() => 128 + Signal::INT.as_raw(),
            }
        });
        // Held until the end, so that nothing new begins.
        let left = left();
        for process in &left.processes {
            // It may have ended by itself.
            kill_process(*process, Signal::KILL).ok();
        }
        for directory in &left.directories {
            remove(directory);
        }
        std::process::exit(code);
    })?);
    Ok(())
}

/// Removes a directory. Killed processes may still write for a moment, so it tries again.
fn remove(directory: &Path) {
    for _ in 0..100 {
        match std::fs::remove_dir_all(directory) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => std::thread::yield_now(),
            Ok(()) | Err(_) => return,
        }
    }
}

/// Registers a directory to be removed after an interruption.
pub(crate) fn keep_in_mind(directory: &Path) {
    left().directories.push(directory.to_owned());
}

/// Starts a process of the measurement (this program again), which ends with this one.
pub(crate) fn spawn(
    arguments: &[&str],
    set_up: impl FnOnce(&mut Command),
) -> Result<Child, Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["bench", "attached", &std::process::id().to_string(), "--"]).args(arguments);
    set_up(&mut command);
    // Under the lock, so that an interruption sees all processes or prevents a new one.
    let mut left = left();
    let child = command.spawn()?;
    left.processes.extend(pid(&child));
    Ok(child)
}

/// Unregisters a process before it is waited for: afterwards its id may belong to another process.
pub(crate) fn let_go(child: &Child) {
    let id = pid(child);
    left().processes.retain(|process| Some(*process) != id);
}

pub(crate) fn pid(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
}

/// Becomes another command of this program that ends with its parent process.
pub(crate) fn become_attached(parent: u32, arguments: &[String]) -> Result<(), Failure> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(io::Error::from)?;
    let is_there = getppid().is_some_and(|now| u32::try_from(now.as_raw_pid()) == Ok(parent));
    if !is_there {
        return Err(Failure::failed("the measurement that this belongs to has ended"));
    }
    Err(Command::new(std::env::current_exe()?).args(arguments).exec().into())
}
