//! A measurement that is broken off (SIGTERM, SIGINT) leaves nothing behind: its processes end with it,
//! and its data is removed.
//!
//! Whoever kills the measurement outright (SIGKILL) is obeyed too: the system itself ends the processes
//! then, since each of them asked for that when it began.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal, getppid, kill_process, set_parent_process_death_signal};
use tokio::signal::unix::{SignalKind, signal};

use postrider_cli::exit::Failure;

/// What would be left behind now.
static LEFT: Mutex<Left> = Mutex::new(Left { processes: Vec::new(), directories: Vec::new() });

#[derive(Default)]
struct Left {
    processes: Vec<Pid>,
    directories: Vec<PathBuf>,
}

fn left() -> MutexGuard<'static, Left> {
    LEFT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins to listen to signals. What they break off is cleaned up.
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
        // Held until the end: nothing new begins meanwhile.
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

/// Processes that were killed may write for a moment more.
fn remove(directory: &Path) {
    for _ in 0..100 {
        match std::fs::remove_dir_all(directory) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => std::thread::yield_now(),
            Ok(()) | Err(_) => return,
        }
    }
}

/// A directory that is to be removed where the measurement is broken off.
pub(crate) fn keep_in_mind(directory: &Path) {
    left().directories.push(directory.to_owned());
}

/// Starts a process of the measurement, this program once more: it ends with this one.
pub(crate) fn spawn(
    arguments: &[&str],
    set_up: impl FnOnce(&mut Command),
) -> Result<Child, Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["bench", "attached", &std::process::id().to_string(), "--"]).args(arguments);
    set_up(&mut command);
    // Whoever breaks the measurement off sees all processes or keeps one from beginning.
    let mut left = left();
    let child = command.spawn()?;
    left.processes.extend(pid(&child));
    Ok(child)
}

/// A process is about to be waited for: from then on its number may be somebody else's.
pub(crate) fn let_go(child: &Child) {
    let id = pid(child);
    left().processes.retain(|process| Some(*process) != id);
}

pub(crate) fn pid(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
}

/// Becomes another command of this program that ends with the process that started it.
pub(crate) fn become_attached(parent: u32, arguments: &[String]) -> Result<(), Failure> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(io::Error::from)?;
    let is_there = getppid().is_some_and(|now| u32::try_from(now.as_raw_pid()) == Ok(parent));
    if !is_there {
        return Err(Failure::failed("the measurement that this belongs to has ended"));
    }
    Err(Command::new(std::env::current_exe()?).args(arguments).exec().into())
}
