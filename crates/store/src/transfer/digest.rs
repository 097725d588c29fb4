//! Counts and checksums of everything in a store, by kind of record and tenant.
//!
//! A record's hash is SHA-256 of its values in a form in which different records have different
//! bytes; the hashes are added up, so the order in which a store gives its records does not matter.
//! **A record that is missing, doubled or different in a single bit changes the sum.**

use std::collections::BTreeMap;

use postrider_domain::attempt_tally::AttemptHour;
use postrider_domain::event::Event;
use postrider_domain::ids::TenantId;
use postrider_domain::ledger::Ledger;
use sha2::{Digest as _, Sha256};

use super::{Item, WholeEvent};
use crate::attempt_codec::{encode_recent, encode_tally};
use crate::documents::Document;
use crate::embedded::files::canonical::Canonical;
use crate::records::{DestinationRecord, IdempotentAnswer, Key, Tally};

/// The kinds of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RecordKind {
    /// A tenant.
    Tenant,
    /// A key.
    Key,
    /// A subscription.
    Subscription,
    /// A destination.
    Destination,
    /// A transition.
    Transition,
    /// An answer.
    Answer,
    /// An entry of the audit log.
    Audit,
    /// A replay job.
    Replay,
    /// A document.
    Document,
    /// An event.
    Event,
    /// A delivery.
    Delivery,
    /// An attempt.
    Attempt,
    /// A tenant's ledger.
    Ledger,
    /// The counts of a minute.
    Tally,
    /// An hour of a destination's attempts.
    AttemptHour,
}

impl RecordKind {
    /// The plural as text, for messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            RecordKind::Tenant => "tenants",
            RecordKind::Key => "keys",
            RecordKind::Subscription => "subscriptions",
            RecordKind::Destination => "destinations",
            RecordKind::Transition => "transitions",
            RecordKind::Answer => "answers",
            RecordKind::Audit => "audit entries",
            RecordKind::Replay => "replays",
            RecordKind::Document => "documents",
            RecordKind::Event => "events",
            RecordKind::Delivery => "deliveries",
            RecordKind::Attempt => "attempts",
            RecordKind::Ledger => "ledgers",
            RecordKind::Tally => "tallies",
            RecordKind::AttemptHour => "hours of attempts",
        }
    }
}

/// The count and the checksum of a set of records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summed {
    /// The number of records.
    pub count: u64,
    /// The sum of their hashes.
    pub sum: u128,
}

impl Summed {
    fn add(&mut self, other: Summed) {
        self.count += other.count;
        self.sum = self.sum.wrapping_add(other.sum);
    }
}

/// A difference between two stores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The kind of the records that differ.
    pub kind: RecordKind,
    /// The tenant of these records; `None` for records without a tenant.
    pub tenant: Option<TenantId>,
    /// The digest of the source's records.
    pub source: Summed,
    /// The digest of the target's records.
    pub target: Summed,
}

/// Counts and checksums, by kind and tenant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Digest {
    sums: BTreeMap<(RecordKind, Option<TenantId>), Summed>,
}

impl Digest {
    /// Adds an item.
    pub fn add(&mut self, item: &Item) {
        let mut out = Canonical::default();
        let (kind, tenant) = match item {
            Item::Tenant(tenant) => {
                out.text(tenant.id.as_str());
                out.text_or_none(tenant.name.as_deref());
                out.signed(tenant.created_at.as_unix_ms());
                out.json(&tenant.details);
                (RecordKind::Tenant, Some(&tenant.id))
            }
            Item::Key(key) => {
                put_key(&mut out, key);
                (RecordKind::Key, key.tenant.as_ref())
            }
            Item::Subscription(record) => {
                out.json(&record.subscription);
                out.bytes(&record.credentials);
                out.signed_or_none(record.deleted_at.map(|at| at.as_unix_ms()));
                (RecordKind::Subscription, Some(&record.subscription.tenant))
            }
            Item::Destination(destination) => {
                put_destination(&mut out, destination);
                (RecordKind::Destination, Some(&destination.tenant))
            }
            Item::Transition { tenant, destination, number, transition } => {
                out.text(tenant.as_str());
                out.bytes(destination.as_bytes());
                out.unsigned(*number);
                out.json(transition);
                (RecordKind::Transition, Some(tenant))
            }
            Item::Answer { tenant, key, answer } => {
                out.text(tenant.as_str());
                out.text(key);
                put_answer(&mut out, answer);
                (RecordKind::Answer, Some(tenant))
            }
            Item::Audit(entry) => {
                out.json(entry);
                (RecordKind::Audit, entry.tenant.as_ref())
            }
            Item::Replay(job) => {
                out.replay(job);
                (RecordKind::Replay, Some(&job.tenant))
            }
            Item::Document(document) => {
                put_document(&mut out, document);
                (RecordKind::Document, document.tenant.as_ref())
            }
            Item::Event(event) => return self.add_event(event),
            Item::Ledger { tenant, ledger } => {
                out.text(tenant.as_str());
                put_ledger(&mut out, ledger);
                (RecordKind::Ledger, Some(tenant))
            }
            Item::Tally { tenant, minute, tally } => {
                out.text(tenant.as_str());
                out.signed(*minute);
                let Tally { accepted, delivered, failed, dead } = *tally;
                [accepted, delivered, failed, dead].into_iter().for_each(|n| out.unsigned(n));
                (RecordKind::Tally, Some(tenant))
            }
            Item::AttemptHour { tenant, destination, hour, attempts } => {
                out.text(tenant.as_str());
                out.bytes(destination.as_bytes());
                put_attempt_hour(&mut out, *hour, attempts);
                (RecordKind::AttemptHour, Some(tenant))
            }
        };
        self.count(kind, tenant, &out);
    }

