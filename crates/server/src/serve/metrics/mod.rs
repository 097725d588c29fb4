//! The metrics, and the page that Prometheus reads.
//!
//! Counters count what became durable: they are updated after the store's answers (see
//! [`super::instrumented_store`]), so that an attempt is counted once, when it is settled. Gauges
//! are read every few seconds. No label has a value that a tenant can choose.

mod arrivals;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use postrider_domain::attempt::{Ending, FailureClass, Turn};
use postrider_domain::attempt_tally::AttemptTally;
use postrider_domain::delivery::{DeadReason, StateName};
use postrider_domain::destination::DestinationState;
use postrider_domain::ids::{DestinationId, TenantId};
use postrider_domain::ledger::Ledger;
use postrider_engine::MisfitCounts;
use postrider_store::ShardLeases;
use tokio::time::Instant;

use self::arrivals::RecentArrivals;
use super::machine;
use super::requests::Requests;

/// Upper bounds of the latency histogram's buckets, in microseconds.
const BUCKETS_US: [u64; 12] = [
    250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 500_000, 2_500_000, 10_000_000,
];

/// Upper bounds of the time from acceptance to delivery, in microseconds: an attempt may take 5 s, and
/// what fails at first is delivered minutes or hours later.
const DELIVERY_US: [u64; 16] = [
    5_000,
    25_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    4_000_000,
    5_000_000,
    6_000_000,
    10_000_000,
    30_000_000,
    120_000_000,
    600_000_000,
    3_600_000_000,
    86_400_000_000,
];
/// How many of the worst destinations are shown.
const WORST_MAX: usize = 10;

/// All metrics of a process. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Metrics {
    state: Arc<Mutex<State>>,
    /// Apart from the rest, so that no request waits for a settlement.
    requests: Arc<Mutex<Requests>>,
    arrivals: Arc<Mutex<RecentArrivals>>,
}

#[derive(Default)]
struct State {
    events: u64,
    deliveries: u64,
    /// From acceptance to delivery.
    delivery_seconds: Option<Histogram>,
    /// Dead deliveries by reason.
    dead: BTreeMap<&'static str, u64>,
    /// The data directory, whose disk is shown.
    data_dir: Option<PathBuf>,
    /// Attempts by turn and outcome.
    attempts: BTreeMap<(&'static str, &'static str), u64>,
    attempt_seconds: Histogram,
    accept_seconds: Histogram,
    settle_seconds: Histogram,
    store_errors: BTreeMap<&'static str, u64>,
    spans_exported: u64,
    spans_lost: u64,
    transitions: BTreeMap<(&'static str, &'static str), u64>,
    /// Destinations of this node's shards that are disabled or frozen. All others are enabled.
    not_enabled: HashMap<DestinationId, Standing>,
    /// Those of them that have a subscription, as they were last counted; `None` before that.
    standing: Option<Arc<Vec<Standing>>>,
    destinations: DestinationCounts,
    /// Messages to the targets of alerts, sent and failed.
    alerts: BTreeMap<String, (u64, u64)>,
    gauges: GaugeValues,
    /// How often each quota refused something.
    refused: Vec<(&'static str, u64)>,
}

/// A destination in this node's shards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) destination: DestinationId,
    pub(crate) tenant: TenantId,
    pub(crate) state: DestinationState,
    /// Consecutive failures.
    pub(crate) failures: u64,
}

/// Values that are read every few seconds.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct GaugeValues {
    /// The ledger, including deliveries in flight.
    pub(crate) ledger: Ledger,
    /// Whether transitions are suspended because most destinations fail at once.
    pub(crate) transitions_suspended: bool,
    /// How far Postrider's clock is ahead of the time of day.
    pub(crate) clock_ahead_ms: i64,
    /// Shards that this node owns.
    pub(crate) shards: u64,
    /// Whether the lease of these shards is valid.
    pub(crate) leased: bool,
    /// How often a filter exceeded its budget since the start.
    pub(crate) filters_over_budget: u64,
    pub(crate) misfits: MisfitCounts,
    /// Attempts in flight from the first lane.
    pub(crate) in_flight_first: u64,
    /// Attempts in flight from the retry lane.
    pub(crate) in_flight_retry: u64,
    /// How long the oldest queued delivery has waited.
    pub(crate) first_lane_age: Duration,
    /// How long the earliest waiting delivery is overdue.
    pub(crate) retry_lane_overdue: Duration,
}

