//! Random bytes for keys, secrets and nonces, always from the operating system.

use postrider_entropy::{fill_from_system, system_bytes};
use zeroize::Zeroizing;

pub(crate) use postrider_entropy::NoRandomness;

/// Random bytes, overwritten when dropped.
pub(crate) fn secret_bytes<const N: usize>() -> Result<Zeroizing<[u8; N]>, NoRandomness> {
    let mut bytes = Zeroizing::new([0; N]);
    fill_from_system(bytes.as_mut_slice())?;
    Ok(bytes)
}

/// Random bytes that are not secret.
pub(crate) fn bytes<const N: usize>() -> Result<[u8; N], NoRandomness> {
    system_bytes()
}

impl From<NoRandomness> for crate::problem::Problem {
    fn from(error: NoRandomness) -> Self {
        tracing::error!(%error, "a request failed");
        crate::problem::Problem::internal()
    }
}
