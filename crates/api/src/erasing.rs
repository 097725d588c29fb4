//! The task that erases payloads: one job at a time on each node, tenants in turn.
//!
//! A job is a document. A node takes it for a minute and prolongs that with every step, so that exactly one node works
//! on it, and another one goes on when it dies. Each step is stored before the next one begins, and can be repeated.
//! What an event's deliveries still have to do is cancelled first. **An event is erased only after its deliveries
//! have ended**; the store makes sure of that in the same transaction.
//!
//! Overwriting the remains in the store's files is expensive, so it is done once for all jobs that wait for it, and
//! not more often than every `erasure.scrub_interval`.

use std::collections::HashSet;
use std::time::Duration;

use postrider_domain::delivery::StateName;
use postrider_domain::erasure::{ErasureJob, ErasureState, ErasureTarget};
use postrider_domain::ids::{DeliveryId, EventId};
use postrider_domain::limits::PAGE_MAX;
use postrider_domain::time::Timestamp;
use postrider_engine::CommandError;
use postrider_store::{
    Cursor, DeliveryFilter, DocumentKind, EventErasure, EventFilter, Expected, PageRequest,
    StoreError,
};
use postrider_transport::pause;
use tokio::sync::Notify;

use crate::problem::Problem;
use crate::routes::erasures::{document, job};
use crate::state::ApiState;

/// Erasures of one tenant that are kept; the oldest finished ones are forgotten.
pub(crate) const KEPT_MAX: u64 = 1_000;
/// How long a node has a job before another one may take it.
const TAKEN_FOR: Duration = Duration::from_secs(60);
/// How long the task waits when there is nothing to do: jobs of a node that died are found then.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// Events that are erased in one step of a job.
const STEP_EVENTS: usize = 100;
/// How often the deliveries of an event are cancelled, in case somebody replays them at the same time.
const CANCELS_MAX: u32 = 20;
/// Attempts in flight of one tenant that are looked at.
const IN_FLIGHT_MAX: usize = 10_000;
/// How long to wait for attempts that are in flight.
const FLIGHT_PAUSE: Duration = Duration::from_millis(200);
/// How often to look whether they have ended: longer than an attempt may take.
const FLIGHT_LOOKS: u32 = 100;
/// How long to wait before the last attempts of cancelled deliveries are looked for: they are stored by then.
const LATE_PAUSE: Duration = Duration::from_secs(1);

/// Wakes the task that works on erasure jobs.
#[derive(Debug, Default)]
pub(crate) struct Erasures {
    begun: Notify,
}

impl Erasures {
    /// There is a new job.
    pub(crate) fn wake(&self) {
        self.begun.notify_one();
    }
}

/// Why a job did not go on.
#[derive(Debug, thiserror::Error)]
enum Stopped {
    #[error("another node works on it")]
    Taken,
    #[error("the deliveries of event {0} do not end")]
    Unfinished(EventId),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("a delivery cannot be cancelled: {0}")]
    Engine(#[from] CommandError),
    #[error("it cannot be read")]
    Unreadable,
}

impl From<Problem> for Stopped {
    fn from(_: Problem) -> Self {
        Stopped::Unreadable
    }
}

/// The node's part in erasing.
struct Eraser {
    state: ApiState,
    /// A random name, new for each process.
    name: String,
    scrubbed_at: Option<Timestamp>,
}

impl ApiState {
    /// Erases payloads as jobs ask for it, until the process ends.
    pub async fn run_erasures(self) {
        let Ok(random) = crate::random::bytes::<16>() else { return };
        let name = postrider_domain::hex::encode(&random);
        let mut eraser = Eraser { state: self.clone(), name, scrubbed_at: None };
        loop {
            let has_more = match eraser.round().await {
                Ok(has_more) => has_more,
                Err(error) => {
                    tracing::warn!(%error, "cannot go on erasing payloads; trying again");
                    false
                }
            };
            if !has_more {
                tokio::select! {
                    () = self.erasures().begun.notified() => {}
                    () = pause(LOOK_EVERY) => {}
                }
            }
        }
    }
}

