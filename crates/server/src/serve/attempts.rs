//! The log line of each attempt.
//!
//! The line is formatted before the settlement, because the store consumes the commit, and written
//! after the settlement is durable: the log has only settled attempts. If these lines are disabled,
//! none are formatted.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use postrider_domain::attempt::{Attempt, Ending, Turn};
use postrider_domain::delivery::Delivery;
use postrider_domain::hex;
use postrider_domain::ids::{DeliveryId, DestinationId, TenantId};
use postrider_domain::time::Timestamp;
use postrider_domain::trace::TraceContext;
use postrider_store::Commit;
use postrider_transport::{Clock as _, SystemClock};

use super::hosts::Hosts;
use super::metrics::class;
use crate::telemetry::{ATTEMPTS, AttemptLog};

/// The usual length of a line, to allocate once.
const LINE_BYTES: usize = 432;

/// The lines of the attempts of one commit. They contain no request and no response.
pub(super) enum AttemptLines {
    /// Lines of attempts are disabled.
    Nothing,
    /// Formatted lines of JSON.
    Lines { text: String, count: u64 },
    /// Fields for tracing, which formats them as text.
    Attempts(Vec<AttemptLine>),
}

impl AttemptLines {
    pub(super) fn of(commit: &Commit, log: &AttemptLog, hosts: &Hosts) -> AttemptLines {
        if !AttemptLog::is_wanted() {
            return AttemptLines::Nothing;
        }
        let attempts = (commit.deliveries.iter())
            .filter_map(|change| Some((&change.delivery, change.attempt.as_ref()?)));
        let contexts: HashMap<DeliveryId, TraceContext> = commit.traces.iter().copied().collect();
        let trace = |delivery: &Delivery, attempt: &Attempt| {
            let event = contexts.get(&delivery.id).copied();
            TraceContext::of_attempt(event, delivery.id, attempt.number).trace()
        };
        if !log.is_json() {
            let lines = attempts.map(|(delivery, attempt)| {
                AttemptLine::of(delivery, attempt, hosts, trace(delivery, attempt))
            });
            return AttemptLines::Attempts(lines.collect());
        }
        let now = SystemClock.now().to_string();
        let (mut text, mut count) =
            (String::with_capacity(attempts.clone().count() * LINE_BYTES), 0);
        for (delivery, attempt) in attempts {
            // Writing to a string cannot fail.
            let (host, trace) = (hosts.of(delivery.destination), trace(delivery, attempt));
            put_line(&mut text, &now, (delivery, attempt), (host.as_deref(), trace))
                .unwrap_or_default();
            count += 1;
        }
        AttemptLines::Lines { text, count }
    }

    /// Writes the lines to the log.
    pub(super) fn log(self, log: &AttemptLog) {
        match self {
            AttemptLines::Nothing => {}
            AttemptLines::Lines { count: 0, .. } => {}
            AttemptLines::Lines { text, count } => log.write(text.into_bytes(), count),
            AttemptLines::Attempts(all) => all.iter().for_each(AttemptLine::log),
        }
    }
}

/// One line of JSON, in tracing's format.
fn put_line(
    out: &mut String,
    now: &str,
    (delivery, attempt): (&Delivery, &Attempt),
    (host, trace): (Option<&str>, [u8; 16]),
) -> std::fmt::Result {
    write!(
        out,
        "{{\"timestamp\":\"{now}\",\"level\":\"INFO\",\"message\":\"attempt\",\"delivery\":\"{}\",\
         \"destination\":\"{}\",\"tenant\":\"{}\",\"attempt\":{},\"turn\":\"{}\"",
        delivery.id,
        delivery.destination,
        delivery.tenant,
        attempt.number,
        attempt.turn.as_str(),
    )?;
    if let Some(host) = host {
        // A host of a parsed URL has nothing that JSON escapes.
        write!(out, ",\"host\":\"{host}\"")?;
    }
    if let Some(retry) = attempt.turn.retry() {
        write!(out, ",\"retry\":{retry}")?;
    }
    write!(out, ",\"outcome\":\"{}\"", class(&attempt.ending))?;
    if let Some(status) = attempt.ending.status() {
        write!(out, ",\"status\":{status}")?;
    }
    if let Some(error) = error(&attempt.ending) {
        // Text from a receiver or the system may need escapes.
        write!(out, ",\"error\":{}", serde_json::Value::from(error))?;
    }
    let (ms, state) = (attempt.timings.total.as_millis(), delivery.state.name().as_str());
    write!(out, ",\"ms\":{ms},\"state\":\"{state}\"")?;
    if let Some(next) = delivery.next_attempt_at() {
        write!(out, ",\"next\":\"{next}\"")?;
    }
    let trace = hex::encode(&trace);
    writeln!(out, ",\"trace_id\":\"{trace}\",\"target\":\"{ATTEMPTS}\"}}")
}

