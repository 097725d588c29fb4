//! Custom headers that a subscriber adds to every request to its URL.
//!
//! No header of a tenant can inject another line, change the framing of the request, or replace a
//! header of Postrider: such names and values are refused, in upper or lower case.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

use crate::limits;

/// Names that frame the request, belong to the connection, or are set by Postrider.
const FORBIDDEN_NAMES: [&str; 13] = [
    "accept-encoding",
    "authorization",
    "connection",
    "content-length",
    "content-type",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
/// Prefixes of names that belong to proxies and to the signature.
const FORBIDDEN_PREFIXES: [&str; 2] = ["proxy-", "webhook-"];

/// One header of a subscription. Its name is stored in lower case.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Unchecked")]
pub struct CustomHeader {
    name: String,
    value: String,
}

/// A header before it is checked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Unchecked {
    name: String,
    value: String,
}

/// Why a header is not acceptable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidHeader {
    /// Not a valid header name. The message does not repeat the name, which may contain control
    /// characters.
    #[error(
        "not a header name: 1 to {max} letters, digits and `-`, `_` or other characters of an HTTP \
         token, without spaces or colons",
        max = limits::HEADER_NAME_BYTES_MAX
    )]
    Name,
    /// A name that a tenant may not set.
    #[error("the header {name} is set by Postrider or belongs to the connection: leave it out")]
    Forbidden {
        /// The name, in lower case.
        name: String,
    },
    /// `Authorization`, which has its own field.
    #[error("the header authorization is made of the subscription's auth_token: set that instead")]
    Authorization,
    /// A value with characters that cannot be sent, or that would inject another line.
    #[error(
        "the value of {name} must be at most {max} visible ASCII characters, with spaces only \
         between them",
        max = limits::HEADER_VALUE_BYTES_MAX
    )]
    Value {
        /// The header's name.
        name: String,
    },
    /// Two headers have the same name.
    #[error("the header {name} is given twice: join the values in one")]
    Duplicate {
        /// The name, in lower case.
        name: String,
    },
    /// More headers than allowed.
    #[error("{count} headers, at most {max} are allowed", max = limits::SUBSCRIPTION_HEADERS_MAX)]
    TooMany {
        /// How many headers there are.
        count: usize,
    },
}

impl CustomHeader {
    /// Checks one header.
    pub fn new(name: &str, value: &str) -> Result<Self, InvalidHeader> {
        let fits = (1..=limits::HEADER_NAME_BYTES_MAX).contains(&name.len());
        if !fits || !name.bytes().all(is_token_byte) {
            return Err(InvalidHeader::Name);
        }
        let name = name.to_ascii_lowercase();
        if name == "authorization" {
            return Err(InvalidHeader::Authorization);
        }
        let is_forbidden = FORBIDDEN_NAMES.contains(&name.as_str())
            || FORBIDDEN_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
        if is_forbidden {
            return Err(InvalidHeader::Forbidden { name });
        }
        let is_clean = value.bytes().all(|b| matches!(b, b' '..=b'~'))
            && value.trim_ascii().len() == value.len();
        if !is_clean || value.len() > limits::HEADER_VALUE_BYTES_MAX {
            return Err(InvalidHeader::Value { name });
        }
        Ok(CustomHeader { name, value: value.to_owned() })
    }

    /// Checks a list of headers: not too many, no name twice.
    pub fn check_all(headers: &[CustomHeader]) -> Result<(), InvalidHeader> {
        if headers.len() > limits::SUBSCRIPTION_HEADERS_MAX {
            return Err(InvalidHeader::TooMany { count: headers.len() });
        }
        for (n, header) in headers.iter().enumerate() {
            if headers[..n].iter().any(|earlier| earlier.name == header.name) {
                return Err(InvalidHeader::Duplicate { name: header.name.clone() });
            }
        }
        Ok(())
    }

    /// The name, in lower case.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The value.
    pub fn value(&self) -> &str {
        &self.value
    }
}

impl TryFrom<Unchecked> for CustomHeader {
    type Error = InvalidHeader;

    fn try_from(header: Unchecked) -> Result<Self, InvalidHeader> {
        CustomHeader::new(&header.name, &header.value)
    }
}

