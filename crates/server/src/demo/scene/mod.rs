//! What the demonstration has seen so far, and what it tells of it.
//!
//! **Nothing here asks or waits**: observations come in, rows and sentences come out. Time is the time since the
//! start, and is an argument.

mod row;

use std::collections::VecDeque;
use std::time::Duration;

use self::row::Hang;
pub(super) use self::row::Row;
use super::receivers::{CAST, Diet, Mood};
use super::words::{latency, listed, number, ordinal, span};

/// Sentences that are remembered.
const TOLD_MAX: usize = 200;
/// Deliveries whose death is remembered, for each receiver.
const DEAD_MAX: usize = 20_000;
/// A hanging receiver with so many open requests is worth a sentence.
const MANY_OPEN: usize = 6;
/// So many deliveries behind a receiver that was repaired are worth a sentence.
const MANY_BEHIND: u64 = 20;
/// The probe interval of the default policy.
const PROBE_INTERVAL: Duration = Duration::from_secs(600);

/// The state of a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Enabled,
    Disabled,
    Frozen,
}

impl State {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            State::Enabled => "enabled",
            State::Disabled => "disabled",
            State::Frozen => "frozen",
        }
    }

    pub(super) fn parse(text: &str) -> Option<State> {
        [State::Enabled, State::Disabled, State::Frozen].into_iter().find(|s| s.as_str() == text)
    }
}

/// A change of a destination's state, as the live stream reports it.
#[derive(Debug, Clone)]
pub(super) struct Change {
    pub(super) to: State,
    /// The kind of evidence: `failure_share`, `probe_failed`, …
    pub(super) why: String,
    pub(super) failures: u64,
    pub(super) attempts: u64,
}

/// The ledger.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Ledger {
    pub(super) accepted: u64,
    pub(super) queued: u64,
    pub(super) in_flight: u64,
    pub(super) waiting: u64,
    pub(super) delivered: u64,
    pub(super) dead: u64,
    pub(super) cancelled: u64,
}

/// A destination as the API lists it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Standing {
    pub(super) state: State,
    pub(super) waiting: u64,
    pub(super) probe_in: Option<Duration>,
}

/// One observation.
#[derive(Debug)]
pub(super) enum Seen {
    /// So many events of this kind were accepted.
    Accepted {
        diet: Diet,
        events: usize,
    },
    Attempt {
        row: usize,
        delivery: String,
        latency: Duration,
        is_delivered: bool,
    },
    Transition {
        row: usize,
        change: Change,
    },
    Died {
        row: usize,
        delivery: String,
        attempts: u64,
    },
    /// The live stream was interrupted: some observations are missing.
    Missed,
    Ledger(Ledger),
    Destination {
        row: usize,
        standing: Standing,
    },
    /// The explanation of a delivery, a paragraph each.
    Explained(Vec<String>),
    /// A request of the demonstration itself was refused.
    Refused(String),
}

/// What a sentence is about; it decides the colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Note,
    Broken,
    Repaired,
    Disabled,
    Frozen,
    Recovered,
    Died,
    Replayed,
}

impl Kind {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Kind::Note => "note",
            Kind::Broken => "broken",
            Kind::Repaired => "repaired",
            Kind::Disabled => "disabled",
            Kind::Frozen => "frozen",
            Kind::Recovered => "recovered",
            Kind::Died => "died",
            Kind::Replayed => "replayed",
        }
    }
}

/// One sentence of the narration.
#[derive(Debug, Clone)]
pub(super) struct Told {
    pub(super) at: Duration,
    pub(super) kind: Kind,
    /// The receiver it is about.
    pub(super) row: Option<usize>,
    pub(super) text: String,
}

/// What covers the narration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Panel {
    /// The explanation of a delivery, a paragraph each.
    Explanation(Vec<String>),
    /// How to look at it from another terminal.
    Help,
}

