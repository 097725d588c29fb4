//! The signing secrets of a subscription through its rotations.
//!
//! There is always exactly one current secret, which never expires; those before it sign along
//! until their overlap has passed. The list never holds more than
//! [`limits::SIGNING_SECRETS_MAX`], nor the same secret twice.

use std::iter;
use std::time::Duration;

use super::secret::SigningSecret;
use crate::limits;
use crate::time::Timestamp;

/// A current secret and those that it replaced. Newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SigningSecrets {
    current: SigningSecret,
    retired: Vec<RetiredSecret>,
}

/// A secret that was replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetiredSecret {
    /// The secret.
    pub secret: SigningSecret,
    /// From when on it no longer signs.
    pub expires_at: Timestamp,
}

impl SigningSecrets {
    /// One secret, never rotated.
    pub const fn new(current: SigningSecret) -> Self {
        SigningSecrets { current, retired: Vec::new() }
    }

    /// The secrets as a store gives them back, `retired` newest first. What is too old for the
    /// limit is dropped, and so is what stands there twice.
    pub fn from_parts(
        current: SigningSecret,
        retired: impl IntoIterator<Item = RetiredSecret>,
    ) -> Self {
        let mut secrets = SigningSecrets::new(current);
        for older in retired {
            let is_known = secrets.all().any(|(known, _)| *known == older.secret);
            if !is_known && secrets.retired.len() + 1 < limits::SIGNING_SECRETS_MAX {
                secrets.retired.push(older);
            }
        }
        secrets
    }

    /// The one that signs until it is replaced.
    pub const fn current(&self) -> &SigningSecret {
        &self.current
    }

    /// Every secret with the time at which it expires, newest first; expired ones included.
    pub fn all(&self) -> impl Iterator<Item = (&SigningSecret, Option<Timestamp>)> {
        let retired = self.retired.iter().map(|older| (&older.secret, Some(older.expires_at)));
        iter::once((&self.current, None)).chain(retired)
    }

    /// The secrets to sign with, newest first: the current one, and each before it that has not
    /// expired.
    pub fn valid_at(&self, now: Timestamp) -> impl Iterator<Item = &SigningSecret> {
        self.all()
            .filter(move |(_, expires_at)| expires_at.is_none_or(|at| now < at))
            .map(|(secret, _)| secret)
    }

