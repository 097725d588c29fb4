//! The forecast as a table and as JSON.

use std::time::Duration;

use postrider_domain::circuit::{Evidence, StateName, Transition};
use postrider_domain::forecast::{Forecast, OUTAGE_AT};
use postrider_domain::policy::Share;
use serde_json::{Value as Json, json};

use super::given::{grouped, short};
use super::{Plan, Question};
use crate::output::{Colour, Output, table as columns};

/// The question in one line.
pub(super) fn headline(question: &Question) -> String {
    let outage = question.outage;
    let traffic = question.scenario.traffic;
    let when = match outage.begins {
        None => String::new(),
        Some(_) => {
            let (from, to) = (outage.shown(Duration::ZERO), outage.shown(outage.length));
            format!(" from {from} to {to}")
        }
    };
    let rate = match traffic.per.as_secs() {
        1 => format!("{} deliveries a second", grouped(traffic.deliveries)),
        per => format!(
            "{} deliveries in {}",
            grouped(traffic.deliveries),
            short(Duration::from_secs(per))
        ),
    };
    format!("One URL is down for {}{when}, with {rate}.", short(outage.length))
}

/// A row of the table: its name, and the function that computes a cell.
type Row = (&'static str, fn(&Question, &Forecast) -> String);

const ROWS: [Row; 15] = [
    ("accepted in all", |_, f| grouped(f.accepted)),
    ("arrived late", |_, f| grouped(f.late)),
    ("dead (kept, can be replayed)", |_, f| grouped(f.dead)),
    ("  of these never attempted", |_, f| grouped(f.dead_never_attempted)),
    ("dead, and replayed by itself", |_, f| grouped(f.replayed)),
    ("still waiting at the end", |_, f| grouped(f.waiting)),
    ("requests to the URL while down", |_, f| grouped(f.failed_attempts)),
    ("most that waited at a time", |_, f| grouped(f.peak_backlog)),
    ("disabled", |q, f| changed(q, f, StateName::Open)),
    ("frozen", |q, f| changed(q, f, StateName::Frozen)),
    ("first one arrives after the end", |q, f| after_the_end(q, f.back_at)),
    ("nothing waits any more", |q, f| after_the_end(q, f.recovered_at)),
    ("half of the late ones late by", |_, f| late_by(f, Share::percent(50))),
    ("the latest late by", |_, f| late_by(f, Share::ALL)),
    ("most arrivals in a minute", |_, f| grouped(f.peak_per_minute)),
];

fn changed(question: &Question, forecast: &Forecast, to: StateName) -> String {
    let Some(change) = forecast.transitions.iter().find(|change| change.to == to) else {
        return "-".to_owned();
    };
    question.outage.shown(change.at.since(OUTAGE_AT))
}

fn after_the_end(question: &Question, at: Option<Duration>) -> String {
    match at {
        None => "never by itself".to_owned(),
        Some(at) => {
            let after = at.saturating_sub(question.outage.length);
            format!("{} later", short(after))
        }
    }
}

fn late_by(forecast: &Forecast, share: Share) -> String {
    forecast.delay(share).filter(|_| forecast.late > 0).map_or_else(|| "-".to_owned(), short)
}

/// The table, with an explanation below.
pub(super) fn table(question: &Question, plans: &[Plan], output: Output) -> String {
    let mut head = vec![""];
    head.extend(plans.iter().map(|plan| plan.name.as_str()));
    let rows = ROWS.iter().map(|(name, cell)| {
        let mut row = vec![(*name).to_owned()];
        row.extend(plans.iter().map(|plan| {
            let text = cell(question, &plan.forecast);
            match *name {
                "dead (kept, can be replayed)" if text == "0" => output.paint(Colour::Green, &text),
                "dead (kept, can be replayed)" => output.paint(Colour::Red, &text),
                _ => text,
            }
        }));
        row
    });
    let mut text = output.paint(Colour::Bold, &headline(question));
    text.push_str("\n\n");
    text.push_str(&columns(&head, rows.collect()));
    for plan in plans {
        text.push_str(&format!("\n\n{}: {}", plan.name, verdict(question, &plan.forecast)));
    }
    text
}

/// The result in a sentence.
pub(super) fn verdict(question: &Question, forecast: &Forecast) -> String {
    let is_frozen = forecast.transitions.iter().any(|change| change.to == StateName::Frozen);
    let dead = match forecast.dead {
        0 => "nothing is dead".to_owned(),
        dead => format!("{} deliveries are dead", grouped(dead)),
    };
    let back = match (forecast.recovered_at, forecast.back_at) {
        (Some(at), _) => {
            format!("the last late one arrives {}", question.outage.shown(at))
        }
        (None, Some(at)) => {
            format!(
                "it is back {}, and {} still wait at the end",
                question.outage.shown(at),
                grouped(forecast.waiting)
            )
        }
        (None, None) if is_frozen => {
            "it is frozen: nothing arrives until somebody enables it (--enable-after shows that)"
                .to_owned()
        }
        (None, None) => "nothing arrives any more".to_owned(),
    };
    format!("{dead}; {back}.")
}

fn seconds(at: Option<Duration>) -> Json {
    at.map_or(Json::Null, |at| json!(at.as_secs_f64()))
}

fn transition(change: &Transition) -> Json {
    let why = match &change.evidence {
        Evidence::FailureShare => "failure_share",
        Evidence::ConsecutiveFailures => "consecutive_failures",
        Evidence::NoSuccess { .. } => "no_success",
        Evidence::Success { .. } => "success",
        Evidence::ByHand { .. } => "by_hand",
        Evidence::Gone
        | Evidence::ProbeSent { .. }
        | Evidence::ProbeFailed
        | Evidence::ProbeLost => "other",
    };
    let state = match change.to {
        StateName::Closed => "enabled",
        StateName::Open | StateName::HalfOpen => "disabled",
        StateName::Frozen => "frozen",
    };
    json!({ "at_seconds": change.at.since(OUTAGE_AT).as_secs_f64(), "state": state, "why": why })
}

/// Everything, for programs. Times are seconds from the beginning of the outage.
pub(super) fn json(question: &Question, plans: &[Plan]) -> Json {
    let scenario = &question.scenario;
    let plans = plans.iter().map(|Plan { name, forecast }| {
        let samples = forecast.samples.iter().map(|sample| {
            json!({
                "at_seconds": sample.at.as_secs_f64(),
                "backlog": sample.backlog,
                "dead": sample.dead,
                "failed_attempts": sample.failed_attempts,
                "delivered": sample.delivered,
            })
        });
        json!({
            "name": name,
            "accepted": forecast.accepted,
            "delivered": forecast.delivered,
            "late": forecast.late,
            "dead": forecast.dead,
            "dead_never_attempted": forecast.dead_never_attempted,
            "replayed": forecast.replayed,
            "waiting": forecast.waiting,
            "failed_attempts": forecast.failed_attempts,
            "failed_probes": forecast.failed_probes,
            "peak_backlog": forecast.peak_backlog,
            "peak_at_seconds": forecast.peak_at.as_secs_f64(),
            "peak_per_minute": forecast.peak_per_minute,
            "back_at_seconds": seconds(forecast.back_at),
            "recovered_at_seconds": seconds(forecast.recovered_at),
            "late_by_seconds": {
                "p50": seconds(forecast.delay(Share::percent(50))),
                "p99": seconds(forecast.delay(Share::percent(99))),
                "max": seconds(forecast.delay(Share::ALL)),
            },
            "timeline": forecast.transitions.iter().map(transition).collect::<Vec<_>>(),
            "samples": samples.collect::<Vec<_>>(),
        })
    });
    json!({
        "outage_seconds": scenario.outage.as_secs_f64(),
        "deliveries": scenario.traffic.deliveries,
        "per_seconds": scenario.traffic.per.as_secs_f64(),
        "healthy_before_seconds": scenario.healthy_before.as_secs_f64(),
        "enabled_after_seconds": seconds(scenario.enabled_after),
        "plans": plans.collect::<Vec<_>>(),
    })
}