/// Destinations of this node's shards by their state.
#[derive(Debug, Clone, Copy, Default)]
struct DestinationCounts {
    all: u64,
    disabled: u64,
    frozen: u64,
}

impl DestinationCounts {
    const fn of(self, state: DestinationState) -> u64 {
        match state {
            DestinationState::Enabled => self.all - self.disabled - self.frozen,
            DestinationState::Disabled => self.disabled,
            DestinationState::Frozen => self.frozen,
        }
    }
}

pub(super) struct Histogram {
    bounds: &'static [u64],
    buckets: Vec<u64>,
    count: u64,
    sum_us: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram::with(&BUCKETS_US)
    }
}

impl Histogram {
    fn with(bounds: &'static [u64]) -> Self {
        Histogram { bounds, buckets: vec![0; bounds.len()], count: 0, sum_us: 0 }
    }

    pub(super) fn observe(&mut self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.count += 1;
        self.sum_us = self.sum_us.saturating_add(us);
        for (bucket, end) in self.buckets.iter_mut().zip(self.bounds) {
            *bucket += u64::from(us <= *end);
        }
    }

    fn render(&self, page: &mut Page, name: &str, help: &str) {
        page.head(name, "histogram", help);
        self.lines(page, name, None);
    }

    /// The lines, with a label where there is one.
    pub(super) fn lines(&self, page: &mut Page, name: &str, label: Option<&str>) {
        let (before, alone) = match label {
            Some(label) => (format!("{label},"), format!("{{{label}}}")),
            None => (String::new(), String::new()),
        };
        for (count, end) in self.buckets.iter().zip(self.bounds) {
            page.line(&format!("{name}_bucket{{{before}le=\"{}\"}}", seconds(*end)), count);
        }
        page.line(&format!("{name}_bucket{{{before}le=\"+Inf\"}}"), &self.count);
        page.line(&format!("{name}_sum{alone}"), &seconds(self.sum_us));
        page.line(&format!("{name}_count{alone}"), &self.count);
    }
}

/// How deliveries of a commit ended.
#[derive(Debug, Default)]
pub(crate) struct Endings {
    /// From acceptance to delivery.
    pub(crate) delivered: Vec<Duration>,
    /// The same of those that arrived at their first attempt, with their tenants.
    pub(crate) at_first: Vec<(TenantId, Duration)>,
    /// Why they died.
    pub(crate) dead: Vec<DeadReason>,
}

/// Microseconds as decimal seconds, exactly.
fn seconds(us: u64) -> String {
    format!("{}.{:06}", us / 1_000_000, us % 1_000_000)
}

impl Metrics {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn requests(&self) -> MutexGuard<'_, Requests> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request to the API was answered.
    pub(crate) fn request(
        &self,
        what: (&axum::http::Method, &str),
        status: u16,
        problem: Option<&'static str>,
        took: Duration,
    ) {
        self.requests().add(what, status, problem, took);
    }

    /// Shows the disk of this directory.
    pub(crate) fn watch_disk(&self, data_dir: PathBuf) {
        self.state().data_dir = Some(data_dir);
    }

    /// Deliveries ended, durably.
    pub(crate) fn ended(&self, endings: &Endings) {
        if endings.delivered.is_empty() && endings.dead.is_empty() {
            return;
        }
        let mut state = self.state();
        let seconds = state.delivery_seconds.get_or_insert_with(|| Histogram::with(&DELIVERY_US));
        endings.delivered.iter().for_each(|took| seconds.observe(*took));
        for reason in &endings.dead {
            let reason = match reason {
                DeadReason::Exhausted => "exhausted",
                DeadReason::NotAdmitted => "not_admitted",
            };
            *state.dead.entry(reason).or_default() += 1;
        }
    }

    /// Deliveries arrived at their first attempt.
    pub(crate) fn arrived(&self, now: Instant, at_first: &[(TenantId, Duration)]) {
        if !at_first.is_empty() {
            self.arrivals.lock().unwrap_or_else(PoisonError::into_inner).add(now, at_first);
        }
    }

