//! Accepting events.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use postrider_domain::event::Event;
use postrider_domain::ids::{EventId, TenantId};

use super::history::{event_number, name_number};
use super::pending_ids::{Found, Known, PendingIds, Reserving, known};
use crate::contract::Intake;
use crate::embedded::EmbeddedStore;
use crate::embedded::apply::kind;
use crate::embedded::files::codec;
use crate::embedded::files::read_pool::ReadGuard;
use crate::embedded::files::{At, Day};
use crate::embedded::journal::{Meaning, Reserve};
use crate::error::StoreError;
use crate::records::{Acceptance, Accepted};

#[async_trait]
impl Intake for EmbeddedStore {
    async fn accept(&self, batch: Vec<Acceptance>) -> Result<Vec<Accepted>, StoreError> {
        let bytes = batch.iter().map(|acceptance| acceptance.event.data.as_bytes().len() + 1024);
        self.check_room(u64::try_from(bytes.sum::<usize>()).unwrap_or(u64::MAX))?;
        let mut found = self.reserve(&batch).await?;
        let reservation = Reservation::of(&self.pending, &batch, &found);
        self.look_up(&batch, &mut found).await?;
        // Release the identifiers of events that are known already.
        let reservation = reservation.narrowed(&batch, &found);
        let answers = judge_all(&batch, &found);
        if answers.contains(&Accepted::Conflict) {
            return Ok(answers);
        }
        let new = batch.into_iter().zip(&answers).filter(|(_, answer)| **answer == Accepted::New);
        let new: Vec<Acceptance> = new.map(|(acceptance, _)| acceptance).collect();
        if !new.is_empty() {
            self.write(new, reservation).await?;
        }
        Ok(answers)
    }
}

impl EmbeddedStore {
    /// Checks that there is space for `bytes` more bytes, in the journal and later in SQLite.
    pub(in crate::embedded) fn check_room(&self, bytes: u64) -> Result<(), StoreError> {
        if self.disk_reserve.has_room(bytes, self.queue.waiting_bytes()) {
            Ok(())
        } else {
            Err(StoreError::DiskFull { place: self.place() })
        }
    }

    /// Reserves the identifiers of a batch; waits while another caller has reserved one of them.
    async fn reserve(&self, batch: &[Acceptance]) -> Result<Vec<Found>, StoreError> {
        loop {
            let mut changed = pin!(self.pending.changed.notified());
            match self.pending.reserve(batch) {
                Reserving::Reserved(found) => return Ok(found),
                Reserving::Unclear => self.clear_up().await?,
                Reserving::Busy => {
                    // From here on a change wakes this task; one that came before must be looked
                    // for again.
                    changed.as_mut().enable();
                    match self.pending.reserve(batch) {
                        Reserving::Reserved(found) => return Ok(found),
                        Reserving::Unclear => {}
                        Reserving::Busy => changed.await,
                    }
                }
            }
        }
    }

    /// Finds out whether the appends of callers that went away are in the journal. Appends an empty
    /// record: when that is answered, every append before it is decided.
    async fn clear_up(&self) -> Result<(), StoreError> {
        let fence = self.journal.append(kind::FENCE, Bytes::new(), Reserve::MayUseReserve);
        fence.await.map_err(|error| self.refused(&error))?;
        self.barrier().await?;
        self.pending.clear_up();
        Ok(())
    }

    /// Searches the files for identifiers that are not in memory. Those that Postrider made are new.
    async fn look_up(&self, batch: &[Acceptance], found: &mut [Found]) -> Result<(), StoreError> {
        let wanted = batch.iter().enumerate().zip(&*found);
        let wanted = wanted.filter(|((_, a), found)| a.id_given && **found == Found::Nothing);
        let ids = wanted.map(|((place, acceptance), _)| {
            (place, acceptance.event.tenant.clone(), acceptance.event.id.clone())
        });
        let ids: Vec<Wanted> = ids.collect();
        if ids.is_empty() {
            return Ok(());
        }
        // In most cases the Bloom filters exclude every file.
        let days = self.days.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let is_new = |(_, tenant, id): &Wanted| {
            self.blooms.days_of(days.iter().copied(), tenant, id).is_empty()
        };
        if ids.iter().all(is_new) {
            return Ok(());
        }
        let read = move |guard: &ReadGuard<'_>| find_all(guard, ids);
        for (place, known) in self.read_now(read).await? {
            if let Some(entry) = found.get_mut(place) {
                *entry = Found::Known(known);
            }
        }
        Ok(())
    }

