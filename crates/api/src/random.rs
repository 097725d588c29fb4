//! The only place of this crate that draws random numbers: from the system, and never predictable.

use zeroize::Zeroizing;

/// The system gives no random numbers. No identifier or secret can be made without them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the system gives no random numbers: {0}")]
pub struct NoRandomness(String);

/// So many random bytes, overwritten when they are dropped.
pub(crate) fn secret_bytes<const N: usize>() -> Result<Zeroizing<[u8; N]>, NoRandomness> {
    let mut bytes = Zeroizing::new([0; N]);
    getrandom::fill(bytes.as_mut_slice()).map_err(|error| NoRandomness(error.to_string()))?;
    Ok(bytes)
}

/// So many random bytes that are no secret.
pub(crate) fn bytes<const N: usize>() -> Result<[u8; N], NoRandomness> {
    secret_bytes().map(|bytes| *bytes)
}

impl From<NoRandomness> for crate::problem::Problem {
    fn from(error: NoRandomness) -> Self {
        tracing::error!(%error, "a request failed");
        crate::problem::Problem::internal()
    }
}
