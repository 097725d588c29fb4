//! Where random bytes come from: handed in, so that a run can be repeated.

pub use postrider_entropy::{Entropy, SeededEntropy, SystemEntropy};

/// Ten random bytes, as an identifier needs them.
pub(crate) fn ten(entropy: &dyn Entropy) -> [u8; 10] {
    let mut bytes = [0; 10];
    entropy.fill(&mut bytes);
    bytes
}
