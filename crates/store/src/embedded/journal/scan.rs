//! Reading the journal back: which segments are needed, where the records end, and whether that end
//! is where a crash may have left it.
//!
//! The scan changes nothing. An invalid place is the end of the journal only if no frame proves
//! that a synced record stood there (see "Torn tail or damage" in `mod.rs`).

use std::io;

use super::format::{
    FRAME_HEADER_BYTES, Frame, FrameKind, SEGMENT_HEADER_BYTES, StoreId, VOUCHER_OFFSET, align,
};
use super::segment::{self, Segment};
use super::{JournalError, Position, TornTail};
use crate::embedded::medium::Medium;

const LOOK_AHEAD_BYTES: usize = 1 << 20;

/// A segment and where its frames end.
#[derive(Debug, Clone)]
pub(super) struct Span {
    pub(super) segment: Segment,
    pub(super) end: u64,
}

/// The result of a scan.
#[derive(Debug)]
pub(super) struct Scan {
    /// Every segment that holds a record after the applied position, and the active one; in order.
    pub(super) spans: Vec<Span>,
    /// Segments that are not needed any more.
    pub(super) surplus: Vec<u64>,
    /// The sequence number of the next record.
    pub(super) next: u64,
    /// The last batch of the active segment, if no later frame proves that it was synced.
    pub(super) unvouched: Option<(u64, Frame)>,
    /// The unfinished end that was cut off.
    pub(super) torn: Option<TornTail>,
}

/// How the frames of a segment end.
#[derive(Debug)]
enum Ending {
    /// With a rotation mark: the journal continues in the next segment.
    Rotated,
    /// With a seal: everything before it was synced.
    Sealed,
    /// With bytes that are not a valid frame: the end of the journal, or damage.
    Open { torn_bytes: Option<u64> },
}

/// The frames of one segment.
#[derive(Debug)]
struct Frames {
    end: u64,
    next: u64,
    last_batch: Option<(u64, Frame)>,
    ending: Ending,
}

impl Frames {
    /// Drops a last batch that was refused: the next segment begins with its sequence numbers, so
    /// they were still free when that segment was begun.
    fn give_up_from(&mut self, first: u64) {
        if let Some((offset, frame)) = self.last_batch
            && frame.first == first
        {
            self.end = offset;
            self.next = first;
            self.ending = Ending::Open { torn_bytes: Some(frame.body_bytes) };
        }
    }
}

/// Scans all segments that are needed after `applied`; `None` where there is no segment at all.
pub(super) fn scan(
    medium: &dyn Medium,
    names: &[String],
    store_id: &StoreId,
    applied: Position,
) -> Result<Option<Scan>, JournalError> {
    let mut numbers: Vec<u64> = names.iter().filter_map(|name| segment::number_in(name)).collect();
    numbers.sort_unstable();
    if numbers.is_empty() {
        return Ok(None);
    }
    let segments = needed(medium, &mut numbers, store_id, applied)?;
    let scan = Scanner { medium }.read(segments, numbers)?;
    if scan.next <= applied.sequence() {
        return Err(JournalError::Behind { last: scan.next - 1, applied: applied.sequence() });
    }
    Ok(Some(scan))
}

/// Opens the newest segments, back to the one with the first record after `applied`. The older ones
/// stay in `numbers`.
fn needed(
    medium: &dyn Medium,
    numbers: &mut Vec<u64>,
    store_id: &StoreId,
    applied: Position,
) -> Result<Vec<Segment>, JournalError> {
    let mut segments: Vec<Segment> = Vec::new();
    loop {
        let newer = segments.last();
        if newer.is_some_and(|newer| newer.first <= applied.sequence() + 1) {
            segments.reverse();
            return Ok(segments);
        }
        match (numbers.pop(), newer) {
            (Some(number), Some(newer)) if number + 1 != newer.number => {
                return Err(missing(medium, newer.number - 1, applied.sequence() + 1));
            }
            (Some(number), _) => segments.push(Segment::open(medium, number, store_id)?),
            (None, Some(newer)) => {
                let number = newer.number.saturating_sub(1);
                return Err(missing(medium, number, applied.sequence() + 1));
            }
            (None, None) => {
                return Err(JournalError::NoJournal { directory: medium.describe("") });
            }
        }
    }
}

fn missing(medium: &dyn Medium, number: u64, sequence: u64) -> JournalError {
    JournalError::MissingSegment { file: medium.describe(&segment::name_of(number)), sequence }
}

struct Scanner<'a> {
    medium: &'a dyn Medium,
}

