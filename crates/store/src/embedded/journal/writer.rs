//! The writer: the only owner of the files. It writes the waiting appends in batches.
//!
//! A record is acknowledged only after the sync of its batch has returned without an error. After a
//! sync that failed nothing is written and nothing is acknowledged any more.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use tokio::sync::oneshot;

use super::error::Trouble;
use super::format::{
    self, FRAME_HEADER_BYTES, Frame, FrameKind, RECORD_HEADER_BYTES, SEGMENT_HEADER_BYTES,
    SegmentHeader, VOUCHER_OFFSET, align, encode_record,
};
use super::scan::Scan;
use super::segment::Segment;
use super::spares::Spares;
use super::{AppendError, Hooks, JournalError, JournalOptions, Meaning, Position, Record, Reserve};
use crate::embedded::medium::{Lock, Medium};

/// After a batch longer than this, the buffer's memory is freed.
const BUFFER_KEPT_BYTES: usize = 8 << 20;

/// The channel for the answer to an append.
pub(super) type Reply = oneshot::Sender<Result<Position, AppendError>>;

/// The channel for the answer to a scrub.
pub(super) type Scrubbed = oneshot::Sender<Result<(), AppendError>>;

/// How far a scrub is.
#[derive(Debug)]
enum Scrub {
    /// New files are being made, for those who wait.
    Preparing(Vec<Scrubbed>),
    /// The segments before this one are removed once their records are released.
    Removing(u64, Vec<Scrubbed>),
}

/// An append that waits for its batch.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) kind: u8,
    pub(super) payload: Bytes,
    pub(super) meaning: Option<Meaning>,
    pub(super) reserve: Reserve,
    pub(super) reply: Reply,
}

impl Pending {
    fn framed_bytes(&self) -> u64 {
        (RECORD_HEADER_BYTES + self.payload.len()) as u64
    }

    /// Sends the answer; it is dropped if the caller has gone away.
    pub(super) fn answer(self, outcome: Result<Position, AppendError>) {
        self.reply.send(outcome).ok();
    }
}

/// A full segment that waits to be released.
#[derive(Debug)]
struct Retired {
    number: u64,
    last: u64,
}

/// The writer's progress, shared with the callers.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// The last sequence number that is durable.
    pub(super) synced: AtomicU64,
    /// Ordinary appends are refused because the disk is full.
    pub(super) refusing: AtomicBool,
}

#[derive(Debug)]
pub(super) struct Writer {
    options: JournalOptions,
    hooks: Hooks,
    spares: Spares,
    active: Segment,
    /// The next segment, already created. The active one must get its rotation mark before anything
    /// else is written.
    following: Option<Segment>,
    retired: VecDeque<Retired>,
    /// The offset of the next frame.
    offset: u64,
    /// The sequence number of the next record.
    next: u64,
    /// The attempt number of the next batch.
    attempt: u32,
    sealed: bool,
    released: u64,
    failed: Option<Arc<io::Error>>,
    progress: Arc<Progress>,
    scrub: Option<Scrub>,
    buffer: Vec<u8>,
    /// Held for as long as the writer lives.
    #[expect(dead_code, reason = "it is kept, not used")]
    lock: Lock,
}

/// The longest payload that fits a segment of this length, within the overall limit.
pub(super) fn record_bytes_max(segment_bytes: u64) -> usize {
    let around = SEGMENT_HEADER_BYTES + 3 * FRAME_HEADER_BYTES as u64 + RECORD_HEADER_BYTES as u64;
    let room = usize::try_from(segment_bytes.saturating_sub(around)).unwrap_or(usize::MAX);
    room.min(super::RECORD_BYTES_MAX)
}

