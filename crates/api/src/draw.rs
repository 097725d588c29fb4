//! The random numbers and the time of one request.
//!
//! A request that came with an `Idempotency-Key` may have to be carried out again, because the
//! process that began it has died. All generated values (identifiers, secrets, times of creation)
//! are derived from a seed that was stored before the first run. **So the second run generates the
//! same values as the first**, recognises records that the first run has stored, and can give the
//! answer that the first run would have given.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use hmac::{Hmac, KeyInit as _, Mac as _};
use postrider_domain::time::Timestamp;
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::random::{self, NoRandomness};
use crate::state::ApiState;

/// The source of random numbers and of the creation time in a handler.
#[derive(Clone, Default)]
pub(crate) struct Draw(Option<Arc<Seed>>);

struct Seed {
    seed: Zeroizing<[u8; 32]>,
    /// When the first request with this idempotency key began.
    begun_at: Timestamp,
    /// Whether an earlier request with the key began and stored no answer.
    is_repeated: bool,
}

impl Draw {
    /// The draw of a request with a seed.
    pub(crate) fn seeded(seed: [u8; 32], begun_at: Timestamp, is_repeated: bool) -> Self {
        Draw(Some(Arc::new(Seed { seed: Zeroizing::new(seed), begun_at, is_repeated })))
    }

    /// Random bytes for this purpose, overwritten when dropped. The same purpose gives the same
    /// bytes in every run of the request.
    pub(crate) fn secret_bytes<const N: usize>(
        &self,
        purpose: &str,
    ) -> Result<Zeroizing<[u8; N]>, NoRandomness> {
        let Some(seed) = &self.0 else { return random::secret_bytes() };
        let mut bytes = Zeroizing::new([0; N]);
        for (n, part) in bytes.chunks_mut(32).enumerate() {
            let mut mac = Hmac::<Sha256>::new_from_slice(seed.seed.as_slice())
                .expect("HMAC takes a key of any length");
            mac.update(&(n as u64).to_be_bytes());
            mac.update(purpose.as_bytes());
            part.copy_from_slice(&mac.finalize().into_bytes()[..part.len()]);
        }
        Ok(bytes)
    }

    /// Random bytes for this purpose that are not secret.
    pub(crate) fn bytes<const N: usize>(&self, purpose: &str) -> Result<[u8; N], NoRandomness> {
        self.secret_bytes(purpose).map(|bytes| *bytes)
    }

    /// The creation time of new records: now, or when the first run began.
    pub(crate) fn created_at(&self, state: &ApiState) -> Timestamp {
        self.0.as_ref().map_or_else(|| state.now(), |seed| seed.begun_at)
    }

    /// Whether there is a seed: an earlier run may have created the same records.
    pub(crate) fn is_seeded(&self) -> bool {
        self.0.is_some()
    }

    /// When the first run began, if this is a later one: the first may have done its work.
    pub(crate) fn repeats(&self) -> Option<Timestamp> {
        self.0.as_ref().filter(|seed| seed.is_repeated).map(|seed| seed.begun_at)
    }
}

impl<S: Sync> FromRequestParts<S> for Draw {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get::<Draw>().cloned().unwrap_or_default())
    }
}

impl fmt::Debug for Draw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Draw(****)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_bytes_for_a_purpose_and_others_for_another() {
        let draw = |seed| Draw::seeded([seed; 32], Timestamp::EPOCH, false);
        let bytes = |draw: &Draw, purpose| draw.bytes::<40>(purpose).unwrap();
        assert_eq!(bytes(&draw(1), "id"), bytes(&draw(1), "id"));
        assert_ne!(bytes(&draw(1), "id"), bytes(&draw(1), "secret"));
        assert_ne!(bytes(&draw(1), "id"), bytes(&draw(2), "id"));
        let long = bytes(&draw(1), "id");
        assert_ne!(long[..8], long[32..], "the second block is not the first one again");
        let fresh = Draw::default();
        assert_ne!(bytes(&fresh, "id"), bytes(&fresh, "id"), "without a seed nothing repeats");
    }
}
