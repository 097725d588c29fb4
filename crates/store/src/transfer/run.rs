//! The transfer itself: copy the missing records, read both sides again, compare, finish.

use super::{
    Batch, Difference, Digest, Item, Part, Progress, RecordKind, Source, Target, TransferPosition,
};
use super::{Totals, digest::Summed};
use crate::error::StoreError;

/// Why a transfer failed.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// A server is running on one of the stores.
    #[error("a server runs on the {side} ({}): stop it, and run the same command again", nodes.join(", "))]
    Running {
        /// Source or target.
        side: &'static str,
        /// The names of the running nodes.
        nodes: Vec<String>,
    },
    /// Source and target are the same store.
    #[error("source and target are the same store")]
    Same,
    /// The target has records that this transfer did not write.
    #[error(
        "the target is not empty ({records} records): name an empty database or a new directory"
    )]
    NotEmpty {
        /// How many records the target has.
        records: u64,
    },
    /// The target has the beginning of a transfer from another source.
    #[error(
        "the target holds the beginning of a move from another store: run that one again, or name \
         an empty database or a new directory"
    )]
    OtherSource,
    /// The transfer was finished before, and one of the stores has changed since.
    #[error(
        "this move was finished before, and since then one of the two stores has changed: {}; \
         nothing was touched",
        list(differences)
    )]
    Finished {
        /// The differences.
        differences: Vec<Difference>,
    },
    /// The copy differs from the source.
    #[error(
        "source and target differ: {}; was the source in use since the move began? Empty the \
         target and begin again",
        list(differences)
    )]
    Differs {
        /// The differences.
        differences: Vec<Difference>,
    },
    /// The source has deliveries or attempts without their event.
    #[error(
        "the source has {found} {}, of which only {reached} belong to an event: it is damaged; \
         restore it from a backup", kind.as_str()
    )]
    LeftOut {
        /// The kind of the records without an event.
        kind: RecordKind,
        /// How many records the source has.
        found: u64,
        /// How many records of this kind belong to an event.
        reached: u64,
    },
    /// A store failed. Written records stay, and the same command continues from there.
    #[error("{0}")]
    Store(#[from] StoreError),
}

/// The first few differences as text.
fn list(differences: &[Difference]) -> String {
    let say = |difference: &Difference| {
        let Difference { kind, tenant, source, target } = difference;
        let whose = tenant.as_ref().map(|id| format!(" of tenant {id}")).unwrap_or_default();
        let (kind, here, there) = (kind.as_str(), source.count, target.count);
        if here == there {
            format!("{kind}{whose} ({here} on both sides, with other contents)")
        } else {
            format!("{kind}{whose} ({here} in the source, {there} in the target)")
        }
    };
    let mut said: Vec<String> = differences.iter().take(3).map(say).collect();
    if differences.len() > said.len() {
        said.push(format!("and {} more", differences.len() - said.len()));
    }
    said.join(", ")
}

/// The phases of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Records are copied.
    Copying(Part),
    /// Both stores are read again and compared.
    Verifying,
}

/// Receives the progress of a transfer.
pub trait Watch: Send {
    /// `done` of `total` records are processed in this phase.
    fn moved(&mut self, phase: Phase, done: u64, total: u64);
}

/// The result of a transfer.
#[derive(Debug)]
pub struct Moved {
    /// Counts and checksums, the same on both sides.
    pub digest: Digest,
    /// How many records an earlier run had copied already.
    pub resumed: u64,
    /// Whether an earlier run had finished, so that this one only compared.
    pub was_finished: bool,
}

/// Transfers all records from one store to another, or continues an interrupted transfer, and
/// compares both. A batch has about `records_max` records; [`super::RECORDS_MAX`] is a good value.
pub async fn transfer(
    source: &dyn Source,
    target: &dyn Target,
    watch: &mut dyn Watch,
    records_max: usize,
) -> Result<Moved, TransferError> {
    let records_max = records_max.max(1);
    refuse_running(source, target).await?;
    let identity = source.identity().await?;
    if identity == target.identity().await? {
        return Err(TransferError::Same);
    }
    let totals = source.totals().await?;
    let progress = match target.take_over().await? {
        Some(progress) if progress.source != identity => {
            return Err(foreign(target, &progress).await);
        }
        Some(progress) => progress,
        None => {
            let records = target.totals().await?.records;
            if records > 0 {
                return Err(TransferError::NotEmpty { records });
            }
            let place = Some(TransferPosition::START);
            let begun = Progress { source: identity, place, records: 0, finished: false };
            target.write(Vec::new(), &begun).await?;
            begun
        }
    };
    let (resumed, was_finished) = (progress.records, progress.finished);
    let batch = Batching { records_max, total: totals.records };
    let progress = copy(source, target, watch, progress, batch).await?;
    let (here, there) = compare(source, target, watch, batch).await?;
    let differences = here.differences(&there);
    if !differences.is_empty() {
        return Err(match was_finished {
            true => TransferError::Finished { differences },
            false => TransferError::Differs { differences },
        });
    }
    nothing_left_out(&totals, &here)?;
    refuse_running(source, target).await?;
    if !was_finished {
        target.write(Vec::new(), &Progress { finished: true, ..progress }).await?;
    }
    Ok(Moved { digest: here, resumed, was_finished })
}

