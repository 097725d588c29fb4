//! Writing what another store had.
//!
//! The order is that of records: the files of the days first, whose writes say what a row *is*, then
//! `main.db` with its counters and the place that was reached. **So a batch that was cut off between
//! the two is written again and counts once.**

use std::path::Path;

use postrider_domain::delivery::DeliveryState;
use rusqlite::{Transaction, params};

use super::super::configuration as rows_of;
use super::super::files::{At, Day};
use super::super::rows;
use super::Applier;
use super::fold::{Fold, LedgerChange};
use super::main_file::{write_counters, write_destinations, write_queue};
use crate::error::StoreError;
use crate::records::Acceptance;
use crate::transfer::{Item, WholeEvent};

/// Under this name `main.db` says how far a move into this store has come.
pub(in crate::embedded) const PROGRESS: &str = "transfer";

impl Applier {
    /// Writes these, and the progress that is reached with them, both or none.
    pub(in crate::embedded) fn import(
        &mut self,
        items: Vec<Item>,
        progress: &str,
    ) -> Result<(), StoreError> {
        let (mut fold, mut rest) = (Fold::default(), Vec::new());
        for item in items {
            fold.import(item, &mut rest);
        }
        fold.sort();
        for day in fold.days() {
            let events = fold.events.get(&day).map_or(&[][..], Vec::as_slice);
            let deliveries = fold.deliveries.get(&day).map_or(&[][..], Vec::as_slice);
            let attempts = fold.attempts.get(&day).map_or(&[][..], Vec::as_slice);
            self.day(day)?.write(events, deliveries, attempts)?;
        }
        self.main.change(|transaction, path| {
            rest.iter().try_for_each(|item| write(transaction, path, item))?;
            write_queue(transaction, fold.deliveries.values().flatten())
                .and_then(|()| write_destinations(transaction, &fold))
                .and_then(|()| write_counters(transaction, &fold))
                .at(path)?;
            let upsert = "INSERT INTO meta VALUES (?1, ?2)
                ON CONFLICT (key) DO UPDATE SET value = ?2";
            transaction.execute(upsert, params![PROGRESS, progress]).at(path).map(drop)
        })
    }
}

impl Fold {
    /// Takes an item in; what is no part of a fold is left to the caller.
    fn import(&mut self, item: Item, rest: &mut Vec<Item>) {
        match item {
            Item::Event(whole) => self.import_event(*whole),
            Item::Transition { tenant, destination, transition, number: _ } => {
                self.transitions.push((tenant, destination, *transition));
            }
            Item::Ledger { tenant, ledger } => {
                let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
                let change = LedgerChange {
                    accepted: signed(ledger.accepted),
                    queued: signed(ledger.queued),
                    waiting: signed(ledger.waiting),
                    delivered: signed(ledger.delivered),
                    dead: signed(ledger.dead),
                    cancelled: signed(ledger.cancelled),
                };
                self.ledger.insert(tenant, change);
            }
            Item::Tally { tenant, minute, tally } => {
                self.tallies.insert((tenant, minute), tally);
            }
            Item::Tenant(_)
            | Item::Key(_)
            | Item::Subscription(_)
            | Item::Destination(_)
            | Item::Answer { .. }
            | Item::Replay(_) => rest.push(item),
        }
    }

    fn import_event(&mut self, whole: WholeEvent) {
        let WholeEvent { record, fingerprint, deliveries, attempts } = whole;
        let day = Day::of(record.accepted_at);
        self.attempts.entry(day).or_default().extend(attempts);
        for delivery in &deliveries {
            if matches!(delivery.state, DeliveryState::Waiting(_)) {
                *self.backlog.entry(delivery.destination).or_default() += 1;
            }
            self.put(delivery.clone(), false);
        }
        self.events.entry(day).or_default().push(Acceptance {
            event: record.event,
            accepted_at: record.accepted_at,
            fingerprint,
            id_given: true,
            deliveries,
        });
    }
}

/// Writes what has a row of its own in `main.db` and is not counted.
fn write(transaction: &Transaction<'_>, path: &Path, item: &Item) -> Result<(), StoreError> {
    match item {
        Item::Tenant(tenant) => rows_of::insert_tenant(transaction, path, tenant).map(drop),
        Item::Key(key) => rows_of::insert_key(transaction, path, key).map(drop),
        Item::Subscription(record) => rows_of::write_subscription(transaction, path, record),
        Item::Destination(destination) => {
            rows_of::insert_destination(transaction, path, destination)
        }
        Item::Answer { tenant, key, answer } => {
            rows_of::insert_answer(transaction, path, tenant, key, answer)
        }
        Item::Replay(job) => rows::put_replay(transaction, job).at(path),
        Item::Transition { .. } | Item::Event(_) | Item::Ledger { .. } | Item::Tally { .. } => {
            Ok(())
        }
    }
}
