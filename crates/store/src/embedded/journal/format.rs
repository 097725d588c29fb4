//! The bytes of the journal: segment headers, frames and records.
//!
//! Everything is little-endian and carries a CRC32. Every CRC but a segment header's begins from
//! the segment's salt, and a record's from its batch's attempt number too, so that bytes from an
//! earlier use of the file, or from an abandoned batch, never verify as current ones.

use bytes::{Buf, Bytes};

use postrider_domain::mixing;

use super::{Position, Record};

/// The identity of a store. A segment that belongs to another store is never opened.
pub type StoreId = [u8; 16];

const SEGMENT_MAGIC: [u8; 8] = *b"PRJOURNL";
const SEGMENT_VERSION: u32 = 1;
/// The header has a page of its own, so that no append ever rewrites it.
pub(super) const SEGMENT_HEADER_BYTES: u64 = 4096;
/// Offset of a second seal (the voucher), on the header's page but in another sector.
pub(super) const VOUCHER_OFFSET: u64 = 512;
const SEGMENT_HEADER_USED: usize = 64;

const FRAME_MAGIC: u16 = 0x4A50;
/// Frames begin at multiples of their header's length, so that no header straddles a sector.
pub(super) const FRAME_HEADER_BYTES: usize = 64;
pub(super) const RECORD_HEADER_BYTES: usize = 20;

/// The next offset at which a frame may begin.
pub(super) fn align(offset: u64) -> u64 {
    offset.next_multiple_of(FRAME_HEADER_BYTES as u64)
}

/// Hashes two numbers into one.
pub(super) fn mix(a: u64, b: u64) -> u64 {
    mixing::finish(a ^ b.wrapping_mul(mixing::STEP))
}

/// The low half of a number.
pub(super) fn low(number: u64) -> u32 {
    let bytes = number.to_le_bytes();
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

fn crc(from: u32, parts: &[&[u8]]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(from);
    for part in parts {
        hasher.update(part);
    }
    hasher.finalize()
}

/// The header of a segment file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SegmentHeader {
    pub(super) store_id: StoreId,
    /// The segment's number. Numbers are never reused; the file's name has it too.
    pub(super) number: u64,
    /// The sequence number of the first record of this segment. Everything below it was synced
    /// before this header was written.
    pub(super) first: u64,
    /// A new random value each time the file becomes a segment.
    pub(super) salt: u64,
    /// The required length of the file.
    pub(super) segment_bytes: u64,
}

/// Why bytes are not a segment's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeaderFault {
    /// The magic or the CRC is wrong.
    Damaged,
    /// The header is valid, but of a version that this program does not know.
    Version(u32),
}

impl SegmentHeader {
    pub(super) const BYTES: usize = SEGMENT_HEADER_USED;

    pub(super) fn encode(&self) -> [u8; SEGMENT_HEADER_USED] {
        let mut bytes = [0; SEGMENT_HEADER_USED];
        bytes[..8].copy_from_slice(&SEGMENT_MAGIC);
        bytes[8..12].copy_from_slice(&SEGMENT_VERSION.to_le_bytes());
        bytes[12..28].copy_from_slice(&self.store_id);
        bytes[28..36].copy_from_slice(&self.number.to_le_bytes());
        bytes[36..44].copy_from_slice(&self.first.to_le_bytes());
        bytes[44..52].copy_from_slice(&self.salt.to_le_bytes());
        bytes[52..60].copy_from_slice(&self.segment_bytes.to_le_bytes());
        let sum = crc(0, &[&bytes[..60]]);
        bytes[60..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; SEGMENT_HEADER_USED]) -> Result<Self, HeaderFault> {
        let mut rest = &bytes[..];
        let mut magic = [0; 8];
        rest.copy_to_slice(&mut magic);
        let version = rest.get_u32_le();
        let mut store_id = StoreId::default();
        rest.copy_to_slice(&mut store_id);
        let header = SegmentHeader {
            store_id,
            number: rest.get_u64_le(),
            first: rest.get_u64_le(),
            salt: rest.get_u64_le(),
            segment_bytes: rest.get_u64_le(),
        };
        if magic != SEGMENT_MAGIC || rest.get_u32_le() != crc(0, &[&bytes[..60]]) {
            return Err(HeaderFault::Damaged);
        }
        if version != SEGMENT_VERSION {
            return Err(HeaderFault::Version(version));
        }
        Ok(header)
    }
}

/// The purpose of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FrameKind {
    /// A batch: the records of one group commit follow.
    Batch,
    /// A frame without records: it says up to where everything was synced. The next batch
    /// overwrites it.
    Seal,
    /// The segment ends here and continues in the next one.
    Rotated,
}

impl FrameKind {
    fn code(self) -> u8 {
        match self {
            FrameKind::Batch => 1,
            FrameKind::Seal => 2,
            FrameKind::Rotated => 3,
        }
    }

    fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(FrameKind::Batch),
            2 => Some(FrameKind::Seal),
            3 => Some(FrameKind::Rotated),
            _ => None,
        }
    }
}