impl Eraser {
    /// Does one step of each open job. Returns whether there is more to do at once.
    async fn round(&mut self) -> Result<bool, Stopped> {
        let open = self.state.store().open_documents(DocumentKind::Erasure).await?;
        let (mut has_more, mut scrubbing) = (false, Vec::new());
        for one in &open {
            let job = job(one)?;
            let id = job.id;
            match self.step(job).await {
                Ok(job) if job.state == ErasureState::Scrubbing => scrubbing.push(job),
                Ok(_) => has_more = true,
                Err(Stopped::Taken) => {}
                // The others go on.
                Err(error) => tracing::warn!(%error, erasure = %id, "an erasure waits"),
            }
        }
        if !scrubbing.is_empty() && self.may_scrub() {
            self.state.store().scrub_erased().await?;
            let now = self.state.now();
            self.scrubbed_at = Some(now);
            for job in scrubbing {
                let before = document(&job)?;
                let mut finished = job;
                finished.finish(now);
                let (id, counts) = (finished.id, finished.counts);
                self.put(&before.body, &finished).await?;
                tracing::info!(erasure = %id, erased = counts.erased, "payloads are erased");
            }
        }
        Ok(has_more)
    }

    /// Whether the remains may be overwritten now.
    fn may_scrub(&self) -> bool {
        let interval = self.state.settings().scrub_interval;
        let now = self.state.now();
        self.scrubbed_at.is_none_or(|at| now < at || now.since(at) >= interval)
    }

    /// One step of a job; returns the job after it, as it is stored.
    async fn step(&self, job: ErasureJob) -> Result<ErasureJob, Stopped> {
        let alone = self.state.store().lease().is_none();
        let before = document(&job)?.body;
        let taken = job.taken(&self.name, alone, self.state.now(), TAKEN_FOR);
        let mut job = taken.ok_or(Stopped::Taken)?;
        self.put(&before, &job).await?;
        let before = document(&job)?.body;
        if job.state != ErasureState::Erasing {
            return Ok(job);
        }
        match job.target.clone() {
            ErasureTarget::Event(id) => {
                self.erase_all(&mut job, vec![id]).await?;
                self.end(&mut job).await?;
            }
            ErasureTarget::Object(_) => {
                let (events, next) = self.next_events(&job).await?;
                self.erase_all(&mut job, events).await?;
                job.position = next.map(|cursor| cursor.0);
                if job.position.is_none() || job.has_many_late() {
                    self.erase_late(&mut job).await?;
                }
                if job.position.is_none() {
                    self.end(&mut job).await?;
                }
            }
        }
        self.put(&before, &job).await?;
        Ok(job)
    }

    async fn put(&self, before: &str, job: &ErasureJob) -> Result<(), Stopped> {
        let after = document(job)?;
        let expected = Expected::Body(before.to_owned());
        let is_ours = self.state.store().put_document(&after, &expected).await?;
        if is_ours { Ok(()) } else { Err(Stopped::Taken) }
    }

    /// The next events of an object.
    async fn next_events(
        &self,
        job: &ErasureJob,
    ) -> Result<(Vec<EventId>, Option<Cursor>), Stopped> {
        let ErasureTarget::Object(object) = &job.target else { return Ok((Vec::new(), None)) };
        let until = Some(Timestamp::from_unix_ms(job.created_at.as_unix_ms().saturating_add(1)));
        let filter = EventFilter { object: Some(object.clone()), until, ..EventFilter::default() };
        let cursor = job.position.clone().map(Cursor);
        let page = PageRequest { limit: STEP_EVENTS, cursor };
        let found = self.state.store().list_events(&job.tenant, &filter, &page).await?;
        let events = found.items.iter().map(|record| record.event.id.clone());
        Ok((events.collect(), found.next))
    }

    async fn erase_all(&self, job: &mut ErasureJob, events: Vec<EventId>) -> Result<(), Stopped> {
        if events.is_empty() {
            return Ok(());
        }
        let in_flight = self.in_flight(job).await?;
        for id in events {
            if in_flight.contains(&id) {
                job.note_late(&id);
            }
            self.erase(job, &id).await?;
        }
        Ok(())
    }