impl Writer {
    /// Takes over the result of a scan, or begins a new journal, and makes everything durable.
    pub(super) fn open(
        medium: &Arc<dyn Medium>,
        names: &[String],
        scan: Option<&Scan>,
        options: JournalOptions,
        hooks: Hooks,
        lock: Lock,
    ) -> Result<Self, JournalError> {
        let opening =
            |trouble: Trouble| trouble.while_opening(medium.describe(""), "make the journal ready");
        let spares_max = options.spares_max.max(options.reserve_segments);
        let mut spares = Spares::open(
            Arc::clone(medium),
            names,
            options.segment_bytes,
            spares_max,
            options.reserve_segments,
        )
        .map_err(|error| opening(Trouble::of(error)))?;
        let (active, offset, next) = match scan.and_then(|scan| Some((scan, scan.spans.last()?))) {
            Some((scan, span)) => (span.segment.clone(), span.end, scan.next),
            None => {
                let first = options.applied.sequence() + 1;
                let header = header(&options, 1, first);
                let segment = spares.begin_segment(&header, true).map_err(opening)?;
                (segment, SEGMENT_HEADER_BYTES, first)
            }
        };
        let mut writer = Writer {
            spares,
            active,
            following: None,
            retired: VecDeque::new(),
            offset,
            next,
            attempt: format::low(format::mix(options.nonce, next)),
            sealed: false,
            released: options.applied.sequence(),
            failed: None,
            progress: Arc::new(Progress::default()),
            scrub: None,
            buffer: Vec::new(),
            options,
            hooks,
            lock,
        };
        if let Some(scan) = scan {
            writer.retired = retired(scan);
            writer.mend(scan).map_err(opening)?;
        }
        writer.vouch().map_err(opening)?;
        medium.sync_names().map_err(|error| opening(Trouble::Sync(error)))?;
        writer.sealed = true;
        writer.progress.synced.store(next - 1, Ordering::Release);
        writer.recycle();
        match writer.spares.restore_reserve() {
            // The disk is full: open anyway, for appends that may use the reserve.
            Ok(()) | Err(Trouble::Full) => Ok(writer),
            Err(trouble @ (Trouble::Write(_) | Trouble::Sync(_))) => Err(opening(trouble)),
        }
    }

    /// Writes the last batch again, because it may not be on the disk: after a failed sync, or a
    /// kill before the sync, its bytes may be only in the page cache, perhaps marked clean.
    /// Recovered records must be durable.
    fn mend(&mut self, scan: &Scan) -> Result<(), Trouble> {
        if let Some((offset, frame)) = &scan.unvouched {
            let length = FRAME_HEADER_BYTES as u64 + frame.body_bytes;
            let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
            self.active.file.read_at(*offset, &mut bytes).map_err(Trouble::of)?;
            self.active.file.write_at(*offset, &bytes).map_err(Trouble::of)?;
        }
        if let [.., before, active] = &scan.spans[..]
            && active.end == SEGMENT_HEADER_BYTES
        {
            let segment = &before.segment;
            segment.write_mark(before.end, FrameKind::Rotated, self.next).map_err(Trouble::of)?;
            segment.file.sync_data().map_err(Trouble::Sync)?;
        }
        Ok(())
    }

