//! Identifiers: a short prefix and a UUID, or a text that somebody chose.
//!
//! Nothing here generates random numbers or reads a clock: a new identifier is made from a time and
//! random bytes that the caller passes (UUID version 7).

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};
use uuid::{Builder, Uuid};

use crate::limits;
use crate::time::Timestamp;

/// The text is not an identifier of the expected kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not {expected}")]
pub struct InvalidId {
    /// A description of the expected form.
    pub expected: &'static str,
}

/// Implements serde through the text form.
macro_rules! serde_as_text {
    ($name:ident) => {
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Uuid);

        impl $name {
            /// The prefix of every identifier of this kind.
            pub const PREFIX: &'static str = $prefix;

            /// A new identifier, from the time and ten random bytes (UUID version 7).
            pub fn new(now: Timestamp, random: [u8; 10]) -> Self {
                let unix_ms = u64::try_from(now.as_unix_ms()).unwrap_or(0);
                $name(Builder::from_unix_timestamp_millis(unix_ms, &random).into_uuid())
            }

            /// The identifier with these sixteen bytes.
            pub const fn from_bytes(bytes: [u8; 16]) -> Self {
                $name(Uuid::from_bytes(bytes))
            }

            /// The sixteen bytes, as they are stored.
            pub const fn as_bytes(&self) -> &[u8; 16] {
                self.0.as_bytes()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut digits = [0; 32];
                f.write_str($prefix)?;
                f.write_str(self.0.simple().encode_lower(&mut digits))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                let invalid = InvalidId {
                    expected: concat!($prefix, " followed by 32 lowercase hexadecimal digits"),
                };
                let digits = text.strip_prefix($prefix).ok_or(invalid.clone())?;
                let is_simple = digits.len() == 32
                    && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
                if !is_simple {
                    return Err(invalid);
                }
                Uuid::try_parse(digits).map($name).map_err(|_| invalid)
            }
        }

        serde_as_text!($name);
    };
}

uuid_id!(
    /// A subscription.
    SubscriptionId,
    "sub_"
);
uuid_id!(
    /// A destination. Derived from its tenant and URL, so that every node computes the same one.
    DestinationId,
    "dst_"
);
uuid_id!(
    /// A delivery. The receiver sees it as `webhook-id`, the same for every attempt.
    DeliveryId,
    "dlv_"
);
uuid_id!(
    /// A bulk replay job.
    ReplayId,
    "rpl_"
);
uuid_id!(
    /// A job that erases payloads.
    ErasureId,
    "ers_"
);
uuid_id!(
    /// An entry of the audit log.
    AuditId,
    "aud_"
);

impl DeliveryId {
    /// The time that it was made from.
    pub fn made_at(&self) -> Timestamp {
        let [a, b, c, d, e, f, ..] = *self.as_bytes();
        Timestamp::from_unix_ms(i64::from_be_bytes([0, 0, a, b, c, d, e, f]))
    }
}

impl ReplayId {
    /// The identifier of the job that replays what died of an outage which ended at this time: all
    /// of the destination, or what is owed to one subscription. The same outage always gives the same
    /// identifier, so that a crash does not lead to a second job. The destination's owner runs it.
    pub fn of_outage(
        ended_at: Timestamp,
        destination: DestinationId,
        subscription: Option<SubscriptionId>,
    ) -> Self {
        let mut bytes = [0; 10];
        let [_, rest @ ..] = destination.as_bytes();
        for (byte, of_id) in bytes.iter_mut().zip(rest) {
            *byte = *of_id;
        }
        // The last bytes of a subscription's identifier are random.
        let of_subscription = subscription.iter().flat_map(|id| id.as_bytes().iter().rev());
        for (byte, of_id) in bytes.iter_mut().zip(of_subscription) {
            *byte ^= of_id;
        }
        ReplayId::run_by_owner(ended_at, bytes, destination)
    }

    /// The identifier of a job that the owner of this destination runs.
    pub fn run_by_owner(at: Timestamp, mut random: [u8; 10], destination: DestinationId) -> Self {
        let [.., last] = &mut random;
        *last = destination.shard().0;
        ReplayId::new(at, random)
    }
}

