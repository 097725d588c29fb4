//! Copies of the whole store, taken while it is in use.
//!
//! The applier pauses until a read transaction has begun in every file: so all files show the same
//! moment, and no record is only in the journal. The copies are then made from these transactions
//! while the applier goes on. `main.db` is copied last and gets its name last: a copy that has it
//! is complete.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use postrider_entropy::system_bytes;
use rusqlite::Connection;
use rusqlite::backup::Backup;
use rusqlite::types::Value;

use super::open::{is_empty, make_directory};
use crate::embedded::EmbeddedStore;
use crate::embedded::files::rows;
use crate::embedded::files::{
    At, Layout, SMALL_PAGE_BYTES, io_error, open_private, open_reader, open_writer, place,
    sync_directory,
};
use crate::embedded::journal::StoreId;
use crate::error::StoreError;

const PAGES_AT_ONCE: i32 = 4096;

impl EmbeddedStore {
    pub(in crate::embedded) async fn copy_to(&self, target: &Path) -> Result<(), StoreError> {
        let target = Layout::new(target);
        if !is_empty(target.root())? {
            return Err(not_empty(target.root()));
        }
        make_private(target.root())?;
        make_directory(&target.history())?;
        let days = std::sync::Arc::clone(&self.days);
        let pool = std::sync::Arc::clone(&self.pool);
        let files = self
            .run_in_applier({
                let target = target.clone();
                move |applier| {
                    let layout = applier.layout();
                    let _files_stay = pool.read();
                    let days = days.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    let mut files = Vec::new();
                    for day in days.iter() {
                        files.push(Snapshot::begin(layout.day(*day), target.day(*day))?);
                    }
                    files.push(Snapshot::begin(layout.main(), target.main())?);
                    Ok(files)
                }
            })
            .await?;
        let copied = tokio::task::spawn_blocking(move || copy(files, &target)).await;
        copied.map_err(|error| StoreError::Internal(error.to_string()))?
    }

    /// Creates a data directory from a backup. The directory must be new or empty. Blocks.
    pub fn restore(backup: impl AsRef<Path>, data_dir: impl AsRef<Path>) -> Result<(), StoreError> {
        let (from, to) = (Layout::new(backup.as_ref()), Layout::new(data_dir.as_ref()));
        if !from.main().is_file() {
            let what = "it has no main.db: it is no copy, or one that was not finished";
            return Err(StoreError::Corrupt { place: place(from.root()), what: what.to_owned() });
        }
        if !is_empty(to.root())? {
            return Err(not_empty(to.root()));
        }
        make_private(to.root())?;
        make_directory(&to.history())?;
        for day in from.days()? {
            copy_file(&from.day(day), &to.day(day))?;
        }
        sync_directory(&to.history())?;
        let unnamed = to.root().join("main.db.new");
        copy_file(&from.main(), &unnamed)?;
        fs::rename(&unnamed, to.main()).map_err(|error| io_error(&to.main(), &error))?;
        sync_directory(to.root())
    }
}

/// Creates a directory if it is missing, and removes the permissions of everybody but its owner.
fn make_private(path: &Path) -> Result<(), StoreError> {
    make_directory(path)?;
    let closed = fs::set_permissions(path, Permissions::from_mode(0o700));
    closed.map_err(|error| io_error(path, &error))
}

fn not_empty(path: &Path) -> StoreError {
    let cause = "it is not empty; name a new directory".to_owned();
    StoreError::NotWritable { place: place(path), cause }
}

fn copy_file(from: &Path, to: &Path) -> Result<(), StoreError> {
    let mut copy = open_private(to)?;
    let copied = fs::File::open(from).and_then(|mut file| io::copy(&mut file, &mut copy));
    copied.and_then(|_| copy.sync_all()).map_err(|error| io_error(to, &error))
}

/// A consistent view of a file at one moment.
struct Snapshot {
    connection: Connection,
    from: PathBuf,
    to: PathBuf,
}

impl Snapshot {
    fn begin(from: PathBuf, to: PathBuf) -> Result<Self, StoreError> {
        let connection = open_reader(&from)?;
        // The snapshot is taken by the first read.
        connection.execute_batch("BEGIN").at(&from)?;
        connection.query_row("SELECT count(*) FROM meta", [], |_| Ok(())).at(&from)?;
        Ok(Snapshot { connection, from, to })
    }

    fn copy(&self, to: &Path) -> Result<(), StoreError> {
        drop(open_private(to)?);
        let mut target = Connection::open(to).at(to)?;
        let backup = Backup::new(&self.connection, &mut target).at(&self.from)?;
        backup.run_to_completion(PAGES_AT_ONCE, Duration::ZERO, None).at(&self.from)
    }
}

fn copy(files: Vec<Snapshot>, target: &Layout) -> Result<(), StoreError> {
    let unnamed = target.root().join("main.db.new");
    for snapshot in files {
        let is_main = snapshot.to == target.main();
        let to = if is_main { &unnamed } else { &snapshot.to };
        snapshot.copy(to)?;
        if is_main {
            make_own(to)?;
        }
        for path in [to.clone(), PathBuf::from(format!("{}-wal", to.display()))] {
            if let Ok(file) = fs::File::open(&path) {
                file.sync_all().map_err(|error| io_error(&path, &error))?;
            }
        }
    }
    sync_directory(&target.history())?;
    fs::rename(&unnamed, target.main()).map_err(|error| io_error(&target.main(), &error))?;
    sync_directory(target.root())
}

/// Turns a copy into a store of its own: without a journal, and with an identity of its own.
fn make_own(path: &Path) -> Result<(), StoreError> {
    let store_id: StoreId =
        system_bytes().map_err(|error| StoreError::Internal(error.to_string()))?;
    let connection = open_writer(path, false, SMALL_PAGE_BYTES)?;
    let (store_id, no) = (Value::Blob(store_id.to_vec()), Value::Integer(0));
    rows::put_meta(&connection, "store_id", &store_id).at(path)?;
    rows::put_meta(&connection, "has_journal", &no).at(path)?;
    // Closing copies the log into the file and removes it.
    connection.close().map_err(|(_, error)| error).at(path)
}