    /// The progress, shared with the callers.
    pub(super) fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.progress)
    }

    /// Whether a sync has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Writes, syncs and answers everything that waits, in as few batches as possible.
    pub(super) fn commit(&mut self, waiting: &mut VecDeque<Pending>) {
        while !waiting.is_empty() {
            let outcome = self.commit_batch(waiting);
            if let Err(trouble @ Trouble::Sync(_)) = outcome {
                self.fail(trouble, waiting);
            }
        }
        if self.failed.is_none() && self.offset > self.active.bytes / 2 {
            self.prepare_ahead(waiting);
        }
    }

    /// Writes one batch of the waiting appends, or refuses those that cannot be written. Returns an
    /// error only for a failed sync.
    fn commit_batch(&mut self, waiting: &mut VecDeque<Pending>) -> Result<(), Trouble> {
        if self.failed.is_some() {
            refuse(waiting, &AppendError::SyncFailed, |_| true);
            return Ok(());
        }
        if !self.spares.reserve_is_whole() {
            self.restore_reserve(waiting)?;
        }
        let Some(front) = waiting.front() else { return Ok(()) };
        let front_may = matches!(front.reserve, Reserve::MayUseReserve);
        if self.following.is_some() || !self.fits(front.framed_bytes()) {
            return match self.rotate(front_may) {
                Ok(()) => Ok(()),
                Err(trouble @ Trouble::Sync(_)) => Err(trouble),
                Err(trouble @ (Trouble::Full | Trouble::Write(_))) => {
                    self.note_full(&trouble);
                    let refusal = trouble.refusal();
                    refuse(waiting, &refusal, |p| front_may || is_normal(p));
                    Ok(())
                }
            };
        }
        let batch = self.take_batch(waiting);
        match self.write_batch(&batch) {
            Ok(()) => {
                self.acknowledge(batch);
                Ok(())
            }
            Err(trouble @ Trouble::Sync(_)) => {
                for pending in batch.into_iter().rev() {
                    waiting.push_front(pending);
                }
                Err(trouble)
            }
            Err(trouble @ (Trouble::Full | Trouble::Write(_))) => {
                // Overwrite the frame's header: if the process dies now, the written part must not
                // look like a batch.
                self.active.write_mark(self.offset, FrameKind::Seal, self.next).ok();
                let refusal = trouble.refusal();
                batch.into_iter().for_each(|pending| pending.answer(Err(refusal.clone())));
                Ok(())
            }
        }
    }

    /// Fills up the reserve; if that fails, refuses every append that may not use it.
    fn restore_reserve(&mut self, waiting: &mut VecDeque<Pending>) -> Result<(), Trouble> {
        if !waiting.iter().any(is_normal) {
            return Ok(());
        }
        match self.spares.restore_reserve() {
            Ok(()) => Ok(()),
            Err(trouble @ Trouble::Sync(_)) => Err(trouble),
            Err(trouble @ (Trouble::Full | Trouble::Write(_))) => {
                self.note_full(&trouble);
                refuse(waiting, &trouble.refusal(), is_normal);
                Ok(())
            }
        }
    }

    fn note_full(&self, trouble: &Trouble) {
        if matches!(trouble, Trouble::Full) {
            self.progress.refusing.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a batch with a body of this length, and a mark after it, fit the active segment.
    fn fits(&self, body_bytes: u64) -> bool {
        let mark = FRAME_HEADER_BYTES as u64;
        align(self.offset + mark + body_bytes) + mark <= self.active.bytes
    }

    fn take_batch(&self, waiting: &mut VecDeque<Pending>) -> Vec<Pending> {
        let mut body_bytes = 0;
        let mut count = 0;
        for pending in waiting.iter() {
            body_bytes += pending.framed_bytes();
            let too_long = count > 0 && body_bytes > self.options.batch_bytes_max;
            if too_long || !self.fits(body_bytes) {
                break;
            }
            count += 1;
        }
        waiting.drain(..count).collect()
    }

    /// Writes one batch and syncs it.
    fn write_batch(&mut self, batch: &[Pending]) -> Result<(), Trouble> {
        self.attempt = self.attempt.wrapping_add(1);
        self.sealed = false;
        let record_salt = format::record_salt(self.active.salt, self.attempt);
        self.buffer.clear();
        self.buffer.extend_from_slice(&[0; FRAME_HEADER_BYTES]);
        for (sequence, pending) in (self.next..).zip(batch) {
            let Pending { kind, payload, .. } = pending;
            encode_record(&mut self.buffer, record_salt, sequence, *kind, payload);
        }
        let frame = Frame {
            kind: FrameKind::Batch,
            attempt: self.attempt,
            first: self.next,
            synced_through: self.next - 1,
            body_bytes: (self.buffer.len() - FRAME_HEADER_BYTES) as u64,
            records: u32::try_from(batch.len()).unwrap_or(u32::MAX),
        };
        let header = frame.encode(self.active.place(self.offset));
        self.buffer[..FRAME_HEADER_BYTES].copy_from_slice(&header);
        self.active.file.write_at(self.offset, &self.buffer).map_err(Trouble::of)?;
        self.active.file.sync_data().map_err(Trouble::Sync)
    }

    /// Passes the records to the consumer first and answers afterwards: a caller with an answer can
    /// rely on the consumer having its record.
    fn acknowledge(&mut self, batch: Vec<Pending>) {
        self.offset = align(self.offset + self.buffer.len() as u64);
        if self.buffer.capacity() > BUFFER_KEPT_BYTES {
            self.buffer = Vec::new();
        }
        if batch.iter().any(is_normal) {
            self.progress.refusing.store(false, Ordering::Relaxed);
        }
        let mut records = Vec::with_capacity(batch.len());
        let mut replies = Vec::with_capacity(batch.len());
        for pending in batch {
            let position = Position::new(self.next);
            self.next += 1;
            let Pending { kind, payload, meaning, reply, .. } = pending;
            let bytes = payload.len();
            let payload = if meaning.is_some() { Bytes::new() } else { payload };
            records.push(Record { position, kind, payload, meaning, bytes });
            replies.push((reply, position));
        }
        (self.hooks.synced)(records);
        self.progress.synced.store(self.next - 1, Ordering::Release);
        for (reply, position) in replies {
            // The caller may have gone away.
            reply.send(Ok(position)).ok();
        }
    }

    /// Continues in the next segment: makes that one durable, then the rotation mark at the end of
    /// this one.
    fn rotate(&mut self, may_use_reserve: bool) -> Result<(), Trouble> {
        let following = match self.following.take() {
            Some(following) => following,
            None => {
                let header = header(&self.options, self.active.number + 1, self.next);
                self.spares.begin_segment(&header, may_use_reserve)?
            }
        };
        if let Err(error) = self.active.write_mark(self.offset, FrameKind::Rotated, self.next) {
            self.following = Some(following);
            return Err(Trouble::of(error));
        }
        self.active.file.sync_data().map_err(Trouble::Sync)?;
        self.retired.push_back(Retired { number: self.active.number, last: self.next - 1 });
        self.active = following;
        self.offset = SEGMENT_HEADER_BYTES;
        self.sealed = false;
        self.recycle();
        Ok(())
    }

    /// Writes a seal, without a sync: if the last batch is found damaged later, the seal
    /// distinguishes damage from a torn tail. A failure is ignored: nothing depends on the seal.
    pub(super) fn seal(&mut self) {
        if !self.sealed && self.failed.is_none() && self.following.is_none() {
            let sealed = self.active.write_mark(self.offset, FrameKind::Seal, self.next);
            self.sealed = sealed.is_ok();
        }
    }

    /// Recycles the segments whose records are all durable elsewhere, up to `through`.
    pub(super) fn release(&mut self, through: Position) {
        self.released = self.released.max(through.sequence());
        if self.failed.is_none() {
            self.recycle();
        }
    }

    fn recycle(&mut self) {
        let keeps_stale = |number| match &self.scrub {
            Some(Scrub::Removing(from, _)) => number >= *from,
            Some(Scrub::Preparing(_)) | None => true,
        };
        while let Some(oldest) = self.retired.front()
            && oldest.last <= self.released
            // A segment that cannot be recycled is tried again at the next release or rotation.
            && self.spares.recycle(oldest.number, keeps_stale(oldest.number)).is_ok()
        {
            self.retired.pop_front();
        }
        self.end_scrub();
    }

    /// Begins to remove stale bytes. Whoever asks while that is under way waits for another round: their
    /// records may be in the files that this round has made already.
    pub(super) fn begin_scrub(&mut self, mut asking: Vec<Scrubbed>) {
        match &mut self.scrub {
            Some(Scrub::Preparing(waiting)) => waiting.append(&mut asking),
            Some(Scrub::Removing(_, waiting)) if !asking.is_empty() => {
                asking.append(waiting);
                self.scrub = Some(Scrub::Preparing(asking));
            }
            None if !asking.is_empty() => self.scrub = Some(Scrub::Preparing(asking)),
            Some(Scrub::Removing(..)) | None => {}
        }
    }

    /// Whether a scrub has something to do now.
    pub(super) fn has_scrub_step(&self) -> bool {
        self.failed.is_none() && matches!(self.scrub, Some(Scrub::Preparing(_)))
    }

    /// Does a small part of a scrub, so that no append waits long for it.
    pub(super) fn scrub_step(&mut self) {
        if !self.has_scrub_step() {
            return;
        }
        let stepped = self.spares.renew_slice().and_then(|is_ready| {
            if !is_ready {
                return Ok(());
            }
            if self.following.is_some() {
                // The segment that was prepared next was made of a file with old records: use it up now.
                self.rotate(false)?;
            }
            self.spares.renew().map_err(Trouble::of)?;
            // Before the rotation, which recycles what is released: that must be removed already.
            let from = self.active.number + 1;
            if let Some(Scrub::Preparing(waiting)) = self.scrub.take() {
                self.scrub = Some(Scrub::Removing(from, waiting));
            }
            self.rotate(false)
        });
        match stepped {
            Ok(()) => {}
            Err(trouble @ Trouble::Sync(_)) => {
                self.scrub = None;
                self.fail(trouble, &mut VecDeque::new());
            }
            Err(trouble @ (Trouble::Full | Trouble::Write(_))) => {
                self.spares.give_up_renewing();
                let refusal = trouble.refusal();
                if let Some(Scrub::Preparing(waiting) | Scrub::Removing(_, waiting)) =
                    self.scrub.take()
                {
                    waiting.into_iter().for_each(|one| drop(one.send(Err(refusal.clone()))));
                }
            }
        }
    }

    /// Answers those who wait for a scrub once no file with stale bytes is left.
    fn end_scrub(&mut self) {
        let Some(Scrub::Removing(from, _)) = &self.scrub else { return };
        if self.retired.iter().any(|retired| retired.number < *from) {
            return;
        }
        let Some(Scrub::Removing(_, waiting)) = self.scrub.take() else { return };
        let synced = self.spares.sync_names().map_err(|trouble| trouble.refusal());
        waiting.into_iter().for_each(|one| drop(one.send(synced.clone())));
    }

    fn prepare_ahead(&mut self, waiting: &mut VecDeque<Pending>) {
        match self.spares.prepare_ahead() {
            Err(trouble @ Trouble::Sync(_)) => self.fail(trouble, waiting),
            Ok(()) | Err(Trouble::Full | Trouble::Write(_)) => {}
        }
    }

    /// Stops the writer for good: calls the hook, and refuses all appends from now on.
    fn fail(&mut self, trouble: Trouble, waiting: &mut VecDeque<Pending>) {
        let (Trouble::Sync(error) | Trouble::Write(error)) = trouble else { return };
        let error = Arc::new(error);
        self.failed = Some(Arc::clone(&error));
        // Call the hook before the callers are refused: they can then rely on the process knowing
        // the reason.
        if let Some(fatal) = self.hooks.fatal.take() {
            fatal(error);
        }
        refuse(waiting, &AppendError::SyncFailed, |_| true);
    }

    /// Writes durable seals and stops. The journal is not written to after that.
    pub(super) fn close(&mut self) -> Result<(), JournalError> {
        if let Some(error) = &self.failed {
            return Err(JournalError::SyncFailed(Arc::clone(error)));
        }
        self.vouch().map_err(|trouble| trouble.while_opening(self.active.name(), "seal it"))
    }

    /// Writes two durable seals for everything so far, in different sectors.
    fn vouch(&mut self) -> Result<(), Trouble> {
        if self.following.is_none() {
            let marked = self.active.write_mark(self.offset, FrameKind::Seal, self.next);
            marked.map_err(Trouble::of)?;
        }
        let marked = self.active.write_mark(VOUCHER_OFFSET, FrameKind::Seal, self.next);
        marked.map_err(Trouble::of)?;
        self.active.file.sync_data().map_err(Trouble::Sync)
    }
}

fn header(options: &JournalOptions, number: u64, first: u64) -> SegmentHeader {
    SegmentHeader {
        store_id: options.store_id,
        number,
        first,
        salt: format::mix(options.nonce, number),
        segment_bytes: options.segment_bytes,
    }
}

/// The full segments before the active one. Those that are not needed count as released.
fn retired(scan: &Scan) -> VecDeque<Retired> {
    let surplus = scan.surplus.iter().map(|&number| Retired { number, last: 0 });
    let full = scan.spans.windows(2).filter_map(|pair| match pair {
        [span, following] => {
            Some(Retired { number: span.segment.number, last: following.segment.first - 1 })
        }
        _ => None,
    });
    surplus.chain(full).collect()
}

fn is_normal(pending: &Pending) -> bool {
    matches!(pending.reserve, Reserve::Normal)
}

/// Refuses the appends that match; the others stay, in order.
fn refuse(
    waiting: &mut VecDeque<Pending>,
    refusal: &AppendError,
    which: impl Fn(&Pending) -> bool,
) {
    let (refused, kept): (VecDeque<_>, VecDeque<_>) =
        std::mem::take(waiting).into_iter().partition(which);
    *waiting = kept;
    refused.into_iter().for_each(|pending| pending.answer(Err(refusal.clone())));
}