    async fn write(
        &self,
        new: Vec<Acceptance>,
        mut reservation: Reservation,
    ) -> Result<(), StoreError> {
        let record = Bytes::from(codec::put_acceptances(&new));
        let meaning = Meaning::new(Arc::new(new));
        let unclear = Unclear(&mut reservation);
        let appended =
            self.journal.append_meaning(kind::ACCEPT, record, meaning, Reserve::Normal).await;
        unclear.decided();
        match appended {
            Ok(_) => {
                reservation.acknowledge();
                Ok(())
            }
            Err(error) => Err(self.refused(&error)),
        }
    }
}

/// An identifier to search for: its index in the batch, its tenant, and itself.
type Wanted = (usize, TenantId, EventId);

/// The answer for each event of a batch: accepted, duplicate or conflict.
fn judge_all(batch: &[Acceptance], found: &[Found]) -> Vec<Accepted> {
    let judge = |(acceptance, found_here): (&Acceptance, &Found)| {
        let known = match *found_here {
            Found::Nothing => return Accepted::New,
            Found::Known(known) => known,
            Found::Repeats(earlier) => match (batch.get(earlier), found.get(earlier)) {
                (_, Some(Found::Known(known))) => *known,
                (Some(first), _) => known(first),
                (None, _) => return Accepted::Conflict,
            },
        };
        if known.fingerprint == acceptance.fingerprint {
            Accepted::Duplicate { deliveries: known.deliveries }
        } else {
            Accepted::Conflict
        }
    };
    batch.iter().zip(found).map(judge).collect()
}

/// Reserved identifiers. Dropping this releases them.
struct Reservation {
    pending: Arc<PendingIds>,
    events: Vec<Arc<Event>>,
    /// The application chose one of the identifiers, so another request may carry the same one now.
    has_chosen: bool,
}

impl Reservation {
    fn of(pending: &Arc<PendingIds>, batch: &[Acceptance], found: &[Found]) -> Self {
        let reserved = batch.iter().zip(found).filter(|(_, found)| **found == Found::Nothing);
        let events = reserved.map(|(acceptance, _)| Arc::clone(&acceptance.event)).collect();
        let has_chosen = batch.iter().any(|acceptance| acceptance.id_given);
        Reservation { pending: Arc::clone(pending), events, has_chosen }
    }

    /// Keeps the reservations of new events and releases the others.
    fn narrowed(mut self, batch: &[Acceptance], found: &[Found]) -> Self {
        let narrowed = Reservation::of(&self.pending, batch, found);
        if narrowed.events.len() < self.events.len() {
            self.events
                .retain(|event| !narrowed.events.iter().any(|kept| Arc::ptr_eq(kept, event)));
            return narrowed;
        }
        self.events.clear();
        narrowed
    }

    fn acknowledge(mut self) {
        let events = std::mem::take(&mut self.events);
        if self.has_chosen {
            self.pending.acknowledge(events.iter());
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if !self.events.is_empty() {
            self.pending.forget(self.events.iter());
        }
    }
}

/// While an append runs: if its caller goes away, marks the reservations as unclear, because it is
/// unknown whether the journal has the record.
struct Unclear<'r>(&'r mut Reservation);

impl Unclear<'_> {
    fn decided(self) {
        std::mem::forget(self);
    }
}

impl Drop for Unclear<'_> {
    fn drop(&mut self) {
        let events = std::mem::take(&mut self.0.events);
        self.0.pending.leave_unclear(events.iter());
    }
}

fn find_all(guard: &ReadGuard<'_>, wanted: Vec<Wanted>) -> Result<Vec<(usize, Known)>, StoreError> {
    let mut by_day: BTreeMap<Day, Vec<Wanted>> = BTreeMap::new();
    for wanted in wanted {
        for day in guard.days_of(&wanted.1, &wanted.2) {
            by_day.entry(day).or_default().push(wanted.clone());
        }
    }
    let mut found = Vec::new();
    for (day, wanted) in by_day {
        find_in_day(guard, day, &wanted, &mut found)?;
    }
    Ok(found)
}

fn find_in_day(
    guard: &ReadGuard<'_>,
    day: Day,
    wanted: &[Wanted],
    found: &mut Vec<(usize, Known)>,
) -> Result<(), StoreError> {
    guard.day(day, |connection, path| {
        let find = "SELECT fingerprint, length(deliveries) / 16 FROM events WHERE n = ?1";
        let mut statement = connection.prepare_cached(find).at(path)?;
        for (place, tenant, id) in wanted {
            let tenant = name_number(connection, path, tenant.as_str())?;
            let number = match tenant {
                Some(tenant) => event_number(connection, path, day, tenant, id)?,
                None => None,
            };
            let Some(number) = number else { continue };
            let known = statement.query_row([number], |row| {
                Ok(Known { fingerprint: row.get(0)?, deliveries: row.get(1)? })
            });
            found.push((*place, known.at(path)?));
        }
        Ok(())
    })
}
