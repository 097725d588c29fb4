//! Checks of the data directory of a stopped server: reads all of it, or accepts a loss.
//!
//! **Nothing is given up unless the operator names it**, and the command prints what was given up and adds
//! it to the audit log.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use postrider_api::{AuditError, note_operator};
use postrider_store::embedded::{EmbeddedOptions, EmbeddedStore, Loss};
use postrider_store::{StoreError, Upkeep as _};
use postrider_transport::{Clock as _, SystemClock};

use super::{Finding, Said, found};
use crate::commands::backup::bytes_in;
use crate::commands::progress::Progress;
use crate::config::{Config, StoreChoice};
use crate::output::Output;

pub(super) async fn examine(
    losses: &[PathBuf],
    verify: bool,
    config: &Config,
    output: Output,
) -> Vec<Finding> {
    if config.store != StoreChoice::Embedded {
        let why =
            "--verify and --accept-loss are for the embedded store; a database has its own tools";
        return vec![found("store", Err(why.to_owned()))];
    }
    let mut findings = Vec::new();
    for file in losses {
        findings.push(Finding { what: "loss", said: accept(&config.data_dir, file).await });
    }
    if verify {
        let verified = read_all(&config.data_dir, output).await;
        let said = verified.map(|()| "every row is as it was written".to_owned());
        findings.push(found("store", said.map_err(|error| error.to_string())));
    }
    findings
}

async fn accept(data_dir: &Path, file: &Path) -> Said {
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    match EmbeddedStore::accept_loss(data_dir, name, SystemClock.now()).await {
        Ok(loss) => match note(data_dir, &format!("history/{name}")).await {
            Ok(()) => Said::Note(words(&loss)),
            Err(error) => Said::Fault(format!(
                "{}\nthe audit log has no entry of this: {error}; run the same command again",
                words(&loss)
            )),
        },
        Err(error) => Said::Fault(error.to_string()),
    }
}

/// Adds the accepted loss to the audit log of the data directory.
async fn note(data_dir: &Path, file: &str) -> Result<(), AuditError> {
    let store = open(data_dir).await?;
    let now = SystemClock.now();
    let noted = note_operator(store.as_ref(), "store.accept_loss", "store", Some(file), now).await;
    let closed = store.close().await;
    noted.and(closed.map_err(AuditError::from))
}

fn words(loss: &Loss) -> String {
    let Loss { file, what, aside, cancelled, unknown } = loss;
    let aside = match aside {
        Some(aside) => format!("what is left of it is in {}", aside.display()),
        None => "what is left of it stays in use".to_owned(),
    };
    format!(
        "{}: {what}\n{aside}\n{cancelled} unfinished deliveries are cancelled, because their event is \
         gone\n{unknown} deliveries are shown as cancelled, because how they ended is not recorded any \
         more; the ledger counts them as they ended",
        file.display()
    )
}

async fn open(data_dir: &Path) -> Result<Arc<EmbeddedStore>, StoreError> {
    let data_dir = data_dir.to_owned();
    let open = move || EmbeddedStore::open(data_dir, EmbeddedOptions::default());
    match tokio::task::spawn_blocking(open).await {
        Ok(store) => store,
        Err(error) => Err(StoreError::Internal(error.to_string())),
    }
}

async fn read_all(data_dir: &Path, output: Output) -> Result<(), StoreError> {
    let store = open(data_dir).await?;
    let progress = Progress::new(output, "verifying", bytes_in(data_dir).unwrap_or(0));
    let seen = progress.clone();
    let verified = store.verify_watched(move |bytes| seen.add(bytes)).await;
    progress.end();
    let closed = store.close().await;
    verified.and(closed)
}