impl Scanner<'_> {
    /// Reads the segments in order and checks each against the next.
    fn read(&self, segments: Vec<Segment>, surplus: Vec<u64>) -> Result<Scan, JournalError> {
        let mut scan = Scan { spans: Vec::new(), surplus, next: 0, unvouched: None, torn: None };
        let mut segments = segments.into_iter().peekable();
        while let Some(segment) = segments.next() {
            let mut frames = self.frames(&segment)?;
            if let Some(following) = segments.peek() {
                frames.give_up_from(following.first);
            }
            match (segments.peek(), &frames.ending) {
                (Some(following), ending) => {
                    let marked = matches!(ending, Ending::Rotated);
                    self.check_following(&segment, &frames, following, marked)?;
                }
                (None, Ending::Rotated) => {
                    return Err(missing(self.medium, segment.number + 1, frames.next));
                }
                (None, Ending::Sealed) => {}
                (None, Ending::Open { torn_bytes }) => {
                    scan.unvouched = frames.last_batch;
                    scan.torn = torn_bytes.map(|bytes| TornTail {
                        file: self.medium.describe(&segment.name()),
                        offset: frames.end,
                        position: Position::new(frames.next),
                        bytes,
                    });
                }
            }
            scan.next = frames.next;
            scan.spans.push(Span { segment, end: frames.end });
        }
        Ok(scan)
    }

    /// Checks two consecutive segments. A segment is begun only when everything before it is
    /// synced, and written to only when the one before it has its rotation mark.
    fn check_following(
        &self,
        segment: &Segment,
        frames: &Frames,
        following: &Segment,
        marked: bool,
    ) -> Result<(), JournalError> {
        if following.first != frames.next {
            let damage = "the next segment shows that more was synced here";
            return Err(self.corrupt(segment, frames.end, frames.next, damage));
        }
        if marked {
            return Ok(());
        }
        let begun = self.checked(following, following.read_frame(SEGMENT_HEADER_BYTES))?;
        match begun.map(|frame| frame.kind) {
            Some(FrameKind::Batch | FrameKind::Rotated) => {
                let damage = "the mark that the next segment goes on is damaged";
                Err(self.corrupt(segment, frames.end, frames.next, damage))
            }
            Some(FrameKind::Seal) | None => Ok(()),
        }
    }

    /// Reads the frames of a segment until they end.
    fn frames(&self, segment: &Segment) -> Result<Frames, JournalError> {
        let mut frames = Frames {
            end: SEGMENT_HEADER_BYTES,
            next: segment.first,
            last_batch: None,
            ending: Ending::Open { torn_bytes: None },
        };
        loop {
            let offset = frames.end;
            let Some(frame) = self.checked(segment, segment.read_frame(offset))? else {
                break;
            };
            if frame.first != frames.next {
                let damage = "a batch with other sequence numbers stands here";
                return Err(self.corrupt(segment, offset, frames.next, damage));
            }
            match frame.kind {
                FrameKind::Batch => {}
                FrameKind::Seal => {
                    frames.ending = Ending::Sealed;
                    break;
                }
                FrameKind::Rotated => {
                    frames.ending = Ending::Rotated;
                    return Ok(frames);
                }
            }
            let records = self.checked(segment, segment.read_records(offset, &frame))?;
            let (Some(_), Some(end)) = (records, segment.end_of(offset, &frame)) else {
                frames.ending = Ending::Open { torn_bytes: Some(frame.body_bytes) };
                break;
            };
            frames.next += u64::from(frame.records);
            frames.last_batch = Some((offset, frame));
            frames.end = align(end);
        }
        self.look_ahead(segment, &frames)?;
        Ok(frames)
    }

    /// Searches the bytes after the end for a frame that proves that a synced record stood there.
    fn look_ahead(&self, segment: &Segment, frames: &Frames) -> Result<(), JournalError> {
        let voucher = self.checked(segment, segment.read_frame(VOUCHER_OFFSET))?;
        if voucher.is_some_and(|voucher| voucher.synced_through >= frames.next) {
            let damage = "the segment's voucher shows that more was synced here";
            return Err(self.corrupt(segment, frames.end, frames.next, damage));
        }
        let step = FRAME_HEADER_BYTES as u64;
        let mut offset = frames.end + step;
        let after = usize::try_from(segment.bytes.saturating_sub(offset)).unwrap_or(usize::MAX);
        let mut buffer = vec![0; after.min(LOOK_AHEAD_BYTES)];
        while offset + step <= segment.bytes {
            let rest = usize::try_from(segment.bytes - offset).unwrap_or(usize::MAX);
            let length = rest.min(buffer.len()) / FRAME_HEADER_BYTES * FRAME_HEADER_BYTES;
            let chunk = &mut buffer[..length];
            self.checked(segment, segment.file.read_at(offset, chunk))?;
            for bytes in chunk.as_chunks::<FRAME_HEADER_BYTES>().0 {
                // Nearly all bytes after the end are zeros, and comparing is cheaper than a
                // decoding that fails.
                let is_blank = *bytes == [0; FRAME_HEADER_BYTES];
                let frame =
                    if is_blank { None } else { Frame::decode(bytes, segment.place(offset)) };
                if frame.is_some_and(|frame| frame.synced_through >= frames.next) {
                    let damage = "a later batch shows that this one was synced";
                    return Err(self.corrupt(segment, frames.end, frames.next, damage));
                }
                offset += step;
            }
        }
        Ok(())
    }

    fn corrupt(
        &self,
        segment: &Segment,
        offset: u64,
        sequence: u64,
        damage: &'static str,
    ) -> JournalError {
        let file = self.medium.describe(&segment.name());
        JournalError::Corrupt { file, offset, sequence, damage }
    }

    fn checked<T>(&self, segment: &Segment, outcome: io::Result<T>) -> Result<T, JournalError> {
        outcome.map_err(|source| JournalError::Io {
            file: self.medium.describe(&segment.name()),
            action: "read",
            source,
        })
    }
}
