//! The counts of a forecast and its samples over time.

use std::time::Duration;

use super::{Forecast, OUTAGE_AT, Sample, Scenario, Traffic};
use crate::time::Timestamp;

/// The forecast so far.
#[derive(Debug)]
pub(super) struct Tally {
    pub(super) forecast: Forecast,
    traffic: Traffic,
    outage_ends_at: Timestamp,
    step: Duration,
    /// When the last waiting delivery ended.
    last_end_at: Timestamp,
}

impl Tally {
    pub(super) fn new(scenario: &Scenario, ends_at: Timestamp) -> Self {
        let length = ends_at.since(OUTAGE_AT);
        // Whole seconds: times are in milliseconds, and a step must not fall between two of them.
        let step = Duration::from_secs((length / scenario.samples.max(1)).as_secs() + 1);
        let forecast =
            Forecast { samples: vec![Sample::default()], ends_at: length, ..Forecast::default() };
        let outage_ends_at = OUTAGE_AT.saturating_add(scenario.outage);
        let last_end_at = outage_ends_at;
        Tally { forecast, traffic: scenario.traffic, outage_ends_at, step, last_end_at }
    }

    /// When the next sample is due: no cohort is moved across it as a whole.
    pub(super) fn next_sample_at(&self) -> Timestamp {
        let last = self.forecast.samples.last().map_or(Duration::ZERO, |sample| sample.at);
        OUTAGE_AT.saturating_add(last + self.step)
    }

    /// Counts `count` successes from number `first` on: the first at this time, each other one with
    /// the same delay after its acceptance.
    pub(super) fn arrived(&mut self, first: u64, count: u64, at: Timestamp) {
        let delay = at.since(self.traffic.at(first));
        self.forecast.delivered += count;
        if at >= self.outage_ends_at && self.forecast.back_at.is_none() {
            self.forecast.back_at = Some(at.since(OUTAGE_AT));
        }
        if !delay.is_zero() {
            self.ended(first, count, at);
            self.forecast.late += count;
            *self.forecast.delays.entry(delay.as_secs()).or_default() += count;
        }
    }

    /// Counts deliveries, from number `first` on and at most `most`, that all arrived at this time
    /// and are late by the same number of seconds. Returns how many they are; at least one.
    pub(super) fn arrived_together(&mut self, first: u64, most: u64, at: Timestamp) -> u64 {
        let seconds = at.since(self.traffic.at(first)).as_secs();
        let newest = at.saturating_sub(Duration::from_secs(seconds));
        let after = self.traffic.before(newest.saturating_add(Duration::from_millis(1)));
        let count = after.saturating_sub(first).clamp(1, most.max(1));
        self.forecast.delivered += count;
        if at >= self.outage_ends_at && self.forecast.back_at.is_none() {
            self.forecast.back_at = Some(at.since(OUTAGE_AT));
        }
        self.last_end_at = self.last_end_at.max(at);
        self.forecast.late += count;
        *self.forecast.delays.entry(seconds).or_default() += count;
        count
    }

    /// Counts `count` deliveries that died, the first of them at this time.
    pub(super) fn died(&mut self, first: u64, count: u64, at: Timestamp) {
        self.forecast.dead += count;
        self.ended(first, count, at);
    }

    /// Counts `count` dead deliveries as replayed and no longer dead.
    pub(super) fn replayed(&mut self, count: u64, is_attempted: bool) {
        self.forecast.dead = self.forecast.dead.saturating_sub(count);
        if !is_attempted {
            let never = &mut self.forecast.dead_never_attempted;
            *never = never.saturating_sub(count);
        }
        self.forecast.replayed += count;
    }

    fn ended(&mut self, first: u64, count: u64, at: Timestamp) {
        let traffic = self.traffic;
        let later = traffic.offset(first + count.max(1) - 1).saturating_sub(traffic.offset(first));
        self.last_end_at = self.last_end_at.max(at.saturating_add(later));
    }

    /// Updates the peak backlog and the time of recovery, and takes a sample if one is due.
    pub(super) fn look(&mut self, now: Timestamp, backlog: u64, to_replay: u64) {
        let at = now.since(OUTAGE_AT);
        let forecast = &mut self.forecast;
        if backlog > forecast.peak_backlog {
            (forecast.peak_backlog, forecast.peak_at) = (backlog, at);
        }
        if backlog == 0
            && to_replay == 0
            && now >= self.outage_ends_at
            && forecast.back_at.is_some()
        {
            forecast.recovered_at.get_or_insert(self.last_end_at.since(OUTAGE_AT));
        }
        let last = forecast.samples.last().copied().unwrap_or_default();
        if at >= last.at + self.step {
            let Forecast { dead, failed_attempts, delivered, .. } = *forecast;
            let seconds = (at - last.at).as_secs().max(1);
            let per_minute = (delivered - last.delivered) * 60 / seconds;
            forecast.peak_per_minute = forecast.peak_per_minute.max(per_minute);
            forecast.samples.push(Sample { at, backlog, dead, failed_attempts, delivered });
        }
    }

    /// Completes the forecast; every accepted delivery must be accounted for.
    pub(super) fn finish(mut self, accepted: u64, waiting: u64, now: Timestamp) -> Forecast {
        self.forecast.accepted = accepted;
        self.forecast.waiting = waiting;
        self.forecast.ends_at = now.since(OUTAGE_AT);
        self.forecast
    }
}
