//! Random bytes from a source that the caller passes, so that a run can be repeated.

pub use postrider_entropy::{Entropy, SeededEntropy, SystemEntropy};

/// The ten random bytes of a new identifier.
pub(crate) fn ten(entropy: &dyn Entropy) -> [u8; 10] {
    let mut bytes = [0; 10];
    entropy.fill(&mut bytes);
    bytes
}