/// How many shards there are; a shard has exactly one owner at a time.
pub const SHARDS: u16 = 256;

/// A group of destinations that have the same owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shard(pub u8);

impl DestinationId {
    /// The destination of a tenant's URL. The same tenant and URL always give the same identifier.
    pub fn of(tenant: &TenantId, url: &str) -> Self {
        let mut hash = Sha256::new();
        hash.update(tenant.as_str().as_bytes());
        hash.update([0]);
        hash.update(url.as_bytes());
        let digest: [u8; 32] = hash.finalize().into();
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest[..16]);
        DestinationId(Builder::from_custom_bytes(bytes).into_uuid())
    }

    /// The shard that this destination belongs to.
    pub fn shard(&self) -> Shard {
        Shard(self.0.as_bytes()[0])
    }
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident, $valid:ident, $expected:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The text itself.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                if $valid(text) {
                    Ok($name(text.into()))
                } else {
                    Err(InvalidId { expected: $expected })
                }
            }
        }

        serde_as_text!($name);
    };
}

text_id!(
    /// A tenant: one customer of the application that sends the events.
    TenantId,
    is_tenant,
    "1 to 64 lowercase letters, digits, `-` and `_`, beginning with a letter or digit"
);
text_id!(
    /// A subscription's identifier that the application chose, unique in its tenant. It never looks like one that
    /// Postrider made, so that both can stand in the same place.
    SubscriptionUid,
    is_subscription_uid,
    "1 to 128 letters, digits, `-`, `_`, `.`, `:` and `~`, beginning with a letter or digit and not with `sub_`"
);
text_id!(
    /// An event, unique in its tenant: chosen by the application, or made by Postrider.
    EventId,
    is_visible,
    "1 to 256 visible ASCII characters without spaces"
);
text_id!(
    /// The thing an event happened to, as the application names it.
    ObjectId,
    is_printable,
    "1 to 256 characters without control characters"
);

impl TenantId {
    /// The tenant that is used when an application does not name one.
    pub fn default_tenant() -> Self {
        TenantId("default".into())
    }
}

impl EventId {
    /// An identifier for an event for which the application gave none.
    pub fn new(now: Timestamp, random: [u8; 10]) -> Self {
        let unix_ms = u64::try_from(now.as_unix_ms()).unwrap_or(0);
        let uuid = Builder::from_unix_timestamp_millis(unix_ms, &random).into_uuid();
        EventId(format!("evt_{}", uuid.simple()).into())
    }
}

fn is_tenant(text: &str) -> bool {
    (1..=limits::TENANT_ID_BYTES_MAX).contains(&text.len())
        && text.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_'))
        && !text.starts_with(['-', '_'])
}

fn is_subscription_uid(text: &str) -> bool {
    let is_first = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:~".contains(&byte);
    is_first
        && text.bytes().all(is_known)
        && text.len() <= limits::SUBSCRIPTION_UID_BYTES_MAX
        && !text.starts_with(SubscriptionId::PREFIX)
}

fn is_visible(text: &str) -> bool {
    (1..=limits::EVENT_ID_BYTES_MAX).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_graphic())
}

