//! Writing records that are transferred from another store.
//!
//! The order is the same as for journal records: first the files of the days, whose writes can be
//! repeated, then `main.db` with its counters and the position of the transfer. **So a batch that
//! was interrupted between the two is written again and counts once.**

use std::path::Path;

use postrider_domain::attempt::Attempt;
use postrider_domain::ids::DeliveryId;
use postrider_domain::ledger::LedgerDelta;
use rusqlite::Transaction;
use rusqlite::types::Value;

use super::Applier;
use super::fold::Fold;
use super::main_file::{write_counters, write_destinations, write_lanes, write_marks};
use crate::embedded::contract::answers;
use crate::embedded::contract::audit;
use crate::embedded::contract::configuration as rows_of;
use crate::embedded::contract::documents;
use crate::embedded::contract::tenants;
use crate::embedded::files::At;
use crate::embedded::files::rows;
use crate::error::StoreError;
use crate::records::Acceptance;
use crate::transfer::{Item, WholeEvent};

/// The key in `meta` of `main.db` for the progress of a transfer into this store.
pub(in crate::embedded) const PROGRESS: &str = "transfer";

impl Applier {
    /// Writes these records and the progress of the transfer, both or none.
    pub(in crate::embedded) fn import(
        &mut self,
        items: Vec<Item>,
        progress: &str,
    ) -> Result<(), StoreError> {
        let (mut events, mut rest) = (Vec::new(), Vec::new());
        for item in items {
            match item {
                Item::Event(whole) => events.push(taken_apart(*whole)),
                other @ (Item::Transition { .. }
                | Item::Ledger { .. }
                | Item::Tally { .. }
                | Item::AttemptHour { .. }
                | Item::Tenant(_)
                | Item::Key(_)
                | Item::Subscription(_)
                | Item::Destination(_)
                | Item::Answer { .. }
                | Item::Audit(_)
                | Item::Document(_)
                | Item::Replay(_)) => rest.push(other),
            }
        }
        let mut fold = Fold::default();
        events.iter().for_each(|(acceptance, attempts)| fold.import(acceptance, attempts));
        rest.iter().for_each(|item| count(&mut fold, item));
        let marks = self.write_days(&fold)?;
        let new_days = &self.new_days;
        self.main.change(|transaction, path| {
            rest.iter().try_for_each(|item| write(transaction, path, item))?;
            write_counters(transaction, path, &fold, new_days)?;
            write_marks(transaction, path, &marks)?;
            write_lanes(transaction, &fold)
                .and_then(|()| write_destinations(transaction, &fold))
                .and_then(|()| {
                    let progress = Value::Text(progress.to_owned());
                    rows::put_meta(transaction, PROGRESS, &progress)
                })
                .at(path)
        })?;
        self.new_days.clear();
        Ok(())
    }
}

/// Splits an event into its acceptance and its attempts.
fn taken_apart(whole: WholeEvent) -> (Acceptance, Vec<(DeliveryId, Attempt)>) {
    let WholeEvent { record, fingerprint, deliveries, attempts } = whole;
    let acceptance = Acceptance {
        event: record.event,
        accepted_at: record.accepted_at,
        fingerprint,
        id_given: true,
        mark: record.mark,
        deliveries,
    };
    (acceptance, attempts)
}

/// Adds a transition, a ledger, a tally or an hour of attempts to the fold; other items are written elsewhere.
fn count<'r>(fold: &mut Fold<'r>, item: &'r Item) {
    match item {
        Item::Transition { tenant, destination, transition, number: _ } => {
            fold.transitions.push((tenant, *destination, transition));
        }
        Item::Ledger { tenant, ledger } => {
            fold.ledger.insert(tenant, LedgerDelta::from(*ledger));
        }
        Item::Tally { tenant, minute, tally } => {
            fold.tallies.insert((tenant, *minute), *tally);
        }
        Item::AttemptHour { tenant: _, destination, hour, attempts } => {
            fold.attempt_hours.insert((*destination, *hour), (**attempts).clone());
        }
        Item::Event(_)
        | Item::Tenant(_)
        | Item::Key(_)
        | Item::Subscription(_)
        | Item::Destination(_)
        | Item::Answer { .. }
        | Item::Audit(_)
        | Item::Document(_)
        | Item::Replay(_) => {}
    }
}

/// Writes an item that has a row of its own in `main.db`.
fn write(transaction: &Transaction<'_>, path: &Path, item: &Item) -> Result<(), StoreError> {
    match item {
        Item::Tenant(tenant) => tenants::insert_tenant(transaction, path, tenant).map(drop),
        Item::Key(key) => rows_of::insert_key(transaction, path, key).map(drop),
        Item::Subscription(record) => rows_of::write_subscription(transaction, path, record),
        Item::Destination(destination) => {
            rows_of::insert_destination(transaction, path, destination)
        }
        Item::Answer { tenant, key, answer } => {
            answers::put(transaction, path, tenant, key, answer)
        }
        Item::Audit(entry) => audit::put(transaction, path, entry),
        Item::Document(document) => documents::write(transaction, path, document),
        Item::Replay(job) => rows::put_replay(transaction, job).at(path),
        Item::Transition { .. }
        | Item::Event(_)
        | Item::Ledger { .. }
        | Item::Tally { .. }
        | Item::AttemptHour { .. } => Ok(()),
    }
}
