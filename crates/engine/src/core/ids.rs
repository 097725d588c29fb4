//! Maps keyed by our own identifiers: their last bytes are random already, so they need no hashing.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map keyed by identifiers of our own.
pub(crate) type IdMap<K, V> = HashMap<K, V, BuildHasherDefault<LastBytes>>;

/// A hasher that takes the last eight bytes as the hash.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LastBytes(u64);

impl Hasher for LastBytes {
    fn finish(&self) -> u64 {
        // The map uses the highest and the lowest bits; the multiplication spreads the random ones
        // over both.
        self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut last = [0; 8];
            last[..chunk.len()].copy_from_slice(chunk);
            self.0 = self.0.rotate_left(32) ^ u64::from_le_bytes(last);
        }
    }
}