    /// How long such deliveries took in the last minutes, of a tenant or of all.
    pub(crate) fn arrivals(&self, now: Instant, tenant: Option<&TenantId>) -> AttemptTally {
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner).lately(now, tenant)
    }

    /// Events with their deliveries became durable.
    pub(crate) fn accepted(&self, events: u64, deliveries: u64, took: Duration) {
        let mut state = self.state();
        state.events += events;
        state.deliveries += deliveries;
        state.accept_seconds.observe(took);
    }

    /// A commit with these attempts became durable.
    pub(crate) fn settled<'a>(
        &self,
        took: Duration,
        attempts: impl Iterator<Item = (Turn, &'static str, Duration)> + 'a,
    ) {
        let mut state = self.state();
        state.settle_seconds.observe(took);
        for (turn, outcome, took) in attempts {
            *state.attempts.entry((turn.as_str(), outcome)).or_default() += 1;
            state.attempt_seconds.observe(took);
        }
    }

    /// Counts spans that were sent to the trace collector, or lost.
    pub(super) fn spans(&self, exported: u64, lost: u64) {
        let mut state = self.state();
        state.spans_exported += exported;
        state.spans_lost += lost;
    }

    /// The store answered an error.
    pub(crate) fn store_failed(&self, what: &'static str) {
        *self.state().store_errors.entry(what).or_default() += 1;
    }

    /// A destination went from one state to another.
    pub(crate) fn transition(&self, from: DestinationState, to: DestinationState) {
        *self.state().transitions.entry((from.as_str(), to.as_str())).or_default() += 1;
    }

    /// Records the state of a destination in this node's shards.
    pub(super) fn destination_is(&self, standing: Standing) {
        match standing.state {
            DestinationState::Enabled => self.state().not_enabled.remove(&standing.destination),
            DestinationState::Disabled | DestinationState::Frozen => {
                self.state().not_enabled.insert(standing.destination, standing)
            }
        };
    }

    /// The disabled and frozen destinations that have a subscription, in this node's shards; `None`
    /// until they are counted for the first time.
    pub(super) fn standing(&self) -> Option<Arc<Vec<Standing>>> {
        self.state().standing.clone()
    }

    /// Shows a destination of each state among the worst, for those who document the page.
    pub(crate) fn show_destination(&self) {
        let shown = [DestinationState::Disabled, DestinationState::Frozen].map(|state| {
            let tenant = TenantId::default_tenant();
            let destination = DestinationId::of(&tenant, "https://hooks.example.com/");
            Standing { destination, tenant, state, failures: 101 }
        });
        self.state().standing = Some(Arc::new(shown.to_vec()));
    }

    /// Counts a message to a target of alerts as sent or failed; `None` only shows the target with
    /// zeros.
    pub(crate) fn alert(&self, target: &str, sent: Option<bool>) {
        let mut state = self.state();
        let (good, bad) = state.alerts.entry(target.to_owned()).or_default();
        *good += u64::from(sent == Some(true));
        *bad += u64::from(sent == Some(false));
    }

    /// Counts the destinations that have a subscription, in the shards that this node owns. So a
    /// shard that moved is counted by its new owner only, and a destination without a subscription
    /// by no node. The state of a frozen destination is kept while the shard is owned, because it
    /// is still frozen if it is subscribed again.
    pub(super) fn count_destinations(
        &self,
        named: impl Iterator<Item = DestinationId>,
        leases: &ShardLeases,
    ) {
        let not_enabled = {
            let mut state = self.state();
            state.not_enabled.retain(|destination, _| leases.has(destination.shard()));
            state.not_enabled.clone()
        };
        // Counted without the lock, so that no settlement waits for it.
        let mut counts = DestinationCounts::default();
        let mut standing = Vec::new();
        for destination in named.filter(|destination| leases.has(destination.shard())) {
            counts.all += 1;
            let Some(found) = not_enabled.get(&destination) else { continue };
            match found.state {
                DestinationState::Disabled => counts.disabled += 1,
                DestinationState::Frozen => counts.frozen += 1,
                DestinationState::Enabled => continue,
            }
            standing.push(found.clone());
        }
        let mut state = self.state();
        (state.destinations, state.standing) = (counts, Some(Arc::new(standing)));
    }

    /// What quotas have refused so far.
    pub(crate) fn refused(&self, refused: Vec<(&'static str, u64)>) {
        self.state().refused = refused;
    }

    /// Replaces the gauges.
    pub(super) fn set_gauges(&self, gauges: GaugeValues) {
        self.state().gauges = gauges;
    }

    /// The page that Prometheus reads.
    pub(crate) fn render(&self) -> String {
        let state = self.state();
        let mut page = Page(String::with_capacity(8 * 1024));
        state.render_counters(&mut page);
        state.render_endings(&mut page);
        state.render_lanes(&mut page);
        let data_dir = state.data_dir.clone();
        drop(state);
        self.requests().render(&mut page);
        machine::render_process(&mut page);
        if let Some(data_dir) = data_dir {
            machine::render_disk(&mut page, &data_dir);
        }
        page.0
    }
}

