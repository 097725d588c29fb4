//! One segment file: its name, its header and its frames.
//!
//! A file has the name of a segment only after its header is durable, so a segment whose header
//! does not verify is damaged, never merely unfinished.

use std::io;
use std::sync::Arc;

use bytes::Bytes;

use super::format::{
    FRAME_HEADER_BYTES, Frame, FrameAddress, FrameKind, HeaderFault, SEGMENT_HEADER_BYTES,
    SegmentHeader, StoreId, decode_records,
};
use super::{JournalError, Record};
use crate::embedded::medium::{Medium, MediumFile};

const PREFIX: &str = "journal-";
const SUFFIX: &str = ".seg";

/// The name of a segment's file.
pub(super) fn name_of(number: u64) -> String {
    format!("{PREFIX}{number:016x}{SUFFIX}")
}

/// The number in a file's name, if it is the name of a segment.
pub(super) fn number_in(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
    u64::from_str_radix(digits, 16).ok().filter(|&number| name_of(number) == name)
}

/// An open segment.
#[derive(Debug, Clone)]
pub(super) struct Segment {
    pub(super) number: u64,
    pub(super) first: u64,
    pub(super) salt: u64,
    pub(super) bytes: u64,
    pub(super) file: Arc<dyn MediumFile>,
}

impl Segment {
    pub(super) fn new(header: &SegmentHeader, file: Arc<dyn MediumFile>) -> Self {
        Segment {
            number: header.number,
            first: header.first,
            salt: header.salt,
            bytes: header.segment_bytes,
            file,
        }
    }

    /// Opens a segment and verifies its header, its identity and its length.
    pub(super) fn open(
        medium: &dyn Medium,
        number: u64,
        store_id: &StoreId,
    ) -> Result<Self, JournalError> {
        let name = name_of(number);
        let failed = |source| JournalError::Io {
            file: medium.describe(&name),
            action: "read the header",
            source,
        };
        let corrupt = |sequence, damage| JournalError::Corrupt {
            file: medium.describe(&name),
            offset: 0,
            sequence,
            damage,
        };
        let file = medium.open(&name).map_err(failed)?;
        let length = file.len_bytes().map_err(failed)?;
        if length < SEGMENT_HEADER_BYTES {
            return Err(corrupt(0, "the file is shorter than a segment's header"));
        }
        let mut bytes = [0; SegmentHeader::BYTES];
        file.read_at(0, &mut bytes).map_err(failed)?;
        let header = SegmentHeader::decode(&bytes).map_err(|fault| match fault {
            HeaderFault::Damaged => corrupt(0, "the segment's header is damaged"),
            HeaderFault::Version(version) => {
                JournalError::UnknownVersion { file: medium.describe(&name), version }
            }
        })?;
        if header.store_id != *store_id {
            return Err(JournalError::Foreign { file: medium.describe(&name) });
        }
        if header.number != number {
            return Err(corrupt(header.first, "the header is that of another segment"));
        }
        if length < header.segment_bytes {
            return Err(JournalError::Corrupt {
                file: medium.describe(&name),
                offset: length,
                sequence: header.first,
                damage: "the file was cut short",
            });
        }
        Ok(Segment::new(&header, file))
    }

    pub(super) fn name(&self) -> String {
        name_of(self.number)
    }

    pub(super) fn place(&self, offset: u64) -> FrameAddress {
        FrameAddress { salt: self.salt, segment: self.number, offset }
    }

    /// Where the frame's body ends; `None` if that is beyond the segment's end.
    pub(super) fn end_of(&self, offset: u64, frame: &Frame) -> Option<u64> {
        let end = offset.checked_add(FRAME_HEADER_BYTES as u64)?.checked_add(frame.body_bytes)?;
        (end <= self.bytes).then_some(end)
    }

    /// Reads the frame at an offset, if there is a valid one.
    pub(super) fn read_frame(&self, offset: u64) -> io::Result<Option<Frame>> {
        if offset + FRAME_HEADER_BYTES as u64 > self.bytes {
            return Ok(None);
        }
        let mut bytes = [0; FRAME_HEADER_BYTES];
        self.file.read_at(offset, &mut bytes)?;
        Ok(Frame::decode(&bytes, self.place(offset)))
    }

    /// Reads the records of the batch at an offset, if all of them are valid.
    pub(super) fn read_records(
        &self,
        offset: u64,
        frame: &Frame,
    ) -> io::Result<Option<Vec<Record>>> {
        if self.end_of(offset, frame).is_none() || frame.records == 0 {
            return Ok(None);
        }
        let mut body = vec![0; usize::try_from(frame.body_bytes).map_err(io::Error::other)?];
        self.file.read_at(offset + FRAME_HEADER_BYTES as u64, &mut body)?;
        Ok(decode_records(frame, self.salt, Bytes::from(body)))
    }

    /// Writes a frame without a body.
    pub(super) fn write_mark(&self, offset: u64, kind: FrameKind, next: u64) -> io::Result<()> {
        let frame = Frame {
            kind,
            attempt: 0,
            first: next,
            synced_through: next - 1,
            body_bytes: 0,
            records: 0,
        };
        self.file.write_at(offset, &frame.encode(self.place(offset)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segment_name_parses_back_to_its_number() {
        assert_eq!(name_of(255), "journal-00000000000000ff.seg");
        assert_eq!(number_in("journal-00000000000000ff.seg"), Some(255));
        for name in ["journal-ff.seg", "journal-00000000000000FF.seg", "spare-1.seg", "journal-"] {
            assert_eq!(number_in(name), None, "{name}");
        }
    }
}