async fn refuse_running(source: &dyn Source, target: &dyn Target) -> Result<(), TransferError> {
    let nodes = source.running().await?;
    if !nodes.is_empty() {
        return Err(TransferError::Running { side: "source", nodes });
    }
    let nodes = target.running().await?;
    if !nodes.is_empty() {
        return Err(TransferError::Running { side: "target", nodes });
    }
    Ok(())
}

/// The error if the target holds a transfer from another source: a finished one makes the target
/// not empty, an unfinished one is foreign.
async fn foreign(target: &dyn Target, progress: &Progress) -> TransferError {
    if !progress.finished {
        return TransferError::OtherSource;
    }
    match target.totals().await {
        Ok(totals) => TransferError::NotEmpty { records: totals.records },
        Err(error) => error.into(),
    }
}

/// The size of a batch, and the number of all records.
#[derive(Clone, Copy)]
struct Batching {
    records_max: usize,
    total: u64,
}

/// Copies the missing records: while one batch is written, the next one is read.
async fn copy(
    source: &dyn Source,
    target: &dyn Target,
    watch: &mut dyn Watch,
    mut progress: Progress,
    Batching { records_max, total }: Batching,
) -> Result<Progress, TransferError> {
    let Some(mut place) = progress.place.clone() else { return Ok(progress) };
    let mut batch = source.read(&place, records_max).await?;
    loop {
        watch.moved(Phase::Copying(place.part), progress.records, total);
        let Batch { items, next } = batch;
        progress.records += records(&items);
        progress.place = after(place.part, next);
        let write = target.write(items, &progress);
        let Some(next) = progress.place.clone() else {
            write.await?;
            return Ok(progress);
        };
        let (written, read) = tokio::join!(write, source.read(&next, records_max));
        written?;
        batch = read?;
        place = next;
    }
}

/// The position after a batch; `None` after the last one.
fn after(part: Part, mark: Option<String>) -> Option<TransferPosition> {
    match mark {
        Some(mark) => Some(TransferPosition { part, mark: Some(mark) }),
        None => part.next().map(|part| TransferPosition { part, mark: None }),
    }
}

fn records(items: &[Item]) -> u64 {
    let of = |item: &Item| match item {
        Item::Event(whole) => whole.records(),
        Item::Tenant(_)
        | Item::Key(_)
        | Item::Subscription(_)
        | Item::Destination(_)
        | Item::Transition { .. }
        | Item::Answer { .. }
        | Item::Audit(_)
        | Item::Replay(_)
        | Item::Document(_)
        | Item::Ledger { .. }
        | Item::Tally { .. }
        | Item::AttemptHour { .. } => 1,
    };
    u64::try_from(items.iter().map(of).sum::<usize>()).unwrap_or(u64::MAX)
}

/// Reads both sides concurrently and compares them.
async fn compare(
    source: &dyn Source,
    target: &dyn Target,
    watch: &mut dyn Watch,
    Batching { records_max, total }: Batching,
) -> Result<(Digest, Digest), TransferError> {
    let (mut here, mut there) = (Digest::default(), Digest::default());
    let (mut one, mut other) = (Some(TransferPosition::START), Some(TransferPosition::START));
    while one.is_some() || other.is_some() {
        watch.moved(Phase::Verifying, here.records().min(there.records()), total);
        let (first, second) = tokio::join!(
            add_next(source, &mut here, one, records_max),
            add_next(target, &mut there, other, records_max)
        );
        (one, other) = (first?, second?);
    }
    Ok((here, there))
}

async fn add_next<S: Source + ?Sized>(
    store: &S,
    digest: &mut Digest,
    place: Option<TransferPosition>,
    records_max: usize,
) -> Result<Option<TransferPosition>, StoreError> {
    let Some(place) = place else { return Ok(None) };
    let batch = store.read(&place, records_max).await?;
    batch.items.iter().for_each(|item| digest.add(item));
    Ok(after(place.part, batch.next))
}

/// Checks that no delivery or attempt was left out: they are transferred with their event, so one
/// without an event would not be.
fn nothing_left_out(totals: &Totals, reached: &Digest) -> Result<(), TransferError> {
    let kinds = [
        (RecordKind::Event, totals.events),
        (RecordKind::Delivery, totals.deliveries),
        (RecordKind::Attempt, totals.attempts),
    ];
    for (kind, found) in kinds {
        let Summed { count: reached, .. } = reached.of(kind);
        if reached != found {
            return Err(TransferError::LeftOut { kind, found, reached });
        }
    }
    Ok(())
}
