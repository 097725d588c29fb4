//! The store's own binary encoding of values: compact, and equal values have equal bytes.
//!
//! Journal records hold it, and the checksums of rows are computed from it. Every record begins
//! with the version of the encoding. **Decoding checks everything** and never panics, whatever the
//! bytes are. Numbers are little-endian base 128, signed ones in zigzag; texts and bytes are
//! prefixed with their length.

mod attempt;
mod values;

#[cfg(test)]
mod tests;

use bytes::Bytes;
use postrider_domain::time::Timestamp;

pub(in crate::embedded) use self::attempt::{
    get_attempt, get_first_attempt, put_attempt, put_first_attempt,
};
pub(in crate::embedded) use self::values::{
    event_sum, get_acceptances, get_commit, get_noted, get_state, get_whole_replay, noted,
    put_acceptances, put_commit, put_event, put_state, put_whole_replay, state_number,
};

/// The version of the encoding.
pub(in crate::embedded) const VERSION: u8 = 1;

/// The bytes are not a valid encoding; the text says what is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot be decoded: {0}")]
pub(in crate::embedded) struct Malformed(pub(in crate::embedded) &'static str);

/// Collects the bytes of a value.
#[derive(Debug, Default)]
pub(in crate::embedded) struct Encoder(Vec<u8>);

impl Encoder {
    pub(in crate::embedded) fn with_capacity(bytes: usize) -> Self {
        Encoder(Vec::with_capacity(bytes))
    }

    pub(in crate::embedded) fn finish(self) -> Vec<u8> {
        self.0
    }

    pub(in crate::embedded) fn as_slice(&self) -> &[u8] {
        &self.0
    }

    pub(in crate::embedded) fn clear(&mut self) {
        self.0.clear();
    }

    pub(in crate::embedded) fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    pub(in crate::embedded) fn unsigned(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(u8::try_from(number & 0x7f).unwrap_or(0) | 0x80);
            number >>= 7;
        }
        self.0.push(u8::try_from(number).unwrap_or(0));
    }

    pub(in crate::embedded) fn signed(&mut self, number: i64) {
        self.unsigned(((number << 1) ^ (number >> 63)).cast_unsigned());
    }

    pub(in crate::embedded) fn size(&mut self, size: usize) {
        self.unsigned(u64::try_from(size).unwrap_or(u64::MAX));
    }

    pub(in crate::embedded) fn time(&mut self, time: Timestamp) {
        self.signed(time.as_unix_ms());
    }

    pub(in crate::embedded) fn fixed(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub(in crate::embedded) fn bytes(&mut self, bytes: &[u8]) {
        self.size(bytes.len());
        self.fixed(bytes);
    }

    pub(in crate::embedded) fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    /// Encodes an optional value.
    pub(in crate::embedded) fn option<T>(
        &mut self,
        value: Option<T>,
        put: impl FnOnce(&mut Self, T),
    ) {
        match value {
            None => self.byte(0),
            Some(value) => {
                self.byte(1);
                put(self, value);
            }
        }
    }
}

/// Decodes values from bytes, without copying long ones.
#[derive(Debug)]
pub(in crate::embedded) struct Decoder(Bytes);

impl Decoder {
    pub(in crate::embedded) fn new(bytes: Bytes) -> Self {
        Decoder(bytes)
    }

    /// Fails if there are bytes left.
    pub(in crate::embedded) fn end(&self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed("bytes after the end")) }
    }

    pub(in crate::embedded) fn byte(&mut self) -> Result<u8, Malformed> {
        let (&first, _) = self.0.split_first().ok_or(Malformed("it ends too early"))?;
        bytes::Buf::advance(&mut self.0, 1);
        Ok(first)
    }

    pub(in crate::embedded) fn unsigned(&mut self) -> Result<u64, Malformed> {
        let (mut number, mut used) = (0u64, 0usize);
        for shift in (0..64).step_by(7) {
            let byte = *self.0.get(used).ok_or(Malformed("it ends too early"))?;
            used += 1;
            if shift == 63 && byte > 1 {
                break;
            }
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                bytes::Buf::advance(&mut self.0, used);
                return Ok(number);
            }
        }
        Err(Malformed("a number is too large"))
    }

    pub(in crate::embedded) fn number<T: TryFrom<u64>>(&mut self) -> Result<T, Malformed> {
        T::try_from(self.unsigned()?).map_err(|_| Malformed("a number is too large"))
    }

    pub(in crate::embedded) fn signed(&mut self) -> Result<i64, Malformed> {
        let number = self.unsigned()?;
        Ok((number >> 1).cast_signed() ^ -((number & 1).cast_signed()))
    }

    pub(in crate::embedded) fn time(&mut self) -> Result<Timestamp, Malformed> {
        self.signed().map(Timestamp::from_unix_ms)
    }

    pub(in crate::embedded) fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (&first, _) = self.0.split_first_chunk::<N>().ok_or(Malformed("it ends too early"))?;
        bytes::Buf::advance(&mut self.0, N);
        Ok(first)
    }

    pub(in crate::embedded) fn bytes(&mut self) -> Result<Bytes, Malformed> {
        let size: usize = self.number()?;
        if size > self.0.len() {
            return Err(Malformed("it ends too early"));
        }
        Ok(self.0.split_to(size))
    }

    /// A text, parsed as a `T`.
    pub(in crate::embedded) fn parse<T: std::str::FromStr>(&mut self) -> Result<T, Malformed> {
        let bytes = self.bytes()?;
        let text = str::from_utf8(&bytes).map_err(|_| Malformed("a text is not UTF-8"))?;
        text.parse().map_err(|_| Malformed("a text is not what it should be"))
    }

    pub(in crate::embedded) fn option<T>(
        &mut self,
        get: impl FnOnce(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Option<T>, Malformed> {
        match self.byte()? {
            0 => Ok(None),
            1 => get(self).map(Some),
            2.. => Err(Malformed("neither present nor absent")),
        }
    }

    /// A list of values. Its length is checked against the remaining bytes before memory is
    /// allocated.
    pub(in crate::embedded) fn list<T>(
        &mut self,
        mut get: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let count: usize = self.number()?;
        if count > self.0.len() {
            return Err(Malformed("a list is longer than its bytes"));
        }
        let mut list = Vec::with_capacity(count);
        for _ in 0..count {
            list.push(get(self)?);
        }
        Ok(list)
    }
}
