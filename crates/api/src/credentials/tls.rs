//! The client certificate of a subscription and the authorities that it trusts: given as PEM,
//! stored sealed, and shown only by subject, expiry and fingerprint.
//!
//! **A key is never shown, not even in part, and no error repeats any of it.**

use std::fmt;
use std::sync::Arc;

use postrider_transport::{CertificateFacts, ClientIdentity, Part, TlsSetupError};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

/// The TLS settings of a subscription, all in PEM.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct TlsCredentials {
    /// The client certificate with its chain and key.
    pub client: Option<ClientCertificate>,
    /// The authorities to trust instead of the default ones.
    pub authorities: Option<String>,
}

/// A certificate with its key.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The certificate, followed by its chain.
    pub chain: String,
    /// The key of the certificate.
    pub key: Zeroizing<String>,
}

/// The form that is sealed. Borrowed, so that no key is copied.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written<'a> {
    #[serde(borrow)]
    chain: Option<std::borrow::Cow<'a, str>>,
    #[serde(borrow)]
    key: Option<std::borrow::Cow<'a, str>>,
    #[serde(borrow)]
    authorities: Option<std::borrow::Cow<'a, str>>,
}

impl TlsCredentials {
    /// Whether nothing is set.
    pub fn is_empty(&self) -> bool {
        self.client.is_none() && self.authorities.is_none()
    }

    /// The TLS identity for the transport; `None` if nothing is set.
    ///
    /// # Errors
    ///
    /// If a part cannot be parsed, or the key does not match the certificate.
    pub fn identity(&self) -> Result<Option<Arc<ClientIdentity>>, TlsSetupError> {
        if self.is_empty() {
            return Ok(None);
        }
        let client = self.client.as_ref();
        let client = client.map(|client| (client.chain.as_bytes(), client.key.as_bytes()));
        let authorities = self.authorities.as_ref().map(|pem| pem.as_bytes());
        ClientIdentity::from_pem(client, authorities).map(|identity| Some(Arc::new(identity)))
    }

    /// The facts of the certificate, and of the authorities.
    pub fn facts(&self) -> (Option<CertificateFacts>, Vec<CertificateFacts>) {
        // The certificates were parsed when they were given, so errors are ignored.
        let read =
            |pem: &str, part| CertificateFacts::of_pem(pem.as_bytes(), part).unwrap_or_default();
        let client = self.client.as_ref().map(|client| read(&client.chain, Part::Certificate));
        let authorities = self.authorities.as_ref().map(|pem| read(pem, Part::Roots));
        (client.and_then(|chain| chain.into_iter().next()), authorities.unwrap_or_default())
    }

    /// Serializes for sealing.
    pub(super) fn write(&self) -> Zeroizing<Vec<u8>> {
        let client = self.client.as_ref();
        let written = Written {
            chain: client.map(|client| client.chain.as_str().into()),
            key: client.map(|client| client.key.as_str().into()),
            authorities: self.authorities.as_deref().map(Into::into),
        };
        let length =
            |text: &Option<std::borrow::Cow<'_, str>>| text.as_ref().map_or(0, |t| t.len());
        let room = length(&written.chain) + length(&written.key) + length(&written.authorities);
        // Allocated at full size: a buffer that grows leaves copies of the secret behind.
        let mut bytes = Zeroizing::new(Vec::with_capacity(room * 2 + 64));
        // Serializing three optional texts cannot fail. If it did, reading would refuse the result.
        serde_json::to_writer(&mut *bytes, &written).unwrap_or_default();
        bytes
    }

    /// Parses the opened form.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let written: Written<'_> = serde_json::from_slice(bytes).ok()?;
        let client = match (written.chain, written.key) {
            (Some(chain), Some(key)) => {
                let key = Zeroizing::new(key.into_owned());
                Some(ClientCertificate { chain: chain.into_owned(), key })
            }
            (None, None) => None,
            (Some(_), None) | (None, Some(_)) => return None,
        };
        Some(TlsCredentials {
            client,
            authorities: written.authorities.map(std::borrow::Cow::into_owned),
        })
    }
}

impl fmt::Debug for TlsCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsCredentials(****)")
    }
}
