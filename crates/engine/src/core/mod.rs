//! The one place that holds the truth at run time: a state machine that turns what happens into
//! what is to be done.
//!
//! [`Core::handle`] takes one input at a time, in the order in which the shell gives them, and
//! pushes [`Action`]s that the shell carries out. **Nothing here awaits, reads a clock or draws a
//! random number**; what is decided is decided in `postrider-domain`.
//!
//! ```text
//!   Accepted ─▶ lanes  ─▶ dispatch ─▶ Send ┄▶ Finished ─▶ settle ─▶ Commit
//!   Loaded   ─▶ window ──────┘                              │
//!                ▲───────────────────────────────────────────┘ (waits for its next slot)
//! ```
//!
//! **A module calls only those before it.** The order is written down in `xtask/src/tidy/core_order.rs`,
//! which checks it. The first ones are data without behaviour; [`state`] lists what the core holds; the
//! others each add a part of the behaviour.

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
mod probe;
mod reads;
mod replay;
mod requests;
mod residence;
mod settle;
mod shutdown;
mod state;
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
    Action, Attempted, Command, DeliveryCommand, Fetch, Held, Input, Load, OnDelivery,
    OnDestination, OnReplay, Outgoing, Reopening, ReplayChange, Trial, View, WantedEvent,
};
pub(crate) use state::Core;
pub(crate) use table::TenantOverlay;

impl Core {
    /// Takes in what happened. What follows from it is done by [`Core::advance`].
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

    /// Does what is due, fills the lanes' places, and begins the next commit.
    pub(crate) fn advance(&mut self, now: Timestamp) {
        self.now = self.now.max(now);
        self.ring_alarms();
        self.fire_due();
        self.load_due();
        self.scan_backlog();
        self.feed_starved();
        self.pump();
        self.read_events();
        self.look_at_leaving();
        self.begin_commit();
        self.evict_idle();
        self.finish_shutdown();
    }

    /// Does everything whose time has come.
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

    /// What is to be done, in order.
    pub(crate) fn take_actions(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    /// When [`Core::advance`] has something to do by itself.
    pub(crate) fn next_wake(&self) -> Option<Timestamp> {
        let due = if self.is_quiet() { None } else { self.due.next_at() };
        [due, self.alarms.next_at()].into_iter().flatten().min()
    }
}