/// Everything that is shown.
#[derive(Debug)]
pub(super) struct Scene {
    time_scale: u32,
    elapsed: Duration,
    rows: Vec<Row>,
    ledger: Ledger,
    told: VecDeque<Told>,
    /// Sentences so far, with those that are no longer remembered.
    told_count: usize,
    is_resync: bool,
    pub(super) selected: usize,
    pub(super) panel: Option<Panel>,
    /// The link to the dashboard.
    pub(super) link: String,
}

impl Scene {
    pub(super) fn new(time_scale: u32, link: String) -> Scene {
        Scene {
            time_scale,
            elapsed: Duration::ZERO,
            rows: CAST.iter().map(Row::new).collect(),
            ledger: Ledger::default(),
            told: VecDeque::new(),
            told_count: 0,
            is_resync: false,
            selected: 0,
            panel: None,
            link,
        }
    }

    pub(super) const fn time_scale(&self) -> u32 {
        self.time_scale
    }

    pub(super) const fn elapsed(&self) -> Duration {
        self.elapsed
    }

    pub(super) fn rows(&self) -> &[Row] {
        &self.rows
    }

    pub(super) const fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The last sentences, oldest first.
    pub(super) fn told(&self) -> impl DoubleEndedIterator<Item = &Told> {
        self.told.iter()
    }

    /// The sentences after the first `seen`, and how many there are by now.
    pub(super) fn told_after(&self, seen: usize) -> (impl Iterator<Item = &Told>, usize) {
        let fresh = self.told_count.saturating_sub(seen).min(self.told.len());
        (self.told.iter().skip(self.told.len() - fresh), self.told_count)
    }

    /// The time of the policy that has passed.
    pub(super) fn policy_time(&self) -> Duration {
        self.elapsed * self.time_scale
    }

    /// How long the policy's ten minutes between two probes take.
    pub(super) fn probe_interval(&self) -> Duration {
        PROBE_INTERVAL / self.time_scale.max(1)
    }

    /// Adds a sentence.
    pub(super) fn tell(&mut self, kind: Kind, row: Option<usize>, text: String) {
        self.told.push_back(Told { at: self.elapsed, kind, row, text });
        self.told_count += 1;
        if self.told.len() > TOLD_MAX {
            self.told.pop_front();
        }
    }

    /// Time passes.
    pub(super) fn advance(&mut self, elapsed: Duration, open: [usize; CAST.len()]) {
        let passed = elapsed.saturating_sub(self.elapsed);
        self.elapsed = elapsed;
        for (row, open) in self.rows.iter_mut().zip(open) {
            row.open = open;
            row.probe_in = row.probe_in.map(|left| left.saturating_sub(passed));
            row.forget(elapsed);
        }
        for row in 0..self.rows.len() {
            self.notice_hanging(row);
        }
    }

    /// Takes an observation in.
    pub(super) fn see(&mut self, seen: Seen) {
        match seen {
            Seen::Accepted { diet, events } => {
                for row in self.rows.iter_mut().filter(|row| row.diet == diet) {
                    row.owed += u64::try_from(events).unwrap_or(0);
                }
            }
            Seen::Attempt { row, delivery, latency, is_delivered } => {
                self.attempt(row, &delivery, latency, is_delivered);
            }
            Seen::Transition { row, change } => self.transition(row, &change),
            Seen::Died { row, delivery, attempts } => self.died(row, delivery, attempts),
            Seen::Missed => self.is_resync = true,
            Seen::Ledger(ledger) => self.ledger = ledger,
            Seen::Destination { row, standing } => self.standing(row, standing),
            Seen::Explained(paragraphs) => self.panel = Some(Panel::Explanation(paragraphs)),
            Seen::Refused(why) => self.tell(Kind::Note, None, why),
        }
    }

