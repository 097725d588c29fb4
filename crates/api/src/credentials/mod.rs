//! The credentials of a subscription: secrets, token, custom headers and client certificate, sealed
//! and opened.
//!
//! Their plain text is used only to sign and send, and is shown once to the person who created or
//! rotated a secret.

mod tls;

use std::fmt;

use postrider_domain::credentials::mask;
use postrider_domain::signature::{RetiredSecret, SigningSecret, SigningSecrets};
use postrider_domain::subscription::{CustomHeader, Subscription};
use postrider_domain::time::Timestamp;
use postrider_engine::{CredentialsError, OpenCredentials};
use postrider_store::{Store, StoreError, SubscriptionRecord};
use zeroize::Zeroizing;

pub use self::tls::{ClientCertificate, TlsCredentials};

use crate::vault::{SealContext, Vault, VaultError};

const SECRETS: &str = "secrets";
const TOKEN: &str = "auth_token";
const TLS: &str = "tls";
const HEADERS: &str = "headers";

/// The first byte of a record with three parts: secrets, token, certificates. The older form with
/// two parts begins with the length of its first part, whose first byte is 0.
const THREE_PARTS: u8 = 3;
/// The first byte of a record with a fourth part, the custom headers. Written only if there are
/// headers, so that version 0.1.0 reads every other record.
const FOUR_PARTS: u8 = 4;

/// The format level from which on nodes read sealed headers.
const SEALED_SINCE: u32 = 1;

/// How the custom headers of a subscription are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeaderForm {
    /// Sealed with the other credentials.
    Sealed,
    /// In plain text, in the record: the form that a node of version 0.1.0 reads. Only while one is
    /// in the cluster.
    Clear,
}

impl HeaderForm {
    /// The form that every node of this store reads.
    pub async fn of(store: &dyn Store) -> Result<Self, StoreError> {
        let is_read_by_all = store.format().await? >= SEALED_SINCE;
        Ok(if is_read_by_all { HeaderForm::Sealed } else { HeaderForm::Clear })
    }
}

/// The decrypted credentials of a subscription.
#[derive(Clone)]
pub struct Credentials {
    /// The signing secrets.
    pub secrets: SigningSecrets,
    /// The bearer token.
    pub token: Option<Zeroizing<String>>,
    /// Custom headers for each request.
    pub headers: Vec<CustomHeader>,
    /// The client certificate, and the authorities that are trusted.
    pub tls: TlsCredentials,
}

impl Credentials {
    /// Opens the credentials of a record.
    pub fn open(vault: &Vault, record: &SubscriptionRecord) -> Result<Self, VaultError> {
        let (tenant, id) = (&record.subscription.tenant, record.subscription.id.to_string());
        let context = |field| SealContext { tenant, owner: &id, field };
        let [secrets, token, tls, headers] =
            split(&record.credentials).ok_or(VaultError::Damaged)?;
        let secrets = vault.open(context(SECRETS), secrets)?;
        let token = match token {
            [] => None,
            sealed => {
                let token = vault.open(context(TOKEN), sealed)?;
                let text = std::str::from_utf8(&token).map_err(|_| VaultError::Damaged)?;
                Some(Zeroizing::new(text.to_owned()))
            }
        };
        let secrets = read_secrets(&secrets).ok_or(VaultError::Damaged)?;
        let tls = match tls {
            [] => TlsCredentials::default(),
            sealed => {
                let opened = vault.open(context(TLS), sealed)?;
                TlsCredentials::read(&opened).ok_or(VaultError::Damaged)?
            }
        };
        let headers = match headers {
            [] => record.subscription.headers.clone(),
            sealed => {
                let opened = vault.open(context(HEADERS), sealed)?;
                serde_json::from_slice(&opened).map_err(|_| VaultError::Damaged)?
            }
        };
        Ok(Credentials { secrets, token, headers, tls })
    }

    /// Makes the record of a subscription with these credentials.
    pub fn record(
        &self,
        vault: &Vault,
        subscription: &Subscription,
        form: HeaderForm,
    ) -> Result<SubscriptionRecord, VaultError> {
        let clear = match form {
            HeaderForm::Sealed => Vec::new(),
            HeaderForm::Clear => self.headers.clone(),
        };
        let subscription = Subscription { headers: clear, ..subscription.clone() };
        let credentials = self.seal(vault, &subscription, form)?;
        Ok(SubscriptionRecord { subscription, credentials, deleted_at: None })
    }

