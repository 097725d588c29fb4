//! Opening: the directory, the lock, the files, and the records that only the journal has.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, TryLockError};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use postrider_entropy::system_bytes;

use super::check;
use crate::embedded::apply::{Applier, ApplyQueue, Batch, MainFile, Parts};
use crate::embedded::contract::answers::Keeping;
use crate::embedded::contract::pending_ids::PendingIds;
use crate::embedded::files::bloom::BloomFilters;
use crate::embedded::files::disk_reserve::DiskReserve;
use crate::embedded::files::read_pool::{self, ReadPool};
use crate::embedded::files::schema;
use crate::embedded::files::{Layout, io_error, open_private, place, sync_directory};
use crate::embedded::journal::{Hooks, Journal, JournalError, JournalOptions, RecoveredRecords};
use crate::embedded::medium::Disk;
use crate::embedded::{EmbeddedOptions, EmbeddedStore, FatalHook};
use crate::error::StoreError;
use crate::fair_semaphore::FairSemaphore;

/// Records that are applied together while opening.
const RECORDS_TOGETHER: usize = 5_000;
/// Bytes of records that are applied together while opening.
const BYTES_TOGETHER: usize = 32 << 20;

impl EmbeddedStore {
    /// The version of the schema of a data directory, and the version that this program makes; `None`
    /// where there is no store, or its first page is not written yet. Nothing is opened or changed.
    pub fn schema(data_dir: impl AsRef<Path>) -> Option<(u32, u32)> {
        let found = schema::stored_version(&Layout::new(data_dir.as_ref()).main())?;
        // The first page is still in the write-ahead log.
        if found == 0 {
            return None;
        }
        Some((found, u32::try_from(schema::MAIN.len()).unwrap_or(u32::MAX)))
    }

    /// Opens the store in a directory; creates it where there is none. Blocks until all records of
    /// the journal are in SQLite.
    pub fn open(
        data_dir: impl AsRef<Path>,
        options: EmbeddedOptions,
    ) -> Result<Arc<EmbeddedStore>, StoreError> {
        EmbeddedStore::open_checked(data_dir.as_ref(), options, |main| {
            let progress = EmbeddedStore::transfer_progress(main.connection(), main.path())?;
            if progress.is_some_and(|progress| !progress.finished) {
                let cause =
                    "a move into it is not finished; run the same `postrider migrate` again";
                let place = place(data_dir.as_ref());
                return Err(StoreError::NotWritable { place, cause: cause.to_owned() });
            }
            Ok(())
        })
    }

    /// Opens a store even if a transfer into it is unfinished, to continue the transfer.
    pub fn open_to_fill(
        data_dir: impl AsRef<Path>,
        options: EmbeddedOptions,
    ) -> Result<Arc<EmbeddedStore>, StoreError> {
        EmbeddedStore::open_checked(data_dir.as_ref(), options, |_| Ok(()))
    }

    /// Opens the store. On a full disk the disk reserve is released first: accepted deliveries can
    /// then be finished, and nothing new is accepted.
    fn open_checked(
        data_dir: &Path,
        options: EmbeddedOptions,
        check: impl Fn(&MainFile) -> Result<(), StoreError>,
    ) -> Result<Arc<EmbeddedStore>, StoreError> {
        match EmbeddedStore::open_once(data_dir, options.clone(), &check) {
            Err(StoreError::DiskFull { .. })
                if fs::remove_file(Layout::new(data_dir).reserve()).is_ok() =>
            {
                EmbeddedStore::open_once(data_dir, options, &check)
            }
            other => other,
        }
    }

    fn open_once(
        data_dir: &Path,
        options: EmbeddedOptions,
        check: &dyn Fn(&MainFile) -> Result<(), StoreError>,
    ) -> Result<Arc<EmbeddedStore>, StoreError> {
        let layout = Layout::new(data_dir);
        make_directory(layout.root())?;
        let lock = lock(&layout)?;
        make_directory(&layout.history())?;
        let mut main = MainFile::open(&layout)?;
        check(&main)?;
        let identity = main.identity()?;
        check::history(&layout, &mut main, options.check_bytes)?;
        let days = BTreeSet::from_iter(layout.days()?);
        let days = Arc::new(Mutex::new(days));
        let (queue, pending) = (Arc::new(ApplyQueue::default()), Arc::new(PendingIds::default()));
        let blooms = Arc::new(BloomFilters::default());
        let disk_reserve = Arc::new(DiskReserve::new(layout.reserve(), options.reserve_bytes));

        let disk = Disk::open(layout.journal());
        let disk = disk.map_err(|error| io_error(&layout.journal(), &error))?;
        let nonce = system_bytes().map_err(|error| StoreError::Internal(error.to_string()))?;
        let journal_options = JournalOptions {
            applied: identity.applied,
            create: !identity.has_journal,
            segment_bytes: options.segment_bytes,
            ..JournalOptions::new(identity.store_id, u64::from_le_bytes(nonce))
        };
        let lists_on = options.lists_on.clone();
        let hooks = hooks(Arc::clone(&queue), options.fatal.clone());
        let opened = Journal::open(Arc::new(disk), journal_options, hooks);
        let (journal, recovered) = opened.map_err(|error| journal_error(&layout, error))?;
        let journal = Arc::new(journal);
        main.has_journal()?;

        let mut applier = Applier::new(Parts {
            layout: layout.clone(),
            main,
            known_days: Arc::clone(&days),
            queue: Arc::clone(&queue),
            pending: Arc::clone(&pending),
            blooms: Arc::clone(&blooms),
            disk_reserve: Arc::clone(&disk_reserve),
            applied: identity.applied,
            fatal: Box::new(move |why| tell(options.fatal.as_ref(), why)),
        });
        recover(&mut applier, recovered.into_records(), &layout)?;
        let released = Arc::clone(&journal);
        applier.set_released(Box::new(move |through| released.release(through)));
        applier.release_applied();
        let pool = Arc::new(ReadPool::new(layout.clone(), Arc::clone(&days), Arc::clone(&blooms)));
        let bloom_filler = fill_bloom_filters(&blooms, &pool)?;
        let thread = thread::Builder::new().name("applier".to_owned());
        let thread = thread.spawn(move || applier.run());
        let thread = thread.map_err(|error| StoreError::Internal(error.to_string()))?;
        Ok(Arc::new(EmbeddedStore {
            pool,
            vital: Arc::new(tokio::sync::Semaphore::new(read_pool::VITAL_MAX)),
            scans: Arc::new(tokio::sync::Semaphore::new(1)),
            points: FairSemaphore::new(read_pool::POINTS_MAX, read_pool::POINTS_QUEUE_MAX),
            barriers: FairSemaphore::new(read_pool::BARRIERS_MAX, read_pool::BARRIERS_QUEUE_MAX),
            lists: FairSemaphore::new(read_pool::LISTS_MAX, read_pool::LISTS_QUEUE_MAX),
            lists_on,
            layout,
            journal,
            queue,
            pending,
            days,
            keeping: Keeping::default(),
            blooms,
            bloom_filler: Mutex::new(bloom_filler),
            disk_reserve,
            applier: Mutex::new(Some(thread)),
            lock: Mutex::new(Some(lock)),
        }))
    }
}

