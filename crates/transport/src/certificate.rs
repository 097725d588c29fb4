//! The public facts of a certificate: subject, validity and fingerprint.

use postrider_domain::time::Timestamp;
use rustls::pki_types::CertificateDer;
use sha2::{Digest as _, Sha256};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::tls::{Part, TlsSetupError, read_certificates};

/// The facts of a certificate that may be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFacts {
    /// The subject, as `CN=client, O=Example`.
    pub subject: String,
    /// The start of its validity.
    pub not_before: Timestamp,
    /// The end of its validity.
    pub expires_at: Timestamp,
    /// SHA-256 of the whole certificate, in hexadecimal digits.
    pub fingerprint: String,
}

impl CertificateFacts {
    /// The facts of the certificates in a PEM, in their order.
    ///
    /// # Errors
    ///
    /// If it has no certificate, or one that cannot be parsed.
    pub fn of_pem(pem: &[u8], part: Part) -> Result<Vec<CertificateFacts>, TlsSetupError> {
        read_certificates(pem, part)?.iter().map(|one| Self::of(one, part)).collect()
    }

    fn of(der: &CertificateDer<'_>, part: Part) -> Result<Self, TlsSetupError> {
        let (_, certificate) = X509Certificate::from_der(der)
            .map_err(|_| TlsSetupError::new(part, "a certificate in it cannot be read"))?;
        let validity = certificate.validity();
        let at = |time: x509_parser::time::ASN1Time| {
            Timestamp::from_unix_ms(time.timestamp().saturating_mul(1000))
        };
        let digest = Sha256::digest(der);
        Ok(CertificateFacts {
            subject: certificate.subject().to_string(),
            not_before: at(validity.not_before),
            expires_at: at(validity.not_after),
            fingerprint: postrider_domain::hex::encode(&digest),
        })
    }
}
