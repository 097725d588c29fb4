//! `postrider backup`: a copy of all data.
//!
//! If a server has the data directory open, the server makes the copy while it runs; otherwise this
//! command makes it. In both cases the copy is consistent: it shows one moment.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use postrider_store::embedded::{EmbeddedOptions, EmbeddedStore};
use postrider_store::{StoreError, Upkeep as _};
use serde_json::{Value as Json, json};

use super::Context;
use super::progress::Progress;
use crate::cli::Connection;
use crate::config::Environment;
use crate::exit::Failure;
use crate::output::{Output, part};

/// How often the server is asked for its progress.
const ASK_EVERY: Duration = Duration::from_millis(250);

/// What a backup does not contain, and why.
pub(crate) const WITHOUT: &str = "not in it: the key ring (whoever has both could read every \
     secret; keep a copy of it elsewhere) and admin.key";

#[derive(Debug, Args)]
pub(crate) struct Backup {
    /// Target of the copy: a new or empty directory, on the server's machine.
    #[arg(long, value_name = "DIRECTORY")]
    to: PathBuf,
}

pub(crate) async fn run(
    connection: &Connection,
    arguments: &Backup,
    environment: &Environment,
    output: Output,
) -> Result<(), Failure> {
    let to = std::path::absolute(&arguments.to)?;
    let names_server = connection.server.is_some() || environment.get("POSTRIDER_SERVER").is_some();
    let data_dir = &connection.data_dir;
    if !names_server && !data_dir.join("main.db").is_file() {
        let message = format!(
            "there is no store in {}: name it by --data-dir, or a running server by --server",
            data_dir.display()
        );
        return Err(Failure::usage(message));
    }
    if !names_server {
        match open(data_dir).await {
            Ok(store) => {
                // The copy has no journal, so it can be smaller.
                let progress = Progress::new(output, "copying", bytes_in(data_dir).unwrap_or(0));
                let backed_up = progress.of_copy(&to, store.backup(&to)).await;
                let closed = store.close().await;
                backed_up.map_err(failed)?;
                closed.map_err(failed)?;
                return say(&to, output);
            }
            // A server has the directory open: the server makes the copy.
            Err(StoreError::Locked { .. }) => {}
            Err(error) => return Err(failed(error)),
        }
    }
    let context = Context::new(connection, environment, output)?;
    context.post("/v1/backup", Some(&json!({ "to": to }))).await?;
    follow(&context, &to).await?;
    say(&to, output)
}

async fn open(data_dir: &Path) -> Result<Arc<EmbeddedStore>, StoreError> {
    let data_dir = data_dir.to_owned();
    let opened =
        tokio::task::spawn_blocking(|| EmbeddedStore::open(data_dir, EmbeddedOptions::default()));
    opened.await.map_err(|error| StoreError::Internal(error.to_string()))?
}

/// Converts an error of the store to a failure of the command.
fn failed(error: StoreError) -> Failure {
    Failure::failed(error.to_string())
}

/// Asks the server for its progress until it is done.
async fn follow(context: &Context, to: &Path) -> Result<(), Failure> {
    let mut ticks = tokio::time::interval(ASK_EVERY);
    loop {
        ticks.tick().await;
        let backup = context.get("/v1/backup", &[]).await?;
        let is_ours = backup.get("to").and_then(Json::as_str) == to.to_str();
        match backup.get("state").and_then(Json::as_str) {
            Some("running") if is_ours => {
                let bytes = backup.get("bytes").and_then(Json::as_u64).unwrap_or(0);
                progress(context.output, &format!("copied {}", in_words(bytes)))?;
            }
            Some("done") if is_ours => {
                progress(context.output, "")?;
                return Ok(());
            }
            Some(_) if is_ours => return Err(Failure::failed(part(&backup, "error"))),
            Some(_) | None => {
                let message = "the server was started anew meanwhile; the copy is not whole";
                return Err(Failure::failed(message));
            }
        }
    }
}

/// Prints the progress on one line, on a terminal only.
#[expect(clippy::print_stderr, reason = "progress is for people, and not part of the output")]
fn progress(output: Output, text: &str) -> Result<(), Failure> {
    if !output.redraws() {
        return Ok(());
    }
    eprint!("\r\u{1b}[K{text}");
    Ok(std::io::stderr().flush()?)
}

/// Bytes in a unit that people read.
pub(crate) fn in_words(bytes: u64) -> String {
    match bytes {
        0..=9_999 => format!("{bytes} bytes"),
        10_000..=9_999_999 => format!("{} kB", bytes / 1_000),
        10_000_000.. => format!("{} MB", bytes / 1_000_000),
    }
}

/// The total length of the files in a directory.
pub(crate) fn bytes_in(directory: &Path) -> std::io::Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let found = entry.metadata()?;
        bytes += if found.is_dir() { bytes_in(&entry.path())? } else { found.len() };
    }
    Ok(bytes)
}

fn say(to: &Path, output: Output) -> Result<(), Failure> {
    // `None` if the server runs on another machine.
    let bytes = bytes_in(to).ok();
    let done = json!({
        "to": to, "bytes": bytes, "excluded": ["keyring", "admin.key"],
    });
    output.value(&done, |_| {
        let size = bytes.map_or_else(String::new, |bytes| format!(", {}", in_words(bytes)));
        let to = crate::output::escaped(&to.display().to_string());
        format!(
            "backed up to {to}{size}\n{WITHOUT}\nto use it: postrider restore --from {to} \
             --data-dir DIRECTORY"
        )
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shown_in_the_largest_unit() {
        let told = [0, 9_999, 10_000, 12_345_678].map(in_words);
        assert_eq!(told, ["0 bytes", "9999 bytes", "10 kB", "12 MB"]);
    }
}
