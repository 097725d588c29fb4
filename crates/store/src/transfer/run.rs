//! The transfer itself: copy the missing records, read both sides again, compare, finish.

use super::{
    Batch, Difference, Digest, Item, Part, Progress, RecordKind, Source, Target, TransferPosition,
};
use super::{Totals, digest::Summed};
use crate::error::StoreError;

/// Why a transfer failed.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// A server runs on one of the stores.
    #[error("a server runs on the {side} ({}): stop it, and run the same command again", nodes.join(", "))]
    Running {
        /// Source or target.
        side: &'static str,
        /// Their names.
        nodes: Vec<String>,
    },
    /// Source and target are one store.
    #[error("source and target are the same store")]
    Same,
    /// The target has records that this transfer did not write.
    #[error(
        "the target is not empty ({records} records): name an empty database or a new directory"
    )]
    NotEmpty {
        /// How much.
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
        /// Where they differ.
        differences: Vec<Difference>,
    },
    /// The copy differs from the source.
    #[error(
        "source and target differ: {}; was the source in use since the move began? Empty the \
         target and begin again",
        list(differences)
    )]
    Differs {
        /// Where.
        differences: Vec<Difference>,
    },
    /// The source has records without the record that they belong to.
    #[error(
        "the source has {found} {}, of which only {reached} belong to an event: it is damaged; \
         restore it from a backup", kind.as_str()
    )]
    LeftOut {
        /// Of which kind.
        kind: RecordKind,
        /// How many there are.
        found: u64,
        /// How many were reached.
        reached: u64,
    },
    /// A store failed. What was written stays, and the same command goes on from there.
    #[error("{0}")]
    Store(#[from] StoreError),
}

/// The first few differences, in words.
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
    /// Both sides are read again.
    Verifying,
}

/// Receives the progress of a transfer.
pub trait Watch: Send {
    /// So many records of so many are done.
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

/// Moves everything from one store to another, or goes on with that, and compares both. A batch has
/// about so many records; [`super::RECORDS_MAX`] is a good number.
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

/// The error where the target names another source: that transfer was finished, so the target is not
/// empty; or it was not finished.
async fn foreign(target: &dyn Target, progress: &Progress) -> TransferError {
    if !progress.finished {
        return TransferError::OtherSource;
    }
    match target.totals().await {
        Ok(totals) => TransferError::NotEmpty { records: totals.records },
        Err(error) => error.into(),
    }
}

/// How large a batch is, and how much there is in all.
#[derive(Clone, Copy)]
struct Batching {
    records_max: usize,
    total: u64,
}

/// Copies what is missing: while one batch is written, the next one is read.
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

/// The position after a batch.
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
        | Item::Ledger { .. }
        | Item::Tally { .. } => 1,
    };
    u64::try_from(items.iter().map(of).sum::<usize>()).unwrap_or(u64::MAX)
}

/// Reads both sides at the same time.
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

/// Checks that no delivery or attempt is left behind: they are transferred with their event, so one
/// without an event would be.
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
