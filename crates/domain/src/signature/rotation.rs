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

    /// When the last older secret stops signing along; `None` where none does.
    pub fn overlap_ends_at(&self, now: Timestamp) -> Option<Timestamp> {
        self.all().filter_map(|(_, expires_at)| expires_at).filter(|at| now < *at).max()
    }

    /// Makes `new` the current secret. The one before it signs along for `overlap`, and each before
    /// that for as long as it was promised: no rotation shortens an earlier overlap. Expired ones are
    /// forgotten.
    ///
    /// # Errors
    ///
    /// Where so many secrets overlap that one that was promised would have to go. Nothing changes.
    pub fn rotate(
        &mut self,
        new: SigningSecret,
        overlap: Duration,
        now: Timestamp,
    ) -> Result<(), TooManySecrets> {
        let until = now.saturating_add(overlap);
        let retired: Vec<_> = self
            .all()
            .map(|(secret, promised)| RetiredSecret {
                secret: secret.clone(),
                expires_at: promised.unwrap_or(until),
            })
            .filter(|older| now < older.expires_at && older.secret != new)
            .collect();
        if retired.len() >= limits::SIGNING_SECRETS_MAX {
            let next = retired.iter().map(|older| older.expires_at).min();
            return Err(TooManySecrets { until: next.unwrap_or(until) });
        }
        *self = SigningSecrets::from_parts(new, retired);
        Ok(())
    }
}

/// So many secrets overlap that another rotation would end one before its promised time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} secrets sign along already: the next of them expires at {until}",
    limits::SIGNING_SECRETS_MAX
)]
pub struct TooManySecrets {
    /// When a rotation is possible again.
    pub until: Timestamp,
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
        secrets.rotate(secret(2), HOUR * 24, NOW).unwrap();
        check(&secrets, NOW, &[2, 1]);
        secrets.rotate(secret(3), HOUR * 24, after(12)).unwrap();
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
    fn a_rotation_never_shortens_an_overlap_that_was_promised_earlier() {
        let mut secrets = SigningSecrets::new(secret(1));
        secrets.rotate(secret(2), HOUR * 24, NOW).unwrap();
        secrets.rotate(secret(3), HOUR, after(1)).unwrap();
        check(&secrets, after(1), &[3, 2, 1]);
        check(&secrets, after(2), &[3, 1]);
        secrets.rotate(secret(4), Duration::ZERO, after(3)).unwrap();
        check(&secrets, after(3), &[4, 1]);
        check(&secrets, after(24).saturating_sub(Duration::from_millis(1)), &[4, 1]);
        check(&secrets, after(24), &[4]);
    }

    #[test]
    fn a_rotation_without_overlap_ends_the_secret_that_it_replaces() {
        let mut secrets = SigningSecrets::new(secret(1));
        secrets.rotate(secret(2), Duration::ZERO, NOW).unwrap();
        assert_eq!(secrets, SigningSecrets::new(secret(2)));
    }

    #[test]
    fn the_same_secret_is_never_listed_twice() {
        let mut secrets = SigningSecrets::new(secret(1));
        secrets.rotate(secret(1), HOUR, NOW).unwrap();
        check(&secrets, NOW, &[1]);
        secrets.rotate(secret(2), HOUR, NOW).unwrap();
        secrets.rotate(secret(1), HOUR, NOW).unwrap();
        check(&secrets, NOW, &[1, 2]);
        check(&secrets, after(1), &[1]);
    }

    #[test]
    fn a_rotation_that_would_drop_a_promised_secret_is_refused() {
        let mut secrets = SigningSecrets::new(secret(0));
        for n in 1..=9 {
            secrets.rotate(secret(n), HOUR * u32::from(n), NOW).unwrap();
        }
        let before = secrets.clone();
        let refused = secrets.rotate(secret(10), HOUR, NOW);
        assert_eq!(refused, Err(TooManySecrets { until: after(1) }));
        assert_eq!(secrets, before);
        check(&secrets, NOW, &[9, 8, 7, 6, 5, 4, 3, 2, 1, 0]);
        secrets.rotate(secret(10), HOUR, after(1)).unwrap();
        check(&secrets, after(1), &[10, 9, 8, 7, 6, 5, 4, 3, 2, 1]);
        assert_eq!(secrets.all().count(), limits::SIGNING_SECRETS_MAX);
    }

    #[test]
    fn a_store_gives_back_what_it_was_given() {
        let mut secrets = SigningSecrets::new(secret(1));
        secrets.rotate(secret(2), HOUR, NOW).unwrap();
        secrets.rotate(secret(3), HOUR * 2, NOW).unwrap();
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
            // There are too few of them to meet the limit.
            let mut ends = vec![Timestamp::MAX];
            for (n, (wait_ms, overlap_ms)) in (1..).zip(&rotations) {
                now = now.saturating_add(Duration::from_millis(*wait_ms));
                let overlap = Duration::from_millis(*overlap_ms);
                secrets.rotate(secret(n), overlap, now).unwrap();
                *ends.last_mut().unwrap() = now.saturating_add(overlap);
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
