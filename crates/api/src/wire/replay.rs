//! Bulk replay jobs.

use postrider_domain::delivery::StateName;
use postrider_domain::job_outcomes::Outcome;
use postrider_domain::time::Timestamp;
use postrider_engine::NewReplay;
use postrider_store::{DeliveryFilter, ReplayJob, ReplayState};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::paging::parameter;
use crate::problem::Problem;
use crate::routes::deliveries::parse_state;
use crate::settings::REPLAY_PER_SECOND_MAX;

/// The deliveries to replay, and the rate.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = NewReplay)]
pub(crate) struct ReplayBody {
    /// Deliveries to this destination.
    destination: Option<String>,
    /// Deliveries for this subscription, by its id or its uid.
    pub(crate) subscription: Option<String>,
    /// Deliveries of events of this type.
    #[serde(rename = "type")]
    kind: Option<String>,
    /// `dead` (default), `delivered` or `cancelled`: they are replayed. Or `waiting`: each is attempted
    /// once, as soon as its turn comes, without waiting for its slot, which stays.
    state: Option<String>,
    /// Deliveries accepted at this time or later.
    #[schema(format = DateTime)]
    since: Option<String>,
    /// Deliveries accepted before this time.
    #[schema(format = DateTime)]
    until: Option<String>,
    /// Ended at or after: for dead ones, when they died.
    #[schema(format = DateTime)]
    ended_since: Option<String>,
    /// At most so many a second; as fast as the lanes take them where it is left out.
    #[schema(minimum = 1)]
    per_second: Option<u32>,
    /// Only count the deliveries.
    dry_run: Option<bool>,
}

impl ReplayBody {
    /// Checks the body; returns the replay, and whether it is only to be counted.
    pub(crate) fn check(self) -> Result<(NewReplay, bool), Problem> {
        let state = match self.state.as_deref() {
            None => StateName::Dead,
            Some(text) => parse_state(text)?,
        };
        match state {
            StateName::Waiting if self.ended_since.is_some() => {
                let problem = "for deliveries that have ended, and those that wait have not";
                return Err(Problem::field("ended_since", problem));
            }
            StateName::Dead | StateName::Delivered | StateName::Cancelled | StateName::Waiting => {}
            StateName::Queued | StateName::InFlight => {
                return Err(Problem::field("state", "one of dead, delivered, cancelled, waiting"));
            }
        }
        let is_pace = |pace: &u32| (1..=REPLAY_PER_SECOND_MAX).contains(pace);
        if self.per_second.as_ref().is_some_and(|pace| !is_pace(pace)) {
            let allowed = format!("a number from 1 to {REPLAY_PER_SECOND_MAX}");
            return Err(Problem::field("per_second", allowed));
        }
        let wish = NewReplay {
            filter: DeliveryFilter {
                state: Some(state),
                destination: parameter("destination", self.destination.as_deref())?,
                subscription: parameter("subscription", self.subscription.as_deref())?,
                event: None,
                kind: parameter("type", self.kind.as_deref())?,
                since: parameter("since", self.since.as_deref())?,
                until: parameter("until", self.until.as_deref())?,
                ended_since: parameter("ended_since", self.ended_since.as_deref())?,
            },
            per_second: self.per_second,
            id: None,
        };
        Ok((wish, self.dry_run.unwrap_or(false)))
    }
}

/// A bulk replay.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Replay)]
pub(crate) struct ReplayView {
    id: String,
    state: ReplayStateWord,
    filter: ReplayFilterView,
    per_second: Option<u32>,
    /// How many deliveries it will replay, as counted at the start.
    total: u64,
    /// How many deliveries it has replayed.
    done: u64,
    /// When it has finished: how many of `total` it did not send. They were on their way without it, had
    /// ended or been replayed meanwhile, their subscription was deleted, or their destination is frozen.
    skipped: Option<u64>,
    /// What became of the deliveries that it sent. `null` where an earlier version of the server sent some
    /// of them: their outcomes are not known.
    outcomes: Option<OutcomesView>,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    #[schema(value_type = Option<String>, format = DateTime)]
    finished_at: Option<Timestamp>,
}

/// What became of the deliveries that a bulk replay sent; together they are as many as it sent. The counts
/// go on after the job has finished, and stay when the deliveries are removed.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ReplayOutcomes)]
struct OutcomesView {
    /// Not attempted since.
    pending: u64,
    /// Attempted since, and each time it failed; they wait for their next slots.
    failed: u64,
    /// Delivered.
    delivered: u64,
    /// Dead.
    dead: u64,
    /// Cancelled, or sent by a later bulk replay, before they were delivered or dead.
    withdrawn: u64,
}

impl OutcomesView {
    fn of(job: &ReplayJob) -> Option<Self> {
        let outcomes = &job.outcomes;
        (outcomes.sum() >= job.done).then(|| OutcomesView {
            pending: outcomes.of(Outcome::Pending),
            failed: outcomes.of(Outcome::Failed),
            delivered: outcomes.of(Outcome::Delivered),
            dead: outcomes.of(Outcome::Dead),
            withdrawn: outcomes.of(Outcome::Withdrawn),
        })
    }
}

/// The state of a bulk replay.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = ReplayState)]
enum ReplayStateWord {
    Running,
    Paused,
    Finished,
    Cancelled,
}

/// The deliveries that a job replays.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ReplayFilter)]
struct ReplayFilterView {
    destination: Option<String>,
    subscription: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    state: Option<&'static str>,
    #[schema(value_type = Option<String>, format = DateTime)]
    since: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = DateTime)]
    until: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = DateTime)]
    ended_since: Option<Timestamp>,
}

/// How many deliveries a replay would replay.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DryRun {
    pub(crate) dry_run: bool,
    pub(crate) total: u64,
}

impl ReplayView {
    pub(crate) fn of(job: &ReplayJob) -> Self {
        let filter = &job.filter;
        // What other nodes send is counted before the job knows of it.
        let done = job.done.max(job.outcomes.sum());
        ReplayView {
            id: job.id.to_string(),
            state: match job.state {
                ReplayState::Running => ReplayStateWord::Running,
                ReplayState::Paused => ReplayStateWord::Paused,
                ReplayState::Finished => ReplayStateWord::Finished,
                ReplayState::Cancelled => ReplayStateWord::Cancelled,
            },
            filter: ReplayFilterView {
                destination: filter.destination.map(|id| id.to_string()),
                subscription: filter.subscription.map(|id| id.to_string()),
                kind: filter.kind.as_ref().map(ToString::to_string),
                state: filter.state.map(StateName::as_str),
                since: filter.since,
                until: filter.until,
                ended_since: filter.ended_since,
            },
            per_second: job.per_second,
            total: job.total,
            done,
            skipped: (job.state == ReplayState::Finished).then(|| job.total.saturating_sub(done)),
            outcomes: OutcomesView::of(job),
            created_at: job.created_at,
            finished_at: job.finished_at,
        }
    }
}
