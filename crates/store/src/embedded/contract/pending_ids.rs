//! The identifiers of events that SQLite does not know yet.
//!
//! An identifier is reserved before its event is appended to the journal, so that two callers with
//! the same identifier are served one after the other. It leaves this set when SQLite has the
//! event: **an identifier that is not in this set is in SQLite, or it is new.**

use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use postrider_domain::event::Event;
use tokio::sync::Notify;

use crate::embedded::QuickMap;
use crate::records::Acceptance;

/// An event by its tenant and identifier.
#[derive(Debug, Clone)]
struct Id(Arc<Event>);

impl PartialEq for Id {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
            || (self.0.id == other.0.id && self.0.tenant == other.0.tenant)
    }
}

impl Eq for Id {}

impl Hash for Id {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.tenant.hash(state);
        self.0.id.hash(state);
    }
}

/// What is known of an event that was accepted before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::embedded) struct Known {
    pub(in crate::embedded) fingerprint: [u8; 32],
    pub(in crate::embedded) deliveries: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The event is being appended to the journal.
    Reserved,
    /// The event is durable in the journal.
    Acknowledged,
    /// The caller went away during the append: the event may be in the journal or not.
    Unclear,
}

/// The result of the lookup of one identifier of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::embedded) enum Found {
    /// The identifier is new; it is reserved now.
    Nothing,
    /// An event with this identifier was accepted before.
    Known(Known),
    /// The same identifier stands earlier in the batch, at this index.
    Repeats(usize),
}

/// The result of reserving the identifiers of a batch.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::embedded) enum Reserving {
    /// The result for each identifier. Those that were not in this set are reserved now.
    Reserved(Vec<Found>),
    /// Another caller has reserved one of the identifiers: try again after a change.
    Busy,
    /// The caller must first find out whether an unclear event is in the journal.
    Unclear,
}

#[derive(Debug, Default)]
pub(in crate::embedded) struct PendingIds {
    ids: Mutex<QuickMap<Id, (Stage, Known)>>,
    /// Notified when a reservation ends.
    pub(in crate::embedded) changed: Notify,
}

/// What to remember of an event once it is accepted.
pub(in crate::embedded) fn known(acceptance: &Acceptance) -> Known {
    Known {
        fingerprint: acceptance.fingerprint,
        deliveries: u32::try_from(acceptance.deliveries.len()).unwrap_or(u32::MAX),
    }
}

fn id(event: &Arc<Event>) -> Id {
    Id(Arc::clone(event))
}

impl PendingIds {
    fn lock(&self) -> MutexGuard<'_, QuickMap<Id, (Stage, Known)>> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves the identifiers of a batch: all that are new, or none.
    pub(in crate::embedded) fn reserve(&self, batch: &[Acceptance]) -> Reserving {
        let mut ids = self.lock();
        let mut reserved: QuickMap<Id, usize> = QuickMap::default();
        let mut answers = Vec::with_capacity(batch.len());
        let mut obstacle = None;
        for (place, acceptance) in batch.iter().enumerate() {
            let key = id(&acceptance.event);
            match (ids.get(&key), reserved.get(&key)) {
                (_, Some(earlier)) => answers.push(Found::Repeats(*earlier)),
                (Some((Stage::Acknowledged, known)), None) => answers.push(Found::Known(*known)),
                (Some((Stage::Reserved, _)), None) => obstacle = Some(Reserving::Busy),
                (Some((Stage::Unclear, _)), None) => obstacle = Some(Reserving::Unclear),
                (None, None) => {
                    // Nobody else knows an identifier that Postrider just made: it is returned to
                    // the application only when the event is in the journal.
                    let made = !acceptance.id_given;
                    let stage = if made { Stage::Acknowledged } else { Stage::Reserved };
                    ids.insert(key.clone(), (stage, known(acceptance)));
                    answers.push(Found::Nothing);
                    if batch.len() > 1 {
                        reserved.insert(key, place);
                    }
                }
            }
            if obstacle.is_some() {
                break;
            }
        }
        match obstacle {
            None => Reserving::Reserved(answers),
            Some(obstacle) => {
                reserved.keys().for_each(|key| {
                    ids.remove(key);
                });
                obstacle
            }
        }
    }

    /// Marks events as durable in the journal, unless SQLite has them already.
    pub(in crate::embedded) fn acknowledge<'e>(
        &self,
        events: impl Iterator<Item = &'e Arc<Event>>,
    ) {
        self.set(events, Stage::Acknowledged);
    }

    /// Marks events of which it is unknown whether they are in the journal.
    pub(in crate::embedded) fn leave_unclear<'e>(
        &self,
        events: impl Iterator<Item = &'e Arc<Event>>,
    ) {
        self.set(events, Stage::Unclear);
    }

    fn set<'e>(&self, events: impl Iterator<Item = &'e Arc<Event>>, to: Stage) {
        let mut ids = self.lock();
        for event in events {
            if let Some((stage, _)) = ids.get_mut(&id(event)) {
                *stage = to;
            }
        }
        drop(ids);
        self.changed.notify_waiters();
    }

    /// Removes events that are not in the journal, or that SQLite has.
    pub(in crate::embedded) fn forget<'e>(&self, events: impl Iterator<Item = &'e Arc<Event>>) {
        let mut ids = self.lock();
        for event in events {
            ids.remove(&id(event));
        }
        drop(ids);
        self.changed.notify_waiters();
    }

    /// Removes every unclear event: by now it is in SQLite, or it was never written.
    pub(in crate::embedded) fn clear_up(&self) {
        self.lock().retain(|_, (stage, _)| *stage != Stage::Unclear);
        self.changed.notify_waiters();
    }
}