    fn add_event(&mut self, whole: &WholeEvent) {
        let (record, mut out) = (&whole.record, Canonical::default());
        let tenant = Some(&record.event.tenant);
        out.event(&record.event);
        // All fields are named, so that a new field breaks this pattern and is not forgotten.
        let Event { id: _, tenant: _, kind: _, object: _, data: _, old: _, time: _, trace } =
            &*record.event;
        let trace = trace.map(|trace| trace.to_bytes());
        out.bytes(trace.as_ref().map_or(&[][..], |trace| &trace[..]));
        out.signed(record.accepted_at.as_unix_ms());
        out.bytes(&whole.fingerprint);
        out.unsigned(u64::from(record.deliveries));
        if !record.mark.is_empty() {
            out.json(&record.mark);
        }
        self.count(RecordKind::Event, tenant, &out);
        for delivery in &whole.deliveries {
            out.clear();
            out.delivery(delivery);
            self.count(RecordKind::Delivery, tenant, &out);
        }
        for (delivery, attempt) in &whole.attempts {
            out.clear();
            out.bytes(delivery.as_bytes());
            out.attempt(attempt);
            self.count(RecordKind::Attempt, tenant, &out);
        }
    }

    fn count(&mut self, kind: RecordKind, tenant: Option<&TenantId>, record: &Canonical) {
        let hash = Sha256::digest(record.as_slice());
        let sum = hash.first_chunk::<16>().map_or(0, |first| u128::from_le_bytes(*first));
        self.sums.entry((kind, tenant.cloned())).or_default().add(Summed { count: 1, sum });
    }

    /// The count and the checksum of all records of a kind.
    pub fn of(&self, kind: RecordKind) -> Summed {
        let mut all = Summed::default();
        let of_kind = self.sums.iter().filter(|((other, _), _)| *other == kind);
        of_kind.for_each(|(_, sum)| all.add(*sum));
        all
    }

    /// The counts and checksums by kind, for all tenants together.
    pub fn by_kind(&self) -> BTreeMap<RecordKind, Summed> {
        let mut all: BTreeMap<RecordKind, Summed> = BTreeMap::new();
        for ((kind, _), sum) in &self.sums {
            all.entry(*kind).or_default().add(*sum);
        }
        all
    }

    /// The number of all records.
    pub fn records(&self) -> u64 {
        self.sums.values().map(|sum| sum.count).sum()
    }

    /// How many tenants have records.
    pub fn tenants(&self) -> usize {
        let mut tenants: Vec<&TenantId> =
            self.sums.keys().filter_map(|(_, t)| t.as_ref()).collect();
        tenants.sort_unstable();
        tenants.dedup();
        tenants.len()
    }

    /// The differences between this digest (of the source) and the target's.
    pub fn differences(&self, target: &Digest) -> Vec<Difference> {
        let mut keys: Vec<_> = self.sums.keys().chain(target.sums.keys()).collect();
        keys.sort_unstable();
        keys.dedup();
        let at = |digest: &Digest, key: &(RecordKind, Option<TenantId>)| {
            digest.sums.get(key).copied().unwrap_or_default()
        };
        let differing = keys.into_iter().filter(|key| at(self, key) != at(target, key));
        let difference = |key: &(RecordKind, Option<TenantId>)| Difference {
            kind: key.0,
            tenant: key.1.clone(),
            source: at(self, key),
            target: at(target, key),
        };
        differing.map(difference).collect()
    }
}

fn put_document(out: &mut Canonical, document: &Document) {
    out.unsigned(u64::try_from(document.kind.number()).unwrap_or(u64::MAX));
    out.text_or_none(document.tenant.as_ref().map(TenantId::as_str));
    out.text(&document.name);
    out.unsigned(u64::from(document.is_open));
    out.text(&document.body);
}

fn put_destination(out: &mut Canonical, destination: &DestinationRecord) {
    out.text(destination.tenant.as_str());
    out.bytes(destination.id.as_bytes());
    out.text(&destination.url);
    out.signed(destination.created_at.as_unix_ms());
    out.json(&destination.circuit);
}

fn put_answer(out: &mut Canonical, answer: &IdempotentAnswer) {
    out.bytes(&answer.request);
    out.unsigned(u64::from(answer.status));
    out.bytes(&answer.body);
    out.signed(answer.created_at.as_unix_ms());
}

fn put_attempt_hour(out: &mut Canonical, hour: i64, attempts: &AttemptHour) {
    out.signed(hour);
    out.bytes(&encode_tally(&attempts.tally));
    out.bytes(&encode_recent(hour, &attempts.recent));
}

fn put_key(out: &mut Canonical, key: &Key) {
    out.text(&key.id);
    out.text_or_none(key.tenant.as_ref().map(TenantId::as_str));
    out.text_or_none(key.name.as_deref());
    out.unsigned(u64::try_from(key.scopes.len()).unwrap_or(u64::MAX));
    key.scopes.iter().for_each(|scope| out.text(scope.as_str()));
    out.bytes(&key.hash);
    out.signed(key.created_at.as_unix_ms());
    out.signed_or_none(key.expires_at.map(|at| at.as_unix_ms()));
    out.signed_or_none(key.last_used_at.map(|at| at.as_unix_ms()));
}

fn put_ledger(out: &mut Canonical, ledger: &Ledger) {
    let Ledger { accepted, queued, in_flight, waiting, delivered, dead, cancelled } = *ledger;
    let all = [accepted, queued, in_flight, waiting, delivered, dead, cancelled];
    all.into_iter().for_each(|n| out.unsigned(n));
}