fn is_printable(text: &str) -> bool {
    !text.is_empty()
        && text.chars().count() <= limits::OBJECT_ID_CHARS_MAX
        && !text.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_unix_ms(1_763_199_000_120);

    #[test]
    fn uid_of_a_subscription_fits_into_a_path_and_is_never_an_identifier() {
        for good in ["a", "7", "hook-7_a.b:c~d", &"u".repeat(128)] {
            assert!(good.parse::<SubscriptionUid>().is_ok(), "{good}");
        }
        for bad in ["", ".", "..", "-a", "a/b", "a b", "ä", "sub_1", &"u".repeat(129)] {
            assert!(bad.parse::<SubscriptionUid>().is_err(), "{bad}");
        }
    }

    #[test]
    fn identifier_round_trips_through_text_and_bytes() {
        let id = DeliveryId::new(NOW, [7; 10]);
        let text = id.to_string();
        assert_eq!(text, "dlv_019a86d99e3877078707070707070707");
        assert_eq!(text.parse(), Ok(id));
        assert_eq!(DeliveryId::from_bytes(*id.as_bytes()), id);
        assert_eq!(format!("{id:?}"), text);
        let json = serde_json::to_string(&id).unwrap();
        assert_eq!(serde_json::from_str::<DeliveryId>(&json).unwrap(), id);
    }

    #[test]
    fn malformed_identifier_is_refused_with_the_expected_form() {
        let good = "sub_019a86d99e3877078707070707070707";
        assert!(good.parse::<SubscriptionId>().is_ok());
        assert!(good.parse::<DeliveryId>().is_err());
        for bad in [
            "",
            "sub_",
            "019a86d99e3877078707070707070707",
            "sub_019A86F1EB5877078707070707070707",
            "sub_019a86f1-eb58-7707-8707-070707070707",
            "sub_019a86d99e387707870707070707070",
            "sub_019a86d99e3877078707070707070707 ",
            "sub_{019a86d99e387707870707070707070}",
        ] {
            let error = bad.parse::<SubscriptionId>().unwrap_err();
            assert!(error.to_string().contains("sub_ followed by 32"), "{bad}");
        }
        assert!(serde_json::from_str::<SubscriptionId>("\"sub_1\"").is_err());
    }

    #[test]
    fn identifiers_sort_by_time() {
        let earlier = EventId::new(NOW, [255; 10]);
        let later = EventId::new(Timestamp::from_unix_ms(NOW.as_unix_ms() + 1), [0; 10]);
        assert!(earlier < later);
        assert!(earlier.as_str().starts_with("evt_"));
        // A time before 1970 is accepted too.
        assert!(EventId::new(Timestamp::from_unix_ms(-5), [0; 10]).as_str().len() == 36);
        let _: SubscriptionId = SubscriptionId::new(Timestamp::from_unix_ms(-5), [0; 10]);
    }

    #[test]
    fn a_destination_is_found_by_tenant_and_url_and_never_shared() {
        let (a, b): (TenantId, TenantId) = ("a".parse().unwrap(), "b".parse().unwrap());
        let of_a = DestinationId::of(&a, "https://hooks.example.com/in");
        assert_eq!(of_a, DestinationId::of(&a, "https://hooks.example.com/in"));
        assert_ne!(of_a, DestinationId::of(&b, "https://hooks.example.com/in"));
        assert_ne!(of_a, DestinationId::of(&a, "https://hooks.example.com/in/"));
        assert_eq!(of_a.shard(), Shard(of_a.as_bytes()[0]));
    }

    #[test]
    fn shards_are_used_evenly() {
        let tenant = TenantId::default_tenant();
        let mut hits = [0u32; SHARDS as usize];
        for n in 0..25_600 {
            let url = format!("https://hooks.example.com/{n}");
            hits[usize::from(DestinationId::of(&tenant, &url).shard().0)] += 1;
        }
        assert!(hits.iter().all(|&n| (50..150).contains(&n)), "{hits:?}");
    }

    #[test]
    fn texts_that_people_choose_have_limits() {
        let long = |n| "x".repeat(n);
        for good in ["default", "a", "0-a_b", &long(64)] {
            assert_eq!(good.parse::<TenantId>().unwrap().as_str(), good);
        }
        for bad in ["", "-a", "_a", "A", "a b", "a/b", "ä", &long(65)] {
            assert!(bad.parse::<TenantId>().is_err(), "{bad}");
        }
        for good in ["1", "order-17/created", &long(256)] {
            assert!(good.parse::<EventId>().is_ok());
        }
        for bad in ["", "a b", "a\n", "ä", &long(257)] {
            assert!(bad.parse::<EventId>().is_err(), "{bad}");
        }
        for good in ["Straße 1", "5f2", &"ä".repeat(256)] {
            assert!(good.parse::<ObjectId>().is_ok());
        }
        for bad in ["", "a\u{0}", "a\r\n", &long(257)] {
            assert!(bad.parse::<ObjectId>().is_err(), "{bad}");
        }
        assert_eq!(format!("{0} {0:?}", TenantId::default_tenant()), "default default");
    }
}
