//! One receiver: its mood, the state of its destination, what it is owed, and how quickly it answers.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use super::State;
use crate::demo::receivers::{Diet, Mood, Role};

/// Latencies of a receiver are those of this time.
const LATENCY_WINDOW: Duration = Duration::from_secs(15);
const LATENCIES_MAX: usize = 2_000;
/// Seconds of the chart of deliveries.
pub(in crate::demo) const CHART_SECONDS: usize = 20;

/// One receiver and its destination.
#[derive(Debug)]
pub(in crate::demo) struct Row {
    pub(in crate::demo) name: &'static str,
    pub(super) diet: Diet,
    pub(in crate::demo) mood: Mood,
    pub(in crate::demo) mood_since: Duration,
    /// A person has broken or repaired it.
    pub(in crate::demo) is_touched: bool,
    pub(in crate::demo) state: State,
    pub(in crate::demo) state_since: Duration,
    pub(in crate::demo) probe_in: Option<Duration>,
    /// Requests that it has not answered yet.
    pub(in crate::demo) open: usize,
    /// Deliveries in its retry lane.
    pub(super) retry_lane: u64,
    /// Deliveries that it was ever owed, and those that were delivered.
    pub(super) owed: u64,
    pub(super) arrived: u64,
    /// Deliveries that died here and were not delivered since.
    pub(in crate::demo) dead: HashSet<String>,
    /// Deliveries that died here, were replayed and delivered, since the last sentence about them.
    pub(super) revived: u64,
    pub(super) probes: u64,
    pub(super) catching_up: bool,
    pub(super) hang: Hang,
    latencies: VecDeque<(Duration, Duration)>,
    delivered: VecDeque<(u64, u64)>,
}

/// What the narration has said of a hanging receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hang {
    Untold,
    /// The receiver leaves requests unanswered.
    Holds,
    /// The receiver's in-flight limit fell to one request.
    Limited,
}

impl Row {
    pub(super) fn new(role: &Role) -> Row {
        Row {
            name: role.name,
            diet: role.diet,
            mood: role.mood,
            mood_since: Duration::ZERO,
            is_touched: false,
            state: State::Enabled,
            state_since: Duration::ZERO,
            probe_in: None,
            open: 0,
            retry_lane: 0,
            owed: 0,
            arrived: 0,
            dead: HashSet::new(),
            revived: 0,
            probes: 0,
            catching_up: false,
            hang: Hang::Untold,
            latencies: VecDeque::new(),
            delivered: VecDeque::new(),
        }
    }

    /// Deliveries that are neither delivered nor dead nor being attempted.
    pub(in crate::demo) fn waiting(&self) -> u64 {
        let count = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        let ended = self.arrived + count(self.dead.len()) + count(self.open);
        self.owed.saturating_sub(ended).max(self.retry_lane)
    }

    /// The 99th percentile of the last seconds, from acceptance (of a retry: from its start) to the answer.
    pub(in crate::demo) fn p99(&self) -> Option<Duration> {
        let mut sorted: Vec<Duration> = self.latencies.iter().map(|(_, took)| *took).collect();
        sorted.sort_unstable();
        let last = sorted.len().checked_sub(1)?;
        sorted.get(last * 99 / 100).copied()
    }

    pub(super) fn took(&mut self, now: Duration, took: Duration) {
        self.latencies.push_back((now, took));
        if self.latencies.len() > LATENCIES_MAX {
            self.latencies.pop_front();
        }
    }

    pub(super) fn count_delivered(&mut self, now: Duration) {
        match self.delivered.back_mut() {
            Some((second, count)) if *second == now.as_secs() => *count += 1,
            _ => self.delivered.push_back((now.as_secs(), 1)),
        }
        if self.delivered.len() > CHART_SECONDS + 1 {
            self.delivered.pop_front();
        }
    }

    /// Deliveries in each of the last full seconds, oldest first.
    pub(in crate::demo) fn chart(&self, now: Duration) -> [u64; CHART_SECONDS] {
        let mut chart = [0; CHART_SECONDS];
        for (place, count) in chart.iter_mut().enumerate() {
            let back = u64::try_from(CHART_SECONDS - place).unwrap_or(0);
            let second = now.as_secs().checked_sub(back);
            let found = self.delivered.iter().find(|(at, _)| Some(*at) == second);
            *count = found.map_or(0, |(_, count)| *count);
        }
        chart
    }

    /// Forgets latencies that are no longer recent.
    pub(super) fn forget(&mut self, now: Duration) {
        let is_old = |at: Duration| now.saturating_sub(at) > LATENCY_WINDOW;
        while self.latencies.front().is_some_and(|(at, _)| is_old(*at)) {
            self.latencies.pop_front();
        }
        self.probe_in = self.probe_in.filter(|_| self.state == State::Disabled);
    }
}
