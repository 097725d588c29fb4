//! What makes a subscription one of Adobe Workfront's: its options, its two versions, and which
//! object and event it names.
//!
//! The public documentation of Workfront's event subscriptions is the model; `docs/guide/workfront.md`
//! lists every difference. Nothing here knows HTTP: the routes translate their bodies into these
//! values.
//!
//! **A delivery has one version, for its whole life.** For five minutes after a change of version an
//! event is owed twice, once in each version: two deliveries, each with a `webhook-id`, retries and a
//! log of its own. The last bit of a delivery's identifier says which version it has ([`mark`],
//! [`WorkfrontOptions::version_of`]), so the record of a delivery needs no further field. Every delivery of
//! this format has the bit, because an event may be accepted just before a change becomes known and stored
//! just after it. The bit is read for the five minutes after each remembered change; a delivery of another
//! time has the version that its subscription has now.

pub mod filters;
pub mod payload;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ids::DeliveryId;
use crate::payload::Format;
use crate::subscription::Subscription;
use crate::time::Timestamp;

/// How long both versions are sent after a change of version.
pub const BOTH_VERSIONS_FOR: Duration = Duration::from_secs(5 * 60);
/// How many earlier times with both versions a subscription remembers. Changes that follow each other
/// within five minutes share one.
const EARLIER_MAX: usize = 16;

/// The version of a subscription, which decides what its events look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Version {
    /// A list with a single text is sent as that text.
    V1,
    /// Lists are sent as lists.
    #[default]
    V2,
}

impl Version {
    /// All versions.
    pub const ALL: [Version; 2] = [Version::V1, Version::V2];

    /// The name in requests, answers and events.
    pub const fn as_str(self) -> &'static str {
        match self {
            Version::V1 => "v1",
            Version::V2 => "v2",
        }
    }

    /// The other one.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Version::V1 => Version::V2,
            Version::V2 => Version::V1,
        }
    }
}

/// A text that is none of the words that are allowed at its place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("must be {0}")]
pub struct UnknownWord(&'static str);

impl FromStr for Version {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        let found = Version::ALL.into_iter().find(|version| version.as_str() == text);
        found.ok_or(UnknownWord("v1 or v2"))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Happening {
    /// It was created: it has no old state.
    Create,
    /// It was changed.
    Update,
    /// It was deleted.
    Delete,
}

impl Happening {
    /// All of them.
    pub const ALL: [Happening; 3] = [Happening::Create, Happening::Update, Happening::Delete];

    /// The `eventType`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Happening::Create => "CREATE",
            Happening::Update => "UPDATE",
            Happening::Delete => "DELETE",
        }
    }
}

impl FromStr for Happening {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        let found = Happening::ALL.into_iter().find(|happening| happening.as_str() == text);
        found.ok_or(UnknownWord("CREATE, UPDATE or DELETE"))
    }
}

/// The `objCode` of every object that Workfront documents, in its spelling.
pub const OBJECT_CODES: [&str; 31] = [
    "ASSGN",
    "CMPY",
    "DOCU",
    "DOCV",
    "EXPNS",
    "FIELD",
    "HOUR",
    "NOTE",
    "OPTASK",
    "PORT",
    "PRFAPL",
    "PRGM",
    "PROJ",
    "PTLSEC",
    "PTLTAB",
    "RECORD",
    "RECORD_TYPE",
    "SAVSET",
    "SPAVAL",
    "SPVAL",
    "SRPVAL",
    "STAFFP",
    "STAFFR",
    "TASK",
    "TMPL",
    "TSHET",
    "USER",
    "WORKSPACE",
    "approval",
    "approval_stage",
    "approval_stage_participant",
];

/// Which events a Workfront subscription gets: those of one kind of object to which one thing
/// happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// The `objCode`.
    pub object_code: String,
    /// The `eventType`.
    pub happening: Happening,
}

/// Not an `objCode`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not an object code of Workfront, such as PROJ, TASK or OPTASK")]
pub struct UnknownObject;

impl Subject {
    /// The subject of a documented object code.
    pub fn new(object_code: &str, happening: Happening) -> Result<Self, UnknownObject> {
        if !OBJECT_CODES.contains(&object_code) {
            return Err(UnknownObject);
        }
        Ok(Subject { object_code: object_code.to_owned(), happening })
    }

