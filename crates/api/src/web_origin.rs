//! Origins of the web, as an operator writes them: `https://app.example.com`.

use std::fmt;
use std::str::FromStr;

/// A scheme, a host and perhaps a port, and nothing else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin(String);

/// A list of origins.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Origins(pub Vec<Origin>);

/// Not an origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an origin such as https://app.example.com: scheme, host and perhaps a port, no path")]
pub struct InvalidOrigin;

impl Origin {
    /// As it is written, without a slash at its end.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Origin {
    type Err = InvalidOrigin;

    /// Only what cannot change the meaning of a header that it is put into.
    fn from_str(text: &str) -> Result<Self, InvalidOrigin> {
        let text = text.strip_suffix('/').unwrap_or(text);
        let (scheme, rest) = text.split_once("://").ok_or(InvalidOrigin)?;
        let (host, port) = match rest.strip_prefix('[') {
            Some(rest) => rest.split_once(']').ok_or(InvalidOrigin)?,
            None => rest.split_at(rest.find(':').unwrap_or(rest.len())),
        };
        let is_six = rest.starts_with('[');
        let is_host = |c: char| {
            c.is_ascii_lowercase()
                || c.is_ascii_digit()
                || (if is_six { c == ':' } else { "-._".contains(c) })
        };
        let is_port = port.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok());
        let is_origin = ["http", "https"].contains(&scheme)
            && !host.is_empty()
            && host.chars().all(is_host)
            && (port.is_empty() || is_port);
        is_origin.then(|| Origin(text.to_owned())).ok_or(InvalidOrigin)
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_read_and_nothing_else_is() {
        for text in
            ["https://app.example.com", "http://127.0.0.1:8080", "http://[::1]:80", "https://a"]
        {
            assert_eq!(text.parse::<Origin>().unwrap().as_str(), text);
        }
        assert_eq!("https://a.b/".parse::<Origin>().unwrap().as_str(), "https://a.b");
        for bad in [
            "",
            "*",
            "https://",
            "example.com",
            "https://*.example.com",
            "https://a.b/path",
            "https://a b",
            "https://a;script-src *",
            "https://a,b",
            "javascript://a",
            "https://A",
            "https://u@a",
            "https://a:x",
            "https://a:99999",
            "http://[::1",
            "https://a\r\nx: y",
        ] {
            assert!(bad.parse::<Origin>().is_err(), "{bad:?}");
        }
    }
}
