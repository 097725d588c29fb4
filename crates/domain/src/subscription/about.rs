//! What describes a subscription or a tenant to people and to the application: a name, a description, metadata, and
//! the application's own identifier. **Nothing of it changes what is sent, or whether two subscriptions are twins.**

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::SubscriptionUid;
use crate::limits::{
    METADATA_BYTES_MAX, METADATA_KEY_CHARS_MAX, METADATA_PAIRS_MAX, METADATA_VALUE_CHARS_MAX,
};

/// The description of a subscription.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct About {
    /// The display name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// A longer text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Pairs that the application keeps here.
    #[serde(default, skip_serializing_if = "Metadata::is_empty")]
    pub metadata: Metadata,
    /// The application's own identifier, unique in its tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<SubscriptionUid>,
}

impl About {
    /// Whether there is no description at all.
    pub fn is_empty(&self) -> bool {
        *self == About::default()
    }

    /// Whether the name, the description, the `uid` or a value of the metadata contains this text, which is in
    /// lower case. Upper and lower case are the same.
    pub fn mentions(&self, lowercase: &str) -> bool {
        let texts = self.name.iter().chain(&self.description);
        let texts = texts.map(String::as_str).chain(self.uid.as_ref().map(SubscriptionUid::as_str));
        let mut texts = texts.chain(self.metadata.0.values().map(String::as_str));
        texts.any(|text| text.to_lowercase().contains(lowercase))
    }
}

/// Pairs of texts, by key. Their number and sizes are limited.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<String, String>")]
pub struct Metadata(BTreeMap<String, String>);

/// Metadata that is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidMetadata {
    /// Too many pairs.
    #[error("at most {METADATA_PAIRS_MAX} pairs")]
    TooMany,
    /// A key that is empty, too long, or has other characters.
    #[error(
        "a key has 1 to {METADATA_KEY_CHARS_MAX} letters, digits, `-`, `_` and `.`, beginning with a letter or digit"
    )]
    Key,
    /// A value that is too long, or has control characters.
    #[error(
        "the value of `{key}` has at most {METADATA_VALUE_CHARS_MAX} characters, none of them control"
    )]
    Value {
        /// Its key.
        key: String,
    },
    /// All of it is too large.
    #[error("at most {METADATA_BYTES_MAX} bytes together")]
    TooLarge,
}

impl Metadata {
    /// Checks the pairs.
    pub fn new(pairs: BTreeMap<String, String>) -> Result<Self, InvalidMetadata> {
        if pairs.len() > METADATA_PAIRS_MAX {
            return Err(InvalidMetadata::TooMany);
        }
        let mut bytes = 0usize;
        for (key, value) in &pairs {
            if !is_key(key) {
                return Err(InvalidMetadata::Key);
            }
            let is_long = value.chars().count() > METADATA_VALUE_CHARS_MAX;
            if is_long || value.chars().any(char::is_control) {
                return Err(InvalidMetadata::Value { key: key.clone() });
            }
            bytes = bytes.saturating_add(key.len()).saturating_add(value.len());
        }
        if bytes > METADATA_BYTES_MAX {
            return Err(InvalidMetadata::TooLarge);
        }
        Ok(Metadata(pairs))
    }

    /// The pairs, by key.
    pub fn pairs(&self) -> &BTreeMap<String, String> {
        &self.0
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl TryFrom<BTreeMap<String, String>> for Metadata {
    type Error = InvalidMetadata;

    fn try_from(pairs: BTreeMap<String, String>) -> Result<Self, InvalidMetadata> {
        Metadata::new(pairs)
    }
}

fn is_key(key: &str) -> bool {
    let is_first = key.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    let is_rest = key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    is_first && is_rest && key.len() <= METADATA_KEY_CHARS_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(all: &[(&str, &str)]) -> BTreeMap<String, String> {
        all.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn metadata_is_limited_in_number_characters_and_bytes() {
        let long = "v".repeat(METADATA_VALUE_CHARS_MAX);
        let (fits, longer) = (pairs(&[("a.b-c_1", &long)]), pairs(&[("a", &format!("{long}v"))]));
        assert!(Metadata::new(fits).is_ok());
        let key = "a".to_owned();
        assert_eq!(Metadata::new(longer), Err(InvalidMetadata::Value { key: key.clone() }));
        assert_eq!(Metadata::new(pairs(&[("a", "x\ny")])), Err(InvalidMetadata::Value { key }));
        for bad in ["", "-a", "a b", "ä", &"k".repeat(METADATA_KEY_CHARS_MAX + 1)] {
            assert_eq!(Metadata::new(pairs(&[(bad, "1")])), Err(InvalidMetadata::Key), "{bad}");
        }
        let many: BTreeMap<_, _> =
            (0..=METADATA_PAIRS_MAX).map(|n| (format!("k{n}"), String::new())).collect();
        assert_eq!(Metadata::new(many), Err(InvalidMetadata::TooMany));
        let large: BTreeMap<_, _> =
            (0..METADATA_PAIRS_MAX).map(|n| (format!("k{n}"), long.clone())).collect();
        assert_eq!(Metadata::new(large), Err(InvalidMetadata::TooLarge));
    }

    #[test]
    fn text_is_found_in_every_field_whatever_its_case() {
        let about = About {
            name: Some("Orders of Söhne".to_owned()),
            description: Some("Into the warehouse".to_owned()),
            metadata: Metadata::new(pairs(&[("team", "Blue")])).unwrap(),
            uid: Some("hook-7".parse().unwrap()),
        };
        for found in ["söhne", "warehouse", "blue", "hook-7"] {
            assert!(about.mentions(found), "{found}");
        }
        assert!(!about.mentions("team"), "keys are not searched");
        assert!(About::default().is_empty() && !about.is_empty());
        let json = serde_json::to_string(&about).unwrap();
        assert_eq!(serde_json::from_str::<About>(&json).unwrap(), about);
    }
}