    /// The subject of a subscription; `None` if it has another format, or types that Workfront's API
    /// cannot name.
    pub fn of(subscription: &Subscription) -> Option<Self> {
        let [pattern] = subscription.types.patterns() else { return None };
        if subscription.format != Format::Workfront {
            return None;
        }
        let pattern = pattern.to_string();
        let (object_code, happening) = pattern.rsplit_once('.')?;
        Subject::new(object_code, happening.parse().ok()?).ok()
    }

    /// The type of its events: `TASK.UPDATE`.
    pub fn event_type(&self) -> String {
        format!("{}.{}", self.object_code, self.happening.as_str())
    }
}

/// A time in which both versions were sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BothSent {
    /// Its first millisecond.
    pub from: Timestamp,
    /// Its end, which is no part of it.
    pub until: Timestamp,
}

impl BothSent {
    /// The five minutes after a change.
    fn after(changed_at: Timestamp) -> Self {
        BothSent { from: changed_at, until: changed_at.saturating_add(BOTH_VERSIONS_FOR) }
    }

    fn contains(&self, at: Timestamp) -> bool {
        self.from <= at && at < self.until
    }
}

/// The options of a subscription with the format `workfront`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkfrontOptions {
    /// The version.
    #[serde(default)]
    pub version: Version,
    /// Whether both states are sent as base64 texts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub base64: bool,
    /// When the version was last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version_changed_at: Option<Timestamp>,
    /// When both versions were sent after earlier changes, oldest first: deliveries of these times keep
    /// their version.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub both_sent: Vec<BothSent>,
    /// The filters as Workfront's API got them, to be shown there. What an event is compared with is
    /// the subscription's own filter, which they were compiled to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filters: Option<Value>,
    /// How these filters are joined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connector: Option<filters::Connector>,
}

/// The options of a subscription that has none of its own.
static DEFAULT: WorkfrontOptions = WorkfrontOptions {
    version: Version::V2,
    base64: false,
    version_changed_at: None,
    both_sent: Vec::new(),
    filters: None,
    connector: None,
};

impl WorkfrontOptions {
    /// The options of a subscription.
    pub fn of(subscription: &Subscription) -> &WorkfrontOptions {
        subscription.workfront.as_deref().unwrap_or(&DEFAULT)
    }

    /// Changes the version; returns whether it was another one.
    pub fn change_version(&mut self, version: Version, now: Timestamp) -> bool {
        let is_other = self.version != version;
        if is_other {
            self.version = version;
            if let Some(earlier) = self.version_changed_at.replace(now) {
                self.remember(BothSent::after(earlier));
            }
        }
        is_other
    }

    /// Adds the time after a change that is no longer the last one.
    fn remember(&mut self, time: BothSent) {
        match self.both_sent.last_mut() {
            Some(last) if last.contains(time.from) => last.until = last.until.max(time.until),
            Some(_) | None => self.both_sent.push(time),
        }
        let surplus = self.both_sent.len().saturating_sub(EARLIER_MAX);
        self.both_sent.drain(..surplus);
    }

    /// Forgets filters that the subscription's own filter was not compiled from: another API may have
    /// changed it.
    pub fn forget_stale_filters(&mut self, subscription: &Subscription) {
        let Some(given) = &self.filters else { return };
        let connector = self.connector.unwrap_or_default();
        let compiled = Subject::of(subscription)
            .and_then(|subject| filters::compile(given, connector, subject.happening).ok());
        if compiled != Some(subscription.filter.clone()) {
            (self.filters, self.connector) = (None, None);
        }
    }

    /// Whether both versions are owed for an event that is accepted at this time.
    fn owes_both_at(&self, at: Timestamp) -> bool {
        self.version_changed_at.is_some_and(|changed| BothSent::after(changed).contains(at))
    }

    /// The version in which a delivery of this subscription is sent.
    pub fn version_of(&self, delivery: DeliveryId) -> Version {
        let at = delivery.made_at();
        let is_kept = self.owes_both_at(at) || self.both_sent.iter().any(|time| time.contains(at));
        if !is_kept {
            return self.version;
        }
        let [.., last] = delivery.as_bytes();
        if last & 1 == 0 { Version::V1 } else { Version::V2 }
    }
}

/// The deliveries that an event accepted at `now` is owed in: one, or one in each version.
/// `None` stands for a delivery of a format without versions.
pub fn owed(
    subscription: &Subscription,
    now: Timestamp,
) -> impl ExactSizeIterator<Item = Option<Version>> {
    let (versions, count) = match subscription.format {
        Format::Workfront => {
            let options = WorkfrontOptions::of(subscription);
            let count = if options.owes_both_at(now) { 2 } else { 1 };
            ([Some(options.version), Some(options.version.other())], count)
        }
        Format::Standard | Format::CloudEvents | Format::Raw => ([None, None], 1),
    };
    versions.into_iter().take(count)
}

