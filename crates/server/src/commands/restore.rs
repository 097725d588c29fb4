//! `postrider restore`: creates a data directory from a backup, and verifies all of it.
//!
//! The directory must be new or empty: **nothing is ever overwritten.** If the verification fails,
//! the directory is removed again.

use std::path::{Path, PathBuf};

use clap::Args;
use postrider_api::{AuditError, note_operator};
use postrider_domain::ledger::Ledger;
use postrider_store::embedded::{EmbeddedOptions, EmbeddedStore};
use postrider_store::{History as _, StoreError, Upkeep as _};
use postrider_transport::{Clock as _, SystemClock};
use serde_json::json;

use super::backup::{bytes_in, in_words};
use super::progress::Progress;
use crate::exit::Failure;
use crate::output::{Output, escaped};

#[derive(Debug, Args)]
pub(crate) struct Restore {
    /// The backup.
    #[arg(long, value_name = "DIRECTORY")]
    from: PathBuf,
    /// The data directory to create; new or empty.
    #[arg(long, value_name = "DIRECTORY")]
    data_dir: PathBuf,
}

pub(crate) async fn run(arguments: &Restore, output: Output) -> Result<(), Failure> {
    let Restore { from, data_dir } = arguments;
    if !from.join("main.db").is_file() {
        let why = if from.exists() {
            "it has no main.db, so it is no backup, or one that was not finished"
        } else {
            "there is no such directory"
        };
        let advice = "give the directory that `postrider backup --to` made";
        return Err(Failure::usage(format!("--from {}: {why}\n{advice}", from.display())));
    }
    if !is_empty(data_dir)? {
        let message = format!("{} is not empty: name a new directory", data_dir.display());
        return Err(Failure::usage(message));
    }
    let (copy_from, copy_to) = (from.clone(), data_dir.clone());
    let total = bytes_in(from)?;
    let copied = tokio::task::spawn_blocking(move || EmbeddedStore::restore(copy_from, copy_to));
    let restored = match Progress::new(output, "copying", total).of_copy(data_dir, copied).await {
        Ok(Ok(())) => verify(from, data_dir, Progress::new(output, "verifying", total)).await,
        Ok(Err(error)) => Err(error),
        Err(error) => Err(StoreError::Internal(error.to_string())),
    };
    match restored {
        Ok(ledger) => say(arguments, &ledger, output),
        Err(error) => {
            // The directory was empty before, so this command has created everything in it.
            let removed = std::fs::remove_dir_all(data_dir);
            let rest = removed.map_or_else(
                |error| format!("what was copied could not be removed: {error}"),
                |()| "nothing was left behind".to_owned(),
            );
            Err(Failure::failed(format!("{}\nnot restored; {rest}", why(from, &error))))
        }
    }
}

/// Why a backup could not be restored. Damage is the backup's: it is what was copied.
fn why(from: &Path, error: &StoreError) -> String {
    let StoreError::Corrupt { place, what } = error else { return error.to_string() };
    let file = place.rsplit('/').next().unwrap_or(place);
    format!(
        "the backup {} is damaged, in {file}: {what}\nuse another backup, an older one if need be",
        from.display()
    )
}

fn is_empty(directory: &Path) -> std::io::Result<bool> {
    match std::fs::read_dir(directory) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}

/// Opens the restored store, reads every byte of it, and records the backup's path in its audit
/// log.
async fn verify(backup: &Path, data_dir: &Path, progress: Progress) -> Result<Ledger, StoreError> {
    let data_dir = data_dir.to_owned();
    let opened =
        tokio::task::spawn_blocking(|| EmbeddedStore::open(data_dir, EmbeddedOptions::default()));
    let store = opened.await.map_err(|error| StoreError::Internal(error.to_string()))??;
    let verified = verify_opened(&store, backup, &progress).await;
    progress.end();
    store.close().await?;
    verified
}

async fn verify_opened(
    store: &EmbeddedStore,
    backup: &Path,
    progress: &Progress,
) -> Result<Ledger, StoreError> {
    let seen = progress.clone();
    store.verify_watched(move |bytes| seen.add(bytes)).await?;
    let (now, backup) = (SystemClock.now(), backup.display().to_string());
    let noted = note_operator(store, "store.restore", "store", Some(&backup), now).await;
    noted.map_err(|error| match error {
        AuditError::Store(error) => error,
        AuditError::NoRandomness(error) => StoreError::Internal(error.to_string()),
    })?;
    store.ledger(None).await
}

fn say(arguments: &Restore, ledger: &Ledger, output: Output) -> Result<(), Failure> {
    let Restore { from, data_dir } = arguments;
    let bytes = bytes_in(data_dir)?;
    let done = json!({
        "from": from, "data_dir": data_dir, "bytes": bytes, "verified": true,
        "ledger": {
            "accepted": ledger.accepted, "queued": ledger.queued, "waiting": ledger.waiting,
            "delivered": ledger.delivered, "dead": ledger.dead, "cancelled": ledger.cancelled,
        },
        "missing": ["keyring"],
    });
    output.value(&done, |_| {
        let place = escaped(&data_dir.display().to_string());
        format!(
            "restored to {place}, {}, every row read: {} deliveries accepted, {} unfinished\n\
             before it is started: put the key ring of the server that was backed up there, as \
             {place}/keyring (the backup has none), or name it by POSTRIDER_KEYRING",
            in_words(bytes),
            ledger.accepted,
            ledger.queued + ledger.waiting,
        )
    })?;
    Ok(())
}
