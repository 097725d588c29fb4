//! The records that were found when the journal was opened; they are read once, one by one.
//!
//! At most one batch is in memory at a time. A record's bytes are verified again as they are read.

use std::sync::Arc;
use std::vec;

use super::format::{FrameKind, SEGMENT_HEADER_BYTES, align};
use super::scan::{Scan, Span};
use super::{JournalError, Position, Record, TornTail};
use crate::embedded::medium::Medium;

/// The records that were found when the journal was opened.
#[derive(Debug)]
pub struct Recovered {
    medium: Arc<dyn Medium>,
    spans: Vec<Span>,
    applied: Position,
    last: Position,
    torn: Option<TornTail>,
}

impl Recovered {
    pub(super) fn new(medium: Arc<dyn Medium>, scan: Option<Scan>, applied: Position) -> Self {
        let (spans, last, torn) = match scan {
            Some(scan) => (scan.spans, Position::new(scan.next - 1), scan.torn),
            None => (Vec::new(), applied, None),
        };
        Recovered { medium, spans, applied, last, torn }
    }

    /// The position of the last record; new ones follow it.
    pub fn last(&self) -> Position {
        self.last
    }

    /// How many records follow the applied position.
    pub fn count(&self) -> u64 {
        self.last.sequence() - self.applied.sequence()
    }

    /// The unfinished end that a crash left, and that was cut off.
    pub fn torn(&self) -> Option<&TornTail> {
        self.torn.as_ref()
    }

    /// Every record after the applied position, in order. Read a record before you release it.
    pub fn into_records(self) -> RecoveredRecords {
        RecoveredRecords {
            medium: self.medium,
            spans: self.spans.into_iter(),
            current: None,
            batch: Vec::new().into_iter(),
            next: self.applied.sequence() + 1,
            last: self.last.sequence(),
        }
    }
}

/// The records, one after another.
#[derive(Debug)]
pub struct RecoveredRecords {
    medium: Arc<dyn Medium>,
    spans: vec::IntoIter<Span>,
    current: Option<(Span, u64)>,
    batch: vec::IntoIter<Record>,
    next: u64,
    last: u64,
}

impl RecoveredRecords {
    /// The next batch. The scan has verified it, so a failure now means that the file has changed
    /// since.
    fn read_batch(&mut self) -> Result<Vec<Record>, JournalError> {
        loop {
            let (span, offset) = match self.current.take() {
                Some((span, offset)) if offset < span.end => (span, offset),
                Some(_) | None => match self.spans.next() {
                    Some(span) => {
                        self.current = Some((span, SEGMENT_HEADER_BYTES));
                        continue;
                    }
                    None => return Ok(Vec::new()),
                },
            };
            let file = self.medium.describe(&span.segment.name());
            let read = span.segment.read_frame(offset).and_then(|frame| match frame {
                Some(frame) if frame.kind == FrameKind::Batch => {
                    let records = span.segment.read_records(offset, &frame)?;
                    Ok(records.zip(span.segment.end_of(offset, &frame)))
                }
                Some(_) | None => Ok(None),
            });
            let (records, end) = match read {
                Ok(Some(found)) => found,
                Ok(None) => {
                    let damage = "it was whole when the journal was opened";
                    let sequence = self.next;
                    return Err(JournalError::Corrupt { file, offset, sequence, damage });
                }
                Err(source) => return Err(JournalError::Io { file, action: "read", source }),
            };
            self.current = Some((span, align(end)));
            return Ok(records);
        }
    }

    fn end(&mut self) {
        self.last = 0;
    }
}

impl Iterator for RecoveredRecords {
    type Item = Result<Record, JournalError>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.next <= self.last {
            if let Some(record) = self.batch.next() {
                if record.position.sequence() < self.next {
                    continue;
                }
                self.next += 1;
                return Some(Ok(record));
            }
            match self.read_batch() {
                Ok(records) if records.is_empty() => self.end(),
                Ok(records) => self.batch = records.into_iter(),
                Err(error) => {
                    self.end();
                    return Some(Err(error));
                }
            }
        }
        None
    }
}