/// The random bytes of a new delivery's identifier, with the version in their last bit.
pub const fn mark(mut random: [u8; 10], version: Option<Version>) -> [u8; 10] {
    let [.., last] = &mut random;
    match version {
        None => {}
        Some(Version::V1) => *last &= !1,
        Some(Version::V2) => *last |= 1,
    }
    random
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn subscription(workfront: Value) -> Subscription {
        serde_json::from_value(json!({
            "id": "sub_019a86d99e3877078707070707070707",
            "tenant": "default",
            "destination": "dst_019a86d99e3877078707070707070707",
            "url": "https://hooks.example.com/in",
            "types": ["TASK.UPDATE"],
            "format": "workfront",
            "workfront": workfront,
            "enabled": true,
            "created_at": "2026-11-15T09:30:00.000Z",
            "updated_at": "2026-11-15T09:30:00.000Z",
        }))
        .unwrap()
    }

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_unix_ms(1_763_199_000_000 + ms)
    }

    #[test]
    fn both_versions_are_owed_for_exactly_five_minutes_after_a_change() {
        let mut subscription = subscription(json!({"version": "v1"}));
        let owed_at = |subscription: &Subscription, ms| {
            owed(subscription, at(ms)).map(|v| v.map(Version::as_str)).collect::<Vec<_>>()
        };
        assert_eq!(owed_at(&subscription, 0), [Some("v1")]);
        let mut options = WorkfrontOptions::of(&subscription).clone();
        assert!(options.change_version(Version::V2, at(0)));
        assert!(!options.change_version(Version::V2, at(7)), "the same version is no change");
        subscription.workfront = Some(Box::new(options));
        for (ms, expected) in [
            (-1, vec![Some("v2")]),
            (0, vec![Some("v2"), Some("v1")]),
            (299_999, vec![Some("v2"), Some("v1")]),
            (300_000, vec![Some("v2")]),
        ] {
            assert_eq!(owed_at(&subscription, ms), expected, "{ms}");
        }
        subscription.format = Format::Standard;
        assert_eq!(owed_at(&subscription, 0), [None], "other formats have no versions");
    }

    #[test]
    fn a_delivery_keeps_the_version_that_its_identifier_says() {
        let mut options = WorkfrontOptions { version: Version::V1, ..WorkfrontOptions::default() };
        options.change_version(Version::V2, at(0));
        for random in [[0; 10], [255; 10], [7; 10]] {
            for version in Version::ALL {
                let inside = DeliveryId::new(at(1), mark(random, Some(version)));
                assert_eq!(options.version_of(inside), version);
                for outside in [at(-1), at(300_000)] {
                    let outside = DeliveryId::new(outside, mark(random, Some(version)));
                    assert_eq!(options.version_of(outside), Version::V2);
                }
            }
            assert_eq!(mark(random, None), random);
        }
    }

    #[test]
    fn deliveries_in_both_versions_keep_them_through_later_changes() {
        const HOUR: i64 = 3_600_000;
        let mut options = WorkfrontOptions { version: Version::V1, ..WorkfrontOptions::default() };
        let version = |options: &WorkfrontOptions, ms, version| {
            options.version_of(DeliveryId::new(at(ms), mark([0; 10], Some(version))))
        };
        // Two changes within five minutes are one time, hours apart they are several.
        for ms in [0, 200_000, HOUR, 2 * HOUR] {
            assert!(options.change_version(options.version.other(), at(ms)));
        }
        assert_eq!(options.version, Version::V1);
        for kept in [0, 1, 199_999, 300_001, 499_999, HOUR, HOUR + 299_999, 2 * HOUR] {
            for own in Version::ALL {
                assert_eq!(version(&options, kept, own), own, "{kept}");
            }
        }
        for other in [-1, 500_000, HOUR - 1, HOUR + 300_000, 2 * HOUR + 300_000] {
            assert_eq!(version(&options, other, Version::V2), Version::V1, "{other}");
        }
        assert_eq!(options.both_sent.len(), 2);
        for hours in 3..40 {
            options.change_version(options.version.other(), at(hours * HOUR));
        }
        assert_eq!(options.both_sent.len(), EARLIER_MAX);
        assert_eq!(options.both_sent.first().map(|time| time.from), Some(at(23 * HOUR)));
        assert_eq!(options.both_sent.last().map(|time| time.from), Some(at(38 * HOUR)));
    }

    #[test]
    fn many_changes_within_minutes_are_all_remembered() {
        let mut options = WorkfrontOptions::default();
        for second in 0..1_000 {
            options.change_version(options.version.other(), at(second * 1_000));
        }
        assert_eq!(options.both_sent, [BothSent { from: at(0), until: at(998_000 + 300_000) }]);
    }

    #[test]
    fn event_that_is_accepted_while_the_change_is_made_keeps_the_version_that_was_read() {
        let before = subscription(json!({"version": "v1"}));
        let mut changed = WorkfrontOptions::of(&before).clone();
        changed.change_version(Version::V2, at(0));
        // The event was matched with the subscription as it was before, and is stored after the change.
        let versions: Vec<_> = owed(&before, at(1)).collect();
        assert_eq!(versions, [Some(Version::V1)]);
        for random in [[0; 10], [255; 10]] {
            let delivery = DeliveryId::new(at(1), mark(random, versions[0]));
            assert_eq!(changed.version_of(delivery), Version::V1);
        }
    }

    #[test]
    fn options_that_were_stored_before_earlier_changes_were_remembered_are_read() {
        let stored = json!({"version": "v1", "version_changed_at": at(0)});
        let mut options: WorkfrontOptions = serde_json::from_value(stored.clone()).unwrap();
        assert_eq!(serde_json::to_value(&options).unwrap(), stored);
        options.change_version(Version::V2, at(1_000_000));
        assert_eq!(options.both_sent, [BothSent { from: at(0), until: at(300_000) }]);
        let again = serde_json::to_value(&options).unwrap();
        assert_eq!(serde_json::from_value::<WorkfrontOptions>(again).unwrap(), options);
    }

    #[test]
    fn filters_are_forgotten_when_the_subscription_has_another_filter() {
        let given = json!([{"fieldName": "status", "fieldValue": "CUR"}]);
        let mut subscription = subscription(json!({"filters": given, "connector": "OR"}));
        subscription.filter =
            filters::compile(&given, filters::Connector::Or, Happening::Update).unwrap();
        let kept = |subscription: &Subscription| {
            let mut options = WorkfrontOptions::of(subscription).clone();
            options.forget_stale_filters(subscription);
            options.filters
        };
        assert_eq!(kept(&subscription), Some(given));
        subscription.filter = None;
        assert_eq!(kept(&subscription), None);
    }

    #[test]
    fn a_subject_is_an_object_code_and_an_event_type() {
        let subject = Subject::new("TASK", Happening::Update).unwrap();
        assert_eq!(subject.event_type(), "TASK.UPDATE");
        assert_eq!(Subject::of(&subscription(json!(null))), Some(subject));
        assert_eq!(Subject::new("Task", Happening::Update), Err(UnknownObject));
        for types in [json!(["TASK.*"]), json!(["TASK.UPDATE", "TASK.CREATE"]), json!(["A.UPDATE"])]
        {
            let mut other = serde_json::to_value(subscription(json!(null))).unwrap();
            other["types"] = types;
            assert_eq!(Subject::of(&serde_json::from_value(other).unwrap()), None);
        }
        let mut other = subscription(json!(null));
        other.format = Format::Raw;
        assert_eq!(Subject::of(&other), None);
    }

    #[test]
    fn words_are_spelled_as_workfront_does() {
        assert_eq!("v1".parse(), Ok(Version::V1));
        assert_eq!("V1".parse::<Version>().unwrap_err().to_string(), "must be v1 or v2");
        assert_eq!("DELETE".parse(), Ok(Happening::Delete));
        assert!("SHARE".parse::<Happening>().is_err());
        assert!(OBJECT_CODES.is_sorted());
        for code in OBJECT_CODES {
            let subject = Subject::new(code, Happening::Create).unwrap();
            assert!(subject.event_type().parse::<crate::event::EventType>().is_ok(), "{code}");
        }
    }

    #[test]
    fn options_without_content_are_short_and_unknown_ones_are_refused() {
        let json = serde_json::to_value(WorkfrontOptions::default()).unwrap();
        assert_eq!(json, json!({"version": "v2"}));
        assert!(serde_json::from_value::<WorkfrontOptions>(json!({"version": "v3"})).is_err());
        assert!(serde_json::from_value::<WorkfrontOptions>(json!({"surprise": 1})).is_err());
    }
}
