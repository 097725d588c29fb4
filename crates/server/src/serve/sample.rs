//! A page of metrics in which every label has every value, for those who document it.

use std::time::Duration;

use postrider_domain::attempt::{
    Answer, BodyEnd, Ending, Failure, FailureClass, OwnFault, OwnFaultKind, Phase, Turn,
};
use postrider_domain::destination::DestinationState;
use postrider_engine::Quota;

use super::metrics::{Metrics, class};

/// What `/metrics` would show if everything had happened once.
pub(crate) fn sample_metrics() -> String {
    let metrics = Metrics::default();
    for turn in [Turn::First, Turn::Retry(1), Turn::Probe, Turn::Manual] {
        let attempts = endings().into_iter().map(|ending| (turn, class(&ending), Duration::ZERO));
        metrics.settled(Duration::ZERO, attempts);
    }
    for from in DestinationState::ALL {
        for to in DestinationState::ALL.into_iter().filter(|to| *to != from) {
            metrics.transition(from, to);
        }
    }
    for call in ["accept", "settle"] {
        metrics.store_failed(call);
    }
    metrics.refused(Quota::ALL.iter().map(|quota| (quota.name(), 1)).collect());
    metrics.alert("ops", Some(true));
    metrics.render()
}

/// One ending of each class.
fn endings() -> Vec<Ending> {
    let answered = [200, 100, 300, 400, 500, 600].map(|status| {
        let body_end = BodyEnd::Whole;
        Ending::Answered(Answer { status, retry_after: None, body: "".into(), body_end })
    });
    let failed = [
        FailureClass::Refused,
        FailureClass::Reset,
        FailureClass::Dns,
        FailureClass::Tls,
        FailureClass::Timeout(Phase::Connect),
        FailureClass::Blocked,
        FailureClass::Protocol,
    ];
    let failed = failed.map(|class| Ending::Failed(Failure { class, detail: String::new() }));
    let own = OwnFault { kind: OwnFaultKind::Resolver, detail: String::new() };
    answered.into_iter().chain(failed).chain([Ending::OwnFault(own)]).collect()
}