    /// Makes `new` the current secret. The one before it signs along for `overlap`; none before
    /// that outlives it, so a rotation without overlap ends every older secret at once. Expired
    /// ones are forgotten, and beyond the limit the oldest.
    pub fn rotate(&mut self, new: SigningSecret, overlap: Duration, now: Timestamp) {
        let latest = now.saturating_add(overlap);
        let retired: Vec<_> = self
            .all()
            .map(|(secret, expires_at)| RetiredSecret {
                secret: secret.clone(),
                expires_at: expires_at.map_or(latest, |at| at.min(latest)),
            })
            .filter(|older| now < older.expires_at)
            .collect();
        *self = SigningSecrets::from_parts(new, retired);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::signature::{SignedHeaders, TOLERANCE, Unverified, VerifyKey, sign, verify};

    const NOW: Timestamp = Timestamp::from_unix_ms(1_763_199_000_000);
    const HOUR: Duration = Duration::from_secs(3600);

    fn secret(n: u8) -> SigningSecret {
        SigningSecret::generate_symmetric([n; 32])
    }

    fn after(hours: u32) -> Timestamp {
        NOW.saturating_add(HOUR * hours)
    }

    fn check(secrets: &SigningSecrets, now: Timestamp, expected: &[u8]) {
        let expected: Vec<_> = expected.iter().map(|&n| secret(n)).collect();
        let valid: Vec<_> = secrets.valid_at(now).cloned().collect();
        assert!(valid == expected, "{} secrets at {now}", valid.len());
    }

    #[test]
    fn a_secret_that_was_replaced_signs_along_until_its_overlap_ends() {
        let mut secrets = SigningSecrets::new(secret(1));
        check(&secrets, Timestamp::MAX, &[1]);
        secrets.rotate(secret(2), HOUR * 24, NOW);
        check(&secrets, NOW, &[2, 1]);
        secrets.rotate(secret(3), HOUR * 24, after(12));
        check(&secrets, after(12), &[3, 2, 1]);
        check(&secrets, after(24).saturating_sub(Duration::from_millis(1)), &[3, 2, 1]);
        check(&secrets, after(24), &[3, 2]);
        check(&secrets, after(36), &[3]);
        check(&secrets, Timestamp::MAX, &[3]);
        assert_eq!(secrets.current(), &secret(3));
        let expiries: Vec<_> = secrets.all().map(|(_, at)| at).collect();
        assert_eq!(expiries, [None, Some(after(36)), Some(after(24))]);
    }

    #[test]
    fn a_rotation_without_overlap_ends_every_older_secret() {
        let mut secrets = SigningSecrets::new(secret(1));
        secrets.rotate(secret(2), HOUR * 24, NOW);
        secrets.rotate(secret(3), Duration::ZERO, after(1));
        check(&secrets, after(1), &[3]);
        assert_eq!(secrets, SigningSecrets::new(secret(3)));
    }

    #[test]
    fn the_same_secret_is_never_listed_twice() {
        let mut secrets = SigningSecrets::new(secret(1));
        secrets.rotate(secret(1), HOUR, NOW);
        check(&secrets, NOW, &[1]);
        secrets.rotate(secret(2), HOUR, NOW);
        secrets.rotate(secret(1), HOUR, NOW);
        check(&secrets, NOW, &[1, 2]);
        check(&secrets, after(1), &[1]);
    }

    #[test]
    fn beyond_the_limit_the_oldest_is_dropped_first() {
        let mut secrets = SigningSecrets::new(secret(0));
        for n in 1..=11 {
            secrets.rotate(secret(n), HOUR, NOW);
        }
        check(&secrets, NOW, &[11, 10, 9, 8, 7, 6, 5, 4, 3, 2]);
        assert_eq!(secrets.all().count(), limits::SIGNING_SECRETS_MAX);
    }

    #[test]
    fn a_store_gives_back_what_it_was_given() {
        let mut secrets = SigningSecrets::new(secret(1));
        secrets.rotate(secret(2), HOUR, NOW);
        secrets.rotate(secret(3), HOUR * 2, NOW);
        let retired = secrets.all().filter_map(|(secret, expires_at)| {
            Some(RetiredSecret { secret: secret.clone(), expires_at: expires_at? })
        });
        let read = SigningSecrets::from_parts(secrets.current().clone(), retired);
        assert_eq!(read, secrets);
        assert!(!format!("{read:?}").contains(&read.current().expose()[6..]));
    }

    proptest! {
        #[test]
        fn receivers_with_the_old_secret_verify_during_the_overlap_and_not_after(
            rotations in prop::collection::vec((0u64..100_000, 0u64..100_000), 1..9),
            later_ms in 0u64..200_000,
        ) {
            let mut secrets = SigningSecrets::new(secret(0));
            let mut now = NOW;
            // What the rules say in words, kept apart from the code: when each one must end.
            let mut ends = vec![Timestamp::MAX];
            for (n, (wait_ms, overlap_ms)) in (1..).zip(&rotations) {
                now = now.saturating_add(Duration::from_millis(*wait_ms));
                let overlap = Duration::from_millis(*overlap_ms);
                secrets.rotate(secret(n), overlap, now);
                ends.iter_mut().for_each(|end| *end = (*end).min(now.saturating_add(overlap)));
                ends.push(Timestamp::MAX);
            }
            now = now.saturating_add(Duration::from_millis(later_ms));

            let unix_seconds = now.as_unix_seconds();
            let header = sign(secrets.valid_at(now), "msg_1", unix_seconds, b"{}");
            let timestamp = unix_seconds.to_string();
            let headers = SignedHeaders {
                id: Some("msg_1"),
                timestamp: Some(&timestamp),
                signature: Some(&header),
            };
            for (n, end) in (0..).zip(&ends) {
                let key = VerifyKey::from(&secret(n));
                let verdict = verify([&key], headers, b"{}", now, TOLERANCE);
                let expected = if now < *end { Ok(()) } else { Err(Unverified::NoMatch) };
                prop_assert_eq!(verdict, expected, "secret {} at {}", n, now);
            }
        }
    }
}
