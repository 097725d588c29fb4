//! Where random bytes come from: handed in, so that a run can be repeated.

use std::sync::atomic::{AtomicU64, Ordering};

/// A source of random bytes.
pub trait Entropy: Send + Sync + 'static {
    /// Fills `bytes`.
    fn fill(&self, bytes: &mut [u8]);
}

/// Bytes that follow from a seed alone (SplitMix64). Good for identifiers, which are no secrets;
/// give each process a seed of its own.
#[derive(Debug)]
pub struct SeededEntropy(AtomicU64);

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

impl SeededEntropy {
    /// The source with this seed.
    pub const fn new(seed: u64) -> Self {
        SeededEntropy(AtomicU64::new(seed))
    }
}

impl Entropy for SeededEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let mut x = self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
            x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            x ^= x >> 31;
            chunk.copy_from_slice(&x.to_le_bytes()[..chunk.len()]);
        }
    }
}

/// Ten random bytes, as an identifier needs them.
pub(crate) fn ten(entropy: &dyn Entropy) -> [u8; 10] {
    let mut bytes = [0; 10];
    entropy.fill(&mut bytes);
    bytes
}
