//! Accepting a loss: an operator gives up the file of a day that cannot be repaired.
//!
//! **Nothing is given up without an operator.** A file that lacks its last transactions, but can be
//! read, stays in use. Any other damaged file is renamed to `….damaged`. Then every unfinished
//! delivery of that day whose event is lost is cancelled, because it cannot be sent any more. So
//! the ledger balances and shows how many there were. A delivery that had ended, but whose last
//! record is lost, is shown as cancelled; the ledger counts it as it really ended.

use std::fs;
use std::path::{Path, PathBuf};

use postrider_domain::delivery::{CancelReason, Delivery, DeliveryState, StateName};
use postrider_domain::time::Timestamp;
use rusqlite::types::Value;

use super::check::{self, Damage, log_of};
use super::open::lock;
use crate::contract::{History, Upkeep, Work};
use crate::embedded::apply::MainFile;
use crate::embedded::files::rows::{self, DELIVERY_COLUMNS, DELIVERY_JOINS, FRESH, WAITING};
use crate::embedded::files::{At, Day, Layout, io_error, place, sync_directory};
use crate::embedded::{EmbeddedOptions, EmbeddedStore};
use crate::error::StoreError;
use crate::records::{Commit, DeliveryChange};

/// How many deliveries are cancelled in one commit.
const TOGETHER: usize = 500;

/// The result of accepting a loss.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// The file.
    pub file: PathBuf,
    /// The damage of the file.
    pub what: String,
    /// The new name of the damaged file; `None` where the file stays in use or was missing.
    pub aside: Option<PathBuf>,
    /// Unfinished deliveries that were cancelled because their event is gone.
    pub cancelled: u64,
    /// Deliveries that had ended and whose outcome is lost.
    pub unknown: u64,
}

impl EmbeddedStore {
    /// Gives up the lost part of a day, named by its file in `history`. The store must be closed.
    /// The call can be repeated after an interruption.
    pub async fn accept_loss(
        data_dir: &Path,
        file_name: &str,
        now: Timestamp,
    ) -> Result<Loss, StoreError> {
        let layout = Layout::new(data_dir);
        let Some(day) = Day::from_file_name(file_name) else {
            let place = place(&layout.history().join(file_name));
            let cause = "it is not the name of a day's file, such as 2026-11-16.db".to_owned();
            return Err(StoreError::NotWritable { place, cause });
        };
        let (what, aside) = give_up(&layout, day, now)?;
        // Open the store first: that applies the records that are still in the journal.
        let store = EmbeddedStore::open(data_dir, EmbeddedOptions::default())?;
        let ended = store.end_lost(day, now).await;
        let closed = store.close().await;
        let (cancelled, unknown) = ended?;
        closed?;
        Ok(Loss { file: layout.day(day), what, aside, cancelled, unknown })
    }

    /// Cancels the unfinished deliveries of a day whose event is lost, and marks the rows of those
    /// that `main.db` knows to have ended. Returns the number of each.
    async fn end_lost(&self, day: Day, now: Timestamp) -> Result<(u64, u64), StoreError> {
        let unfinished = self.read(move |guard| {
            let range = (day.start().as_unix_ms(), day.end().as_unix_ms());
            guard.main(|connection, path| {
                let of = |lane: &str| {
                    let sql = format!("{lane} WHERE created_at >= ?1 AND created_at < ?2");
                    rows::all(connection, path, "queue", &sql, range, rows::delivery)
                };
                Ok([of(&FRESH)?, of(&WAITING)?].concat())
            })
        });
        let (mut lost, mut known) = (Vec::new(), std::collections::HashSet::new());
        for delivery in unfinished.await? {
            if self.event(&delivery.tenant, &delivery.event).await?.is_none() {
                lost.push((delivery.state.name(), delivery));
            } else {
                known.insert(delivery.id);
            }
        }
        let rows = self.read(move |guard| {
            if !guard.days().contains(&day) {
                return Ok(Vec::new());
            }
            let sql = format!(
                "SELECT {DELIVERY_COLUMNS} FROM deliveries AS d {DELIVERY_JOINS} \
                 WHERE d.state <> 2 AND d.state IN (0, 1)"
            );
            guard.day(day, |connection, path| {
                rows::all(connection, path, "deliveries", &sql, [], rows::delivery)
            })
        });
        let is_stale = |one: &Delivery| !known.contains(&one.id);
        // Its state before is set to its state after, so that the ledger does not count it twice, nor
        // does the job that sent it.
        let stale: Vec<_> = rows.await?.into_iter().filter(is_stale).collect();
        let lost_ids: std::collections::HashSet<_> = lost.iter().map(|(_, one)| one.id).collect();
        let stale: Vec<_> = stale.into_iter().filter(|one| !lost_ids.contains(&one.id)).collect();
        let count = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        let (cancelled, unknown) = (count(lost.len()), count(stale.len()));
        let stale = stale.into_iter().map(|one| (StateName::Cancelled, one.without_job()));
        let all: Vec<_> = lost.into_iter().chain(stale).collect();
        let leases = self.hold_shards().await?;
        for some in all.chunks(TOGETHER) {
            let change = |(before, one): &(StateName, Delivery)| {
                let state = DeliveryState::Cancelled { at: now, reason: CancelReason::Asked };
                let delivery = Delivery { state, ..one.clone() };
                DeliveryChange { before: *before, by_job: one.by_job(), delivery, attempt: None }
            };
            let deliveries = some.iter().map(change).collect();
            self.settle(&leases, Commit { deliveries, ..Commit::default() }).await?;
        }
        Ok((cancelled, unknown))
    }
}