    /// A receiver changes its mood, by the plot or by a person.
    pub(super) fn set_mood(&mut self, at: usize, mood: Mood, by_person: bool) {
        let now = self.elapsed;
        let Some(row) = self.rows.get_mut(at) else { return };
        (row.mood, row.mood_since, row.hang) = (mood, now, Hang::Untold);
        row.is_touched |= by_person;
        let behind = row.waiting();
        let is_behind = row.state == State::Enabled && behind >= MANY_BEHIND && !mood.is_down();
        row.catching_up |= is_behind;
        let (name, words) = (row.name, mood.words());
        let (kind, mut text) = match (mood.is_down(), by_person) {
            (true, true) => (Kind::Broken, format!("you broke /{name}: it {words}")),
            (true, false) => (Kind::Broken, format!("/{name} breaks: it {words}")),
            (false, true) => (Kind::Repaired, format!("you repaired /{name}: it {words}")),
            (false, false) => (Kind::Repaired, format!("/{name} is repaired: it {words}")),
        };
        if is_behind {
            text.push_str(&format!("; {} are waiting", number(behind)));
        }
        self.tell(kind, Some(at), text);
    }

    fn attempt(&mut self, at: usize, delivery: &str, took: Duration, is_delivered: bool) {
        let now = self.elapsed;
        let Some(row) = self.rows.get_mut(at) else { return };
        row.took(now, took);
        if !is_delivered {
            return;
        }
        row.count_delivered(now);
        row.arrived += 1;
        if row.dead.remove(delivery) {
            row.revived += 1;
            if row.dead.is_empty() {
                let (name, revived) = (row.name, std::mem::take(&mut row.revived));
                let text = match revived {
                    1 => format!("/{name}: the one that died was replayed and is delivered"),
                    n => format!(
                        "/{name}: all {} that died were replayed and are delivered",
                        number(n)
                    ),
                };
                self.tell(Kind::Replayed, Some(at), text);
            }
        }
    }

    fn transition(&mut self, at: usize, change: &Change) {
        let (now, interval) = (self.elapsed, self.probe_interval());
        let Some(row) = self.rows.get_mut(at) else { return };
        let from = row.state;
        if change.to != from {
            (row.state, row.state_since) = (change.to, now);
        }
        let (name, waiting, dead) = (row.name, row.waiting(), row.dead.len());
        let (kind, text) = match (from, change.to) {
            (State::Enabled | State::Frozen, State::Disabled) => {
                (row.probes, row.probe_in) = (0, Some(interval));
                let failed = if change.why == "consecutive_failures" {
                    "2,000 times in a row".to_owned()
                } else if change.failures == change.attempts {
                    format!("{} times", number(change.failures))
                } else {
                    format!("{} of {} times", number(change.failures), number(change.attempts))
                };
                (
                    Kind::Disabled,
                    format!("/{name} failed {failed}: disabled; probed in {}", span(interval)),
                )
            }
            (State::Disabled, State::Disabled) if change.why == "probe_failed" => {
                row.probes += 1;
                row.probe_in = Some(interval);
                if row.probes > 1 {
                    return;
                }
                let waits = format!(
                    "/{name}: the probe failed; {} wait, the next probe in {}",
                    number(waiting),
                    span(interval)
                );
                (Kind::Disabled, waits)
            }
            (State::Enabled | State::Disabled, State::Frozen) => {
                let why =
                    if change.why == "gone" { "answered 410 Gone" } else { "failed for too long" };
                (
                    Kind::Frozen,
                    format!("/{name} {why}: frozen, not attempted until somebody enables it"),
                )
            }
            (State::Disabled | State::Frozen, State::Enabled) => {
                row.catching_up = waiting > 0;
                let how = match (from, change.why.as_str()) {
                    (_, "by_hand") => "was enabled by hand".to_owned(),
                    _ => format!("recovered at its {} probe", ordinal(row.probes + 1)),
                };
                let replayed = match dead {
                    0 => String::new(),
                    n => format!(", {n} that died are replayed"),
                };
                (
                    Kind::Recovered,
                    format!("/{name} {how}: {} waiting are sent{replayed}", number(waiting)),
                )
            }
            (State::Disabled, State::Disabled)
            | (State::Enabled, State::Enabled)
            | (State::Frozen, State::Frozen) => return,
        };
        self.tell(kind, Some(at), text);
    }

