//! Random bytes: from a cryptographic generator in production, from a seed in the simulation and in
//! tests.
//!
//! **Nothing else gets randomness from the system.** Code that needs random bytes takes an
//! [`Entropy`], so that a run can be repeated; keys, tokens and secrets come from [`system_bytes`].

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use chacha20::ChaCha12Rng;
use chacha20::rand_core::{Rng, SeedableRng};
use postrider_domain::mixing::{STEP, mix};

/// A source of random bytes.
pub trait Entropy: Send + Sync + 'static {
    /// Fills `bytes`.
    fn fill(&self, bytes: &mut [u8]);
}

/// The system gives no random bytes, without which no key and no identifier can be generated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the system gives no random bytes: {0}")]
pub struct NoRandomness(String);

/// Random bytes from the system, for keys, tokens and secrets.
pub fn system_bytes<const N: usize>() -> Result<[u8; N], NoRandomness> {
    let mut bytes = [0; N];
    fill_from_system(&mut bytes)?;
    Ok(bytes)
}

/// Fills `bytes` from the system, for a buffer that its owner overwrites after use.
#[expect(clippy::disallowed_methods, reason = "the one place that asks the system for randomness")]
pub fn fill_from_system(bytes: &mut [u8]) -> Result<(), NoRandomness> {
    getrandom::fill(bytes).map_err(|error| NoRandomness(error.to_string()))
}

/// The generator of production: ChaCha12 with a seed of 256 bits from the system.
///
/// It generates identifiers. They are visible to every receiver, so it must be impossible to
/// predict the next ones from earlier ones.
pub struct SystemEntropy(Mutex<ChaCha12Rng>);

impl SystemEntropy {
    /// A generator with a seed of its own.
    pub fn new() -> Result<Self, NoRandomness> {
        Ok(SystemEntropy(Mutex::new(ChaCha12Rng::from_seed(system_bytes()?))))
    }
}

impl Entropy for SystemEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).fill_bytes(bytes);
    }
}

impl fmt::Debug for SystemEntropy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SystemEntropy")
    }
}

/// Bytes that are computed from a seed alone, for the simulation and for tests. One identifier made
/// of them reveals all others.
#[derive(Debug)]
pub struct SeededEntropy(AtomicU64);

impl SeededEntropy {
    /// The source with this seed.
    pub const fn new(seed: u64) -> Self {
        SeededEntropy(AtomicU64::new(seed))
    }
}

impl Entropy for SeededEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let drawn = mix(self.0.fetch_add(STEP, Ordering::Relaxed));
            chunk.copy_from_slice(&drawn.to_le_bytes()[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(entropy: &dyn Entropy, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        entropy.fill(&mut bytes);
        bytes
    }

    #[test]
    fn seeded_bytes_are_the_same_for_the_same_seed_however_they_are_drawn() {
        let (one, two) = (SeededEntropy::new(7), SeededEntropy::new(7));
        let parts = [drawn(&two, 8), drawn(&two, 16)].concat();
        assert_eq!(drawn(&one, 24), parts);
        assert_ne!(drawn(&SeededEntropy::new(8), 24), parts);
        // The output of the authors' reference implementation of SplitMix64 for the seed 1234567.
        let first = drawn(&SeededEntropy::new(1_234_567), 8);
        assert_eq!(first, 6_457_827_717_110_365_317_u64.to_le_bytes());
    }

    #[test]
    fn system_generators_differ_from_each_other() {
        let (one, two) = (SystemEntropy::new().unwrap(), SystemEntropy::new().unwrap());
        assert_ne!(drawn(&one, 32), drawn(&two, 32));
        assert_ne!(drawn(&one, 32), drawn(&one, 32));
        assert_ne!(system_bytes::<32>().unwrap(), system_bytes::<32>().unwrap());
    }

    #[test]
    fn debug_does_not_print_the_state_of_the_generator() {
        assert_eq!(format!("{:?}", SystemEntropy::new().unwrap()), "SystemEntropy");
    }
}
