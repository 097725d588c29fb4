//! A destination's URL, in the one form that is stored, shown and compared.
//!
//! It is always http or https with a host, and has passed [`super::vet_url`] once. That says
//! nothing about the address that its name resolves to now.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use url::{Host, Position, Url};

use super::UrlRefusal;

/// The URL of a destination.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DestinationUrl(Url);

impl DestinationUrl {
    /// Wraps a URL that [`super::vet_url`] has checked; nothing else calls this.
    pub(super) const fn from_vetted(url: Url) -> Self {
        DestinationUrl(url)
    }

    /// Parses a URL that was vetted before, as a store returns it. No policy is applied: an
    /// accepted URL stays readable after the policy changes, and the address is vetted before each
    /// connection anyway.
    ///
    /// # Errors
    ///
    /// If it cannot be parsed or is not http or https: then it was never a vetted URL.
    pub fn from_trusted(text: &str) -> Result<Self, UrlRefusal> {
        let url = Url::parse(text).map_err(UrlRefusal::Malformed)?;
        match url.scheme() {
            "https" | "http" => Ok(DestinationUrl(url)),
            _ => Err(UrlRefusal::Scheme),
        }
    }

    /// The whole URL.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// The host: a name or an address. Decide on this value; never parse its text again.
    pub fn host(&self) -> Host<&str> {
        // The parser gives every http URL a host; the empty name would resolve to nothing.
        self.0.host().unwrap_or(Host::Domain(""))
    }

    /// The port to connect to.
    pub fn port_or_default(&self) -> u16 {
        self.0.port().unwrap_or(if self.is_https() { 443 } else { 80 })
    }

    /// Whether the connection is encrypted.
    pub fn is_https(&self) -> bool {
        self.0.scheme() == "https"
    }

    /// The path and query for the request line; begins with a slash.
    pub fn path_and_query(&self) -> &str {
        &self.0[Position::BeforePath..Position::AfterQuery]
    }
}

impl fmt::Display for DestinationUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for DestinationUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for DestinationUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// For stored records, like [`DestinationUrl::from_trusted`]. A URL from a tenant is a text that
/// goes through [`super::vet_url`].
impl<'de> Deserialize<'de> for DestinationUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        DestinationUrl::from_trusted(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    fn url(text: &str) -> DestinationUrl {
        DestinationUrl::from_trusted(text).unwrap()
    }

    #[test]
    fn a_url_is_taken_apart_without_parsing_it_again() {
        let cases = [
            ("https://hooks.example.com", 443, "/"),
            ("http://hooks.example.com?a=1", 80, "/?a=1"),
            ("https://hooks.example.com:8443/in/a%20b?x=%0D", 8443, "/in/a%20b?x=%0D"),
            ("http://hooks.example.com:443/", 443, "/"),
        ];
        for (text, port, path_and_query) in cases {
            let url = url(text);
            assert_eq!(url.host(), Host::Domain("hooks.example.com"), "{text}");
            assert_eq!(url.port_or_default(), port, "{text}");
            assert_eq!(url.path_and_query(), path_and_query, "{text}");
            assert_eq!(url.is_https(), text.starts_with("https:"), "{text}");
        }
        let v4 = url("https://8.8.8.8/in");
        assert_eq!(v4.host(), Host::<&str>::Ipv4(Ipv4Addr::new(8, 8, 8, 8)));
        let v6 = url("https://[::1]/in");
        assert_eq!(v6.host(), Host::<&str>::Ipv6(Ipv6Addr::LOCALHOST));
    }

    #[test]
    fn a_url_is_its_text_everywhere() {
        let url = url("HTTPS://Hooks.Example.com:443/In");
        let text = "https://hooks.example.com/In";
        assert_eq!(url.as_str(), text);
        assert_eq!(format!("{url} {url:?}"), format!("{text} {text}"));
        let json = serde_json::to_string(&url).unwrap();
        assert_eq!(json, format!("\"{text}\""));
        assert_eq!(serde_json::from_str::<DestinationUrl>(&json).unwrap(), url);
    }

    #[test]
    fn text_that_no_vetted_url_has_is_not_trusted() {
        for bad in ["", "hooks.example.com", "https://", "http://[::1"] {
            let refusal = DestinationUrl::from_trusted(bad).unwrap_err();
            assert!(matches!(refusal, UrlRefusal::Malformed(_)), "{bad}");
        }
        for bad in ["ftp://hooks.example.com/", "data:text/plain,x", "file:///etc/passwd"] {
            assert_eq!(DestinationUrl::from_trusted(bad), Err(UrlRefusal::Scheme), "{bad}");
        }
        assert!(serde_json::from_str::<DestinationUrl>("\"mailto:a@b.c\"").is_err());
        assert!(serde_json::from_str::<DestinationUrl>("1").is_err());
    }
}