    fn died(&mut self, at: usize, delivery: String, attempts: u64) {
        let Some(row) = self.rows.get_mut(at) else { return };
        if row.dead.len() < DEAD_MAX {
            row.dead.insert(delivery);
        }
        let (name, dead) = (row.name, row.dead.len());
        let text = match dead {
            1 => {
                let often =
                    if attempts == 1 { "1 attempt" } else { &format!("{attempts} attempts") };
                format!("/{name}: a delivery died after {often}; it is kept and can be replayed")
            }
            n if matches!(n, 10 | 25 | 50) || n.is_multiple_of(100) => {
                format!(
                    "/{name}: {} have died by now; all are kept",
                    number(u64::try_from(n).unwrap_or(u64::MAX))
                )
            }
            _ => return,
        };
        self.tell(Kind::Died, Some(at), text);
    }

    fn standing(&mut self, at: usize, standing: Standing) {
        let (now, is_last) = (self.elapsed, at + 1 == self.rows.len());
        let Some(row) = self.rows.get_mut(at) else { return };
        row.retry_lane = standing.waiting;
        if standing.state == row.state {
            row.probe_in = standing.probe_in;
        } else if self.is_resync {
            (row.state, row.state_since, row.probe_in) = (standing.state, now, standing.probe_in);
            row.arrived = row.owed.saturating_sub(standing.waiting);
        }
        if is_last {
            self.is_resync = false;
        }
        if row.catching_up && row.waiting() < MANY_BEHIND && row.state == State::Enabled {
            row.catching_up = false;
            let text = format!("/{} has caught up: all that waited is delivered", row.name);
            self.tell(Kind::Recovered, Some(at), text);
        }
    }

    /// Says of each hanging receiver that it holds requests open, and then that it may hold only one.
    fn notice_hanging(&mut self, at: usize) {
        let healthy = self.rows.first().and_then(Row::p99);
        let Some(row) = self.rows.get_mut(at) else { return };
        let (Mood::Hanging, Some(healthy)) = (row.mood, healthy) else { return };
        let text = match row.hang {
            Hang::Untold if row.open >= MANY_OPEN => {
                row.hang = Hang::Holds;
                let healthy = latency(healthy);
                format!(
                    "/{} leaves {} requests unanswered; /healthy's p99 is {healthy}",
                    row.name, row.open
                )
            }
            Hang::Holds if row.open == 1 && row.p99().is_some() => {
                row.hang = Hang::Limited;
                format!(
                    "/{} timed out: it gets one request at a time; nobody else waits for it",
                    row.name
                )
            }
            Hang::Untold | Hang::Holds | Hang::Limited => return,
        };
        self.tell(Kind::Note, Some(at), text);
    }

    /// What the healthy receiver notices of the others, in a sentence.
    pub(super) fn verdict(&self) -> String {
        let Some(healthy) = self.rows.first() else { return String::new() };
        let Some(p99) = healthy.p99() else {
            return "The first events are on their way.".to_owned();
        };
        let p99 = latency(p99);
        if healthy.mood.is_down() || healthy.state != State::Enabled {
            return "/healthy is down now: press 1 and b to repair it.".to_owned();
        }
        let hanging = self.rows.iter().filter(|row| row.mood == Mood::Hanging);
        if let Some(worst) = hanging.max_by_key(|row| row.waiting())
            && let Some(theirs) = worst.p99()
        {
            return format!(
                "p99: /healthy {p99}, /{} {}, where {} wait: each has its own slots.",
                worst.name,
                latency(theirs),
                number(worst.waiting())
            );
        }
        let of = |state: State| -> Vec<String> {
            let rows = self.rows.iter().filter(|row| row.state == state);
            rows.map(|row| format!("/{}", row.name)).collect()
        };
        let spared = match (of(State::Disabled).as_slice(), of(State::Frozen).as_slice()) {
            ([], []) => "all are enabled".to_owned(),
            ([], frozen) => format!("{} frozen, not attempted", listed(frozen)),
            (disabled, _) => format!(
                "{} disabled: one probe every {}",
                listed(disabled),
                span(self.probe_interval())
            ),
        };
        format!("/healthy's p99 is {p99}; {spared}.")
    }
}

#[cfg(test)]
mod tests;