impl fmt::Debug for CustomHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Values may be keys: print only the name.
        write!(f, "CustomHeader({}: {} bytes)", self.name, self.value.len())
    }
}

/// The characters of an HTTP token (RFC 9110, section 5.6.2).
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Deserializes a list of headers and checks it.
pub(super) fn deserialize_all<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<CustomHeader>, D::Error> {
    let headers = Vec::<CustomHeader>::deserialize(deserializer)?;
    CustomHeader::check_all(&headers).map_err(serde::de::Error::custom)?;
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(name: &str, value: &str) -> String {
        CustomHeader::new(name, value).unwrap_err().to_string()
    }

    #[test]
    fn ordinary_headers_are_taken_and_names_have_no_case() {
        let long = "x".repeat(64);
        for name in ["x-key", "User-Agent", "X_1", "accept", "webhooks", "proxying", &long] {
            let header = CustomHeader::new(name, "a b; c=\"d\"").unwrap();
            assert_eq!(header.name(), name.to_ascii_lowercase());
            assert_eq!(header.value(), "a b; c=\"d\"");
        }
        assert!(CustomHeader::new("x-empty", "").is_ok());
        assert_eq!(CustomHeader::new("X-A", "1"), CustomHeader::new("x-a", "1"));
        assert!(CustomHeader::new("x-long", &"v".repeat(1024)).is_ok());
    }

    #[test]
    fn header_name_must_be_an_http_token() {
        let long = "x".repeat(65);
        for bad in ["", " x", "x ", "x:y", "x\r\ny", "x\0", "ä", "a(b)", "a/b", "x\ty", &long] {
            assert!(refusal(bad, "1").starts_with("not a header name"), "{bad:?}");
        }
    }

    #[test]
    fn names_that_are_not_the_tenants_are_refused_in_any_case() {
        for name in FORBIDDEN_NAMES.iter().filter(|name| **name != "authorization") {
            for written in [(*name).to_owned(), name.to_ascii_uppercase()] {
                assert!(refusal(&written, "1").starts_with(&format!("the header {name} is set")));
            }
        }
        for name in ["proxy-authorization", "Proxy-X", "webhook-id", "WebHook-Signature"] {
            assert!(refusal(name, "1").contains("leave it out"), "{name}");
        }
        assert!(refusal("Authorization", "Bearer x").contains("auth_token"));
    }

    #[test]
    fn values_cannot_break_out_of_their_line() {
        let long = "v".repeat(1025);
        for bad in ["a\r\nx: y", "a\nb", "a\0", "a\tb", "\u{7f}", "ä", " a", "a ", &long] {
            assert!(refusal("X-A", bad).starts_with("the value of x-a must be"), "{bad:?}");
        }
    }

    #[test]
    fn headers_stand_together_without_repetition_and_within_limits() {
        let header = |name: &str| CustomHeader::new(name, "1").unwrap();
        let error = CustomHeader::check_all(&[header("x-a"), header("x-b"), header("X-A")]);
        assert_eq!(error, Err(InvalidHeader::Duplicate { name: "x-a".to_owned() }));
        let many: Vec<_> = (0..21).map(|n| header(&format!("x-{n}"))).collect();
        assert_eq!(CustomHeader::check_all(&many[..20]), Ok(()));
        assert_eq!(CustomHeader::check_all(&many), Err(InvalidHeader::TooMany { count: 21 }));
    }

    #[test]
    fn json_is_checked_as_it_is_read_and_logs_do_not_have_values() {
        let read = serde_json::from_str::<CustomHeader>;
        let header = read(r#"{"name": "X-Key", "value": "s3cret"}"#).unwrap();
        let json = serde_json::to_string(&header).unwrap();
        assert_eq!(json, r#"{"name":"x-key","value":"s3cret"}"#);
        assert_eq!(format!("{header:?}"), "CustomHeader(x-key: 6 bytes)");
        assert!(read(r#"{"name": "host", "value": "x"}"#).is_err());
        assert!(read(r#"{"name": "x", "value": "x", "more": 1}"#).is_err());
    }
}