    /// Erases one event. Its unfinished deliveries are cancelled first.
    async fn erase(&self, job: &mut ErasureJob, id: &EventId) -> Result<(), Stopped> {
        for _ in 0..CANCELS_MAX {
            let now = self.state.now();
            match self.state.store().erase_event(&job.tenant, id, now).await? {
                EventErasure::Erased { attempts } => {
                    job.counts.erased += 1;
                    job.counts.attempts += attempts;
                    return Ok(());
                }
                EventErasure::Already { attempts } => {
                    job.counts.already += 1;
                    job.counts.attempts += attempts;
                    return Ok(());
                }
                // Retention has removed it meanwhile.
                EventErasure::NotFound => return Ok(()),
                EventErasure::Unfinished => self.cancel(job, id).await?,
            }
        }
        Err(Stopped::Unfinished(id.clone()))
    }

    /// Cancels the unfinished deliveries of an event. An attempt that is in flight continues and is logged.
    async fn cancel(&self, job: &mut ErasureJob, id: &EventId) -> Result<(), Stopped> {
        let open = self.open_deliveries(job, id).await?;
        for delivery in &open {
            match self.state.engine().cancel(&job.tenant, *delivery).await {
                Ok(_) => job.counts.cancelled += 1,
                // It has ended meanwhile.
                Err(CommandError::WrongState(_) | CommandError::NotFound) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if self.state.engine().in_flight(open).await?.contains(&true) {
            job.note_late(id);
        }
        Ok(())
    }

    /// The events of the tenant that have attempts in flight.
    async fn in_flight(&self, job: &ErasureJob) -> Result<HashSet<EventId>, Stopped> {
        let filter = DeliveryFilter::default();
        let in_flight =
            self.state.engine().list_in_flight(&job.tenant, filter, None, IN_FLIGHT_MAX).await?;
        Ok(in_flight.into_iter().map(|delivery| delivery.event).collect())
    }

    async fn open_deliveries(
        &self,
        job: &ErasureJob,
        id: &EventId,
    ) -> Result<Vec<DeliveryId>, Stopped> {
        let (mut open, mut page) = (Vec::new(), PageRequest { limit: PAGE_MAX, cursor: None });
        let filter = DeliveryFilter { event: Some(id.clone()), ..DeliveryFilter::default() };
        loop {
            let found = self.state.store().list_deliveries(&job.tenant, &filter, &page).await?;
            for delivery in &found.items {
                match delivery.state.name() {
                    StateName::Queued | StateName::InFlight | StateName::Waiting => {
                        open.push(delivery.id);
                    }
                    StateName::Delivered | StateName::Dead | StateName::Cancelled => {}
                }
            }
            page.cursor = found.next;
            if page.cursor.is_none() {
                return Ok(open);
            }
        }
    }

    /// Erases what the last attempts of ended deliveries brought back, once none is in flight any more.
    async fn erase_late(&self, job: &mut ErasureJob) -> Result<(), Stopped> {
        if job.late.is_empty() {
            return Ok(());
        }
        let mut left = job.late.clone();
        for _ in 0..FLIGHT_LOOKS {
            pause(FLIGHT_PAUSE).await;
            let in_flight = self.in_flight(job).await?;
            left.retain(|id| in_flight.contains(id));
            if left.is_empty() {
                break;
            }
        }
        if let Some(id) = left.first() {
            return Err(Stopped::Unfinished(id.clone()));
        }
        pause(LATE_PAUSE).await;
        for id in std::mem::take(&mut job.late) {
            let now = self.state.now();
            let erased = self.state.store().erase_event(&job.tenant, &id, now).await?;
            if let EventErasure::Erased { attempts } | EventErasure::Already { attempts } = erased {
                job.counts.attempts += attempts;
            }
        }
        Ok(())
    }

    async fn end(&self, job: &mut ErasureJob) -> Result<(), Stopped> {
        self.erase_late(job).await?;
        job.scrub();
        Ok(())
    }
}
