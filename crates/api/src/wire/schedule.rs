//! The schedule of a delivery as JSON: every slot, with what became of it or when it falls due.

use postrider_domain::schedule::{Schedule, SlotState, SlotView};
use postrider_domain::time::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

/// The schedule that a delivery follows, or followed last: a replay begins a new one.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Schedule)]
pub(crate) struct ScheduleView {
    /// What the slots are counted from: the first attempt, else acceptance or the replay.
    #[schema(value_type = String, format = DateTime)]
    started_at: Timestamp,
    /// Whether that is known. False before the first attempt, and where a replay that has ended had none.
    exact: bool,
    /// Whether it began with a replay.
    replay: bool,
    /// Whether its subscription has a schedule of its own, and does not follow the server's.
    own_policy: bool,
    /// When an attempt is made that somebody asked for before the next slot; it takes no slot.
    #[schema(value_type = Option<String>, format = DateTime)]
    asked_for_at: Option<Timestamp>,
    /// Slot 0, the first attempt, then one for each retry. Probes and attempts that somebody asked for
    /// take no slot: `attempt_log` has them.
    slots: Vec<ScheduleSlot>,
}

/// One slot of a schedule.
#[derive(Debug, Serialize, ToSchema)]
struct ScheduleSlot {
    /// Retry n; 0 for the first attempt.
    number: u32,
    /// When it falls or fell due, by the policy of its subscription as it is now.
    #[schema(value_type = String, format = DateTime)]
    due_at: Timestamp,
    /// What became of it.
    state: SlotWord,
    /// The number of the attempt that was made in it.
    attempt: Option<u32>,
}

/// What became of a slot: its attempt was made (`delivered`, `failed`) or is being made (`in_flight`), it
/// passed without one (`spent`), it comes (`next`, `ahead`), or it is not needed any more (`unneeded`).
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = SlotState)]
enum SlotWord {
    Delivered,
    Failed,
    Spent,
    InFlight,
    Next,
    Ahead,
    Unneeded,
}

impl ScheduleView {
    pub(crate) fn of(schedule: &Schedule, own_policy: bool) -> Self {
        ScheduleView {
            started_at: schedule.started_at,
            exact: schedule.is_exact,
            replay: schedule.is_replay,
            own_policy,
            asked_for_at: schedule.asked_for_at,
            slots: schedule.slots.iter().map(ScheduleSlot::of).collect(),
        }
    }
}

impl ScheduleSlot {
    fn of(slot: &SlotView) -> Self {
        ScheduleSlot {
            number: slot.number,
            due_at: slot.due_at,
            state: match slot.state {
                SlotState::Delivered => SlotWord::Delivered,
                SlotState::Failed => SlotWord::Failed,
                SlotState::Spent => SlotWord::Spent,
                SlotState::InFlight => SlotWord::InFlight,
                SlotState::Next => SlotWord::Next,
                SlotState::Ahead => SlotWord::Ahead,
                SlotState::Unneeded => SlotWord::Unneeded,
            },
            attempt: slot.attempt,
        }
    }
}