    fn seal(
        &self,
        vault: &Vault,
        subscription: &Subscription,
        form: HeaderForm,
    ) -> Result<Vec<u8>, VaultError> {
        let (tenant, id) = (&subscription.tenant, subscription.id.to_string());
        let context = |field| SealContext { tenant, owner: &id, field };
        let secrets = vault.seal(context(SECRETS), write_secrets(&self.secrets).as_bytes())?;
        let token = match &self.token {
            None => Vec::new(),
            Some(token) => vault.seal(context(TOKEN), token.as_bytes())?,
        };
        let tls = match self.tls.is_empty() {
            true => Vec::new(),
            false => vault.seal(context(TLS), &self.tls.write())?,
        };
        let mut parts = vec![secrets, token, tls];
        let mut record = vec![THREE_PARTS];
        if form == HeaderForm::Sealed && !self.headers.is_empty() {
            let text = serde_json::to_vec(&self.headers).map_err(|_| VaultError::Damaged)?;
            parts.push(vault.seal(context(HEADERS), &Zeroizing::new(text))?);
            record = vec![FOUR_PARTS];
        }
        for part in parts {
            let length = u32::try_from(part.len()).map_err(|_| VaultError::Damaged)?;
            record.extend(length.to_be_bytes());
            record.extend(part);
        }
        Ok(record)
    }

    /// Whether a part was sealed with a key other than the newest.
    pub fn is_stale(vault: &Vault, sealed: &[u8]) -> bool {
        split(sealed).is_none_or(|[secrets, others @ ..]| {
            let is_stale = |part: &&[u8]| !part.is_empty() && vault.is_stale(part);
            vault.is_stale(secrets) || others.iter().any(is_stale)
        })
    }

    /// The names of the headers, each with its masked value.
    pub fn masked_headers(&self) -> impl Iterator<Item = (&str, String)> {
        self.headers.iter().map(|header| (header.name(), mask(header.value())))
    }

    /// The masked token.
    pub fn masked_token(&self) -> Option<String> {
        self.token.as_ref().map(|token| mask(token))
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(****)")
    }
}

/// The engine opens credentials through this.
impl postrider_engine::Credentials for Vault {
    fn open(&self, record: &SubscriptionRecord) -> Result<OpenCredentials, CredentialsError> {
        let opened = Credentials::open(self, record);
        let Credentials { secrets, token, headers, tls } =
            opened.map_err(|error| CredentialsError(error.to_string()))?;
        let identity = tls.identity().map_err(|error| CredentialsError(error.to_string()))?;
        Ok(OpenCredentials { secrets, token, headers, identity })
    }
}

/// The sealed parts of a record: secrets, token, certificates, headers. An empty part is absent.
fn split(bytes: &[u8]) -> Option<[&[u8]; 4]> {
    let (form, rest) = bytes.split_first()?;
    if ![THREE_PARTS, FOUR_PARTS].contains(form) {
        let (secrets, token) = split_one(bytes)?;
        return Some([secrets, token, &[], &[]]);
    }
    let (secrets, rest) = split_one(rest)?;
    let (token, rest) = split_one(rest)?;
    let (tls, rest) = split_one(rest)?;
    let (headers, rest) = if *form == FOUR_PARTS { split_one(rest)? } else { (&[][..], rest) };
    rest.is_empty().then_some([secrets, token, tls, headers])
}

/// Splits off a part that is prefixed with its length.
fn split_one(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)
}

/// The current secret, then each older one with its expiry in front.
fn write_secrets(secrets: &SigningSecrets) -> Zeroizing<String> {
    // Allocated at full size: a string that grows leaves copies of the secret behind.
    let mut text = Zeroizing::new(String::with_capacity(secrets.all().count() * 192));
    for (secret, expires_at) in secrets.all() {
        if let Some(at) = expires_at {
            text.push_str(&format!("{} ", at.as_unix_ms()));
        }
        text.push_str(&secret.expose());
        text.push('\n');
    }
    text
}