/// Renames a damaged file, or accepts one that only lacks its last transactions. Returns what was
/// wrong with it and its new name.
fn give_up(
    layout: &Layout,
    day: Day,
    now: Timestamp,
) -> Result<(String, Option<PathBuf>), StoreError> {
    let _lock = lock(layout)?;
    let mut main = MainFile::open(layout)?;
    let known = check::known(&main)?.get(&day).copied().unwrap_or_default();
    let note = format!("loss {}", day.file_name());
    let examined = check::examine(layout, day, &known, true)?;
    let is_unknown = examined == Err(Damage::Missing) && known == check::Known::default();
    if (is_unknown || examined.is_ok())
        && rows::meta(main.connection(), main.path(), &note)?.is_some()
    {
        // An earlier call was interrupted after the file was renamed.
        return Ok(("it was given up before".to_owned(), None));
    }
    let damage = match examined {
        Err(_) if is_unknown => {
            let cause = "main.db knows of no such day".to_owned();
            return Err(StoreError::NotWritable { place: place(&layout.day(day)), cause });
        }
        Err(damage) => damage,
        Ok(_) => {
            let cause = "nothing is missing in it, so there is nothing to give up".to_owned();
            return Err(StoreError::NotWritable { place: place(&layout.day(day)), cause });
        }
    };
    let what = damage.words(&known);
    // Check again without the expected count: a file that is behind can still be used, unless it is
    // damaged too.
    let unmarked = check::Known::default();
    let kept = match damage {
        Damage::Behind(_) => check::examine(layout, day, &unmarked, true)?.ok(),
        Damage::Missing | Damage::Unsound(_) => None,
    };
    let aside = if kept.is_none() { move_aside(layout, day)? } else { None };
    main.change(|transaction, path| {
        for table in ["days", "marks"] {
            let delete = format!("DELETE FROM {table} WHERE day = ?1");
            transaction.execute(&delete, [day.number()]).at(path)?;
        }
        let said = Value::Text(format!("{now}: {what}"));
        rows::put_meta(transaction, &note, &said).at(path)
    })?;
    Ok((what, aside))
}

/// Renames a file and its write-ahead log so that neither belongs to a day any more.
fn move_aside(layout: &Layout, day: Day) -> Result<Option<PathBuf>, StoreError> {
    let path = layout.day(day);
    if !path.exists() {
        // A write-ahead log without its file is useless, and would be taken for that of a new file.
        drop(fs::remove_file(log_of(&path)));
        return Ok(None);
    }
    let mut free = (0..u32::MAX).map(|n| {
        let ending = if n == 0 { ".damaged".to_owned() } else { format!(".damaged-{n}") };
        layout.history().join(day.file_name() + &ending)
    });
    let Some(aside) = free.find(|aside| !aside.exists()) else { return Ok(None) };
    let moved = |from: &Path, to: &Path| match fs::rename(from, to) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(io_error(from, &error)),
        Ok(()) | Err(_) => Ok(()),
    };
    moved(&log_of(&path), &log_of(&aside))?;
    moved(&path, &aside)?;
    let mut shared = path.into_os_string();
    shared.push("-shm");
    drop(fs::remove_file(shared));
    sync_directory(&layout.history())?;
    Ok(Some(aside))
}
