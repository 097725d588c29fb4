//! The state machine of the engine: it owns the run-time state and turns inputs into actions.
//!
//! [`Core::handle`] takes one input at a time, in the order in which the shell gives them, and
//! pushes [`Action`]s that the shell carries out. **Nothing here awaits, reads a clock or generates
//! random numbers**; the rules are in `postrider-domain`.
//!
//! ```text
//!   Accepted ─▶ lanes  ─▶ dispatch ─▶ Send ┄▶ Finished ─▶ settle ─▶ Commit
//!   Loaded   ─▶ window ──────┘                              │
//!                ▲───────────────────────────────────────────┘ (waits for its next slot)
//! ```
//!
//! **A module calls only those before it.** The order is written down in
//! `xtask/src/tidy/core_order.rs`, which checks it. The first ones are data without behaviour;
//! [`state`] lists the fields of the core; each of the others adds a part of the behaviour.

mod admission;
mod alarms;
mod answers;
mod arrivals;
mod asked;
mod cancel;
mod commands;
mod commits;
mod destinations;
mod dispatch;
mod drain;
mod durable;
mod guard;
mod ids;
mod lanes;
pub(crate) mod limiter;
mod lookup;
mod messages;
mod ownership;
mod payloads;
mod places;
mod policies;
mod probe;
mod reads;
mod replay;
mod requests;
mod residence;
mod settle;
mod shards;
mod shutdown;
mod state;
mod suspensions;
mod table;
mod trial;
mod turns;
mod views;
mod window;

use postrider_domain::time::Timestamp;

use alarms::Alarm;
pub(crate) use destinations::LoadId;
pub use messages::Gauges;
pub(crate) use messages::{
    Action, Attempted, Command, DeliveryCommand, Fetch, Input, Load, OnDelivery, OnDestination,
    OnReplay, Outgoing, RenewedLeases, Reopening, ReplayChange, Trial, View, WantedEvent,
};
pub(crate) use state::Core;
pub(crate) use table::TenantOverlay;

impl Core {
    /// Records one input. [`Core::advance`] does what follows from it.
    pub(crate) fn handle(&mut self, input: Input, now: Timestamp) {
        self.now = self.now.max(now);
        match input {
            Input::Accepted(handover) => self.accepted(handover),
            Input::Finished(delivery, attempted) => self.finished(delivery, attempted),
            Input::Loaded(id, rows, next_ticket) => self.loaded(id, rows, next_ticket),
            Input::Fetched(fetch, events) => {
                self.fetched(fetch.load, fetch.rows, fetch.next_ticket, events);
            }
            Input::Settled(result) => self.settled(result),
            Input::Command(command) => self.command(command),
            Input::Spilled(destinations) => self.spilled(&destinations),
            Input::EventsRead(read) => {
                for id in self.events_read(read) {
                    self.finished(id, Attempted::NoEvent);
                }
            }
            Input::Work(shards, since) => self.look_for_work(&shards, since),
        }
    }

    /// Runs due timers, sends deliveries within the limits, and begins the next commit.
    pub(crate) fn advance(&mut self, now: Timestamp) {
        self.now = self.now.max(now);
        self.ring_alarms();
        self.fire_due();
        self.load_due();
        self.scan_backlog();
        self.feed_starved();
        self.pump();
        self.read_events();
        self.give_back_when_settled();
        self.begin_commit();
        self.evict_idle();
        self.finish_shutdown();
    }

    /// Runs all timers that are due.
    fn ring_alarms(&mut self) {
        while let Some(alarm) = self.alarms.take_due(self.now) {
            match alarm {
                Alarm::Probe(ix) => self.probe_due(ix),
                Alarm::Freeze(ix) => self.freeze_due(ix),
                Alarm::Tokens(ix) => self.activate(ix),
                Alarm::Ramp(ix) => self.ramp_step(ix),
                Alarm::Replay(id) => self.replay_next(id),
                Alarm::Guard => self.tick_guard(),
                Alarm::Commit => self.begin_commit(),
                Alarm::Due => {}
            }
        }
    }

    /// The actions to carry out, in order.
    pub(crate) fn take_actions(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    /// When [`Core::advance`] must be called next without an input.
    pub(crate) fn next_wake(&self) -> Option<Timestamp> {
        let due = if self.is_quiet() { None } else { self.window.next_at() };
        [due, self.alarms.next_at()].into_iter().flatten().min()
    }
}