impl State {
    fn render_counters(&self, page: &mut Page) {
        page.counter("postrider_events_accepted_total", "Events that became durable.", self.events);
        let help = "Deliveries that became durable.";
        page.counter("postrider_deliveries_accepted_total", help, self.deliveries);
        page.head("postrider_attempts_total", "counter", "Attempts that were settled.");
        for ((turn, outcome), count) in &self.attempts {
            let name = format!("postrider_attempts_total{{turn=\"{turn}\",outcome=\"{outcome}\"}}");
            page.line(&name, count);
        }
        page.head(
            "postrider_circuit_transitions_total",
            "counter",
            "Changes of destinations' states.",
        );
        for ((from, to), count) in &self.transitions {
            let name =
                format!("postrider_circuit_transitions_total{{from=\"{from}\",to=\"{to}\"}}");
            page.line(&name, count);
        }
        page.head("postrider_store_errors_total", "counter", "Errors of the store.");
        for (what, count) in &self.store_errors {
            page.line(&format!("postrider_store_errors_total{{call=\"{what}\"}}"), count);
        }
        let help = "Requests that were refused because a limit was reached.";
        page.head("postrider_quota_refusals_total", "counter", help);
        for (quota, count) in &self.refused {
            page.line(&format!("postrider_quota_refusals_total{{limit=\"{quota}\"}}"), count);
        }
        let help = "Messages to targets of alerts.";
        page.head("postrider_alerts_total", "counter", help);
        for (target, (sent, failed)) in &self.alerts {
            for (outcome, count) in [("sent", sent), ("failed", failed)] {
                let labels = format!("{{target=\"{target}\",outcome=\"{outcome}\"}}");
                page.line(&format!("postrider_alerts_total{labels}"), count);
            }
        }
        let help = "Spans that the trace collector accepted.";
        page.counter("postrider_spans_exported_total", help, self.spans_exported);
        let help = "Spans that were lost: the queue was full, or the trace collector failed.";
        page.counter("postrider_spans_lost_total", help, self.spans_lost);
        let help = "Duration of attempts.";
        self.attempt_seconds.render(page, "postrider_attempt_seconds", help);
        let help = "From an acceptance to its durability (with the embedded store, the journal).";
        self.accept_seconds.render(page, "postrider_accept_sync_seconds", help);
        let help = "From a settlement to its durability.";
        self.settle_seconds.render(page, "postrider_settlement_seconds", help);
    }

    fn render_endings(&self, page: &mut Page) {
        let help = "From the acceptance of a delivery to its delivery.";
        let none = Histogram::with(&DELIVERY_US);
        let seconds = self.delivery_seconds.as_ref().unwrap_or(&none);
        seconds.render(page, "postrider_delivery_seconds", help);
        let help = "Deliveries that died, by reason.";
        page.head("postrider_deliveries_dead_total", "counter", help);
        for reason in ["exhausted", "not_admitted"] {
            let count = self.dead.get(reason).copied().unwrap_or_default();
            page.line(&format!("postrider_deliveries_dead_total{{reason=\"{reason}\"}}"), &count);
        }
        let help = "Consecutive failures of the ten worst disabled and frozen destinations in this node's shards.";
        page.head("postrider_worst_destination_failures", "gauge", help);
        let mut worst: Vec<&Standing> = self.standing.iter().flat_map(|all| all.iter()).collect();
        worst.sort_by_key(|one| (std::cmp::Reverse(one.failures), one.destination));
        for one in worst.into_iter().take(WORST_MAX) {
            let (destination, state) = (one.destination, one.state.as_str());
            let labels = format!("destination=\"{destination}\",state=\"{state}\"");
            let name = format!("postrider_worst_destination_failures{{{labels}}}");
            page.line(&name, &one.failures);
        }
    }