/// The header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: FrameKind,
    /// The number of the attempt at writing this batch; the records' CRCs start from it.
    pub(super) attempt: u32,
    /// The sequence number of the first record; in a frame without records, of the next one to
    /// come.
    pub(super) first: u64,
    /// Everything up to here was synced before this frame was written.
    pub(super) synced_through: u64,
    /// The length of all records together.
    pub(super) body_bytes: u64,
    pub(super) records: u32,
}

/// The location of a frame. It enters the CRC, so a frame is valid only where it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameAddress {
    pub(super) salt: u64,
    pub(super) segment: u64,
    pub(super) offset: u64,
}

impl Frame {
    pub(super) fn encode(&self, place: FrameAddress) -> [u8; FRAME_HEADER_BYTES] {
        let mut bytes = [0; FRAME_HEADER_BYTES];
        bytes[..2].copy_from_slice(&FRAME_MAGIC.to_le_bytes());
        bytes[2] = self.kind.code();
        bytes[4..8].copy_from_slice(&self.attempt.to_le_bytes());
        bytes[8..16].copy_from_slice(&place.salt.to_le_bytes());
        bytes[16..24].copy_from_slice(&place.segment.to_le_bytes());
        bytes[24..32].copy_from_slice(&place.offset.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.first.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.synced_through.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.body_bytes.to_le_bytes());
        bytes[56..60].copy_from_slice(&self.records.to_le_bytes());
        let sum = crc(low(place.salt), &[&bytes[..60]]);
        bytes[60..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Decodes a frame; `None` unless it was written at exactly this place.
    pub(super) fn decode(bytes: &[u8; FRAME_HEADER_BYTES], place: FrameAddress) -> Option<Self> {
        let mut rest = &bytes[..];
        let magic = rest.get_u16_le();
        let kind = FrameKind::from_code(rest.get_u8());
        let zero = rest.get_u8();
        let attempt = rest.get_u32_le();
        let found = FrameAddress {
            salt: rest.get_u64_le(),
            segment: rest.get_u64_le(),
            offset: rest.get_u64_le(),
        };
        if magic != FRAME_MAGIC || zero != 0 || found != place {
            return None;
        }
        let frame = Frame {
            kind: kind?,
            attempt,
            first: rest.get_u64_le(),
            synced_through: rest.get_u64_le(),
            body_bytes: rest.get_u64_le(),
            records: rest.get_u32_le(),
        };
        let is_whole = rest.get_u32_le() == crc(low(place.salt), &[&bytes[..60]]);
        // Reject a frame whose sequence numbers overflow: callers add one to the last of them.
        let is_countable = frame.first.checked_add(u64::from(frame.records)).is_some();
        (is_whole && is_countable).then_some(frame)
    }

    /// The start value of the CRCs of this frame's records.
    fn record_salt(&self, salt: u64) -> u32 {
        low(mix(salt, u64::from(self.attempt)))
    }
}

/// The start value of the CRCs of a batch's records.
pub(super) fn record_salt(salt: u64, attempt: u32) -> u32 {
    low(mix(salt, u64::from(attempt)))
}

/// Appends one record's bytes.
pub(super) fn encode_record(
    into: &mut Vec<u8>,
    record_salt: u32,
    sequence: u64,
    kind: u8,
    payload: &[u8],
) {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    let mut header = [0; RECORD_HEADER_BYTES];
    header[4..8].copy_from_slice(&length.to_le_bytes());
    header[8..16].copy_from_slice(&sequence.to_le_bytes());
    header[16] = kind;
    let sum = crc(record_salt, &[&header[4..], payload]);
    header[..4].copy_from_slice(&sum.to_le_bytes());
    into.extend_from_slice(&header);
    into.extend_from_slice(payload);
}

/// Decodes the records of a batch; `None` if a single byte does not verify.
pub(super) fn decode_records(frame: &Frame, salt: u64, mut body: Bytes) -> Option<Vec<Record>> {
    let record_salt = frame.record_salt(salt);
    let mut records = Vec::with_capacity(body.len().min(1 << 16) / RECORD_HEADER_BYTES);
    for sequence in (frame.first..).take(usize::try_from(frame.records).ok()?) {
        let mut header = [0; RECORD_HEADER_BYTES];
        body.try_copy_to_slice(&mut header).ok()?;
        let mut rest = &header[..];
        let sum = rest.get_u32_le();
        let length = usize::try_from(rest.get_u32_le()).ok()?;
        let found = rest.get_u64_le();
        let kind = rest.get_u8();
        if found != sequence || rest != [0; 3] || length > body.len() {
            return None;
        }
        let payload = body.split_to(length);
        if sum != crc(record_salt, &[&header[4..], &payload]) {
            return None;
        }
        let (position, bytes) = (Position::new(sequence), payload.len());
        records.push(Record { position, kind, payload, meaning: None, bytes });
    }
    body.is_empty().then_some(records)
}

/// Fuzz target: nothing panics, and a header that decodes encodes to the same bytes.
#[cfg(any(test, feature = "fuzzing"))]
pub(in crate::embedded) fn fuzz(bytes: &[u8]) {
    let mut header = [0; SEGMENT_HEADER_USED];
    let used = bytes.len().min(SEGMENT_HEADER_USED);
    header[..used].copy_from_slice(&bytes[..used]);
    if let Ok(read) = SegmentHeader::decode(&header) {
        assert_eq!(SegmentHeader::decode(&read.encode()), Ok(read));
    }
    let mut head = [0; FRAME_HEADER_BYTES];
    let used = bytes.len().min(FRAME_HEADER_BYTES);
    head[..used].copy_from_slice(&bytes[..used]);
    // Use the address that the bytes themselves contain, so that they pass that check.
    let mut rest = &head[8..];
    let place = FrameAddress {
        salt: rest.get_u64_le(),
        segment: rest.get_u64_le(),
        offset: rest.get_u64_le(),
    };
    // Correct the CRC, as an attacker would.
    let sum = crc(low(place.salt), &[&head[..60]]);
    head[60..].copy_from_slice(&sum.to_le_bytes());
    if let Some(frame) = Frame::decode(&head, place) {
        let body = Bytes::copy_from_slice(bytes.get(FRAME_HEADER_BYTES..).unwrap_or_default());
        drop(decode_records(&frame, place.salt, body));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: FrameAddress =
        FrameAddress { salt: 0x1234_5678_9ABC_DEF0, segment: 7, offset: 4096 };

    fn batch() -> (Frame, Vec<u8>) {
        let mut body = Vec::new();
        let salt = record_salt(ADDRESS.salt, 3);
        for (sequence, payload) in [(41, &b"first"[..]), (42, b""), (43, b"third")] {
            encode_record(&mut body, salt, sequence, 9, payload);
        }
        let frame = Frame {
            kind: FrameKind::Batch,
            attempt: 3,
            first: 41,
            synced_through: 40,
            body_bytes: body.len() as u64,
            records: 3,
        };
        (frame, body)
    }

    #[test]
    fn headers_and_frames_round_trip_and_every_flipped_bit_is_detected() {
        let header = SegmentHeader {
            store_id: *b"0123456789abcdef",
            number: 7,
            first: 41,
            salt: ADDRESS.salt,
            segment_bytes: 1 << 26,
        };
        let (frame, _) = batch();
        assert_eq!(SegmentHeader::decode(&header.encode()), Ok(header));
        assert_eq!(Frame::decode(&frame.encode(ADDRESS), ADDRESS), Some(frame));
        for bit in 0..512 {
            let mut bytes = header.encode();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(SegmentHeader::decode(&bytes), Err(HeaderFault::Damaged), "bit {bit}");
            let mut bytes = frame.encode(ADDRESS);
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Frame::decode(&bytes, ADDRESS), None, "bit {bit}");
        }
    }

    #[test]
    fn unknown_version_is_distinguished_from_damage() {
        let header = SegmentHeader {
            store_id: StoreId::default(),
            number: 1,
            first: 1,
            salt: 1,
            segment_bytes: 1,
        };
        let mut bytes = header.encode();
        bytes[8] = 2;
        let sum = crc(0, &[&bytes[..60]]);
        bytes[60..].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(SegmentHeader::decode(&bytes), Err(HeaderFault::Version(2)));
    }

    #[test]
    fn a_frame_is_valid_only_where_it_was_written() {
        let (frame, _) = batch();
        let elsewhere = [
            FrameAddress { salt: ADDRESS.salt + 1, ..ADDRESS },
            FrameAddress { segment: 8, ..ADDRESS },
            FrameAddress { offset: 4160, ..ADDRESS },
        ];
        for place in elsewhere {
            assert_eq!(Frame::decode(&frame.encode(ADDRESS), place), None, "{place:?}");
        }
    }

    #[test]
    fn frame_with_an_overflowing_sequence_number_is_rejected() {
        let (frame, _) = batch();
        let at = |first| Frame::decode(&Frame { first, ..frame }.encode(ADDRESS), ADDRESS);
        assert!(at(u64::MAX - 3).is_some());
        assert_eq!(at(u64::MAX - 2), None);
        // Found by libFuzzer: all bits set except in the kind.
        let mut found = [0xFF; 96];
        found[..5].copy_from_slice(b"PJ\x03\0\0");
        fuzz(&found);
    }

    #[test]
    fn records_round_trip_and_every_flipped_bit_or_cut_is_detected() {
        let (frame, body) = batch();
        let decode = |frame: &Frame, body: &[u8]| {
            decode_records(frame, ADDRESS.salt, Bytes::copy_from_slice(body))
        };
        let records = decode(&frame, &body).unwrap();
        let shown: Vec<_> =
            records.iter().map(|r| (r.position.sequence(), r.kind, &r.payload[..])).collect();
        assert_eq!(shown, [(41, 9, &b"first"[..]), (42, 9, b""), (43, 9, b"third")]);
        for bit in 0..body.len() * 8 {
            let mut body = body.clone();
            body[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&frame, &body), None, "bit {bit}");
        }
        for length in 0..body.len() {
            assert_eq!(decode(&frame, &body[..length]), None, "cut at {length}");
        }
        let other_try = Frame { attempt: 4, ..frame };
        assert_eq!(decode(&other_try, &body), None, "records of a batch that was given up");
    }
}