fn error(ending: &Ending) -> Option<&str> {
    match ending {
        Ending::Answered(_) => None,
        Ending::Failed(failure) => Some(&failure.detail),
        Ending::OwnFault(fault) => Some(&fault.detail),
    }
}

/// The fields of one line.
pub(super) struct AttemptLine {
    delivery: DeliveryId,
    destination: DestinationId,
    host: Option<Arc<str>>,
    tenant: TenantId,
    number: u32,
    turn: Turn,
    outcome: &'static str,
    status: Option<u16>,
    error: Option<String>,
    took: Duration,
    state: &'static str,
    next: Option<Timestamp>,
    /// The trace that the receiver was sent, and that spans belong to.
    trace: [u8; 16],
}

impl AttemptLine {
    fn of(delivery: &Delivery, attempt: &Attempt, hosts: &Hosts, trace: [u8; 16]) -> AttemptLine {
        AttemptLine {
            delivery: delivery.id,
            destination: delivery.destination,
            host: hosts.of(delivery.destination),
            tenant: delivery.tenant.clone(),
            number: attempt.number,
            turn: attempt.turn,
            outcome: class(&attempt.ending),
            status: attempt.ending.status(),
            error: error(&attempt.ending).map(str::to_owned),
            took: attempt.timings.total,
            state: delivery.state.name().as_str(),
            next: delivery.next_attempt_at(),
            trace,
        }
    }

    fn log(&self) {
        tracing::info!(
            target: ATTEMPTS,
            delivery = %self.delivery,
            destination = %self.destination,
            host = self.host.as_deref(),
            tenant = %self.tenant,
            attempt = self.number,
            turn = self.turn.as_str(),
            retry = self.turn.retry(),
            outcome = self.outcome,
            status = self.status,
            error = self.error,
            ms = u64::try_from(self.took.as_millis()).unwrap_or(u64::MAX),
            state = self.state,
            next = self.next.map(|at| at.to_string()),
            trace_id = hex::encode(&self.trace),
            "attempt"
        );
    }
}

#[cfg(test)]
mod tests {
    use postrider_domain::attempt::{Failure, FailureClass, Timings};
    use postrider_domain::event::{Event, RawJson};
    use postrider_domain::ids::{EventId, SubscriptionId};

    use super::*;

    #[test]
    fn attempt_line_is_valid_json_whatever_a_receiver_said() {
        let at = Timestamp::from_unix_ms(1_763_199_000_120);
        let event = Event {
            id: EventId::new(at, [1; 10]),
            tenant: TenantId::default_tenant(),
            kind: "task.updated".parse().unwrap(),
            object: None,
            data: RawJson::from_trusted("1".into()),
            old: None,
            time: at,
            trace: None,
        };
        let destination = DestinationId::of(&event.tenant, "https://hooks.example.com/");
        let (id, subscription) = (DeliveryId::new(at, [2; 10]), SubscriptionId::new(at, [3; 10]));
        let delivery = Delivery::accepted(id, &event, subscription, destination, at);
        let detail = "reset by \"peer\"\n\u{1b}[2J".to_owned();
        let attempt = Attempt {
            number: 2,
            turn: Turn::Retry(1),
            started_at: at,
            timings: Timings { total: Duration::from_millis(7), ..Timings::default() },
            ending: Ending::Failed(Failure { class: FailureClass::Reset, detail: detail.clone() }),
        };
        let mut text = String::new();
        let place = (Some("[::1]"), TraceContext::of_attempt(None, id, 2).trace());
        put_line(&mut text, &at.to_string(), (&delivery, &attempt), place).unwrap();
        assert!(text.ends_with("}\n") && text.lines().count() == 1);
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&line["message"], &line["attempt"]), (&"attempt".into(), &2.into()));
        assert_eq!(line["error"], detail);
        assert_eq!((&line["turn"], &line["retry"]), (&"retry".into(), &1.into()));
        assert_eq!((&line["ms"], &line["state"]), (&7.into(), &"queued".into()));
        assert_eq!(line["delivery"], id.to_string());
        assert_eq!((&line["target"], &line["host"]), (&ATTEMPTS.into(), &"[::1]".into()));
        assert_eq!(line.get("status"), None);
        // Without a trace of the event, the delivery is one.
        assert_eq!(line["trace_id"], hex::encode(id.as_bytes()));
    }
}