    fn render_lanes(&self, page: &mut Page) {
        let ledger = &self.gauges.ledger;
        page.head("postrider_ledger_accepted", "gauge", "Deliveries that were ever accepted.");
        page.line("postrider_ledger_accepted", &ledger.accepted);
        page.head("postrider_ledger", "gauge", "Deliveries by state.");
        for name in [
            StateName::Queued,
            StateName::InFlight,
            StateName::Waiting,
            StateName::Delivered,
            StateName::Dead,
            StateName::Cancelled,
        ] {
            page.line(&format!("postrider_ledger{{state=\"{name}\"}}"), &ledger.count(name));
        }
        let help =
            "1 while accepted = queued + in flight + waiting + delivered + dead + cancelled.";
        page.head("postrider_ledger_balanced", "gauge", help);
        page.line("postrider_ledger_balanced", &u64::from(ledger.balances()));
        page.head("postrider_lane_depth", "gauge", "Deliveries in a lane.");
        page.line("postrider_lane_depth{lane=\"first\"}", &ledger.queued);
        page.line("postrider_lane_depth{lane=\"retry\"}", &ledger.waiting);
        page.head("postrider_lane_in_flight", "gauge", "Attempts in flight.");
        page.line("postrider_lane_in_flight{lane=\"first\"}", &self.gauges.in_flight_first);
        page.line("postrider_lane_in_flight{lane=\"retry\"}", &self.gauges.in_flight_retry);
        let help =
            "Filters that exceeded their budget of steps; the event was delivered unfiltered.";
        page.head("postrider_filters_over_budget_total", "counter", help);
        page.line("postrider_filters_over_budget_total", &self.gauges.filters_over_budget);
        let help = "Events that did not fit the catalogue of event types.";
        page.head("postrider_misfits_total", "counter", help);
        let MisfitCounts { flagged, refused } = self.gauges.misfits;
        page.line("postrider_misfits_total{outcome=\"flagged\"}", &flagged);
        page.line("postrider_misfits_total{outcome=\"refused\"}", &refused);
        let help =
            "Age of the oldest queued delivery; by how much the first waiting one is overdue.";
        page.head("postrider_lane_age_seconds", "gauge", help);
        let ages =
            [("first", self.gauges.first_lane_age), ("retry", self.gauges.retry_lane_overdue)];
        for (lane, age) in ages {
            let us = u64::try_from(age.as_micros()).unwrap_or(u64::MAX);
            page.line(&format!("postrider_lane_age_seconds{{lane=\"{lane}\"}}"), &seconds(us));
        }
        let help = "1 while transitions are suspended, because so many destinations fail at once that the fault is probably ours.";
        page.head("postrider_mass_failure_hold", "gauge", help);
        page.line("postrider_mass_failure_hold", &u64::from(self.gauges.transitions_suspended));
        let help =
            "How far Postrider's clock is ahead of the time of day, after somebody set that.";
        page.head("postrider_clock_ahead_milliseconds", "gauge", help);
        page.line("postrider_clock_ahead_milliseconds", &self.gauges.clock_ahead_ms);
        page.head("postrider_shards", "gauge", "Shards that this node owns, of 256.");
        page.line("postrider_shards", &self.gauges.shards);
        let help = "1 while this node's lease is valid; nothing is sent otherwise.";
        page.head("postrider_leased", "gauge", help);
        page.line("postrider_leased", &u64::from(self.gauges.leased));
        let help = "Destinations in this node's shards that have a subscription, by state.";
        page.head("postrider_circuits", "gauge", help);
        for state in DestinationState::ALL {
            let count = self.destinations.of(state);
            page.line(&format!("postrider_circuits{{state=\"{}\"}}", state.as_str()), &count);
        }
    }
}

/// The class of an ending: `delivered`, or the class of a status or a failure.
pub(super) fn class(ending: &Ending) -> &'static str {
    match ending {
        success if success.is_success() => "delivered",
        Ending::Answered(answer) => match answer.status {
            100..200 => "status_1xx",
            300..400 => "status_3xx",
            400..500 => "status_4xx",
            500..600 => "status_5xx",
            _ => "status_other",
        },
        Ending::Failed(failure) => match failure.class {
            FailureClass::Refused => "refused",
            FailureClass::Reset => "reset",
            FailureClass::Dns => "dns",
            FailureClass::Tls => "tls",
            FailureClass::Timeout(_) => "timeout",
            FailureClass::Blocked => "blocked",
            FailureClass::Protocol => "protocol",
        },
        Ending::OwnFault(_) => "own_fault",
    }
}

/// The text format of Prometheus.
pub(super) struct Page(String);

impl Page {
    pub(super) fn head(&mut self, name: &str, kind: &str, help: &str) {
        self.0.push_str(&format!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    pub(super) fn line(&mut self, name: &str, value: &dyn std::fmt::Display) {
        self.0.push_str(&format!("{name} {value}\n"));
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, "counter", help);
        self.line(name, &value);
    }
}

#[cfg(test)]
mod tests;