/// Starts the thread that fills the Bloom filters of the days; `None` where there are no days.
fn fill_bloom_filters(
    blooms: &Arc<BloomFilters>,
    pool: &Arc<ReadPool>,
) -> Result<Option<JoinHandle<()>>, StoreError> {
    if pool.read().days().is_empty() {
        return Ok(None);
    }
    let (blooms, pool) = (Arc::clone(blooms), Arc::clone(pool));
    let thread = thread::Builder::new().name("blooms".to_owned());
    // The error is dropped: a day without a filter is searched in its file, and the search reports
    // the damage.
    let thread = thread.spawn(move || drop(blooms.fill(&pool)));
    thread.map(Some).map_err(|error| StoreError::Internal(error.to_string()))
}

fn tell(fatal: Option<&FatalHook>, why: &str) {
    if let Some(fatal) = fatal {
        fatal(why);
    }
}

fn hooks(queue: Arc<ApplyQueue>, fatal: Option<FatalHook>) -> Hooks {
    let stopped = Arc::clone(&queue);
    Hooks {
        synced: Box::new(move |records| queue.push_records(Batch::new(records))),
        fatal: Some(Box::new(move |error| {
            let why = format!("a sync of the journal failed: {error}");
            // Call the hook before callers are refused: they can then rely on the process knowing
            // the reason.
            tell(fatal.as_ref(), &why);
            stopped.stop(&why);
        })),
    }
}

/// Creates a directory for the owner alone, and makes its name durable.
pub(in crate::embedded) fn make_directory(path: &Path) -> Result<(), StoreError> {
    if path.is_dir() {
        return Ok(());
    }
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|error| io_error(path, &error))?;
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => sync_directory(parent),
        Some(_) | None => sync_directory(Path::new(".")),
    }
}

/// Locks the data directory for this process.
pub(in crate::embedded) fn lock(layout: &Layout) -> Result<File, StoreError> {
    let path = layout.lock();
    let file = open_private(&path)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(StoreError::Locked { place: place(layout.root()) }),
        Err(TryLockError::Error(error)) => Err(io_error(&path, &error)),
    }
}

fn recover(
    applier: &mut Applier,
    records: RecoveredRecords,
    layout: &Layout,
) -> Result<(), StoreError> {
    let (mut together, mut bytes) = (Vec::new(), 0);
    for record in records {
        let record = record.map_err(|error| journal_error(layout, error))?;
        bytes += record.bytes;
        together.push(record);
        if together.len() >= RECORDS_TOGETHER || bytes >= BYTES_TOGETHER {
            applier.apply(together.iter())?;
            together.clear();
            bytes = 0;
        }
    }
    applier.apply(together.iter())
}

/// Converts an error of opening the journal to an error of the store.
fn journal_error(layout: &Layout, error: JournalError) -> StoreError {
    let directory = layout.journal();
    match error {
        JournalError::Io { source, .. } => io_error(&directory, &source),
        JournalError::Locked { .. } => StoreError::Locked { place: place(layout.root()) },
        JournalError::UnknownVersion { file, version } => {
            StoreError::NewerVersion { place: file, found: version, known: 1 }
        }
        JournalError::Corrupt { file, offset, sequence, damage } => StoreError::Corrupt {
            place: format!("{file}, offset {offset}, record {sequence}"),
            what: damage.to_owned(),
        },
        JournalError::Foreign { file } => {
            StoreError::Corrupt { place: file, what: "it belongs to another store".to_owned() }
        }
        JournalError::MissingSegment { file, sequence } => StoreError::Corrupt {
            place: file,
            what: format!("it is missing; it held the records from {sequence} on"),
        },
        error @ (JournalError::NoJournal { .. } | JournalError::Behind { .. }) => {
            StoreError::Corrupt { place: place(&directory), what: error.to_string() }
        }
        JournalError::Options(_) => StoreError::Internal(error.to_string()),
        JournalError::SyncFailed(_) => StoreError::Stopped(error.to_string()),
    }
}

/// Whether a directory is empty or missing.
pub(in crate::embedded) fn is_empty(path: &Path) -> Result<bool, StoreError> {
    match fs::read_dir(path) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(io_error(path, &error)),
    }
}
