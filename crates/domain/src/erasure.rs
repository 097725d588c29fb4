//! The erasure of payloads: which events, how far it is, and who works on it.
//!
//! ```text
//!   erasing ──▶ scrubbing ──▶ finished
//! ```
//!
//! *Erasing*: the payloads of the events are removed one by one. *Scrubbing*: what is left of them in the store's
//! files is overwritten. A job is stored after each step, so that another node, or the next start, goes on where
//! it stopped. **Each step can be repeated**: to erase what is erased changes nothing.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::{ErasureId, EventId, ObjectId, TenantId};
use crate::time::Timestamp;

/// Events whose last attempts may be logged after their payload was erased; beyond it the job waits for them.
const LATE_MAX: usize = 1_000;

/// What is erased.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErasureTarget {
    /// The payload of one event.
    Event(EventId),
    /// The payloads of all events of an object that were accepted before the job was created.
    Object(ObjectId),
}

/// How far a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErasureState {
    /// Payloads are being removed.
    Erasing,
    /// All payloads are removed; what is left of them in the store's files is being overwritten.
    Scrubbing,
    /// Everything is done.
    Finished,
}

/// The node that works on a job, for as long as it keeps saying so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Worker {
    /// A random name, new for each process.
    pub name: String,
    /// Until when nobody else takes the job over.
    pub until: Timestamp,
}

/// What a job has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErasureCounts {
    /// Events whose payload it erased.
    pub erased: u64,
    /// Events that were erased before.
    pub already: u64,
    /// Unfinished deliveries that it cancelled.
    pub cancelled: u64,
    /// Attempts whose response body it erased.
    pub attempts: u64,
}

/// A job that erases payloads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErasureJob {
    /// Its identifier.
    pub id: ErasureId,
    /// The tenant whose events are erased.
    pub tenant: TenantId,
    /// What is erased.
    pub target: ErasureTarget,
    /// When it was created.
    pub created_at: Timestamp,
    /// How far it is.
    pub state: ErasureState,
    /// What it has done.
    #[serde(default)]
    pub counts: ErasureCounts,
    /// The store's cursor of the next events; `None` at the beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<String>,
    /// Events whose attempts were in flight: they are looked at again at the end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub late: Vec<EventId>,
    /// Who works on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<Worker>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
}

impl ErasureJob {
    /// A new job.
    pub fn new(
        id: ErasureId,
        tenant: TenantId,
        target: ErasureTarget,
        created_at: Timestamp,
    ) -> Self {
        ErasureJob {
            id,
            tenant,
            target,
            created_at,
            state: ErasureState::Erasing,
            counts: ErasureCounts::default(),
            position: None,
            late: Vec::new(),
            worker: None,
            finished_at: None,
        }
    }

    /// Whether there is something left to do.
    pub fn is_open(&self) -> bool {
        self.state != ErasureState::Finished
    }

    /// The job as taken by this worker for a while; `None` where another one works on it. Where there is only
    /// one node (`alone`), whoever worked on it before is gone.
    pub fn taken(
        &self,
        name: &str,
        alone: bool,
        now: Timestamp,
        keep: Duration,
    ) -> Option<ErasureJob> {
        let is_free = match &self.worker {
            None => true,
            Some(worker) => alone || worker.name == name || worker.until <= now,
        };
        let worker = Worker { name: name.to_owned(), until: now.saturating_add(keep) };
        (self.is_open() && is_free).then(|| ErasureJob { worker: Some(worker), ..self.clone() })
    }

    /// Notes an event whose attempts were in flight when its deliveries were cancelled.
    pub fn note_late(&mut self, event: &EventId) {
        if !self.late.contains(event) {
            self.late.push(event.clone());
        }
    }

    /// Whether so many events are noted that they must be looked at now.
    pub fn has_many_late(&self) -> bool {
        self.late.len() >= LATE_MAX
    }

    /// All payloads are removed.
    pub fn scrub(&mut self) {
        self.state = ErasureState::Scrubbing;
        self.position = None;
        self.late.clear();
    }

    /// Everything is done.
    pub fn finish(&mut self, now: Timestamp) {
        self.state = ErasureState::Finished;
        self.worker = None;
        self.finished_at = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_unix_ms(1_763_199_000_120);
    const KEEP: Duration = Duration::from_secs(60);

    fn job() -> ErasureJob {
        let target = ErasureTarget::Object("person-7".parse().unwrap());
        ErasureJob::new(ErasureId::new(NOW, [1; 10]), TenantId::default_tenant(), target, NOW)
    }

    #[test]
    fn job_has_one_worker_until_its_time_is_over() {
        let taken = job().taken("a", false, NOW, KEEP).unwrap();
        assert!(taken.taken("b", false, NOW, KEEP).is_none());
        assert!(taken.taken("a", false, NOW, KEEP).is_some(), "it prolongs its own");
        assert!(taken.taken("b", false, NOW.saturating_add(KEEP), KEEP).is_some());
        assert!(taken.taken("b", true, NOW, KEEP).is_some(), "the only node waits for nobody");
    }

    #[test]
    fn finished_job_is_taken_by_nobody() {
        let mut job = job();
        job.note_late(&"e".parse().unwrap());
        job.note_late(&"e".parse().unwrap());
        assert_eq!(job.late.len(), 1);
        job.scrub();
        assert!(job.is_open() && job.late.is_empty());
        job.finish(NOW);
        assert!(!job.is_open() && job.taken("a", true, NOW, KEEP).is_none());
        assert_eq!(job.finished_at, Some(NOW));
    }

    #[test]
    fn job_comes_back_from_its_json() {
        let mut job = job().taken("a", false, NOW, KEEP).unwrap();
        job.position = Some("12 evt_1".to_owned());
        job.note_late(&"e".parse().unwrap());
        let text = serde_json::to_string(&job).unwrap();
        assert_eq!(serde_json::from_str::<ErasureJob>(&text).unwrap(), job);
    }
}