fn read_secrets(text: &[u8]) -> Option<SigningSecrets> {
    let mut lines = std::str::from_utf8(text).ok()?.lines();
    let current: SigningSecret = lines.next()?.parse().ok()?;
    let retired: Option<Vec<RetiredSecret>> = lines
        .map(|line| {
            let (expires_at, secret) = line.split_once(' ')?;
            let expires_at = Timestamp::from_unix_ms(expires_at.parse().ok()?);
            Some(RetiredSecret { secret: secret.parse().ok()?, expires_at })
        })
        .collect();
    Some(SigningSecrets::from_parts(current, retired?))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use postrider_domain::ids::{SubscriptionId, TenantId};
    use postrider_domain::subscription::Subscription;
    use postrider_test_support::samples;

    use super::*;
    use crate::vault::KeyRing;

    fn subscription() -> Subscription {
        let (id, tenant) = (SubscriptionId::from_bytes([7; 16]), TenantId::default_tenant());
        let url = "https://hooks.example.com/in";
        samples::subscription(id, &tenant, url, &["task.*"], Timestamp::EPOCH)
    }

    fn record(credentials: Vec<u8>) -> SubscriptionRecord {
        SubscriptionRecord { subscription: subscription(), credentials, deleted_at: None }
    }

    #[test]
    fn credentials_round_trip_through_the_vault() {
        let vault = Vault::new(KeyRing::generate().unwrap());
        let mut secrets = SigningSecrets::new(SigningSecret::generate_symmetric([1; 32]));
        let now = Timestamp::from_unix_ms(1_000);
        secrets
            .rotate(SigningSecret::generate_asymmetric([2; 32]), Duration::from_secs(60), now)
            .unwrap();
        for token in [None, Some(Zeroizing::new("tok_12345678".to_owned()))] {
            let key = Zeroizing::new("a \"key\"".to_owned());
            let client =
                token.as_ref().map(|_| ClientCertificate { chain: "a chain\n".into(), key });
            let tls = TlsCredentials { client, authorities: token.as_ref().map(|_| "ü".into()) };
            let headers = token.iter().map(|_| CustomHeader::new("x-key", "v4lue-of-it").unwrap());
            let headers: Vec<_> = headers.collect();
            let (secrets, tls) = (secrets.clone(), tls.clone());
            let credentials = Credentials { secrets, token, headers, tls };
            for form in [HeaderForm::Sealed, HeaderForm::Clear] {
                let record = credentials.record(&vault, &subscription(), form).unwrap();
                assert!(!Credentials::is_stale(&vault, &record.credentials));
                let is_clear = serde_json::to_string(&record.subscription).unwrap();
                let expected = form == HeaderForm::Clear && !credentials.headers.is_empty();
                assert_eq!(is_clear.contains("v4lue-of-it"), expected);
                let opened = Credentials::open(&vault, &record).unwrap();
                assert_eq!(opened.headers, credentials.headers);
            }
            let record = credentials.record(&vault, &subscription(), HeaderForm::Sealed).unwrap();
            let opened = Credentials::open(&vault, &record).unwrap();
            assert_eq!(opened.secrets, credentials.secrets);
            assert_eq!(opened.masked_token(), credentials.masked_token());
            assert_eq!(opened.tls, credentials.tls);
            assert_eq!(format!("{opened:?}"), "Credentials(****)");
        }
    }

    #[test]
    fn records_of_the_form_without_certificates_are_still_read() {
        let vault = Vault::new(KeyRing::generate().unwrap());
        let secrets = SigningSecrets::new(SigningSecret::generate_symmetric([1; 32]));
        let Subscription { tenant, id, .. } = subscription();
        let owner = id.to_string();
        let seal = |field, text: &[u8]| {
            vault.seal(SealContext { tenant: &tenant, owner: &owner, field }, text).unwrap()
        };
        let sealed = seal(SECRETS, write_secrets(&secrets).as_bytes());
        let length = u32::try_from(sealed.len()).unwrap().to_be_bytes();
        let old = [&length[..], &sealed, &seal(TOKEN, b"tok_12345678")].concat();
        let opened = Credentials::open(&vault, &record(old)).unwrap();
        assert_eq!(opened.secrets, secrets);
        assert_eq!(opened.masked_token().as_deref(), Some("****5678"));
        assert!(opened.tls.is_empty());
    }

    #[test]
    fn damaged_credentials_are_refused() {
        let vault = Vault::new(KeyRing::generate().unwrap());
        for bytes in [&[][..], &[0, 0, 0], &[0, 0, 0, 0], &[0, 0, 0, 9, 1], &[255; 40]] {
            let opened = Credentials::open(&vault, &record(bytes.to_vec()));
            assert_eq!(opened.unwrap_err(), VaultError::Damaged);
        }
    }
}
