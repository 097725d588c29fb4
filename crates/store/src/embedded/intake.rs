//! Taking events in.

use std::pin::pin;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use postrider_domain::event::Event;
use postrider_domain::ids::{EventId, TenantId};
use rusqlite::{OptionalExtension, params};

use super::EmbeddedStore;
use super::applier::kind;
use super::codec;
use super::files::{At, Day};
use super::ids::{Found, Known, PendingIds, Reserving, known};
use super::journal::Reserve;
use super::pool::Looking;
use crate::contract::Intake;
use crate::error::StoreError;
use crate::records::{Acceptance, Accepted};

#[async_trait]
impl Intake for EmbeddedStore {
    async fn accept(&self, batch: Vec<Acceptance>) -> Result<Vec<Accepted>, StoreError> {
        if !self.ballast.take_back() {
            return Err(StoreError::DiskFull { place: self.place() });
        }
        let mut found = self.reserve(&batch).await?;
        let reservation = Reservation::of(&self.pending, &batch, &found);
        self.look_up(&batch, &mut found).await?;
        // Those that were found after all are not on their way to the journal.
        let reservation = reservation.narrowed(&batch, &found);
        let answers = judge_all(&batch, &found);
        if answers.contains(&Accepted::Conflict) {
            return Ok(answers);
        }
        let new = batch.into_iter().zip(&answers).filter(|(_, answer)| **answer == Accepted::New);
        let new: Vec<Acceptance> = new.map(|(acceptance, _)| acceptance).collect();
        if !new.is_empty() {
            self.write(&new, reservation).await?;
        }
        Ok(answers)
    }
}

impl EmbeddedStore {
    /// Reserves the identifiers of a batch, when nobody else is bringing one of them.
    async fn reserve(&self, batch: &[Acceptance]) -> Result<Vec<Found>, StoreError> {
        loop {
            let mut changed = pin!(self.pending.changed.notified());
            match self.pending.reserve(batch) {
                Reserving::Reserved(found) => return Ok(found),
                Reserving::Unclear => self.clear_up().await?,
                Reserving::Busy => {
                    // From here on no change is missed; one may have been before.
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

    /// Finds out what became of appends that nobody waits for any more: whatever was before this
    /// one in the journal's queue is decided when this one is answered.
    async fn clear_up(&self) -> Result<(), StoreError> {
        let fence = self.journal.append(kind::FENCE, Bytes::new(), Reserve::MayUseReserve);
        fence.await.map_err(|error| self.refused(&error))?;
        self.barrier().await?;
        self.pending.clear_up();
        Ok(())
    }

    /// Looks for identifiers that are not in memory. Those that Postrider made are new.
    async fn look_up(&self, batch: &[Acceptance], found: &mut [Found]) -> Result<(), StoreError> {
        let wanted = batch.iter().enumerate().zip(&*found);
        let wanted = wanted.filter(|((_, a), found)| a.id_given && **found == Found::Nothing);
        let ids = wanted.map(|((place, acceptance), _)| {
            (place, acceptance.event.tenant.clone(), acceptance.event.id.clone())
        });
        let ids: Vec<(usize, TenantId, EventId)> = ids.collect();
        if ids.is_empty() {
            return Ok(());
        }
        let look = move |looking: &Looking<'_>| find_all(looking, &ids);
        for (place, known) in self.look(look).await? {
            if let Some(entry) = found.get_mut(place) {
                *entry = Found::Known(known);
            }
        }
        Ok(())
    }

    async fn write(
        &self,
        new: &[Acceptance],
        mut reservation: Reservation,
    ) -> Result<(), StoreError> {
        let record = Bytes::from(codec::put_acceptances(new));
        let unclear = Unclear(&mut reservation);
        let appended = self.journal.append(kind::ACCEPT, record, Reserve::Normal).await;
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

/// What becomes of each, now that everything is known.
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

/// Identifiers that are reserved until it is known what becomes of them.
struct Reservation {
    pending: Arc<PendingIds>,
    events: Vec<Arc<Event>>,
}

impl Reservation {
    fn of(pending: &Arc<PendingIds>, batch: &[Acceptance], found: &[Found]) -> Self {
        let reserved = batch.iter().zip(found).filter(|(_, found)| **found == Found::Nothing);
        let events = reserved.map(|(acceptance, _)| Arc::clone(&acceptance.event)).collect();
        Reservation { pending: Arc::clone(pending), events }
    }

    /// The same of fewer; the others are given back.
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
        self.pending.acknowledge(events.iter().map(|event| &**event));
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if !self.events.is_empty() {
            self.pending.forget(self.events.iter().map(|event| &**event));
        }
    }
}

/// While the journal has the record: whoever goes away now does not know what becomes of it.
struct Unclear<'r>(&'r mut Reservation);

impl Unclear<'_> {
    fn decided(self) {
        std::mem::forget(self);
    }
}

impl Drop for Unclear<'_> {
    fn drop(&mut self) {
        let events = std::mem::take(&mut self.0.events);
        self.0.pending.leave_unclear(events.iter().map(|event| &**event));
    }
}

fn find_all(
    looking: &Looking<'_>,
    ids: &[(usize, TenantId, EventId)],
) -> Result<Vec<(usize, Known)>, StoreError> {
    let mut found = Vec::new();
    let mut left: Vec<&(usize, TenantId, EventId)> = ids.iter().collect();
    for day in looking.days().into_iter().rev() {
        if left.is_empty() {
            break;
        }
        find_in_day(looking, day, &mut left, &mut found)?;
    }
    Ok(found)
}

fn find_in_day(
    looking: &Looking<'_>,
    day: Day,
    left: &mut Vec<&(usize, TenantId, EventId)>,
    found: &mut Vec<(usize, Known)>,
) -> Result<(), StoreError> {
    looking.day(day, |connection, path| {
        let find = "SELECT fingerprint, length(deliveries) / 16 FROM events
            WHERE tenant = (SELECT n FROM names WHERE name = ?1) AND id = ?2";
        let mut statement = connection.prepare_cached(find).at(path)?;
        let mut missing = Vec::new();
        for wanted @ (place, tenant, id) in left.drain(..) {
            let known = statement.query_row(params![tenant.as_str(), id.as_str()], |row| {
                Ok(Known { fingerprint: row.get(0)?, deliveries: row.get(1)? })
            });
            match known.optional().at(path)? {
                Some(known) => found.push((*place, known)),
                None => missing.push(wanted),
            }
        }
        *left = missing;
        Ok(())
    })
}
